"""Signals while a member waits for its join, in an ordinary process and as process 1 of a container."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.programs import TERMINATED, first_process, terminate
from tests.waiting import until

from batonpass.sockets import free_port
from batonpass.worker import Callbacks, Member, ThreadCallbacks, ThreadedMember
from batonpass.worker.testing import HttpServer, LocalCoordinator


@pytest.fixture
def nowhere() -> str:
    """Return the URL of a coordinator that is away."""
    return f"http://127.0.0.1:{free_port()}"


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command; it is killed at the end, if it still runs."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("how", "code", "last_word"),
    [
        ("block", TERMINATED, "waiting"),
        ("threads", TERMINATED, "waiting"),
        ("run", 0, "left without an answer"),
        ("threads-run", 0, "left without an answer"),
    ],
)
@pytest.mark.parametrize("is_first", [False, True])
def test_sigterm_ends_a_worker_that_waits_for_its_join(
    nowhere: str, how: str, code: int, last_word: str, *, is_first: bool
) -> None:
    """The kernel drops a signal that has no handler, if it is for process 1."""
    apart = first_process() if is_first else ()
    with running(*apart, sys.executable, "-m", "tests.worker.joining", nowhere, how) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        terminate(process, is_apart=bool(apart))
        assert process.wait(20) == code
        assert ["waiting", *process.stdout.read().splitlines()][-1] == last_word


@pytest.mark.parametrize(("how", "code"), [("block", 128 + signal.SIGHUP), ("run", 0), ("threads-run", 0)])
def test_the_end_of_its_terminal_ends_a_worker_in_order(nowhere: str, how: str, code: int) -> None:
    with running(sys.executable, "-m", "tests.worker.joining", nowhere, how) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGHUP)
        assert process.wait(20) == code


def test_a_worker_under_nohup_outlives_its_terminal(nowhere: str) -> None:
    """And a handler of the application is left alone, as with the other signals."""
    with running("nohup", sys.executable, "-m", "tests.worker.joining", nowhere, "run") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """The signals that a handler of the application has heard."""
    noted: list[int] = []
    former = signal.signal(signal.SIGTERM, lambda number, _frame: noted.append(number))
    yield noted
    signal.signal(signal.SIGTERM, former)


async def test_a_join_leaves_the_handlers_of_an_application_alone(nowhere: str, heard: list[int]) -> None:
    joining = asyncio.ensure_future(Member(nowhere, "orders", Callbacks()).__aenter__())
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: heard)
    assert not joining.done()
    joining.cancel()
    await asyncio.wait([joining])


async def test_a_join_in_a_thread_that_cannot_have_handlers_waits_without_them(nowhere: str) -> None:
    member = ThreadedMember(nowhere, "orders", ThreadCallbacks())
    joining = threading.Thread(target=member.__enter__)
    joining.start()
    await until(lambda: member.phase.value == "joining")
    member.close()
    joining.join(20)
    assert not joining.is_alive()


async def test_after_the_join_and_after_the_run_the_former_handlers_are_there(heard: list[int]) -> None:
    async with LocalCoordinator() as coordinator, HttpServer(coordinator.answer) as server:
        await coordinator.declare("orders", partitions=1)
        for former in (signal.SIG_DFL, signal.getsignal(signal.SIGTERM)):
            signal.signal(signal.SIGTERM, former)
            async with Member(server.url, "orders", Callbacks()) as member:
                assert signal.getsignal(signal.SIGTERM) is former
                asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGTERM)
                assert await member.run() == "left"
            assert signal.getsignal(signal.SIGTERM) is former
    assert heard == []


async def test_a_signal_ends_all_members_of_a_process_whichever_ends_first(heard: list[int]) -> None:
    former = signal.getsignal(signal.SIGTERM)
    async with LocalCoordinator() as coordinator, HttpServer(coordinator.answer) as server:
        members = [Member(server.url, group, Callbacks()) for group in ("first", "second", "third")]
        for member in members:
            await coordinator.declare(member.group, partitions=1)
        running = [asyncio.ensure_future(member.run()) for member in members]
        await asyncio.gather(*(member.joined() for member in members))
        await members[0].exit()
        assert await running[0] == "left"
        os.kill(os.getpid(), signal.SIGTERM)
        assert await asyncio.wait_for(asyncio.gather(*running), 5) == ["left"] * 3
    assert signal.getsignal(signal.SIGTERM) is former
    assert heard == []
