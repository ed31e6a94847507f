"""What every record log owes the runtime. A log that keeps its records elsewhere is added to ``LOGS``."""

from collections.abc import Callable

import pytest

from batonpass.codec.records import UnwritableRecord
from batonpass.core.ids import GroupId, MemberId
from batonpass.core.model import Member
from batonpass.core.records import EpochsRaised, MemberJoined, ProbeScheduled
from batonpass.runtime.memory_log import MemoryRecordLog
from batonpass.runtime.ports import RecordLog, VersionConflict

ORDERS, CLICKS = GroupId("orders"), GroupId("clicks")
LOGS: dict[str, Callable[[], RecordLog]] = {"memory": MemoryRecordLog}


@pytest.fixture(params=sorted(LOGS))
def log(request: pytest.FixtureRequest) -> RecordLog:
    """Return an empty log of each kind."""
    return LOGS[request.param]()


async def test_what_was_appended_is_read_in_order(log: RecordLog) -> None:
    """Records come back in order, with how many there are, from any version on."""
    await log.append(ORDERS, [ProbeScheduled(1), ProbeScheduled(2)], expected_version=0)
    await log.append(ORDERS, [ProbeScheduled(3)], expected_version=2)
    assert await log.read(ORDERS) == (3, (ProbeScheduled(1), ProbeScheduled(2), ProbeScheduled(3)))
    assert await log.read(ORDERS, after_version=2) == (3, (ProbeScheduled(3),))
    assert await log.read(ORDERS, after_version=3) == (3, ())


@pytest.mark.parametrize("expected_version", [0, 2])
async def test_an_unexpected_version_adds_nothing(log: RecordLog, expected_version: int) -> None:
    """An append that expects another version than the log has is refused whole (L4)."""
    await log.append(ORDERS, [ProbeScheduled(1)], expected_version=0)
    with pytest.raises(VersionConflict):
        await log.append(ORDERS, [ProbeScheduled(2)], expected_version=expected_version)
    assert await log.read(ORDERS) == (1, (ProbeScheduled(1),))


async def test_groups_do_not_see_one_another(log: RecordLog) -> None:
    """Each group has a version of its own, and the log lists those that hold anything."""
    assert await log.group_ids() == []
    await log.append(ORDERS, [ProbeScheduled(1)], expected_version=0)
    await log.append(CLICKS, [ProbeScheduled(2)], expected_version=0)
    assert await log.read(CLICKS) == (1, (ProbeScheduled(2),))
    assert await log.group_ids() == [CLICKS, ORDERS]
    assert await log.read(GroupId("unknown")) == (0, ())
    assert await log.group_ids() == [CLICKS, ORDERS]


async def test_what_is_read_is_not_what_was_written(log: RecordLog) -> None:
    """The log keeps a copy: changing what was handed in changes nothing that is read."""
    epochs = {MemberId("m1"): 3}
    await log.append(ORDERS, [EpochsRaised(epochs, 1)], expected_version=0)
    epochs[MemberId("m1")] = 99
    assert await log.read(ORDERS) == (1, (EpochsRaised({MemberId("m1"): 3}, 1),))


async def test_a_batch_with_one_bad_record_adds_nothing(log: RecordLog) -> None:
    """What has no stored form fails the whole append."""
    bad = MemberJoined(Member(MemberId("m1"), joined_ms=1, client_tags={"zone": object()}))  # type: ignore[dict-item]
    with pytest.raises(UnwritableRecord):
        await log.append(ORDERS, [ProbeScheduled(1), bad], expected_version=0)
    assert await log.read(ORDERS) == (0, ())
