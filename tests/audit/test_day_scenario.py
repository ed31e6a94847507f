"""A day's scenario is made from its records and samples, so that playing it comes to the same as the day."""

from dataclasses import replace
from functools import cache

import pytest
from tests.audit.small_day import BEGIN_MS, DAY_MS, MINUTE, NAMES, SCENARIO, Noted, lived

from batonpass.audit.day_scenario import DayScenario, NoDayScenario, Restore, Sampled, _restore_speed, day_scenario
from batonpass.audit.findings import Outcome, Value
from batonpass.audit.trials import attempt, choose, gets_better, grid, present, recommendation
from batonpass.core.state import records as r
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.model import Cause, Group
from batonpass.core.state.policy import GroupConfig
from batonpass.simulate.scenario.model import RESTORE_PER_SECOND, Act, Step
from batonpass.simulate.scenario.play import play


@cache
def noted() -> Noted:
    """What was noted of the small day."""
    return lived()


def scenario_of(found: Noted, sampled: Sampled | None = None) -> DayScenario:
    """Return the scenario of the day."""
    sampled = sampled or Sampled(found.lags, found.restored)
    return day_scenario(Group(GroupId("small")), found.records, sampled, begin_ms=BEGIN_MS, end_ms=BEGIN_MS + DAY_MS)


def test_members_come_and_go_in_the_scenario_as_they_did() -> None:
    """Each step is found at its time as near as records know it: a crash by a lost lease."""
    steps = [(step.act, step.worker) for step in scenario_of(noted()).scenario.steps]
    assert steps == [(step.act, step.worker) for step in SCENARIO.steps]
    for found, was in zip(scenario_of(noted()).scenario.steps, SCENARIO.steps, strict=True):
        # A coordinator's new start shows with its next record.
        assert abs(found.at_ms - was.at_ms) <= 6_000 or was.act is Act.COORDINATOR


def test_a_lost_disk_is_seen() -> None:
    """A worker that had to restore what it had before came back without its disk."""
    disks = {step.worker: step.keeps_disk for step in scenario_of(noted()).scenario.steps if step.act is Act.RETURN}
    assert disks == {"a": True, "b": True, "c": True, "d": False}


def test_members_settings_and_tasks_are_in_the_scenario() -> None:
    scenario = scenario_of(noted()).scenario
    assert scenario.present == NAMES
    assert {worker.name: worker.tags["zone"] for worker in scenario.workers} == {name: name for name in (*NAMES, "e")}
    assert scenario.config == {"max_warmup_replicas": 1, "num_standby_replicas": 1}
    assert [(subtopology.partitions, subtopology.stateful) for subtopology in scenario.subtopologies] == [
        (12, True),
        (2, False),
    ]
    assert scenario.until_ms == DAY_MS


def test_state_and_speed_are_in_the_scenario() -> None:
    scenario = scenario_of(noted()).scenario
    known = [size for size in scenario.subtopologies[0].records if size > 0]
    assert all(abs(size - 900_000) < 0.05 * 900_000 for size in known)
    assert all(abs(rate - 4.0) < 0.5 for rate in scenario.subtopologies[0].rate)
    assert all(8_000 < worker.restore_per_second < 12_000 for worker in scenario.workers)


def test_playing_the_scenario_comes_to_the_same_as_the_day() -> None:
    """Where two placements are equally good, the played day may take the other one: hence one move of tolerance."""
    day = scenario_of(noted())
    trial = attempt(day.scenario, present(day.scenario))
    assert isinstance(trial, Outcome)
    assert abs(trial.moves - day.lived.moves) <= 1
    assert day.lived.downtime_ms > 60_000
    assert abs(trial.downtime_ms - day.lived.downtime_ms) < 0.15 * day.lived.downtime_ms
    assert not trial.missed


