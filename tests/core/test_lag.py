"""How far a copy has come: what counts as caught up, what is unknown, and what is of another incarnation."""

import pytest
from tests.core.scene import Scene, copy, failed, restoring, running, topology

from batonpass.core.handover.lag import (
    ASSUMED_RUNNING,
    COLD_COPY,
    UNREPORTED,
    Copy,
    caught_up_in_ms,
    changelogs_of,
    copy_as_reported,
    is_acceptable_lag,
    level_in_ms,
    measure_lag,
    measured_report,
)
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import EndOffsets, PollBroken, Started
from batonpass.core.state.model import ActiveState, OnLeaseLost, Role, Subtopology, Topology
from batonpass.core.state.pmap import PMap
from batonpass.core.state.policy import LAG_UNBOUNDED, GroupConfig
from batonpass.core.state.soft import EndOffset, MeasuredReport, Positions, Soft, TaskReport
from batonpass.placement.types import Readiness

LOG = ("log", 0)
LOGS = [("log", 0)]
ENDS = PMap({LOG: EndOffset(100, 50)})


def at(*positions: tuple[str, int], ends: Positions = ()) -> TaskReport:
    """Return the report of a standby at these positions."""
    return TaskReport("standby", positions=positions, end_offsets=ends)


def test_a_lag_that_was_reported_is_taken_as_it_is() -> None:
    assert measure_lag(copy("standby", 7), 60, PMap(), LOGS) == (7, False)


def test_nothing_reported_is_unknown() -> None:
    assert measure_lag(copy("standby", None), 60, ENDS, LOGS) == (None, False)
    assert measure_lag(TaskReport("standby", lag=0, lost=True), 60, ENDS, LOGS) == (None, False)


def test_a_position_needs_an_end_to_be_a_lag() -> None:
    assert measure_lag(at(("log", 90)), 60, ENDS, LOGS) == (10, False)
    assert measure_lag(at(("log", 90)), 60, PMap(), LOGS) == (None, False)
    assert measure_lag(at(("log", 90), ends=(("log", 95),)), 60, PMap(), LOGS) == (5, False)
    assert measure_lag(at(("log", 99), ends=(("log", 95),)), 60, PMap(), LOGS) == (0, False)


def test_of_two_ends_the_larger_one_counts() -> None:
    assert measure_lag(at(("log", 90), ends=(("log", 90),)), 60, ENDS, LOGS) == (10, False)
    assert measure_lag(at(("log", 90), ends=(("log", 105),)), 60, ENDS, LOGS) == (15, False)


def test_the_lags_of_several_changelogs_add_up() -> None:
    ends = PMap({("a", 3): EndOffset(100, 50), ("b", 3): EndOffset(40, 50)})
    logs = [("a", 3), ("b", 3)]
    assert measure_lag(at(("a", 90), ("b", 10)), 60, ends, logs) == (40, False)
    assert measure_lag(at(("a", 90)), 60, ends, logs) == (None, False)
    assert measure_lag(at(("a", 90), ("b", 10)), 60, ends.without(("b", 3)), logs) == (None, False)


def test_a_single_position_belongs_to_a_single_changelog() -> None:
    assert measure_lag(at(("", 90)), 60, ENDS, LOGS) == (10, False)
    assert measure_lag(at(("", 90)), 60, ENDS, [("log", 0), ("other", 0)]) == (None, False)
    assert measure_lag(at(("", 90), ends=(("", 93),)), 60, PMap(), []) == (3, False)


def test_a_topic_that_is_no_changelog_of_the_task_is_not_measured() -> None:
    assert measure_lag(at(("strange", 1), ("log", 90)), 60, ENDS, LOGS) == (None, False)
    of_before = at(("renamed", 90), ends=(("renamed", 90),))
    assert measure_lag(of_before, 60, ENDS, LOGS) == (None, False)


def test_a_position_beyond_an_older_end_is_merely_newer() -> None:
    """The changelog has grown since that end was read."""
    assert measure_lag(at(("log", 120)), 60, ENDS, LOGS) == (0, False)
    assert measure_lag(at(("log", 120)), 50, ENDS, LOGS) == (0, False)


