"""Measure the service over HTTP and on Postgres, beside bare ASGI in the same run (`docs/performance.md`).

The server has one core, the callers and Postgres the other. Figures of processor time are steadier on a busy machine
than those of the clock. With `--strict` the exit code is 1 when a bar does not hold.
"""

from __future__ import annotations

import argparse
import sys
from statistics import median

import uvloop
from tests.benchmarks.report import Bar, bar_lines
from tests.benchmarks.serving.commits import SHAPES, Persisted, persist
from tests.benchmarks.serving.doubling import double
from tests.benchmarks.serving.handovers import hand_over
from tests.benchmarks.serving.heartbeats import Rate, saturated, steady
from tests.benchmarks.serving.polls import Parked, park
from tests.benchmarks.serving.population import Population
from tests.benchmarks.serving.servers import LOAD_CORE, SERVER_CORE, bare, coordinator, migrated, pin, postgres
from tests.benchmarks.serving.watched import busy_with

MEMBERS = (100, 1_000, 10_000)
INTERVAL_S = 3.0
KB = 1_024
TASKS_OF_LARGE = 100
STANDING, READING = "copies standing still", "copies reading on"
STEADY_TURNS = 9
BORNE_WITH = 0.6
"""The share of a core that heartbeats may take; the rest is for what they lead to."""
TIMES_BARE = 9
"""With this, that share bears 10,000 members on a core that lets bare ASGI answer 50,000 heartbeats a second."""
SHOWN = 3


