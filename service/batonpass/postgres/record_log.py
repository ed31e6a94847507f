"""The record log on Postgres, as one coordinator writes and reads it."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from asyncpg import InterfaceError, PostgresError  # type: ignore[import-untyped]
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.codec.groups import GROUP_VERSION
from batonpass.codec.records import StoredRecord, UnreadableRecord, decode_records
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group
from batonpass.postgres import snapshots
from batonpass.postgres.append import PLANNED, Prepared, parameters, prepare, statement
from batonpass.postgres.connect import STATEMENT_TIMEOUT_S, DedicatedConnection, Server, fetch_rows, reaching
from batonpass.postgres.leases import IS_LIVING
from batonpass.postgres.writer import Outcome, Writer
from batonpass.runtime.ports import Commit, Loaded, NotOwner, RecordLog, StoreUnavailable, Superseded, VersionConflict

CANCEL_TIMEOUT_S: Final = 1.0
LARGE_BYTES: Final = 256 * 1024
"""A commit from this size on goes out over a connection for large ones, so that the others do not wait for it."""

LOCKED_RETRY_S: Final = 0.05
"""How soon a commit is tried again whose group another session has locked."""

_HEADS: Final = (
    "select group_id, version, coordinator_epoch, owner from group_heads where group_id = any(cast($1 as text[]))"
)
_MAKE_HEADS: Final = (
    "insert into group_heads (group_id, version, coordinator_epoch, owner)"
    " select group_id, 0, epoch, $3 from unnest(cast($1 as text[]), cast($2 as bigint[])) as a(group_id, epoch)"
    " order by group_id on conflict (group_id) do nothing"
)
# An owner is live as long as it has a row; any coordinator that finds its lease over removes the row (fleet).
_MAY_BE_TAKEN: Final = (
    "group_id = :of_group and (owner is null or owner = :owner"
    " or not exists (select from coordinators c where c.id = owner))"
)
# Waits for no head that exists: other groups may be next in line.
_TAKE_OVER: Final = text(
    "with head as (select group_id from group_heads where group_id = :of_group),"  # noqa: S608 - constants
    f" free as (select group_id from group_heads where {_MAY_BE_TAKEN} for no key update skip locked),"
    " made as (insert into group_heads (group_id, version, coordinator_epoch, owner) select :of_group, 0, 1, :owner"
    " where not exists (select from head) on conflict (group_id) do nothing returning coordinator_epoch),"
    " taken as (update group_heads h set coordinator_epoch = h.coordinator_epoch + 1, owner = :owner from free"
    " where h.group_id = free.group_id returning h.coordinator_epoch)"
    " select coordinator_epoch from made union all select coordinator_epoch from taken"
)
_IS_FREE: Final = text(f"select exists (select from group_heads where {_MAY_BE_TAKEN})")  # noqa: S608 - constants
# One statement sees one state of the database: the head and the records fit together.
_READ: Final = text(
    "select h.version, h.recovered_at is not null, r.kind, r.version, cast(r.payload as text)"
    " from group_heads h left join record_log r on r.group_id = h.group_id and r.seq > :after"
    " where h.group_id = :of_group order by r.seq"
)
_GROUPS: Final = text(f"select group_id from group_heads h where {IS_LIVING}")  # noqa: S608 - constants
_KNOWS: Final = text("select 1 from group_heads where group_id = :of_group and version > 0")


class Tenure(Protocol):
    """The name under which a coordinator owns groups now, and what it may write (``fleet``)."""

    id: str

    def taken(self, group_id: GroupId, identity: str) -> None:
        """Called when a group was taken over under a name."""

    def writes_up_to(self) -> Mapping[str, int]:
        """Return, for each kind of record, the newest version that may be written."""


class PostgresRecordLog(RecordLog):
    """The records of all groups in one database."""

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        tenure: Tenure,
        writing: AsyncEngine | None = None,
        server: Server | None = None,
    ) -> None:
        """Append to groups owned under ``tenure``, over ``writing``, which should keep plans, or else ``engine``.

        ``server`` is that of both.
        """
        self._engine = engine
        self._tenure = tenure
        self._connections = (
            DedicatedConnection(writing or engine, server),
            DedicatedConnection(writing or engine, server),
        )
        self._small, self._large = (Writer(partial(self._write, line)) for line in self._connections)

    async def take_over(self, group_id: GroupId) -> int:
        """Become the group's only writer; ``StoreUnavailable`` is raised when another session has its head locked, too.

        If the database cannot be reached, the group may have been taken over all the same.
        """
        owner = self._tenure.id
        asked = {"of_group": group_id, "owner": owner}
        async with reaching(self._engine) as connection:
            epoch: int | None = (await connection.execute(_TAKE_OVER, asked)).scalar_one_or_none()
            is_locked = epoch is None and (await connection.execute(_IS_FREE, asked)).scalar_one()
        if is_locked:
            raise StoreUnavailable(f"Postgres: another session has the head of {group_id} locked")
        if epoch is None:
            raise NotOwner(f"another coordinator owns {group_id}")
        self._tenure.taken(group_id, owner)
        return epoch

    async def append(self, commit: Commit) -> None:
        work = partial(prepare, commit, self._tenure.writes_up_to())
        prepared = await asyncio.to_thread(work) if commit.is_large else work()
        writer = self._large if prepared.weight >= LARGE_BYTES else self._small
        ends_at = time.monotonic() + STATEMENT_TIMEOUT_S
        while True:
            try:
                return await writer.append(prepared)
            except _GroupLocked as error:
                if time.monotonic() > ends_at:
                    raise StoreUnavailable(f"Postgres: {error}, for {STATEMENT_TIMEOUT_S:.0f} s by now") from None
            await asyncio.sleep(LOCKED_RETRY_S)

    async def get_ready(self) -> None:
        """Have the append statements planned before they are needed: planning takes longer than carrying them out.

        Raises:
            StoreUnavailable: when the database cannot be reached.
        """
        for line in self._connections:
            async with line.lent() as driver:
                for parts in PLANNED:
                    await _carried_out(driver, (), parts, self._tenure.id)

    async def _write(self, line: DedicatedConnection, batch: Sequence[Prepared]) -> Sequence[Outcome]:
        owner = self._tenure.id
        parts = next(some for some in PLANNED if all(one.rows.keys() <= some for one in batch))
        async with line.lent() as driver:
            made = await _carried_out(driver, batch, parts, owner)
            outcomes = await _outcomes(driver, batch, made, owner)
            missing = [one for one, outcome in zip(batch, outcomes, strict=True) if isinstance(outcome, _NoHead)]
            made_now = [one for one in missing if not one.commit.expected_version]
            if made_now:
                groups = [one.commit.group_id for one in made_now]
                epochs = [one.commit.coordinator_epoch for one in made_now]
                await driver.execute(_MAKE_HEADS, groups, epochs, owner)
        if not made_now:
            return outcomes
        again = dict(zip(map(id, made_now), await self._write(line, made_now), strict=True))
        return [again.get(id(one), outcome) for one, outcome in zip(batch, outcomes, strict=True)]

    async def read(self, group_id: GroupId, *, after_version: int | None = None) -> Loaded:
        base: Group | None = None
        async with reaching(self._engine) as connection:
            if after_version is None:
                base = await snapshots.newest(connection, group_id)
            after = after_version if after_version is not None else base.version if base is not None else 0
            rows = (await connection.execute(_READ, {"of_group": group_id, "after": after})).all()
        if not rows:
            return Loaded(0, ())
        version, recovered = rows[0][:2]
        stored = [StoredRecord(kind, written, payload.encode()) for _, _, kind, written, payload in rows if kind]
        if len(stored) != max(version - after, 0):
            raise UnreadableRecord(
                f"{group_id} has {len(stored)} records after the first {after}, and its head says {version}"
            )
        # In a thread: one record may hold a hundred thousand tasks, and other groups are served meanwhile.
        records = await asyncio.to_thread(decode_records, stored)
        return Loaded(version, records, base, recovered=recovered)

    async def group_ids(self) -> Sequence[GroupId]:
        return sorted(GroupId(name) for (name,) in await fetch_rows(self._engine, _GROUPS))

    async def knows(self, group_id: GroupId) -> bool:
        return bool(await fetch_rows(self._engine, _KNOWS, of_group=group_id))

    async def keep_snapshot(self, group: Group) -> None:
        if self._tenure.writes_up_to().get(snapshots.KIND, GROUP_VERSION) >= GROUP_VERSION:
            await snapshots.keep(self._engine, group, self._tenure.id)


async def _carried_out(driver: Any, batch: Sequence[Prepared], parts: frozenset[str], owner: str) -> set[int]:
    """Write a batch; return the places of the commits that were made."""
    try:
        return {row[0] for row in await driver.fetch(statement(parts), *parameters(batch, parts, owner))}
    except TimeoutError:
        await _cancelled(driver)
        raise


async def _cancelled(driver: Any) -> None:
    """Wait until the server has processed the cancellation of a statement, or give the connection up."""
    try:
        await driver.execute("select 1", timeout=CANCEL_TIMEOUT_S)
    except (OSError, TimeoutError, PostgresError, InterfaceError):
        driver.terminate()


async def _outcomes(driver: Any, batch: Sequence[Prepared], made: set[int], owner: str) -> list[Outcome]:
    if len(made) == len(batch):
        return [None] * len(batch)
    failed = [one.commit for place, one in enumerate(batch, start=1) if place not in made]
    rows = await driver.fetch(_HEADS, [commit.group_id for commit in failed])
    heads = {name: (version, epoch, holder) for name, version, epoch, holder in rows}
    why = {commit.group_id: _refusal(commit, heads.get(commit.group_id), owner) for commit in failed}
    return [None if place in made else why[one.commit.group_id] for place, one in enumerate(batch, start=1)]


class _GroupLocked(VersionConflict):
    """The head is as the commit expects it, but another session has it locked, or one of the group's members."""


class _NoHead(VersionConflict):
    """The group has no head; a commit that expects version 0 may make one."""


def _refusal(commit: Commit, head: tuple[int, int, str | None] | None, owner: str) -> VersionConflict:
    group_id, expected = commit.group_id, commit.expected_version
    if head is None:
        return _NoHead(f"{group_id} is at version 0, not {expected}")
    version, epoch, holder = head
    if epoch > commit.coordinator_epoch or holder != owner:
        return Superseded(f"{group_id} was taken over under epoch {epoch}; this is {commit.coordinator_epoch}")
    if version == expected:
        return _GroupLocked(f"another session has rows of {group_id} locked")
    return VersionConflict(f"{group_id} is at version {version}, not {expected}")