def test_a_position_beyond_a_newer_end_is_another_incarnation() -> None:
    assert measure_lag(at(("log", 101)), 49, ENDS, LOGS) == (None, True)
    assert measure_lag(at(("log", 100)), 49, ENDS, LOGS) == (0, False)


def test_an_owners_last_commit_lies_beyond_the_stable_end_until_readers_may_see_it() -> None:
    """A cluster acknowledges a commit before it has written the markers; the log's end has the records already."""
    ends = PMap({LOG: EndOffset(100, 50, unstable=3)})
    assert measure_lag(at(("log", 103)), 49, ends, LOGS) == (0, False)
    assert measure_lag(at(("log", 104)), 49, ends, LOGS) == (None, True)


def test_state_beside_a_changelog_that_shrank_is_of_another_incarnation() -> None:
    shrunk = PMap({LOG: EndOffset(100, 50, shrunk=True)})
    assert measure_lag(at(("log", 10)), 60, shrunk, LOGS) == (None, True)


def test_the_changelogs_of_a_task_are_those_of_its_subtopology() -> None:
    scene = Scene()
    scene.declare(Topology(1, (Subtopology("0", 4, changelog_topics=("b", "a")), Subtopology("1", 4))))
    assert changelogs_of(scene.group, TaskId("0_3")) == [("b", 3), ("a", 3)]
    assert changelogs_of(scene.group, TaskId("1_3")) == []
    assert changelogs_of(scene.group, TaskId("gone_3")) == []
    assert changelogs_of(scene.group, TaskId("0_x")) == []


def test_the_first_report_begins_its_progress() -> None:
    report = copy("warmup", 50)
    assert measured_report(report, None, 10, (50, False)) == MeasuredReport(report, 10, 50, False, 10, None, 50, 10)


def test_the_rate_is_how_fast_the_lag_falls() -> None:
    first = measured_report(copy("warmup", 500), None, 1_000, (500, False))
    second = measured_report(copy("warmup", 300), first, 3_000, (300, False))
    assert (second.rate, second.progress_ms) == (100.0, 3_000)
    third = measured_report(copy("warmup", 400), second, 4_000, (400, False))
    assert (third.rate, third.progress_ms) == (0.0, 3_000)
    at_once = measured_report(copy("warmup", 200), third, 4_000, (200, False))
    assert (at_once.rate, at_once.progress_ms) == (0.0, 4_000)


def test_a_copy_that_has_stopped_has_no_rate_after_a_while_and_no_time_to_catch_up() -> None:
    """A mean that is halved with each report gets ever smaller, and the time that follows from it ever longer."""
    report = copy("none", 10_000)
    measured = measured_report(copy("none", 11_000), None, 0, (11_000, False))
    for number in range(1, 2_000):
        measured = measured_report(report, measured, number * 3_000, (10_000, False))
        left_ms = level_in_ms(Copy(Readiness.BEHIND, measured.lag, rate=measured.rate))
        assert left_ms is None or left_ms <= 10_000 * 1_000_000
    assert measured.rate == 0.0


def test_a_report_that_says_the_same_is_only_newer() -> None:
    first = measured_report(copy("warmup", 500), None, 1_000, (500, False))
    second = measured_report(copy("warmup", 500), first, 2_000, (500, False))
    third = measured_report(copy("warmup", 500), second, 3_000, (500, False))
    assert (third.at_ms, third.progress_ms, third.rate) == (3_000, 1_000, 0.0)


def test_progress_is_a_smaller_lag_a_greater_position_or_a_new_role() -> None:
    unknown = measured_report(at(("log", 10)), None, 1_000, (None, False))
    assert measured_report(at(("log", 11)), unknown, 2_000, (None, False)).progress_ms == 2_000
    assert measured_report(at(("log", 10)), unknown, 2_000, (None, False)).progress_ms == 1_000
    assert measured_report(at(("log", 10)), unknown, 2_000, (0, False)).progress_ms == 2_000
    assert (
        measured_report(TaskReport("warmup", positions=(("log", 10),)), unknown, 2_000, (None, False)).progress_ms
        == 2_000
    )
    known = measured_report(copy("warmup", 50), None, 1_000, (50, False))
    assert measured_report(copy("warmup", 51), known, 2_000, (51, False)).progress_ms == 1_000


