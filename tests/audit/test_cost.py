"""A day and a what-if are counted alike, also from a group that was there before, to the millisecond."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.audit.small_day import BEGIN_MS, DAY_MS, MINUTE, SCENARIO, Noted

from batonpass.audit.cost import Cost
from batonpass.audit.entries import read_entries
from batonpass.audit.fold import GroupFold
from batonpass.audit.plan import GroupPlan
from batonpass.audit.rows import Gap
from batonpass.codec.records import encode_record
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Cause, Group, Subtopology, Topology
from batonpass.core.state.records import GroupDeleted, MemberGone, Record, TopologyChanged
from batonpass.simulate.scenario.model import Act, Scenario, Step
from batonpass.simulate.scenario.play import LEAD_MS, play

FENCED = replace(SCENARIO, workers=tuple(replace(one, fenced=True) for one in SCENARIO.workers))
BEGINS = {
    "a group that was there before": BEGIN_MS,
    "from its declaration, with first starts": BEGIN_MS - LEAD_MS - MINUTE,
    "in the middle of a restore": BEGIN_MS + 200 * MINUTE + 50_000,
}
DAYS: dict[str, Scenario] = {
    "leases run out": SCENARIO,
    "suspects are taken over from": FENCED,
    "nobody is there at first": replace(
        FENCED,
        present=(),
        steps=(*(Step(MINUTE + place, Act.JOIN, name) for place, name in enumerate("abcd")), *FENCED.steps),
    ),
}


def gaps(noted: Noted, begin_ms: int, end_ms: int) -> Sequence[Gap]:
    """Return the gaps that the audit finds in a day."""
    group = GroupPlan(group="small", base=0, known=True, first=1, last=len(noted.records), missing=0)
    fold = GroupFold(group, begin_ms, end_ms)
    for seq, (epoch, at_ms, record) in enumerate(noted.records, start=1):
        for entry in read_entries(seq, at_ms, epoch, encode_record(record))[0]:
            fold.take(entry)
    fold.end()
    return fold.gaps


@pytest.mark.parametrize("day", DAYS)
def test_the_audit_and_a_what_if_count_the_same_downtime(day: str) -> None:
    noted = Noted()
    play(DAYS[day], observer=noted, start_ms=BEGIN_MS)
    end_ms = BEGIN_MS + DAY_MS
    sums = {}
    for name, begin_ms in BEGINS.items():
        before = [record for _, at_ms, record in noted.records if at_ms < begin_ms]
        cost = Cost(evolve(Group(GroupId("small")), before), begin_ms=begin_ms, end_ms=end_ms)
        for _, at_ms, record in noted.records[len(before) :]:
            cost.take((record,), at_ms)
        sums[name] = cost.counted().downtime_ms
        assert sums[name] == sum(one.gap_ms for one in gaps(noted, begin_ms, end_ms))
    assert min(sums.values()) > 0
    assert sums["from its declaration, with first starts"] >= sums["a group that was there before"]


OTHERS = Topology(subtopologies=(Subtopology("other", 1),))


@pytest.mark.parametrize("ends", [GroupDeleted(0, 0), TopologyChanged(OTHERS)])
def test_the_audit_and_a_what_if_count_no_downtime_of_what_no_longer_exists(ends: Record) -> None:
    noted = Noted()
    play(replace(SCENARIO, steps=(), until_ms=30 * MINUTE), observer=noted, start_ms=BEGIN_MS)
    before, end_ms = list(noted.records), BEGIN_MS + DAY_MS
    epoch, at_ms = before[-1][0], BEGIN_MS + MINUTE
    members = evolve(Group(GroupId("small")), (one for *_, one in before)).members
    gone_ms = at_ms + MINUTE
    left = [MemberGone(member, Cause.LEFT, gone_ms, gone_ms) for member in members]

    def downtime_ms(*after: tuple[int, Record]) -> int:
        noted.records = [*before, *((epoch, *one) for one in after)]
        cost = Cost(Group(GroupId("small")), begin_ms=BEGIN_MS, end_ms=end_ms)
        for _, taken_ms, record in noted.records:
            cost.take((record,), taken_ms)
        counted_ms = cost.counted().downtime_ms
        assert counted_ms == sum(one.gap_ms for one in gaps(noted, BEGIN_MS, end_ms))
        return counted_ms

    all_left = [(gone_ms, one) for one in left]
    running_ms = downtime_ms()
    assert downtime_ms(*all_left) == running_ms + 14 * (end_ms - gone_ms)
    assert downtime_ms((at_ms, replaced(ends, at_ms)), *all_left) == running_ms
    ends_ms = gone_ms + MINUTE
    assert downtime_ms(*all_left, (ends_ms, replaced(ends, ends_ms))) == running_ms + 14 * MINUTE


def replaced(ends: Record, at_ms: int) -> Record:
    """Return the record as it is written at an instant."""
    return replace(ends, at_ms=at_ms) if isinstance(ends, GroupDeleted) else ends
