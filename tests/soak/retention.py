"""Has the database forget within minutes what it keeps for days: the same upkeep, by a clock that is days ahead."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.postgres.upkeep import Retention, Upkeep
from batonpass.runtime.ports import StoreUnavailable

AHEAD_DAYS: Final = 3
# Tables that are cut into days lose days as a whole: one day less is kept of them, and today goes at every turn.
KEPT: Final = Retention(
    changes=AHEAD_DAYS - 1,
    traces=AHEAD_DAYS - 1,
    samples=AHEAD_DAYS - 1,
    records=AHEAD_DAYS,
    generations=AHEAD_DAYS,
    events=AHEAD_DAYS,
    commands=AHEAD_DAYS,
    audits=AHEAD_DAYS,
)


async def forget(engine: AsyncEngine, *, keep_s: float) -> None:
    """Let go of what is older than ``keep_s``; where a coordinator holds a lock, the next turn will."""
    with suppress(StoreUnavailable, DBAPIError):
        await Upkeep(engine, KEPT).turn(datetime.now(UTC) + timedelta(days=AHEAD_DAYS, seconds=-keep_s))
