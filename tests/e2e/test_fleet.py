"""Several coordinators on one database, as processes of their own: whichever is asked, each group has one owner."""

import asyncio
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx2 as httpx
import pytest
from tests.e2e.serving import BEARER, Served, declare, serving
from tests.waiting import wait_until

QUICK = {"lease_ms": "2000", "lease_renewal_ms": "300"}
GROUPS = [f"group-{number}" for number in range(12)]


def owned(served: Served) -> set[str]:
    """Return the groups that a coordinator shows as its own, from its metrics."""
    text = httpx.get(f"{served.url}/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("batonpass_group_generation{")]
    return {line.split('"')[1] for line in lines}


def shared(first: Served, second: Served) -> bool:
    """Say whether each group is with one of two coordinators, and both have some."""
    one, other = owned(first), owned(second)
    return bool(one) and bool(other) and not one & other and one | other == set(GROUPS)


def beat(served: Served, group: str, seq: int, epoch: int, tasks: Any = None) -> httpx.Response:
    """Send a heartbeat of the member ``m1``."""
    body = {"seq": seq, "member_epoch": epoch} | ({"tasks": tasks} if tasks is not None else {})
    return served.call("POST", f"/v1/groups/{group}/members/m1/heartbeat", json=body)


@pytest.mark.timeout(240)
async def test_two_coordinators_share_the_groups_and_either_answers(own_url: str) -> None:
    await asyncio.to_thread(share, own_url)


def share(database_url: str) -> None:
    """Do what the test above says, one call after the other."""
    with serving(database_url, **QUICK) as first, serving(database_url, **QUICK) as second:
        for group in GROUPS:
            wait_until(partial(is_declared, first, group), within_s=20)
        wait_until(lambda: shared(first, second), within_s=20)
        theirs = min(owned(second))
        joined = first.call("PUT", f"/v1/groups/{theirs}/members/m1", json={"on_lease_lost": "continue"}).json()
        epoch = joined["member_epoch"]
        running = {task["task"]: {"role": "active", "state": "running"} for task in joined["assignment"]["active"]}
        assert len(running) == 2
        for seq, served in enumerate((first, second, first), 1):
            answer = beat(served, theirs, seq, epoch, running)
            assert (answer.status_code, answer.json()["seq"]) == (200, seq)
        # Killed, not stopped: its lease has to run out before the other takes over.
        second.stop(signal.SIGKILL)
        began = time.monotonic()
        wait_until(lambda: owned(first) == set(GROUPS), within_s=20)
        assert time.monotonic() - began < 10
        again = beat(first, theirs, 4, epoch, running)
        assert (again.status_code, again.json()["member_epoch"]) == (200, epoch), again.text
        assert {task["task"] for task in picture(first, theirs)} == set(running)
        with serving(database_url, lease_ms="60000", lease_renewal_ms="300") as third:
            wait_until(lambda: shared(first, third), within_s=20)
            # Told to stop: it gives its groups up at once, and nobody waits for the minute of its lease.
            released = owned(third)
            began = time.monotonic()
            assert third.stop() in {0, -signal.SIGTERM, 128 + signal.SIGTERM}
            wait_until(lambda: owned(first) >= released, within_s=20)
            assert time.monotonic() - began < 30
        assert not [line for line in first.lines() if line["event"] in {"law-broken", "defect", "failed"}]


@pytest.mark.timeout(240)
async def test_calls_that_were_passed_on_to_a_frozen_owner_end_with_its_lease(own_url: str) -> None:
    """Whoever made them asks again, and the group's next owner answers."""
    await asyncio.to_thread(freeze, own_url)


def freeze(database_url: str) -> None:
    """Do what the test above says, one call after the other."""
    with serving(database_url, **QUICK) as first, serving(database_url, **QUICK) as second:
        for group in GROUPS:
            wait_until(partial(is_declared, first, group), within_s=20)
        wait_until(lambda: shared(first, second), within_s=20)
        theirs = min(owned(second))
        epoch = first.call("PUT", f"/v1/groups/{theirs}/members/m1", json={}).json()["member_epoch"]
        poll = f"/v1/groups/{theirs}/members/m1/assignment?after={epoch}&wait_ms=300000"
        second.process.send_signal(signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(4) as callers:
                calls = [
                    callers.submit(beat, first, theirs, 1, epoch),
                    callers.submit(first.call, "GET", f"/v1/groups/{theirs}"),
                    callers.submit(first.call, "POST", f"/v1/groups/{theirs}/pause?reason=x"),
                    callers.submit(first.call, "GET", poll),
                ]
                answers = [call.result(20) for call in calls]
            assert [(answer.status_code, answer.json()["type"]) for answer in answers] == [
                (503, "coordinator-loading")
            ] * 4
            wait_until(lambda: beat(first, theirs, 2, epoch).status_code == 200, within_s=20)
        finally:
            second.process.send_signal(signal.SIGCONT)


def is_declared(served: Served, group: str) -> bool:
    """Declare a group, unless the coordinators do not agree yet on whose it is."""
    try:
        declare(served, group)
    except AssertionError as error:
        if "coordinator-loading" in str(error) or "precondition-required" in str(error):
            return "precondition-required" in str(error)
        raise
    return True


def picture(served: Served, group: str) -> list[Any]:
    """Return the actives in the assignment of the member ``m1``."""
    path = f"{served.url}/v1/groups/{group}/members/m1/assignment?after=0"
    active: list[Any] = httpx.get(path, headers=BEARER).json()["assignment"]["active"]
    return active


def test_a_coordinator_that_was_killed_answers_at_once_when_it_is_started_again(own_url: str) -> None:
    """At the same address, on the same machine: the end of its lease is not waited for."""
    address = "http://coordinator.test:8420"
    with serving(own_url, lease_ms="60000", advertised_url=address) as first:
        declare(first, "orders")
        assert first.call("PUT", "/v1/groups/orders/members/m1", json={}).status_code == 201
        first.stop(signal.SIGKILL)
        with serving(own_url, lease_ms="60000", advertised_url=address) as second:
            assert second.call("GET", "/v1/groups/orders").json()["members"] == 1
            assert beat(second, "orders", 1, 1, {}).status_code == 200
