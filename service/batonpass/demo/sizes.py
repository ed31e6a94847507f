"""How large and how long a demonstration is."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from batonpass.core.state.policy import LAG_UNBOUNDED

ACCEPTABLE_LAG: Final = 500
"""Five seconds of input in the long form. On a busy machine, a copy with a report that old counts as caught up."""

SESSION_TIMEOUT_MS: Final = 6_000


class HandoverMode(StrEnum):
    """When a task moves: once its new owner has caught up, or at once."""

    WARM = "warm"
    EAGER = "eager"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of one form of the demonstration. ``rate`` is records a second of each task, sizes are those of a task.

    One worker more than ``workers`` shares ``tasks`` evenly: wherever the standbys of one that is killed take over, no
    further move is needed. A worker commits every ``commit_interval_ms``. ``restore_bytes_per_s`` is the broker's quota
    for each client that restores a task on a worker. ``tail_s`` is how long a phase is still observed once the group
    rests, ``quiet_s`` how long nothing is done before each phase. ``warm_moves`` is how many moves the phase of warm
    handovers has at least; 0: no such phase.
    """

    tasks: int = 12
    workers: int = 3
    small_tasks: int = 6
    rate: int = 100
    commit_interval_ms: int = 100
    customers: int
    restore_bytes_per_s: int
    first_quiet_s: float
    quiet_s: float
    tail_s: float
    replace_after_s: float
    warm_moves: int
    with_extras: bool


LONG: Final = Sizes(
    customers=30_000,
    restore_bytes_per_s=400_000,
    first_quiet_s=30,
    quiet_s=8,
    tail_s=6,
    replace_after_s=20,
    warm_moves=50,
    with_extras=True,
)
"""A cold restore takes some 20 seconds."""

QUICK: Final = Sizes(
    tasks=8,
    small_tasks=3,
    rate=25,
    commit_interval_ms=250,
    customers=1_500,
    restore_bytes_per_s=400_000,
    first_quiet_s=4,
    quiet_s=1,
    tail_s=1.5,
    replace_after_s=3,
    warm_moves=0,
    with_extras=False,
)
"""About two minutes in all."""


def config(policy: HandoverMode, *, standbys: int) -> dict[str, Any]:
    """Return a group's settings. Timeouts are short, so that their effects can be watched."""
    return {
        "acceptable_recovery_lag": LAG_UNBOUNDED if policy is HandoverMode.EAGER else ACCEPTABLE_LAG,
        "num_standby_replicas": standbys,
        "max_warmup_replicas": 6,
        "max_warmups_per_member": 6,
        "max_drain_warmups": 6,
        # A standby reports with each heartbeat: what it misses in between must be well below the acceptable lag.
        "heartbeat_interval_ms": 500,
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "initial_rebalance_delay_ms": 3_000,
        "rejoin_grace_ms": 60_000,
    }
