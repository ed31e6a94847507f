"""The calls under way: one at a time on each lane, sent when due, given up when unanswered, repeated with patience.

There is a lane for joining, heartbeats and leaving, one for the long-poll, and one for asking to be drained. A lane
knows nothing of what its requests mean; `machine` decides what to send when a lane is due.
"""

from __future__ import annotations

from dataclasses import dataclass

from batonpass.worker.protocol.lease import backoff_ms
from batonpass.worker.protocol.types import Request

# Fewer than 20 a second, because urgent heartbeats below that rate are exempt from the coordinator's rate limit.
LEAST_GAP_MS = 60

NEVER_SENT_MS = -(1 << 62)


@dataclass(slots=True)
class Lane:
    """One request at a time. ``due_ms`` is when the next may be sent, None when there is nothing to send."""

    jitter_seed: int
    due_ms: int | None = None
    in_flight: Request | None = None
    # The last request that got no answer; it may be repeated as it is.
    unanswered: Request | None = None
    failures: int = 0
    sent_ms: int = NEVER_SENT_MS

    @property
    def wake_at_ms(self) -> int | None:
        """When this lane has something to do by itself."""
        if self.in_flight is not None:
            return self.in_flight.sent_ms + self.in_flight.timeout_ms
        return self.due_ms

    def is_due(self, now_ms: int) -> bool:
        """Whether the next request is to be sent now."""
        return self.in_flight is None and self.due_ms is not None and now_ms >= self.due_ms

    def is_overdue(self, now_ms: int) -> bool:
        """Whether the request under way has waited for its answer long enough."""
        return self.in_flight is not None and now_ms >= self.in_flight.sent_ms + self.in_flight.timeout_ms

    def is_waiting_for(self, request: Request) -> bool:
        """Whether the request is the one under way, this attempt or another one."""
        return self.in_flight is not None and _is_same(self.in_flight, request)

    def is_answer_to(self, request: Request) -> bool:
        """Whether an answer to the request ends what this lane is about, even if it was no longer expected."""
        return self.is_waiting_for(request) or (self.unanswered is not None and _is_same(self.unanswered, request))

    def sent(self, request: Request) -> None:
        """Note the request as the one under way."""
        self.in_flight, self.unanswered, self.due_ms = request, None, None
        self.sent_ms = request.sent_ms

    def answered(self) -> None:
        """Note that the request under way was answered, in whatever way that ends it."""
        self.in_flight, self.unanswered, self.failures = None, None, 0

    def failed(self, now_ms: int, *, cap_ms: int, wait_ms: int | None = None) -> None:
        """Note that the request under way came to nothing; the lane is due again after a backoff, or ``wait_ms``."""
        self.failures += 1
        self.unanswered, self.in_flight = self.in_flight, None
        self.due_ms = now_ms + (backoff_ms(self.failures, cap_ms, self.jitter_seed) if wait_ms is None else wait_ms)

    def hurry(self, now_ms: int) -> None:
        """Make the next request due as soon as the least gap allows, unless a failure keeps it waiting."""
        if self.failures == 0:
            soonest = max(now_ms, self.sent_ms + LEAST_GAP_MS)
            self.due_ms = soonest if self.due_ms is None else min(self.due_ms, soonest)

    def abandon(self, now_ms: int) -> None:
        """Wait no longer for the request under way; another one is due as soon as the least gap allows."""
        if self.in_flight is not None:
            self.in_flight, self.due_ms = None, max(now_ms, self.sent_ms + LEAST_GAP_MS)

    def clear(self) -> None:
        """Forget everything but the time of the last request: what comes now is another conversation."""
        self.due_ms, self.in_flight, self.unanswered, self.failures = None, None, None, 0


def _is_same(one: Request, other: Request) -> bool:
    """Whether both are attempts at one request, which share the time of the first."""
    return (
        one.first_sent_ms == other.first_sent_ms
        and one.seq == other.seq
        and one.kind is other.kind
        and one.member_id == other.member_id
    )
