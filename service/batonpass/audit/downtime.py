"""How long no member ran a task, and why: gaps between runs, their causes, and their sums."""

from collections.abc import Iterable, Mapping
from typing import Final

from batonpass.audit.facts import Run
from batonpass.audit.findings import DowntimeCause
from batonpass.audit.ledger import Ledger, Task
from batonpass.audit.rows import Gap
from batonpass.percentiles import nearest_rank

STUCK_MS: Final = 600_000
"""A task that no member is granted for so long is stuck: twice as long as a restarting member's place is kept."""

DEATHS: Final = ("expired", "fenced", "evicted", "replaced", "taken-over")
"""The causes of members that were given up, rather than went by themselves."""


def gap_after(run: Run, ledger: Ledger, begin_ms: int, end_ms: int) -> Gap | None:
    """Return the gap between a run and the next one, as far as it is of the day; None: there is none.

    A task that no longer exists is not down.
    """
    if run.ended_ms is not None:
        end_ms = min(end_ms, run.ended_ms)
    since_ms = None if run.parked or ledger.runs_beside(run) else down_since(run, ledger)
    until_ms = run.next_up.ms if run.next_up is not None else end_ms
    if since_ms is None or not (since_ms < end_ms and until_ms > begin_ms):
        return None
    from_ms, to_ms = max(since_ms, begin_ms), min(until_ms, end_ms)
    owned_ms = min(run.taken.ms if run.taken is not None else end_ms, to_ms)
    unowned_ms = max(0, owned_ms - from_ms)
    down, up = run.down, run.next_up
    return Gap(
        run.task,
        _cause(run, ledger, unowned_ms),
        from_ms,
        to_ms,
        max(0, to_ms - from_ms),
        unowned_ms,
        run.runner,
        up.member if up is not None else None,
        None if down is None else "suspected" if down.what == "waived" else down.word or down.what,
        down.seq if down is not None else None,
        up.seq if up is not None else None,
    )


def down_since(run: Run, ledger: Ledger) -> int | None:
    """Return since when it is known that no member runs the task: by a confirmation, the end of a lease, or a report.

    If the member was given up, since it was last heard, but not before the run. Logs from before that was recorded
    leave a guess: one session timeout earlier if it expired, ``suspect_timeout_ms`` if it was suspected. A task that
    has not run is down from its first grant on.
    """
    if run.up is None:
        return run.taken.ms if run.taken is not None else None
    down = run.down
    if down is None:
        return None
    if run.heard_ms is not None:
        return max(run.up.ms, min(run.heard_ms, down.ms))
    if down.what == "waived":
        return max(run.up.ms, down.ms - ledger.suspect_ms)
    if down.what == "gone" and down.word == "expired":
        return max(run.up.ms, down.ms - ledger.session_ms)
    return down.ms


def _cause(run: Run, ledger: Ledger, unowned_ms: int) -> DowntimeCause:
    if unowned_ms > STUCK_MS:
        return DowntimeCause.STUCK
    if run.up is None:
        return DowntimeCause.COLD_START
    up, down = run.next_up, run.down
    identity = ledger.identity_of(run.runner)
    if up is not None and identity is not None and identity == ledger.identity_of(up.member):
        return DowntimeCause.RESTART
    is_ready = run.next_granted is not None and run.next_granted.ready is True
    if ledger.has_state(run.task) and not is_ready:
        return DowntimeCause.COLD_START
    # A task that was revoked and never granted again has been taken out of the topology, or waits for good reason. Who
    # died is told to give its tasks up as well, for when it should live after all.
    died = down is not None and (down.what == "waived" or (down.what == "gone" and down.word in DEATHS))
    return DowntimeCause.WARM_HANDOVER if run.gave_up and not died else DowntimeCause.FAILOVER


def distributions(lengths: Mapping[str, Iterable[int]]) -> dict[str, dict[str, float]]:
    """Return how the lengths of the gaps of each cause are distributed; a percentile is the length of an actual gap."""
    found = {}
    for cause, ranked in ((cause, sorted(of_cause)) for cause, of_cause in lengths.items()):
        p50, p99 = nearest_rank(ranked, 50), nearest_rank(ranked, 99)
        values = {"count": len(ranked), "p50_ms": p50, "p99_ms": p99, "max_ms": ranked[-1], "total_ms": sum(ranked)}
        found[cause] = {name: float(value) for name, value in values.items()}
    return found


def lifetime_ms(tasks: Iterable[Task], begin_ms: int, end_ms: int) -> int:
    """Return for how long tasks should have run, all together: each from its first grant, if it has one, to its end.

    Whether it ran then is what availability says.
    """
    lives = [
        life
        for task in tasks
        if task.seen
        for life in (*task.lives, *([] if task.first_ms is None else [(task.first_ms, end_ms)]))
    ]
    return sum(max(0, min(end_ms, last_ms) - max(begin_ms, first_ms)) for first_ms, last_ms in lives)
