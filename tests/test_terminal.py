"""Nothing that others wrote steers the terminal of whoever looks at it, and nobody prints past what sees to that."""

import io
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from rich.console import Group
from rich.progress import Progress, TextColumn
from rich.table import Table
from rich.text import Text

from batonpass import logs
from batonpass.terminal import Screen, log_to_stderr, say, say_on_stderr, shown

ROOT = Path(__file__).resolve().parent.parent
STEERS = "\x1b]0;PWNED\x07\x1b[31m\x9b2J\u202eadmin"
SEEN = "\u241b]0;PWNED\u2407\u241b[31m\ufffd2J\ufffdadmin"
DRAWN = "\u241b]0;PWNED\u241b[31m\ufffd2J\ufffda"
"""On a screen: rich drops the bell itself, and cuts a cell whose text it has measured before."""


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


def fail() -> None:
    """Fail with words that others chose."""
    raise ValueError(STEERS)


def test_a_printed_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"{STEERS}\nforged", '{"a": "\\u001b"}')
    say_on_stderr(f"{STEERS}\nforged")
    line = f"{SEEN}\u240aforged\n"
    assert tuple(capsys.readouterr()) == (line + '{"a": "\\u001b"}\n', line)


def test_a_screen_shows_whatever_it_is_given() -> None:
    table = Table(title=STEERS)
    table.add_column(STEERS)
    table.add_row(STEERS)
    out = Terminal()
    screen = Screen(file=out, width=200, markup=False, force_terminal=True, color_system="standard")
    screen.print(Group(table, Text(STEERS, style="red"), STEERS))
    screen.say(f"{STEERS}\nforged [b]", style="red")
    with Progress(TextColumn("{task.description}", markup=False), console=screen, transient=True) as bar:
        bar.add_task(STEERS)
    drawn = out.getvalue()
    assert drawn.count(DRAWN) >= 6
    assert f"\x1b[31m{DRAWN}dmin\x1b[0m" in drawn
    assert "\u240aforged [b]" in drawn
    assert not set("\x07\x9b\u202e") & set(drawn)
    assert "\x1b]0" not in drawn


def test_styles_stay_in_their_places() -> None:
    """What is replaced takes as much room as before."""
    styled = shown(Text.assemble("a\x1b", ("b", "red")))
    assert (styled.plain, styled.spans[0].start) == ("a\u241bb", 2)


def test_a_coordinators_log_steers_no_terminal() -> None:
    out = Terminal()
    logs.configure("auto", "info", out)
    structlog.get_logger().info(STEERS, reason=f"{STEERS}\nforged", item=[STEERS])
    try:
        fail()
    except ValueError as error:
        structlog.get_logger().error("failed", exc_info=error)
    written = out.getvalue()
    assert written.count(SEEN) == 3
    assert "\u240aforged" in written
    assert "\nTraceback (most recent call last):\n" in written
    assert not set("\x07\x9b\u202e") & set(written)
    assert "\x1b]0" not in written


def test_a_workers_log_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """What a library logs is one line, and its traceback below."""
    root = logging.getLogger()
    handlers, level, root.handlers = root.handlers, root.level, []
    try:
        log_to_stderr("WARNING", "%(message)s")
        try:
            fail()
        except ValueError:
            logging.getLogger("x").exception("%s\nforged", STEERS)
    finally:
        root.handlers = handlers
        root.setLevel(level)
    err = capsys.readouterr().err
    assert err.startswith(f"{SEEN}\u240aforged\nTraceback")
    assert err.endswith(f"ValueError: {SEEN}\n")


@pytest.mark.parametrize(
    "raw",
    [
        "print(1)",
        "import sys\nsys.stdout.write('a')",
        "import sys\nsys.stderr.write('a')",
        "import typer\ntyper.echo('a')",
        "from rich.console import Console\nConsole()",
        "import logging\nlogging.StreamHandler()",
    ],
)
def test_printing_past_it_is_refused(raw: str) -> None:
    """By ruff, as `make check` runs it."""
    place = ["--stdin-filename", "service/batonpass/cli/planted.py"]
    rules = ["--select", "T201,TID251", "--output-format", "concise"]
    command = [str(Path(sys.executable).parent / "ruff"), "check", "--no-cache", *rules, *place, "-"]
    done = subprocess.run(command, input=f"{raw}\n", cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "T201" in done.stdout or "TID251" in done.stdout


def test_no_module_is_exempt_but_the_watchdog_of_a_server() -> None:
    """Its parent reads its line through a pipe."""
    exempt = [
        path.name
        for path in (ROOT / "service").rglob("*.py")
        if any(f"noqa: {rule}" in path.read_text() for rule in ("T201", "TID251"))
    ]
    assert exempt == ["child_watchdog.py"]


@pytest.mark.parametrize("words", [["--help"], ["plan", "--snapshot", "stra\xdfe"]])
def test_what_the_terminal_s_character_set_lacks_is_written_as_an_escape(words: list[str]) -> None:
    """Tables are drawn, and names may be anything."""
    ascii_alone = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    command = [sys.executable, "-m", "batonpass", *words]
    done = subprocess.run(command, env=os.environ | ascii_alone, capture_output=True, check=False)
    assert done.returncode == (0 if words == ["--help"] else 2), done.stderr
    assert b"Traceback" not in done.stderr
    assert (done.stdout + done.stderr).isascii()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_standard_stream_that_is_closed_leads_nowhere(closed: str, tmp_path: Path) -> None:
    """Logs and answers are lost, and no file or connection that is opened later gets what was meant for the stream."""
    does = (
        "import os, sys; from batonpass import logs; from batonpass.terminal import get_ready, say, say_on_stderr;"
        "get_ready(); logs.configure(); opened = open(sys.argv[1], 'w');"
        "say('one'); say_on_stderr('two'); os.write(1, b'three'); os.write(2, b'four'); assert not sys.stdin.read();"
        "opened.write('five')"
    )
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", does, str(tmp_path / "opened")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, (tmp_path / "opened").read_text()) == (0, "five"), done.stderr
