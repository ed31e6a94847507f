"""`batonpass audits` shows people and scripts the results of the nightly audits."""

import json
from typing import Any

from tests.cli.canned import Canned
from tests.schemas.history_examples import HISTORY_EXAMPLES

LISTED = HISTORY_EXAMPLES["audits_get"]
SHOWN = HISTORY_EXAMPLES["audit_get"]


def test_days_are_listed(server: Canned) -> None:
    server.on("GET", "/v1/audits", (200, LISTED))
    found = server.run("audits", "--limit", "3")
    assert found.exit_code == 0
    assert server.asked[0].query == {"limit": "3"}
    assert all(word in found.stdout for word in ("2026-02-28", "running", "a law was broken", "21480"))
    assert json.loads(server.run("audits", "--json").stdout) == LISTED


def test_before_the_first_audit_it_says_how_to_audit(server: Canned) -> None:
    server.on("GET", "/v1/audits", (200, {"audits": [], "next": None}))
    found = server.run("audits")
    assert (found.exit_code, "batonpass audit --day" in found.stdout) == (0, True)


def test_a_day_is_shown_whole(server: Canned) -> None:
    better = {"settings": {"max_warmup_replicas": 4}, "downtime_ms": 600.0, "moves": 7, "bytes": 90}
    present = {"settings": {"max_warmup_replicas": 2}, "downtime_ms": 1_200.0, "moves": 6, "bytes": 80}
    advice = {"group": "orders", "present": present, "recommended": better, "confidence": "Sure.", "grid": []}
    body = SHOWN | {"recommendations": {"orders": advice}, "next": 1, "notices": 4}
    server.on("GET", "/v1/audits/2026-02-28", (200, body))
    found = server.run("audits", "2026-02-28", "--limit", "1")
    assert found.exit_code == 0
    assert server.asked[0].query == {"limit": "1"}
    output = found.stdout
    assert "An audit is running; it began" in output
    assert "What follows is from an earlier run: 1 fatal findings, 4 notices." in output
    assert "4 more findings" in output
    assert "The report is /var/audits/reports/2026-02-28.html." in output
    assert "18204, 18211" in output
    assert "99.94 %" in output
    assert "Change max_warmup_replicas from 2 to 4. In the simulation of the day, downtime goes from 1.2 s to" in output
    assert "  orders: Sure." in output
    assert json.loads(server.run("audits", "2026-02-28", "--json").stdout) == body


def test_a_run_that_broke_says_so(server: Canned) -> None:
    """Advice to change nothing is advice too."""
    nothing: dict[str, Any] = {
        "measures": {},
        "findings": [],
        "downtime_by_cause": {},
        "verdict": None,
        "report": None,
        "fatal": 0,
    }
    broken = {"state": "broken", "finished_at": "2026-03-01T12:00:09.000Z", "detail": "the disk is full"}
    server.on("GET", "/v1/audits/2026-02-28", (200, SHOWN | nothing | broken))
    output = server.run("audits", "2026-02-28").stdout
    assert "2026-02-28: The disk is full" in output
    assert "The last run failed" in output
    assert "This day has no verdict." in output
    assert "Keep the settings of orders: none that was tried is better." in output
    assert "  orders: Fairly sure." in output


def test_a_day_that_was_not_audited_is_not_there(server: Canned) -> None:
    problem = {
        "type": "not-found",
        "detail": "day 2026-02-27 was never audited; `batonpass audit --day 2026-02-27` does",
    }
    server.on("GET", "/v1/audits/2026-02-27", (404, problem))
    found = server.run("audits", "2026-02-27")
    assert found.exit_code == 5
    assert "batonpass audit --day 2026-02-27" in found.stderr
