"""What helps stands beside the event that says what is wrong."""

import re
from pathlib import Path
from typing import Any

import pytest

from batonpass.cli.watch import event_line
from batonpass.dashboard.commands import COMMANDS
from batonpass.dashboard.view_models.events import EVENTS
from batonpass.dashboard.view_models.events import event_line as line_of
from batonpass.dashboard.words import Names
from batonpass.explain.remedies import HELP, EventRemedy

RUNBOOKS = Path(__file__).parent.parent / "docs" / "runbooks"
MEMBER = "16bb8df5-e7c2-49cc-a91f-c06e697663c5"


def event(kind: str, **more: Any) -> dict[str, Any]:
    """Return an event of a group whose name a shell would take apart."""
    named = {"position": 7, "group": "my orders", "type": kind, "at": "2026-11-20T03:04:05Z", "body": {}}
    return named | {"member": None, "task": None} | more


def remedy_of(told: dict[str, Any], names: Names | None = None) -> EventRemedy | None:
    """Return what a page shows beside an event."""
    return line_of(told, names or Names()).remedy


@pytest.mark.parametrize("kind", [kind for kind, (tone, _) in EVENTS.items() if tone == "bad"])
def test_whatever_is_wrong_has_a_runbook(kind: str) -> None:
    found = remedy_of(event(kind, body={"cause": "expired"}))
    assert found is not None
    assert (RUNBOOKS / f"{found.runbook}.md").is_file()


@pytest.mark.parametrize("kind", [kind for kind, (tone, _) in EVENTS.items() if tone in {"ok", "warm"}])
def test_what_went_well_needs_no_help(kind: str) -> None:
    assert remedy_of(event(kind)) is None


def test_a_command_names_the_task_or_else_the_member_as_people_call_it() -> None:
    """A short id, which a page shows, is not what a command is given."""
    parked = event("task-parked", task="0_1", member=MEMBER)
    assert remedy_of(parked) == EventRemedy("batonpass release 'my orders' 0_1", "task-not-running")
    distrusted = event("member-distrusted", member=MEMBER)
    named = EventRemedy("batonpass trust 'my orders' pod-1", "member-distrusted")
    assert remedy_of(distrusted, Names({MEMBER: "pod-1"})) == named
    assert remedy_of(distrusted) == EventRemedy(f"batonpass trust 'my orders' {MEMBER}", "member-distrusted")
    assert remedy_of(event("storm-began")) == EventRemedy("batonpass resume 'my orders'", "storm")


def test_a_member_that_fell_silent_is_not_to_be_evicted_for_that_alone() -> None:
    """An event cannot know whether it comes back, or ran anything: the group's health says what to do."""
    assert remedy_of(event("member-suspected", member=MEMBER)) == EventRemedy("", "member-silent")


@pytest.mark.parametrize("what", HELP)
def test_what_to_do_names_the_command_that_is_offered_and_no_other(what: str) -> None:
    named = set(re.findall(r"[a-z-]+", HELP[what].todo.lower())) & set(COMMANDS)
    assert named == ({HELP[what].action} - {""})
    assert HELP[what].option in HELP[what].todo


def test_health_and_events_name_only_runbooks_that_exist() -> None:
    assert {f"{one.runbook}.md" for one in HELP.values() if one.runbook} <= {one.name for one in RUNBOOKS.iterdir()}


def test_who_left_or_was_evicted_is_no_fault() -> None:
    assert [
        remedy_of(event("member-gone", member=MEMBER, body={"cause": one})) for one in ("left", "evicted", None)
    ] == [None] * 3


def test_watch_shows_it_beside_the_event() -> None:
    shown = event_line(event("member-distrusted", member=MEMBER), Names({MEMBER: "pod-1"})).plain
    assert shown.endswith(" -> batonpass trust 'my orders' pod-1, docs/runbooks/member-distrusted.md")
    assert event_line(event("commits-lost"), Names()).plain.endswith(" -> docs/runbooks/commits-lost.md")
