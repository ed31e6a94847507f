"""No number from outside stops a group: each is bounded, and placement is no condition of anything but balance."""

from collections.abc import Mapping
from fractions import Fraction

import pytest
from tests.core.scene import Scene, copy, running, topology

from batonpass.core.arrivals.recovery import PLAUSIBLE_LEAP_MAX
from batonpass.core.handover.lag import measure_lag
from batonpass.core.handover.state_size import state_sizes
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import EndOffsets, Eviction, Heartbeat, Join, PauseRequest, ProbeRequest
from batonpass.core.state.model import Role, Subtopology, Topology
from batonpass.core.state.numbers import WHOLE_MAX, bounded_sum
from batonpass.core.state.pmap import PMap
from batonpass.core.state.policy import RANGES
from batonpass.core.state.replies import Answer, Done
from batonpass.core.state.soft import EndOffset, TaskReport
from batonpass.dry_run.plan import plan_snapshot
from batonpass.explain.status import snapshot_of
from batonpass.placement.quotas import whole_shares

M1, M2, M3 = MemberId("m1"), MemberId("m2"), MemberId("m3")
HUGE = (("", WHOLE_MAX),)


def three(**config: object) -> Scene:
    """Return four tasks with a standby each on three members, whose leases are short."""
    scene = Scene()
    short = {"session_timeout_ms": 4_000, "heartbeat_interval_ms": 1_000, "max_lost_share": 1.0}
    scene.declare(
        Topology(1, (Subtopology("0", 4, changelog_topics=("a", "b")),)), **{"num_standby_replicas": 1} | short | config
    )
    for name in ("m1", "m2", "m3"):
        scene.join(name)
    scene.settle()
    return scene


def both(offset: int) -> tuple[tuple[str, int], ...]:
    return (("a", offset), ("b", offset))


