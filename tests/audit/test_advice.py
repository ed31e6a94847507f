"""What to set is sought after the verdict, and no fault there changes it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.audit.sample import DAY, clean_result

from batonpass.audit import job, whatif
from batonpass.audit.job import Audit
from batonpass.audit.whatif import Tried, not_tried

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
    assert told[-2:] == ["g: other settings were not tried: why", "stopped after 60 s: 3 trials left out"]
    assert [one.detail for one in result.findings] == ["other settings were not tried: why"]