def test_a_copy_comes_closer_when_its_lag_is_smaller_than_ever_before_in_its_role() -> None:
    def after(before: MeasuredReport, lag: int | None, now_ms: int, role: str = "warmup") -> MeasuredReport:
        return measured_report(copy(role, lag, positions=(("log", now_ms),)), before, now_ms, (lag, False))

    first = measured_report(copy("warmup", None), None, 1_000, (None, False))
    assert (first.least_lag, first.closer_ms) == (None, 1_000)
    known = after(first, 500, 2_000)
    assert (known.least_lag, known.closer_ms) == (500, 2_000)
    for lag in (500, 600, None, 510):
        # It reads on, and its lag falls from 600 to 510.
        assert (after(known, lag, 3_000).least_lag, after(known, lag, 3_000).closer_ms) == (500, 2_000)
        assert after(known, lag, 3_000).progress_ms == 3_000
    assert after(after(known, 600, 3_000), 499, 4_000).closer_ms == 4_000
    again = after(known, 900, 5_000, "standby")
    assert (again.least_lag, again.closer_ms) == (900, 5_000)


@pytest.mark.parametrize(
    ("lag", "rate", "within"),
    [(10, None, True), (11, None, False), (None, None, False), (100, 20.0, True), (101, 20.0, False), (50, 0.0, False)],
)
def test_caught_up_is_little_lag_or_little_time(lag: int | None, rate: float | None, *, within: bool) -> None:
    config = GroupConfig(acceptable_recovery_lag=10, acceptable_catchup_ms=5_000)
    assert is_acceptable_lag(lag, rate, config) is within


def test_without_a_catch_up_time_only_records_count() -> None:
    assert not is_acceptable_lag(100, 10_000.0, GroupConfig(acceptable_recovery_lag=10))


def test_the_time_to_catch_up_is_lag_by_rate() -> None:
    assert level_in_ms(ASSUMED_RUNNING) == 0
    assert level_in_ms(Copy(Readiness.CAUGHT_UP, 0)) == 0
    assert level_in_ms(Copy(Readiness.BEHIND, 500, rate=100.0)) == 5_000
    assert level_in_ms(Copy(Readiness.BEHIND, 500)) is None
    assert level_in_ms(Copy(Readiness.BEHIND, 500, rate=-3.0)) is None
    assert level_in_ms(UNREPORTED) is None


def test_the_time_that_people_are_shown_is_until_the_copy_counts_as_caught_up() -> None:
    config = GroupConfig(acceptable_recovery_lag=100)
    assert caught_up_in_ms(Copy(Readiness.BEHIND, 500, rate=100.0), config) == 4_000
    assert caught_up_in_ms(Copy(Readiness.BEHIND, 500), config) is None
    assert caught_up_in_ms(Copy(Readiness.BEHIND, 500, True, 100.0), config) is None
    assert caught_up_in_ms(Copy(Readiness.CAUGHT_UP, 50, True, 100.0), config) == 0


def on_stage() -> Scene:
    """Return a scene in which m1 runs 0_0 and 0_1, and m2 keeps standbys of both."""
    scene = Scene()
    scene.declare(num_standby_replicas=1, acceptable_recovery_lag=10)
    scene.join("m1")
    scene.tick()
    scene.obey()
    scene.join("m2", max_tasks=2)
    scene.settle()
    return scene


def look(scene: Scene, member: str, task: str = "0_0") -> Copy:
    """Return what a member has of a task."""
    return copy_as_reported(
        scene.group, scene.soft.members.get(MemberId(member)), scene.task(task), scene.member(member)
    )


def pair() -> tuple[Scene, str, str]:
    """Return a settled scene with the owner and the standby of 0_0."""
    scene = on_stage()
    task = scene.task("0_0")
    assert task.owner is not None
    return scene, task.owner, task.standbys[0]


