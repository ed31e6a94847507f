"""The only way to a terminal. Text from others is shown, but controls nothing: it sets no colour and adds no line.

All output goes through here, so no code has to know which text comes from a worker: ruff refuses any other way
(``banned-api`` in pyproject.toml). JSON passes as it is, except DEL: it has control characters escaped already.
"""

import io
import logging
import os
import sys
from collections.abc import Iterable
from typing import Final, TypeAlias

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

Renderer: TypeAlias = Console
"""What asks a renderable for its parts (``__rich_console__``). It is not for printing: that is ``screen``."""

PLAIN_WIDTH: Final = 200
"""Columns where there is no terminal: wide enough that nothing which a script may look for is cut."""

# Each becomes exactly one character, so that the style positions of a text stay right.
_SHOWN: Final = (
    {code: 0x2400 + code for code in range(0x20)}
    | {0x7F: 0x2421}
    | dict.fromkeys((*range(0x80, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)
)


def printable(text: str) -> str:
    """Return a text from others, made safe for a terminal, of the same length.

    Control characters (Unicode's Cc), line separators and what changes the direction of writing are replaced by visible
    characters: a worker can neither control a reader's terminal nor add a line to what is shown.
    """
    return text.translate(_SHOWN)


def printable_lines(text: str) -> str:
    """Return a text that may have several lines, each of them printable."""
    return "\n".join(map(printable, text.split("\n")))


def get_ready() -> None:
    """Have every standard stream open, and take every text: what its character set lacks is written as an escape.

    One that this process was started without leads nowhere. Otherwise the next file that is opened has its number, such
    as a connection to the database, and gets whatever a library writes on that stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - open until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(*lines: str) -> None:
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    sys.stdout.flush()


def say_on_stderr(*lines: str) -> None:
    """Print lines on standard error: what is not part of the answer. If it is closed or full, they are lost."""
    stream = sys.stderr or io.StringIO()
    try:
        stream.write("".join(f"{printable(line)}\n" for line in lines))
        stream.flush()
    except OSError:
        # The exit code says what a script needs, and Python would change it if it could not write the rest either.
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open until the process ends


def shown(said: str | Text, *, style: str = "") -> Text:
    """Return what is to be printed as one line, or in one cell of a table."""
    if isinstance(said, str):
        return Text(printable(said), style=style)
    text = said.copy()
    text.plain = printable(text.plain)
    return text


class Screen(Console):
    """A console for tables, styles and live displays. Text is printed as it stands: brackets are no markup."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with all text printable, except the ends of lines, which may be rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)

    def say(self, said: str | Text, *, style: str = "") -> None:
        """Print one line, which folds where the terminal ends and nowhere else."""
        self.print(shown(said, style=style), soft_wrap=True)


def screen(*, stderr: bool = False, plain_width: int = PLAIN_WIDTH) -> Screen:
    """Return a screen that colours and folds for people, and leaves lines whole for scripts."""
    made = Screen(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = plain_width
    return made


class _Printable(logging.Formatter):
    """Writes a record of a library down in one line, and its traceback below."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        return printable(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 - the library's name
        return printable_lines(super().formatException(ei))  # type: ignore[arg-type]


def log_to_stderr(level: str, form: str) -> None:
    """Have what libraries log written to standard error, from this level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Printable(form))
    logging.basicConfig(handlers=[handler], level=level)
