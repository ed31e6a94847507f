"""What helps stands beside the event that says what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batonpass.cli.watch import event_line
from batonpass.dashboard.view_models.events import EVENTS
from batonpass.dashboard.view_models.events import event_line as line_of
from batonpass.dashboard.words import Names
from batonpass.explain.remedies import HELP
from batonpass.remedies import EventRemedy, remedy_of

RUNBOOKS = Path(__file__).parent.parent / "docs" / "runbooks"
MEMBER = "16bb8df5-e7c2-49cc-a91f-c06e697663c5"


def event(kind: str, **more: Any) -> dict[str, Any]:
    """Return an event of a group whose name a shell would take apart."""
    named = {"position": 7, "group": "my orders", "type": kind, "at": "2026-11-20T03:04:05Z", "body": {}}
    return named | {"member": None, "task": None} | more


@pytest.mark.parametrize("kind", [kind for kind, (tone, _) in EVENTS.items() if tone == "bad"])
def test_whatever_is_wrong_has_a_runbook(kind: str) -> None:
    found = remedy_of(event(kind, body={"cause": "expired"}))
    assert found is not None
    assert (RUNBOOKS / f"{found.runbook}.md").is_file()


@pytest.mark.parametrize("kind", [kind for kind, (tone, _) in EVENTS.items() if tone in {"ok", "warm"}])
def test_what_went_well_needs_no_help(kind: str) -> None:
    assert remedy_of(event(kind)) is None


def test_a_command_names_the_task_or_else_the_member_as_people_call_it() -> None:
    parked = event("task-parked", task="0_1", member=MEMBER)
    assert remedy_of(parked, "pod-1") == EventRemedy("batonpass release 'my orders' 0_1", "task-not-running")
    silent = event("member-suspected", member=MEMBER)
    assert remedy_of(silent, "pod-1") == EventRemedy("batonpass evict 'my orders' pod-1", "member-silent")
    assert remedy_of(silent) == EventRemedy(f"batonpass evict 'my orders' {MEMBER}", "member-silent")
    assert remedy_of(event("storm-began")) == EventRemedy("batonpass resume 'my orders'", "storm")


def test_health_and_events_name_only_runbooks_that_exist() -> None:
    assert {f"{runbook}.md" for _, runbook, _ in HELP.values() if runbook} <= {one.name for one in RUNBOOKS.iterdir()}


def test_who_left_or_was_evicted_is_no_fault() -> None:
    assert [
        remedy_of(event("member-gone", member=MEMBER, body={"cause": one})) for one in ("left", "evicted", None)
    ] == [None] * 3


def test_pages_and_watch_show_it_beside_the_event() -> None:
    """A short id, which a page shows, is not what a command is given."""
    silent = event("member-suspected", member=MEMBER)
    assert line_of(silent, Names()).remedy == EventRemedy(f"batonpass evict 'my orders' {MEMBER}", "member-silent")
    named = line_of(silent, Names({MEMBER: "pod-1"})).remedy
    assert named is not None
    assert named.command == "batonpass evict 'my orders' pod-1"
    shown = event_line(silent, Names({MEMBER: "pod-1"})).plain
    assert shown.endswith(
        "member-suspected pod-1 has fallen silent. -> batonpass evict 'my orders' pod-1, docs/runbooks/member-silent.md"
    )
    assert event_line(event("commits-lost"), Names()).plain.endswith(" -> docs/runbooks/commits-lost.md")
