"""Reads the outputs of a job, under read_committed, and writes them into the ledger."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition

from batonpass.demo.job import Job, Output, connection
from batonpass.demo.ledger import Ledger

LOOK_S = 0.1


class Outputs:
    """The output topic of a job, from its first record on."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.ledger = Ledger(job.tasks, stateful=job.stateful)
        self._reading: asyncio.Future[None] | None = None

    @contextlib.asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Read the topic for as long as the block lasts.

        Raises:
            KafkaError: when the broker cannot be reached.
        """
        consumer = AIOKafkaConsumer(
            **connection(self._job.bootstrap, "batonpass-demo-outputs").client_options(),
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
        )
        await consumer.start()
        self._reading = asyncio.ensure_future(self._read(consumer))
        try:
            yield
        finally:
            self._reading.cancel()
            await asyncio.wait((self._reading,))
            await consumer.stop()

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        consumer.assign([TopicPartition(self._job.output, number) for number in range(self._job.tasks)])
        while True:
            for partition, records in (await consumer.getmany(timeout_ms=200, max_records=2_000)).items():
                for record in records:
                    self.ledger.note(partition.partition, record.key, Output.decode(record.value), record.timestamp)
            # This reader is in no hurry, but workers on the same machine are.
            await asyncio.sleep(LOOK_S)

    async def until(self, taken: Sequence[int], *, within_s: float) -> bool:
        """Wait until every partition's last input has an output, given how many it has; False if that takes longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not self.ledger.is_done(taken):
                    self.check()
                    await asyncio.sleep(LOOK_S)
        return self.ledger.is_done(taken)

    def check(self) -> None:
        """Raise the error that ended the reading, if there was one.

        Raises:
            KafkaError: when the broker failed.
        """
        if self._reading is not None and self._reading.done() and not self._reading.cancelled():
            self._reading.result()
