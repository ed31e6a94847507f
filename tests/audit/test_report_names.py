"""A report calls members by the names that people gave them."""

import json
from datetime import date
from uuid import UUID

import pytest
from typer.testing import CliRunner

from batonpass.audit.findings import AuditResult, Finding, OwnershipInterval, Pictures, Severity, WarmupPoint
from batonpass.audit.report_names import readable
from batonpass.cli.audit import app

FIRST, SECOND, OTHER = (str(UUID(int=number)) for number in (1, 2, 3))


def found() -> AuditResult:
    """Return a group in which two runs of one instance had a task, and another group that knows the same id."""
    owned = (
        OwnershipInterval("orders", "0_1", FIRST, 0, 10, "running"),
        OwnershipInterval("orders", "0_1", SECOND, 5, 20, "running"),
        OwnershipInterval("clicks", "0_1", FIRST, 5, 20, "running"),
    )
    warmed = (WarmupPoint("orders", "0_1", OTHER, 0, 10, None, "promoted"),)
    names = {("orders", FIRST): "pod-1", ("orders", SECOND): "pod-1, run 2"}
    broken = Finding("orders", "L1", Severity.FATAL, "0_1", SECOND, f"granted while {FIRST} might run it, not {OTHER}")
    pictures = Pictures(ownership=owned, warmups=warmed, names=names)
    return AuditResult(date(2026, 11, 18), 0, 1, "x", findings=(broken,), pictures=pictures)


def test_names_stand_for_ids() -> None:
    """In pictures, in the column of members, and within sentences; runs of one instance stay apart."""
    told = readable(found())
    assert [one.member for one in told.pictures.ownership] == ["pod-1", "pod-1, run 2", FIRST]
    assert told.findings[0].member == "pod-1, run 2"
    assert told.findings[0].detail == f"granted while pod-1 might run it, not {OTHER}"


def test_who_has_no_name_keeps_the_id() -> None:
    """So does a member of another group, whatever it is called elsewhere."""
    told = readable(found())
    assert told.pictures.warmups[0].member == OTHER
    assert told.pictures.ownership[2].member == FIRST


def test_the_console_says_names_and_json_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """People read the table of findings, programs the object."""
    monkeypatch.setattr("batonpass.cli.audit._carried_out", lambda _wanted, show: (show(found()), found())[1])
    wanted = ["--day", "2026-11-18", "--database-url", "postgresql://nobody@127.0.0.1:9/nothing"]
    shown = CliRunner().invoke(app, wanted)
    assert shown.exit_code == 1, shown.stderr
    assert f"pod-1, run 2 granted while pod-1 might run it, not {OTHER}" in " ".join(shown.stdout.split())
    body = json.loads(CliRunner().invoke(app, [*wanted, "--json"]).stdout)
    assert body["findings"][0]["member"] == SECOND
    assert FIRST in body["findings"][0]["detail"]
