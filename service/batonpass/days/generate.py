"""Fills a database with days of simulated groups, in as many processes as there are cores.

Each group is written in one transaction as soon as it is simulated, so that no process ever holds more than one.

Up to ``VARIANTS_MAX`` days are simulated. Further groups are copies of these under other names, without traces.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from math import ceil
from typing import Final

from batonpass.days.plant import Fault, oddities_of, plant
from batonpass.days.processes import carry_out
from batonpass.days.rows import GroupRecorder, GroupRows
from batonpass.days.writing import make_days, refuse_existing, write
from batonpass.postgres.connect import connect
from batonpass.simulate.scenario.drawing import DAY_MS, EVENTS_OF_A_DAY, draw_day
from batonpass.simulate.scenario.model import Scenario
from batonpass.simulate.scenario.play import play

VARIANTS_MAX: Final = 24
EVENTS_OF_A_GROUP_MAX: Final = 20_000
"""More changes than this are not drawn for one group: its day would take more memory and time than is needed."""

TOLD_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be written: a day of ``groups`` groups with about ``events`` changes in all, from ``seed`` on.

    With a ``scenario`` each group has that day, from midnight (UTC) on; ``events``, ``seed`` and ``prefix`` are moot.
    ``faults`` are planted into the first group. ``sample_every`` is in minutes; 0: no samples.
    """

    day: date
    events: int = EVENTS_OF_A_DAY
    groups: int | None = None
    seed: int = 0
    prefix: str = "simulated"
    faults: tuple[Fault, ...] = ()
    sample_every: int = 1
    scenario: Scenario | None = None

    @property
    def group_count(self) -> int:
        """How many groups the events are spread over."""
        return self.groups or max(1, ceil(self.events / EVENTS_OF_A_DAY))


@dataclass(frozen=True, slots=True)
class Written:
    """What was written of one group; ``missed`` are the steps of its scenario that could not happen."""

    group: str
    events: int
    records: int
    traces: int
    missed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """How much of a group's day has been simulated, from 0 to 1; the group is not written yet."""

    group: str
    share: float


Hear = Callable[[Written | Drawing], None]


@dataclass(frozen=True, slots=True)
class _Part:
    """One day, and the groups that have it: the first one as simulated, the others as copies."""

    scenario: Scenario
    groups: tuple[str, ...]
    faults: tuple[Fault, ...] = ()


def generate(url: str, wish: Wish, *, hear: Hear, workers: int | None = None) -> None:
    """Write the days that are wished for; ``hear`` is called for each group that is written, and for days under way.

    A group's rows depend on its seed alone, not on how many processes there are. Only positions in the feed of events,
    which all groups share, are given out in the order in which groups are written.

    Raises:
        ValueError: when one group would have too many events, or its day has nothing to plant a fault into.
        GroupsThere: when groups of these names exist; nothing was written.
        StoreUnavailable: when the database cannot be reached; groups that were written stay.
    """
    parts = list(_parts(wish))
    asyncio.run(_prepare(url, [name for part in parts for name in part.groups], wish.day))
    workers = min(len(parts), workers or os.cpu_count() or 1)
    carry_out(partial(_write_part, url, wish), parts, heard=hear, workers=workers)


def _parts(wish: Wish) -> Iterator[_Part]:
    one = wish.scenario
    if one is not None:
        count = wish.groups or 1
        names = (one.group,) if count == 1 else tuple(f"{one.group}-{number:04}" for number in range(1, count + 1))
        yield _Part(one, names, wish.faults)
        return
    drawn = [f"{wish.prefix}-{number:04}" for number in range(1, wish.group_count + 1)]
    events = max(1, wish.events // len(drawn))
    if events > EVENTS_OF_A_GROUP_MAX:
        most, least = EVENTS_OF_A_GROUP_MAX, ceil(wish.events / EVENTS_OF_A_GROUP_MAX)
        raise ValueError(
            f"a group has at most {most:,} changes a day; for {wish.events:,} ask for {least} groups or more"
        )
    variants = min(VARIANTS_MAX, len(drawn))
    for variant in range(variants):
        faults = wish.faults if variant == 0 else ()
        groups = tuple(drawn[variant::variants])
        yield _Part(draw_day(wish.seed + variant, events=events, oddities=oddities_of(faults)), groups, faults)


async def _prepare(url: str, groups: Sequence[str], day: date) -> None:
    engine = connect(url)
    try:
        await refuse_existing(engine, groups)
        await make_days(engine, (day - timedelta(days=1), day))
    finally:
        await engine.dispose()


def _write_part(url: str, wish: Wish, part: _Part, hear: Hear) -> None:
    """Simulate one day, and write it under all of its names."""
    scenario = replace(part.scenario, group=part.groups[0])
    rows = rows_of(scenario, wish.day, sample_every=wish.sample_every, passed=_teller(scenario, hear))
    faulty = plant(rows, part.faults) if part.faults else rows

    async def write_them() -> None:
        engine = connect(url, connections_max=1)
        try:
            for place, name in enumerate(part.groups):
                one = rows.copy_as(name) if place else faulty
                await write(engine, one)
                hear(Written(name, one.events, one.version, len(one.tables["traces"]), one.missed))
        finally:
            await engine.dispose()

    asyncio.run(write_them())


def _teller(scenario: Scenario, hear: Hear) -> Callable[[int], None]:
    """Return a function that is called with the time played, and reports it every ``TOLD_EVERY_S``."""
    told_s = time.monotonic()

    def passed(until_ms: int) -> None:
        nonlocal told_s
        if time.monotonic() - told_s >= TOLD_EVERY_S:
            told_s = time.monotonic()
            hear(Drawing(scenario.group, min(1.0, max(0.0, until_ms / (scenario.until_ms or DAY_MS)))))

    return passed


def rows_of(
    scenario: Scenario, day: date, *, sample_every: int = 1, passed: Callable[[int], None] = lambda _: None
) -> GroupRows:
    """Play a scenario from midnight (UTC) of a day on, and return everything that a service would have written.

    ``passed`` is called with how many milliseconds of the day have passed.
    """
    start_ms = round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1_000)
    recorder = GroupRecorder(scenario.group, sample_every=sample_every)
    played = play(scenario, observer=recorder, start_ms=start_ms, passed=passed)
    return replace(recorder.rows(), missed=played.missed_in_words())