def test_without_samples_the_speed_is_learnt_from_how_long_copies_took() -> None:
    day = scenario_of(noted(), Sampled())
    assert all(5_000 < worker.restore_per_second < 15_000 for worker in day.scenario.workers)
    assert any("comes from how long copies took" in one for one in day.left_out)
    # That somebody came back without its disk only samples tell. Here it is taken for ready, so it loses what it has.
    trial = attempt(day.scenario, present(day.scenario))
    assert isinstance(trial, Outcome)
    assert abs(trial.moves - day.lived.moves) <= 2
    assert abs(trial.downtime_ms - day.lived.downtime_ms) < 0.25 * day.lived.downtime_ms


def test_without_samples_and_restores_it_is_said_what_is_not_known() -> None:
    found = noted()
    early = replace(found, records=[one for one in found.records if one[1] < BEGIN_MS + 50 * MINUTE])
    day = scenario_of(early, Sampled())
    assert {worker.restore_per_second for worker in day.scenario.workers} == {RESTORE_PER_SECOND}
    assert any("no sample fell into a restore" in one and "is assumed" in one for one in day.left_out)


def test_restores_that_overlap_on_one_member_share_its_time() -> None:
    members, tasks = [MemberId(one) for one in "ab"], [TaskId(f"0_{place}") for place in range(3)]
    restores = [
        Restore(members[0], tasks[0], 0, 2_000),
        Restore(members[0], tasks[1], 1_000, 3_000),
        Restore(members[1], tasks[2], 0, 1_000),
    ]
    assert _restore_speed(restores, lambda _task, _at_ms: 4_000.0) == 3_000.0
    assert _restore_speed(restores, lambda _task, _at_ms: 300.0) is None


def test_the_day_on_which_a_group_was_declared_begins_when_all_its_tasks_first_ran() -> None:
    """Nothing tells what they had to restore when they first started."""
    found, whole = noted(), scenario_of(noted())
    sampled = Sampled(found.lags, found.restored)
    begin_ms, end_ms = BEGIN_MS - 60 * MINUTE, BEGIN_MS + DAY_MS
    day = day_scenario(Group(GroupId("small")), found.records, sampled, begin_ms=begin_ms, end_ms=end_ms)
    assert day.scenario.present == NAMES
    assert DAY_MS < (day.scenario.until_ms or 0) < DAY_MS + 10 * MINUTE
    assert "what came before all tasks of the new group first ran is left out" in day.left_out
    assert [step.act for step in day.scenario.steps] == [step.act for step in whole.scenario.steps]
    assert (day.lived.downtime_ms, day.lived.moves) == (whole.lived.downtime_ms, whole.lived.moves)
    declared = [one for one in found.records if not isinstance(one[2], r.ActiveReported)]
    with pytest.raises(NoDayScenario, match="never all ran"):
        day_scenario(Group(GroupId("small")), declared, sampled, begin_ms=begin_ms, end_ms=end_ms)


def test_what_is_left_out_is_said() -> None:
    found = noted()
    last = found.records[-1][1]
    more = [(2, last, r.TaskPinned(TaskId("0_0"), MemberId("a.1")))]
    day = scenario_of(replace(found, records=[*found.records, *more]))
    assert any("pauses, pins, storms and parked tasks" in one for one in day.left_out)


def test_a_takeover_is_a_crash_some_seconds_before() -> None:
    """When a run ended that another one replaced is not known; shortly before is assumed."""
    found = noted()
    joined = [record for _, _, record in found.records if isinstance(record, r.MemberJoined)]
    last = [one.member for one in joined if one.member.instance_id == "d"][-1]
    at_ms = BEGIN_MS + DAY_MS - 5 * MINUTE
    again = replace(last, id=MemberId("d.9"), joined_ms=at_ms)
    records: list[r.Record] = [r.MemberGone(last.id, Cause.TAKEN_OVER, at_ms, at_ms), r.MemberJoined(again)]
    day = scenario_of(replace(found, records=[*found.records, *((2, at_ms, one) for one in records)]))
    assert [(step.act, step.worker) for step in day.scenario.steps[-2:]] == [(Act.CRASH, "d"), (Act.RETURN, "d")]
    assert day.scenario.steps[-2].at_ms == DAY_MS - 5 * MINUTE - 10_000


