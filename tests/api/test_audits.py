"""Looking at audits: which days were audited, how each came out, and everything that one of them found."""

from datetime import date, timedelta
from typing import Any

import pytest
from tests.api.conftest import Api
from tests.contracts.memory_audits import AuditRun
from tests.schemas.validating import faults

from batonpass.runtime.audits import AuditDay, AuditFinding, AuditMeasures, AuditState

DAY = date(2026, 11, 20)
STARTED_MS = 1_795_132_800_000


def run(
    day: date, state: AuditState = AuditState.PASSED, *, findings: int = 0, started_ms: int = STARTED_MS
) -> AuditRun:
    """Return a run with so many findings, the first of which is fatal."""
    found = tuple(
        AuditFinding(
            number, "orders", "L1" if number == 1 else "futile-probes", "fatal" if number == 1 else "notice",
            "0_7", None, f"finding {number}", (number, number + 1), ("2026-11-20T14:12:07.310Z",),
        )
        for number in range(1, findings + 1)
    )  # fmt: skip
    audit_day = AuditDay(
        day, state, started_ms, None if state is AuditState.RUNNING else started_ms + 92_000, "as it went", "v1",
        fatal=min(1, findings), notices=max(0, findings - 1), groups=2, records=400, report="reports/x.html",
    )  # fmt: skip
    outcome = {"settings": {"max_warmup_replicas": 2}, "downtime_ms": 9.5, "moves": 1, "bytes": None}
    advice = {"group": "orders", "present": outcome, "recommended": outcome, "confidence": "sure", "grid": [outcome]}
    downtime = {"failover": {"count": 1, "p50_ms": 5.0, "p99_ms": 5.0, "max_ms": 5.0, "total_ms": 5.0}}
    measures = (
        AuditMeasures("orders", {"moves": 7, "availability": None}, downtime, advice),
        AuditMeasures("clicks", {"moves": 0}),
    )
    return AuditRun(audit_day, found, measures)


async def ask(api: Api, path: str, schema: str | None = None) -> Any:
    """Make a call; what it answers must be as the schema says."""
    answer = await api.client.get(f"/v1/audits{path}")
    body = answer.json()
    assert faults(schema or "problem", body) == []
    return body


async def test_before_the_first_audit_the_list_is_empty(api: Api) -> None:
    assert await ask(api, "", "audits_get") == {"audits": [], "next": None}
    problem = await ask(api, "/2026-11-20")
    assert (problem["status"], problem["type"]) == (404, "not-found")
    assert "batonpass audit --day 2026-11-20" in problem["detail"]


async def test_days_come_newest_first_page_by_page(api: Api) -> None:
    for number in range(5):
        api.audits.add(run(DAY - timedelta(days=number)))
    page: Any = {}
    seen, after = [], ""
    for _ in range(3):
        page = await ask(api, f"?limit=2{after}", "audits_get")
        seen += [one["day"] for one in page["audits"]]
        after = f"&after={page['next']}"
    assert seen == ["2026-11-20", "2026-11-19", "2026-11-18", "2026-11-17", "2026-11-16"]
    assert page["next"] is None
    whole = await ask(api, "", "audits_get")
    assert whole["audits"][0] == {
        "day": "2026-11-20",
        "state": "passed",
        "verdict": "passed",
        "started_at": "2026-11-20T00:00:00.000Z",
        "finished_at": "2026-11-20T00:01:32.000Z",
        "groups": 2,
        "records": 400,
        "fatal": 0,
        "notices": 0,
        "detail": "as it went",
    }


async def test_a_day_shows_what_was_found(api: Api) -> None:
    api.audits.add(run(DAY, AuditState.FAILED, findings=3))
    body = await ask(api, "/2026-11-20", "audit_get")
    assert (body["state"], body["verdict"], body["fatal"], body["notices"]) == ("failed", "failed", 1, 2)
    assert (body["report"], body["code_version"], body["next"]) == ("reports/x.html", "v1", None)
    assert body["findings"][0] == {
        "number": 1,
        "group": "orders",
        "law": "L1",
        "severity": "fatal",
        "task": "0_7",
        "member": None,
        "detail": "finding 1",
        "evidence": {"sequences": [1, 2], "at": ["2026-11-20T14:12:07.310Z"]},
    }
    assert body["measures"] == {"clicks": {"moves": 0}, "orders": {"moves": 7, "availability": None}}
    assert body["downtime_by_cause"]["orders"]["failover"]["count"] == 1
    assert list(body["recommendations"]) == ["orders"]


async def test_findings_come_page_by_page(api: Api) -> None:
    api.audits.add(run(DAY, AuditState.FAILED, findings=5))
    page: Any = {}
    seen, after = [], ""
    for _ in range(3):
        page = await ask(api, f"/2026-11-20?limit=2{after}", "audit_get")
        seen += [one["number"] for one in page["findings"]]
        after = f"&after={page['next']}"
    assert (seen, page["next"]) == ([1, 2, 3, 4, 5], None)
    assert (await ask(api, "/2026-11-20?after=9", "audit_get"))["findings"] == []


async def test_a_run_under_way_keeps_the_verdict_in_view(api: Api) -> None:
    api.audits.add(run(DAY, AuditState.FAILED, findings=1))
    api.audits.add(run(DAY, AuditState.RUNNING, started_ms=STARTED_MS + 5_000))
    body = await ask(api, "/2026-11-20", "audit_get")
    assert (body["state"], body["finished_at"], body["verdict"]) == ("running", None, "failed")
    assert len(body["findings"]) == 1
    api.audits.add(run(DAY + timedelta(days=1), AuditState.BROKEN))
    body = await ask(api, "/2026-11-21", "audit_get")
    assert (body["state"], body["verdict"], body["detail"]) == ("broken", None, "as it went")
    assert (body["measures"], body["findings"]) == ({}, [])


@pytest.mark.parametrize("day", ["yesterday", "20261120", "2026-W47-5", "2026-11-31", "2026-11-20T00:00", "٢٠٢٦-11-20"])
async def test_what_is_no_day_is_refused(api: Api, day: str) -> None:
    for path, name in ((f"/{day}", "path.day"), (f"?after={day}", "query.after")):
        problem = await ask(api, path)
        assert (problem["status"], problem["errors"][0]["path"]) == (422, name)


@pytest.mark.parametrize("path", ["?limit=0", "?limit=1001", "/2026-11-20?limit=0", "/2026-11-20?after=-1"])
async def test_pages_have_a_size(api: Api, path: str) -> None:
    assert (await ask(api, path))["status"] == 422
