"""The rows of coordinators' leases. Only the database's clock counts, so clocks of machines may differ at will.

A coordinator is live as long as it has a row. Only the coordinator itself renews its row. Any other one may remove the
row, for good, when the lease is over: if a renewal and a removal meet, the second one sees the effect of the first.
Only groups whose owner has no row may be taken over.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.postgres.connect import execute, fetch_rows
from batonpass.postgres.tables import ms_of

LONGEST_MS: Final = 60_000
"""How long a lease may last (``BATONPASS_LEASE_MS``). One that has more left is from before the clock went back."""

_REGISTER: Final = text(
    "insert into coordinators (id, url, code, reads, expires_at)"
    " values (:id, :url, :code, cast(:reads as json), clock_timestamp() + :lease_ms * interval '1 millisecond')"
)
# With each renewal the clock's reading is kept. What a coordinator that starts reads should be soon after that.
_IS_APART: Final = "(:is_first and excluded.read_at > clock.read_at + :apart_ms * interval '1 millisecond')"
_RENEWED: Final = (
    "with renewed as (update coordinators set expires_at = clock_timestamp() + :lease_ms * interval '1 millisecond'"
    " where id = :id returning clock_timestamp() as at)"
)
# Whoever is writing the reading down keeps the row until the disk has it. Others have the same to write, and go on.
_RENEW: Final = text(
    f"{_RENEWED}, free as (select one from clock for no key update skip locked),"  # noqa: S608 - constants
    " noted as (update clock set read_at = at from renewed, free where clock.one = free.one)"
    f" select {ms_of('at')} from renewed"
)
_RENEW_AND_TELL: Final = text(
    f"{_RENEWED} insert into clock (one, read_at) select true, at from renewed on conflict (one) do update set"  # noqa: S608 - constants
    f" moved_at = case when :has_moved or {_IS_APART} then excluded.read_at else clock.moved_at end,"
    f" moved_from = case when {_IS_APART} then clock.read_at when :has_moved then null else clock.moved_from end,"
    f" read_at = excluded.read_at returning {ms_of('read_at')}, {ms_of('moved_at')}, {ms_of('moved_from')}"
)
# A row that is being renewed just now is left alone, and one that was renewed meanwhile is looked at again.
_REMOVE_EXPIRED: Final = text(
    "delete from coordinators where id in (select id from coordinators where expires_at < clock_timestamp()"
    " and id <> :id order by id for update skip locked)"
)
_SHORTEN: Final = text(
    "update coordinators set expires_at = clock_timestamp() + :longest_ms * interval '1 millisecond'"
    " where expires_at > clock_timestamp() + :longest_ms * interval '1 millisecond'"
)
_COORDINATORS: Final = text(
    "select id, url, code, cast(reads as text),"
    " cast(extract(epoch from expires_at - clock_timestamp()) * 1000 as bigint) from coordinators order by id"
)
IS_LIVING: Final = (
    "h.version > 0 and coalesce((select kind from record_log r where r.group_id = h.group_id and r.seq = h.version), '')"
    " <> 'group-deleted'"
)
"""Holds for a head ``h`` of a group that has more to come than the next declaration of its name. Written so that it
looks at one record of each group: Postgres would read the whole log for a join."""

_ORPHANS: Final = text(
    "select group_id from group_heads h"  # noqa: S608 - constants
    " where (owner is null or not exists (select from coordinators c where c.id = h.owner))"
    f" and {IS_LIVING}"
)
_OWNERS: Final = text(f"select group_id, owner from group_heads h where {IS_LIVING} order by group_id")  # noqa: S608
# A lease is renewed between releases, so none waits for a head that another session has locked.
_RELEASE: Final = text(
    "with free as (select group_id from group_heads where owner = :id and group_id = any(cast(:groups as text[]))"
    " order by group_id for no key update skip locked),"
    " released as (update group_heads h set owner = null from free where h.group_id = free.group_id"
    " returning h.group_id)"
    " select group_id from group_heads where owner = :id and group_id = any(cast(:groups as text[]))"
    " except select group_id from released"
)
# Those that are locked are free as well, as soon as their owner has no row.
_RELEASE_ALL: Final = text(
    "update group_heads set owner = null where group_id in (select group_id from group_heads where owner = :id"
    " order by group_id for no key update skip locked)"
)
_REMOVE: Final = text("delete from coordinators where id = :id")


class LiveCoordinator(NamedTuple):
    """A coordinator that has a row. ``left_ms`` is how much longer its lease lasts; below 0 it is over."""

    id: str
    url: str
    code: str
    reads: Mapping[str, int]
    left_ms: int


class Reading(NamedTuple):
    """The database's clock, in milliseconds since 1970.

    ``moved_ms`` is when it was last found to have moved, by itself; None: never. ``from_ms`` is the reading before
    that; None: not known.
    """

    at_ms: int
    moved_ms: int | None = None
    from_ms: int | None = None


class Leases:
    """The statements about leases, each a transaction of its own. Every one may raise ``StoreUnavailable``."""

    def __init__(self, engine: AsyncEngine, *, lease_ms: int) -> None:
        """Use connections that no other work can exhaust: a lease that cannot be renewed in time is lost."""
        self._engine = engine
        self._lease_ms = lease_ms

    async def register(self, identity: str, *, url: str, code: str, reads: Mapping[str, int]) -> None:
        said = {"id": identity, "url": url, "code": code, "reads": json.dumps(reads)}
        await execute(self._engine, _REGISTER, **said, lease_ms=self._lease_ms)

    async def renew(self, identity: str, *, is_first: bool = False, has_moved: bool = False) -> Reading | None:
        """Renew the lease, and read the clock; None once its row is gone.

        ``is_first``: this process has not read the clock before. So it counts as moved if no coordinator has read it
        for two leases: nobody knows whether so much time has passed. ``has_moved``: this process has seen it move.

        An expired lease can be renewed until another coordinator removes its row.
        """
        of: dict[str, Any] = {"id": identity, "lease_ms": self._lease_ms}
        statement = _RENEW
        if is_first or has_moved:
            statement = _RENEW_AND_TELL
            of |= {"apart_ms": 2 * self._lease_ms, "is_first": is_first, "has_moved": has_moved}
        rows = await fetch_rows(self._engine, statement, **of)
        return Reading(*rows[0]) if rows else None

    async def remove_expired(self, identity: str) -> int:
        """Remove the rows of all other coordinators whose leases are over; return how many there were."""
        return await execute(self._engine, _REMOVE_EXPIRED, id=identity)

    async def shorten(self) -> None:
        """Have no lease last longer than any may: those that do would be over only when the clock has caught up."""
        await execute(self._engine, _SHORTEN, longest_ms=LONGEST_MS)

    async def coordinators(self) -> Sequence[LiveCoordinator]:
        rows = await fetch_rows(self._engine, _COORDINATORS)
        return [LiveCoordinator(name, url, code, json.loads(reads), left) for name, url, code, reads, left in rows]

    async def orphans(self) -> Sequence[str]:
        """Return the groups that have records but no live owner."""
        return [group_id for (group_id,) in await fetch_rows(self._engine, _ORPHANS)]

    async def owners(self) -> dict[str, str | None]:
        """Return every group with the coordinator that owns it; None: it was released."""
        return dict(await fetch_rows(self._engine, _OWNERS))

    async def release(self, identity: str, groups: Sequence[str]) -> set[str]:
        """Give groups up, so that others may take them over at once; return those that another session has locked."""
        return {group_id for (group_id,) in await fetch_rows(self._engine, _RELEASE, id=identity, groups=groups)}

    async def remove(self, identity: str) -> None:
        """Release every group, and remove the row."""
        await execute(self._engine, _RELEASE_ALL, id=identity)
        await execute(self._engine, _REMOVE, id=identity)