REPORTS: Mapping[str, TaskReport] = {
    "a lag and a position": TaskReport("standby", lag=WHOLE_MAX, positions=HUGE),
    "ends of two changelogs": TaskReport("standby", positions=both(0), end_offsets=both(WHOLE_MAX)),
    "positions of two changelogs": TaskReport("standby", positions=both(WHOLE_MAX), end_offsets=both(WHOLE_MAX)),
    "sizes on disk": TaskReport("standby", lag=0, disk_bytes=WHOLE_MAX),
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_a_silent_member_is_missed_whatever_numbers_another_reports(report: TaskReport) -> None:
    scene = three()
    (task, *_) = scene.held("m2", Role.STANDBY)

    def beat() -> None:
        held = scene.member("m2").assignment.items()
        reports = {name: running() if grant.role is Role.ACTIVE else copy(grant.role) for name, grant in held}
        scene.beat("m2", reports | {task: report})

    for _ in range(10):
        beat()
        scene.obey("m3")
        scene.tick(1_000)
    assert M1 not in scene.group.members
    assert not scene.group.placement_failed
    assert None not in scene.owners().values()
    scene.join("m4", max_disk_bytes=WHOLE_MAX, max_tasks=WHOLE_MAX)
    assert plan_snapshot(snapshot_of(scene.view())).target
    known = scene.soft.members[M2]
    assert known.disk_bytes is None or known.disk_bytes <= WHOLE_MAX
    assert all(measured.lag is None or measured.lag <= WHOLE_MAX for measured in known.reports.values())
    for member in snapshot_of(scene.view()).members:
        assert all(one.lag is None or one.lag <= WHOLE_MAX for one in member.tasks.values())


def test_the_ends_that_kafka_says_add_up_to_a_number() -> None:
    scene = three()
    ends = {(topic, partition): WHOLE_MAX for topic in ("a", "b") for partition in range(4)}
    scene.ok(EndOffsets(ends, scene.now_ms), Done)
    assert set(state_sizes(scene.group, scene.soft).values()) == {WHOLE_MAX}
    scene.do(Eviction(M1, dead=True))
    scene.tick(1_000)
    assert not scene.group.placement_failed


def test_sums_of_numbers_are_bounded() -> None:
    assert bounded_sum([]) == 0
    assert bounded_sum([1, 2]) == 3
    assert bounded_sum([WHOLE_MAX, 1]) == WHOLE_MAX
    ends = PMap({(topic, 0): EndOffset(WHOLE_MAX, 1) for topic in ("a", "b")})
    assert measure_lag(TaskReport("standby", positions=both(0)), 1, ends, [("a", 0), ("b", 0)])[0] == WHOLE_MAX


CAPACITIES: Mapping[str, tuple[float, ...]] = {
    "many decimals": (1.2345678901234567e-06, 1.0, 1.0),
    "far apart": (1e-06, 1e06, 1.0),
    "a sum of decimals": (0.1 + 0.2, 0.7, 0.7),
    "thirds": (2 / 3, 1 / 3, 1 / 3),
}


@pytest.mark.no_cover
@pytest.mark.parametrize("capacities", CAPACITIES.values(), ids=CAPACITIES)
@pytest.mark.parametrize("tasks", [1, 1_000])
def test_any_capacities_are_placed(tasks: int, capacities: tuple[float, ...]) -> None:
    """With tags and standbys, and while a newer topology is rolled out: both divide tasks by a flow."""
    scene = Scene(whole=False)
    scene.declare(topology(tasks), num_standby_replicas=1, rack_aware_tags=["zone"])
    for number, capacity in enumerate(capacities):
        scene.join(f"m{number}", capacity=capacity, client_tags={"zone": str(number % 2)})
    assert scene.change(topology(tasks, epoch=2, more=(Subtopology("2", 1),))).__class__.__name__ == "Declared"
    scene.join("new", topology_epoch=2, client_tags={"zone": "0"})
    assert not scene.group.placement_failed
    assert scene.group.placement_due_ms is None


@pytest.mark.parametrize("capacities", [*CAPACITIES.values(), tuple(1 / number for number in range(1, 1_001)), ()])
def test_shares_are_whole_numbers_in_the_proportion_of_capacities_as_decimals(capacities: tuple[float, ...]) -> None:
    decimals = [Fraction(repr(capacity)) for capacity in capacities]
    proportions = {share / decimal for share, decimal in zip(whole_shares(capacities), decimals, strict=True)}
    assert len(proportions) == bool(capacities)


@pytest.mark.parametrize("capacity", [1.0, 1e-06, 1e06])
@pytest.mark.parametrize("setting", ["max_warmup_replicas", "num_standby_replicas", "max_drain_warmups"])
def test_the_largest_settings_are_placed(setting: str, capacity: float) -> None:
    scene = Scene()
    scene.declare(topology(6), **{setting: int(RANGES[setting][1])})
    for name in ("m1", "m2", "m3"):
        scene.join(name, capacity=capacity)
    scene.settle()
    assert not scene.group.placement_failed


def _fails(*_: object) -> None:
    raise OverflowError("too large")


@pytest.mark.parametrize("standbys", [0, 1])
def test_leases_takeovers_and_commands_go_on_while_placement_fails(
    standbys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = three(num_standby_replicas=standbys)
    monkeypatch.setattr("batonpass.core.target.retarget.place", _fails)
    for _ in range(12):
        scene.obey("m2", "m3")
        scene.tick(1_000)
    assert M1 not in scene.group.members
    assert scene.group.placement_failed.endswith("OverflowError: too large")
    assert set(scene.owners().values()) == {"m2", "m3"}
    assert isinstance(scene.join("m4"), Answer)
    assert isinstance(scene.do(PauseRequest()), Done)
    assert isinstance(scene.do(Eviction(M2, dead=True)), Done)
    for _ in range(3):
        scene.obey()
        scene.tick(1_000)
    assert None not in scene.owners().values()
    monkeypatch.undo()
    scene.do(ProbeRequest())
    assert not scene.group.placement_failed


def test_a_group_whose_first_placement_fails_starts_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.core.target.retarget.place", _fails)
    scene = Scene()
    scene.declare(topology(4, stateless=4))
    scene.join("m1")
    scene.join("m2")
    scene.join("full", max_tasks=1)
    scene.join("leaving")
    scene.tick()
    for _ in range(3):
        scene.obey()
        scene.tick(1_000)
    assert None not in scene.owners().values()
    assert "full" not in scene.owners().values()


def test_one_token_that_cannot_be_right_costs_no_lease() -> None:
    scene = three()
    tasks = scene.held("m1", Role.ACTIVE)
    wrong = scene.task(tasks[0]).token + PLAUSIBLE_LEAP_MAX + 1
    reports = {task: running(token=scene.task(task).token) for task in tasks}
    standbys = {task: copy("standby") for task in scene.held("m1", Role.STANDBY)}
    scene.now_ms += 1_000
    answer = scene.beat("m1", reports | {tasks[0]: running(token=wrong)} | standbys)
    assert isinstance(answer, Answer)
    ((code, detail),) = answer.status
    assert code == "invalid-number"
    assert detail.startswith(f"tasks.{tasks[0]}.fencing_token: {wrong} is more than")
    assert scene.soft.members[M1].heard_ms == scene.now_ms
    assert scene.group.recovering_until_ms == 0
    assert scene.soft.members[M1].reports[TaskId(tasks[0])].report.token is None
    again = scene.beat("m1", reports | {tasks[0]: running(token=wrong)} | standbys)
    assert isinstance(again, Answer)
    assert again.status == answer.status


def test_numbers_that_were_left_out_are_named_in_the_answer() -> None:
    scene = three()
    faults = tuple((f"tasks.0_0.lag{number}", "Expected `int` >= 0") for number in range(30))
    heartbeat = Heartbeat(M1, 1_000, scene.member("m1").epoch, None, (), faults)
    answer = scene.ok(heartbeat, Answer)
    assert answer.status[0] == ("invalid-number", "tasks.0_0.lag0: Expected `int` >= 0; it was ignored")
    assert answer.status[-1] == ("invalid-number", "and 10 more of this kind")
    joined = scene.ok(Join(MemberId("m9"), invalid_numbers=faults[:1]), Answer)
    assert [code for code, _ in joined.status] == ["invalid-number"]
