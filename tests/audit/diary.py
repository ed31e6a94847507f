"""Writes down groups that live in virtual time, through the real core, as a coordinator's log would have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime

from sqlalchemy import text

from batonpass.codec.code import code_version
from batonpass.core.decide import Decision
from batonpass.core.ids import GroupId
from batonpass.core.inputs import Input
from batonpass.core.model import Group
from batonpass.core.policy import Policy
from batonpass.core.records import Record
from batonpass.core.soft import Soft
from batonpass.postgres.connect import connect
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.runtime.changes_of import changes_of
from batonpass.runtime.historian import Historian
from batonpass.runtime.history import NOBODY_ASKED, NO_HISTORY
from batonpass.runtime.ports import Commit

DAY = date(2026, 11, 20)
MIDNIGHT_MS = int(datetime(2026, 11, 20, tzinfo=UTC).timestamp() * 1_000)


class Diary:
    """What was decided for one group, in order, ready to be written to a database."""

    def __init__(self, group: str) -> None:
        self.group = GroupId(group)
        self.commits: list[tuple[int, Commit]] = []
        self.state = Group(self.group)
        self.soft = Soft()
        self.epoch = 1
        self._historian = Historian(Policy(), code_version())

    def start_anew(self) -> None:
        """Go on under the next coordinator."""
        self.epoch += 1
        self._historian.begin_anew()

    def observe(self, before: Group, soft: Soft, item: Input, decision: Decision, now_ms: int) -> None:
        """Hear of a decision."""
        history = self._historian.history(NOBODY_ASKED, item, (before, soft), decision, at=(now_ms, 0.0))
        self._historian.committed(soft)
        self.commits.append((now_ms, Commit(self.group, self.epoch, before.version, decision.records, history)))
        self.state, self.soft = decision.after, decision.soft

    def forge(self, at_ms: int, *records: Record, after: Group | None = None) -> None:
        """Add records that nobody decided, as a broken coordinator would; ``after`` is the group as it tells it."""
        version = sum(len(commit.records) for _, commit in self.commits)
        changes = changes_of(self.state, records, after or self.state, {}, at_ms)
        history = replace(NO_HISTORY, at_ms=at_ms, changes=changes)
        self.commits.append((at_ms, Commit(self.group, self.epoch, version, records, history)))

    @property
    def records(self) -> list[Record]:
        """Every record so far."""
        return [record for _, commit in self.commits for record in commit.records]


async def write(url: str, diaries: Sequence[Diary]) -> None:
    """Write the diaries to a database, with the times that they tell."""
    engine = connect(url)
    log = PostgresRecordLog(engine)
    for diary in diaries:
        epoch = await log.take_over(diary.group)
        for _, commit in diary.commits:
            await log.append(replace(commit, coordinator_epoch=commit.coordinator_epoch + epoch - 1))
    async with engine.connect() as connection:
        for diary in diaries:
            seqs = [commit.expected_version + n + 1 for _, commit in diary.commits for n in range(len(commit.records))]
            times = [at_ms for at_ms, commit in diary.commits for _ in commit.records]
            await connection.execute(
                text(
                    "update record_log l set at = timestamptz 'epoch' + n.ms * interval '1 millisecond'"
                    " from unnest(cast(:seqs as bigint[]), cast(:times as bigint[])) as n(seq, ms)"
                    " where l.group_id = :of_group and l.seq = n.seq"
                ),
                {"of_group": diary.group, "seqs": seqs, "times": times},
            )
    await engine.dispose()
