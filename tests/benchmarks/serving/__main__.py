"""Measure the service over HTTP and on Postgres, beside bare ASGI in the same run (`docs/performance.md`).

The server has one core, the callers and Postgres the other. Figures of processor time are steadier on a busy machine
than those of the clock. With `--strict` the exit code is 1 when a bar does not hold.
"""

import argparse
import sys
from statistics import median

import uvloop
from tests.benchmarks.report import GROWTH, TEN_TIMES, Bar, bar_lines
from tests.benchmarks.serving.commits import SHAPES, Persisted, persist
from tests.benchmarks.serving.doubling import double
from tests.benchmarks.serving.handovers import BareHops, hand_over
from tests.benchmarks.serving.heartbeats import Rate, saturated, steady
from tests.benchmarks.serving.polls import park
from tests.benchmarks.serving.population import Population
from tests.benchmarks.serving.servers import LOAD_CORE, SERVER_CORE, bare, coordinator, migrated, pin, postgres
from tests.benchmarks.serving.watched import busy_with
from tests.benchmarks.serving.wire import Wire

from batonpass.percentiles import nearest_rank
from batonpass.postgres.connect import connect

MEMBERS = (100, 1_000, 10_000)
INTERVAL_MS = 3_000
"""The default of a group's setting."""
KB = 1_024
GROUP_MEMBERS = 10_000
"""A larger fleet is several groups of one coordinator."""
TASKS_OF_LARGE = 100
HABITS: dict[str, tuple[bool, int]] = {
    "copies standing still": (False, 0),
    "copies reading on": (True, 4),
    "copies reading on, each heartbeat naming them": (True, 1),
}
"""By name: whether copies read on, and which heartbeats name them (``Played``)."""
OF_THE_SDK = [*HABITS][:2]
"""Bars are for these."""
STEADY_TURNS = 9
BORNE_WITH = 0.6
"""The share of a core that heartbeats may take; the rest is for what they lead to."""
TIMES_BARE = 9
"""With this, that share bears 10,000 members on a core that lets bare ASGI answer 50,000 heartbeats a second."""
TIMES_BARE_AS_TOLD = 5
"""At the rate of a fleet, where each request wakes a core that has fallen idle, which costs bare ASGI as much."""
CORE, P50_MS, P99_MS = 0.4, 5, 50
"""How much of a core a fleet of 10,000 may take at most, and how long its heartbeats."""
TIMES_BARE_HOPS = 3
TIMES_BARE_POLLS = 4
TIMES_ONE_ROW = 8
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
    options = parser.parse_args()
    pin(LOAD_CORE)
    bars = uvloop.run(_measure(options))
    say(*bar_lines(bars))
    return int(options.strict and not all(bar.holds for bar in bars))


def say(*lines: str) -> None:
    """Print lines at once."""
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


async def _measure(options: argparse.Namespace) -> list[Bar]:
    bars: list[Bar] = []
    with postgres() as database:
        url = await migrated(database)
        pin(SERVER_CORE)  # What appends stands for the server here.
        persisted = []
        for shape in SHAPES[: options.shapes]:
            persisted.append(await persist(url, shape))
            show_persisted(persisted[-1])
        bars += committed(persisted)
        pin(LOAD_CORE)
        for members in options.members:
            bars += await heartbeats(url, members, options)
        if options.handovers:
            bars.append(await handovers(url, options.handovers))
        if options.polls:
            bars += await polls(url, options.polls)
        if options.doubles:
            bars.append(await doubling(url, options.doubles))
    return bars


def show_persisted(seen: Persisted) -> None:
    """Show what it costs to persist at one shape."""
    say(
        f"persisting at {seen.shape}: the first generation {seen.first:.0f} ms (written down in {seen.write_down:.0f}), "
        f"a change of {seen.changed_tasks} tasks {seen.change:.1f} ms, one row {seen.one_row:.1f} ms (p50)"
    )


