"""Looking at a large group holds nobody up: it is done beside the event loop, one look at a time."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from tests.api.conftest import Api

from batonpass.api import groups, offload
from batonpass.codec import answers
from batonpass.core.dry_run.snapshot import Snapshot
from batonpass.core.dry_run.whatif import imagine
from batonpass.core.errors import InvalidRequest

LONG_READS = (
    ("GET", ""),
    ("GET", "/orders"),
    ("GET", "/orders/explain"),
    ("GET", "/orders/tasks/0_0"),
    ("GET", "/orders/tasks/0_0/explain"),
    ("GET", "/orders/assignment"),
    ("GET", "/orders/snapshot"),
    ("GET", "/orders/members"),
    ("GET", "/orders/members/m1"),
    ("GET", "/orders/members/m1/safe-to-stop"),
    ("POST", "/orders/plan"),
)


async def test_small_looks_are_done_at_once_and_long_ones_in_a_thread() -> None:
    there = offload.Offload()
    assert await there.do(offload.AT_ONCE_MAX, threading.get_ident) == threading.get_ident()
    assert await there.do(offload.AT_ONCE_MAX + 1, threading.get_ident) != threading.get_ident()

    def refuse() -> None:
        raise InvalidRequest("no", errors=[("a", "b")])

    for size in (1, offload.AT_ONCE_MAX + 1):
        with pytest.raises(InvalidRequest):
            await there.do(size, refuse)


async def test_the_loop_turns_during_a_long_look_and_looks_take_turns() -> None:
    there, running, most = offload.Offload(), [0], [0]

    def slow() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.05)
        running[0] -= 1

    looks = [asyncio.create_task(there.do(10_000, slow)) for _ in range(4)]
    turns = 0
    while not all(look.done() for look in looks):
        await asyncio.sleep(0.005)
        turns += 1
    assert turns > 10
    assert most == [1]


async def test_every_look_at_a_whole_group_may_be_done_aside(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.declare(partitions=4)
    await api.join("m1")
    await api.join("m2")
    here = {call: (await api.call(*call, {} if call[0] == "POST" else None)).json() for call in LONG_READS}
    monkeypatch.setattr(offload, "AT_ONCE_MAX", 0)
    threads: list[str] = []
    encode = answers.to_json

    def noting(body: object) -> bytes:
        threads.append(threading.current_thread().name)
        return encode(body)

    monkeypatch.setattr(offload, "to_json", noting)
    for call, body in here.items():
        answer = (await api.call(*call, {} if call[0] == "POST" else None)).json()
        body.pop("decide_ms", None)
        answer.pop("decide_ms", None)
        assert answer == body, call
    assert threads
    assert threading.main_thread().name not in threads


async def test_a_plan_of_the_smallest_group_is_made_beside_the_loop(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.declare(partitions=4)
    await api.join("m1")
    threads = []

    def noted(*args: Any, **named: Any) -> Snapshot:
        threads.append(threading.get_ident())
        return imagine(*args, **named)

    monkeypatch.setattr(groups, "imagine", noted)
    assert (await api.call("POST", "/orders/plan", {"join": [{"count": 50}]})).status_code == 200
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("kind", ["leave", "drain"])
async def test_a_plan_takes_each_member_once(api: Api, kind: str) -> None:
    """Protocol 12.6."""
    await api.declare(partitions=4)
    await api.join("m1")
    await api.join("m2")
    for named, detail in ((["m1", "m1"], "names a member twice"), (["m1"] * 1_000, "names 1000 members")):
        refused = await api.call("POST", "/orders/plan", {kind: named})
        assert refused.status_code == 422
        assert detail in refused.text
        assert len(refused.content) < 1_000
