"""How a worker's process ends: signals, applications that shut down, threads."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from tests.waiting import until, wait_until
from tests.worker.recording import END, Ownership, Recorder

from batonpass.worker import (
    Exit,
    JoinRefused,
    Member,
    Phase,
    Revocation,
    Role,
    ThreadCallbacks,
    ThreadedMember,
    ThreadTask,
    member_lifespan,
)
from batonpass.worker.protocol import Problem, RequestKind
from batonpass.worker.testing import HttpServer, LocalCoordinator

QUICK = {"heartbeat_interval_ms": 200, "session_timeout_ms": 5_000, "acceptable_recovery_lag": 100}


@asynccontextmanager
async def served(*, partitions: int = 2, **config: int) -> AsyncIterator[tuple[LocalCoordinator, str]]:
    """Serve a coordinator with the group on a port."""
    async with LocalCoordinator() as coordinator, HttpServer(coordinator.answer) as server:
        await coordinator.declare("orders", partitions=partitions, **(QUICK | config))
        yield coordinator, server.url


def recorder(name: str, ownership: Ownership | None = None) -> Recorder:
    """Return a worker that restores in no time."""
    return Recorder(name, ownership or Ownership(), restore_s=0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_run_in_good_order(number: signal.Signals) -> None:
    async with served() as (coordinator, url):
        worker = recorder("a")
        async with Member(url, "orders", worker) as member:
            await until(lambda: worker.ownership.count("a") == 2)
            asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), number)
            assert await member.run() == "left"
        assert [commit for _, _, commit, _ in worker.of("revoke")] == [True, True]
        assert (await coordinator.describe("orders"))["members"] == 0


async def test_a_run_starts_a_member_that_was_not_started() -> None:
    async with served() as (_, url):
        worker = recorder("a")
        member = Member(url, "orders", worker)
        running = asyncio.ensure_future(member.run())
        await until(lambda: worker.ownership.count("a") == 2)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == "left"


async def test_a_signal_may_ask_for_a_restart_or_a_drain_and_a_second_one_cuts_a_drain_short() -> None:
    """A drain without another member waits for its deadline; the second signal ends the wait."""
    async with served(rejoin_grace_ms=60_000) as (coordinator, url):
        worker = recorder("a")
        async with Member(url, "orders", worker, instance_id="orders-0") as member:
            await until(lambda: worker.ownership.count("a") == 2)
            loop, began = asyncio.get_running_loop(), time.monotonic()
            loop.call_later(0.1, os.kill, os.getpid(), signal.SIGTERM)
            loop.call_later(0.5, os.kill, os.getpid(), signal.SIGTERM)
            assert await member.run(on_sigterm=Exit.DRAIN, on_sigint=Exit.RESTART) == "left"
            assert 0.4 < time.monotonic() - began < 10
        assert (await coordinator.describe("orders"))["members"] == 0


async def test_run_ends_when_the_process_was_taken_over() -> None:
    async with served() as (_, url):
        ownership = Ownership()
        async with Member(url, "orders", recorder("old", ownership), instance_id="orders-0") as member:
            await until(lambda: ownership.count("old") == 2)
            running = asyncio.ensure_future(member.run())
            ownership.owners.clear()
            async with Member(url, "orders", recorder("new", ownership), instance_id="orders-0", takeover=True):
                assert await running == "fenced-instance-id"


async def test_a_member_lives_as_long_as_an_application() -> None:
    """The application starts without waiting for its member."""
    async with served() as (coordinator, url):
        worker = recorder("a")
        lifespan = member_lifespan(lambda app: Member(f"{url}/{app}".rstrip("/"), "orders", worker))
        async with lifespan("") as state:
            member = state["member"]
            assert isinstance(member, Member)
            await member.joined()
            await until(lambda: worker.ownership.count("a") == 2)
        assert (await coordinator.describe("orders"))["members"] == 0
        waiting = member_lifespan(lambda _app: Member(url, "orders", worker, capacity=-1), wait_for_join=True)
        with pytest.raises(JoinRefused, match="capacity"):
            async with waiting("app"):
                pytest.fail("it started")


class Blocking(ThreadCallbacks):
    """A worker that blocks wherever it can."""

    def __init__(self, *, stops_after_s: float = 0.0) -> None:
        self.running: set[str] = set()
        self.events: list[str] = []
        self.problems: list[str] = []
        self.fails = 0
        self._stops_after_s = stops_after_s

    def on_active(self, task: ThreadTask) -> None:
        """Block until told to stop, and a while longer."""
        if self.fails:
            self.fails -= 1
            raise OSError("no space left")
        self.events.append(f"active {task.id} {task.was} {task.restore_to}")
        if task.was is None:
            task.report(0, END)
            time.sleep(0.05)
        task.running()
        task.input_lag(3)
        assert task.may_process
        self.running.add(task.id)
        task.wait_stopping()
        time.sleep(self._stops_after_s)
        self.running.discard(task.id)

    def on_standby(self, task: ThreadTask) -> None:
        """Restore, and block until told to stop."""
        self.events.append(f"{task.role} {task.id}")
        for position in (0, END // 2, END):
            task.report(position, END)
            time.sleep(0.05)
        while not task.stopping:
            time.sleep(0.01)

    def on_revoke(self, task: ThreadTask, revocation: Revocation) -> int | None:
        """Wait for the loop."""
        assert task.finished(20)
        assert task.id not in self.running
        self.events.append(f"revoke {task.role} {task.id} {revocation.commit}")
        return END if task.role is Role.ACTIVE else None

    def on_problem(self, kind: RequestKind, problem: Problem) -> None:
        """Write it down."""
        self.problems.append(f"{kind} {problem.type}")


@contextmanager
def serving(**config: int) -> Iterator[str]:
    """Serve a coordinator from a thread."""
    ready, stop, urls = threading.Event(), threading.Event(), []

    async def serve() -> None:
        async with served(**config) as (_, url):
            urls.append(url)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        yield urls[0]
    finally:
        stop.set()
        thread.join()


def test_blocking_code_never_holds_up_a_heartbeat() -> None:
    with serving() as url:
        first, second = Blocking(stops_after_s=0.3), Blocking()
        with ThreadedMember(url, "orders", first) as one:
            wait_until(lambda: first.running == {"0_0", "0_1"})
            with ThreadedMember(url, "orders", second) as other:
                wait_until(lambda: len(second.running) == 1)
                (moved,) = second.running
                assert first.running | second.running == {"0_0", "0_1"}
                assert first.running & second.running == set()
                assert second.events[:2] == [f"warmup {moved}", f"active {moved} warmup {END}"]
                assert (one.phase, other.phase) == (Phase.JOINED, Phase.JOINED)
            wait_until(lambda: first.running == {"0_0", "0_1"})
        assert first.problems == second.problems == []
        assert first.running == set()
        assert one.phase is Phase.LEFT


def test_a_function_that_raises_is_called_again() -> None:
    with serving() as url:
        worker = Blocking()
        worker.fails = 2
        with ThreadedMember(url, "orders", worker, retry_failed_ms=200):
            wait_until(lambda: worker.running == {"0_0", "0_1"})


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_whatever_a_function_raises_is_its_failure_and_nobody_elses(error: BaseException) -> None:
    """Raised on the member's own thread, some of these would end its heartbeats, or the call would never return."""

    class Raising(Blocking):
        def on_active(self, task: ThreadTask) -> None:
            if self.fails:
                self.fails -= 1
                raise error
            super().on_active(task)

        def numbers(self) -> dict[str, float]:
            self.events.append("numbers")
            raise error

    with serving() as url:
        worker = Raising()
        worker.fails = 2
        with ThreadedMember(url, "orders", worker, retry_failed_ms=200, state_cleanup_delay_ms=100) as member:
            wait_until(lambda: worker.running == {"0_0", "0_1"})
            wait_until(lambda: worker.events.count("numbers") > 1)
        assert member.phase is Phase.LEFT