def test_a_standby_is_as_ready_as_its_lag() -> None:
    scene, _, standby = pair()
    for report, want in (
        (copy("standby", 10), Readiness.CAUGHT_UP),
        (copy("standby", 11), Readiness.BEHIND),
        (copy("standby", None), Readiness.UNKNOWN),
        (copy("standby", 0, lost=True), Readiness.COLD),
    ):
        other = {task: copy("standby") for task in scene.held(standby, Role.STANDBY)}
        mine = {task: running() for task in scene.held(standby, Role.ACTIVE)}
        scene.beat(standby, mine | other | {"0_0": report})
        assert look(scene, standby).readiness is want, report


def test_a_copy_that_a_full_report_leaves_out_is_cold() -> None:
    """A member leaves out a copy that it has not started yet."""
    scene, _, standby = pair()
    scene.beat(standby, {task: running() for task in scene.held(standby, Role.ACTIVE)})
    assert look(scene, standby) == COLD_COPY


def test_before_any_report_actives_count_as_running_and_copies_as_unknown() -> None:
    scene, owner, standby = pair()
    scene.soft = Soft()
    scene.do(Started())
    assert look(scene, owner) == ASSUMED_RUNNING
    assert look(scene, standby) == UNREPORTED


def test_state_on_disk_is_marked_as_such() -> None:
    scene = on_stage()
    scene.join("m3", {"0_0": copy("none", 3), "0_1": copy("none", 90)}, max_tasks=0)
    assert look(scene, "m3") == Copy(Readiness.CAUGHT_UP, 3, on_disk=True)
    assert look(scene, "m3", "0_1") == Copy(Readiness.BEHIND, 90, on_disk=True)


def test_an_unbounded_acceptable_lag_counts_every_readable_copy() -> None:
    scene, _, standby = pair()
    scene.change(acceptable_recovery_lag=LAG_UNBOUNDED)
    scene.beat(standby, {"0_0": copy("standby", 10**12)})
    assert look(scene, standby).is_caught_up
    scene.beat(standby, {"0_0": copy("standby", None)})
    assert not look(scene, standby).is_caught_up


def test_an_owner_that_restores_is_as_ready_as_its_lag() -> None:
    scene = Scene()
    scene.declare(topology(1), acceptable_recovery_lag=10)
    scene.join("m1")
    scene.tick()
    assert look(scene, "m1") == COLD_COPY
    scene.beat("m1", {"0_0": restoring(500)})
    assert look(scene, "m1") == Copy(Readiness.BEHIND, 500)
    scene.beat("m1", {"0_0": restoring(None)})
    assert look(scene, "m1").readiness is Readiness.UNKNOWN
    scene.beat("m1", {"0_0": running()})
    assert look(scene, "m1") == ASSUMED_RUNNING
    scene.beat("m1", {"0_0": failed()})
    assert look(scene, "m1").readiness is Readiness.UNKNOWN
    scene.beat("m1", {"0_0": restoring(0, lost=True)})
    assert scene.task("0_0").state is ActiveState.LOST
    assert look(scene, "m1") == COLD_COPY


def test_an_owner_that_was_ready_when_granted_stays_so_until_it_says_otherwise() -> None:
    scene, owner, standby = pair()
    scene.beat(owner, {task: copy("none") for task in scene.held(owner, Role.ACTIVE)} | {"0_0": running(lost=True)})
    scene.beat(owner, {})
    assert scene.task("0_0").owner == standby
    assert scene.task("0_0").ready_grant
    assert look(scene, standby).is_caught_up
    scene.beat(standby, {"0_0": restoring(None)})
    assert look(scene, standby) == Copy(Readiness.CAUGHT_UP)
    scene.beat(standby, {"0_0": restoring(70)})
    assert look(scene, standby).readiness is Readiness.BEHIND


