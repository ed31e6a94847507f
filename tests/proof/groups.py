"""The group that is put to the proof, and how to see where it stands."""

import asyncio

from tests.proof.coordinators import CoordinatorProcess
from tests.proof.witness import Witness

GROUP = "orders"
TASKS = 16
DECLARATION = {
    "topology": {"subtopologies": [{"id": "0", "partitions": TASKS, "changelog_topics": ["totals"]}]},
    "config": {
        "acceptable_recovery_lag": 0,
        "num_standby_replicas": 1,
        "max_warmup_replicas": 4,
        "heartbeat_interval_ms": 300,
        "session_timeout_ms": 12_000,
        "initial_rebalance_delay_ms": 0,
        "probing_rebalance_interval_ms": 2_000,
    },
}


async def declare(coordinator: CoordinatorProcess) -> None:
    """Declare the group; a coordinator that has just come may be taking its share of the groups at that moment."""
    async with asyncio.timeout(10):
        while (declared := await coordinator.call("PUT", f"/v1/groups/{GROUP}", DECLARATION)).status_code == 503:
            await asyncio.sleep(0.1)
    assert declared.status_code == 201, declared.text


async def rested(coordinator: CoordinatorProcess, *, within_s: float) -> dict[str, object]:
    """Wait until the group rests; return what it then shows."""
    shown: dict[str, object] = {}
    async with asyncio.timeout(within_s):
        while not shown.get("at_rest"):
            await asyncio.sleep(0.2)
            answer = await coordinator.call("GET", f"/v1/groups/{GROUP}")
            shown = answer.json() if answer.status_code == 200 else shown
    return shown


async def runs_everywhere(witness: Witness, *, within_s: float = 10) -> None:
    """Wait until every task is processed by somebody."""
    async with asyncio.timeout(within_s):
        while len(witness.running) < TASKS:
            await asyncio.sleep(0.05)
