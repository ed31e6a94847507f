"""Clients of Kafka that are started to the end, though nobody may want them any more by then.

aiokafka closes no connection that it is just making: cut short there, it stays open until the process ends. A member
that leaves while it connects would leave one behind each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final, TypeVar

PATIENCE_S: Final = 5.0
"""For how long a caller that was cancelled waits for a cluster that does not answer."""

Made = TypeVar("Made")


async def to_its_end(starting: Coroutine[object, object, Made], *, patience_s: float = PATIENCE_S) -> Made:
    """Return what ``starting`` comes to. A caller that is cancelled meanwhile is told so when that has ended.

    What it has started is then for the caller to stop, as if it had been told a moment later.

    Raises:
        asyncio.CancelledError: when the caller was cancelled; whatever ``starting`` raised is then not told.
    """
    running = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        try:
            await asyncio.wait([running], timeout=patience_s)
        finally:
            running.cancel()
            running.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise
