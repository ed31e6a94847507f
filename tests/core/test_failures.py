"""Whose fault it is: a death is its host's, a bad host gets nothing new, and how a handover ended is remembered."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import chain, pairwise, repeat

import pytest
from tests.core.scene import Scene, copy, failed, restoring, running, topology

from batonpass.core.state.errors import UnknownMember
from batonpass.core.state.evolve import evolve
from batonpass.core.state.failures import (
    avoided_until_ms,
    blamed,
    charged,
    distrusted_until_ms,
    may_be_the_host,
    with_failure,
)
from batonpass.core.state.ids import HostId, InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    Leave,
    PauseRequest,
    PinRequest,
    PollBroken,
    ReleaseRequest,
    Started,
    TrustRequest,
)
from batonpass.core.state.model import (
    ActiveState,
    Cause,
    Failure,
    Fault,
    GoneMember,
    Grant,
    HostFaults,
    Marks,
    Member,
    OnLeaseLost,
    Outcome,
    PauseScope,
    Role,
    Task,
)
from batonpass.core.state.pmap import PMap
from batonpass.core.state.policy import GroupConfig
from batonpass.core.state.reasons import Held
from batonpass.core.state.records import AssignmentChanged, MemberGone, MemberTrusted
from batonpass.core.state.soft import Soft, TaskReport
from batonpass.explain.group import explain_group
from batonpass.explain.task import explain_task

WINDOW_MS = 600_000
Says = Callable[[str], TaskReport]
"""What a member says of a task that it has as active, by the task's id."""


def scene_of(members: int, tasks: int, *, instances: bool = True, stateless: bool = False, **config: object) -> Scene:
    """Return a settled scene, in which member ``m1`` is a run of the instance ``pod-1``, and so on, if of any."""
    scene = Scene(whole=False)
    shape = topology(0, stateless=tasks) if stateless else topology(tasks)
    scene.declare(shape, **({"session_timeout_ms": 10_000, "heartbeat_interval_ms": 1_000} | config))
    for number in range(1, members + 1):
        scene.join(f"m{number}", instance_id=InstanceId(f"pod-{number}") if instances else None)
    scene.settle(90)
    return scene


def go(
    scene: Scene, seconds: int, *, silent: Collection[str] = (), bad: Mapping[str, Says] | None = None, every_s: int = 1
) -> None:
    """Let all members obey once a second, but for the silent ones, and those that say something else of actives.

    With ``every_s`` they say something less often, as is enough where an hour goes by.
    """
    for _ in range(0, seconds, every_s):
        scene.wait(1_000 * every_s)
        for name in sorted(scene.group.members):
            if name in silent or scene.member(name).away_until_ms is not None:
                continue
            says = (bad or {}).get(name)
            if says is None:
                scene.obey(name)
                continue
            held = scene.member(name).assignment
            scene.beat(
                name,
                {one: says(one) if grant.role is Role.ACTIVE else copy(grant.role) for one, grant in held.items()},
            )


def die(scene: Scene, name: str) -> None:
    """Let a member fall silent until its lease is over."""
    while name in scene.group.members:
        go(scene, 1, silent=(name,))


def parked(scene: Scene) -> list[str]:
    return [task for task in scene.group.table.ids if scene.task(task).marks.parked]


def breaks(_task: str) -> TaskReport:
    return failed("no space left on device")


def on(scene: Scene, name: str) -> list[str]:
    return scene.held(name, Role.ACTIVE)


# Deaths.


@pytest.mark.no_cover
@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("lost", list(OnLeaseLost))
def test_a_pod_that_is_killed_again_and_again_parks_nothing(standbys: int, lost: OnLeaseLost) -> None:
    """Protocol 12.7. Its runs are one host, and what it ran runs well elsewhere in between."""
    scene = scene_of(2, 6, num_standby_replicas=standbys, max_warmup_replicas=6, max_warmups_per_member=6)
    run = "m3"
    scene.join(run, instance_id=InstanceId("pod-3"), on_lease_lost=lost)
    for number in range(2, 8):
        go(scene, 90)
        if lost is OnLeaseLost.CONTINUE:
            scene.do(PollBroken(MemberId(run)))
        die(scene, run)
        run = f"m3-{number}"
        scene.join(run, instance_id=InstanceId("pod-3"), on_lease_lost=lost)
        assert parked(scene) == []
    assert None not in scene.owners().values()
    assert all(len(scene.task(task).marks.failures) <= 1 for task in scene.group.table.ids)


class Pod:
    """An instance ``pod-3`` that is killed again and again, and started again each time."""

    def __init__(self, scene: Scene, lost: OnLeaseLost = OnLeaseLost.STOP) -> None:
        self.scene = scene
        self.lost = lost
        self.runs = 0
        self.start()

    def start(self) -> None:
        self.runs += 1
        self.run = f"m3-{self.runs}"
        self.scene.join(self.run, instance_id=InstanceId("pod-3"), on_lease_lost=self.lost)

    def is_killed_and_starts(self) -> None:
        if self.lost is OnLeaseLost.CONTINUE:
            self.scene.do(PollBroken(MemberId(self.run)))
        die(self.scene, self.run)
        self.start()

    def works_after(self, limit_s: int = 3_600) -> int:
        """Return after how many seconds it runs something."""
        for second in range(limit_s):
            if any(self.scene.task(task).state is ActiveState.RUNNING for task in on(self.scene, self.run)):
                return second
            go(self.scene, 1)
        raise AssertionError("it runs nothing")