def committed(persisted: list[Persisted]) -> list[Bar]:
    """Return the bars about what it costs to persist: a change of some tasks, and how first generations grow."""
    bars = []
    for seen in persisted:
        if seen.changed_tasks <= 100:
            times = seen.change / seen.one_row
            what = f"a change of {seen.changed_tasks} tasks takes at most {TIMES_ONE_ROW:g} times the commit of one row, p50"
            bars.append(Bar(what, f"{times:.1f} times", times <= TIMES_ONE_ROW))
    first = {seen.shape: seen.first for seen in persisted}
    if first.keys() >= {*TEN_TIMES}:
        small, large = (first[shape] for shape in TEN_TIMES)
        what = f"a first generation of {TEN_TIMES[1]} takes at most {GROWTH:g} times that of {TEN_TIMES[0]}"
        bars.append(Bar(what, f"{large / small:.1f} times", large <= GROWTH * small))
    return bars


async def heartbeats(url: str, members: int, options: argparse.Namespace) -> list[Bar]:
    """Let bare and ours answer the same heartbeats in turns, and then ours at a steady rate."""
    say(f"heartbeats of {members:,} members, 20 tasks each: joining and coming to rest ...")
    async with bare() as yardstick, coordinator(url) as server:
        before = server.resident_bytes()
        sizes = [min(GROUP_MEMBERS, members - first) for first in range(0, members, GROUP_MEMBERS)]
        groups = [Population(server, f"beats-{members}-{number}", size) for number, size in enumerate(sizes)]
        for one in groups:
            took = await one.begin()
            say(
                f"  {len(one.members):,} joined in {took.joined_s:.1f} s, of which {took.joined_cpu_s:.1f} s of the server's "
                f"processor time; placed, running and at rest {took.rested_s:.1f} s later, {took.rested_cpu_s:.1f} s of "
                "processor time"
            )
        group = groups[0]
        await group.connect()
        group.members = [member for one in groups for member in one.members]
        await group.each(group.members, group.beat)
        each = (server.resident_bytes() - before) / members
        theirs: dict[str, list[Rate]] = {copies: [] for copies in HABITS}
        ours: dict[str, list[Rate]] = {copies: [] for copies in HABITS}
        for _ in range(options.rounds):
            for copies, (reads_on, lists_every) in HABITS.items():
                group.go_on(reads_on=reads_on, lists_every=lists_every)
                theirs[copies].append(await saturated(yardstick, group, seconds=options.seconds))
                ours[copies].append(await saturated(server, group, seconds=options.seconds))
        for copies in HABITS:
            _show_rates(f"bare, {copies}", theirs[copies])
            _show_rates(f"ours, {copies}", ours[copies])
        for one in groups:
            await one.connect()
            await one.configure(heartbeat_interval_ms=INTERVAL_MS)
        told_s = group.members[0].interval_ms / 1_000
        # Everybody has been told of the setting once each has heartbeat again.
        await steady(server, group, interval_s=told_s, seconds=told_s)
        kept: dict[str, tuple[Rate, Rate]] = {}
        for copies, (reads_on, lists_every) in HABITS.items():
            group.go_on(reads_on=reads_on, lists_every=lists_every)
            each_s = STEADY_TURNS * options.seconds
            kept[copies] = (
                await steady(yardstick, group, interval_s=told_s, seconds=each_s),
                await steady(server, group, interval_s=told_s, seconds=each_s),
            )
            say(f"  one every {told_s:g} s, as they are told, {copies}:")
            for name, rate in zip(("bare", "ours"), kept[copies], strict=True):
                _show_rates(f"  {name}, {rate.core:.0%} of a core", [rate])
        for one in groups:
            await one.connect()
            await one.delete()
            one.end()
    say(f"  {each / KB:.1f} kB a member")
    bars = []
    for copies, rates in ours.items():
        by_clock = median(a.per_s / b.per_s for a, b in zip(rates, theirs[copies], strict=True))
        times = median(_cpu_s(a) / _cpu_s(b) for a, b in zip(rates, theirs[copies], strict=True))
        bears = BORNE_WITH * INTERVAL_MS / 1_000 / median(map(_cpu_s, rates))
        yard, told = kept[copies]
        as_told = _cpu_s(told) / _cpu_s(yard)
        say(
            f"  {copies}: {times:.1f} times the processor time of bare, {by_clock:.2f} of its rate, {as_told:.1f} times as "
            f"they are told; {BORNE_WITH:.0%} of this core bear {bears:,.0f} members at one every {INTERVAL_MS / 1_000:g} s"
        )
        if copies not in OF_THE_SDK:
            continue
        what = f"a heartbeat of 10,000 members, {copies}, takes at most"
        bars += [
            Bar(f"{what} {TIMES_BARE:g} times as long as one of bare ASGI", f"{times:.1f} times", times <= TIMES_BARE),
            Bar(
                f"{what} {TIMES_BARE_AS_TOLD:g} times as long as one of bare ASGI, at the rate that they are told",
                f"{as_told:.1f} times",
                as_told <= TIMES_BARE_AS_TOLD,
            ),
            Bar(
                f"10,000 members that heartbeat as they are told, {copies}: {CORE:.0%} of a core, p50 {P50_MS} ms, p99 {P99_MS}",
                f"{told.core:.0%}, {told.p50_ms:.1f} ms, {told.p99_ms:.1f} ms",
                told.core <= CORE and told.p50_ms <= P50_MS and told.p99_ms <= P99_MS,
            ),
        ]
    return bars if members == GROUP_MEMBERS else []


