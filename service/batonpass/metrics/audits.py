"""The state of the nightly audits, read from the store once a minute.

A scrape does not ask the store. While the store is away, the metrics show what was read last. A late audit can still be
seen, because the instants stand still.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from batonpass.core.state.errors import ProtocolError
from batonpass.runtime.audits import Audits, AuditStanding, AuditState

READ_EVERY_S: Final = 60.0
PREFIX: Final = "batonpass_audit_"


class AuditGauges(Collector):
    """Shows the state of the audits. What has never happened has no series."""

    def __init__(self, audits: Audits, registry: CollectorRegistry, failed: Callable[[str], None]) -> None:
        """Show ``audits`` in ``registry``. ``failed`` is called with the reason if they cannot be read."""
        self._audits = audits
        self._failed = failed
        self._standing = AuditStanding()
        registry.register(self)

    async def look(self) -> None:
        """Read the state of the audits. If the store does not answer, keep what was read before."""
        try:
            self._standing = await self._audits.standing()
        except ProtocolError as error:
            self._failed(f"how the audits stand cannot be read: {error.detail}")

    async def run(self) -> None:
        """Read once a minute until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(READ_EVERY_S)

    def collect(self) -> Iterator[Metric]:
        shown = self._standing
        yield _instant("last_success", "When an audit last ended with every law kept.", shown.last_success_ms)
        yield _instant("last_finished", "When an audit last ended, however it did.", shown.last_finished_ms)
        began = None
        if shown.verdict is not None:
            began = int(datetime.combine(shown.verdict.day, datetime.min.time(), UTC).timestamp() * 1_000)
        yield _instant("last_day", "When the newest day began that has a verdict from when it was over.", began)
        findings = GaugeMetricFamily(
            PREFIX + "findings",
            "Findings of the newest day that has a verdict from when it was over, by severity.",
            labels=("severity",),
        )
        state = GaugeMetricFamily(
            PREFIX + "last_state",
            "1 for the state of the newest run of the newest day that was over when a run began.",
            labels=("state",),
        )
        if shown.newest is not None:
            for one in AuditState:
                state.add_metric([one.value], float(one is shown.newest.state))
        if shown.verdict is not None:
            findings.add_metric(["fatal"], shown.verdict.fatal)
            findings.add_metric(["notice"], shown.verdict.notices)
        yield findings
        yield state


def _instant(name: str, meaning: str, at_ms: int | None) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}{name}_timestamp_seconds", meaning)
    if at_ms is not None:
        family.add_metric([], at_ms / 1_000)
    return family