def test_a_threaded_member_is_refused_as_any_other() -> None:
    with serving() as url:
        before = threading.active_count()
        with pytest.raises(JoinRefused, match="capacity"), ThreadedMember(url, "orders", capacity=-1):
            pytest.fail("it was let in")
        assert threading.active_count() == before


def test_a_threaded_member_runs_until_a_signal() -> None:
    with serving() as url:
        worker = Blocking()
        before = signal.getsignal(signal.SIGTERM)
        with ThreadedMember(url, "orders", worker) as member:
            wait_until(lambda: worker.running == {"0_0", "0_1"})
            assert member.wait(0.05) is None
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
            assert member.run() == "left"
        assert worker.running == set()
        assert signal.getsignal(signal.SIGTERM) is before


def test_a_function_of_a_threaded_member_may_have_it_exit() -> None:
    """It is not waited for there: the exit waits for the function."""

    class Leaving(Blocking):
        def on_active(self, task: ThreadTask) -> None:
            member.exit()
            self.events.append("asked")
            super().on_active(task)

    with serving() as url:
        worker = Leaving()
        with ThreadedMember(url, "orders", worker, exit_timeout_ms=250_000) as member:
            wait_until(lambda: "asked" in worker.events)
            assert member.wait() == "left"
        assert worker.running == set()


def test_a_threaded_member_can_be_drained() -> None:
    with serving() as url:
        worker = Blocking()
        with ThreadedMember(url, "orders", worker) as member:
            wait_until(lambda: worker.running == {"0_0", "0_1"})
            member.drain(deadline_ms=60_000)
            wait_until(lambda: member.statuses)
            member.undrain()
            wait_until(lambda: not member.statuses)
            assert member.may_process("0_0")


def test_functions_are_told_that_their_member_was_closed() -> None:
    """They would go on for ever, and the threads with them: nothing else ends a thread."""
    given: list[ThreadTask] = []

    class Giving(Blocking):
        def on_active(self, task: ThreadTask) -> None:
            given.append(task)
            super().on_active(task)

    with serving(partitions=2) as url:
        worker = Giving()
        member = ThreadedMember(url, "orders", worker)
        member.start()
        wait_until(lambda: len(worker.running) == 2)
        member.close()
        wait_until(lambda: not worker.running)
        assert [task.may_process for task in given] == [False, False]


class Stuck(Blocking):
    """A worker whose functions do not return while they are held."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()

    def on_active(self, task: ThreadTask) -> None:
        """Block for good."""
        self.running.add(task.id)
        self.let_go.wait()


def test_a_threaded_member_can_be_closed_though_a_function_does_not_return() -> None:
    """A thread cannot be cancelled; closing does not wait for it."""
    with serving() as url:
        worker = Stuck()
        try:
            with ThreadedMember(url, "orders", worker) as member:
                wait_until(lambda: worker.running == {"0_0", "0_1"})
                closing = threading.Thread(target=member.close)
                closing.start()
                closing.join(20)
                assert not closing.is_alive()
        finally:
            worker.let_go.set()
