"""Whatever the OpenAPI document allows can be asked, and every answer is as it says."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, cast

import httpx2 as httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import CHECKS, load_all_checks
from tests.postgres.databases import beside, run_sql
from tests.waiting import wait_until

from batonpass.postgres.embedded import EmbeddedPostgres
from batonpass.postgres.schema import upgrade
from batonpass.sockets import free_port

SUBTOPOLOGY = {"id": "0", "partitions": 4, "changelog_topics": ["store"]}
numbers = count(1)
EXAMPLES = 25
load_all_checks()
WANTED: list[Any] = CHECKS.get_by_names(
    ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"]
)


@pytest.fixture(scope="module")
def coordinator_url(server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A coordinator process on a database of its own, with one group that has members."""
    name = f"calls{os.getpid()}x{next(numbers)}"
    asyncio.run(run_sql(server.url, f"create database {name}"))
    database_url = beside(server.url, name)
    asyncio.run(upgrade(database_url))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = {
        "BATONPASS_DATABASE_URL": database_url,
        "BATONPASS_PORT": str(port),
        "BATONPASS_AUTH": "off",
        "BATONPASS_MEMBER_REQUESTS_PER_S": "10000",
        "BATONPASS_MEMBER_REQUESTS_BURST": "100000",
        "BATONPASS_OPERATOR_REQUESTS_PER_S": "100000",
        "BATONPASS_OPERATOR_REQUESTS_BURST": "1000000",
    }
    log = tmp_path_factory.mktemp("calls") / "coordinator.log"
    with log.open("wb") as lines:
        process = subprocess.Popen(
            [sys.executable, "-m", "batonpass", "serve"], env=os.environ | environment, stdout=lines, stderr=lines
        )
    try:
        wait_until(
            lambda: _is_ready(url, process, log),
            despite=(httpx.HTTPError,),
            seen=lambda: log.read_text()[-3_000:],
        )
        body = {"topology": {"subtopologies": [SUBTOPOLOGY]}, "config": {"initial_rebalance_delay_ms": 0}}
        httpx.put(f"{url}/v1/groups/0", json=body).raise_for_status()
        for member in ("0", "1"):
            httpx.put(f"{url}/v1/groups/0/members/{member}", json={}).raise_for_status()
        yield url
        assert process.poll() is None, log.read_text()[-3_000:]
        assert b'"defect"' not in log.read_bytes()
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()[-3_000:]
    return httpx.get(f"{url}/readyz").status_code == 200


def _try(operation: schemathesis.APIOperation[Any, Any, Any, Any]) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(case=operation.as_strategy())
    def answers_as_documented(case: schemathesis.Case[Any]) -> None:
        if case.query and "wait_ms" in case.query:
            # Waiting is not what is tried here.
            case.query["wait_ms"] = "5"
        case.call_and_validate(checks=WANTED, timeout=30)

    answers_as_documented()


def test_every_call_answers_as_documented(coordinator_url: str) -> None:
    """Any body, path and query that the document allows."""
    document = schemathesis.openapi.from_url(f"{coordinator_url}/openapi.json")
    faults, tried = [], 0
    for found in document.get_all_operations():
        operation: Any = cast("Any", found).ok()
        tried += 1
        try:
            _try(operation)
        except (Exception, ExceptionGroup) as error:  # noqa: BLE001 - each operation is tried, whatever came of another
            faults.append(f"{operation.method.upper()} {operation.path}: {error}")
    assert not faults, "\n\n".join(faults)
    assert tried > 30
