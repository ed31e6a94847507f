"""Records and batches that a topic does not take: what can be cut is cut, and what cannot is named with its size."""

from pathlib import Path

import pytest
from aiokafka import ConsumerRecord
from aiokafka.errors import MessageSizeTooLargeError
from tests.waiting import until
from tests.worker.kafka.test_reader_and_store import ended
from tests.worker.kafka.totals import NewTopics, Owner, new_job, read, write

from batonpass.worker.kafka import Context
from batonpass.worker.kafka.connection import producing
from batonpass.worker.kafka.transaction import RecordTooLarge
from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"


async def test_a_batch_is_cut_where_each_record_fits(bootstrap: str, new_topic: NewTopics, tmp_path: Path) -> None:
    job = await new_job(bootstrap, new_topic)
    narrow = await new_topic("narrow", max_message_bytes="1500")
    await write(job, 50)

    async def spread(record: ConsumerRecord, context: Context) -> None:
        context.store("totals").put(record.key, record.value)
        await context.send(narrow, b"x" * 1_000, partition=0)

    a = Owner(job.runtime(tmp_path, "a", process=spread))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.totals() == {f"k{number % 10}".encode(): b"%d" % number for number in range(40, 50)})
    await a.close()
    assert [len(record.value or b"") for record in await read(job, narrow)] == [1_000] * 50


@pytest.mark.parametrize(("size", "limit"), [(2_000, "1500"), (2_000_000, "max_request_size")])
async def test_a_record_alone_is_named_with_its_topic_its_size_and_the_limit(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, size: int, limit: str
) -> None:
    job = await new_job(bootstrap, new_topic)
    narrow = await new_topic("narrow", max_message_bytes="1500")
    await write(job, 1)

    async def boast(_record: ConsumerRecord, context: Context) -> None:
        await context.send(narrow, b"x" * size, partition=0)

    a = Owner(job.runtime(tmp_path, "a", process=boast))
    a.hold(TASK, Role.ACTIVE)
    error = await ended(a)
    assert isinstance(error, RecordTooLarge)
    assert f"a record of {size} bytes for topic {narrow}" in str(error)
    assert limit in str(error)
    await a.close()


async def test_a_producer_goes_on_after_a_record_that_was_refused(bootstrap: str, new_topic: NewTopics) -> None:
    """Brokers took nothing more of it in that partition, for as long as it lived: its numbers had a gap."""
    job = await new_job(bootstrap, new_topic)
    narrow = await new_topic("narrow", max_message_bytes="1500")
    async with producing(job.connection) as producer:
        for size in (1, 2_000, 2, 2_000, 2_000, 3):
            if size == 2_000:
                with pytest.raises(MessageSizeTooLargeError):
                    await producer.send_and_wait(narrow, b"x" * size, partition=0)
            else:
                await producer.send_and_wait(narrow, b"x" * size, partition=0)
    assert [len(record.value or b"") for record in await read(job, narrow)] == [1, 2, 3]
