"""Where a soak takes place: a database, a broker, two coordinators, a dashboard and a load, in one folder."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import text

from batonpass.cli.demo_job import real_worker
from batonpass.demo.job import Job
from batonpass.demo.processes import Child
from batonpass.demo.topics import BROKER_SETTINGS, make_topics, preload
from batonpass.kafka.broker import LocalBroker
from batonpass.postgres.connect import connect
from batonpass.postgres.embedded import EmbeddedPostgres
from batonpass.postgres.schema import upgrade
from batonpass.private_files import write_private
from batonpass.runtime.access import new_secret

START_PATIENCE_S: Final = 60.0
TASKS, CUSTOMERS, RATE = 6, 2_000, 60
SEGMENT: Final = 1024 * 1024
KEEP_BYTES: Final = 2 * SEGMENT
KEPT: Final = {
    # Little is kept, and that is looked at often: the broker's disk is as full as it gets within minutes.
    "log.retention.bytes": str(KEEP_BYTES),
    "log.retention.check.interval.ms": "30000",
    "log.segment.bytes": str(SEGMENT),
    # A segment is compacted once it is full: with the default, 100 MB, what transactions leave would add up for days.
    "transaction.state.log.segment.bytes": str(SEGMENT),
    "offsets.topic.segment.bytes": str(SEGMENT),
}
LEAST_WRITE_AHEAD_LOG: Final = (
    "alter system set min_wal_size = '32MB'",
    "alter system set max_wal_size = '48MB'",
    "select pg_reload_conf()",
)
"""By default Postgres keeps 80 MB of it to use again, which an hour does not fill."""


@dataclass
class Place:
    """What runs from the beginning to the end. ``running`` are its processes, by name."""

    folder: Path
    job: Job
    database_url: str
    token: str
    coordinators: list[str] = field(default_factory=list)
    dashboard: str = ""
    running: dict[str, Child] = field(default_factory=dict)

    def state_of(self, worker: str) -> Path:
        """Return the folder of a worker's state."""
        return self.folder / "workers" / worker

    async def worker(self, name: str) -> Child:
        """Start a worker of the job, with the state that its folder has."""
        program = real_worker(
            self.job.words(),
            name,
            url=",".join(self.coordinators),
            folder=self.state_of(name),
            token_file=self.folder / "token",
        )
        return await self.start(name, program.module, program.arguments)

    async def start(self, name: str, module: str, arguments: list[str], **environment: str) -> Child:
        """Start a process; what it says on standard error goes to the logs."""
        log = self.folder / "logs" / f"{name}.log"
        return await Child.start(module, arguments, log=log, hear=lambda _: None, **environment)

    async def serve(self, name: str, *arguments: str, **environment: str) -> str:
        """Start a coordinator or a dashboard; return where it listens."""
        listens: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def hear(event: Mapping[str, Any]) -> None:
            if "url" in event and not listens.done():
                listens.set_result(str(event["url"]))

        log = self.folder / "logs" / f"{name}.log"
        self.running[name] = await Child.start("batonpass", arguments, log=log, hear=hear, **environment)
        async with asyncio.timeout(START_PATIENCE_S):
            return await listens


@contextlib.asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    """Start everything in an empty folder; stop it at the end."""
    broker = LocalBroker(folder / "kafka", settings=BROKER_SETTINGS | KEPT)
    postgres = EmbeddedPostgres(folder / "postgres")
    made: Place | None = None
    try:
        bootstrap, url = await asyncio.gather(asyncio.to_thread(broker.start), asyncio.to_thread(postgres.start))
        await upgrade(url)
        await _keep_little(url)
        job = Job(bootstrap=bootstrap, group="totals", tasks=TASKS, customers=CUSTOMERS, rate=RATE)
        await make_topics(job, keep_bytes=KEEP_BYTES)
        await preload(job)
        made = Place(folder, job, url, new_secret())
        await _begin(made)
        yield made
    finally:
        if made is not None:
            await asyncio.gather(*(child.stop() for child in made.running.values()))
        await asyncio.gather(asyncio.to_thread(postgres.stop), asyncio.to_thread(broker.stop))


async def _keep_little(database_url: str) -> None:
    """Have the database's disk, too, be as full as it gets within minutes."""
    engine = connect(database_url, connections_max=1)
    async with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        for order in LEAST_WRITE_AHEAD_LOG:
            await connection.execute(text(order))
    await engine.dispose()


async def _begin(made: Place) -> None:
    """Start the coordinators and what needs them."""
    write_private(made.folder / "token", made.token)
    both = (
        made.serve(
            f"coordinator {number}",
            *("serve", "--port", "0", "--json"),
            BATONPASS_DATABASE_URL=made.database_url,
            BATONPASS_ADMIN_TOKEN=made.token,
            BATONPASS_KAFKA_BOOTSTRAP=made.job.bootstrap,
            BATONPASS_LOG_LEVEL="warning",
        )
        for number in (1, 2)
    )
    made.coordinators += await asyncio.gather(*both)
    urls = ",".join(made.coordinators)
    made.dashboard = await made.serve("dashboard", "dashboard", "--server", urls, "--port", "0", "--json")
    made.running["load"] = await made.start("load", "batonpass.demo.load", [made.job.words()])
