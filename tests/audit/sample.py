"""A day as an audit may find it: a group in trouble, one at ease, one that hardly exists; always the same."""

import random
from datetime import UTC, date, datetime

from batonpass.audit.findings import (
    AuditResult,
    Finding,
    GroupDay,
    Outcome,
    Pictures,
    Recommendation,
    Severity,
)
from batonpass.audit.rows import Generation, Interval, Of, Warmup

DAY = date(2026, 11, 20)
MIDNIGHT_MS = int(datetime(2026, 11, 20, tzinfo=UTC).timestamp() * 1_000)
HOUR_MS = 3_600_000
WORST_HOUR_MS = MIDNIGHT_MS + 14 * HOUR_MS


def at_ms(hour: int, minute: int = 0, second: int = 0) -> int:
    """Return an instant of the day."""
    return MIDNIGHT_MS + (hour * 60 + minute) * 60_000 + second * 1_000


def measures(**given: float | None) -> dict[str, float | int | None]:
    """Return the measures of a quiet day, but for what is given."""
    quiet: dict[str, float | int | None] = {
        "records": 400,
        "generations": 4,
        "moves": 6,
        "lower_bound": 6,
        "excess_moves": 0,
        "warmups": 6,
        "wasted_warmups": 0,
        "probes": 12,
        "futile_probes": 1,
        "flapping_members": 0,
        "downtime_ms": 900,
        "availability": 0.999_999,
        "handovers": 6,
        "failovers": 0,
        "cold_starts": 0,
        "balance_mean": 0.4,
        "balance_worst": 1.0,
        "longest_unowned_ms": 220,
        "members_max": 4,
        "tasks_max": 24,
    }
    return quiet | given


def distribution(count: int, p50: float, p99: float, most: float, total: float) -> dict[str, float]:
    """Return one cause's downtime."""
    return {"count": count, "p50_ms": p50, "p99_ms": p99, "max_ms": most, "total_ms": total}


FINDINGS = (
    Finding(
        "orders",
        "L1",
        Severity.FATAL,
        "0_7",
        "orders-2",
        "orders-1 and orders-2 both ran 0_7 for 4.2 s from 14:12:07.310: orders-2 was granted it under fencing token 41"
        " before orders-1 had confirmed that it stopped.",
        (18_011, 18_204),
        (at_ms(13, 40, 2), at_ms(14, 12, 7), at_ms(14, 12, 11)),
        ("orders-1",),
    ),
    Finding(
        "orders",
        "L7",
        Severity.FATAL,
        "0_3",
        "orders-4",
        "orders-4 took 0_3 over at 14:31:40 with a copy that was 812,400 records behind, while orders-2 was alive.",
        (18_950,),
        (at_ms(14, 31, 40),),
    ),
    Finding(
        "orders",
        "stuck-warmup",
        Severity.NOTICE,
        "0_11",
        "orders-3",
        "The warmup of 0_11 on orders-3 made no progress from 09:02 to 10:41 and kept one of two slots.",
        (9_120, 9_871),
        (at_ms(9, 2), at_ms(10, 41)),
    ),
    Finding(
        "orders",
        "flapping-member",
        Severity.NOTICE,
        None,
        "orders-5",
        "orders-5 joined and vanished 9 times between 13:50 and 14:40.",
        tuple(range(17_000, 17_018)),
        tuple(at_ms(13, 50) + number * 170_000 for number in range(18)),
    ),
    Finding("clicks", "futile-probes", Severity.NOTICE, None, None, "11 of 12 probes changed nothing.", (), ()),
)


def interval(task: str, member: str, from_ms: int, to_ms: int | None, running_ms: int | None) -> Interval:
    """Return a stretch in which a member had a task."""
    return Interval(task, member, 1, from_ms, None if to_ms is None else 2, to_ms, running_ms, 1, True, None, member)


def ran(task: str, member: str, from_ms: int, to_ms: int | None = None) -> Interval:
    """Return a stretch in which a member ran a task from the beginning."""
    return interval(task, member, from_ms, to_ms, from_ms)


def warmup(task: str, member: str, took: tuple[int, int], lag: int | None, outcome: str) -> Warmup:
    """Return a warmup, which ``took`` from when to when."""
    from_ms, to_ms = took
    return Warmup(task, member, 1, from_ms, from_ms, 2, to_ms, to_ms, outcome, lag, True, member)


def ownership() -> tuple[Of[Interval], ...]:
    """Return who had which of twelve tasks in the worst hour of a group."""
    chance = random.Random(7)
    found = []
    for number in range(12):
        task, at = f"0_{number}", WORST_HOUR_MS - 900_000
        owner = f"orders-{1 + number % 4}"
        while at < WORST_HOUR_MS + HOUR_MS:
            until = at + chance.randrange(400_000, 2_400_000)
            ends = None if until > WORST_HOUR_MS + HOUR_MS else until
            runs = at + 60_000 if chance.random() < 0.3 else at
            found.append(("orders", interval(task, owner, at, ends, runs)))
            if ends is None:
                break
            at = until + chance.choice([0, 400, 4_000, 90_000])
            owner = f"orders-{chance.randrange(1, 6)}"
    found.append(("orders", interval("0_7", "orders-2", at_ms(14, 12, 7), at_ms(14, 40), None)))
    found += [("clicks", ran(f"1_{number}", f"clicks-{number % 2}", MIDNIGHT_MS)) for number in range(6)]
    return tuple(found)


