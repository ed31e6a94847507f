"""A killed process is known by its broken long-poll, over real sockets, long before its lease is over."""

import subprocess
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx2 as httpx
import pytest
from tests.e2e.running import Up

RUNNING = {"role": "active", "state": "running"}
SUSPECT_MS = 1_500


numbers = count(1)


@pytest.fixture
def group(up: Up) -> Iterator[httpx.Client]:
    """Return a client of a group of the test's own."""
    headers = {"authorization": f"Bearer {up.token}"}
    url = f"{up.url}/v1/groups/suspicion-{next(numbers)}"
    with httpx.Client(base_url=url, headers=headers, timeout=30) as client:
        yield client


def set_up(group: httpx.Client, *, on_lease_lost: str) -> tuple[int, int]:
    """Bring the group to rest; return the epochs of m1 and m2."""
    topology = {"subtopologies": [{"id": "0", "partitions": 1, "changelog_topics": ["store"]}]}
    config = {"initial_rebalance_delay_ms": 0, "num_standby_replicas": 1, "suspect_timeout_ms": SUSPECT_MS}
    group.put(str(group.base_url).rstrip("/"), json={"topology": topology, "config": config})
    first = group.put("/members/m1", json={"on_lease_lost": on_lease_lost}).json()["member_epoch"]
    beat(group, "m1", 1, first, {"0_0": RUNNING})
    group.put("/members/m2", json={})
    second = group.get("/members/m2/assignment?after=1&wait_ms=5000").json()["member_epoch"]
    answer = beat(group, "m2", 1, second, {"0_0": {"role": "standby", "lag": 0}})
    assert answer["assignment"] is None
    return first, second


def beat(group: httpx.Client, member: str, seq: int, epoch: int, tasks: Any) -> Any:
    """Send a heartbeat and return its answer."""
    answer = group.post(f"/members/{member}/heartbeat", json={"seq": seq, "member_epoch": epoch, "tasks": tasks})
    assert answer.status_code == 200, answer.text
    return answer.json()


def kill_a_poll(group: httpx.Client, epoch: int) -> None:
    """Open a long-poll of m1 in a process of its own, and kill that process."""
    url = f"{group.base_url}members/m1/assignment?after={epoch}&wait_ms=60000"
    with subprocess.Popen(["curl", "-s", "-H", f"Authorization: {group.headers['authorization']}", url]) as polling:
        time.sleep(0.3)
        polling.kill()


def test_a_killed_process_is_replaced_within_the_suspect_timeout(group: httpx.Client) -> None:
    """The outputs of its member are fenced, so the standby need not wait for the lease."""
    first, second = set_up(group, on_lease_lost="continue")
    kill_a_poll(group, first)
    started = time.monotonic()
    answer = group.get(f"/members/m2/assignment?after={second}&wait_ms=15000")
    assert answer.status_code == 200
    (active,) = answer.json()["assignment"]["active"]
    assert (active["task"], active["fencing_token"]) == ("0_0", 2)
    assert time.monotonic() - started < 15


@pytest.mark.parametrize(("on_lease_lost", "opens_another"), [("stop", False), ("continue", True)])
def test_a_broken_poll_alone_takes_nothing_away(
    group: httpx.Client, on_lease_lost: str, *, opens_another: bool
) -> None:
    """The outputs are not fenced, or the member opens its poll again in time."""
    first, second = set_up(group, on_lease_lost=on_lease_lost)
    kill_a_poll(group, first)
    if opens_another:
        assert group.get(f"/members/m1/assignment?after={first}&wait_ms=10").status_code == 204
    assert group.get(f"/members/m2/assignment?after={second}&wait_ms={2 * SUSPECT_MS}").status_code == 204
    assert beat(group, "m1", 2, first, {"0_0": RUNNING})["assignment"] is None
