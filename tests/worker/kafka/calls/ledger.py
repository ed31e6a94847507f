"""What is true of a job, read from its topics by a consumer that knows nothing of the workers."""

import asyncio
import json
from collections import Counter
from types import TracebackType
from typing import Any, NamedTuple, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from tests.waiting import until
from tests.worker.kafka.totals import Job, expected

KEYS = 10


class Change(NamedTuple):
    """A committed record of the changelog."""

    offset: int
    key: bytes
    value: bytes | None


class Ledger:
    """Reads a job's committed outputs and changelog records as they come."""

    def __init__(self, job: Job) -> None:
        self._output, self._changelog = TopicPartition(job.output, 0), TopicPartition(job.changelog, 0)
        self._connection = job.connection
        self._run: asyncio.Task[None] | None = None
        self.outputs: list[dict[str, Any]] = []
        self.changes: list[Change] = []

    async def __aenter__(self) -> Self:
        """Begin to read."""
        self._consumer = AIOKafkaConsumer(
            **self._connection.client_options(), isolation_level="read_committed", auto_offset_reset="earliest"
        )
        await self._consumer.start()
        self._consumer.assign([self._output, self._changelog])
        self._run = asyncio.create_task(self._read(), name="ledger")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Read no more."""
        assert self._run is not None
        self._run.cancel()
        await asyncio.wait([self._run])
        await self._consumer.stop()

    async def _read(self) -> None:
        while True:
            for partition, records in (await self._consumer.getmany(timeout_ms=1_000)).items():
                if partition == self._output:
                    self.outputs += [json.loads(record.value) for record in records]
                else:
                    self.changes += [Change(record.offset, record.key, record.value) for record in records]

    async def read_to_the_end(self) -> None:
        """Wait until everything committed by now was read."""
        for partition, end in (await self._consumer.end_offsets([self._output, self._changelog])).items():

            async def is_there(partition: TopicPartition = partition, end: int = end) -> bool:
                return bool(await self._consumer.position(partition) >= end)

            await until(is_there)

    def has(self, count: int) -> bool:
        """Whether each of so many input records has an output."""
        return len({each["offset"] for each in self.outputs}) >= count

    @property
    def end(self) -> int:
        """The offset behind the changelog's last record."""
        return self.changes[-1].offset + 1 if self.changes else 0

    def contents(self, position: int | None) -> dict[bytes, bytes]:
        """Return what a store at a position has to hold."""
        found: dict[bytes, bytes] = {}
        for change in self.changes:
            if position is None or change.offset >= position:
                break
            if change.value is None:
                found.pop(change.key, None)
            else:
                found[change.key] = change.value
        return found

    def wrong(self, count: int) -> list[str]:
        """Return what is wrong with outputs and changelog after so many input records."""
        times = Counter(each["offset"] for each in self.outputs)
        missing = [offset for offset in range(count) if not times[offset]]
        doubled = [offset for offset, often in times.items() if often > 1]
        off = [one for one in self.outputs if one["total"] != sum(range(one["offset"] % KEYS, one["offset"] + 1, KEYS))]
        found = [
            f"outputs {what}: {which[:5]} of {count}"
            for what, which in (("missing", missing), ("doubled", doubled), ("with a wrong total", off))
            if which
        ]
        if self.contents(self.end) != expected(count, keys=KEYS):
            found.append(f"the changelog comes to {self.contents(self.end)}, not to {expected(count, keys=KEYS)}")
        return found
