"""What the member does about each refusal, by the table of errors (docs/api.md)."""

from __future__ import annotations

from enum import StrEnum

from batonpass.worker.protocol.types import Problem, RequestKind


class Verdict(StrEnum):
    """What a refusal asks of the member."""

    # Stop every active without committing, then join with a new id and `replaces`.
    REJOIN = "rejoin"
    # Stop for good: a newer process has this one's place.
    STOP = "stop"
    # Take the assignment that came with it, and go on.
    TAKE_PICTURE = "take-picture"
    # Keep what is held, within the lease, and try again after a while.
    RETRY = "retry"


_BY_TYPE = {
    "unknown-member": Verdict.REJOIN,
    "gone": Verdict.REJOIN,
    "fenced": Verdict.REJOIN,
    "fenced-instance-id": Verdict.STOP,
    "stale-member-epoch": Verdict.TAKE_PICTURE,
    "instance-id-in-use": Verdict.RETRY,
    "invalid-topology": Verdict.RETRY,
    "invalid-config": Verdict.RETRY,
    "invalid-request": Verdict.RETRY,
    "precondition-required": Verdict.RETRY,
    "precondition-failed": Verdict.RETRY,
    "method-not-allowed": Verdict.RETRY,
    "limit-exceeded": Verdict.RETRY,
    "unauthenticated": Verdict.RETRY,
    "forbidden": Verdict.RETRY,
    "store-unavailable": Verdict.RETRY,
    "coordinator-loading": Verdict.RETRY,
}

_BY_ACTION = {"stop-and-rejoin": Verdict.REJOIN, "stop": Verdict.STOP}

# These name a time before which another try is refused again. For all others a retry within the heartbeat interval is
# the normal rhythm, and a longer wait would only spend the lease.
_WAITS_IN_FULL = frozenset({"instance-id-in-use", "limit-exceeded"})


def judge(kind: RequestKind, problem: Problem) -> Verdict:
    """Return what the refusal of a request asks of the member; a type that is not known yet goes by its action."""
    if problem.type == "unknown-group":
        # A group that does not exist has no members: whoever was one stops. A join waits for it to be declared.
        return Verdict.RETRY if kind is RequestKind.JOIN else Verdict.REJOIN
    return _BY_TYPE.get(problem.type) or _BY_ACTION.get(problem.action or "", Verdict.RETRY)


def wait_ms(problem: Problem, interval_ms: int, longest_ms: int) -> int | None:
    """Return how long to wait before the next try, or None where the member's own backoff decides.

    Whoever names a time, and be it a proxy, does not know when this member's lease ends: ``longest_ms`` bounds it.
    """
    if problem.retry_after_ms is None:
        return None
    return min(problem.retry_after_ms, longest_ms if problem.type in _WAITS_IN_FULL else interval_ms)
