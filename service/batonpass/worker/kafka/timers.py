"""Timers of a task in stream time, kept in a store of the task, so that they move with it.

Stream time is the highest timestamp of the records that the task has processed. It stands still while there are none,
and is the same in every run over the same input.

The store has the stream time, for each owner of a timer when it is due, and an index by time. A timer that is put off,
as a session's is by each record, stays where it is in the index until its turn comes: that costs one write, not three.
"""

import heapq
import struct
from collections.abc import Callable, Iterator

from batonpass.worker.kafka.stores import StoreInTransaction

_NOW = b"n"
_OWNER = b"o"
_INDEX = b"t"
_TIME = struct.Struct(">q")
_DUE = struct.Struct(">qq")
"""When it is due, and its time in the index."""

_AT = len(_INDEX) + _TIME.size
FIRST, _END = _INDEX, b"u"
"""Keys before and after all of the index."""

LISTED = 1_000
"""How many of those that are due are listed at once: nothing else has its turn meanwhile."""

LATEST_MS = (1 << 63) - 1


class Timers:
    """The timers of one task, as the present transaction has them. Each owner, a name in bytes, has one at most.

    The index has nothing before ``earliest``. To look there all the same would go over all that have ever fired, which
    RocksDB remembers for long. One that ``is_known`` does not know stays in there when its time has come.
    """

    def __init__(
        self,
        store: StoreInTransaction,
        earliest: bytes = FIRST,
        is_known: Callable[[bytes], bool] = lambda _owner: True,
    ) -> None:
        self._store = store
        self._is_known = is_known
        now = store.get(_NOW)
        self.now_ms = -1 if now is None else int(_TIME.unpack(now)[0])
        self._firing: int | None = None
        self._is_advancing = False
        # Places in the index: those that have their turn now, and one before which there are no others.
        self._due: list[bytes] = []
        self._next = earliest

    @property
    def earliest(self) -> bytes:
        """A place in the index before which there is nothing, as this transaction has it."""
        return min([self._next, *self._due[:1]])

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

    def advance(self, to_ms: int) -> Iterator[tuple[int, bytes] | None]:
        """Let stream time pass, and yield what is due by then in the order of the times: time and owner.

        Each is taken away just before, so that its owner may set it again. None stands for one that was put off, or is
        not known. Who stops half way may commit that: time is then as far as what has fired, and the rest is due next.
        """
        reached_ms, self.now_ms = self.now_ms, max(self.now_ms, to_ms)
        # Records without a time are of -1, at which nothing is due.
        now = _INDEX + _TIME.pack(self.now_ms) if self.now_ms >= 0 else b""
        self._is_advancing = True
        while self._next[:_AT] <= now:
            start, self._next = self._next, _END
            for place, _ in self._store.scan(_INDEX, start):
                if place[:_AT] > now or len(self._due) == LISTED:
                    self._next = place
                    break
                self._due.append(place)
            yield from self._fire(reached_ms)
        self._is_advancing = False
        if self.now_ms > reached_ms:
            self._store.put(_NOW, _TIME.pack(self.now_ms))

    def _fire(self, reached_ms: int) -> Iterator[tuple[int, bytes] | None]:
        while self._due:
            place = heapq.heappop(self._due)
            indexed_ms, owner = int(_TIME.unpack_from(place, len(_INDEX))[0]), place[_AT:]
            known = self.of(owner)
            if known is None or known[1] != indexed_ms:
                # Another one, which has fired before, has taken it away or set it anew.
                continue
            if not self._is_known(owner):
                yield None
                continue
            if known[0] > indexed_ms:
                self._place(owner, known[0], indexed_ms)
                yield None
                continue
            self.clear(owner)
            self._store.put(_NOW, _TIME.pack(max(reached_ms, indexed_ms)))
            self._firing = indexed_ms
            try:
                yield indexed_ms, owner
            finally:
                self._firing = None

    def _place(self, owner: bytes, at_ms: int, before_ms: int | None) -> None:
        """Put an owner into the index at the time at which it is due, and no more where it was before."""
        if before_ms is not None:
            self._store.delete(_INDEX + _TIME.pack(before_ms) + owner)
        place = _INDEX + _TIME.pack(at_ms) + owner
        self._store.put(place, b"")
        self._store.put(_OWNER + owner, _DUE.pack(at_ms, at_ms))
        if self._is_advancing and at_ms <= self.now_ms and place < self._next:
            # It has its turn in this round.
            heapq.heappush(self._due, place)
        else:
            self._next = min(self._next, place)
