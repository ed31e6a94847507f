"""What every record log owes the runtime. A log that keeps its records elsewhere is added to ``LOGS``."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.contracts.memory_store import MemoryLog

from batonpass.codec.records import StoredRecord, UnwritableRecord, decode_record, encode_record
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.model import ActiveState, Group, Member, Target
from batonpass.core.state.records import (
    ActiveReported,
    EpochsRaised,
    GroupDeleted,
    MemberJoined,
    ProbeScheduled,
    Record,
    TargetPlaced,
)
from batonpass.runtime.ports import Commit, Loaded, RecordLog, Superseded, VersionConflict

FIXTURES = Path(__file__).parent.parent / "fixtures" / "records-v1.jsonl"
ORDERS, CLICKS = GroupId("orders"), GroupId("clicks")
LOGS = ("memory_log", "postgres_log")


async def append(log: RecordLog, group_id: GroupId, records: Sequence[Record], expected_version: int) -> None:
    """Append as the coordinator that took the group over first."""
    await log.append(Commit(group_id, 1, expected_version, records))


@pytest.fixture
def memory_log() -> RecordLog:
    """Return an empty log in memory."""
    return MemoryLog()


@pytest.fixture(params=LOGS)
def log(request: pytest.FixtureRequest) -> RecordLog:
    """Return an empty log of each kind."""
    made: RecordLog = request.getfixturevalue(request.param)
    return made


async def test_what_was_appended_is_read_in_order(log: RecordLog) -> None:
    await append(log, ORDERS, [ProbeScheduled(1), ProbeScheduled(2)], 0)
    await append(log, ORDERS, [ProbeScheduled(3)], 2)
    assert await log.read(ORDERS) == Loaded(3, (ProbeScheduled(1), ProbeScheduled(2), ProbeScheduled(3)))
    assert await log.read(ORDERS, after_version=2) == Loaded(3, (ProbeScheduled(3),))
    assert await log.read(ORDERS, after_version=3) == Loaded(3, ())


async def test_a_reader_that_is_ahead_learns_where_the_log_is(log: RecordLog) -> None:
    """So lost commits show (L3)."""
    await append(log, ORDERS, [ProbeScheduled(1)], 0)
    assert await log.read(ORDERS, after_version=7) == Loaded(1, ())


@pytest.mark.parametrize("expected_version", [0, 2])
@pytest.mark.parametrize("count", [0, 1])
async def test_an_unexpected_version_adds_nothing(log: RecordLog, expected_version: int, count: int) -> None:
    """An append of nothing is refused too (L4)."""
    await append(log, ORDERS, [ProbeScheduled(1)], 0)
    with pytest.raises(VersionConflict):
        await append(log, ORDERS, [ProbeScheduled(2)] * count, expected_version)
    assert await log.read(ORDERS) == Loaded(1, (ProbeScheduled(1),))


@pytest.mark.parametrize("count", [0, 1])
async def test_a_group_that_is_not_there_is_at_version_0(log: RecordLog, count: int) -> None:
    with pytest.raises(VersionConflict):
        await append(log, ORDERS, [ProbeScheduled(1)] * count, 1)
    assert await log.read(ORDERS) == Loaded(0, ())
    assert await log.group_ids() == []


async def test_an_append_of_nothing_makes_no_group(log: RecordLog) -> None:
    await append(log, ORDERS, [], 0)
    assert await log.group_ids() == []
    assert not await log.knows(ORDERS)


async def test_of_writers_at_once_one_wins(log: RecordLog) -> None:
    """On a new group and on an old one (L4)."""
    for version in (0, 1):
        tried = [append(log, ORDERS, [ProbeScheduled(number)], version) for number in range(8)]
        outcomes = await asyncio.gather(*tried, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes if outcome is not None] == [VersionConflict] * 7
        winner = outcomes.index(None)
        assert await log.read(ORDERS, after_version=version) == Loaded(version + 1, (ProbeScheduled(winner),))


async def test_groups_do_not_see_one_another(log: RecordLog) -> None:
    assert await log.group_ids() == []
    await append(log, ORDERS, [ProbeScheduled(1)], 0)
    await append(log, CLICKS, [ProbeScheduled(2)], 0)
    assert await log.read(CLICKS) == Loaded(1, (ProbeScheduled(2),))
    assert await log.group_ids() == [CLICKS, ORDERS]
    assert [await log.knows(name) for name in (CLICKS, ORDERS, GroupId("unknown"))] == [True, True, False]
    assert await log.read(GroupId("unknown")) == Loaded(0, ())
    assert await log.group_ids() == [CLICKS, ORDERS]


async def test_groups_that_were_deleted_are_not_listed(log: RecordLog) -> None:
    """A coordinator that starts reads all that are listed, before it is ready: it need not read what is no more."""
    await append(log, ORDERS, [ProbeScheduled(1), GroupDeleted(2, 2)], 0)
    await append(log, CLICKS, [GroupDeleted(1, 1), ProbeScheduled(2)], 0)
    assert await log.group_ids() == [CLICKS]
    assert await log.knows(ORDERS)


async def test_groups_are_listed_in_one_order(log: RecordLog) -> None:
    """The order is that of code points, whatever language the store is set to."""
    names = [GroupId(name) for name in ("B", "a", "_", "é", "Z", "10", "9")]
    for name in names:
        await append(log, name, [ProbeScheduled(1)], 0)
    assert await log.group_ids() == sorted(names)


async def test_what_is_read_is_not_what_was_written(log: RecordLog) -> None:
    epochs = {MemberId("m1"): 3}
    await append(log, ORDERS, [EpochsRaised(epochs, 1)], 0)
    epochs[MemberId("m1")] = 99
    assert await log.read(ORDERS) == Loaded(1, (EpochsRaised({MemberId("m1"): 3}, 1),))


async def test_a_batch_with_one_bad_record_adds_nothing(log: RecordLog) -> None:
    bad = MemberJoined(Member(MemberId("m1"), joined_ms=1, client_tags={"zone": object()}))  # type: ignore[dict-item]
    with pytest.raises(UnwritableRecord):
        await append(log, ORDERS, [ProbeScheduled(1), bad], 0)
    assert await log.read(ORDERS) == Loaded(0, ())


async def test_every_kind_of_record_comes_back(log: RecordLog) -> None:
    entries = [json.loads(line) for line in FIXTURES.read_text().splitlines()]
    records = [
        decode_record(StoredRecord(entry["kind"], entry["version"], json.dumps(entry["payload"]).encode()))
        for entry in entries
    ]
    assert len(records) > 30
    await append(log, ORDERS, records, 0)
    assert await log.read(ORDERS) == Loaded(len(records), tuple(records))


@pytest.mark.parametrize("detail", ["a\0b", "\\u0000", 'quote " and \\', "\u2028 é 🏃", "'; drop table record_log; --"])
async def test_any_text_comes_back(log: RecordLog, detail: str) -> None:
    """Characters that stores trip over are among them."""
    record = ActiveReported(TaskId("0_1"), MemberId("m1"), ActiveState.FAILED, 1, detail)
    await append(log, ORDERS, [record], 0)
    assert await log.read(ORDERS) == Loaded(1, (record,))


async def test_what_is_read_is_in_the_order_in_which_it_was_written(log: RecordLog) -> None:
    """The order of mappings counts, too (L10)."""
    changes = {TaskId(f"0_{number}"): Target(MemberId("m1")) for number in (10, 9, 100, 2)}
    record = TargetPlaced(1, 1, 1, changes)
    await append(log, ORDERS, [record], 0)
    (found,) = (await log.read(ORDERS)).records
    assert encode_record(found) == encode_record(record)


async def test_each_takeover_closes_the_group_to_those_before(log: RecordLog) -> None:
    assert await log.take_over(ORDERS) == 1
    assert await log.group_ids() == []
    await log.append(Commit(ORDERS, 1, 0, [ProbeScheduled(1)]))
    assert await log.take_over(ORDERS) == 2
    for records in ([ProbeScheduled(2)], []):
        for expected_version in (0, 1):
            with pytest.raises(Superseded):
                await log.append(Commit(ORDERS, 1, expected_version, records))
    await log.append(Commit(ORDERS, 2, 1, [ProbeScheduled(3)]))
    assert await log.take_over(CLICKS) == 1
    assert await log.read(ORDERS) == Loaded(2, (ProbeScheduled(1), ProbeScheduled(3)))


async def test_a_group_is_the_same_with_and_without_a_snapshot(log: RecordLog) -> None:
    epoch = await log.take_over(ORDERS)
    group = Group(ORDERS)
    for version in range(6):
        await log.append(Commit(ORDERS, epoch, version, [ProbeScheduled(version)]))
        group = evolve(group, [ProbeScheduled(version)])
        if version == 3:
            await log.keep_snapshot(group)
    loaded = await log.read(ORDERS)
    assert loaded.version == 6
    assert evolve(loaded.base or Group(ORDERS), loaded.records) == group
    assert len((await log.read(ORDERS, after_version=0)).records) == 6
