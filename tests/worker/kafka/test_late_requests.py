"""Requests of a transaction that arrive in the next one: an owner begins it with a producer whose epoch refuses them.

Without that, the broker that is run here takes them for requests of the next transaction. The tests show both.
"""

import asyncio
import itertools
import json
import logging
import os
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from tests.kafka.cluster import known_to_broker, topics_of_a_job
from tests.waiting import until
from tests.worker.kafka.late import Fate, Kind, LateRequests, Trouble
from tests.worker.kafka.test_zombies import own
from tests.worker.kafka.totals import Job, Owner, check_exactly_once, expected, read, write

from batonpass.worker.kafka import ActiveOptions, KafkaConnection
from batonpass.worker.kafka.transaction import Producer
from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")

TRANSACTIONS = int(os.environ.get("BATONPASS_TRANSACTIONS", "16"))
"""How many transactions meet with trouble, half of them at their end. `make soak` asks for 2,000."""

BATCH = 5
OPTIONS = ActiveOptions(
    retry_ms=20,
    records_max=BATCH,
    commit_interval_ms=1_000,
    transaction_timeout_ms=10_000,
    producer_options={"request_timeout_ms": 500},
)
TASK = "0_0"
INVALID_PRODUCER_EPOCH = 47


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Every client says of each broken connection that it is broken."""
    caplog.set_level(logging.CRITICAL, "aiokafka")


class Run:
    """A job, its input and output beside the proxy, and owners of its tasks whose requests go through it."""

    def __init__(self, job: Job, proxy: LateRequests, folder: Path) -> None:
        self.job = job
        self.proxy = proxy
        self._folder = folder

    def owner(self, name: str) -> Owner:
        """Return a worker that meets with the proxy."""
        servers = f"127.0.0.1:{self.proxy.port}"
        names = (self.job.group, self.job.source, self.job.output, self.job.changelog)
        met = Job(KafkaConnection(bootstrap_servers=servers), *names)
        return Owner(met.runtime(self._folder / name, name, options=OPTIONS))

    async def processed(self, partition: int = 0) -> list[int]:
        """Return the input offset of each output."""
        return [
            json.loads(record.value)["offset"] for record in await read(self.job, self.job.output, partition=partition)
        ]


@asynccontextmanager
async def run(servers: str, folder: Path, fate: Fate, *, partitions: int = 1) -> AsyncIterator[Run]:
    """Make the topics of a job, and put the proxy before its broker."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    group = f"orders-{uuid.uuid4().hex[:8]}"
    names = [f"{group}-{name}" for name in ("source", "output", "store")]
    await admin.create_topics(topics_of_a_job(names, partitions))
    for name in names:
        await known_to_broker(admin, name, partitions)
    await admin.close()
    job = Job(KafkaConnection(bootstrap_servers=servers), group, *names)
    async with LateRequests(int(servers.rpartition(":")[2]), fate) as proxy:
        yield Run(job, proxy, folder)


def once(what: Kind, trouble: Trouble, meets: Kind) -> Fate:
    """Return the fate of the first request of a kind, and of no other."""
    left = [(trouble, meets)]
    return lambda kind: left.pop() if left and kind is what else None