def test_the_copies_of_a_suspect_are_unknown() -> None:
    """What the member last said of its copies may have died with it."""
    scene = Scene()
    scene.declare(num_standby_replicas=1)
    scene.join("m1")
    scene.join("m2", on_lease_lost=OnLeaseLost.CONTINUE)
    scene.settle()
    (task,) = scene.held("m2", Role.STANDBY)
    assert look(scene, "m2", task).is_caught_up
    scene.do(PollBroken(MemberId("m2")))
    scene.wait(2_000)
    assert scene.member("m2").suspected
    assert look(scene, "m2", task) == UNREPORTED


def test_the_last_owner_counts_as_caught_up_until_its_next_report() -> None:
    """An owner demoted in place had everything when it stopped."""
    scene = Scene()
    scene.declare(topology(2), acceptable_recovery_lag=10)
    scene.join("m1")
    scene.settle()
    scene.join("m2")
    scene.obey("m2")
    moved = next(task for task in scene.group.table.ids if scene.task(task).handover.next_owner == "m2")
    assert scene.task(moved).handover.previous_owner == "m1"
    assert look(scene, "m1", moved).is_caught_up
    kept = {task: running() for task in scene.held("m1", Role.ACTIVE)}
    scene.beat("m1", kept | {moved: copy("standby", None)})
    assert look(scene, "m1", moved).is_caught_up
    scene.beat("m1", kept | {moved: copy("standby", 500)})
    assert look(scene, "m1", moved) == Copy(Readiness.BEHIND, 500)
    scene.beat("m1", kept | {moved: copy("standby", 0, lost=True)})
    assert look(scene, "m1", moved) == COLD_COPY


def on_kafka() -> Scene:
    """Return a scene whose coordinator reads the changelog: m1 runs 0_0, m2 keeps a standby at position 900 of 1000."""
    scene = Scene()
    scene.declare(
        Topology(1, (Subtopology("0", 1, changelog_topics=("log",)),)),
        num_standby_replicas=1,
        acceptable_recovery_lag=10,
    )
    scene.join("m1")
    scene.tick()
    scene.obey()
    scene.join("m2")
    scene.tick()
    scene.beat("m2", {"0_0": at(("log", 900))})
    read(scene, 1_000)
    return scene


def read(scene: Scene, end: int, *, begun_ms: int | None = None) -> None:
    """Let the coordinator read the end of the changelog, a millisecond later."""
    scene.now_ms += 1
    scene.do(EndOffsets({LOG: end}, scene.now_ms if begun_ms is None else begun_ms))


def test_end_offsets_turn_positions_into_lags() -> None:
    scene = on_kafka()
    assert look(scene, "m2") == Copy(Readiness.BEHIND, 100)
    read(scene, 905)
    assert look(scene, "m2").readiness is Readiness.UNKNOWN  # the end fell: another changelog


def test_state_of_another_incarnation_stays_unknown_through_its_next_reports() -> None:
    scene = on_kafka()
    read(scene, 100)
    read(scene, 101)
    assert look(scene, "m2").readiness is Readiness.UNKNOWN
    scene.beat("m2", {"0_0": at(("log", 900))})
    assert look(scene, "m2").readiness is Readiness.UNKNOWN
    read(scene, 150)
    assert look(scene, "m2").readiness is Readiness.UNKNOWN


def test_a_copy_that_was_rebuilt_is_read_again() -> None:
    scene = on_kafka()
    read(scene, 100)
    read(scene, 101)
    scene.now_ms += 1
    scene.beat("m2", {"0_0": at(("log", 95))})
    assert look(scene, "m2").lag == 6


def test_an_end_that_catches_up_with_a_position_clears_the_doubt() -> None:
    scene = on_kafka()
    read(scene, 1_001)
    scene.now_ms += 1
    scene.beat("m2", {"0_0": at(("log", 1_005))})
    read(scene, 1_004)
    assert look(scene, "m2").readiness is Readiness.UNKNOWN
    read(scene, 1_006)
    assert (look(scene, "m2").readiness, look(scene, "m2").lag) == (Readiness.CAUGHT_UP, 1)


