"""The walk through a first handover in the documentation works, command by command, against a real process."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.e2e.running import Up

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "first-handover.md"
DEFAULT = "http://127.0.0.1:8420"
TOKEN = "bpt_..."  # noqa: S105 - what the reader replaces


class Command(NamedTuple):
    """A block of commands with what the page shows after it: nothing, text, or JSON."""

    line: int
    script: str
    shown_as: str | None
    shown: str


def commands_of(page: str) -> list[Command]:
    """Return the commands of a page, in order."""
    blocks = [
        (page[: found.start()].count("\n") + 1, found["language"], found["text"])
        for found in re.finditer(
            r"^```(?P<language>bash|json|text)\n(?P<text>.*?)^```$", page, re.MULTILINE | re.DOTALL
        )
    ]
    commands: list[Command] = []
    for line, language, text in blocks:
        if language == "bash":
            commands.append(Command(line, text, None, ""))
        else:
            commands[-1] = commands[-1]._replace(shown_as=language, shown=text)
    return commands


class Shell:
    """One shell that lives as long as the reader's terminal does."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, script: str) -> str:
        """Run some commands and return what they print; a command that fails is an error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{script}\nprintf '\\n--end %s\\n' $?\n")
        self._process.stdin.flush()
        printed: list[str] = []
        for line in self._process.stdout:
            if line.startswith("--end "):
                assert line == "--end 0\n", f"{script}\nfailed after it printed\n{''.join(printed)}"
                break
            printed.append(line)
        return "".join(printed)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Return a shell in an empty directory."""
    with subprocess.Popen(
        ["/bin/bash"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Shell(process)


def test_every_command_of_the_page_does_what_the_page_shows(up: Up, shell: Shell) -> None:
    commands = commands_of(PAGE.read_text())
    assert len([command for command in commands if command.shown_as]) >= 12
    assert TOKEN in commands[0].script
    for command in commands:
        printed = shell.run(command.script.replace(DEFAULT, up.url).replace(TOKEN, up.token))
        where = f"line {command.line} of {PAGE.name} printed\n{printed}"
        match command.shown_as:
            case "json":
                assert json.loads(printed) == json.loads(command.shown), where
            case "text":
                assert printed.split() == command.shown.split(), where
            case _:
                assert not printed.strip(), where


def test_the_page_shows_the_address_that_the_program_uses() -> None:
    """So its commands work as they stand."""
    from batonpass.settings import Settings  # noqa: PLC0415 - the rest of this file needs nothing of the package

    settings = Settings()
    assert f"http://{settings.host}:{settings.port}" == DEFAULT
    assert DEFAULT in PAGE.read_text()
