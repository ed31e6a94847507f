"""Sessions: the token of each visitor, kept only in the memory of this process, under a random name.

The browser has only the name, in a cookie that scripts cannot read. Tokens are in no URL, no page and no log, and are
lost when the process ends.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from batonpass.dashboard.shared_client import SharedClient

IDLE_S: Final = 12 * 3_600.0
"""A session that was not used for this long has ended."""

SWEEP_EVERY_S: Final = 60.0
SESSIONS_MAX: Final = 10_000


@dataclass(slots=True)
class Session:
    """One visitor. ``may_command`` is whether the token's role includes commands.

    ``is_shared``: it is that of all who have not signed in and look with the dashboard's own token. ``bound_to`` is the
    only group that the token may look at, if it is bound to one. ``stamp`` is in the form of every command, and must
    come back with it. ``ended`` is set when the session is over.
    """

    client: SharedClient
    may_command: bool
    bound_to: str | None = None
    is_shared: bool = False
    stamp: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    flash: str = ""
    used_at: float = 0.0
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Sessions:
    """All sessions, by the names that browsers have."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, most: int = SESSIONS_MAX) -> None:
        self._monotonic = monotonic
        self._most = most
        self._sweep_at = 0.0
        self._kept: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self, session: Session) -> str:
        """Keep a session and return its name.

        If there are too many, one ends of the token that has the most of them: the one that was idle longest.
        """
        self._sweep()
        if len(self._kept) >= self._most:
            crowd = Counter(one.client for one in self._kept.values())
            self.end(min(self._kept, key=lambda name: (-crowd[self._kept[name].client], self._kept[name].used_at)))
        name = secrets.token_urlsafe(32)
        session.used_at = self._monotonic()
        self._kept[name] = session
        return name

    def find(self, name: str) -> Session | None:
        """Return the session of a name, and note that it is in use."""
        session = self._kept.get(name)
        if session is None:
            return None
        now = self._monotonic()
        if now - session.used_at > IDLE_S:
            self.end(name)
            return None
        session.used_at = now
        return session

    def end(self, name: str) -> None:
        """Forget a session, and end what goes on in it."""
        if session := self._kept.pop(name, None):
            session.ended.set()

    def clients(self) -> set[SharedClient]:
        return {session.client for session in self._kept.values()}

    def _sweep(self) -> None:
        now = self._monotonic()
        if now < self._sweep_at:
            return
        self._sweep_at = now + SWEEP_EVERY_S
        for name in [name for name, one in self._kept.items() if now - one.used_at > IDLE_S]:
            self.end(name)
