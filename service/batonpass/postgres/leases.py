"""The rows of coordinators' leases. Only the database's clock counts, so clocks of machines may differ at will.

A coordinator is live as long as it has a row. Only the coordinator itself renews its row. Any other one may remove the
row, for good, when the lease is over: if a renewal and a removal meet, the second one sees the effect of the first.
Only groups whose owner has no row may be taken over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.postgres.connect import reaching

LONGEST_MS: Final = 60_000
"""How long a lease may last (``BATONPASS_LEASE_MS``). One that has more left is from before the clock went back."""

_REGISTER: Final = text(
    "insert into coordinators (id, url, code, reads, expires_at)"
    " values (:id, :url, :code, cast(:reads as json), clock_timestamp() + :lease_ms * interval '1 millisecond')"
)
_RENEW: Final = text(
    "update coordinators set expires_at = clock_timestamp() + :lease_ms * interval '1 millisecond' where id = :id"
    " returning cast(extract(epoch from clock_timestamp()) * 1000 as bigint)"
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
_ORPHANS: Final = text(
    "select group_id from group_heads h where version > 0"
    " and (owner is null or not exists (select from coordinators c where c.id = h.owner))"
)
_OWNERS: Final = text("select group_id, owner from group_heads where version > 0 order by group_id")
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


class Leases:
    """The statements about leases, each a transaction of its own. Every one may raise ``StoreUnavailable``."""

    def __init__(self, engine: AsyncEngine, *, lease_ms: int) -> None:
        """Use connections that no other work can exhaust: a lease that cannot be renewed in time is lost."""
        self._engine = engine
        self._lease_ms = lease_ms

    async def register(self, identity: str, *, url: str, code: str, reads: Mapping[str, int]) -> None:
        """Make the row of a coordinator that starts."""
        parameters = {"id": identity, "url": url, "code": code, "reads": json.dumps(reads), "lease_ms": self._lease_ms}
        async with reaching(self._engine) as connection:
            await connection.execute(_REGISTER, parameters)

    async def renew(self, identity: str) -> int | None:
        """Renew the lease. Return the database's time, in milliseconds since 1970; None once its row is gone.

        An expired lease can be renewed until another coordinator removes its row.
        """
        async with reaching(self._engine) as connection:
            done = await connection.execute(_RENEW, {"id": identity, "lease_ms": self._lease_ms})
            database_ms: int | None = done.scalar_one_or_none()
            return database_ms

    async def remove_expired(self, identity: str) -> int:
        """Remove the rows of all other coordinators whose leases are over; return how many there were."""
        async with reaching(self._engine) as connection:
            return (await connection.execute(_REMOVE_EXPIRED, {"id": identity})).rowcount

    async def shorten(self) -> None:
        """Have no lease last longer than any may: those that do would be over only when the clock has caught up."""
        async with reaching(self._engine) as connection:
            await connection.execute(_SHORTEN, {"longest_ms": LONGEST_MS})

    async def coordinators(self) -> Sequence[LiveCoordinator]:
        """Return every coordinator that has a row."""
        async with reaching(self._engine) as connection:
            rows = await connection.execute(_COORDINATORS)
            return [LiveCoordinator(name, url, code, json.loads(reads), left) for name, url, code, reads, left in rows]

    async def orphans(self) -> Sequence[str]:
        """Return the groups that have records but no live owner."""
        async with reaching(self._engine) as connection:
            return list((await connection.execute(_ORPHANS)).scalars())

    async def owners(self) -> dict[str, str | None]:
        """Return every group that holds records with the coordinator that owns it; None: it was released."""
        async with reaching(self._engine) as connection:
            rows = await connection.execute(_OWNERS)
            return {row.group_id: row.owner for row in rows}

    async def release(self, identity: str, groups: Sequence[str]) -> set[str]:
        """Give groups up, so that others may take them over at once; return those that another session has locked."""
        async with reaching(self._engine) as connection:
            return set((await connection.execute(_RELEASE, {"id": identity, "groups": groups})).scalars())

    async def remove(self, identity: str) -> None:
        """Release every group, and remove the row."""
        async with reaching(self._engine) as connection:
            await connection.execute(_RELEASE_ALL, {"id": identity})
            await connection.execute(_REMOVE, {"id": identity})