def warmups() -> tuple[Of[Warmup], ...]:
    """Return warmups whose duration follows their lag, and some that came to nothing."""
    chance = random.Random(11)
    found = []
    for number in range(160):
        lag = int(10 ** chance.uniform(2, 6.2))
        took = int(2_000 + lag / 40 * chance.uniform(0.6, 1.6))
        outcome = "dropped" if chance.random() < 0.14 else "promoted"
        group = "orders" if number % 3 else "clicks"
        known = None if number % 23 == 0 else lag
        began = MIDNIGHT_MS + number * 500_000
        one = warmup(f"0_{number % 24}", f"{group}-{number % 4}", (began, began + took), known, outcome)
        found.append((group, one))
    return tuple(found)


def generations() -> tuple[Of[Generation], ...]:
    """Return generations, most of which moved no more than they had to."""
    chance = random.Random(13)
    found = []
    for number in range(60):
        bound = chance.choice([0, 0, 1, 2, 4, 8])
        moves = bound + chance.choice([0, 0, 0, 0, 1, 5])
        group = "orders" if number % 4 else "clicks"
        found.append((group, Generation(number + 100, MIDNIGHT_MS + number * 1_400_000, 4, 24, 1.0, moves, bound)))
    return tuple(found)


def recommendation() -> Recommendation:
    """Return advice with a grid of 24 settings around it."""
    present = {"max_warmup_replicas": 2, "acceptable_recovery_lag": 10_000, "num_standby_replicas": 0}
    grid = []
    for warmups_max in (1, 2, 4, 8):
        for lag in (1_000, 10_000, 100_000):
            for standbys in (0, 1):
                downtime = int(260_000 / warmups_max * (1 + lag / 200_000) / (1 + 4 * standbys))
                copied = int(4e9 * (1 + 2.5 * standbys) * (1 + warmups_max / 20))
                chosen = {
                    "max_warmup_replicas": warmups_max,
                    "acceptable_recovery_lag": lag,
                    "num_standby_replicas": standbys,
                }
                grid.append(Outcome(chosen, downtime, 40 + 3 * warmups_max, copied))
    was = next(one for one in grid if one.settings == present)
    better = next(
        one for one in grid if one.settings == present | {"max_warmup_replicas": 4, "num_standby_replicas": 1}
    )
    confidence = "Fairly sure: 5 of 5 seeds agree on the order; sizes are estimated from 71 warmups with a known lag."
    return Recommendation("orders", was, better, confidence, tuple(grid))


def sample_result(day: date = DAY) -> AuditResult:
    """Return everything that an audit of the day has found."""
    busy = measures(
        records=21_480,
        generations=45,
        moves=118,
        lower_bound=97,
        excess_moves=21,
        warmups=107,
        wasted_warmups=15,
        probes=220,
        futile_probes=160,
        flapping_members=1,
        downtime_ms=1_284_000,
        availability=0.999_38,
        handovers=84,
        failovers=11,
        cold_starts=4,
        balance_mean=1.3,
        balance_worst=6.0,
        longest_unowned_ms=402_000,
        members_max=6,
    )
    troubled = {
        "warm-handover": distribution(84, 210, 1_900, 2_400, 31_000),
        "failover": distribution(11, 12_500, 48_000, 51_000, 190_000),
        "cold-start": distribution(4, 95_000, 402_000, 402_000, 661_000),
        "restart": distribution(6, 8_000, 31_000, 31_000, 72_000),
        "stuck": distribution(1, 330_000, 330_000, 330_000, 330_000),
    }
    return AuditResult(
        day=day,
        started_at_ms=MIDNIGHT_MS + 86_400_000 + 600_000,
        finished_at_ms=MIDNIGHT_MS + 86_400_000 + 692_000,
        code_version="0.1.0+0123abcd",
        groups=(
            GroupDay("clicks", measures(futile_probes=11), {"warm-handover": distribution(6, 140, 220, 220, 900)}),
            GroupDay("orders", busy, troubled),
            GroupDay("quiet", measures(records=0, generations=0, moves=0, downtime_ms=0, availability=None), {}),
        ),
        findings=FINDINGS,
        left_out={"L1": 3},
        records=21_880,
        decisions_replayed=21_700,
        decisions_differing=0,
        recommendations=(recommendation(),),
        pictures=Pictures({"orders": WORST_HOUR_MS, "clicks": MIDNIGHT_MS}, ownership(), warmups(), generations()),
        log_lines=("read 21,880 records of 3 groups in 4 partitions", "decided 21,700 decisions again in 9 s"),
    )


def clean_result(day: date = DAY) -> AuditResult:
    """Return a day on which nothing was wrong."""
    return AuditResult(
        day=day,
        started_at_ms=MIDNIGHT_MS + 86_400_000,
        finished_at_ms=MIDNIGHT_MS + 86_400_000 + 20_000,
        code_version="0.1.0+0123abcd",
        groups=(GroupDay("clicks", measures(), {"warm-handover": distribution(6, 140, 220, 220, 900)}),),
        records=400,
        decisions_replayed=398,
    )
