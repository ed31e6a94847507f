"""Timers of a task in stream time, kept in a store of the task, so that they move with it.

Stream time is the highest timestamp of the records that the task has processed. It stands still while there are none,
and is the same in every run over the same input.

The store has the stream time, for each owner of a timer when it is due, and an index by time. A timer that is put off,
as a session's is by each record, stays where it is in the index until its turn comes: that costs one write, not three.
"""

import heapq
import math
import struct
from collections.abc import Iterator

from batonpass.worker.kafka.stores import StoreInTransaction

_NOW = b"n"
_OWNER = b"o"
_INDEX = b"t"
_TIME = struct.Struct(">q")
_DUE = struct.Struct(">qq")
"""When it is due, and its time in the index."""

LATEST_MS = (1 << 63) - 1


class Timers:
    """The timers of one task, as the present transaction has them. Each owner, a name in bytes, has one at most."""

    def __init__(self, store: StoreInTransaction) -> None:
        self._store = store
        now = store.get(_NOW)
        self.now_ms = -1 if now is None else int(_TIME.unpack(now)[0])
        self._firing: int | None = None
        self._is_advancing = False
        self._due: list[tuple[int, bytes]] = []
        self._earliest: float = next((_time_of(place) for place, _ in store.scan(_INDEX)), math.inf)

    def set(self, owner: bytes, at_ms: int) -> None:
        """Set the owner's timer, in place of the one that it has; one that is due already fires at the next record.

        Raises:
            ValueError: for a time that there is not, or one at which it would fire for ever.
        """
        if not 0 <= at_ms <= LATEST_MS:
            raise ValueError(f"a timer is set in milliseconds since 1970, and not at {at_ms}")
        if self._firing is not None and at_ms <= self._firing:
            raise ValueError(f"a timer of {self._firing} sets one of {at_ms}: it has to be later, or they never end")
        known = self.of(owner)
        if known is not None and known[1] <= at_ms:
            self._store.put(_OWNER + owner, _DUE.pack(at_ms, known[1]))
        else:
            self._place(owner, at_ms, None if known is None else known[1])

    def clear(self, owner: bytes) -> None:
        known = self.of(owner)
        if known is not None:
            self._store.delete(_OWNER + owner)
            self._store.delete(_INDEX + _TIME.pack(known[1]) + owner)

    def of(self, owner: bytes) -> tuple[int, int] | None:
        """Return when the owner's timer is due, and its time in the index; None if it has none."""
        found = self._store.get(_OWNER + owner)
        if found is None:
            return None
        at_ms, indexed_ms = _DUE.unpack(found)
        return at_ms, indexed_ms

    def advance(self, to_ms: int) -> Iterator[tuple[int, bytes]]:
        """Let stream time pass, and yield what is due by then in the order of the times: time and owner.

        Each is taken away just before, so that its owner may set it again.
        """
        if to_ms > self.now_ms:
            self.now_ms = to_ms
            self._store.put(_NOW, _TIME.pack(to_ms))
        if self._earliest > self.now_ms:
            return
        self._earliest = math.inf
        for place, _ in self._store.scan(_INDEX):
            if _time_of(place) > self.now_ms:
                self._earliest = _time_of(place)
                break
            self._due.append((_time_of(place), place[len(_INDEX) + _TIME.size :]))
        self._is_advancing = True
        while self._due:
            indexed_ms, owner = heapq.heappop(self._due)
            known = self.of(owner)
            if known is None or known[1] != indexed_ms:
                # Another one, which has fired before, has taken it away or set it anew.
                continue
            if known[0] > indexed_ms:
                self._place(owner, known[0], indexed_ms)
                continue
            self.clear(owner)
            self._firing = indexed_ms
            try:
                yield indexed_ms, owner
            finally:
                self._firing = None
        self._is_advancing = False

    def _place(self, owner: bytes, at_ms: int, before_ms: int | None) -> None:
        """Put an owner into the index at the time at which it is due, and no more where it was before."""
        if before_ms is not None:
            self._store.delete(_INDEX + _TIME.pack(before_ms) + owner)
        self._store.put(_INDEX + _TIME.pack(at_ms) + owner, b"")
        self._store.put(_OWNER + owner, _DUE.pack(at_ms, at_ms))
        if self._is_advancing and at_ms <= self.now_ms:
            # It has its turn in this round.
            heapq.heappush(self._due, (at_ms, owner))
        else:
            self._earliest = min(self._earliest, at_ms)


def _time_of(place: bytes) -> int:
    return int(_TIME.unpack_from(place, len(_INDEX))[0])
