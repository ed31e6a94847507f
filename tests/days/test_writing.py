"""A written day reads like one that a service has left: records, traces, and the parts of the tables."""

from datetime import UTC, datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.days.small_day import DAY
from tests.postgres.unleased import unleased_log

from batonpass.codec.records import encode_records
from batonpass.codec.traces import decode_trace, replay
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group
from batonpass.core.state.soft import Soft
from batonpass.days.rows import GroupRows
from batonpass.days.writing import make_days, write
from batonpass.invariants import check_group


async def test_a_written_day_reads_as_a_service_left_it(rows: GroupRows, engine: AsyncEngine) -> None:
    await make_days(engine, [DAY])
    await write(engine, rows)
    log = unleased_log(engine)
    loaded = await log.read(GroupId("small"), after_version=0)
    assert loaded.version == rows.version == len(loaded.records)
    group, soft, decided = Group(GroupId("small")), Soft(), 0
    async with engine.connect() as connection:
        question = text("select version, format, payload::text from traces order by version")
        traces = (await connection.execute(question)).all()
    ends = [*(version for version, _, _ in traces[1:]), loaded.version]
    for (version, form, payload), end in zip(traces, ends, strict=True):
        assert group.version == version
        trace = decode_trace(form, payload.encode())
        decision, soft = replay(group, soft, trace)
        written = loaded.records[version:end]
        assert encode_records(decision.records) == encode_records(written)
        group = evolve(group, written)
        decided += 1
    assert decided > 50
    assert list(check_group(group)) == []
    assert (await log.take_over(GroupId("small"))) == 3


async def test_rows_lie_in_the_parts_of_their_days(rows: GroupRows, engine: AsyncEngine) -> None:
    """The rest holds nothing but what came before midnight."""
    await make_days(engine, [DAY])
    await write(engine, rows)
    async with engine.connect() as connection:
        question = text("select tableoid::regclass::text, min(at), max(at) from assignment_events group by 1")
        parts = {name: (first, last) for name, first, last in (await connection.execute(question)).all()}
        heads = (await connection.execute(text("select version, coordinator_epoch, owner from group_heads"))).one()
        positions = (await connection.execute(text("select min(position), max(position), count(*) from events"))).one()
    first, last = parts[f"assignment_events_{DAY:%Y%m%d}"]
    assert first >= datetime(2026, 11, 20, tzinfo=UTC)
    assert last < datetime(2026, 11, 20, 3, tzinfo=UTC)
    assert tuple(heads) == (rows.version, 2, None)
    assert positions[1] - positions[0] + 1 == positions[2] == len(rows.tables["events"])
