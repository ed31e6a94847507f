"""A coordinator solves large networks of placement in a process beside it, and takes that with it when it ends."""

import asyncio
import os
import random
import signal
import subprocess

import pytest
from tests.e2e.serving import Served, serving
from tests.programs import is_alive
from tests.waiting import wait_until

TASKS = 12_000
"""With as many, each of them warm to another degree on each of two members, the network is too large to be solved
beside the loop."""


def solvers(pid: int) -> list[int]:
    """Return the processes that this one has started, and that live."""
    found = subprocess.run(["ps", "-o", "pid=,stat=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line.split()[0]) for line in found.stdout.splitlines() if line.split()[1][0] != "Z"]


def declare(served: Served, group: str) -> None:
    """Declare a large group."""
    topology = {"subtopologies": [{"id": "0", "partitions": TASKS, "changelog_topics": ["s"]}]}
    config = {"initial_rebalance_delay_ms": 3_000, "rebalance_batch_ms": 0}
    answer = served.call("PUT", f"/v1/groups/{group}", json={"topology": topology, "config": config})
    assert answer.is_success, answer.text


def join(served: Served, group: str, member: str) -> None:
    """Join with state of every task on disk."""
    drawn = random.Random(member)
    report = {f"0_{task}": {"role": "none", "lag": drawn.randrange(10**9)} for task in range(TASKS)}
    answer = served.call("PUT", f"/v1/groups/{group}/members/{member}", json={"tasks": report})
    assert answer.is_success, answer.text


def place(served: Served, group: str) -> int:
    """Have a large group placed; return the process that solved it."""
    declare(served, group)
    for member in ("m1", "m2"):
        join(served, group, member)
    wait_until(lambda: served.call("GET", f"/v1/groups/{group}").json()["generation"] > 0)
    (found,) = solvers(served.process.pid)
    return found


@pytest.mark.timeout(240)
async def test_no_solver_is_left_when_a_coordinator_is_killed(own_url: str) -> None:
    """A first group starts it; it is killed, and the next group starts another."""
    await asyncio.to_thread(play, own_url)


def play(database_url: str) -> None:
    """Do what the test above says, one call after the other."""
    with serving(database_url) as served:
        assert not solvers(served.process.pid)
        first = place(served, "one")
        os.kill(first, signal.SIGKILL)
        second = place(served, "two")
        assert second != first
        served.stop(signal.SIGKILL)
        wait_until(lambda: not is_alive(second))
