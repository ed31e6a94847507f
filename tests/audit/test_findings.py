"""Findings of several sources are put together, cut to what a person reads, counted, and shown with members' names."""

import json
import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner

from batonpass import audit
from batonpass.audit.findings import (
    FINDINGS_PER_LAW,
    AuditResult,
    Finding,
    Severity,
    kept_of,
    readable,
)
from batonpass.cli.audit import app
from batonpass.laws import NOTICES


def finding(group: str, law: str, at_ms: int, *, severity: Severity = Severity.FATAL) -> Finding:
    """Return a finding that was proven at an instant."""
    return Finding(group, law, severity, None, None, f"at {at_ms}", (at_ms,), (at_ms,))


def test_findings_of_all_sources_are_in_the_order_of_the_log() -> None:
    late = finding("a", "L1", 9)
    first = [finding("b", "L1", 1), finding("a", "L2", 5), late]
    others = [finding("a", "L1", 3), finding("a", "L1", 1, severity=Severity.NOTICE)]
    kept, left_out = kept_of([*first, *others])
    assert not +left_out
    assert kept == (others[0], late, others[1], first[1], first[0])


def test_what_is_beyond_the_limit_is_counted() -> None:
    """However many notices of a law there are, they do not hide that it was broken."""
    many = [finding("a", "L1", at, severity=Severity.NOTICE) for at in range(20 * FINDINGS_PER_LAW)]
    broken = [finding("a", "L1", 2_000 + at) for at in range(FINDINGS_PER_LAW + 1)]
    kept, left_out = kept_of([*many, *broken, finding("a", "L2", 1)])
    assert [one.at[0] for one in kept] == [*range(2_000, 2_000 + FINDINGS_PER_LAW), 1]
    assert +left_out == {"L1": len(many) + 1}


FIRST, SECOND, OTHER = (str(UUID(int=number)) for number in (1, 2, 3))


def found() -> AuditResult:
    """Return a group in which two runs of one instance had a task."""
    names = {"orders": {FIRST: "pod-1", SECOND: "pod-1, run 2"}}
    broken = Finding("orders", "L1", Severity.FATAL, "0_1", SECOND, f"granted while {FIRST} might run it, not {OTHER}")
    elsewhere = replace(broken, group="clicks", member=FIRST)
    return AuditResult(date(2026, 11, 18), 0, 1, "x", findings=(broken, elsewhere), names=names)


def test_names_stand_for_ids() -> None:
    """Who has no name keeps the id, also where another group knows the same one."""
    first, elsewhere = readable(found()).findings
    assert first.member == "pod-1, run 2"
    assert first.detail == f"granted while pod-1 might run it, not {OTHER}"
    assert elsewhere.member == FIRST


def test_the_console_says_names_and_json_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.cli.auditing._carried_out", lambda _wanted, show: (show(found()), found())[1])
    wanted = ["--day", "2026-11-18", "--database-url", "postgresql://nobody@127.0.0.1:9/nothing"]
    shown = CliRunner().invoke(app, wanted)
    assert shown.exit_code == 1, shown.stderr
    assert f"pod-1, run 2 granted while pod-1 might run it, not {OTHER}" in " ".join(shown.stdout.split())
    body = json.loads(CliRunner().invoke(app, [*wanted, "--json"]).stdout)
    assert body["findings"][1]["member"] == SECOND
    assert FIRST in body["findings"][1]["detail"]


def test_every_notice_is_in_the_table_of_the_document() -> None:
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z, -]+) \| notice \|", page, re.MULTILINE)
    assert {name for row in rows for name in row.split(", ")} == set(NOTICES)


def test_every_notice_is_found_by_somebody() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in Path(audit.__file__).parent.glob("*.py"))
    assert [name for name in NOTICES if f'"{name}"' not in code] == [], "audit/measures.py finds it"


def test_a_finding_without_a_meaning_cannot_be_made() -> None:
    with pytest.raises(ValueError, match=r"batonpass/laws\.py"):
        Finding("g", "new-notice", Severity.NOTICE, None, None, "d")