def _cpu_s(rate: Rate) -> float:
    """Return the processor time of one answer."""
    return rate.core / rate.per_s


def _show_rates(name: str, rates: list[Rate]) -> None:
    say(
        f"  {name}: {median(one.per_s for one in rates):,.0f}/s, p50 {median(one.p50_ms for one in rates):.1f} ms, "
        f"p99 {median(one.p99_ms for one in rates):.1f} ms, {median(map(_cpu_s, rates)) * 1e6:.0f} us of processor time each"
    )


async def handovers(url: str, times: int) -> Bar:
    """Time caught-up heartbeats until the new owner gets the task, beside as many hops of bare ASGI with a row each."""
    engine = connect(url)
    async with bare() as yardstick, coordinator(url) as server:
        hops = BareHops(yardstick, await Wire.open(yardstick.port), engine)
        taken = await hand_over(server, hops, times=times)
    await engine.dispose()
    ours, theirs = (sorted(series) for series in taken)
    ratios = {percent: nearest_rank(ours, percent) / nearest_rank(theirs, percent) for percent in (50, 99)}
    for name, series in ((f"caught up to granted, {times} handovers", ours), ("two bare hops with a row each", theirs)):
        say(f"{name}: p50 {nearest_rank(series, 50):.1f} ms, p99 {nearest_rank(series, 99):.1f} ms")
    say(f"  {ratios[50]:.1f} times the bare hops at p50, {ratios[99]:.1f} times at p99")
    what = f"a caught-up copy gets its task in at most {TIMES_BARE_HOPS:g} times what two bare hops take, p50"
    return Bar(what, f"{ratios[50]:.1f} times", ratios[50] <= TIMES_BARE_HOPS)


async def polls(url: str, count: int, rounds: int = 3) -> list[Bar]:
    """Park long-polls, and answer them all; at a bare server in turns."""
    ours, theirs = [], []
    async with bare() as yardstick, coordinator(url) as server:
        for number in range(rounds):
            group = Population(server, f"polls-{number}", 100)
            await group.begin()
            ours.append(await park(server, group, polls=count))
            theirs.append(await park(yardstick, group, polls=count))
            group.end()
    for name, seen in (("", ours), (", bare", theirs)):
        first = seen[0]
        say(
            f"{count:,} parked long-polls{name}: {first.bytes_parked / KB:.1f} kB each, of which the idle connection "
            f"{first.bytes_idle / KB:.1f} kB; all answered in {median(one.answered_s for one in seen) * 1_000:.0f} ms, "
            f"{median(one.cpu_s for one in seen) * 1_000:.0f} ms of processor time"
        )
    parked = ours[0].bytes_parked / KB
    times = median(a.answered_s / b.answered_s for a, b in zip(ours, theirs, strict=True))
    return [
        Bar("at most 25 kB per parked long-poll", f"{parked:.1f} kB", parked <= 25),
        Bar(
            f"{count:,} of them answered in at most {TIMES_BARE_POLLS:g} times what bare ASGI takes",
            f"{times:.1f} times",
            times <= TIMES_BARE_POLLS,
        ),
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