@pytest.mark.parametrize(("standbys", "stateless"), [(0, False), (1, False), (0, True)])
@pytest.mark.parametrize("tasks", [3, 6])
@pytest.mark.parametrize("lost", list(OnLeaseLost))
def test_a_worker_that_somebody_kills_twice_gets_its_tasks_again_soon(
    standbys: int, lost: OnLeaseLost, tasks: int, *, stateless: bool
) -> None:
    """Two deaths say little. It waits for a session timeout at most, besides what any joiner waits for.

    With three tasks it is the same one that was there both times.
    """
    config = {"num_standby_replicas": standbys, "max_warmup_replicas": 6, "max_warmups_per_member": 6}
    pod = Pod(scene_of(2, tasks, stateless=stateless, instances=True, **config), lost)
    joiner_s = pod.works_after()
    for _ in range(2):
        go(pod.scene, 30)
        pod.is_killed_and_starts()
        assert pod.works_after() <= joiner_s + 15


@pytest.mark.no_cover
def test_a_host_that_dies_again_and_again_gets_nothing_new_for_a_while_that_grows() -> None:
    """In an hour it would have its tasks 35 times if nobody remembered."""
    pod = Pod(scene_of(2, 3, num_standby_replicas=1))
    waits: list[int] = []
    begun_ms = pod.scene.now_ms
    while pod.scene.now_ms < begun_ms + 3_600_000:
        waits.append(pod.works_after())
        go(pod.scene, 90, every_s=3)
        pod.is_killed_and_starts()
        assert pod.scene.view().distrusted == ({pod.run} if len(waits) > 1 else set())
    assert all(later > 1.8 * earlier for earlier, later in pairwise(waits[2:]))
    assert len(waits) <= 11
    assert parked(pod.scene) == []


@pytest.mark.parametrize("lost", list(OnLeaseLost))
@pytest.mark.parametrize("tasks", [3, 9])
def test_a_host_is_charged_with_its_deaths_whoever_took_over_when(lost: OnLeaseLost, tasks: int) -> None:
    """With fenced outputs others run its tasks before it is certain that it died. A death with three counts once."""
    pod = Pod(scene_of(2, tasks, num_standby_replicas=1), lost)
    for deaths in (1, 2):
        pod.works_after()
        go(pod.scene, 30)
        pod.is_killed_and_starts()
        assert len(pod.scene.group.hosts[HostId("pod-3")].faults) == deaths
    assert pod.scene.view().distrusted == {pod.run}


@pytest.mark.no_cover
def test_deaths_of_a_host_that_ran_its_tasks_well_are_taken_back() -> None:
    """Also how often it came to that, and what is left of the time."""
    pod = Pod(scene_of(2, 3, num_standby_replicas=1))
    for _ in range(6):
        pod.works_after()
        go(pod.scene, 30)
        pod.is_killed_and_starts()
    before = pod.scene.group.hosts[HostId("pod-3")]
    assert before.times >= 3
    pod.works_after()
    go(pod.scene, 240)
    pod.is_killed_and_starts()
    assert pod.scene.view().distrusted == frozenset()
    pod.works_after()
    go(pod.scene, 60)
    pod.is_killed_and_starts()
    known = pod.scene.group.hosts[HostId("pod-3")]
    assert (known.times, distrusted_until_ms(pod.scene.group.config, known)) == (1, known.distrusted_ms + 10_000)


def test_a_task_that_failed_on_a_host_that_died_is_evidence_against_the_host() -> None:
    config = GroupConfig(session_timeout_ms=10_000, heartbeat_interval_ms=1_000)
    deaths = HostFaults((Fault(None, 1, MemberId("m1")), Fault(None, 5, MemberId("m2"))), 6, 1)
    assert distrusted_until_ms(config, deaths) == 6 + 10_000
    failed_too = charged(deaths, Fault(T0, 7), config, 8, 0)
    assert distrusted_until_ms(config, failed_too) == 6 + WINDOW_MS


def test_a_task_that_takes_down_hosts_that_are_replaced_at_once_is_parked_in_the_end() -> None:
    """Each new pod looks new without an instance id. From its second death on, the task goes to who was there."""
    scene = scene_of(3, 1, instances=False)
    hosts: list[str] = []
    for number in range(10):
        go(scene, 3)
        if parked(scene):
            break
        owner = scene.task("0_0").owner
        assert owner is not None
        hosts.append(owner)
        scene.join(f"new-{number}")
        die(scene, owner)
    assert parked(scene) == ["0_0"]
    assert len(hosts) <= 5
    assert {"m1", "m2", "m3"} & set(hosts)


@pytest.mark.no_cover
@pytest.mark.parametrize("seconds", [20, 60])
def test_pods_without_a_common_instance_id_that_die_one_after_the_other_park_nothing(seconds: int) -> None:
    """What a member with several tasks died of is not known: those that joined since may be the same host again."""
    scene = scene_of(2, 12, instances=False, max_warmup_replicas=12, max_warmups_per_member=12)
    for number in range(6):
        scene.join(f"new-{number}")
        go(scene, seconds)
        assert on(scene, f"new-{number}") != []
        die(scene, f"new-{number}")
        assert parked(scene) == []
    assert None not in scene.owners().values()


@pytest.mark.no_cover
@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("instances", [True, False])
@pytest.mark.parametrize("lost", list(OnLeaseLost))
def test_pods_that_are_killed_one_after_the_other_park_nothing(
    standbys: int, lost: OnLeaseLost, *, instances: bool
) -> None:
    """A task that goes from one killed pod to the next has run on each for longer than what ends hosts would take."""
    scene = scene_of(0, 6, num_standby_replicas=standbys, max_warmup_replicas=6, max_warmups_per_member=6)
    runs: dict[int, str] = {}

    def start(pod: int, run: str) -> None:
        runs[pod] = run
        scene.join(run, instance_id=InstanceId(f"pod-{pod}") if instances else None, on_lease_lost=lost)

    for pod in range(3):
        start(pod, f"m{pod}")
    scene.settle(90)
    for number in range(6):
        killed = runs[number % 3]
        if lost is OnLeaseLost.CONTINUE:
            scene.do(PollBroken(MemberId(killed)))
        die(scene, killed)
        start(number % 3, f"{killed}+")
        go(scene, 110)
        assert parked(scene) == []
    assert None not in scene.owners().values()


