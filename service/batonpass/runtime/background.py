"""Work that goes on for as long as a coordinator runs, beside what it is asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger("batonpass.background")

AGAIN_S = 5.0


async def kept_going(name: str, work: Callable[[], Awaitable[object]]) -> None:
    """Do work until it ends or is cancelled. If an error ends it, that is a defect: say so, and begin it anew.

    A task that just ended would be missed by nobody, while the coordinator says that it is ready.
    """
    while True:
        try:
            await work()
        except Exception:
            log.exception("%s failed, and begins anew in %s s", name, AGAIN_S)
            await asyncio.sleep(AGAIN_S)
        else:
            return