def test_an_older_read_that_arrives_late_says_nothing() -> None:
    """A late read that counted would make the changelog look shorter."""
    scene = on_kafka()
    begun_ms = scene.now_ms
    read(scene, 1_100)
    read(scene, 1_000, begun_ms=begun_ms)
    assert look(scene, "m2") == Copy(Readiness.BEHIND, 200)


def test_ends_that_concern_nobody_change_nothing() -> None:
    scene = on_kafka()
    before = scene.soft.members
    scene.do(EndOffsets({("other", 0): 5}, scene.now_ms))
    scene.do(EndOffsets({LOG: 1_000}, scene.now_ms))
    assert scene.soft.members == before


def level(position: int) -> dict[str, TaskReport]:
    """Return what a member says that keeps a standby of 0_0, which has read all that it knows of."""
    return {"0_0": at(("log", position), ends=(("log", position),))}


def test_a_copy_that_was_caught_up_and_reads_on_counts_as_caught_up_until_its_next_report_is_due() -> None:
    scene = on_kafka()
    scene.beat("m2", level(1_000))
    said_ms, due_ms = scene.now_ms, scene.now_ms + 13_000
    assert scene.group.position_age_max_ms == 13_000
    while scene.now_ms + 1 < due_ms:
        scene.now_ms = min(scene.now_ms + 2_999, due_ms - 1)
        read(scene, 1_000 + scene.now_ms - said_ms)
        assert look(scene, "m2").is_caught_up
        scene.beat("m1")
        scene.beat("m2")
    scene.now_ms += 1
    read(scene, 14_000)
    assert (look(scene, "m2").readiness, look(scene, "m2").lag) == (Readiness.BEHIND, 13_000)


@pytest.mark.parametrize(
    "said",
    [at(("log", 1_000)), at(("log", 1_000), ends=(("log", 1_100),))],
    ids=["that names no end", "that is behind"],
)
def test_a_copy_counts_as_its_position_says_at_once(said: TaskReport) -> None:
    scene = on_kafka()
    scene.beat("m2", {"0_0": said})
    read(scene, 2_000)
    assert look(scene, "m2").lag == 1_000


def test_state_of_another_incarnation_is_noticed_however_young_its_report_is() -> None:
    scene = on_kafka()
    scene.beat("m2", level(1_000))
    read(scene, 10)
    assert look(scene, "m2").readiness is Readiness.UNKNOWN


@pytest.mark.parametrize("dies_after_ms", [0, 1_000, 4_000, 11_000, 14_000, 40_000])
def test_a_standby_that_stops_reading_just_after_it_reported_takes_nothing_over(dies_after_ms: int) -> None:
    """The owner writes 1,000 records a second until it dies; the other standby reports every ten seconds."""
    scene = Scene()
    scene.declare(
        Topology(1, (Subtopology("0", 1, changelog_topics=("log",)),)),
        num_standby_replicas=2,
        acceptable_recovery_lag=500,
    )
    for name in ("m1", "m2", "m3"):
        scene.join(name)
    scene.settle()
    owner, (stops, reads) = scene.task("0_0").owner, scene.task("0_0").standbys
    assert owner is not None
    began_ms, reported_ms = scene.now_ms, -10_000

    def end() -> int:
        return min(scene.now_ms - began_ms, dies_after_ms)

    scene.beat(stops, level(0))
    while scene.task("0_0").owner == owner:
        scene.tick(1_000)
        read(scene, end())
        if scene.now_ms - began_ms <= dies_after_ms:
            scene.beat(owner, {"0_0": running()})
        scene.beat(stops)
        if scene.now_ms - reported_ms >= 10_000:
            scene.beat(reads, level(end()))
            reported_ms = scene.now_ms
        else:
            scene.beat(reads)
        assert scene.now_ms - began_ms < 120_000
    # Until the owner had written more than is acceptable, either would have done.
    assert scene.task("0_0").owner == reads or dies_after_ms <= 500


def test_the_owner_of_unknown_position_is_not_disturbed_by_end_offsets() -> None:
    scene = on_kafka()
    read(scene, 5)
    assert look(scene, "m1") == ASSUMED_RUNNING
