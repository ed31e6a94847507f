"""The list of cases: each has a name, a sentence of the protocol, and what to do to a client to see if it holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from batonpass.worker.testing.conformance.stage import Stage

Play = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One case; ``play`` is called as soon as the client has been started."""

    name: str
    law: str
    play: Play


CASES: dict[str, Case] = {}


def case(name: str, law: str) -> Callable[[Play], Play]:
    """Add a function to the cases."""

    def add(play: Play) -> Play:
        CASES[name] = Case(name, law, play)
        return play

    return add
