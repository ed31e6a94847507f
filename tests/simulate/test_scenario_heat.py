"""How hot the hottest member was, counted from records alone, is what the group itself would say at every instant."""

from dataclasses import replace
from typing import Any

import pytest
from tests.audit.small_day import SCENARIO

from batonpass.core.decide import Decision
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import Input
from batonpass.core.state.model import Group, Member
from batonpass.core.state.policy import BalanceBy, GroupConfig
from batonpass.core.state.records import (
    ConfigChanged,
    DrainStarted,
    ImbalanceNoted,
    LoadsMeasured,
    MemberJoined,
    MovedForLoad,
    TargetPlaced,
)
from batonpass.core.state.soft import Soft
from batonpass.core.target.load import by_measured, imbalance
from batonpass.simulate.scenario.heat import Heat
from batonpass.simulate.scenario.play import play

HOUR = 3_600_000
A, B, ONE, TWO = MemberId("a"), MemberId("b"), TaskId("0_0"), TaskId("0_1")


def begun(**config: Any) -> Heat:
    """Return the heat of two members with one task each, of which the first weighs three times as much."""
    heat = Heat(Group(GroupId("g")), begin_ms=0, end_ms=10 * HOUR)
    heat.take(ConfigChanged(GroupConfig(balance_by=BalanceBy.SHADOW, **config)), 0)
    for member_id in (A, B):
        heat.take(MemberJoined(Member(member_id, joined_ms=0)), 0)
    heat.take(TargetPlaced(1, 1, 0, {ONE: (A, (), ""), TWO: (B, (), "")}), 0)  # type: ignore[dict-item]
    heat.take(LoadsMeasured({ONE: 3.0, TWO: 1.0}), 0)
    return heat


def test_each_imbalance_counts_for_as_long_as_it_lasted() -> None:
    heat = begun()
    heat.take(LoadsMeasured({TWO: 3.0}), 4 * HOUR)
    assert heat.mean() == pytest.approx(0.5 * 4 / 10)


def test_who_drains_and_what_is_not_measured_does_not_count() -> None:
    heat = begun()
    heat.take(DrainStarted(B, 5 * HOUR, None, 6 * HOUR), 5 * HOUR)
    heat.take(ConfigChanged(GroupConfig()), 8 * HOUR)
    assert heat.mean() == pytest.approx(0.5 * 5 / 8)
    assert Heat(Group(GroupId("g")), begin_ms=0, end_ms=HOUR).mean() is None


def test_how_long_a_member_was_too_hot_and_what_moved_is_counted_within_the_day() -> None:
    heat = Heat(Group(GroupId("g"), hot_since_ms=1), begin_ms=HOUR, end_ms=10 * HOUR)
    heat.take(MovedForLoad((ONE,), 0), HOUR - 1)
    heat.take(MovedForLoad((ONE, TWO), 0), 2 * HOUR)
    heat.take(ImbalanceNoted(None), 3 * HOUR)
    heat.take(ImbalanceNoted(9 * HOUR), 9 * HOUR)
    heat.mean()
    assert (heat.hot_ms, heat.moves) == (3 * HOUR, 2)


def test_the_group_itself_would_say_the_same_at_every_record() -> None:
    """Members join, die, come back under other ids and drain meanwhile, and loads change."""
    first, second = SCENARIO.subtopologies
    hot = replace(first, load=(0.5, *(0.1,) * 11))
    config = {**SCENARIO.config, "balance_by": "measured", "load_half_life_ms": 60_000, "load_patience_ms": 60_000}
    heat = Heat(Group(GroupId("small")), begin_ms=-(2**60), end_ms=2**60)
    seen: set[float] = set()

    class Held:
        def decided(self, group: Group, soft: Soft, item: Input, decision: Decision, now_ms: int) -> None:
            del group, soft, item
            for record in decision.records:
                heat.take(record, now_ms)
            after = decision.after
            if after.loads and any(one.drain is None for one in after.members.values()):
                counted = heat._count()
                assert counted == pytest.approx(imbalance(by_measured(after)))
                seen.add(round(counted or 0.0, 2))

        def minute(self, group: Group, soft: Soft, now_ms: int) -> None:
            """Nothing happens by time alone."""

    quick = tuple(replace(step, at_ms=step.at_ms // 4) for step in SCENARIO.steps)
    parts, end_ms = (hot, second), quick[-1].at_ms + HOUR // 6
    play(replace(SCENARIO, subtopologies=parts, config=config, steps=quick, until_ms=end_ms), observer=Held())
    assert len(seen) > 3
    assert heat.moves > 0
