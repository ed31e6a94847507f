"""The job: running totals per customer, with the state that they need, and a twin that keeps none.

Every input record is an amount for a customer. The stateful job adds it to the customer's total, which is kept in a
store with a changelog. The output names the input's offset, how many amounts the total holds, and who wrote it. So
everything that is missing, doubled or forgotten shows.
"""

import os
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import msgspec
from aiokafka import ConsumerRecord

from batonpass.worker.kafka import Context, KafkaConnection, Subtopology

STATE_BYTES: Final = 200
"""A total and other data of a customer: as large as in the comparable measurement of Kafka Streams."""

LOG_FORM: Final = "%(asctime)s %(levelname)s %(message)s"
STORE: Final = "totals"
PART: Final = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job's group, size and place. ``customers`` and ``rate`` (records a second) are those of each task.

    The first task gets ``hot`` times as many records.
    """

    bootstrap: str
    group: str
    tasks: int
    customers: int
    rate: int
    stateful: bool = True
    hot: int = 1

    @property
    def source(self) -> str:
        """The topic of amounts."""
        return f"{self.group}.orders"

    @property
    def output(self) -> str:
        """The topic of totals; its records have the time at which the broker took them."""
        return f"{self.group}.totals"

    @property
    def changelog(self) -> str:
        """The topic from which state is rebuilt."""
        return f"{self.group}.totals-changelog"

    @property
    def turns(self) -> list[int]:
        """The tasks, by number, that get a record each time that ``rate`` asks for one."""
        return [0] * (self.hot - 1) + list(range(self.tasks))

    @property
    def task_ids(self) -> list[str]:
        return [f"{PART}_{number}" for number in range(self.tasks)]

    def topology(self) -> dict[str, Any]:
        """Return the topology to declare; the coordinator can read the partitions from the broker, but need not."""
        part: dict[str, Any] = {"id": PART, "partitions": self.tasks, "source_topics": [self.source]}
        if self.stateful:
            part["changelog_topics"] = [self.changelog]
        return {"epoch": 1, "subtopologies": [part]}

    def words(self) -> str:
        return msgspec.json.encode(self).decode()


class Output(NamedTuple):
    """The contents of one output.

    ``amounts`` is how many amounts the customer's ``total`` holds with this one. In the job without state it is 0, and
    ``total`` is the amount alone.
    """

    offset: int
    amounts: int
    total: int
    writer: str

    def encode(self) -> bytes:
        return f"{self.offset} {self.amounts} {self.total} {self.writer}".encode()

    @classmethod
    def decode(cls, value: bytes) -> Self:
        offset, amounts, total, writer = value.decode().split(" ", 3)
        return cls(int(offset), int(amounts), int(total), writer)


def customer(number: int) -> bytes:
    return b"customer-%06d" % number


def state(count: int, total: int) -> bytes:
    return (b"%d %d" % (count, total)).ljust(STATE_BYTES, b".")


def read_state(kept: bytes | None) -> tuple[int, int]:
    """Return how many amounts a customer's total holds, and the total."""
    if kept is None:
        return 0, 0
    count, total = kept.rstrip(b".").split()
    return int(count), int(total)


def subtopology(job: Job, writer: str) -> Subtopology:
    """Return what the worker of this name does with each record."""

    async def add(record: ConsumerRecord, context: Context) -> None:
        totals = context.store(STORE)
        count, total = read_state(totals.get(record.key))
        count, total = count + 1, total + int(record.value)
        totals.put(record.key, state(count, total))
        output = Output(record.offset, count, total, writer)
        await context.send(job.output, output.encode(), key=record.key, partition=context.partition)

    async def pass_on(record: ConsumerRecord, context: Context) -> None:
        output = Output(record.offset, 0, int(record.value), writer)
        await context.send(job.output, output.encode(), key=record.key, partition=context.partition)

    if not job.stateful:
        return Subtopology(sources=(job.source,), process=pass_on, outputs=(job.output,))
    return Subtopology(sources=(job.source,), process=add, changelogs={STORE: job.changelog}, outputs=(job.output,))


def connection(bootstrap: str, client_id: str) -> KafkaConnection:
    """Return the connection of one client of the job.

    Raises:
        OSError: when a file that the environment names cannot be read.
    """
    named = {"BATONPASS_KAFKA_BOOTSTRAP": bootstrap, "BATONPASS_KAFKA_CLIENT_ID": client_id}
    found = KafkaConnection.from_environment(os.environ | named)
    assert found is not None  # noqa: S101 - it has an address
    return found
