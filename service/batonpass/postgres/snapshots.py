"""Snapshots of whole groups, the newest few of each. A load begins with the newest that this program can read."""

import asyncio
import zlib
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from batonpass.codec.groups import GROUP_VERSION, UnreadableGroup, decode_group, encode_group
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group
from batonpass.postgres.connect import execute

KIND: Final = "group-snapshot"
"""The name under which a coordinator registers which version of a stored group it reads."""

KEPT: Final = 3
"""How many are kept of each group, in case the newest cannot be read."""

_COMPRESSION: Final = 1

# Only the owner may store a snapshot, and only of a version that is in the log: memory may be ahead after lost commits.
_KEEP: Final = text(
    "insert into snapshots (group_id, version, format, payload)"
    " select group_id, :version, :format, :payload from group_heads"
    " where group_id = :of_group and owner = :owner and version >= :version on conflict do nothing"
)
# The last one of each day stays too, so that any day can be replayed from near its beginning (``upkeep``).
_DROP: Final = text(
    "delete from snapshots where group_id = :of_group and version not in"
    " (select version from snapshots where group_id = :of_group order by version desc limit :kept)"
    " and version not in (select max(version) from snapshots where group_id = :of_group"
    " group by date_trunc('day', at, 'UTC'))"
)
_NEXT: Final = text(
    "select version, format, payload from snapshots where group_id = :of_group and version < :below"
    " order by version desc limit 1"
)


async def keep(engine: AsyncEngine, group: Group, owner: str) -> None:
    """Store a snapshot of a group at its version, if ``owner`` owns the group.

    Raises:
        StoreUnavailable: when the database cannot be reached.
    """
    payload = await asyncio.to_thread(lambda: zlib.compress(encode_group(group), _COMPRESSION))
    of, stored = group.id, {"version": group.version, "format": GROUP_VERSION, "payload": payload}
    await execute(engine, _KEEP, of_group=of, owner=owner, **stored)
    await execute(engine, _DROP, of_group=of, kept=KEPT)


async def newest(connection: AsyncConnection, group_id: GroupId) -> Group | None:
    """Return the newest snapshot that can be read; None: the records have to be read from the first one on."""
    below = 2**63 - 1
    while True:
        row = (await connection.execute(_NEXT, {"of_group": group_id, "below": below})).one_or_none()
        if row is None:
            return None
        below, version, payload = row
        try:
            return await asyncio.to_thread(lambda: decode_group(version, zlib.decompress(payload)))  # noqa: B023
        except (UnreadableGroup, zlib.error):
            continue
