"""What to set is sought after the verdict, and no fault there changes it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.audit import planted
from tests.audit.conftest import filled
from tests.audit.sample import DAY, clean_result

from batonpass.audit import job, whatif
from batonpass.audit.database import rows
from batonpass.audit.findings import AuditResult
from batonpass.audit.job import Audit
from batonpass.audit.whatif import Tried, not_tried

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from batonpass.postgres.embedded import EmbeddedPostgres

AUDIT = Audit("postgresql://nobody@127.0.0.1:9/nothing", DAY, what_if_s=60)


def advised(monkeypatch: pytest.MonkeyPatch, recommend: Any) -> tuple[Any, list[str]]:
    """Return a result after other settings were tried, and what was told meanwhile."""
    monkeypatch.setattr(whatif, "recommend", recommend)
    told: list[str] = []
    tables: Any = SimpleNamespace(spark=None)
    return job._advised(tables, AUDIT, clean_result(), told.append), told


def test_the_verdict_stands_if_other_settings_cannot_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Tried:
        raise RuntimeError("an executor is gone")

    result, told = advised(monkeypatch, fail)
    assert result == clean_result()
    assert told[-1] == "other settings were not tried: RuntimeError: an executor is gone"


def test_it_is_told_how_many_settings_there_was_no_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def stop(*_: object, budget_s: float) -> Tried:
        seen.append(budget_s)
        return Tried((), (not_tried("g", "why"),), 3)

    result, told = advised(monkeypatch, stop)
    assert seen == [60]
    assert told[-2:] == ["g: other settings were not tried: why", "stopped after 60 s: at least 3 trials left out"]
    assert [one.detail for one in result.findings] == ["other settings were not tried: why"]


@pytest.mark.needs("spark")
@pytest.mark.timeout(900)
def test_the_verdict_is_stored_written_and_shown_before_other_settings_are_tried(
    spark: "SparkSession", server: "EmbeddedPostgres", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spark
    shown: list[AuditResult] = []
    there: list[object] = []
    report = tmp_path / f"report-{planted.DAY}.html"

    def recommend(*_: object, **__: object) -> Tried:
        there.extend((rows(url, "select state, report from audit_runs"), report.is_file(), len(shown)))
        return Tried((), (not_tried("calm", "why"),))

    monkeypatch.setattr(whatif, "recommend", recommend)
    with filled(server, [planted.lived("calm")]) as url:
        result = job.run(Audit(url, planted.DAY, out=str(tmp_path)), hear=shown.append)
        assert there == [[("passed", str(report))], True, 1]
        said = "select detail from audit_findings where law = 'what-if-incomplete'"
        assert rows(url, said) == [("other settings were not tried: why",)]
    assert "other settings were not tried: why" in report.read_text(encoding="utf-8")
    (verdict,) = shown
    assert result.findings == (not_tried("calm", "why"),)
    assert replace(verdict, findings=(), log_lines=()) == replace(
        result, findings=(), log_lines=(), finished_at_ms=verdict.finished_at_ms
    )
