"""Turns on the event loop: what many do on it, one after another, with other work in between.

Whoever gives way lets everybody else go on once. Of a hundred that give way each for itself (the tasks of a worker, the
groups of a coordinator), all would go on between two steps of a heartbeat, which has a dozen: the more there are, the
sooner would a lease run out.
"""

import asyncio
from typing import Final

TURN_S: Final = 0.005
"""How long those who share turns go on, all together, before other work on the loop, such as heartbeats, has a turn."""


class LoopTurns:
    """The turns of those who share them, by the loop's clock."""

    def __init__(self) -> None:
        self._waiting = asyncio.Lock()
        self._over_at = 0.0

    async def take(self) -> None:
        """Go on if the present turn is not over; else wait for another one, behind all that wait already."""
        now = asyncio.get_running_loop().time
        if now() >= self._over_at:
            async with self._waiting:
                # The turn of whoever waited before is for all, until it is over.
                if now() >= self._over_at:
                    await asyncio.sleep(0)
                    self._over_at = now() + TURN_S
