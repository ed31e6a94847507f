"""The record log on Postgres: each append is one statement, guarded by the group's head.

The statement moves the head and adds the records, or finds the head elsewhere and does nothing. So it commits whole,
takes one round trip, and a guard that fails aborts no transaction that it may share with other groups' appends. Two
writers meet at the row of the head: the second one waits for the first, then sees what it has done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Text, bindparam, cast, func, insert, literal_column, select, true, update
from sqlalchemy.dialects.postgresql import ARRAY, JSON
from sqlalchemy.dialects.postgresql import insert as insert_or_update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.selectable import CTE
from sqlalchemy.types import BigInteger, SmallInteger

from batonpass.codec.records import StoredRecord, UnreadableRecord, decode_records, encode_records
from batonpass.core.ids import GroupId
from batonpass.core.records import Record
from batonpass.postgres.connect import reaching
from batonpass.postgres.tables import group_heads, record_log
from batonpass.runtime.ports import VersionConflict


class Superseded(VersionConflict):
    """A coordinator of a higher epoch has taken the group over; this one appends to it no more (L4)."""


_group: Final = bindparam("of_group", type_=Text)
_expected: Final = bindparam("expected", type_=BigInteger)
_reached: Final = bindparam("reached", type_=BigInteger)
_epoch: Final = bindparam("own_epoch", type_=BigInteger)


def _append_behind(head: CTE) -> Insert:
    """Return the statement that adds records behind a head that it moves, and nothing if it could not be moved."""
    rows = (
        func.unnest(
            bindparam("kinds", type_=ARRAY(Text)),
            bindparam("versions", type_=ARRAY(SmallInteger)),
            bindparam("payloads", type_=ARRAY(Text)),
        )
        .table_valued("kind", "version", "payload", with_ordinality="place")
        .render_derived(name="added")
    )
    values = select(
        _group, _expected + rows.c.place, _epoch, rows.c.kind, rows.c.version, cast(rows.c.payload, JSON)
    ).select_from(rows.join(head, true()))
    columns = ["group_id", "seq", "coordinator_epoch", "kind", "version", "payload"]
    return insert(record_log).from_select(columns, values)


_MOVED: Final = (
    update(group_heads)
    .where(
        group_heads.c.group_id == _group,
        group_heads.c.version == _expected,
        group_heads.c.coordinator_epoch <= _epoch,
    )
    .values(version=_reached, coordinator_epoch=_epoch)
    .returning(literal_column("1"))
    .cte("head")
)
_made = insert_or_update(group_heads).values(group_id=_group, version=_reached, coordinator_epoch=_epoch)
_MADE: Final = (
    _made.on_conflict_do_update(
        index_elements=[group_heads.c.group_id],
        set_={"version": _made.excluded.version, "coordinator_epoch": _made.excluded.coordinator_epoch},
        where=(group_heads.c.version == 0) & (group_heads.c.coordinator_epoch <= _made.excluded.coordinator_epoch),
    )
    .returning(literal_column("1"))
    .cte("head")
)
_APPEND: Final = _append_behind(_MOVED)
_APPEND_FIRST: Final = _append_behind(_MADE)

_claimed = insert_or_update(group_heads).values(group_id=_group, version=0, coordinator_epoch=_epoch)
_TAKE_OVER: Final = _claimed.on_conflict_do_update(
    index_elements=[group_heads.c.group_id],
    set_={"coordinator_epoch": _claimed.excluded.coordinator_epoch},
    where=group_heads.c.coordinator_epoch <= _claimed.excluded.coordinator_epoch,
).returning(group_heads.c.version)

_HEAD: Final = select(group_heads.c.version, group_heads.c.coordinator_epoch).where(group_heads.c.group_id == _group)
# One statement sees one state of the database: the head and the records fit together.
_READ: Final = (
    select(group_heads.c.version, record_log.c.kind, record_log.c.version, cast(record_log.c.payload, Text))
    .select_from(
        group_heads.outerjoin(
            record_log,
            (record_log.c.group_id == group_heads.c.group_id)
            & (record_log.c.seq > bindparam("after", type_=BigInteger)),
        )
    )
    .where(group_heads.c.group_id == _group)
    .order_by(record_log.c.seq)
)
_GROUPS: Final = select(group_heads.c.group_id).where(group_heads.c.version > 0)


class PostgresRecordLog:
    """The records of all groups in one database, as one coordinator writes and reads them."""

    def __init__(self, engine: AsyncEngine, *, coordinator_epoch: int) -> None:
        """Append under ``coordinator_epoch``, which no other coordinator has, and which grows with each that starts."""
        self._engine = engine
        self._epoch = coordinator_epoch

    async def append(self, group_id: GroupId, records: Sequence[Record], *, expected_version: int) -> None:
        """Add all records or none, if the group holds ``expected_version`` of them and nobody has taken it over.

        Raises:
            VersionConflict: when it holds another number, or (``Superseded``) when a coordinator of a higher epoch has
                taken it over; nothing was added.
            StoreUnavailable: when the database is away; the records may have been added all the same.
            UnwritableRecord: when one of them has no stored form.
        """
        stored = encode_records(records)
        async with reaching(self._engine) as connection:
            if stored:
                done = await connection.execute(
                    _APPEND if expected_version else _APPEND_FIRST,
                    {
                        "of_group": group_id,
                        "expected": expected_version,
                        "reached": expected_version + len(stored),
                        "own_epoch": self._epoch,
                        "kinds": [one.kind for one in stored],
                        "versions": [one.version for one in stored],
                        "payloads": [one.payload.decode() for one in stored],
                    },
                )
                if done.rowcount == len(stored):
                    return
            await self._explain(connection, group_id, expected_version, nothing=not stored)

    async def _explain(
        self, connection: AsyncConnection, group_id: GroupId, expected_version: int, *, nothing: bool
    ) -> None:
        """Raise what kept an append from being made; one of ``nothing`` may have been in order."""
        head = (await connection.execute(_HEAD, {"of_group": group_id})).one_or_none()
        version, epoch = (head.version, head.coordinator_epoch) if head else (0, self._epoch)
        if epoch > self._epoch:
            raise Superseded(f"{group_id} was taken over under epoch {epoch}; this is {self._epoch}")
        if version != expected_version or not nothing:
            raise VersionConflict(f"{group_id} is at version {version}, not {expected_version}")

    async def read(self, group_id: GroupId, *, after_version: int = 0) -> tuple[int, Sequence[Record]]:
        """Return how many records the group holds, and those after the first ``after_version``.

        Raises:
            StoreUnavailable: when the database is away.
            UnreadableRecord: when a record is missing or cannot be read.
        """
        async with reaching(self._engine) as connection:
            rows = (await connection.execute(_READ, {"of_group": group_id, "after": after_version})).all()
        if not rows:
            return 0, ()
        version: int = rows[0][0]
        stored = [StoredRecord(kind, written, payload.encode()) for _, kind, written, payload in rows if kind]
        if len(stored) != max(version - after_version, 0):
            raise UnreadableRecord(
                f"{group_id} has {len(stored)} records after the first {after_version}, and its head says {version}"
            )
        return version, decode_records(stored)

    async def group_ids(self) -> Sequence[GroupId]:
        """Return every group that holds records, sorted.

        Raises:
            StoreUnavailable: when the database is away.
        """
        async with reaching(self._engine) as connection:
            return sorted(GroupId(name) for name in (await connection.execute(_GROUPS)).scalars())

    async def take_over(self, group_id: GroupId) -> int:
        """Have every later append of a lower epoch fail, and return how many records the group holds.

        Raises:
            Superseded: when a higher epoch has taken it over already.
            StoreUnavailable: when the database is away; the group may have been taken over all the same.
        """
        async with reaching(self._engine) as connection:
            done = await connection.execute(_TAKE_OVER, {"of_group": group_id, "own_epoch": self._epoch})
            version: int | None = done.scalar_one_or_none()
        if version is None:
            raise Superseded(f"{group_id} was taken over under a higher epoch than {self._epoch}")
        return version
