"""Exit codes that scripts can rely on, and the one way in which a command fails."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from batonpass.terminal import say_on_stderr


class Exit(IntEnum):
    """The exit codes of every command."""

    DONE = 0
    """Done; or the answer to a question is yes."""
    REFUSED = 1
    """Understood but refused, not safe, or not over when the time to wait was over."""
    BAD_INPUT = 2
    """The command line, a file or a setting cannot be understood, or asks for something that is never allowed."""
    UNREACHABLE = 3
    """No coordinator answered, or it cannot work now: ask again later."""
    NOT_ALLOWED = 4
    """A token is missing, unknown, or does not have the role."""
    NOT_THERE = 5
    """There is no group, member, task or token of this name."""
    INTERRUPTED = 130
    """Ctrl-C, as in shells."""


class Failure(Exception):
    """A command cannot go on: what happened, in a sentence, what to do about it, and the code to exit with."""

    def __init__(self, code: Exit, sentence: str, *, todo: str = "", problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.todo = todo
        self.problem = dict(problem or {})

    def show(self, *, as_json: bool) -> None:
        """Print it on standard error: as sentences, or as one line of JSON (the coordinator's own, if it has one)."""
        if as_json:
            body = {"type": "failed", "detail": self.sentence, **self.problem, "exit_code": int(self.code)}
            if self.todo:
                body["todo"] = self.todo
            say_on_stderr(json.dumps(body))
            return
        faults = [f"{fault.get('path', '')}: {fault.get('reason', '')}" for fault in self.problem.get("errors", [])]
        more = [f"  {line}" for line in (*faults, self.todo) if line]
        say_on_stderr(f"batonpass: {self.sentence}", *more)


@contextmanager
def failing_as(code: Exit, *errors: type[Exception], todo: str = "", form: str = "{}.") -> Iterator[None]:
    """Turn these errors within the block into a failure, whose sentence has the error in a form."""
    try:
        yield
    except errors as error:
        raise Failure(code, form.format(error), todo=todo) from None
