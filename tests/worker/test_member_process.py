"""Workers and coordinators as processes that are killed, stopped, frozen and started again, over real sockets."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.programs import is_alive
from tests.waiting import wait_until
from tests.worker.processes import GROUP, coordinator, declare, program, state_of, worker

from batonpass.sockets import free_port


@pytest.fixture
def port() -> int:
    """Return a free port."""
    return free_port()


@pytest.fixture
def url(port: int, tmp_path: Path) -> Iterator[str]:
    """Run a coordinator with a group of two tasks, and return its URL."""
    with coordinator(port, tmp_path / "log"):
        url = f"http://127.0.0.1:{port}"
        declare(url)
        yield url


def test_a_coordinator_that_is_killed_and_started_again_finds_everything_as_it_was(port: int, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{port}"
    with coordinator(port, tmp_path / "log") as process:
        # Long enough for a busy machine to start a coordinator.
        declare(url, session_timeout_ms=30_000)
        with worker(url, tmp_path, "w0") as first:
            wait_until(lambda: first.running() == {"0_0", "0_1"})
            process.kill()
            process.wait()
            time.sleep(2)
            with coordinator(port, tmp_path / "log"):
                wait_until(lambda: state_of(url)["at_rest"])
                with worker(url, tmp_path, "w1") as second:
                    wait_until(lambda: len(second.running()) == 1)
                    assert second.tasks("warmup") == second.tasks("active")
                    assert first.running() | second.running() == {"0_0", "0_1"}
                    assert [each["event"] for each in first.events].count("joined") == 1
                    assert all(each["commit"] for each in first.events if each["event"] == "revoked")
                    assert (first.stop(), second.stop()) == (0, 0)


def test_a_coordinator_that_forgot_everything_is_joined_anew(port: int, tmp_path: Path) -> None:
    """Its members stop without a commit, join under new ids once the group is declared, and begin from their disks."""
    url = f"http://127.0.0.1:{port}"
    with coordinator(port, tmp_path / "log") as process:
        declare(url)
        with worker(url, tmp_path, "w0") as only:
            wait_until(lambda: only.running() == {"0_0", "0_1"})
            process.kill()
            process.wait()
            (tmp_path / "log").unlink()
            with coordinator(port, tmp_path / "log"):
                wait_until(lambda: only.running() == set())
                assert {each["commit"] for each in only.events if each["event"] == "revoked"} == {False}
                declare(url)
                wait_until(lambda: only.running() == {"0_0", "0_1"})
                assert only.stop() == 0


def test_a_worker_that_is_frozen_past_its_lease_does_nothing_when_it_wakes(port: int, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{port}"
    with (
        coordinator(port, tmp_path / "log"),
        worker(url, tmp_path, "w0") as first,
        worker(url, tmp_path, "w1") as second,
    ):
        declare(url, session_timeout_ms=3_000)
        wait_until(lambda: state_of(url)["at_rest"] and len(first.running()) == len(second.running()) == 1)
        (mine,) = first.running()
        first.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: second.running() == {"0_0", "0_1"})
        before = len(first.events)
        first.process.send_signal(signal.SIGCONT)
        wait_until(lambda: [each for each in first.events[before:] if each["event"] == "revoked"])
        news = first.events[before]
        assert (news["event"], news["task"], news["commit"]) == ("revoked", mine, False)
        wait_until(lambda: state_of(url)["at_rest"] and len(first.running()) == len(second.running()) == 1)
    assert b"suspicion-cleared" in (tmp_path / "log").read_bytes(), "it spoke under its old id: it did not die"


def test_a_worker_that_is_killed_is_replaced_by_a_warm_copy_at_once(port: int, tmp_path: Path) -> None:
    """Its outputs are fenced, so its broken long-poll is enough: the standby need not wait for its lease."""
    url = f"http://127.0.0.1:{port}"
    fenced = ("--on-lease-lost", "continue")
    with coordinator(port, tmp_path / "log"):
        declare(url, num_standby_replicas=1, session_timeout_ms=60_000)
        with worker(url, tmp_path, "w0", *fenced) as first, worker(url, tmp_path, "w1", *fenced) as second:
            wait_until(lambda: len(first.running()) == len(second.running()) == 1 and state_of(url)["at_rest"])
            first.process.kill()
            wait_until(lambda: second.running() == {"0_0", "0_1"}, within_s=20)


@pytest.mark.parametrize("how", ["pool", "fork"])
def test_a_child_that_outlives_its_killed_worker_does_not_hide_the_death(port: int, tmp_path: Path, how: str) -> None:
    """The child does not keep the long-poll's connection open."""
    url = f"http://127.0.0.1:{port}"
    with coordinator(port, tmp_path / "log"):
        declare(url, num_standby_replicas=1, session_timeout_ms=60_000)
        fenced = ("--on-lease-lost", "continue")
        with program("tests.worker.forking", tmp_path, "w0", url, GROUP, how) as first:
            child = wait_until(lambda: [each["pid"] for each in first.events if each["event"] == "child"])[0]
            try:
                wait_until(lambda: first.running() == {"0_0", "0_1"})
                with worker(url, tmp_path, "w1", *fenced) as second:
                    wait_until(
                        lambda: len(first.running()) == len(second.running()) == 1 and state_of(url)["at_rest"],
                        seen=lambda: (first.events, second.events, state_of(url)),
                    )
                    first.process.kill()
                    wait_until(lambda: second.running() == {"0_0", "0_1"}, within_s=20)
                    assert is_alive(child)
            finally:
                os.kill(child, signal.SIGKILL)


