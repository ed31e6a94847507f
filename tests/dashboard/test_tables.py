"""Tables of words, tones and colours know every code that there is, and none that there is not."""

import ast
import re
from collections.abc import Collection
from pathlib import Path

import pytest

import batonpass
from batonpass.cli import COMMANDS
from batonpass.cli.watch import STYLES
from batonpass.core.state.model import REVOKED, SUSPECTED, ActiveState, Cause
from batonpass.core.state.reasons import NoChange, Why
from batonpass.core.state.records import HEARD_AGAIN
from batonpass.dashboard.view_models import audits, events, generations, grid, members
from batonpass.dashboard.words import CAUSES, WHY
from batonpass.explain.health import STILL
from batonpass.explain.remedies import HELP
from batonpass.explain.task import TaskState
from batonpass.group_words import STANDING_STILL
from batonpass.runtime.events import EventType

PRODUCT = Path(batonpass.__file__).parent
KINDS = {kind.value for kind in EventType}
OF_A_FEED = {"coordinator-back", "missed"}
"""What a feed says of itself."""


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
    "what ends a run": (CAUSES, {REVOKED, SUSPECTED, *Cause, *STATES}),
    "tones of members": ([*members.TONES, "none"], grid.TONES),
    "tones of tiles": (grid.TONE_WORDS, grid.TONES),
    "tasks that are not processed": (STANDING_STILL, {*STILL, TaskState.RESTORING}),
    "events": (events.EVENTS, KINDS | OF_A_FEED),
    "states of audits": (audits.TONE, audits.STATE),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_a_row_for_every_code_and_no_other(name: str) -> None:
    table, codes = TABLES[name]
    assert sorted(map(str, table)) == sorted(map(str, codes))


def test_a_tone_is_drawn_in_the_terminal_too() -> None:
    assert {tone for tone, _ in events.EVENTS.values()} <= {*STYLES, "plain"}


def test_a_command_that_helps_is_a_command() -> None:
    assert {one.action for one in HELP.values() if one.action} <= set(COMMANDS)


@pytest.mark.parametrize("row", HELP)
def test_what_to_do_names_the_command_that_is_offered_and_no_other(row: str) -> None:
    actions = {one.action for one in HELP.values() if one.action}
    todo = HELP[row].todo
    named = set(re.findall(rf"\b(?:{'|'.join(sorted(actions))})\b", todo.lower()))
    assert named == ({HELP[row].action} - {""} if todo else set())


def test_every_tone_has_a_colour() -> None:
    style = (PRODUCT / "dashboard" / "static" / "style.css").read_text(encoding="utf-8")
    tones = {tone for _, tone, _ in grid.LEGEND} | set(grid.TONES) | {tone for tone, _ in events.EVENTS.values()}
    assert [tone for tone in sorted(tones - {"plain"}) if f".t-{tone}" not in style] == []
