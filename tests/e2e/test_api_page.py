"""Every example of docs/api.md does what the page shows, against a real process."""

import json
from pathlib import Path
from typing import Any

from tests.e2e.running import Up
from tests.e2e.test_handover_by_curl import DEFAULT, TOKEN, Shell, commands_of, shell

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
ANYTHING = "…"

__all__ = ["shell"]


def fits(shown: Any, printed: Any) -> bool:
    """Say whether what was printed is what the page shows; an ellipsis stands for anything, or for the rest."""
    if shown == ANYTHING:
        return True
    if isinstance(shown, dict):
        return (
            isinstance(printed, dict)
            and list(shown) == list(printed)
            and all(fits(shown[key], printed[key]) for key in shown)
        )
    if isinstance(shown, list):
        if not isinstance(printed, list):
            return False
        if shown[-1:] == [ANYTHING] and len(printed) >= len(shown):
            printed = printed[: len(shown)]
        return len(shown) == len(printed) and all(map(fits, shown, printed))
    return bool(shown == printed)


def test_an_ellipsis_stands_for_anything_and_nothing_else_does() -> None:
    """The next test rests on this comparison."""
    assert fits({"a": ANYTHING, "b": [1, ANYTHING]}, {"a": None, "b": [1, 2, 3]})
    assert not fits({"a": 1}, {"a": 2})
    assert not fits({"a": 1}, {"a": 1, "b": 2})
    assert not fits([1, ANYTHING], [2, 2])
    assert not fits([1], [1, 2])
    assert not fits({"a": []}, {"a": [1]})


def test_every_example_does_what_the_page_shows(up: Up, shell: Shell) -> None:
    commands = commands_of(PAGE.read_text())
    assert len([command for command in commands if command.shown_as]) >= 10
    for command in commands:
        printed = shell.run(command.script.replace(DEFAULT, up.url).replace(TOKEN, up.token))
        where = f"line {command.line} of {PAGE.name} printed\n{printed}"
        match command.shown_as:
            case "json":
                assert fits(json.loads(command.shown), json.loads(printed)), where
            case "text":
                assert printed.split() == command.shown.split(), where
            case _:
                assert not printed.strip(), where
