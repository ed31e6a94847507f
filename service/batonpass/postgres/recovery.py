"""After the database lost commits: a failover to a replica that was behind, or a restore from a backup.

Lost commits cannot be restored, and their epochs and positions must not be used again. So coordinator epochs and
positions of events leap above everything that may have been given out, coordinators lose their leases, and each group
is marked: the coordinator that reads it next gives it the input ``StoreRecovered`` (L3).
"""

from typing import Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.postgres.connect import fetch_rows

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
    """What was done: how many groups were marked, how many coordinators lost their leases, the position of events."""

    groups: int
    coordinators: int
    position: int


async def recover(engine: AsyncEngine) -> Recovered:
    """Prepare to go on after lost commits. Doing it twice is harmless: numbers leap again, groups are marked again.

    Coordinators may run meanwhile: appends based on what they have in memory are refused, and they read everything
    anew.

    Raises:
        StoreUnavailable: when the database cannot be reached; nothing, or everything, was done.
    """
    (row,) = await fetch_rows(engine, _RECOVER, positions=POSITION_LEAP, epochs=EPOCH_LEAP)
    return Recovered(*row)
