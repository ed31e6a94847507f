"""Workers that the commands start: the token with which `batonpass up` lets its own in, and the names of others."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.cli.canned import Canned

from batonpass.cli.demo_job import DEMO, HOT_CONFIG, TOTALS, DemoJob
from batonpass.cli.folder import UpFolder
from batonpass.cli.worker import next_name, who_has
from batonpass.cli.worker_processes import admit as let_in
from batonpass.cli.worker_processes import declare
from batonpass.client import CoordinatorClient

KEPT = "bpt_kept-0123456789-wxyz"
KNOWN: dict[str, Any] = {"role": "worker", "group": DEMO, "status": "valid", "last_four": "wxyz"}


@pytest.fixture
def folder(tmp_path: Path) -> UpFolder:
    """A data folder."""
    return UpFolder(tmp_path)


def admit(server: Canned, folder: UpFolder, *known: dict[str, Any]) -> str:
    """Start on a coordinator that knows these tokens, and return the one that the workers get."""
    server.on("GET", "/v1/tokens", (200, {"tokens": list(known)}))
    server.on("POST", "/v1/tokens", (201, KNOWN | {"secret": "bpt_new"}))

    async def start() -> None:
        async with CoordinatorClient(server.url, "admin") as client:
            await let_in(client, folder, DEMO)

    asyncio.run(start())
    return folder.workers_token_file.read_text().strip()


def test_a_token_is_kept_over_restarts(server: Canned, folder: UpFolder) -> None:
    folder.keep(folder.workers_token_file, KEPT)
    assert admit(server, folder, KNOWN | {"last_four": "abcd"}, KNOWN) == KEPT
    assert server.calls("POST") == []


@pytest.mark.parametrize(
    "known",
    [{"group": "totals"}, {"role": "viewer"}, {"status": "revoked"}, {"status": "expired"}, {"last_four": "0000"}],
)
def test_a_token_of_an_earlier_run_is_replaced_without_trying_it(
    server: Canned, folder: UpFolder, known: dict[str, Any]
) -> None:
    """A token for another group, a revoked one, or one of another database would be refused with a warning."""
    folder.keep(folder.workers_token_file, KEPT)
    assert admit(server, folder, KNOWN | known) == "bpt_new"
    assert [(one.method, one.path) for one in server.asked] == [("GET", "/v1/tokens"), ("POST", "/v1/tokens")]
    shown = [{name.lower(): text for name, text in one.headers.items()}["authorization"] for one in server.asked]
    assert shown == ["Bearer admin"] * 2


def test_a_first_start_makes_one(server: Canned, folder: UpFolder) -> None:
    assert admit(server, folder) == "bpt_new"
    assert server.calls("POST")[0].body == {"name": f"{DEMO}-workers", "role": "worker", "group": DEMO}
    assert folder.workers_token_file.stat().st_mode & 0o077 == 0


def test_a_name_that_is_taken_is_pointed_out() -> None:
    """Two workers under one instance id wait for one another; one that is away to restart is not in the way."""
    members = [{"instance_id": "demo-1", "state": "stable"}, {"instance_id": "demo-2", "state": "away"}]
    assert "leave --instance out" in (who_has("demo-1", members) or "")
    assert (who_has("demo-2", members), who_has("demo-3", members)) == (None, None)
    assert next_name("demo", ["demo-1", "demo-9", "other-12"]) == "demo-10"


@pytest.mark.parametrize("hot", [False, True])
def test_a_group_that_exists_is_only_told_of_load_where_a_task_is_hot(
    server: Canned, folder: UpFolder, monkeypatch: pytest.MonkeyPatch, *, hot: bool
) -> None:
    monkeypatch.setenv("BATONPASS_KAFKA_BOOTSTRAP", "kafka:9092")
    job, place = DemoJob(folder, 3, lambda _: None, hot=hot), f"/v1/groups/{TOTALS}"
    job.prepare()
    exists = (428, {"type": "precondition-required", "detail": "send If-Match"})
    server.on("PUT", place, exists, exists, (200, {"tasks": 12}))
    server.on("GET", place, (200, {"group": TOTALS}))

    async def start() -> None:
        async with CoordinatorClient(server.url, "admin") as client:
            await declare(client, job)

    asyncio.run(start())
    _, *changes = server.calls("PUT")
    assert [one.body for one in changes] == ([{"config": HOT_CONFIG}] * 2 if hot else [])
