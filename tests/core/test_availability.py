"""How well a member may take something new: the worst that holds of it, and who takes if nobody is there."""

from dataclasses import replace

import pytest

from batonpass.core.handover.view import Availability, View
from batonpass.core.state.ids import GroupId, MemberId
from batonpass.core.state.model import Drain, Group, Member
from batonpass.core.state.pmap import PMap
from batonpass.core.state.policy import GroupConfig
from batonpass.core.state.soft import MemberSoft, Soft

NOW = 1_000_000
OVERDUE_MS = Group(GroupId("g")).overdue_ms
M = MemberId("m")
DRAINS, AWAY = {"drain": Drain(NOW, None, NOW + 9)}, {"away_until_ms": NOW + 9}


@pytest.mark.parametrize(
    ("silent_ms", "fields", "availability"),
    [
        (OVERDUE_MS, {}, Availability.THERE),
        (OVERDUE_MS, DRAINS, Availability.DRAINING),
        (OVERDUE_MS + 1, DRAINS, Availability.OVERDUE),
        (OVERDUE_MS + 1, {"suspected": True}, Availability.SUSPECTED),
        (0, {"suspected": True} | DRAINS, Availability.SUSPECTED),
        (OVERDUE_MS + 1, AWAY, Availability.AWAY),
    ],
)
def test_the_worst_that_holds_of_a_member_counts(
    silent_ms: int, fields: dict[str, object], availability: Availability
) -> None:
    member = replace(Member(M, 0), **fields)  # type: ignore[arg-type]
    soft = Soft(members=PMap({M: MemberSoft(NOW - silent_ms)}))
    assert View(Group(GroupId("g"), members=PMap({M: member})), soft, NOW).availability(M) is availability


def test_what_a_coordinator_could_not_hear_is_no_silence() -> None:
    group = Group(GroupId("g"), members=PMap({M: Member(M, 0)}))
    assert View(group, Soft(), NOW).availability(M) is Availability.OVERDUE
    assert View(group, Soft(listens_since_ms=NOW - OVERDUE_MS), NOW).availability(M) is Availability.THERE


def test_kafka_says_which_members_of_an_application_are_alive() -> None:
    group = Group(GroupId("g"), config=GroupConfig(kafka_streams=True), members=PMap({M: Member(M, 0)}))
    assert View(group, Soft(), NOW).availability(M) is Availability.THERE


@pytest.mark.parametrize(
    ("members", "takers"),
    [
        ({"a": {}, "b": {}, "c": {"suspected": True}, "d": AWAY, "e": DRAINS}, {"a", "b"}),
        ({"c": {"suspected": True}, "d": AWAY, "e": DRAINS}, {"c"}),
        ({"d": AWAY, "e": DRAINS}, {"d"}),
        ({"e": DRAINS}, set()),
    ],
)
def test_of_those_that_stay_the_best_available_take(members: dict[str, dict[str, object]], takers: set[str]) -> None:
    known = {MemberId(name): replace(Member(MemberId(name), NOW), **fields) for name, fields in members.items()}  # type: ignore[arg-type]
    assert View(Group(GroupId("g"), members=PMap(known)), Soft(), NOW).takers == takers
