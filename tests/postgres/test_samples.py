"""Samples of lags and rates are kept group by group, as the simulator and the audit read them."""

import json

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.postgres.samples import PostgresSamples
from batonpass.runtime.history import CopySample, Sample

AT_MS = 1_790_000_000_123


async def test_samples_are_kept(engine: AsyncEngine) -> None:
    copies = (
        CopySample(TaskId("0_1"), MemberId("m1"), "active", "running", 0, None),
        CopySample(TaskId("0_1"), MemberId("m2"), "warmup", "", 812, 40.5),
        CopySample(TaskId("0_2"), MemberId("m2"), "none", "", None, None),
    )
    await PostgresSamples(engine).keep_samples(
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
