"""Leaders of Kafka Streams groups at two coordinators on one database: the memory of a group outlives either."""

import asyncio
import signal
from functools import partial
from typing import Any

import pytest
from tests.api.test_streams import ALL, advice_body, process
from tests.e2e.serving import Served, serving
from tests.e2e.test_fleet import QUICK, owned
from tests.waiting import wait_until

GROUPS = [f"app-{number}" for number in range(8)]
LEFT = {task: has for task, has in ALL.items() if task != "t0_0"}


def ask(served: Served, group: str, *members: dict[str, Any]) -> dict[str, Any] | None:
    """Ask for advice as a leader does; None where no answer comes."""
    answer = served.call("POST", f"/v1/groups/{group}/advice", json=advice_body(*members))
    return answer.json() if answer.status_code == 200 else None


@pytest.mark.timeout(240)
async def test_the_memory_of_a_group_outlives_the_coordinator_that_answered(own_url: str) -> None:
    await asyncio.to_thread(outlive, own_url)


def outlive(database_url: str) -> None:
    """Ask in turns at both, kill the owner in the middle of a move, and go on at the other."""
    with serving(database_url, **QUICK) as first, serving(database_url, **QUICK) as second:
        for group in GROUPS:
            wait_until(partial(ask, first, group, process("a", **ALL)), within_s=20)
        wait_until(lambda: owned(first) & set(GROUPS) and owned(second) & set(GROUPS), within_s=20)
        group = min(owned(second) & set(GROUPS))
        warming = ask(first, group, process("a", **ALL), process("b"))
        assert warming is not None
        assert warming["assignment"]["b"]["warmup"] == ["0_0", "0_1"]
        moving = ask(second, group, process("a", **ALL), process("b", t0_0=3, t0_1=50_000))
        assert moving is not None
        assert (moving["assignment"]["b"]["active"], moving["followup_everyone"]) == (["0_0"], True)
        second.stop(signal.SIGKILL)
        # Nobody runs 0_0 now, and only memory tells that it is b's: a still has the better copy of it.
        after = wait_until(
            lambda: ask(first, group, process("a", **LEFT, t0_0=0), process("b", t0_0=3, t0_1=50_000)), within_s=30
        )
        assert after["assignment"]["b"] == {"active": ["0_0"], "standby": [], "warmup": ["0_1"]}
        assert first.call("GET", f"/v1/groups/{group}").json()["generation"] == moving["generation"]
