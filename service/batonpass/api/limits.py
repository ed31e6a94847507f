"""How often one member, or one token, may call: a burst at once, and a rate per second on average.

A heartbeat with news may exceed the limit, up to a rate of its own, so that a handover does not wait because a member
has called too often.
"""

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from batonpass.api.problems import TooManyConnections
from batonpass.api.turns import Offload
from batonpass.core.state.errors import LimitExceeded
from batonpass.runtime.places import Places

SWEEP_AT_LEAST: Final = 1_000
"""How many callers are remembered before quiet ones are removed."""


class Rate:
    """Allows each caller ``per_s`` calls a second on average, ``burst`` at once (the generic cell rate algorithm).

    It keeps one number for each caller: the instant until which its calls would last if they had come evenly.
    """

    def __init__(self, per_s: float, burst: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._every = 1.0 / per_s
        self._ahead = (burst - 1) / per_s
        self._monotonic = monotonic
        self._until: dict[Hashable, float] = {}
        self._sweep_at = SWEEP_AT_LEAST

    def __len__(self) -> int:
        return len(self._until)

    def take(self, caller: Hashable) -> float:
        """Count a call and return 0; or return how many seconds too early it is, and do not count it."""
        now = self._monotonic()
        until = self._until.get(caller, 0.0)
        if until <= now:
            until = now
        elif until - now > self._ahead:
            return until - now - self._ahead
        self._until[caller] = until + self._every
        if len(self._until) > self._sweep_at:
            self._sweep(now)
        return 0.0

    def _sweep(self, now: float) -> None:
        self._until = {caller: until for caller, until in self._until.items() if until > now}
        self._sweep_at = max(SWEEP_AT_LEAST, 2 * len(self._until))


@dataclass(slots=True)
class Connections:
    """The connections of a process: how many are open, and how many may be. The server sets both once it is made."""

    most: float = math.inf
    open: Callable[[], int] = lambda: 0

    def check(self) -> None:
        """Refuse a request if there are too many.

        Raises:
            TooManyConnections: 503.
        """
        if self.open() > self.most:
            raise TooManyConnections(
                f"more than {self.most} connections are open; this one ends, try another coordinator"
            )


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one process: the rates of members, of heartbeats with news, and of all others.

    ``polls`` are the places of calls that wait for news, here or at the coordinator that they are passed on to;
    ``reads`` and ``dry_runs`` those of what is done beside the event loop; ``history`` of what the store is asked for.
    ``bodies`` has one for each byte of a body that is arriving or being answered; one body has ``body_bytes_max`` at
    most. ``coding`` reads and writes those that are large.
    """

    member: Rate
    urgent: Rate
    operator: Rate
    polls: Places
    reads: Places
    dry_runs: Places
    history: Places
    bodies: Places
    body_bytes_max: int
    connections: Connections = field(default_factory=Connections)
    coding: Offload = field(default_factory=Offload)


def too_early(seconds: float, whose: str) -> LimitExceeded:
    """Return the error for a call that came ``seconds`` too early."""
    wait_ms = math.ceil(seconds * 1_000)
    return LimitExceeded(f"{whose} calls more often than it may; wait {wait_ms} ms", retry_after_ms=wait_ms)
