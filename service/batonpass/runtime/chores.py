"""The regular chores of a coordinator: it samples lags, and keeps snapshots of groups that have grown.

A chore that fails is tried again at the next turn. No chore may fail a decision or hold one up.
"""

import asyncio

from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group
from batonpass.core.state.soft import Soft
from batonpass.runtime.coordinator import Coordinator
from batonpass.runtime.history import CopySample, Sample
from batonpass.runtime.ports import Observer, StoreUnavailable

SAMPLE_EVERY_S = 60.0
SNAPSHOT_EVERY_RECORDS = 2_000
COPIES_AT_ONCE = 10_000
"""How many copies are sampled before the samples are stored, which lets other work through."""


def sample_of(group: Group, soft: Soft, now_ms: int) -> Sample:
    """Return how far every reported copy of the group has come."""
    heard = ((member_id, soft.members.get(member_id)) for member_id in sorted(group.members))
    copies = tuple(
        CopySample(task, member_id, one.report.role, one.report.state or "", one.lag, one.rate)
        for member_id, member_soft in heard
        if member_soft is not None
        for task, one in member_soft.reports.items()
    )
    return Sample(group.id, now_ms, copies)


class Chores:
    """Runs the chores of one coordinator."""

    def __init__(self, coordinator: Coordinator, observer: Observer, *, snapshot_every: int) -> None:
        self._coordinator = coordinator
        self._observer = observer
        self._snapshot_every = snapshot_every

    async def once(self) -> None:
        now_ms = self._coordinator.now_ms()
        taken = []
        for group, soft in self._coordinator.loaded_groups():
            # Values do not change, so a large group is sampled beside the loop.
            taken.append(await asyncio.to_thread(sample_of, group, soft, now_ms))
            if sum(len(one.copies) for one in taken) >= COPIES_AT_ONCE:
                await self._keep(taken)
                taken = []
        if taken:
            await self._keep(taken)
        try:
            await self._coordinator.keep_snapshots(after_records=self._snapshot_every)
        except StoreUnavailable as error:
            self._observer.store_failed(GroupId(""), error.detail)

    async def _keep(self, taken: list[Sample]) -> None:
        try:
            await self._coordinator.archive.keep_samples(taken)
        except StoreUnavailable as error:
            self._observer.store_failed(taken[0].group, error.detail)

    async def run(self) -> None:
        """Run the chores once a minute until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_EVERY_S)
            await self.once()
