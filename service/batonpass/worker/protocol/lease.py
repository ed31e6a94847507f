"""Until when a member may believe that its tasks are its own, and when it may start something.

The lease runs ``session_timeout_ms`` from when the member first sent the highest ``seq`` that was answered 200. The
coordinator counts from receipt, which is never earlier, so this side always ends first.

A lowered session timeout needs care. The coordinator judges a member by the largest timeout that it has sent to the
member since the epoch that the member last echoed. So once a heartbeat echoes a later epoch, answered or not, the
coordinator may count the lower timeout from that heartbeat on, and so does this side. It does not do so sooner: the
lease that was answered still holds until then, and cutting it short on the mere news would stop members for nothing.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Lease:
    """The lease of one run. ``end_ms`` is None before the first answer; ``stop_early_ms`` ends it that much sooner."""

    stop_early_ms: int = 0
    end_ms: int | None = None
    _answered_seq: int = -1
    # Nothing starts until a heartbeat with a higher seq than this is answered; None when nothing is barred.
    _barred_seq: int | None = -1
    _noticed: bool = False

    def is_over(self, now_ms: int) -> bool:
        """Whether it has run out; one that never began counts as over."""
        return self.end_ms is None or now_ms >= self.end_ms

    def may_start(self, now_ms: int) -> bool:
        """Whether grants may be acted on: the lease holds, and if it was over, a later heartbeat was answered."""
        return self._barred_seq is None and not self.is_over(now_ms)

    @property
    def next_end_ms(self) -> int | None:
        """When the lease ends; None when the end was noticed already, or when there is no lease."""
        return None if self._noticed else self.end_ms

    def notice_end(self, now_ms: int, seq: int) -> bool:
        """Return True the first time that the lease is seen to be over; ``seq`` is the last heartbeat sent by then."""
        if self._noticed or self.end_ms is None or now_ms < self.end_ms:
            return False
        self._noticed = True
        self._barred_seq = seq
        return True

    def sent(self, now_ms: int, session_timeout_ms: int) -> None:
        """Count a new heartbeat, which tells the coordinator that the member knows ``session_timeout_ms``."""
        if self.end_ms is not None:
            self.end_ms = min(self.end_ms, now_ms + session_timeout_ms - self.stop_early_ms)

    def answered(self, seq: int, first_sent_ms: int, session_timeout_ms: int) -> None:
        """Count a heartbeat or join (``seq`` 0) that was answered 200; a lower ``seq`` than before changes nothing."""
        if seq <= self._answered_seq:
            return
        self._answered_seq = seq
        self.end_ms = first_sent_ms + session_timeout_ms - self.stop_early_ms
        self._noticed = False
        if self._barred_seq is not None and seq > self._barred_seq:
            self._barred_seq = None
