"""Real members under a real coordinator's decisions on a real broker: scale-out, crash, drain, a broker that stalls.

Kafka's own scenarios (HighAvailabilityTaskAssignorIntegrationTest; lifecycle tests of PR 23608 and PR 23620) in the
form that they take here. The input never pauses; where a task was silent is read off the output records' own times.
"""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Self

import pytest
from aiokafka import AIOKafkaProducer
from tests.waiting import until
from tests.worker.kafka.totals import Job, NewTopics, in_words, new_job, read

from batonpass.codec.answers import to_json
from batonpass.codec.requests import read_declaration
from batonpass.core.state.ids import GroupId
from batonpass.worker import Member, OnLeaseLost
from batonpass.worker.kafka import ActiveOptions, KafkaRuntime
from batonpass.worker.testing import HttpServer, LocalCoordinator

pytestmark = pytest.mark.needs("kafka")
PARTITIONS = 4
ALL_TASKS = [f"0_{partition}" for partition in range(PARTITIONS)]


class Load:
    """Input for every partition, record after record, until it is stopped; ``counts`` says how much."""

    def __init__(self, job: Job, *, every_s: float = 0.01) -> None:
        self.job = job
        self.counts = [0] * PARTITIONS
        self._every_s = every_s
        self._run: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        # What a broker took without having said so is not written again.
        options = self.job.connection.client_options()
        self._producer = AIOKafkaProducer(**options, linger_ms=2, enable_idempotence=True)
        await self._producer.start()
        self._run = asyncio.create_task(self._write())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Write no more."""
        if self._run is not None:
            self._run.cancel()
            await asyncio.wait([self._run])
            self._run = None
            # A cluster that is away would be waited for.
            async with asyncio.timeout(60):
                await self._producer.flush()
                await self._producer.stop()

    async def _write(self) -> None:
        while True:
            for partition in range(PARTITIONS):
                number = self.counts[partition]
                # Counted first: a record that was sent and not counted could not be accounted for.
                self.counts[partition] += 1
                await asyncio.shield(
                    self._producer.send(
                        self.job.source, str(number).encode(), key=f"k{number % 10}".encode(), partition=partition
                    )
                )
            await asyncio.sleep(self._every_s)


async def declare(coordinator: LocalCoordinator, job: Job, **config: object) -> None:
    """Declare the job's group, with a config that is as quick as it can be unless it says so."""
    quick = {"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0, "heartbeat_interval_ms": 500}
    quick |= {"session_timeout_ms": 3_000, "acceptable_recovery_lag": 100, "max_warmup_replicas": PARTITIONS}
    subtopology = {
        "id": "0", "partitions": PARTITIONS, "stateful": True,
        "source_topics": [job.source], "changelog_topics": [job.changelog],
    }  # fmt: skip
    body = to_json({"topology": {"subtopologies": [subtopology]}, "config": quick | config})
    group = GroupId(job.group)
    await coordinator.coordinator.ask(group, read_declaration(group, body, if_match=None)[0])


@asynccontextmanager
async def worker(
    coordinator: LocalCoordinator, job: Job, folder: Path, name: str, **options: object
) -> AsyncIterator[tuple[Member, KafkaRuntime]]:
    """Run a worker."""
    runtime = job.runtime(folder / name, name, options=ActiveOptions(commit_interval_ms=20))
    member = Member(
        coordinator.url,
        job.group,
        runtime,
        on_lease_lost=OnLeaseLost.CONTINUE,
        on_disk=await runtime.on_disk(),
        new_member_id=lambda: name,
        **({"transport": coordinator.transport()} | options),  # type: ignore[arg-type]
    )
    async with member:
        yield member, runtime


def actives(description: dict[str, object], member: str) -> list[str]:
    """Return the tasks that a member runs."""
    current = description["current"]
    assert isinstance(current, dict)
    return sorted(each["task"] if isinstance(each, dict) else each for each in current[member]["active"])


def lost_by_the_broker(log: str, job: Job) -> dict[int, list[int]]:
    """Return the input of commits that a lone broker acknowledged and then lost, by partition, as the owners noticed.

    Kafka 4.3.1 does that when it ends just after the acknowledgement (docs/kafka.md).
    """
    pattern = rf"TopicPartition\(topic='{job.source}', partition=(\d+)\): (None|\d+), after (\d+)"
    lost: dict[int, list[int]] = {}
    for partition, known, committed in re.findall(pattern, log):
        lost.setdefault(int(partition), []).extend(range(0 if known == "None" else int(known), int(committed)))
    return lost


async def accounted(
    job: Job, load: Load, *, lost: Mapping[int, list[int]] = MappingProxyType({})
) -> dict[int, list[tuple[str, int]]]:
    """Check that every input record counts exactly once; return each partition's outputs as owner and time.

    What the broker ``lost`` may have been put out twice, because it was processed again.
    """
    found: dict[int, list[tuple[str, int]]] = {}
    for partition, count in enumerate(load.counts):
        records = await read(job, job.output, partition=partition)
        outputs = [json.loads(record.value) for record in records]
        offsets = [each["offset"] for each in outputs]
        again = [at for at, offset in enumerate(offsets) if offset in offsets[:at]]
        assert [offsets[at] for at in again] in ([], lost.get(partition, [])), f"partition {partition}"
        for at in reversed(again):
            del offsets[at], outputs[at], records[at]
        wrong = [(at, offset) for at, offset in enumerate(offsets) if at != offset]
        assert not wrong, f"partition {partition}: (place, offset) {wrong[:3]} of {len(offsets)}, of {count} written"
        assert len(offsets) == count, f"partition {partition}: the last outputs are missing"
        found[partition] = [(each["owner"], record.timestamp) for each, record in zip(outputs, records, strict=True)]
    return found


def longest_gap_ms(outputs: list[tuple[str, int]]) -> int:
    """Return the longest time without an output."""
    return max(after - before for (_, before), (_, after) in pairwise(outputs))


def handover_gap_ms(outputs: list[tuple[str, int]]) -> int:
    """Return the time between the last output of one owner and the first of the next."""
    [gap] = [after[1] - before[1] for before, after in pairwise(outputs) if before[0] != after[0]]
    return gap


async def processed(job: Job, load: Load, runtimes: list[KafkaRuntime]) -> None:
    """Wait until everything written so far is in some owner's store."""

    def total(runtime: KafkaRuntime, partition: int) -> int:
        store = runtime.store(f"0_{partition}", "totals")
        return 0 if store is None else sum(int(value) for _, value in store.scan())

    def done() -> bool:
        return all(
            max(total(runtime, partition) for runtime in runtimes) == sum(range(count))
            for partition, count in enumerate(load.counts)
        )

    await until(done)


async def test_a_joiner_warms_up_and_takes_over_without_reading_anything_again(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    """As in Kafka's HighAvailabilityTaskAssignorIntegrationTest: half of the tasks move, and no other task stops."""
    job = await new_job(bootstrap, new_topic, partitions=PARTITIONS)
    async with LocalCoordinator() as coordinator, Load(job) as load:
        await declare(coordinator, job)
        async with worker(coordinator, job, tmp_path, "a") as (_, a):
            await coordinator.at_rest(job.group)
            await until(lambda: min(load.counts) > 50)
            async with worker(coordinator, job, tmp_path, "b") as (member, b):
                first = await coordinator.describe(job.group)
                assert actives(first, "b") == []
                await until(lambda: len(member.tasks) == 2)
                rested = await coordinator.at_rest(job.group)
                moved = actives(rested, "b")
                assert len(moved) == 2
                # Only what was written between the last read of the copy and the end of its owner was left to read.
                assert all((b.restored(task) or 0) <= 20 for task in moved)
                read_before = {task: b.records_read(task) for task in moved}
                await asyncio.sleep(1)
                assert {task: b.records_read(task) for task in moved} == read_before
                await load.stop()
                await processed(job, load, [a, b])
        outputs = await accounted(job, load)
        for partition, written in outputs.items():
            if f"0_{partition}" in moved:
                assert handover_gap_ms(written) < 5_000
            else:
                assert {owner for owner, _ in written} == {"a"}


@asynccontextmanager
async def worker_process(url: str, job: Job, folder: Path, name: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a worker in a process of its own, which is told to go at the end unless it has ended by then."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.worker.kafka.worker",
        in_words(job), str(folder), name, url,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 20)
            except TimeoutError:
                process.kill()
                raise


async def test_a_killed_owner_s_standby_takes_over_and_nothing_is_lost(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    """Killed by SIGKILL in mid-transaction; the broken connection tells."""
    job = await new_job(bootstrap, new_topic, partitions=PARTITIONS)
    async with (
        LocalCoordinator() as coordinator,
        HttpServer(coordinator.answer) as server,
        Load(job) as load,
        worker_process(server.url, job, tmp_path, "b") as killed,
    ):
        await declare(coordinator, job, num_standby_replicas=1, session_timeout_ms=20_000, suspect_timeout_ms=1_000)
        async with worker(coordinator, job, tmp_path, "a") as (_, a):
            await until(lambda: len(open_tasks(a)) == PARTITIONS and len(actives_of(a)) == PARTITIONS // 2)
            await coordinator.at_rest(job.group)
            lost = sorted(set(open_tasks(a)) - set(actives_of(a)))
            assert len(lost) == 2
            await asyncio.sleep(1)
            killed.kill()
            await until(lambda: len(actives_of(a)) == PARTITIONS)
            await asyncio.sleep(0.3)
            await load.stop()
            await processed(job, load, [a])
        outputs = await accounted(job, load)
    for partition, written in outputs.items():
        assert {owner for owner, _ in written} == ({"a", "b"} if f"0_{partition}" in lost else {"a"})
        # Well below the session timeout, which is what it would cost without the suspicion.
        assert longest_gap_ms(written) < 8_000


def open_tasks(runtime: KafkaRuntime) -> list[str]:
    """Return the tasks that a runtime has in any role."""
    return [task for task in ALL_TASKS if runtime.positions(task) is not None]


def actives_of(runtime: KafkaRuntime) -> list[str]:
    """Return the tasks that run here."""
    return [
        task for task in (f"0_{partition}" for partition in range(PARTITIONS)) if runtime.restored(task) is not None
    ]


async def test_a_ready_copy_is_promoted_on_its_report(bootstrap: str, new_topic: NewTopics, tmp_path: Path) -> None:
    """The report is sent at once even where the interval is minutes, as in Kafka's PR 23608 and PR 23620."""
    job = await new_job(bootstrap, new_topic, partitions=PARTITIONS)
    async with LocalCoordinator() as coordinator, Load(job) as load:
        slow = {
            "heartbeat_interval_ms": 60_000,
            "session_timeout_ms": 300_000,
            "probing_rebalance_interval_ms": 3_600_000,
        }
        await declare(coordinator, job, **slow)
        async with worker(coordinator, job, tmp_path, "a") as (_, a):
            await coordinator.at_rest(job.group)
            async with worker(coordinator, job, tmp_path, "b") as (_, b):
                rested = await coordinator.at_rest(job.group, timeout_s=20)
                assert len(actives(rested, "b")) == 2
                await load.stop()
                await processed(job, load, [a, b])
        await accounted(job, load)


async def test_a_drained_member_hands_everything_over_first(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = await new_job(bootstrap, new_topic, partitions=PARTITIONS)
    async with LocalCoordinator() as coordinator, Load(job) as load:
        await declare(coordinator, job, max_drain_warmups=PARTITIONS)
        async with worker(coordinator, job, tmp_path, "a") as (_, a), worker(coordinator, job, tmp_path, "b") as (m, b):
            await coordinator.at_rest(job.group)
            await until(lambda: len(actives_of(b)) == 2)
            moved = actives_of(b)
            m.drain()
            await until(lambda: any(status.code == "drained" for status in m.statuses))
            assert actives_of(b) == []
            # They were warm when they came: next to nothing was left to read after the grant.
            assert all((a.restored(task) or 0) <= 20 for task in moved)
            await asyncio.sleep(0.3)
            await load.stop()
            await processed(job, load, [a, b])
        await accounted(job, load)


async def test_two_joiners_warm_up_one_copy_at_a_time(bootstrap: str, new_topic: NewTopics, tmp_path: Path) -> None:
    """Both joiners get their share, and no active restores, as in Kafka's PR 23608 and PR 23620."""
    job = await new_job(bootstrap, new_topic, partitions=PARTITIONS)
    async with LocalCoordinator() as coordinator, Load(job) as load:
        await declare(coordinator, job, max_warmup_replicas=1)
        async with worker(coordinator, job, tmp_path, "a") as (_, a):
            await coordinator.at_rest(job.group)
            async with (
                worker(coordinator, job, tmp_path, "b") as (_, b),
                worker(coordinator, job, tmp_path, "c") as (_, c),
            ):
                most = 0

                async def shared() -> bool:
                    nonlocal most
                    found = await coordinator.describe(job.group)
                    most = max(most, found["warmups"])
                    return bool(found["at_rest"]) and sorted(map(len, (actives_of(b), actives_of(c)))) == [1, 1]

                await until(shared)
                assert most == 1
                assert all((one.restored(task) or 0) <= 20 for one in (b, c) for task in actives_of(one))
                await load.stop()
                await processed(job, load, [a, b, c])
        await accounted(job, load)
