"""How much a task uses is measured: of a coroutine its time on the loop, of a thread its processor time."""

import asyncio
import itertools
import threading
import time

import pytest

from batonpass.core.state.ids import GroupId
from batonpass.worker import ThreadCallbacks, ThreadedMember, ThreadTask, measured_load
from batonpass.worker.measured_load import BusyTime, LoadMeter, ThreadTime
from batonpass.worker.testing import HttpServer, LocalCoordinator


def spin(seconds: float) -> None:
    """Use a processor for some seconds."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_load_is_what_was_used_of_each_interval() -> None:
    meter = LoadMeter(5.0, 100.0)
    assert meter.look(7.5, 109.9) is None
    assert meter.look(7.5, 110.0) == 0.25
    assert meter.look(17.5, 130.0) == 0.5
    assert meter.look(17.5, 140.0) == 0.0


def test_what_hardly_differs_is_not_said_again_and_a_slow_drift_is() -> None:
    meter, used_s, said = LoadMeter(0.0, 0.0), 0.0, []
    for number in range(1, 31):
        used_s += 10 * (0.2 + number / 500)
        said.append(meter.look(used_s, 10.0 * number))
    loads = [load for load in said if load is not None]
    assert loads[0] == 0.202
    assert 3 <= len(loads) <= 8
    assert all(1.05 < after / before < 1.07 for before, after in itertools.pairwise(loads))
    rest = LoadMeter(0.0, 0.0)
    assert [rest.look(0.002, 10.0), rest.look(0.006, 20.0), rest.look(0.007, 30.0)] == [0.0002, None, None]


async def test_what_a_coroutine_waits_for_is_no_time_of_its_own() -> None:
    busy, other = BusyTime(), BusyTime()

    async def works(spins_s: float, waits_s: float) -> str:
        for _ in range(5):
            spin(spins_s)
            await asyncio.sleep(waits_s)
        return "done"

    both = await asyncio.gather(busy.of(works(0.02, 0.0)), other.of(works(0.0, 0.02)))
    assert list(both) == ["done", "done"]
    assert busy.seconds >= 0.1
    assert other.seconds < 0.05


async def test_a_measured_coroutine_is_cancelled_and_raises_as_it_would_by_itself() -> None:
    busy, seen = BusyTime(), list[str]()

    async def works() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)
            seen.append("cleaned up")
            raise

    running = asyncio.ensure_future(asyncio.wait_for(busy.of(works()), 60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert seen == ["cancelled", "cleaned up"]

    async def breaks() -> None:
        await asyncio.sleep(0)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        await busy.of(breaks())


def test_the_time_of_a_thread_is_its_own_and_unknown_once_it_has_ended() -> None:
    used, spun, end = ThreadTime(), threading.Event(), threading.Event()
    assert used.seconds() is None

    def work() -> None:
        used.begin()
        spin(0.1)
        spun.set()
        end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    assert spun.wait(20)
    spin(0.2)
    seconds = used.seconds()
    assert seconds is not None
    assert 0.1 <= seconds < 0.19
    end.set()
    thread.join()
    # Python is done with a thread a moment before the system is.
    until_s = time.monotonic() + 20
    while used.seconds() is not None:
        assert time.monotonic() < until_s
        time.sleep(0.01)


class Worker(ThreadCallbacks):
    """Uses the processor for one task, waits for the other, and says itself what a third one uses."""

    def on_standby(self, task: ThreadTask) -> None:
        """Work until told to stop."""
        while not task.wait_stopping(0.01):
            spin(0.01)

    def on_active(self, task: ThreadTask) -> None:
        """Work until told to stop."""
        spin(0.2 if task.partition == 1 else 0)
        task.running()
        if task.partition == 2:
            task.load(40)
        while not task.wait_stopping(0.01):
            if task.partition != 1:
                spin(0.01)


async def test_a_member_in_threads_says_what_its_tasks_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_load, "EVERY_S", 0.5)
    async with LocalCoordinator() as coordinator, HttpServer(coordinator.answer) as server:
        await coordinator.declare("orders", partitions=3, heartbeat_interval_ms=100, session_timeout_ms=5_000)
        member = ThreadedMember(server.url, "orders", Worker())
        await asyncio.to_thread(member.start)
        try:
            async with asyncio.timeout(60):
                while (loads := await said(coordinator)).keys() != {"0_0", "0_1", "0_2"}:
                    await asyncio.sleep(0.05)
            assert loads["0_0"] > 0.05
            assert loads["0_1"] < 0.05
            assert loads["0_2"] == 40
        finally:
            await asyncio.to_thread(member.close)


async def test_a_member_in_threads_says_what_its_copies_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_load, "EVERY_S", 0.5)
    async with LocalCoordinator() as coordinator, HttpServer(coordinator.answer) as server:
        intervals = {"heartbeat_interval_ms": 100, "session_timeout_ms": 5_000}
        await coordinator.declare("orders", partitions=2, num_standby_replicas=1, **intervals)
        members = [ThreadedMember(server.url, "orders", Worker()) for _ in range(2)]
        for member in members:
            await asyncio.to_thread(member.start)
        try:
            async with asyncio.timeout(60):
                while len(copies := await said(coordinator, role="standby")) < 2:
                    await asyncio.sleep(0.05)
            assert min(copies.values()) > 0.05
        finally:
            for member in members:
                await asyncio.to_thread(member.close)


async def said(coordinator: LocalCoordinator, role: str = "active") -> dict[str, float]:
    """Return the loads that the members of the group have said, of tasks in one role."""
    _, soft = await coordinator.coordinator.look(GroupId("orders"))
    reports = {task: one.report for member in soft.members.values() for task, one in member.reports.items()}
    return {
        str(task): report.load for task, report in reports.items() if report.load is not None and report.role == role
    }
