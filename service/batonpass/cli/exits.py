"""Exit codes that scripts can rely on, and the one way in which a command fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

# Each becomes exactly one sign, so that the places of a styled text stay where they are.
_SHOWN: Final = (
    {code: 0x2400 + code for code in range(0x20)}
    | {0x7F: 0x2421}
    | dict.fromkeys((*range(0x80, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)
)


def printable(text: str) -> str:
    """Return a text of others as a terminal may have it, of the same length.

    Control characters (Unicode's Cc), line separators and what changes the direction of writing are replaced by signs
    that are seen: a worker cannot steer the terminal of whoever looks at it, nor add a line to what they read.
    """
    return text.translate(_SHOWN)


class Exit(IntEnum):
    """What the exit code of every command means."""

    DONE = 0
    """Done; or what was asked about is so."""
    REFUSED = 1
    """Understood and refused, not safe, or not over when the wait was."""
    BAD_INPUT = 2
    """The command line, a file or a setting cannot be understood, or asks for something that is never allowed."""
    UNREACHABLE = 3
    """No coordinator answered, or it cannot work now: ask again later."""
    NOT_ALLOWED = 4
    """A token is missing, unknown, or has not the role."""
    NOT_THERE = 5
    """There is no group, member, task or token of this name."""
    INTERRUPTED = 130
    """Ctrl-C, as shells have it."""


class Failure(Exception):
    """A command cannot go on: what happened, in a sentence, what to do about it, and the code to exit with."""

    def __init__(self, code: Exit, sentence: str, *, todo: str = "", problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.todo = todo
        self.problem = dict(problem or {})

    def show(self, *, as_json: bool) -> None:
        """Tell it on standard error: as sentences, or as one line of JSON (the coordinator's own, where it has one)."""
        if as_json:
            body = {"type": "failed", "detail": self.sentence, **self.problem, "exit_code": int(self.code)}
            if self.todo:
                body["todo"] = self.todo
            print(json.dumps(body), file=sys.stderr)
            return
        print(f"batonpass: {printable(self.sentence)}", file=sys.stderr)
        for fault in self.problem.get("errors", []):
            print(printable(f"  {fault.get('path', '')}: {fault.get('reason', '')}"), file=sys.stderr)
        if self.todo:
            print(f"  {printable(self.todo)}", file=sys.stderr)