def test_a_day_without_a_group_is_no_story() -> None:
    found = noted()
    end = found.records[-1][1]
    deleted = [*found.records, (2, end, r.GroupDeleted(end, end))]
    with pytest.raises(NoDayScenario, match="not declared"):
        scenario_of(replace(found, records=deleted))
    with pytest.raises(NoDayScenario, match="not declared"):
        scenario_of(replace(found, records=[]))
    of_streams = [*found.records, (2, end, r.ConfigChanged(GroupConfig(kafka_streams=True)))]
    with pytest.raises(NoDayScenario, match="Kafka Streams"):
        scenario_of(replace(found, records=of_streams))
    with pytest.raises(NoDayScenario, match="no members"):
        scenario_of(replace(found, records=[one for one in found.records if isinstance(one[2], r.GroupDeclared)]))


def hot_hours(balance_by: str) -> DayScenario:
    """Return three hours of the small day with two hot tasks on one member, of which one cools down half-way."""
    end_ms = 180 * MINUTE
    first, second = SCENARIO.subtopologies
    loads = tuple(0.5 if task in (0, 4) else 0.1 for task in range(12))
    cooler = Step(end_ms // 2, Act.MEASURED, loads={(0, 4): 0.1})
    config = {**SCENARIO.config, "balance_by": balance_by}
    found, parts = Noted(), (replace(first, load=loads), second)
    scenario = replace(SCENARIO, subtopologies=parts, config=config, steps=(cooler,), until_ms=end_ms)
    play(scenario, observer=found, start_ms=BEGIN_MS)
    new = Group(GroupId("small"))
    return day_scenario(new, found.records, Sampled(), begin_ms=BEGIN_MS, end_ms=BEGIN_MS + end_ms)


def tried_of(day: DayScenario, now: Outcome) -> list[dict[str, Value]]:
    """Return what is tried beside the present settings."""
    alone, together = grid(day.scenario, now)
    return [*alone, *together]


def test_a_day_in_shadow_carries_its_loads_and_tells_what_measured_load_would_have_brought() -> None:
    day = hot_hours("shadow")
    of_first, of_second = (one.load for one in day.scenario.subtopologies)
    assert of_first == pytest.approx([0.5 if task in (0, 4) else 0.1 for task in range(12)], rel=0.1)
    assert of_second == pytest.approx([0.1, 0.1], rel=0.1), "what says nothing weighs the median"
    changes = [step for step in day.scenario.steps if step.act is Act.MEASURED]
    assert changes
    assert changes[-1].at_ms >= 90 * MINUTE
    assert changes[-1].loads[0, 4] == pytest.approx(0.1, rel=0.1)
    now = attempt(day.scenario, present(day.scenario))
    assert isinstance(now, Outcome)
    (tried,) = [one for one in tried_of(day, now) if one["balance_by"] == "measured"]
    assert tried == {**present(day.scenario), "balance_by": "measured"}
    measured = attempt(day.scenario, tried)
    assert isinstance(measured, Outcome)
    assert gets_better([now, measured])
    assert day.lived.imbalance == pytest.approx(now.imbalance, abs=0.1)
    assert choose([now, measured], day.lived) is measured
    advice = recommendation("small", day, [now, measured])
    assert f"the hottest member has {measured.imbalance:.0%} more load than the average one" in advice.confidence
    assert choose([now, replace(measured, downtime_ms=now.downtime_ms + 61_000)], day.lived) is now
    assert choose([now, replace(measured, imbalance=None)], day.lived) is now


def test_a_day_by_declared_weights_has_no_loads_and_none_is_tried() -> None:
    day = hot_hours("declared")
    assert all(one.load == () for one in day.scenario.subtopologies)
    now = Outcome(present(day.scenario), 60_000, 10, 1_000)
    assert {one["balance_by"] for one in tried_of(day, now)} == {"declared"}
    assert day.lived.imbalance is None
