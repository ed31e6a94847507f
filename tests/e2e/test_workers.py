"""Workers made with the SDK on a real coordinator: the whole API, its tokens and its database."""

import asyncio
from typing import Any

import pytest
from tests.e2e.running import Up
from tests.worker.recording import END, Ownership, Recorder

from batonpass.worker import Exit, JoinRefused, Member, Role


def declare(up: Up, group: str, **config: Any) -> None:
    """Declare a group of four tasks."""
    settings = {"initial_rebalance_delay_ms": 0, "acceptable_recovery_lag": 100, "heartbeat_interval_ms": 500}
    topology = {"subtopologies": [{"id": "0", "partitions": 4, "changelog_topics": ["store"]}]}
    with up.client() as client:
        client.put(f"/groups/{group}", json={"topology": topology, "config": settings | config}).raise_for_status()


async def rest(up: Up, group: str, ownership: Ownership, **counts: int) -> None:
    """Wait until each worker runs so many tasks and the group says that it is at rest."""

    def state() -> Any:
        with up.client() as client:
            return client.get(f"/groups/{group}").json()

    async with asyncio.timeout(60):
        while True:
            is_dealt = all(ownership.count(name) == count for name, count in counts.items())
            if is_dealt and (await asyncio.to_thread(state))["at_rest"]:
                return
            await asyncio.sleep(0.05)


async def test_a_group_of_workers_grows_drains_and_restarts(up: Up) -> None:
    group, ownership = "sdk-life", Ownership()
    declare(up, group)
    first, second = (Recorder(name, ownership, restore_s=0.2) for name in ("first", "second"))
    async with Member(up.url, group, first, token=up.token, instance_id="first") as member:
        await rest(up, group, ownership, first=4)
        draining = Member(up.url, group, second, token=lambda: up.token, on_exit=Exit.DRAIN)
        async with draining:
            await rest(up, group, ownership, first=2, second=2)
            assert {was for _, was, _ in second.of("active")} == {Role.WARMUP}
            assert {restore_to for _, _, restore_to in second.of("active")} == {END}
        assert "drained" in second.statuses
        await rest(up, group, ownership, first=4)
        disk = dict(member.on_disk)
    assert (first.problems, second.problems) == ([], [])
    again = Recorder("again", ownership, restore_s=0.2)
    async with Member(up.url, group, again, token=up.token, instance_id="first", on_disk=disk):
        await rest(up, group, ownership, again=4)
    assert {len(tokens) for tokens in ownership.tokens.values()} == {2, 4}


async def test_a_wrong_token_is_said_at_once(up: Up) -> None:
    declare(up, "sdk-token")
    for token in (None, "wrong"):
        with pytest.raises(JoinRefused, match="unauthenticated"):
            async with Member(up.url, "sdk-token", token=token):
                pytest.fail("it was let in")
