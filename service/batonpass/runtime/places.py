"""Places for what is held long: connections that wait, bodies that arrive, reads that run beside the event loop."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from batonpass.core.state.errors import LimitExceeded

FULL_RETRY_MS: Final = 2_000


class Places:
    """A number of places, of which each caller may have a share. So no caller can take them all.

    A caller is known by the name of its token, and without one by its address. While all places are taken, a caller may
    still have as many as each would if all who have some had equally many.
    """

    def __init__(self, most: int, what: str, *, each: int) -> None:
        """Have ``most`` places, ``each`` of them at most for one caller; errors call them ``what``."""
        self.taken = 0
        self._most = most
        self._each = each
        self._what = what
        self._by_caller: dict[str, int] = {}

    def take(self, who: str, count: int = 1) -> None:
        """Take a place, or several, until ``free`` is called with the same caller.

        Raises:
            LimitExceeded: when none is free, or the caller has as many as it may have (429).
        """
        has = self._by_caller.get(who, 0)
        if has + count > self._each:
            detail = f"{who or 'this caller'} has {self._each} {self._what} already, as many as one caller may have"
            raise LimitExceeded(detail, retry_after_ms=FULL_RETRY_MS)
        equal = self._most // len(self._by_caller.keys() | {who})
        if self.taken + count > self._most and has + count > equal:
            detail = f"there are {self._most} {self._what} already, as many as this coordinator may have"
            raise LimitExceeded(detail, retry_after_ms=FULL_RETRY_MS)
        self.taken += count
        self._by_caller[who] = has + count

    def free(self, who: str, count: int = 1) -> None:
        self.taken -= count
        if left := self._by_caller.pop(who) - count:
            self._by_caller[who] = left

    @contextmanager
    def place(self, who: str) -> Iterator[None]:
        """Take a place within the block.

        Raises:
            LimitExceeded: as ``take`` does.
        """
        self.take(who)
        try:
            yield
        finally:
            self.free(who)
