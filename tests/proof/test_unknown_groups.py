"""Names that are only asked for cost a database nothing, on a real one and by a coordinator that is a process."""

from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
from tests.proof.coordinators import CoordinatorProcess

ASKED = (
    ("GET", ""),
    ("GET", "/explain"),
    ("GET", "/members"),
    ("GET", "/members/m1/assignment?after=0&wait_ms=1000"),
    ("GET", "/tasks/0_0/route"),
    ("POST", "/probe"),
    ("DELETE", ""),
)


async def test_asking_for_a_group_that_never_was_writes_nothing(own_url: str, tmp_path: Path) -> None:
    coordinator = CoordinatorProcess(own_url, tmp_path / "coordinator.log")
    await coordinator.start(wait_s=60)
    try:
        for number in range(3):
            for method, path in ASKED:
                answer = await coordinator.call(method, f"/v1/groups/ghost-{number}{path}")
                assert (answer.status_code, answer.json()["type"]) == (404, "unknown-group"), path
    finally:
        await coordinator.kill()
    reader = await asyncpg.connect(own_url.replace("postgresql+asyncpg", "postgresql"))
    try:
        assert await reader.fetch("select group_id from group_heads") == []
    finally:
        await reader.close()
