"""Everything at once for an hour, with disks, memory, connections and rows plotted at its end: does any of them grow?

A Postgres, a broker, two coordinators and a dashboard of their own; workers of a real job and members of the SDK that
come, go and are killed; operators, followers of events, strangers and broken connections; now and then a coordinator
freezes for longer than its lease. What a database keeps for days is kept for a tenth of the run. Ctrl-C ends it early,
and draws what there is. The exit code is 1 when something grows, or when an answer or a law was wrong. On Linux.
"""

import argparse
import asyncio
import contextlib
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import httpx2 as httpx
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.proof.groups import DECLARATION, GROUP
from tests.proof.witness import Witness
from tests.proof.workers import Workers
from tests.soak.growth import RULE, Series
from tests.soak.picture import picture
from tests.soak.place import Place, place
from tests.soak.retention import forget
from tests.soak.samples import Samples, growing
from tests.soak.visitors import Visitors
from tests.soak.workers import Job, churn

from batonpass.cli.demo_job import DECLARATION as JOB
from batonpass.postgres.connect import connect

SAMPLES = 240
"""How many there are at least; a run that is short has fewer, one every two seconds."""

SAY_EVERY_S = 60.0

Words = list[str]


def main(arguments: list[str] | None = None) -> int:
    """Run for as long as is asked for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--picture", type=Path, default=Path("soak.svg"), metavar="FILE", help="where it is drawn")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--keep", type=Path, metavar="DIR", help="an empty folder that stays, with logs and data")
    options = parser.parse_args(arguments)
    # Of members that are put off while a coordinator is frozen there is nothing to say.
    logging.basicConfig(level="ERROR")
    folder = options.keep or Path(tempfile.mkdtemp(prefix="batonpass-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    # The database's own user has to pass through.
    folder.chmod(0o711)
    say(f"{options.minutes:g} minutes, seed {options.seed}, in {folder}")
    try:
        series, faults = asyncio.run(soak(folder, options.minutes * 60, options.seed))
    finally:
        if options.keep is None:
            shutil.rmtree(folder)
    options.picture.write_text(picture(f"A soak of {options.minutes:g} minutes, seed {options.seed}", series))
    grown = growing(series)
    say(f"{len(series)} measures, {len(grown)} of them grow; drawn in {options.picture}", RULE)
    say(*(f"grows: {one}" for one in grown), *(f"wrong: {one}" for one in faults))
    return int(bool(grown or faults))


async def soak(folder: Path, seconds: float, seed: int) -> tuple[Mapping[str, Series], Words]:
    """Let everything happen in a folder; return the measures, and what should not have been seen."""
    witness = Witness()
    async with place(folder) as there, httpx.AsyncClient(timeout=30, trust_env=False) as client:
        engine = connect(there.database_url, connections_max=2)
        visitors = Visitors(there, client, seed=seed, freeze_every_s=max(60, seconds / 30))
        job = Job(there, client, seed=seed, pace_s=min(20, seconds / 20))
        workers = Workers(there.coordinators, GROUP, witness, seed=seed, token=there.token)
        samples = Samples(there, engine, client)
        at_work: list[asyncio.Task[None]] = []
        try:
            await declare(visitors, there)
            for _ in range(4):
                await workers.joined()
            at_work += [
                asyncio.create_task(job.run()),
                asyncio.create_task(churn(workers, seed=seed)),
                *visitors.begin(),
            ]
            await watch(samples, visitors, at_work, seconds)
        except Exception as error:  # noqa: BLE001 - what was seen until then is drawn, and this is said beside it
            witness.faults.append(f"it ended early: {error!r}")
        finally:
            for task in at_work:
                task.cancel()
            await asyncio.gather(*at_work, return_exceptions=True)
            say(f"came and went: {dict(job.done)}, {len(workers.left)} members left; called: {dict(visitors.calls)}")
            await workers.leave_all()
            still = [f"{group} did not move a task any more: little was soaked" for group in await idle(engine, there)]
            await engine.dispose()
    return samples.series, [
        *witness.faults,
        *still,
        *(f"{times} times {what}" for what, times in visitors.faults.items()),
    ]


async def idle(engine: AsyncEngine, there: Place) -> Words:
    """Return the groups without a generation that moved anything, among those that are still kept."""
    moved = "select distinct group_id from generations where moves > 0"
    async with engine.connect() as connection:
        lively = set((await connection.execute(text(moved))).scalars())
    return [group for group in (GROUP, there.job.group) if group not in lively]


async def declare(visitors: Visitors, there: Place) -> None:
    """Declare both groups."""
    await visitors.call("PUT", f"/v1/groups/{GROUP}", json=DECLARATION)
    config = {**JOB["config"], "acceptable_recovery_lag": 100}
    await visitors.call(
        "PUT", f"/v1/groups/{there.job.group}", json={"topology": there.job.topology(), "config": config}
    )


async def watch(samples: Samples, visitors: Visitors, at_work: list[asyncio.Task[None]], seconds: float) -> None:
    """Take samples, let the database forget, and say how far it is, until the time is over or somebody interrupts."""
    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
    begun = time.monotonic()
    every, reported_s, forgot = max(2.0, seconds / SAMPLES), -SAY_EVERY_S, 0.0
    while (now := time.monotonic() - begun) < seconds and not interrupted.is_set():
        for task in at_work:
            # What plays somebody has failed: the soak would go on without it and prove less than it says.
            if task.done():
                task.result()
        if now - forgot >= seconds / 30:
            forgot = now
            await forget(samples.engine, keep_s=seconds / 10)
        await samples.take()
        if now - reported_s >= SAY_EVERY_S:
            reported_s = now
            say(f"{now / 60:.0f} of {seconds / 60:g} minutes; calls: {visitors.calls.total()}; {samples.in_short()}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(interrupted.wait(), every)


def say(*lines: str) -> None:
    """Print lines at once."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