@pytest.mark.no_cover
@pytest.mark.parametrize("seconds", [5, 230])
def test_only_deaths_without_a_good_run_in_between_park_a_task(seconds: int) -> None:
    """Three nodes of a zone that go down within ten minutes park no task that ran for minutes on each of them."""
    scene = scene_of(4, 1, poison_window_ms=900_000 if seconds > 100 else WINDOW_MS)
    threshold_s = scene.group.config.poison_window_ms // 3_000
    for _ in range(3):
        owner = scene.task("0_0").owner
        assert owner is not None
        go(scene, seconds if seconds < 100 else threshold_s + 1)
        die(scene, owner)
        go(scene, 3)
    assert parked(scene) == ([] if seconds > 100 else ["0_0"])


def beats(scene: Scene, name: str) -> None:
    scene.beat(name, {})


def leaves(scene: Scene, name: str) -> None:
    scene.do(Leave(MemberId(name)))


@pytest.mark.parametrize("speaks", [beats, leaves])
@pytest.mark.parametrize("lost", list(OnLeaseLost))
def test_hosts_that_were_suspended_and_go_on_park_nothing(
    speaks: Callable[[Scene, str], None], lost: OnLeaseLost
) -> None:
    """Whoever speaks under its old id has not died, and what it ran did not end it."""
    scene = scene_of(0, 1)
    for number in range(1, 6):
        scene.join(f"m{number}", instance_id=InstanceId(f"pod-{number}"), on_lease_lost=lost)
    scene.settle(90)
    suspended: set[str | None] = set()
    while len(suspended) < 3:
        owner = scene.task("0_0").owner
        assert owner not in {None, *suspended}
        suspended.add(owner)
        die(scene, str(owner))
        speaks(scene, str(owner))
        version = scene.group.version
        speaks(scene, str(owner))
        assert scene.group.version == version, "it is noted once"
        go(scene, 5)
    assert parked(scene) == []
    assert scene.task("0_0").state is ActiveState.RUNNING


@pytest.mark.parametrize("standbys", [0, 1])
def test_pods_that_are_drained_and_killed_one_after_the_other_park_nothing(standbys: int) -> None:
    """A rollout that does not wait for the drains: who told a host to go ended it."""
    scene = scene_of(4, 1, num_standby_replicas=standbys)
    killed: set[str | None] = set()
    while len(killed) < 3:
        owner = scene.task("0_0").owner
        assert owner not in {None, *killed}
        killed.add(owner)
        scene.do(DrainRequest(MemberId(str(owner))))
        die(scene, str(owner))
        go(scene, 5)
    assert parked(scene) == []
    assert scene.task("0_0").state is ActiveState.RUNNING


def test_what_was_parked_by_deaths_that_were_none_is_tried_again_once_one_of_them_speaks() -> None:
    scene = scene_of(5, 3)
    owners: list[str] = []
    for _ in range(3):
        owner = scene.task("0_0").owner
        assert owner is not None
        owners.append(owner)
        die(scene, owner)
        go(scene, 5)
    assert "0_0" in parked(scene)
    beats(scene, owners[0])
    assert parked(scene) == []
    go(scene, 5)
    assert scene.task("0_0").state is ActiveState.RUNNING


def test_a_task_that_failed_often_enough_beside_a_death_that_was_none_stays_parked() -> None:
    scene = scene_of(5, 1)
    go(scene, 60)
    suspended = scene.task("0_0").owner
    assert suspended is not None
    die(scene, suspended)
    go(scene, 60, bad={f"m{number}": breaks for number in range(1, 6)})
    assert parked(scene) == ["0_0"]
    assert suspended in {failure.member_id for failure in scene.task("0_0").marks.failures}
    beats(scene, suspended)
    assert parked(scene) == ["0_0"]


@pytest.mark.no_cover
def test_a_task_that_holds_its_hosts_up_again_and_again_is_parked_although_they_go_on() -> None:
    """Once may be the host's own; twice in a row with the same task, on three hosts, is the task."""
    scene = scene_of(4, 1)
    silences = 0
    while not parked(scene):
        owner = scene.task("0_0").owner
        assert owner is not None
        go(scene, 3)
        die(scene, owner)
        beats(scene, owner)
        silences += 1
        scene.join(f"m{silences}+", instance_id=scene.group.gone[MemberId(owner)].instance_id, replaces=MemberId(owner))
    assert 6 <= silences <= 16


def test_a_task_that_was_handed_over_while_it_ran_is_not_to_blame_for_earlier_deaths() -> None:
    scene = scene_of(5, 1, num_standby_replicas=4, max_warmup_replicas=9, max_warmups_per_member=9)
    for number in range(4):
        owner = scene.task("0_0").owner
        assert owner is not None
        die(scene, owner)
        go(scene, 2)
        scene.join(f"n{number}", instance_id=InstanceId(f"new-{number}"))
        scene.do(PinRequest(TaskId("0_0"), MemberId(f"n{number}")))
        go(scene, 5)
        assert scene.task("0_0").owner == f"n{number}"
    assert parked(scene) == []


def test_what_was_taken_over_from_a_suspected_member_that_died_counts_against_the_task() -> None:
    """A task that takes down members with fenced outputs is found, although others take over before leases end."""
    scene = scene_of(0, 1, num_standby_replicas=3, suspect_timeout_ms=1_000, max_lost_share=1.0)
    for number in range(1, 5):
        scene.join(f"m{number}", instance_id=InstanceId(f"pod-{number}"), on_lease_lost=OnLeaseLost.CONTINUE)
    scene.settle(90)
    gone: list[str] = []
    for _ in range(3):
        owner = scene.task("0_0").owner
        assert owner is not None
        assert owner not in gone
        gone.append(owner)
        scene.do(PollBroken(MemberId(owner)))
        go(scene, 3, silent=gone)
    assert parked(scene) == []
    go(scene, 12, silent=gone)
    assert parked(scene) == ["0_0"]


