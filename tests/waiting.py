"""Wait until something holds: a test that watches another task, thread or process waits here, and nowhere else."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, Final

PATIENCE_S: Final = 120.0
"""Machines that are busy with other things are slow."""


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
        every_s: how long between.
        seen: returns what a failure is to show; by default the last answer, with the variables that ``fact`` looks at.
        despite: errors that mean no more than "not yet", such as of a server that has only just started.

    Raises:
        AssertionError: when it is not true within the time.
    """
    ends_at = time.monotonic() + within_s
    while True:
        try:
            if found := fact():
                return found
        except despite as error:
            found = error
        if time.monotonic() > ends_at:
            raise _not_within(within_s, fact, found, seen)
        time.sleep(every_s)


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
        found = fact()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if loop.time() > ends_at:
            raise _not_within(within_s, fact, found, seen)
        await asyncio.sleep(every_s)


def _not_within(
    within_s: float, fact: Callable[[], Any], found: object, seen: Callable[[], object] | None
) -> AssertionError:
    if seen is not None:
        return AssertionError(f"not within {within_s:g} s: {seen()}")
    around = inspect.getclosurevars(fact).nonlocals if inspect.isfunction(fact) else {}
    shown = [f"{found!r:.300}", *(f"{name} = {value!r:.300}" for name, value in around.items())]
    return AssertionError(f"not within {within_s:g} s; last seen: {', '.join(shown)}")
