"""Samples of lags and rates are kept group by group, as the simulator and the audit read them."""

import json
from datetime import UTC, datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.postgres.archive import PostgresArchive
from batonpass.runtime.history import CopySample, Sample

AT_MS = 1_790_000_000_123


async def test_samples_are_kept(engine: AsyncEngine) -> None:
    copies = (
        CopySample(TaskId("0_1"), MemberId("m1"), "active", "running", 0, None),
        CopySample(TaskId("0_1"), MemberId("m2"), "warmup", "", 812, 40.5),
        CopySample(TaskId("0_2"), MemberId("m2"), "none", "", None, None),
    )
    await PostgresArchive(engine).keep_samples(
        [Sample(GroupId("orders"), AT_MS, copies), Sample(GroupId("clicks"), AT_MS + 1, ())]
    )
    async with engine.connect() as connection:
        ms = "cast(extract(epoch from at) * 1000 as bigint)"
        rows = await connection.execute(text(f"select group_id, {ms}, cast(copies as text) from samples order by at"))  # noqa: S608
        found = [(group, at, json.loads(copies)) for group, at, copies in rows]
    assert found == [
        (
            "orders",
            AT_MS,
            [
                ["0_1", "m1", "active", "running", 0, None],
                ["0_1", "m2", "warmup", "", 812, 40.5],
                ["0_2", "m2", "none", "", None, None],
            ],
        ),
        ("clicks", AT_MS + 1, []),
    ]


async def test_how_far_a_group_was_behind_is_read_back_without_the_copies(engine: AsyncEngine) -> None:
    def copies(lag: int | None) -> tuple[CopySample, ...]:
        return (
            CopySample(TaskId("0_1"), MemberId("m1"), "active", "running", 7, None),
            CopySample(TaskId("0_2"), MemberId("m1"), "active", "restoring", 100, None),
            CopySample(TaskId("0_1"), MemberId("m2"), "standby", "", lag, None),
            CopySample(TaskId("0_3"), MemberId("m2"), "warmup", "", 10, None),
            CopySample(TaskId("0_4"), MemberId("m2"), "none", "", 5, None),
        )

    orders, begin_ms = GroupId("orders"), AT_MS // 60_000 * 60_000
    samples = [Sample(orders, begin_ms + minute * 60_000, copies(minute or None)) for minute in range(6)]
    await PostgresArchive(engine).keep_samples([*samples, Sample(GroupId("clicks"), begin_ms, copies(9))])
    async with engine.begin() as connection:
        await connection.execute(
            text("insert into samples (group_id, at, copies) select 'orders', now(), '[]'"), {}
        )  # as an older program keeps it
    since = datetime.fromtimestamp(begin_ms / 1_000, UTC)
    archive, until = PostgresArchive(engine), since + timedelta(minutes=5)
    every = await archive.lags(orders, since=since, until=until, limit=100)
    assert every == [(begin_ms + minute * 60_000, 110 + minute) for minute in range(1, 6)], "the first is not after it"
    few = await archive.lags(orders, since=since, until=until, limit=2)
    assert (len(few), few[-1]) == (3 if begin_ms % 150_000 else 2, (begin_ms + 300_000, 115))
    assert await archive.lags(orders, since=until, until=datetime.now(UTC) + timedelta(days=900), limit=9) == []
