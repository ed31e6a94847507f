"""What the database says afterwards: whether anything was lost, doubled or decided against the laws."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import text

from batonpass.codec.code import code_version
from batonpass.codec.records import StoredRecord, decode_record
from batonpass.codec.traces import decode_trace, replay
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Cause, Group
from batonpass.core.state.records import MemberGone, Record, TargetPlaced
from batonpass.core.state.soft import Soft
from batonpass.invariants import check_group
from batonpass.postgres.connect import connect


class Inquest:
    """Reads one group's history whole, and says what is wrong with it."""

    def __init__(self, url: str, group: str) -> None:
        self._url = url
        self._group = group
        self.faults: list[str] = []
        self.records: list[Record] = []
        self.epochs: list[int] = []
        self.replayed = 0

    async def hold(self) -> "Inquest":
        """Look at everything; `faults` lists what was found."""
        engine = connect(self._url)
        try:
            # One snapshot for all queries: the coordinator may still be writing.
            async with engine.connect() as plain:
                connection = await plain.execution_options(isolation_level="REPEATABLE READ")
                self._log(
                    await self._rows(
                        connection,
                        "select seq, coordinator_epoch, kind, version, payload::text "
                        "from record_log where group_id = :g order by seq",
                    )
                )
                self._generations(
                    await self._rows(connection, "select number from generations where group_id = :g order by number")
                )
                self._events(await self._rows(connection, "select position from events order by position"))
                self._traces(
                    await self._rows(
                        connection,
                        "select version, format, payload::text from traces where group_id = :g order by version",
                    )
                )
        finally:
            await engine.dispose()
        return self

    async def _rows(self, connection: Any, sql: str) -> Sequence[Any]:
        done = await connection.execute(text(sql), {"g": self._group} if ":g" in sql else {})
        return list(done.all())

    def _log(self, rows: Sequence[Any]) -> None:
        seqs = [row[0] for row in rows]
        if seqs != list(range(1, len(rows) + 1)):
            self.faults.append("L2: the sequence of records has a hole or a double")
        self.epochs = [row[1] for row in rows]
        if self.epochs != sorted(self.epochs):
            self.faults.append("L4: a record of a lower coordinator epoch stands behind one of a higher")
        self.records = [
            decode_record(StoredRecord(kind, version, payload.encode())) for _, _, kind, version, payload in rows
        ]
        whole = evolve(Group(GroupId(self._group)), self.records)
        self.faults += [f"{found.law}: {found.detail}" for found in check_group(whole)]

    def _generations(self, rows: Sequence[Any]) -> None:
        numbers = [row[0] for row in rows]
        placed = [record.generation for record in self.records if isinstance(record, TargetPlaced) and record.changes]
        if numbers != placed or numbers != list(range(1, len(numbers) + 1)):
            self.faults.append(f"generations {numbers} do not match those of the log, {placed}")

    def _events(self, rows: Sequence[Any]) -> None:
        positions = [row[0] for row in rows]
        if positions != list(range(1, len(positions) + 1)):
            self.faults.append("the positions of events have a hole or a double")

    def _traces(self, rows: Sequence[Any]) -> None:
        group, soft, at = Group(GroupId(self._group)), Soft(), 0
        starts = [row[0] for row in rows] + [len(self.records)]
        for (version, form, payload), after in zip(rows, starts[1:], strict=True):
            if version != at:
                self.faults.append(f"L2: records {at} to {version} have no trace")
                group = evolve(group, self.records[at:version])
            trace = decode_trace(form, payload.encode())
            again, soft = replay(group, soft, trace)
            written = tuple(self.records[version:after])
            if again.records != written and trace.code == code_version():
                self.faults.append(
                    f"L10: {', '.join(type(one).__name__ for one in trace.inputs)} at {version} is decided differently now: "
                    f"{[one for one in again.records if one not in written]} instead of "
                    f"{[one for one in written if one not in again.records]}"
                )
            group, at = evolve(group, written), after
            self.replayed += 1

    def expired(self, left: Collection[str] = ()) -> list[str]:
        """Return the members that were expired for their silence, or fenced, but for those that had ``left``."""
        causes = (Cause.EXPIRED, Cause.FENCED)
        return [
            f"{record.member_id}: {record.cause}"
            for record in self.records
            if isinstance(record, MemberGone) and record.cause in causes and record.member_id not in left
        ]