def test_what_a_member_was_to_give_up_when_it_died_counts_against_the_task() -> None:
    """It never confirmed, so it still ran the task."""
    scene = scene_of(1, 2)
    scene.join("m2", instance_id=InstanceId("pod-2"))
    scene.tick()
    (task,) = scene.held("m2", Role.WARMUP)
    scene.obey("m2")
    assert scene.member("m1").revoking.keys() == {task}
    die(scene, "m1")
    assert scene.task(task).owner == "m2"
    for each in scene.group.table.ids:
        assert [(one.member_id, one.outcome) for one in scene.task(each).marks.failures] == [("m1", Outcome.DIED)]


def test_a_copy_that_a_member_was_to_give_up_when_it_died_says_nothing_of_the_task() -> None:
    scene = scene_of(2, 2, num_standby_replicas=1)
    scene.change(num_standby_replicas=0)
    (task,) = on(scene, "m1")
    assert scene.member("m2").revoking.keys() == {task}
    die(scene, "m2")
    assert scene.task(task).marks.failures == ()


def test_a_suspected_member_that_speaks_again_has_not_failed_anything() -> None:
    scene = scene_of(0, 1, num_standby_replicas=1, suspect_timeout_ms=1_000)
    for number in (1, 2):
        scene.join(f"m{number}", on_lease_lost=OnLeaseLost.CONTINUE)
    scene.settle(90)
    owner = scene.task("0_0").owner
    assert owner is not None
    scene.do(PollBroken(MemberId(owner)))
    go(scene, 3, silent=(owner,))
    assert scene.task("0_0").owner != owner
    go(scene, 20)
    [failure] = scene.task("0_0").marks.failures
    assert (failure.outcome, failure.times) == (Outcome.SILENT, 1)
    assert scene.group.hosts == {}
    assert scene.task("0_0").owner == scene.task("0_0").target.owner


# Hosts.


@pytest.mark.no_cover
@pytest.mark.parametrize(("standbys", "stateless"), [(0, False), (1, False), (0, True)])
def test_a_host_on_which_everything_fails_is_left_alone(standbys: int, *, stateless: bool) -> None:
    """Its tasks run elsewhere, those on the other members stay there, and who joins gets its share."""
    scene = scene_of(3, 12, num_standby_replicas=standbys, stateless=stateless)
    bad = {"m2": breaks}
    before, changes = scene.owners(), 0
    for minute in range(40):
        if minute == 20:
            scene.join("m4", instance_id=InstanceId("pod-4"))
        for _ in range(20):
            go(scene, 3, bad={**bad}, every_s=3)
            now = scene.owners()
            changes += sum(now[task] != before[task] for task in now)
            before = now
        if 2 <= minute < 9:
            assert "m2" in scene.view().distrusted, minute
            assert on(scene, "m2") == [], minute
    # Four tasks leave it; after ten and after thirty minutes it is tried again, with its share; m4 gets its own.
    assert changes <= 70
    assert parked(scene) == []
    assert all(scene.task(task).state is ActiveState.RUNNING for task in scene.group.table.ids)
    assert len(on(scene, "m4")) in (3, 4)


