"""A killed process is known by its broken long-poll, over real sockets, long before its lease is over."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

RUNNING = {"role": "active", "state": "running"}
SUSPECT_MS = 1_500


@pytest.fixture
def group() -> Iterator[httpx.Client]:
    """Return a client of a group in which m1 runs the only task and m2 has a caught-up standby of it."""
    command = [sys.executable, "-m", "batonpass", "up", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None
            with httpx.Client(base_url=f"{found[0]}/v1/groups", timeout=20) as client:
                yield client
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)


def set_up(group: httpx.Client, *, on_lease_lost: str) -> tuple[int, int]:
    """Bring the group to rest; return the epochs of m1 and m2."""
    topology = {"subtopologies": [{"id": "0", "partitions": 1, "changelog_topics": ["store"]}]}
    config = {"initial_rebalance_delay_ms": 0, "num_standby_replicas": 1, "suspect_timeout_ms": SUSPECT_MS}
    group.put("/orders", json={"topology": topology, "config": config})
    first = group.put("/orders/members/m1", json={"on_lease_lost": on_lease_lost}).json()["member_epoch"]
    beat(group, "m1", 1, first, {"0_0": RUNNING})
    group.put("/orders/members/m2", json={})
    second = group.get("/orders/members/m2/assignment?after=1&wait_ms=5000").json()["member_epoch"]
    answer = beat(group, "m2", 1, second, {"0_0": {"role": "standby", "lag": 0}})
    assert answer["assignment"] is None
    return first, second


def beat(group: httpx.Client, member: str, seq: int, epoch: int, tasks: Any) -> Any:
    """Send a heartbeat and return its answer."""
    answer = group.post(f"/orders/members/{member}/heartbeat", json={"seq": seq, "member_epoch": epoch, "tasks": tasks})
    assert answer.status_code == 200, answer.text
    return answer.json()


def kill_a_poll(group: httpx.Client, epoch: int) -> None:
    """Open a long-poll of m1 in a process of its own, and kill that process."""
    url = f"{group.base_url}orders/members/m1/assignment?after={epoch}&wait_ms=60000"
    with subprocess.Popen(["curl", "-s", url]) as polling:
        time.sleep(0.3)
        polling.kill()


def test_a_killed_process_is_replaced_within_the_suspect_timeout(group: httpx.Client) -> None:
    """The standby of a member whose outputs are fenced takes over soon after its poll broke, under a new token."""
    first, second = set_up(group, on_lease_lost="continue")
    kill_a_poll(group, first)
    started = time.monotonic()
    answer = group.get(f"/orders/members/m2/assignment?after={second}&wait_ms=15000")
    assert answer.status_code == 200
    (active,) = answer.json()["assignment"]["active"]
    assert (active["task"], active["fencing_token"]) == ("0_0", 2)
    assert time.monotonic() - started < 15


@pytest.mark.parametrize(("on_lease_lost", "opens_another"), [("stop", False), ("continue", True)])
def test_a_broken_poll_alone_takes_nothing_away(
    group: httpx.Client, on_lease_lost: str, *, opens_another: bool
) -> None:
    """A member whose outputs are not fenced keeps its task, and so does one that opens its poll again in time."""
    first, second = set_up(group, on_lease_lost=on_lease_lost)
    kill_a_poll(group, first)
    if opens_another:
        assert group.get(f"/orders/members/m1/assignment?after={first}&wait_ms=10").status_code == 204
    assert group.get(f"/orders/members/m2/assignment?after={second}&wait_ms={2 * SUSPECT_MS}").status_code == 204
    assert beat(group, "m1", 2, first, {"0_0": RUNNING})["assignment"] is None
