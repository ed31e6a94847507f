"""The soak sees what it is for: what grows is found, what only comes and goes is not, and its parts work."""

import asyncio
import math
from pathlib import Path
from xml.etree import ElementTree as ET

import httpx2 as httpx
from tests.proof.groups import DECLARATION, GROUP
from tests.soak.growth import MB, Kind, Series
from tests.soak.picture import picture
from tests.soak.place import Place
from tests.soak.retention import forget
from tests.soak.samples import Samples, growing
from tests.soak.visitors import Visitors

from batonpass.demo.job import Job
from batonpass.postgres.connect import connect
from batonpass.runtime.access import new_secret

HOUR = [15.0 * number for number in range(240)]


def series(kind: Kind, seen: list[float]) -> Series:
    """Return an hour of samples."""
    return Series(kind, HOUR, seen)


LEAKS = {
    "ten kB a second of memory": series(Kind.MEMORY, [150 * MB + 10_240 * at for at in HOUR]),
    "rows of which none goes": series(Kind.ROWS, list(HOUR)),
    "a connection in five minutes": series(Kind.COUNT, [40 + at // 300 for at in HOUR]),
    "a disk that begins to fill late": series(Kind.DISK, [40 * MB + max(0, at - 2_400) * MB / 40 for at in HOUR]),
}
STEADY = {
    "caches that fill, and are full": series(Kind.MEMORY, [150 * MB - 60 * MB * math.exp(-at / 200) for at in HOUR]),
    "rows that are let go of at every turn": series(Kind.ROWS, [50 * (at % 360) for at in HOUR]),
    "connections up and down": series(Kind.COUNT, [40 + 8 * math.sin(at / 90) for at in HOUR]),
    "connections, and by chance more of them at the end": series(
        Kind.COUNT, [80 + 25 * math.sin(at / 40) + (10 if at > 2_400 else 0) for at in HOUR]
    ),
    "one more segment of a log": series(Kind.SEGMENTS, [(32 if at < 1_900 else 48) * MB for at in HOUR]),
    "a few rows more": series(Kind.ROWS, [number / 2 for number in range(240)]),
}


def test_a_series_that_grows_is_distinguished_from_one_that_comes_and_goes() -> None:
    """What fills in the beginning, goes up and down, or is little is no leak."""
    assert [line.partition(":")[0] for line in growing(LEAKS | STEADY)] == list(LEAKS)


def test_the_picture_shows_every_measure_and_marks_what_grows() -> None:
    root = ET.fromstring(picture("an <hour>", LEAKS | STEADY))  # noqa: S314 - our own
    words = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert set(LEAKS | STEADY) | {"an <hour>"} <= set(words)
    assert sum(word.endswith(", grows") for word in words) == len(LEAKS)


async def test_each_visitor_comes_once_is_served_and_measured(own_url: str, tmp_path: Path) -> None:
    job = Job(bootstrap="", group="totals", tasks=1, customers=1, rate=1)
    there = Place(tmp_path, job, own_url, new_secret())
    engine = connect(own_url, connections_max=2)
    around = {"BATONPASS_DATABASE_URL": own_url, "BATONPASS_ADMIN_TOKEN": there.token}

    async def stop() -> None:
        await asyncio.gather(*(child.stop() for child in there.running.values()))

    try:
        there.coordinators.append(await there.serve("coordinator 1", "serve", "--port", "0", "--json", **around))
        there.dashboard = there.coordinators[0]
        async with httpx.AsyncClient(timeout=30) as client:
            visitors = Visitors(there, client, seed=1, freeze_every_s=1)
            samples = Samples(there, engine, client)
            assert (await visitors.call("PUT", f"/v1/groups/{GROUP}", json=DECLARATION)).status_code == 201
            acts = [
                visitors.looks,
                visitors.commands,
                visitors.releases,
                visitors.lets_a_group_pass,
                visitors.lends_a_token,
            ]
            acts += [visitors.asks_for_ghosts, visitors.makes_tokens_up, visitors.breaks_a_connection]
            await asyncio.gather(*(act() for act in [*acts, visitors.drops_a_poll]))
            await samples.take()
            # A coordinator that still runs may write a trace between the two.
            await stop()
            await forget(engine, keep_s=0)
            await samples.take()
    finally:
        await stop()
        await engine.dispose()
    assert visitors.faults == {}
    seen = {name: one.seen[0] for name, one in samples.series.items()}
    assert seen["coordinators: connections"] > 0
    assert seen["coordinators: lines of metrics"] > 0
    assert seen["coordinator 1: memory"] > 10 * MB
    assert seen["rows of group_heads"] >= 1
    assert seen["rows of traces"] >= 1
    assert samples.series["rows of traces"].seen[-1] == 0
    assert seen["disk of logs"] >= 0