def test_a_host_on_which_tasks_run_for_a_moment_and_fail_again_is_no_good_host() -> None:
    """A worker that tries again says that it runs, then that it failed. It may be handed over in either moment."""
    scene = scene_of(3, 6)
    flips = {"m2": lambda _task: running() if scene.now_ms // 1_000 % 2 else failed()}
    for _ in range(60):
        go(scene, 1, bad=flips)
        scene.beat("m2", {one: failed() for one in on(scene, "m2")})
    assert scene.view().distrusted == {"m2"}
    assert on(scene, "m2") == []
    assert parked(scene) == []


def test_a_bad_host_is_shown_and_explained_and_trusted_again_by_a_command() -> None:
    scene = scene_of(3, 6, num_standby_replicas=1)
    first, second = on(scene, "m2")
    go(scene, 30, bad={"m2": breaks})
    assert scene.view().distrusted == {"m2"}
    said = explain_group(scene.view(), limit=9)
    (obstacle,) = [one for one in said.obstacles if one.member_id == "m2"]
    assert obstacle.what == "distrusted"
    assert f"{first}, {second} failed there and run elsewhere" in obstacle.detail
    assert obstacle.until_ms == scene.group.hosts["pod-2"].distrusted_ms + WINDOW_MS  # type: ignore[index]
    scene.do(TrustRequest(MemberId("m2")))
    assert scene.view().distrusted == frozenset()
    assert all(failure.instance_id != "pod-2" for one in scene.group.tasks.values() for failure in one.marks.failures)
    go(scene, 30)
    assert len(on(scene, "m2")) == 2
    scene.refused(TrustRequest(MemberId("nobody")), UnknownMember)


def test_distrust_survives_the_next_run_of_the_host_and_of_the_coordinator() -> None:
    scene = scene_of(3, 6, num_standby_replicas=1)
    go(scene, 30, bad={"m2": breaks})
    scene.do(Leave(MemberId("m2"), restart=True))
    assert scene.view().distrusted == {"m2"}
    scene.join("m2-2", instance_id=InstanceId("pod-2"))
    assert scene.view().distrusted == {"m2-2"}
    scene.soft = Soft()
    scene.do(Started())
    go(scene, 60)
    assert on(scene, "m2-2") == []


@pytest.mark.parametrize("name", ["m2", "pod-2"])
@pytest.mark.parametrize("is_away", [True, False])
def test_a_host_is_trusted_again_also_while_it_has_no_member(name: str, *, is_away: bool) -> None:
    """By its instance, or by the run that is gone."""
    scene = scene_of(3, 6, num_standby_replicas=1)
    go(scene, 30, bad={"m2": breaks})
    scene.do(Leave(MemberId("m2"), restart=is_away))
    assert list(scene.group.hosts) == ["pod-2"]
    scene.do(TrustRequest(MemberId(name)))
    assert dict(scene.group.hosts) == {}
    assert all(failure.instance_id != "pod-2" for one in scene.group.tasks.values() for failure in one.marks.failures)
    scene.join("m2-2", instance_id=InstanceId("pod-2"))
    go(scene, 60)
    assert len(on(scene, "m2-2")) == 2
    scene.do(TrustRequest(MemberId("m2")))


def test_what_is_held_against_an_instance_is_forgotten_with_its_last_run() -> None:
    scene = scene_of(3, 6, num_standby_replicas=1)
    go(scene, 30, bad={"m2": breaks})
    scene.do(Leave(MemberId("m2")))
    assert list(scene.group.hosts) == ["pod-2"]
    scene.now_ms += scene.policy.gone_retention_ms + 1
    scene.obey("m1", "m3")
    scene.tick()
    assert dict(scene.group.hosts) == {}
    assert evolve(scene.group, [MemberTrusted(MemberId("m2"))]).hosts == scene.group.hosts


def test_without_an_instance_id_a_run_that_replaces_another_stands_for_it() -> None:
    scene = scene_of(3, 6, instances=False, num_standby_replicas=1)
    go(scene, 30, bad={"m2": breaks})
    assert scene.view().distrusted == {"m2"}
    scene.join("m2-2", replaces=MemberId("m2"))
    assert scene.view().distrusted == {"m2-2"}
    scene.do(Leave(MemberId("m2-2")))
    assert dict(scene.group.hosts) == {}


@pytest.mark.parametrize("what", ["host", "task"])
def test_a_ready_copy_takes_over_before_that_of_a_bad_host_although_the_task_belongs_there(what: str) -> None:
    scene = scene_of(3, 3, num_standby_replicas=2)
    (task,) = on(scene, "m1")
    scene.do(PauseRequest(PauseScope.ALL))
    scene.do(PinRequest(TaskId(task), MemberId("m2")))
    group, now_ms = scene.group, scene.now_ms
    if what == "host":
        scene.group = replace(group, hosts=group.hosts.having(HostId("pod-2"), HostFaults((), now_ms, 1)))
    else:
        failure = Failure(MemberId("m2"), now_ms, InstanceId("pod-2"))
        marked = scene.task(task).with_marks(failures=(failure,))
        scene.group = replace(group, tasks=group.tasks.updated({TaskId(task): marked}))
    scene.do(Leave(MemberId("m1")))
    assert (scene.task(task).target.owner, scene.task(task).owner) == ("m2", "m3")


def test_a_distrusted_member_keeps_what_it_runs_well() -> None:
    scene = scene_of(2, 6, num_standby_replicas=1)
    bad = on(scene, "m2")[:2]
    go(scene, 60, bad={"m2": lambda task: failed() if task in bad else running()})
    assert scene.view().distrusted == {"m2"}
    good = on(scene, "m2")
    assert good
    assert not set(good) & set(bad)
    scene.join("m3")
    go(scene, 60)
    assert on(scene, "m2") == good
    assert len(on(scene, "m3")) > 0
    scene.do(DrainRequest(MemberId("m2")))
    go(scene, 60)
    assert on(scene, "m2") == []


def test_when_nobody_else_is_left_a_distrusted_member_takes_everything() -> None:
    scene = scene_of(2, 4, num_standby_replicas=1)
    go(scene, 30, bad={"m2": breaks})
    assert scene.view().distrusted == {"m2"}
    scene.do(Leave(MemberId("m1")))
    go(scene, 30)
    assert scene.view().distrusted == frozenset()
    assert len(on(scene, "m2")) == 4


@pytest.mark.no_cover
def test_one_fault_or_one_that_runs_well_since_distrusts_nobody() -> None:
    """A fault of a host is taken back once any task has run well there since."""
    scene = scene_of(3, 6, num_standby_replicas=1)
    first, second = on(scene, "m2")
    go(scene, 10, bad={"m2": lambda task: failed() if task == first else running()})
    assert [fault.task for fault in scene.group.hosts["pod-2"].faults] == [first]  # type: ignore[index]
    go(scene, 220)
    go(scene, 10, bad={"m2": lambda task: failed() if task == second else running()})
    assert scene.view().distrusted == frozenset()


def test_distrust_can_be_switched_off() -> None:
    scene = scene_of(3, 6, num_standby_replicas=1, distrust_after=0)
    go(scene, 30, bad={"m2": breaks})
    assert scene.view().distrusted == frozenset()


def test_a_task_that_fails_everywhere_is_no_fault_of_a_host() -> None:
    scene = scene_of(4, 4, num_standby_replicas=1)
    go(scene, 60, bad={f"m{number}": lambda task: failed() if task == "0_0" else running() for number in range(1, 5)})
    assert parked(scene) == ["0_0"]
    assert scene.view().distrusted == frozenset()
    scene.do(ReleaseRequest(TaskId("0_0")))
    go(scene, 30)
    assert scene.task("0_0").state is ActiveState.RUNNING


# Handovers.


def reads_only(_task: str) -> TaskReport:
    return restoring(10**9)


def loses_state(_task: str) -> TaskReport:
    return restoring(None, lost=True)


@pytest.mark.no_cover
@pytest.mark.parametrize("says", [reads_only, loses_state, breaks])
def test_a_handover_that_ended_badly_is_not_made_again_for_a_while_that_grows(says: Says) -> None:
    """m1 is well; m2's copies say that they are caught up, and it does not come to run what it is handed."""
    scene = Scene(whole=False)
    scene.declare(
        topology(2), num_standby_replicas=1, warmup_stall_timeout_ms=10_000, poison_window_ms=60_000, distrust_after=0
    )
    scene.join("m1")
    scene.settle(60)
    scene.join("m2")
    tries: dict[str, list[int]] = {"0_0": [], "0_1": []}
    for _ in range(900):
        seen = len(scene.log)
        go(scene, 1, bad={"m2": says})
        for record in scene.log[seen:]:
            if isinstance(record, AssignmentChanged) and record.member_id == "m2":
                for task in [task for task, grant in record.granted.items() if grant.role is Role.ACTIVE]:
                    tries[task].append(scene.now_ms)
    for at in tries.values():
        gaps = [later - earlier for earlier, later in pairwise(at)]
        assert 2 <= len(at) <= 6
        assert all(later > earlier + 50_000 for earlier, later in pairwise(gaps))


@pytest.mark.parametrize("ran_s", [0, 5])
def test_an_owner_that_was_ready_and_restores_is_not_handed_the_task_again_at_once(ran_s: int) -> None:
    """It says neither that it failed nor that its state is lost, and a third member has a copy that is ready."""
    scene = Scene(whole=False)
    scene.declare(topology(1), num_standby_replicas=2)
    for name in ("m1", "m2", "m3"):
        scene.join(name)
    scene.settle(60)
    scene.do(PinRequest(TaskId("0_0"), MemberId("m2")))
    says = chain(repeat(running(), ran_s), repeat(restoring(10**9)))
    token = scene.task("0_0").token
    go(scene, 120, bad={"m2": lambda _task: next(says)})
    assert scene.task("0_0").token <= token + 2
    assert scene.task("0_0").owner != "m2"
    (failure,) = scene.task("0_0").marks.failures
    assert (failure.member_id, failure.outcome) == ("m2", Outcome.STUCK)


def test_copies_that_make_progress_and_are_not_where_they_said_count_as_stuck() -> None:
    scene = Scene(whole=False)
    scene.declare(topology(1), num_standby_replicas=1, warmup_stall_timeout_ms=10_000)
    scene.join("m1")
    scene.settle(60)
    scene.join("m2")
    scene.do(PinRequest(TaskId("0_0"), MemberId("m2")))
    lag = iter(range(10**9, 0, -1_000))
    go(scene, 30, bad={"m2": lambda _task: restoring(next(lag))})
    assert (scene.task("0_0").owner, scene.task("0_0").state) == ("m1", ActiveState.RUNNING)
    (failure,) = scene.task("0_0").marks.failures
    assert (failure.member_id, failure.outcome) == ("m2", Outcome.STUCK)


def test_why_a_task_is_not_handed_over_again_is_shown_and_until_when() -> None:
    scene = Scene(whole=False)
    scene.declare(topology(1), num_standby_replicas=1)
    scene.join("m1")
    scene.settle(60)
    scene.join("m2")
    scene.do(PinRequest(TaskId("0_0"), MemberId("m2")))
    go(scene, 5, bad={"m2": loses_state})
    found = explain_task(scene.view(), TaskId("0_0"))
    assert found.held is not None
    assert (found.held.reason, found.held.to) == (Held.FAILED_THERE, "m2")
    (wait,) = [one for one in found.waits if one.member_id == "m2" and one.until_ms is not None]
    (failure,) = scene.task("0_0").marks.failures
    assert wait.until_ms == avoided_until_ms(scene.group.config, failure)
    assert "its state was lost" in wait.detail


def test_a_drain_hands_nothing_to_a_member_that_lost_it_until_its_deadline() -> None:
    scene = Scene(whole=False)
    scene.declare(topology(1), num_standby_replicas=1)
    for name in ("m1", "m2"):
        scene.join(name)
    scene.settle(60)
    owner = scene.task("0_0").owner
    other = "m2" if owner == "m1" else "m1"
    scene.do(DrainRequest(MemberId(str(owner))))
    tokens = set()
    for _ in range(60):
        go(scene, 1, bad={other: loses_state})
        tokens.add(scene.task("0_0").token)
    assert len(tokens) <= 3
    assert scene.task("0_0").owner == owner
    scene.do(DrainRequest(MemberId(str(owner)), deadline_ms=5_000))
    go(scene, 10)
    assert scene.task("0_0").owner == other


def test_two_members_that_both_lose_what_they_are_handed_do_not_pass_it_back_and_forth() -> None:
    scene = scene_of(2, 1, num_standby_replicas=1)
    token = scene.task("0_0").token
    go(scene, 60, bad={"m1": loses_state, "m2": loses_state})
    assert scene.task("0_0").token <= token + 3


def test_a_state_that_was_lost_where_the_task_ran_well_is_restored_there() -> None:
    """Nobody else has a copy. The member that lost its disk restores from nothing as well as any other."""
    scene = scene_of(2, 2)
    owner = scene.task("0_0").owner
    assert owner is not None
    scene.beat(owner, {task: loses_state(task) if task == "0_0" else running() for task in on(scene, owner)})
    go(scene, 10)
    assert scene.task("0_0").owner == owner
    assert scene.task("0_0").state is ActiveState.RUNNING


# The memory itself.


CONFIG = GroupConfig()
T0 = TaskId("0_0")


def member(token: int, *, name: str = "m", instance: str | None = "pod", joined_ms: int = 0) -> Member:
    held = PMap({T0: Grant(Role.ACTIVE, 1, 0, token)})
    return Member(MemberId(name), joined_ms, InstanceId(instance) if instance else None, assignment=held)


def test_a_failure_that_is_said_again_of_the_same_grant_is_no_further_try() -> None:
    task = Task(T0)
    for token, at_ms, times in ((1, 0, 1), (1, 5_000, 1), (2, 700_000, 2), (2, 700_001, 2), (3, 2_000_000, 3)):
        task = task.with_marks(failures=with_failure(task, member(token), Outcome.FAILED, at_ms, CONFIG))
        assert [(one.times, one.at_ms) for one in task.marks.failures] == [(times, at_ms)]
    assert avoided_until_ms(CONFIG, task.marks.failures[0]) == 2_000_000 + 4 * WINDOW_MS


@pytest.mark.parametrize(
    ("outcome", "joined_ms", "may_be"),
    [
        (Outcome.DIED, 90_000, True),
        (Outcome.DIED, 200_000, True),
        (Outcome.DIED, 89_999, False),
        (Outcome.FAILED, 200_000, False),
    ],
)
def test_without_instance_ids_a_member_that_joined_since_a_death_may_be_the_one_that_died(
    outcome: Outcome, joined_ms: int, *, may_be: bool
) -> None:
    """It may have joined up to a session timeout before the death was noticed."""
    config = GroupConfig(session_timeout_ms=10_000, heartbeat_interval_ms=1_000)
    failure = Failure(MemberId("m1"), 100_000, None, outcome)
    assert may_be_the_host(failure, Member(MemberId("m2"), joined_ms), config) is may_be
    assert may_be_the_host(failure, Member(MemberId("m1"), 0), config)
    assert not may_be_the_host(failure, Member(MemberId("m3"), joined_ms, InstanceId("pod")), config)


@pytest.mark.parametrize("outcome", [Outcome.DIED, Outcome.SILENT])
def test_one_death_says_nothing_of_a_task_and_each_further_one_as_much_as_all_before(outcome: Outcome) -> None:
    config = GroupConfig(session_timeout_ms=10_000, heartbeat_interval_ms=1_000)
    until_ms = [
        avoided_until_ms(config, Failure(MemberId("m1"), 100_000, None, outcome, times)) for times in (1, 2, 3, 4)
    ]
    assert until_ms == [100_000, 110_000, 120_000, 140_000]


@pytest.mark.no_cover
def test_a_good_run_takes_back_what_failed_before_it() -> None:
    scene = scene_of(4, 1)
    for number in range(3):
        owner = scene.task("0_0").owner
        assert owner is not None
        go(scene, 1, bad={owner: breaks})
        go(scene, 15, bad={owner: breaks})
        if number < 2:
            go(scene, 201)
    assert len({failure.member_id for failure in scene.task("0_0").marks.failures}) == 3
    assert parked(scene) == []


@pytest.mark.parametrize("is_known", [True, False])
def test_a_task_ran_on_a_member_that_died_until_that_was_last_heard(*, is_known: bool) -> None:
    """A coordinator that had not heard it takes it to have ended as long before as its lease is."""
    scene = scene_of(1, 1)
    began_ms = scene.task("0_0").ran_since_ms
    heard_ms, at_ms = began_ms + 5_000, began_ms + 60_000
    gone = MemberGone(MemberId("m1"), Cause.EXPIRED, at_ms, at_ms, heard_ms if is_known else None)
    (failure,) = evolve(scene.group, [gone]).tasks[T0].marks.failures
    assert failure.ran_ms == (5_000 if is_known else 60_000 - scene.group.config.session_timeout_ms)


def test_a_task_that_did_not_run_when_its_members_died_is_not_to_blame() -> None:
    scene = scene_of(5, 1, max_lost_share=1.0)
    for _ in range(4):
        owner = scene.task("0_0").owner
        assert owner is not None
        go(scene, 3, bad={owner: lambda _: restoring(1_000_000)})
        die(scene, owner)
    assert parked(scene) == []


def test_a_task_is_to_blame_for_deaths_that_are_certain_and_failures_within_the_window() -> None:
    now_ms, m1, scene = 1_000_000, MemberId("m1"), scene_of(1, 1)
    task = scene.task("0_0")._replace(well_ms=0)
    failed_there = task.with_marks(failures=(Failure(m1, now_ms - 100_000, None, Outcome.FAILED),))
    for window_ms, counts in ((50_000, False), (200_000, True)):
        group = replace(scene.group, config=replace(scene.group.config, poison_window_ms=window_ms))
        assert bool(blamed(failed_there, group, now_ms)) is counts
    task = task.with_marks(failures=(Failure(m1, now_ms - 1_000, None, Outcome.DIED),))
    for gone, is_certain in (
        (None, False),
        (GoneMember(now_ms, Cause.LEFT, now_ms, None), False),
        (GoneMember(now_ms, Cause.EXPIRED, now_ms, None), True),
    ):
        group = scene.group if gone is None else replace(scene.group, gone=scene.group.gone.having(m1, gone))
        assert bool(blamed(task, group, now_ms)) is is_certain


def test_after_as_long_again_as_it_was_avoided_a_host_begins_anew() -> None:
    task = Task(T0, marks=Marks(failures=(Failure(MemberId("m"), 0, InstanceId("pod"), times=2),)))
    late = with_failure(task, member(9), Outcome.FAILED, 4 * WINDOW_MS, CONFIG)
    assert [one.times for one in late] == [1]
    other = with_failure(task, member(9, instance="other"), Outcome.FAILED, 4 * WINDOW_MS, CONFIG)
    assert [one.instance_id for one in other] == ["other"]


def test_the_longest_time_is_a_day_or_the_window() -> None:
    failure = Failure(MemberId("m"), 0, times=60)
    assert avoided_until_ms(CONFIG, failure) == 86_400_000
    assert avoided_until_ms(GroupConfig(poison_window_ms=90_000_000), failure) == 90_000_000


def test_what_failed_before_a_good_run_on_the_host_does_not_count_with_what_fails_later() -> None:
    known = charged(HostFaults(), Fault(T0, 5), CONFIG, 6, 0)
    later = Fault(TaskId("0_9"), 20)
    assert charged(known, later, CONFIG, 21, 5) == HostFaults((later,))
    assert charged(known, later, CONFIG, 21, 4).times == 1


def test_one_death_counts_once_however_many_tasks_ran_there() -> None:
    known = HostFaults()
    for _ in range(3):
        known = charged(known, Fault(None, 5, MemberId("m1")), CONFIG, 10, 0)
    assert (known.times, known.faults) == (0, (Fault(None, 5, MemberId("m1")),))
    known = charged(known, Fault(None, 7, MemberId("m2")), CONFIG, 12, 0)
    assert (known.times, known.distrusted_ms) == (1, 12)
    # What failed before it was distrusted does not count again; what fails meanwhile is shown.
    assert charged(known, Fault(T0, 12), CONFIG, 20, 0) == known
    assert charged(known, Fault(T0, 13), CONFIG, 20, 0) == known._replace(faults=(*known.faults, Fault(T0, 13)))
    over_ms = distrusted_until_ms(CONFIG, known)
    again = charged(known, Fault(T0, over_ms), CONFIG, over_ms, 0)
    assert (again.times, again.faults) == (2, (Fault(T0, over_ms),))
    late = charged(known, Fault(T0, over_ms + WINDOW_MS), CONFIG, over_ms + WINDOW_MS, 0)
    assert late.times == 1
    assert late.distrusted_ms == known.distrusted_ms


def test_a_next_owner_that_was_silent_at_its_grant_is_not_tried_again_at_once() -> None:
    """A member that is late again and again would get the task each time that it speaks, and lose it again."""
    scene = scene_of(2, 2, num_standby_replicas=1)
    task, target = next((task, f"m{3 - int(owner[1])}") for task, owner in scene.owners().items() if owner)
    owner = str(scene.owners()[task])
    scene.do(PinRequest(TaskId(task), MemberId(target)))
    failure = Failure(MemberId(target), 0)
    for times in (1, 2):
        go(scene, 3 * times, silent=(owner, target))
        scene.obey(owner)
        scene.obey(target)
        [failure] = scene.task(task).marks.failures
        assert (failure.member_id, failure.outcome, failure.times) == (target, Outcome.SILENT, times)
        if times == 1:
            # Once says nothing: it is tried again as soon as it is heard.
            go(scene, 1)
            assert scene.task(task).handover.next_owner == target
    assert scene.group.hosts == {}
    go(scene, 8)
    assert scene.owners()[task] == owner
    found = explain_task(scene.view(), TaskId(task))
    assert found.held is not None
    assert found.held.reason is Held.FAILED_THERE
    assert {one.until_ms for one in found.waits if one.member_id == target} == {failure.at_ms + 10_000}
    go(scene, 4)
    assert scene.owners()[task] == target


def test_the_time_for_which_a_silent_member_is_not_tried_grows_with_each_try() -> None:
    config, task = GroupConfig(session_timeout_ms=10_000, heartbeat_interval_ms=1_000), Task(TaskId("0_0"))
    waits: list[int] = []
    for token in range(1, 20):
        standby = replace(member(0), assignment=PMap({task.id: Grant(Role.STANDBY, 1, 0)}))
        failures = with_failure(task, standby, Outcome.SILENT, 1_000_000, config)
        task = task._replace(token=token).with_marks(failures=failures)
        waits.append(avoided_until_ms(config, failures[0]) - 1_000_000)
    assert waits[:4] == [0, 10_000, 20_000, 40_000]
    assert waits[-1] == 86_400_000


def test_a_distrusted_member_is_the_last_choice_and_better_than_nobody() -> None:
    """The other member is full."""
    scene = scene_of(0, 6)
    scene.join("m1", instance_id=InstanceId("pod-1"))
    scene.join("m2", instance_id=InstanceId("pod-2"), max_tasks=3)
    scene.join("m3", instance_id=InstanceId("pod-3"))
    scene.settle(90)
    go(scene, 30, bad={"m1": breaks})
    assert scene.view().distrusted == {"m1"}
    die(scene, "m3")
    assert all(scene.owners().values())
    assert len(on(scene, "m2")) == 3
    assert scene.view().distrusted == {"m1"}


@pytest.mark.no_cover
def test_a_host_that_ran_its_tasks_well_between_two_deaths_is_not_distrusted() -> None:
    scene = scene_of(2, 4)
    die(scene, "m1")
    scene.join("m3", instance_id=InstanceId("pod-1"))
    go(scene, 3_600)
    assert on(scene, "m3")
    die(scene, "m3")
    assert [fault.member_id for fault in scene.group.hosts[HostId("pod-1")].faults] == ["m3"]
    scene.join("m4", instance_id=InstanceId("pod-1"))
    assert scene.view().distrusted == set()


@pytest.mark.parametrize("instances", [True, False])
def test_one_that_came_back_and_died_again_does_not_keep_a_storm_going(*, instances: bool) -> None:
    scene = scene_of(7, 14, rejoin_grace_ms=60_000)
    dead = [f"m{number}" for number in range(3, 8)]
    go(scene, 12, silent=dead)
    storms = [scene.group.storm_since_ms is not None]
    for number in range(8, 12):
        scene.join(f"m{number}", instance_id=InstanceId("pod-7") if instances else None)
        go(scene, 5)
        go(scene, 12, silent=(f"m{number}",))
    storms.append(scene.group.storm_since_ms is not None)
    assert storms == [True, False]
    assert all(scene.owners().values())


def test_a_distrusted_member_that_is_full_is_no_choice() -> None:
    scene = scene_of(0, 8)
    for number, most in ((1, 3), (2, 3), (3, None)):
        scene.join(f"m{number}", instance_id=InstanceId(f"pod-{number}"), max_tasks=most)
    scene.settle(90)
    go(scene, 30, bad={"m1": breaks})
    assert scene.view().distrusted == {"m1"}
    die(scene, "m3")
    assert scene.view().distrusted == {"m1"}
    assert sum(owner is None for owner in scene.owners().values()) == 2
