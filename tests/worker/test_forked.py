"""Members and the children that a worker forks: a copy in a child keeps no connection open, and says nothing."""

import asyncio
import gc
import os
import select
import signal
import socket
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.waiting import until
from tests.worker.children import forked

from batonpass.worker import Callbacks, Member, Options, Phase, Revocation, Task, ThreadedMember
from batonpass.worker.forked import close_in_children
from batonpass.worker.http_calls import HttpCalls
from batonpass.worker.protocol import Request, RequestKind
from batonpass.worker.testing import Line, LocalCoordinator

POLL = Request(kind=RequestKind.POLL, member_id="m1", seq=1, first_sent_ms=0, sent_ms=0, timeout_ms=60_000, body=None)


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def is_readable(one: socket.socket) -> bool:
    """Whether something came, or the other end closed the connection."""
    return bool(select.select([one], [], [], 0)[0])


def is_over(connection: socket.socket) -> bool:
    """Whether the other end closed the connection."""
    while is_readable(connection):
        if not connection.recv(65_536):
            return True
    return False


class Poll:
    """A long-poll under way."""

    def __init__(self, listener: socket.socket) -> None:
        self._calls = HttpCalls([f"http://127.0.0.1:{listener.getsockname()[1]}"], "orders", Options())
        self.asking = asyncio.ensure_future(self._calls.exchange(POLL))

    async def end(self) -> None:
        """Close its connection."""
        self.asking.cancel()
        await asyncio.wait([self.asking])
        await self._calls.close()


async def test_a_connection_ends_though_a_child_lives_on(silent: socket.socket) -> None:
    poll = Poll(silent)
    await until(lambda: is_readable(silent))
    connection, _ = silent.accept()
    with connection:
        await until(lambda: is_readable(connection))
        with forked():
            assert not is_over(connection)
            await poll.end()
            await until(lambda: is_over(connection))


async def test_nothing_is_asked_over_a_connection_that_was_being_made_when_a_child_was_forked(
    silent: socket.socket,
) -> None:
    """The child may have a copy of its socket that is not known yet."""
    poll = Poll(silent)
    # The first moment at which the other end knows of it.
    await until(lambda: is_readable(silent), every_s=0)
    with forked():
        connection, _ = silent.accept()
        with connection:
            assert await poll.asking is None
            assert not is_readable(connection)
    await poll.end()


async def test_a_connection_ends_though_a_program_that_was_started_runs_on(silent: socket.socket) -> None:
    poll = Poll(silent)
    await until(lambda: is_readable(silent))
    connection, _ = silent.accept()
    await until(lambda: is_readable(connection))
    program = await asyncio.create_subprocess_exec("sleep", "60", close_fds=False)
    with connection:
        await poll.end()
        await until(lambda: is_over(connection))
    assert program.returncode is None
    program.kill()
    await program.wait()


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return two sockets that are connected with one another."""
    here, there = socket.socketpair()
    with here, there:
        yield here, there


class Owner:
    """Has a socket, and later another one."""

    def __init__(self, *sockets: socket.socket) -> None:
        self.sockets = list(sockets)

    def descriptors(self) -> list[int]:
        """Return the numbers of its sockets."""
        return [one.fileno() for one in self.sockets]


def test_the_number_of_a_closed_copy_stays_taken() -> None:
    """An object that was copied with it may close it once more."""
    with pair() as (here, _):
        owner, number = Owner(here), here.fileno()
        close_in_children(owner, Owner.descriptors)
        with forked(lambda: os.path.samestat(os.fstat(number), Path(os.devnull).stat())) as seen:
            assert seen()
        assert stat.S_ISSOCK(os.fstat(number).st_mode)


def test_a_number_that_stands_for_something_else_by_now_is_left_alone() -> None:
    with pair() as (closed, _), pair() as (other, _):
        owner, number = Owner(closed), closed.fileno()
        close_in_children(owner, Owner.descriptors)
        closed.close()
        os.dup2(other.fileno(), number)
        try:
            with forked(lambda: stat.S_ISSOCK(os.fstat(number).st_mode)) as seen:
                assert seen()
        finally:
            os.close(number)


def test_all_that_an_owner_has_at_the_fork_is_closed_and_the_owner_is_not_kept_alive() -> None:
    with pair() as (first, first_end), pair() as (second, second_end):
        owner = Owner(first)
        close_in_children(owner, Owner.descriptors)
        owner.sockets.append(second)
        with forked():
            first.close()
            second.close()
            assert (first_end.recv(1), second_end.recv(1)) == (b"", b"")
        gone = weakref.ref(owner)
        del owner
        gc.collect()
        assert gone() is None


class Goodbye(Callbacks):
    """Writes down what is asked of a worker at its end."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def on_active(self, task: Task) -> None:
        """Run."""
        task.running()
        await task.stop_requested()

    async def on_revoke(self, task: Task, revocation: Revocation) -> None:  # noqa: ARG002 - any way alike
        """Stop."""
        self.asked.append(f"revoke {task.id}")

    async def on_close(self) -> None:
        """Close."""
        self.asked.append("close")


async def test_a_child_that_ends_in_the_block_of_a_member_says_and_stops_nothing() -> None:
    async with LocalCoordinator() as coordinator:
        await coordinator.declare("orders", partitions=2)
        worker, line = Goodbye(), Line()
        transport = coordinator.transport(line)
        async with Member("http://x", "orders", worker, transport=transport, exit_timeout_ms=1_000) as member:
            await until(lambda: len(member.tasks) == 2)

            def ended() -> int:
                before = len(line.calls)
                # As the runner does when the child calls `sys.exit`.
                asyncio.new_event_loop().run_until_complete(member.exit())
                return len(line.calls) - before + len(worker.asked)

            with forked(ended) as end:
                assert end() == 0
            assert member.phase is Phase.JOINED
        assert worker.asked == ["revoke 0_0", "revoke 0_1", "close"]


def test_a_child_does_not_wait_for_the_threads_of_a_member() -> None:
    member = ThreadedMember("http://127.0.0.1:9", "orders")
    member.start()

    def ended() -> int:
        signal.alarm(3)
        member.exit()
        return 0

    with forked(ended) as end:
        assert end() == 0
    member.close()