def test_a_restarted_worker_goes_on_from_its_disk_and_nothing_moves(url: str, tmp_path: Path) -> None:
    with worker(url, tmp_path, "w0") as steady:
        with worker(url, tmp_path, "w1") as first:
            wait_until(lambda: state_of(url)["at_rest"] and len(first.running()) == 1)
            (mine,) = first.running()
            assert first.stop() == 0
            assert first.events[-1] == first.events[-1] | {"event": "gone", "reason": "left"}
        with worker(url, tmp_path, "w1") as second:
            wait_until(lambda: second.running() == {mine})
            second.process.kill()
            second.process.wait()
        with worker(url, tmp_path, "w1") as third:
            wait_until(lambda: third.running() == {mine}, within_s=10)
            assert third.stop() == 0
        assert steady.stop() == 0


def test_a_worker_that_is_to_leave_for_good_gives_up_its_place(url: str, tmp_path: Path) -> None:
    with worker(url, tmp_path, "w0") as first, worker(url, tmp_path, "w1", "--leave") as second:
        wait_until(lambda: state_of(url)["at_rest"] and len(second.running()) == 1)
        assert second.stop(signal.SIGINT) == 0
        wait_until(lambda: first.running() == {"0_0", "0_1"}, within_s=10)
        assert state_of(url)["members"] == 1


def test_a_folder_serves_one_process(url: str, tmp_path: Path) -> None:
    with worker(url, tmp_path, "w0") as first:
        wait_until(lambda: first.running() == {"0_0", "0_1"})
        with worker(url, tmp_path, "w0") as second:
            assert second.process.wait(20) == 1
        assert first.running() == {"0_0", "0_1"}
        assert first.process.poll() is None


class Proxy:
    """A hop between worker and coordinator that breaks one connection in so many, after the request went through."""

    def __init__(self, port: int, *, breaks_every: int) -> None:
        self._to = port
        self._breaks_every = breaks_every
        self._count = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept nothing more."""
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._socket.accept()
            except OSError:
                return
            self._count += 1
            far = socket.create_connection(("127.0.0.1", self._to))
            is_broken = self._count % self._breaks_every == 0
            threading.Thread(target=self._pipe, args=(near, far), daemon=True).start()
            threading.Thread(target=self._pipe, args=(far, near), kwargs={"drops": is_broken}, daemon=True).start()

    @staticmethod
    def _pipe(source: socket.socket, sink: socket.socket, *, drops: bool = False) -> None:
        with source, sink:
            try:
                while (chunk := source.recv(65_536)) and not drops:
                    sink.sendall(chunk)
                source.shutdown(socket.SHUT_RDWR)
                sink.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def test_answers_that_are_lost_on_the_way_cost_nothing(url: str, port: int, tmp_path: Path) -> None:
    """Every third connection breaks after the request was heard."""
    proxy = Proxy(port, breaks_every=3)
    try:
        with worker(proxy.url, tmp_path, "w0") as first:
            wait_until(lambda: first.running() == {"0_0", "0_1"})
            with worker(proxy.url, tmp_path, "w1") as second:
                wait_until(lambda: state_of(url)["at_rest"] and len(second.running()) == 1)
                assert second.tasks("warmup") == second.tasks("active")
                assert all(each["commit"] for each in first.events if each["event"] == "revoked")
                assert (first.stop(), second.stop()) == (0, 0)
    finally:
        proxy.close()
