"""Lists of members: a column is one line of `COLUMNS`, and nothing that the API tells of a member is forgotten."""

from typing import Any

from tests.cli.test_operators import MEMBERS, member_example

from batonpass.cli.members import LISTED
from batonpass.dashboard.view_models.members import COLUMNS, state_words

NOT_LISTED = {
    "away_until",
    "faults",
    "drain_deadline_at",
    "endpoint",
    "joined_at",
    "max_tasks",
    "member_epoch",
    "on_lease_lost",
    "reports",
    "suspected",
    "topology_epoch",
}
"""What is shown with one member alone: the list would grow too wide."""


class Noting(dict[str, Any]):
    """A member that notes what is asked of it."""

    def __init__(self, member: dict[str, Any]) -> None:
        super().__init__(member)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)


def test_whatever_the_api_tells_of_a_member_has_a_column_or_is_left_out_on_purpose() -> None:
    member = Noting(member_example())
    for cell in LISTED.values():
        cell(member)
    assert sorted(set(member) - member.asked - NOT_LISTED) == [], (
        "give it a column in COLUMNS, or name it in NOT_LISTED"
    )
    assert sorted(member.asked & NOT_LISTED) == [], "it has a column: take it out of NOT_LISTED"
    assert sorted((member.asked | NOT_LISTED) - set(member)) == [], "the API does not tell it (codec/views.py)"


def test_a_column_of_every_list_is_a_column_of_this_one() -> None:
    assert COLUMNS.items() <= LISTED.items()


def test_the_members_of_these_tests_have_nothing_that_the_api_does_not_tell() -> None:
    assert {name for member in MEMBERS for name in member} <= set(member_example())


def test_a_member_is_not_said_to_be_stable_before_it_was_heard() -> None:
    unheard = member_example() | {"last_heard_at": None}
    assert state_words(unheard) == "not heard since the coordinator started"
    assert state_words(unheard | {"state": "away"}) == "restarting"
