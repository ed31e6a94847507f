"""A worker that can read from the cluster and not write says so after a while, unless the cluster is away."""

import asyncio
import dataclasses
import logging
import time
from pathlib import Path

import pytest
from aiokafka.errors import KafkaError
from tests.waiting import until
from tests.worker.kafka.late import Kind, LateRequests
from tests.worker.kafka.test_reader_and_store import ended
from tests.worker.kafka.test_where_to_begin import relay
from tests.worker.kafka.totals import Job, NewTopics, Owner, expected, new_job, read, write

from batonpass.worker.kafka import ActiveOptions, KafkaConnection, active, connection, runtime
from batonpass.worker.protocol import Role
from batonpass.worker.tasks import Task

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"
QUICK = ActiveOptions(
    retry_ms=50, unable_ms=1_000, transaction_timeout_ms=2_000, producer_options={"request_timeout_ms": 1_000}
)


class CannotWrite(LateRequests):
    """Breaks the connection of every request of a kind, while ``is_broken``."""

    def __init__(self, port: int, kind: Kind) -> None:
        super().__init__(port, lambda _kind: None)
        self._kind = kind
        self.is_broken = False
        self.refused = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.refused += self.refuses
        await super()._serve(reader, writer)

    async def _passes(self, request: bytes) -> bool:
        if self.is_broken and Kind(int.from_bytes(request[4:6])) is self._kind:
            raise ConnectionAbortedError
        return True


def behind(job: Job, proxy: CannotWrite) -> Job:
    """Return the job as a worker sees it whose connections go through the proxy."""
    return dataclasses.replace(job, connection=KafkaConnection(bootstrap_servers=f"127.0.0.1:{proxy.port}"))


@pytest.fixture
def _quick_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for an answer for a fifth of the usual time: an owner, unable from its second try on, waits it out twice."""
    monkeypatch.setattr(connection, "ANSWER_TIMEOUT_S", 3.0)


@pytest.mark.usefixtures("_quick_answers")
@pytest.mark.parametrize("kind", [Kind.INIT_PRODUCER_ID, Kind.PRODUCE])
async def test_an_owner_that_cannot_write_has_failed_after_a_while_and_runs_once_it_can(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: Kind
) -> None:
    caplog.set_level(logging.CRITICAL, "aiokafka")
    job = await new_job(bootstrap, new_topic)
    async with CannotWrite(int(bootstrap.rpartition(":")[2]), kind) as proxy:
        a = Owner(behind(job, proxy).runtime(tmp_path / "a", "a", options=QUICK))
        proxy.is_broken = True
        a.hold(TASK, Role.ACTIVE)
        await write(job, 10)
        assert isinstance(await ended(a), KafkaError)
        proxy.is_broken = False
        a.hold(TASK, Role.ACTIVE)
        await until(lambda: a.totals() == expected(10))
        await a.close()


async def test_nothing_has_failed_while_the_cluster_is_away(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every worker would fail everything then, and no other one could run it."""
    caplog.set_level(logging.CRITICAL, "aiokafka")
    job = await new_job(bootstrap, new_topic)
    async with CannotWrite(int(bootstrap.rpartition(":")[2]), Kind.END) as proxy:
        a = Owner(behind(job, proxy).runtime(tmp_path / "a", "a", options=dataclasses.replace(QUICK, unable_ms=300)))
        a.hold(TASK, Role.ACTIVE)
        await write(job, 10)
        await until(lambda: a.totals() == expected(10))
        proxy.refuses = True
        proxy.cut()
        _, run = a.tasks[TASK]
        await write(job, 10, first=10)
        began = time.monotonic()
        await until(lambda: proxy.refused >= 6 and time.monotonic() - began > 1)
        assert not run.done()
        proxy.refuses = False
        await until(lambda: a.totals() == expected(20))
        await a.close()


async def reached(job: Job, count: int) -> None:
    """Wait until there are so many outputs."""

    async def is_there() -> bool:
        return len(await read(job, job.output)) >= count

    await until(is_there)


@pytest.mark.parametrize("has_state", [True, False])
async def test_a_worker_that_is_cut_off_says_that_its_tasks_do_not_run(
    bootstrap: str,
    new_topic: NewTopics,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_state: bool,
) -> None:
    """Its coordinator took them for running, for good: others reach the cluster, and it alone does not."""
    caplog.set_level(logging.CRITICAL, "aiokafka")
    monkeypatch.setattr(active, "AWAY_S", 0.1)
    job = await new_job(bootstrap, new_topic)
    async with CannotWrite(int(bootstrap.rpartition(":")[2]), Kind.END) as proxy:
        stateful = behind(job, proxy).runtime(tmp_path / "a", "a", options=QUICK)
        a = Owner(stateful) if has_state else relay(behind(job, proxy), tmp_path / "a", QUICK)
        a.hold(TASK, Role.ACTIVE)
        await write(job, 10)
        await reached(job, 10)
        assert a.states == ["running"]
        proxy.refuses = True
        proxy.cut()
        await until(lambda: a.states == ["running", "restoring"])
        await until(lambda: f"127.0.0.1:{proxy.port}: " in a.progressed[TASK].detail)
        # It is as far as it was, so that it keeps the task for a while.
        assert a.is_caught_up(TASK) is has_state
        proxy.refuses = False
        await until(lambda: a.states == ["running", "restoring", "running"])
        await a.close()


async def test_a_copy_that_is_cut_off_is_not_ready_until_its_owner_had_time_to_come_back(
    bootstrap: str,
    new_topic: NewTopics,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the cluster is away for all there is nobody to move to, and afterwards no need."""
    caplog.set_level(logging.CRITICAL, "aiokafka")
    monkeypatch.setattr(runtime, "AWAY_S", 0.1)
    monkeypatch.setattr(runtime, "OWNER_FIRST_S", 0.5)
    waited: list[float | None] = []
    stop_requested = Task.stop_requested

    async def noted(task: Task, within_s: float | None = None) -> bool:
        waited.append(within_s)
        return await stop_requested(task, within_s)

    monkeypatch.setattr(Task, "stop_requested", noted)
    job = await new_job(bootstrap, new_topic)
    async with CannotWrite(int(bootstrap.rpartition(":")[2]), Kind.END) as proxy:
        b = Owner(behind(job, proxy).runtime(tmp_path / "b", "b", options=QUICK))
        b.hold(TASK, Role.STANDBY)
        await until(lambda: b.is_caught_up(TASK))
        proxy.refuses = True
        proxy.cut()
        await until(lambda: b.progressed[TASK].detail)
        assert not b.progressed[TASK].is_known
        assert waited == []
        proxy.refuses = False
        await until(lambda: b.is_caught_up(TASK))
        assert waited == [0.5]
        await b.close()
