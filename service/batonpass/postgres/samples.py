"""Samples of lags and rates, one row for each group and minute, and how far a group was behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.postgres.connect import reaching
from batonpass.runtime.history import Sample
from batonpass.runtime.ports import StoreUnavailable

_INSERT_SAMPLES: Final = text(
    "insert into samples (group_id, at, copies, behind)"
    " select r.group_id, timestamptz 'epoch' + r.at_ms * interval '1 millisecond', cast(r.copies as json), r.behind"
    " from unnest(cast(:groups as text[]), cast(:at_ms as bigint[]), cast(:copies as text[]), cast(:behind as bigint[]))"
    " as r(group_id, at_ms, copies, behind)"
)


class PostgresSamples:
    """Keeps samples in a database."""

    def __init__(self, engine: AsyncEngine) -> None:
        """Keep them in this database."""
        self._engine = engine

    async def keep_samples(self, samples: Sequence[Sample]) -> None:
        """Keep samples of several groups, all or none.

        Raises:
            StoreUnavailable: when they could not be kept; a lost sample is not replaced.
        """
        rows = {
            "groups": [one.group for one in samples],
            "at_ms": [one.at_ms for one in samples],
            "copies": [msgspec.json.encode(one.copies).decode() for one in samples],
            "behind": [one.behind for one in samples],
        }
        try:
            async with reaching(self._engine) as connection:
                await connection.execute(_INSERT_SAMPLES, rows)
        except DBAPIError as error:
            raise StoreUnavailable(f"Postgres did not take a sample: {error.orig}") from error
