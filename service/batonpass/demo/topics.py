"""The topics of a job: made, filled with the state of customers without recent input, and throttled."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError, for_code

from batonpass.demo.job import Job, connection, customer, state
from batonpass.demo.quotas import limit_reading

LEADER_PATIENCE_S = 30.0
BROKER_SETTINGS = {
    # Quotas are measured over two seconds instead of eleven: a throttled client is slow from its first second on.
    "quota.window.num": "2",
    "quota.window.size.seconds": "1",
    # Changelogs are compacted during the demonstration, so that a restore stays as long as it was.
    "log.cleaner.backoff.ms": "3000",
}
"""What the broker of a demonstration has in addition to the settings of any local broker."""

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(2 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.3",
}

LEAST_SEGMENT = 1 << 20
"""In bytes; a broker accepts no less."""


@asynccontextmanager
async def admin_of(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """Lend a client that may change topics and quotas."""
    admin = AIOKafkaAdminClient(**connection(bootstrap, "batonpass-demo").client_options())
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def make_topics(job: Job, *, keep_bytes: int | None = None) -> bool:
    """Make the topics of a job; return whether they did not exist yet.

    ``keep_bytes`` is about how much of each partition's input and output is kept; None: a week's.

    Raises:
        KafkaError: when the broker refuses, or does not answer.
    """
    kept: dict[str, str] = {}
    if keep_bytes is not None:
        kept = {"retention.bytes": str(keep_bytes), "segment.bytes": str(max(keep_bytes // 4, LEAST_SEGMENT))}
    wanted = [
        NewTopic(job.source, job.tasks, 1, topic_configs=kept),
        NewTopic(job.output, job.tasks, 1, topic_configs=kept | {"message.timestamp.type": "LogAppendTime"}),
    ]
    if job.stateful:
        wanted.append(NewTopic(job.changelog, job.tasks, 1, topic_configs=COMPACTED))
    async with admin_of(job.bootstrap) as admin:
        answer = await admin.create_topics(wanted)
        errors = [for_code(code)(f"{name}: {message}") for name, code, message in answer.topic_errors if code]
        if refusals := [error for error in errors if not isinstance(error, TopicAlreadyExistsError)]:
            raise refusals[0]
        for topic in wanted:
            await led(admin, topic.name, job.tasks)
    return not errors


async def led(admin: AIOKafkaAdminClient, topic: str, partitions: int) -> None:
    """Wait until every partition of a topic has a leader."""
    async with asyncio.timeout(LEADER_PATIENCE_S):
        while True:
            [found] = await admin.describe_topics([topic])
            if len([part for part in found.get("partitions", []) if part["leader"] >= 0]) == partitions:
                return
            await asyncio.sleep(0.05)


async def preload(job: Job) -> int:
    """Write a state of every customer to the changelog; return how many records that were.

    It is the state before all input, and the committed offsets of the group say so: a worker refuses state without any.

    Raises:
        KafkaError: when the broker does not accept them.
    """
    # Batches stay small: a client under a quota never gets a batch that is larger than the quota allows in its window.
    producer = AIOKafkaProducer(**connection(job.bootstrap, "batonpass-demo").client_options(), linger_ms=20)
    await producer.start()
    try:
        empty = state(0, 0)
        sent: list[asyncio.Future[object]] = []
        for number in range(job.customers):
            key = customer(number)
            sent = [await producer.send(job.changelog, empty, key=key, partition=part) for part in range(job.tasks)]
        await producer.flush()
        await asyncio.gather(*sent)
    finally:
        await producer.stop()
    options = connection(job.bootstrap, "batonpass-demo").client_options()
    async with AIOKafkaConsumer(**options, group_id=job.group, enable_auto_commit=False) as consumer:
        partitions = [TopicPartition(job.source, number) for number in range(job.tasks)]
        consumer.assign(partitions)
        await consumer.commit(dict.fromkeys(partitions, 0))
    return job.customers * job.tasks


async def throttle(job: Job, workers: Iterable[str], bytes_per_s: float) -> None:
    """Limit how fast each copy of a task, on each of these workers, may restore, by the name of its changelog's reader.

    Raises:
        KafkaError: when the broker refuses.
    """
    clients = [f"{worker}-{task}-changelog" for worker in workers for task in job.task_ids]
    async with admin_of(job.bootstrap) as admin:
        await limit_reading(admin, clients, bytes_per_s)
