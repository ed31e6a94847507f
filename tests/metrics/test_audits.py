"""How the nightly audits stand, for who watches them: when they last ended, and what they found."""

import asyncio
from datetime import date

import pytest
from prometheus_client import CollectorRegistry
from tests.api.test_audits import run
from tests.contracts.memory_audits import MemoryAudits

from batonpass.metrics import audits as audit_metrics
from batonpass.metrics.audits import AuditGauges
from batonpass.runtime.audits import AuditStanding, AuditState
from batonpass.runtime.ports import StoreUnavailable

DAY, NEXT_DAY = date(2026, 11, 19), date(2026, 11, 20)
DAY_S = 86_400
# When the audit of the day begins, which is over then.
BEGAN_S = 1_795_132_800.0
OF_DAY_S = BEGAN_S - DAY_S


class Watched:
    """Audits in memory, and what is shown of them."""

    def __init__(self) -> None:
        self.audits = MemoryAudits()
        self.registry = CollectorRegistry()
        self.failures: list[str] = []
        self.gauges = AuditGauges(self.audits, self.registry, self.failures.append)

    async def look(self) -> dict[str, float]:
        """Read how the audits stand, and return what is shown: the name, and the label where there is one."""
        await self.gauges.look()
        return self.shown()

    def shown(self) -> dict[str, float]:
        """Return what is shown now."""
        samples = [sample for family in self.registry.collect() for sample in family.samples]
        return {
            ":".join([one.name.removeprefix("batonpass_audit_"), *one.labels.values()]): one.value for one in samples
        }


@pytest.fixture
def watched() -> Watched:
    """Return no audits."""
    return Watched()


async def test_before_the_first_audit_nothing_is_shown(watched: Watched) -> None:
    """A series of nought would be taken for an audit."""
    assert await watched.look() == {}


async def test_how_an_audit_ended_is_shown(watched: Watched) -> None:
    watched.audits.add(run(DAY, AuditState.FAILED, findings=3))
    assert await watched.look() == {
        "last_finished_timestamp_seconds": BEGAN_S + 92,
        "last_day_timestamp_seconds": OF_DAY_S,
        "findings:fatal": 1,
        "findings:notice": 2,
        "last_state:running": 0,
        "last_state:passed": 0,
        "last_state:failed": 1,
        "last_state:broken": 0,
    }
    watched.audits.add(run(DAY, AuditState.PASSED, started_ms=int(BEGAN_S * 1_000) + 500_000))
    shown = await watched.look()
    assert shown["last_success_timestamp_seconds"] == shown["last_finished_timestamp_seconds"] == BEGAN_S + 592
    assert (shown["findings:fatal"], shown["last_state:passed"]) == (0, 1)


async def test_a_day_under_way_hides_no_late_audit(watched: Watched) -> None:
    """An audit of today moves neither the newest day that was audited, nor what was found of that."""
    watched.audits.add(run(DAY, AuditState.FAILED, findings=2))
    watched.audits.add(run(NEXT_DAY, AuditState.PASSED, started_ms=int(BEGAN_S + 0.7 * DAY_S) * 1_000))
    shown = await watched.look()
    assert (shown["last_day_timestamp_seconds"], shown["findings:fatal"]) == (OF_DAY_S, 1)
    assert (shown["last_state:passed"], shown["last_state:failed"]) == (0, 1)


@pytest.mark.parametrize("state", [AuditState.RUNNING, AuditState.BROKEN])
async def test_a_run_without_a_verdict_moves_neither_day_nor_findings(watched: Watched, state: AuditState) -> None:
    watched.audits.add(run(DAY, AuditState.FAILED, findings=2))
    watched.audits.add(run(NEXT_DAY, state, started_ms=int(BEGAN_S + DAY_S) * 1_000))
    shown = await watched.look()
    assert (shown["last_day_timestamp_seconds"], shown["findings:fatal"]) == (OF_DAY_S, 1)
    assert (shown[f"last_state:{state.value}"], shown["last_state:failed"]) == (1, 0)
    ended = BEGAN_S + 92 + (DAY_S if state is AuditState.BROKEN else 0)
    assert shown["last_finished_timestamp_seconds"] == ended


async def test_a_store_that_is_away_leaves_what_was_read(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.audits.add(run(DAY))
    before = await watched.look()

    async def away() -> AuditStanding:
        raise StoreUnavailable("no connection")

    monkeypatch.setattr(audit_metrics, "READ_EVERY_S", 0.005)
    with monkeypatch.context() as patch:
        patch.setattr(watched.audits, "standing", away)
        turns = asyncio.create_task(watched.gauges.run())
        while len(watched.failures) < 2:
            await asyncio.sleep(0.002)
        assert watched.shown() == before
    watched.audits.add(run(NEXT_DAY, AuditState.FAILED, findings=1, started_ms=int(BEGAN_S + DAY_S) * 1_000))
    async with asyncio.timeout(5):
        while watched.shown() == before:
            await asyncio.sleep(0.002)
    turns.cancel()
    assert "no connection" in watched.failures[0]
    assert watched.shown()["findings:fatal"] == 1
