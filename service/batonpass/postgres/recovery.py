"""After the database lost commits: a failover to a replica that was behind, or a restore from a backup.

What was lost cannot be had again, but it must not be done over under the same names. Coordinator epochs and positions
of events leap above everything that may have been given away; whoever coordinated before finds that it does so no more;
and each group is marked, so that it hears of the loss from whoever reads it next (L3).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.postgres.connect import reaching

EPOCH_LEAP: Final = 1 << 20
POSITION_LEAP: Final = 1 << 32

_RECOVER: Final = text(
    "with ended as (delete from coordinators returning id),"
    " leapt as (insert into event_counter as e (id, position) values (1, :positions)"
    " on conflict (id) do update set position = e.position + excluded.position returning position),"
    " marked as (update group_heads set coordinator_epoch = coordinator_epoch + :epochs, owner = null,"
    " recovered_at = clock_timestamp() returning group_id)"
    " select (select count(*) from marked), (select count(*) from ended), (select position from leapt)"
)


class Recovered(NamedTuple):
    """What was done: how many groups will be told, how many coordinators lost their leases, the position of events."""

    groups: int
    coordinators: int
    position: int


async def recover(engine: AsyncEngine) -> Recovered:
    """Have everything go on after lost commits. Once more does no harm: numbers leap again, and groups are told again.

    Coordinators may run meanwhile: what they have in memory is refused, and they read everything anew.

    Raises:
        StoreUnavailable: when the database is away; nothing, or everything, was done.
    """
    async with reaching(engine) as connection:
        row = await connection.execute(_RECOVER, {"positions": POSITION_LEAP, "epochs": EPOCH_LEAP})
        return Recovered(*row.one())