def main() -> int:
    """Run what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.serving", description=__doc__)
    parser.add_argument("--members", type=int, nargs="*", default=MEMBERS, help="sizes of the groups that heartbeat")
    parser.add_argument("--rounds", type=int, default=15, help="how often bare and ours take turns (median)")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="how long a turn lasts: short, since the speed of a machine changes"
    )
    parser.add_argument("--handovers", type=int, default=200)
    parser.add_argument("--polls", type=int, default=10_000)
    parser.add_argument("--doubles", type=int, default=200, help="members of 100 tasks, as many of which join again")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="how many of the sizes of a generation")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a bar does not hold")
    asked = parser.parse_args()
    pin(LOAD_CORE)
    bars = uvloop.run(_measure(asked))
    say(*bar_lines(bars))
    return int(asked.strict and not all(bar.holds for bar in bars))


def say(*lines: str) -> None:
    """Print lines at once."""
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


async def _measure(asked: argparse.Namespace) -> list[Bar]:
    bars: list[Bar] = []
    with postgres() as database:
        url = await migrated(database)
        pin(SERVER_CORE)  # What appends stands for the server here.
        bars += [bar for shape in SHAPES[: asked.shapes] for bar in committed(await persist(url, shape))]
        pin(LOAD_CORE)
        for members in asked.members:
            bars += await heartbeats(url, members, asked)
        if asked.handovers:
            bars.append(await handovers(url, asked.handovers))
        if asked.polls:
            bars += await polls(url, asked.polls)
        if asked.doubles:
            bars.append(await doubling(url, asked.doubles))
    return bars


def committed(seen: Persisted) -> list[Bar]:
    """Show what it costs to persist at one shape."""
    say(
        f"persisting at {seen.shape}: the first generation {seen.first:.0f} ms (written down in {seen.write_down:.0f}), "
        f"a change of {seen.changed_tasks} tasks {seen.change:.1f} ms, one row {seen.one_row:.1f} ms (p50)"
    )
    bars = []
    if seen.changed_tasks <= 100:
        what = f"a change of {seen.changed_tasks} tasks is committed in under 5 ms p50"
        bars.append(Bar(what, f"{seen.change:.1f} ms", seen.change < 5))
    if seen.shape.tasks >= 100_000:
        bars.append(Bar("a first generation of 100,000 tasks in under 1 s", f"{seen.first:.0f} ms", seen.first < 1_000))
    return bars


async def heartbeats(url: str, members: int, asked: argparse.Namespace) -> list[Bar]:
    """Let bare and ours answer the same heartbeats in turns, and then ours at a steady rate."""
    say(f"heartbeats of {members:,} members, 20 tasks each: joining and coming to rest ...")
    async with bare() as yardstick, coordinator(url) as server:
        before = server.resident_bytes()
        group = Population(server, f"beats-{members}", members)
        took = await group.begin()
        say(
            f"  everybody joined in {took.joined_s:.1f} s, of which {took.joined_cpu_s:.1f} s of the server's processor time; "
            f"placed, running and at rest {took.rested_s:.1f} s later, {took.rested_cpu_s:.1f} s of processor time"
        )
        each = (server.resident_bytes() - before) / members
        theirs: list[Rate] = []
        ours: dict[str, list[Rate]] = {STANDING: [], READING: []}
        for _ in range(asked.rounds):
            theirs.append(await saturated(yardstick, group, seconds=asked.seconds))
            for copies, rates in ours.items():
                group.read_on(copies == READING)
                rates.append(await saturated(server, group, seconds=asked.seconds))
        _show_rates("bare", theirs)
        for copies, rates in ours.items():
            _show_rates(f"ours, {copies}", rates)
        for copies in ours:
            group.read_on(copies == READING)
            kept = await steady(server, group, interval_s=INTERVAL_S, seconds=STEADY_TURNS * asked.seconds)
            say(
                f"  one every {INTERVAL_S:g} s, {copies}: {kept.per_s:,.0f}/s, p50 {kept.p50_ms:.1f} ms, "
                f"p99 {kept.p99_ms:.1f} ms, {kept.core:.0%} of a core"
            )
        group.end()
    say(f"  {each / KB:.1f} kB a member")
    bars = []
    for copies, rates in ours.items():
        by_clock = median(a.per_s / b.per_s for a, b in zip(rates, theirs, strict=True))
        times = median(_cpu_s(a) / _cpu_s(b) for a, b in zip(rates, theirs, strict=True))
        bears = BORNE_WITH * INTERVAL_S / median(map(_cpu_s, rates))
        say(
            f"  {copies}: {times:.1f} times the processor time of bare, {by_clock:.2f} of its rate; "
            f"{BORNE_WITH:.0%} of this core bear {bears:,.0f} members at one every {INTERVAL_S:g} s"
        )
        what = (
            f"a heartbeat of 10,000 members, {copies}, takes at most {TIMES_BARE:g} times as long as one of bare ASGI"
        )
        bars.append(Bar(what, f"{times:.1f} times", times <= TIMES_BARE))
    return bars if members >= 10_000 else []


def _cpu_s(rate: Rate) -> float:
    """Return the processor time of one answer."""
    return rate.core / rate.per_s


def _show_rates(name: str, rates: list[Rate]) -> None:
    say(
        f"  {name}: {median(one.per_s for one in rates):,.0f}/s, p50 {median(one.p50_ms for one in rates):.1f} ms, "
        f"p99 {median(one.p99_ms for one in rates):.1f} ms, {median(map(_cpu_s, rates)) * 1e6:.0f} us of processor time each"
    )


async def handovers(url: str, times: int) -> Bar:
    """Time caught-up heartbeats until the new owner is told."""
    async with coordinator(url) as server:
        took = sorted(await hand_over(server, times=times))
    p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
    say(f"caught up to told, {times} handovers, two commits each: p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    return Bar("caught-up heartbeat to the new owner's long-poll, p99 under 10 ms", f"{p99:.1f} ms", p99 < 10)


async def polls(url: str, count: int) -> list[Bar]:
    """Park long-polls, and answer them all."""
    async with coordinator(url) as server:
        group = Population(server, "polls", 100)
        await group.begin()
        seen: Parked = await park(server, group, polls=count)
        group.end()
    say(
        f"{count:,} parked long-polls: {seen.bytes_parked / KB:.1f} kB each, of which the idle connection "
        f"{seen.bytes_idle / KB:.1f} kB; all answered in {seen.wake_s * 1_000:.0f} ms, "
        f"{seen.core * seen.wake_s * 1_000:.0f} ms of processor time"
    )
    return [
        Bar("at most 25 kB per parked long-poll", f"{seen.bytes_parked / KB:.1f} kB", seen.bytes_parked <= 25 * KB),
        Bar(f"{count:,} of them answered within 1.5 s", f"{seen.wake_s:.2f} s", seen.wake_s <= 1.5),
    ]


async def doubling(url: str, members: int) -> Bar:
    """Let a large group double, and show for how long the event loop stood still, and what ran then."""
    seen = await double(url, members=members, tasks_each=TASKS_OF_LARGE)
    what = f"{members * TASKS_OF_LARGE:,} tasks on {members} members"
    say(f"{what}: {2 * members} members, and at rest, in {seen.took_s:.1f} s, {seen.cpu_s:.1f} s of processor time")
    for when, stalls in (("began", seen.beginning), ("doubled", seen.stalls)):
        say(f"  {len(stalls)} times the event loop stood still for more than 100 ms while the group {when}")
        for one in stalls[:SHOWN]:
            worked = f"the loop worked {one.cpu_ms:.0f}, the process {one.process_ms:.0f}"
            say(f"    {one.ms:.0f} ms ({worked}): {busy_with(one.stacks)}")
    longest = max((one.ms for one in seen.stalls), default=0.0)
    shown = "none of 100 ms"
    if seen.stalls:
        shown = f"{longest:.0f} ms, while the process had a core for {seen.stalls[0].process_ms:.0f}"
    return Bar(f"no stall above 250 ms while {what} double", shown, longest <= 250)


if __name__ == "__main__":
    sys.exit(main())
