"""Tables of words, tones and colours know every code that there is, and none that there is not."""

from __future__ import annotations

import ast
from collections.abc import Collection
from pathlib import Path

import pytest

import batonpass
from batonpass import remedies
from batonpass.cli import COMMANDS
from batonpass.cli.watch import COLOURS
from batonpass.core.state.model import REVOKED, SUSPECTED, ActiveState, Cause
from batonpass.core.state.reasons import NoChange, Why
from batonpass.core.state.records import HEARD_AGAIN
from batonpass.dashboard.view_models import audits, events, gaps, generations, grid, health, members
from batonpass.dashboard.words import WHY
from batonpass.explain.health import STILL
from batonpass.explain.task import TaskState
from batonpass.runtime.events import EventType

PRODUCT = Path(batonpass.__file__).parent
EVENTS = {kind.value for kind in EventType}
PLAIN = {
    *("config-changed", "drain-cancelled", "drain-started", "generation", "group-declared", "handover-begun"),
    *("handover-redirected", "instance-kept-out", "instance-let-in", "member-changed", "member-joined", "probed"),
    *("resumed", "task-pinned", "task-stopped", "task-unparked", "task-unpinned", "tasks-adopted"),
    *("topology-changed", "warmup-dropped"),
}
"""Events that are neither good nor bad: what was asked for, or what another event tells the end of."""

OF_BROKEN_OFF_FEED = {"coordinator-back"}
"""What `watch` says itself."""


def triggers() -> set[str]:
    """Return what the core schedules a placement for."""
    found = {HEARD_AGAIN}
    for path in (PRODUCT / "core").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
                "schedule",
                "let_in",
            ):
                said = (one for argument in node.args for one in ast.walk(argument) if isinstance(one, ast.Constant))
                found |= {one.value for one in said if isinstance(one.value, str)}
    return found


STATES = {ActiveState.FAILED.value, ActiveState.LOST.value, ActiveState.RESTORING.value}
TABLES: dict[str, tuple[Collection[str], Collection[str]]] = {
    "why a task is where it is": (WHY, {*Why, NoChange.SHADOW, "other-assignor"}),
    "what causes a generation": (generations.TRIGGERS, triggers()),
    "what ends a run": (gaps.CAUSES, {REVOKED, SUSPECTED, *Cause, *STATES}),
    "tones of members": ([*members.TONES, "none"], grid.TONES),
    "tones of tiles": (grid.TONE_WORDS, grid.TONES),
    "tasks that are not processed": (health.STANDING_STILL, {*STILL, TaskState.RESTORING}),
    "events, good, bad or plain": ({*events.TONES, *PLAIN}, EVENTS),
    "states of audits": (audits.TONE, audits.STATE),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_a_row_for_every_code_and_no_other(name: str) -> None:
    table, codes = TABLES[name]
    assert sorted(map(str, table)) == sorted(map(str, codes))


def test_what_is_told_of_events_is_told_of_events_that_there_are() -> None:
    for table in (events.TONES, events.SENTENCES, remedies._HELP):
        assert set(table) <= EVENTS
    assert set(COLOURS) <= EVENTS | OF_BROKEN_OFF_FEED


def test_an_event_that_is_bad_on_the_page_is_red_in_the_terminal() -> None:
    bad = {kind for kind, tone in events.TONES.items() if tone == "bad"}
    assert {kind for kind, style in COLOURS.items() if "red" in style} == bad


def test_a_command_that_helps_is_a_command() -> None:
    assert {action for action, _ in remedies._HELP.values() if action} <= set(COMMANDS)


def test_every_tone_has_a_colour() -> None:
    style = (PRODUCT / "dashboard" / "static" / "style.css").read_text(encoding="utf-8")
    tiles = {tone for _, tone, _ in grid.LEGEND} | set(grid.TONES)
    assert [tone for tone in sorted(tiles) if f".t-{tone}" not in style] == []
    assert [tone for tone in sorted(set(events.TONES.values())) if f".h-{tone}" not in style] == []
