"""`batonpass up` as a user meets it: it says where it is, what is wrong, and ends when it is told to."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

UP = [sys.executable, "-m", "batonpass", "up"]


@contextmanager
def running() -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Run `batonpass up` on a free port; yield the process, its URL and its greeting."""
    with subprocess.Popen([*UP, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            greeting = ""
            while "Ctrl-C" not in greeting:
                line = process.stdout.readline()
                assert line, greeting
                greeting += line
            found = re.search(r"http://\S+", greeting)
            assert found is not None
            yield process, found[0], greeting
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_it_says_what_to_do_and_ends_in_good_order(told: signal.Signals) -> None:
    """The greeting names the URL, says that memory is all there is, and shows a first call; the exit code is 0."""
    with running() as (process, url, greeting):
        assert httpx.get(f"{url}/readyz").status_code == 200
        process.send_signal(told)
        printed, failed = process.communicate(timeout=20)
        assert (process.returncode, failed) == (0, "")
        assert "keeps everything in memory" in greeting
        assert f"curl -X PUT {url}/v1/groups/orders" in greeting
        assert "Stopped" in printed


def test_the_first_lines_it_suggests_work_as_they_stand() -> None:
    """The commands of the greeting succeed when they are pasted into a shell."""
    with running() as (_, _, greeting):
        script = re.findall(r"^  curl (?:.*\\\n)?.*$", greeting, re.MULTILINE)
        assert len(script) >= 2
        for command in script:
            done = subprocess.run(
                ["/bin/bash", "-c", command.replace("curl", "curl -fsS", 1)],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, (command, done.stdout, done.stderr)


def test_a_port_in_use_is_said_plainly() -> None:
    """No traceback: the address, the reason, and what to do, with exit code 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run([*UP, "--port", str(port)], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["--port", "70000"], ["--port", "many"], ["--colour", "red"]])
def test_a_bad_argument_is_a_usage_error(arguments: list[str]) -> None:
    """What cannot be understood ends with exit code 2 and says what is wrong."""
    done = subprocess.run([*UP, *arguments], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert arguments[0].lstrip("-") in done.stderr
    assert "Traceback" not in done.stderr


def test_open_long_polls_do_not_hold_up_the_end() -> None:
    """A coordinator that is told to stop answers the polls that wait, and is gone at once."""
    with running() as (process, url, _):
        group = f"{url}/v1/groups/orders"
        topology = {"subtopologies": [{"id": "0", "partitions": 1, "changelog_topics": ["store"]}]}
        httpx.put(group, json={"topology": topology, "config": {"initial_rebalance_delay_ms": 0}})
        epoch = httpx.put(f"{group}/members/m1").json()["member_epoch"]
        poll = f"{group}/members/m1/assignment?after={epoch}&wait_ms=60000"
        with subprocess.Popen(["curl", "-s", "-w", "%{http_code}", poll], stdout=subprocess.PIPE, text=True) as waiting:
            time.sleep(0.5)
            started = time.monotonic()
            process.send_signal(signal.SIGINT)
            printed, _ = waiting.communicate(timeout=10)
            process.communicate(timeout=10)
        assert (printed, process.returncode) == ("204", 0)
        assert time.monotonic() - started < 4


def test_nobody_is_expired_for_a_silence_of_the_coordinator_itself() -> None:
    """A coordinator that was frozen for longer than every lease still knows its members when it runs again (L5)."""
    with running() as (process, url, _):
        group = f"{url}/v1/groups/orders"
        topology = {"subtopologies": [{"id": "0", "partitions": 1, "changelog_topics": ["store"]}]}
        config = {"initial_rebalance_delay_ms": 0, "heartbeat_interval_ms": 500, "session_timeout_ms": 2_500}
        httpx.put(group, json={"topology": topology, "config": config})
        epoch = httpx.put(f"{group}/members/m1").json()["member_epoch"]
        beat = {"seq": 1, "member_epoch": epoch, "tasks": {"0_0": {"role": "active", "state": "running"}}}
        assert httpx.post(f"{group}/members/m1/heartbeat", json=beat).status_code == 200
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(4)
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.3)
        answer = httpx.post(f"{group}/members/m1/heartbeat", json=beat | {"seq": 2})
        assert answer.status_code == 200, answer.text
        assert answer.json()["member_epoch"] == epoch
