"""Takes the measures of everything that runs: of processes, the database, folders, and what coordinators say."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import httpx
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.soak.growth import Kind, Series
from tests.soak.place import Place

from batonpass.postgres.tables import metadata

PAGE = os.sysconf("SC_PAGE_SIZE")
BLOCK = 512
TOLD = {"batonpass_polls_parked": "long-polls", "batonpass_streams_open": "event streams"}
"""What coordinators say of themselves that is drawn."""

Seen = Iterator[tuple[str, Kind, float]]


class Samples:
    """All measures since the beginning, by name."""

    def __init__(self, place: Place, engine: AsyncEngine, client: httpx.AsyncClient) -> None:
        """Measure through connections that are open all the time, so that they are no change themselves."""
        self._place = place
        self.engine = engine
        self._client = client
        self._begun = time.monotonic()
        self.series: dict[str, Series] = {}

    async def take(self) -> None:
        """Take one sample of everything; what cannot be had at this moment is left out."""
        at = time.monotonic() - self._begun
        taken = [*self._processes(), *await self._told(), *await self._database()]
        taken += await asyncio.to_thread(lambda: [*self._folders()])
        for name, kind, seen in taken:
            self.series.setdefault(name, Series(kind)).add(at, seen)

    def in_short(self) -> str:
        """Return the newest memory of the processes and the database's disk, for whoever waits."""
        shown = [name for name, one in self.series.items() if one.kind is Kind.MEMORY] + ["disk of the database"]
        return ", ".join(f"{name} {self.series[name].in_words(self.series[name].seen[-1])}" for name in shown)

    def _processes(self) -> Seen:
        for name, child in self._place.running.items():
            with suppress(FileNotFoundError, ProcessLookupError):
                process = Path(f"/proc/{child.pid}")
                files = [_target(file) for file in (process / "fd").iterdir()]
                resident = int((process / "statm").read_text().split()[1]) * PAGE
                yield f"{name}: memory", Kind.MEMORY, resident
                yield f"{name}: open files", Kind.COUNT, len(files)
                yield f"{name}: connections", Kind.COUNT, sum(file.startswith("socket:") for file in files)
                yield f"{name}: threads", Kind.COUNT, len(list((process / "task").iterdir()))

    async def _told(self) -> list[tuple[str, Kind, float]]:
        taken: list[tuple[str, Kind, float]] = []
        for number, url in enumerate(self._place.coordinators, 1):
            with suppress(httpx.HTTPError):
                lines = (await self._client.get(f"{url}/metrics")).text.splitlines()
                taken.append((f"coordinator {number}: lines of metrics", Kind.COUNT, len(lines)))
                for name, words in TOLD.items():
                    told = next((line for line in lines if line.startswith(f"{name} ")), f"{name} 0")
                    taken.append((f"coordinator {number}: {words}", Kind.COUNT, float(told.split()[1])))
        return taken

    async def _database(self) -> list[tuple[str, Kind, float]]:
        async with self.engine.connect() as connection:

            async def ask(sql: str) -> float:
                return float((await connection.execute(text(sql))).scalar_one())

            sessions = "select count(*) from pg_stat_activity where backend_type = 'client backend'"
            return [
                ("database: connections", Kind.COUNT, await ask(sessions)),
                ("database: tables", Kind.DISK, await ask("select pg_database_size(current_database())")),
                ("database: write-ahead log", Kind.DISK, await ask("select sum(size) from pg_ls_waldir()")),
                *[
                    (f"rows of {table}", Kind.ROWS, await ask(f"select count(*) from {table}"))  # noqa: S608 - our own
                    for table in metadata.tables
                ],
            ]

    def _folders(self) -> Seen:
        folders = {"the broker": "kafka", "the database": "postgres", "workers' state": "workers", "logs": "logs"}
        for name, folder in folders.items():
            yield f"disk of {name}", Kind.DISK, _bytes_of(self._place.folder / folder)


def _target(file: Path) -> str:
    """Return what an open file is; nothing for one that has just been closed."""
    with suppress(FileNotFoundError):
        return str(file.readlink())
    return ""


def _bytes_of(folder: Path) -> int:
    """Return what a folder takes on disk; files that go meanwhile do not count."""
    total = 0
    for path, _, files in os.walk(folder):
        for file in files:
            with suppress(FileNotFoundError):
                total += os.lstat(Path(path) / file).st_blocks * BLOCK
    return total


def growing(series: Mapping[str, Series]) -> list[str]:
    """Return what grows, each with from where to where."""
    return [
        f"{name}: {one.in_words(one.quarter(2))} -> {one.in_words(one.quarter(4))}"
        for name, one in series.items()
        if one.grows()
    ]
