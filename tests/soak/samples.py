"""Takes the measures of everything that runs: of processes, the database, folders, and what coordinators say."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import httpx2 as httpx
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.soak.growth import Kind, Series
from tests.soak.place import Place

from batonpass.postgres.tables import metadata

PAGE = os.sysconf("SC_PAGE_SIZE")
BLOCK = 512
COUNTED = {"batonpass_polls_parked": "long-polls", "batonpass_streams_open": "event streams"}
"""What coordinators say of themselves that is drawn."""

QUERIES = {
    "database: connections": (
        Kind.COUNT,
        "select count(*) from pg_stat_activity where backend_type = 'client backend'",
    ),
    "database: tables": (Kind.DISK, "select pg_database_size(current_database())"),
    "database: write-ahead log": (Kind.SEGMENTS, "select sum(size) from pg_ls_waldir()"),
    **{f"rows of {table}": (Kind.ROWS, f"select count(*) from {table}") for table in metadata.tables},  # noqa: S608 - ours
}

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
        taken = [*self._processes(), *await self._metrics(), *await self._database()]
        taken += await asyncio.to_thread(lambda: [*self._folders()])
        for name, kind, seen in taken:
            self.series.setdefault(name, Series(kind)).add(at, seen)

    def in_short(self) -> str:
        """Return the newest memory of the processes, for people who wait."""
        shown = [name for name, one in self.series.items() if one.kind is Kind.MEMORY]
        return ", ".join(f"{name} {self.series[name].in_words(self.series[name].seen[-1])}" for name in shown)

    def _processes(self) -> Seen:
        """Measure processes. What moves between coordinators with their groups and callers is added up over them."""
        of_coordinators: Counter[str] = Counter()
        for name, child in self._place.running.items():
            with suppress(FileNotFoundError, ProcessLookupError):
                process = Path(f"/proc/{child.pid}")
                files = [_target(file) for file in (process / "fd").iterdir()]
                counts = {"open files": len(files), "connections": sum(file.startswith("socket:") for file in files)}
                yield f"{name}: memory", Kind.MEMORY, int((process / "statm").read_text().split()[1]) * PAGE
                yield f"{name}: threads", Kind.COUNT, len(list((process / "task").iterdir()))
                if name.startswith("coordinator"):
                    of_coordinators.update(counts)
                else:
                    yield from ((f"{name}: {what}", Kind.COUNT, count) for what, count in counts.items())
        yield from ((f"coordinators: {what}", Kind.COUNT, count) for what, count in of_coordinators.items())

    async def _metrics(self) -> list[tuple[str, Kind, float]]:
        """Ask all coordinators; while one of them is frozen nothing is known of their sum."""
        counts: Counter[str] = Counter()
        try:
            for url in self._place.coordinators:
                lines = (await self._client.get(f"{url}/metrics", timeout=5)).text.splitlines()
                counts["lines of metrics"] += len(lines)
                for name, what in COUNTED.items():
                    counts[what] += sum(round(float(line.split()[1])) for line in lines if line.startswith(f"{name} "))
        except httpx.HTTPError:
            return []
        return [(f"coordinators: {what}", Kind.COUNT, count) for what, count in counts.items()]

    async def _database(self) -> list[tuple[str, Kind, float]]:
        taken: list[tuple[str, Kind, float]] = []
        # On a busy machine an answer may take too long.
        with suppress(SQLAlchemyError, OSError):
            async with self.engine.connect() as connection:
                for name, (kind, sql) in QUERIES.items():
                    taken.append((name, kind, float((await connection.execute(text(sql))).scalar_one())))
        return taken

    def _folders(self) -> Seen:
        yield "disk of the database", Kind.SEGMENTS, _bytes_of(self._place.folder / "postgres")
        for name, folder in {"the broker": "kafka", "workers' state": "workers", "logs": "logs"}.items():
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
