"""Whatever command the documentation shows exists, with these options, and exit codes mean what it says."""

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from batonpass.cli import COMMANDS, app
from batonpass.cli.exits import Exit

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CALL = re.compile(r"^(?:\.venv/bin/)?batonpass ([^#|>]*)")


def calls(page: Path) -> Iterator[str]:
    """Yield every call of the program in the code blocks of a page, and between backticks in its text."""
    text = page.read_text()
    for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            found = CALL.match(line.strip())
            if found:
                yield re.sub(r"  +\S.*", "", found[1]).strip()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for call in re.findall(r"`batonpass\s([^`]*)`", prose):
        yield " ".join(call.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_every_command_that_is_shown_exists(page: Path) -> None:
    for call in calls(page):
        words = [word.strip("[]") for word in shlex.split(call) if word != "..."]
        assert words[0] in COMMANDS, call
        lead = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
        done = CliRunner().invoke(app, [*lead, "--help"])
        assert done.exit_code == 0, (call, done.output)
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert options <= set(re.findall(r"--[a-z-]+", done.output)), call


def test_the_page_on_operations_shows_enough() -> None:
    """The pattern finds the commands, so that finding nothing wrong means something."""
    shown = {call.split()[0] for call in calls(ROOT / "docs" / "operations.md")}
    assert set(COMMANDS) - shown <= {"members", "probe", "simulate"}


def test_exit_codes_are_documented() -> None:
    rows = re.findall(r"^\| (\d+) \| ", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)
    assert [int(row) for row in rows] == sorted(int(code) for code in Exit)