def without_new_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have owners go on with the producer that they have, whatever became of its requests."""
    monkeypatch.setattr(Producer, "raise_if_unanswered", lambda _: None)


async def two_owners(run: Run) -> None:
    """Have two transactions by one owner, the second of which meets what is late of the first, and one by the next."""
    await write(run.job, 2 * BATCH)
    a, b = run.owner("a"), run.owner("b")
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: len(run.proxy.arrived) == 1)
    await a.give_up(TASK)
    await write(run.job, BATCH, first=2 * BATCH)
    b.hold(TASK, Role.ACTIVE)

    async def done() -> bool:
        return 3 * BATCH - 1 in await run.processed()

    await until(done)
    await b.give_up(TASK)


@pytest.mark.parametrize(
    ("what", "trouble", "meets"),
    [(Kind.END, Trouble.DELAYED, Kind.COMMIT_OFFSETS), (Kind.COMMIT_OFFSETS, Trouble.CUT, Kind.END)],
)
async def test_a_request_that_is_late_is_refused(
    servers: str, tmp_path: Path, what: Kind, trouble: Trouble, meets: Kind
) -> None:
    """It arrives where it would do harm, and the epoch of the new producer refuses it."""
    async with run(servers, tmp_path, once(what, trouble, meets)) as met:
        await two_owners(met)
        assert met.proxy.arrived == [(what, INVALID_PRODUCER_EPOCH)]
        await check_exactly_once(met.job, 3 * BATCH)


@pytest.mark.parametrize(("what", "meets"), [(Kind.END, Kind.COMMIT_OFFSETS), (Kind.COMMIT_OFFSETS, Kind.END)])
async def test_the_same_producer_would_tear_the_next_transaction(
    servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: Kind, meets: Kind
) -> None:
    """The broker ends the next transaction before it is whole, or sets its offsets back: its records count twice."""
    without_new_producers(monkeypatch)
    async with run(servers, tmp_path, once(what, Trouble.CUT, meets)) as met:
        await two_owners(met)
        assert met.proxy.arrived == [(what, 0)]
        times = Counter(await met.processed())
        assert [offset for offset, count in times.items() if count > 1] == list(range(BATCH, 2 * BATCH))


async def test_a_start_that_is_late_fences_its_own_successor_once(servers: str, tmp_path: Path) -> None:
    """The owner is refused in the middle of a transaction and takes the task again."""
    async with run(servers, tmp_path, once(Kind.INIT_PRODUCER_ID, Trouble.CUT, Kind.COMMIT_OFFSETS)) as met:
        await write(met.job, 2 * BATCH)
        a = met.owner("a")
        owning = asyncio.create_task(own(a))
        await until(lambda: a.totals() == expected(2 * BATCH))
        owning.cancel()
        await a.give_up(TASK)
        assert a.states == ["running", "fenced", "running"]
        await check_exactly_once(met.job, 2 * BATCH)


PARTITIONS = 4


class InTurn:
    """Trouble for so many requests: everything that can happen to every kind, one after the other, ends most often."""

    def __init__(self, count: int) -> None:
        others = (Kind.COMMIT_OFFSETS, Kind.PRODUCE, Kind.ADD_PARTITIONS, Kind.ADD_OFFSETS)
        kinds = [kind for other in others for kind in (Kind.END, other)]
        meets = (Kind.COMMIT_OFFSETS, Kind.END, Kind.PRODUCE, Kind.ADD_OFFSETS, Kind.ADD_PARTITIONS)
        everything = itertools.cycle(itertools.product(meets, Trouble, kinds))
        self._left = [*itertools.islice(everything, count)][::-1]

    def __call__(self, kind: Kind) -> tuple[Trouble, Kind] | None:
        """Return what happens to a request of this kind, if it is its turn."""
        if not self._left or self._left[-1][2] is not kind:
            return None
        meets, trouble, _ = self._left.pop()
        return trouble, meets


@pytest.mark.parametrize("is_same_producer", [False, True])
@pytest.mark.timeout(60 + 2 * TRANSACTIONS)
async def test_each_input_record_counts_once_unless_the_producer_stays_the_same(
    servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_same_producer: bool
) -> None:
    if is_same_producer:
        without_new_producers(monkeypatch)
    count = TRANSACTIONS * BATCH
    tasks = [f"0_{partition}" for partition in range(PARTITIONS)]
    async with run(servers, tmp_path, InTurn(TRANSACTIONS), partitions=PARTITIONS) as met:
        for partition in range(PARTITIONS):
            await write(met.job, count, partition=partition)
        a, b = met.owner("a"), met.owner("b")
        for task in tasks:
            a.hold(task, Role.ACTIVE)
        await until(lambda: len(met.proxy.arrived) == TRANSACTIONS, within_s=30 + TRANSACTIONS)
        for task in tasks:
            await a.give_up(task)
            b.hold(task, Role.ACTIVE)
        await until(lambda: all(b.input_lags.get(task) == 0 for task in tasks), within_s=30 + TRANSACTIONS)
        for task in tasks:
            await b.give_up(task)
        ledger = [Counter(await met.processed(partition)) for partition in range(PARTITIONS)]
        missing = sum(not times[offset] for times in ledger for offset in range(count))
        doubled = sum(number > 1 for times in ledger for number in times.values())
        # Records are numbered: a broker knows those that it has, and drops them.
        answers = [code for kind, code in met.proxy.arrived if kind is not Kind.PRODUCE]
        sys.stdout.write(
            f"{TRANSACTIONS} transactions with trouble of {sum(map(len, ledger))} records: "
            f"{answers.count(0)} of {len(answers)} late requests taken, {missing} records missing, {doubled} doubled\n"
        )
        assert missing == 0
        if is_same_producer:
            assert doubled > 0
        else:
            assert set(answers) == {INVALID_PRODUCER_EPOCH}
            for partition in range(PARTITIONS):
                await check_exactly_once(met.job, count, partition=partition)
