"""Wait until something holds: a test that watches another task, thread or process waits here, and nowhere else."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, Final

PATIENCE_S: Final = 120.0
"""Machines that are busy with other things are slow."""

PAUSES: Final = 4
"""A fact is asked for again after so many times as long as asking took: that takes from what is waited for."""

PAUSE_MOST_S: Final = 1.0
"""But no later than that: asking may take long because who is asked waits, too."""


def wait_until(
    fact: Callable[[], Any],
    *,
    within_s: float = PATIENCE_S,
    every_s: float = 0.05,
    seen: Callable[[], object] | None = None,
    despite: tuple[type[Exception], ...] = (),
) -> Any:
    """Return what a function returns as soon as that is true.

    Args:
        fact: asked again and again.
        within_s: how long.
        every_s: how long between, at least.
        seen: returns what a failure is to show; by default the last answer, with the variables that ``fact`` looks at.
        despite: errors that mean no more than "not yet", such as of a server that has only just started.

    Raises:
        AssertionError: when it is not true within the time.
    """
    ends_at = time.monotonic() + within_s
    while True:
        asked_at = time.monotonic()
        try:
            if found := fact():
                return found
        except despite as error:
            found = error
        if time.monotonic() > ends_at:
            raise _not_within(within_s, fact, found, seen)
        time.sleep(_pause(every_s, time.monotonic() - asked_at))


async def until(
    fact: Callable[[], Any],
    *,
    within_s: float = PATIENCE_S,
    every_s: float = 0.01,
    seen: Callable[[], object] | None = None,
) -> Any:
    """Do the same while other tasks run, by the clock of the loop; ``fact`` may be a coroutine function.

    Raises:
        AssertionError: when it is not true within the time.
    """
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + within_s
    while True:
        asked_at = loop.time()
        found = fact()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if loop.time() > ends_at:
            raise _not_within(within_s, fact, found, seen)
        await asyncio.sleep(_pause(every_s, loop.time() - asked_at))


def _pause(every_s: float, took_s: float) -> float:
    return max(every_s, min(PAUSES * took_s, PAUSE_MOST_S))


def _not_within(
    within_s: float, fact: Callable[[], Any], found: object, seen: Callable[[], object] | None
) -> AssertionError:
    if seen is not None:
        return AssertionError(f"not within {within_s:g} s: {seen()}")
    around = inspect.getclosurevars(fact).nonlocals if inspect.isfunction(fact) else {}
    shown = [f"{found!r:.300}", *(f"{name} = {value!r:.300}" for name, value in around.items())]
    return AssertionError(f"not within {within_s:g} s; last seen: {', '.join(shown)}")
