"""How a group is, in the situations in which people look: what is wrong, since when, why, until when, what to do."""

import re
from dataclasses import replace

import pytest
from tests.core.scene import Scene, copy, failed, restoring, running, topology
from tests.core.scenes import TASK, guarded, pair
from tests.core.test_held_back import SCENES
from tests.core.test_streams import ALL, Leader, process

from batonpass.core.handover.view import View
from batonpass.core.state.ids import InstanceId, MemberId
from batonpass.core.state.inputs import (
    DrainRequest,
    Eviction,
    GroupDeletion,
    Leave,
    PauseRequest,
    PollBroken,
    Started,
    StoreRecovered,
)
from batonpass.core.state.model import Cause, OnLeaseLost, PauseScope, Subtopology, Topology
from batonpass.core.state.reasons import Held, meaning_of
from batonpass.core.state.soft import Soft
from batonpass.explain.group import explain_group
from batonpass.explain.health import FLAPS, FORGOTTEN_MS, LACKING_MS, LOSSES, Health, describe
from batonpass.explain.remedies import EventRemedy, Level, remedy_of
from batonpass.explain.task import TaskState

A, B = MemberId("a"), MemberId("b")


def health(scene: Scene) -> Health:
    """Return how the group is now. Whatever is said of it says what to do."""
    found = describe(scene.view())[1]
    assert [one.what for one in (found.worst, *found.others) if not one.todo] == []
    return found


def said(scene: Scene) -> tuple[Level, str, str]:
    """Return level, code and sentence."""
    found = health(scene)
    return found.level, found.worst.what, found.sentence


def commands(scene: Scene) -> list[str]:
    """Return the command lines that help."""
    return [one.command for one in health(scene).worst.remedies]


def restarted(scene: Scene) -> None:
    """Let another coordinator take the group up, which has heard nobody."""
    scene.soft = Soft()
    scene.now_ms += 5_000
    scene.do(Started())


def dying(scene: Scene, *names: str) -> None:
    """Let members be silent until their leases are over, while the others go on."""
    for _ in range(scene.group.config.session_timeout_ms // 1_000 + 5):
        scene.tick(1_000)
        for name in sorted(set(scene.group.members) - set(names)):
            scene.obey(name)


def test_a_group_that_nobody_has_joined_is_not_deployed() -> None:
    scene = Scene()
    scene.declare(topology(2))
    assert said(scene) == (Level.NOT_DEPLOYED, "not-deployed", "No member has joined: nobody runs its 2 tasks.")
    assert health(scene).evidence == "0 of 0 members heard"
    scene = Scene()
    scene.declare(Topology(1, (Subtopology("0", source_topics=("orders",)),)))
    assert said(scene)[:2] == (Level.NOT_DEPLOYED, "not-ready")
    assert [one.sentence for one in health(scene).others] == ["No member has joined: it has no tasks."]


def test_a_group_that_waits_for_its_topics_asks_for_attention_once_it_has_members() -> None:
    scene = Scene()
    scene.declare(Topology(1, (Subtopology("0", source_topics=("orders",)),)))
    scene.join("a")
    assert said(scene)[:2] == (Level.ATTENTION, "not-ready")


def test_a_group_at_rest_says_what_that_rests_on() -> None:
    scene = guarded(2)
    scene.now_ms += 1_000
    words = "All 2 tasks run where they belong, and every copy is caught up."
    assert said(scene) == (Level.AT_REST, "at-rest", words)
    assert health(scene).evidence == "2 of 2 members heard within 1 s"
    assert (health(scene).incident, health(scene).worst.runbook, commands(scene)) == (None, "", [])


def test_a_group_that_is_joined_for_the_first_time_is_no_trouble() -> None:
    """Nothing has run yet, and the first placement is awaited."""
    scene = Scene()
    scene.declare(topology(2), initial_rebalance_delay_ms=3_000)
    scene.join("a")
    assert health(scene).level is Level.MOVING
    scene.wait(3_000)
    assert said(scene) == (
        Level.MOVING,
        "moving",
        "Of 2 tasks: 2 starting.",
    )


def test_a_move_says_what_is_still_to_move_and_until_when() -> None:
    scene = pair(2)
    scene.tick(1_000)
    scene.obey("a")
    (task,) = scene.member("b").assignment
    scene.beat("b", {task: copy("warmup", 9_000)})
    assert said(scene) == (Level.MOVING, "moving", "1 task still to move, 1 warming up. All 2 tasks run.")
    assert health(scene).worst.until == "not known yet: no rate has been seen"
    scene.tick(1_000)
    scene.obey("a")
    scene.beat("b", {task: copy("warmup", 8_000)})
    assert health(scene).worst.until == "in about 7.9 s, as fast as copies catch up now"
    assert health(scene).worst.until_ms is None, "nobody set a deadline"


def test_no_end_of_a_move_is_told_while_others_are_held_back() -> None:
    """The copies that are under way are the first of many."""
    scene = Scene()
    scene.declare(topology(12), acceptable_recovery_lag=100)
    scene.join("a")
    scene.settle()
    scene.join("b")
    for lag in (9_000, 8_000):
        scene.tick(1_000)
        scene.obey("a")
        scene.beat("b", {task: copy("warmup", lag) for task in scene.member("b").assignment})
    assert said(scene)[2] == "6 tasks still to move, 2 warming up. All 12 tasks run."
    worst = health(scene).worst
    assert (worst.until_ms, worst.until) == (None, f"not known yet: {meaning_of(Held.WARMUP_BUDGET)}")


def test_a_member_that_was_killed_is_silent_until_its_lease_is_over_and_then_the_last_incident() -> None:
    scene = guarded(2)
    killed = scene.task(TASK).owner
    assert killed is not None
    other = "b" if killed == A else "a"
    heard_ms = scene.now_ms
    while health(scene).worst.what != "silent":
        scene.tick(1_000)
        scene.obey(other)
    words = f"Member {killed} has fallen silent. Of 2 tasks: 1 of owners that are not heard; the others run."
    assert said(scene) == (Level.ATTENTION, "silent", words)
    worst = health(scene).worst
    assert (worst.since_ms, worst.until_ms) == (heard_ms, heard_ms + scene.group.config.session_timeout_ms)
    assert (worst.until, worst.runbook, commands(scene)) == (
        "its lease",
        "member-silent",
        [f"batonpass evict g {killed} --dead"],
    )
    assert (health(scene).heard, health(scene).members, health(scene).unknown) == (1, 2, 1)
    dying(scene, killed)
    incident = health(scene).incident
    assert incident is not None
    assert (incident.member_id, incident.detail) == (killed, "its lease ran out; it ran 1 task")
    scene.now_ms += 3_600_001
    assert health(scene).incident is None


def test_a_silent_member_that_runs_nothing_is_waited_for_and_not_evicted() -> None:
    scene = guarded(1)
    owner = scene.task(TASK).owner
    while health(scene).worst.what != "silent":
        scene.tick(1_000)
        scene.obey("a" if owner == A else "b")
    assert health(scene).worst.todo == "Nothing; wait: no task runs there."
    assert (commands(scene), health(scene).worst.runbook) == ([], "member-silent")


def test_a_silent_member_that_was_told_to_stop_may_still_run_what_it_had() -> None:
    scene = guarded(2)
    scene.do(DrainRequest(A, deadline_ms=60_000))
    while health(scene).worst.what != "silent":
        scene.tick(1_000)
        scene.obey("b")
    assert scene.member(A).may_run
    assert not scene.member(A).actives
    assert "its tasks go to b; only if its process is surely dead" in health(scene).worst.todo
    assert commands(scene) == ["batonpass evict g a --dead"]


def test_of_several_members_with_whom_the_same_is_wrong_one_sentence_tells() -> None:
    """How many matters most; each can be evicted, or undrained."""

    def staged(*names: str) -> Scene:
        scene = Scene()
        scene.declare(topology(16), acceptable_recovery_lag=100, num_standby_replicas=1)
        for name in names:
            scene.join(name)
            scene.settle()
        return scene

    def silent(scene: Scene, *names: str) -> None:
        while health(scene).worst.what != "silent":
            scene.tick(1_000)
            for name in set(scene.group.members) - set(names):
                scene.obey(name)

    scene = staged(*"abcd")
    silent(scene, "a", "b")
    assert said(scene)[2].startswith("Members a and b have fallen silent. Of 16 tasks: 8 of owners that are not heard")
    found = health(scene)
    assert [one.what for one in (found.worst, *found.others)].count("silent") == 1
    assert found.worst.until == "the last of their leases"
    assert found.worst.todo.startswith("If any of them does not come back within ")
    scene = staged(*"abcdefgh")
    silent(scene, *"abcdef")
    assert said(scene)[2].startswith("6 members (a, b, c and 3 more) have fallen silent.")
    assert commands(scene) == [f"batonpass evict g {name} --dead" for name in "abcde"]
    assert health(scene).worst.more == 1
    scene = staged(*"abc")
    for name in "ab":
        scene.do(DrainRequest(MemberId(name), deadline_ms=60_000))
    assert said(scene)[2].startswith("Members a and b drain: ")
    assert commands(scene) == ["batonpass undrain g a", "batonpass undrain g b"]
    scene.settle(60)
    sentences = [one.sentence for one in (health(scene).worst, *health(scene).others)]
    assert "Members a and b have handed everything over and can be stopped." in sentences


def test_a_member_that_restarts_is_the_cause_and_its_place_is_kept_until_an_instant() -> None:
    scene = Scene()
    scene.declare(topology(2), rejoin_grace_ms=60_000)
    for name in "ab":
        scene.join(name, instance_id=InstanceId(f"pod-{name}"))
        scene.settle()
    scene.do(Leave(A, restart=True))
    left_ms = scene.now_ms
    scene.now_ms += 1_000
    worst = health(scene).worst
    assert (worst.until_ms, worst.until) == (left_ms + 60_000, "the time for which its place is kept")
    assert worst.cause is not None
    assert (worst.cause.member_id, worst.cause.at_ms, worst.cause.detail) == (A, left_ms, meaning_of(Held.REJOIN_GRACE))


def test_a_copy_that_comes_no_closer_asks_for_attention_also_after_it_gave_way() -> None:
    """A group that moves for hours does not say that there is nothing to do."""
    scene = pair(2, warmup_stall_timeout_ms=20_000)

    def stuck(seconds: int) -> None:
        for _ in range(seconds):
            scene.tick(1_000)
            scene.obey("a")
            scene.beat("b", {task: copy("warmup", 9_000) for task in scene.member("b").assignment})

    begun_ms = scene.now_ms
    stuck(10)
    assert health(scene).level is Level.MOVING
    stuck(20)
    worst = health(scene).worst
    assert (worst.level, worst.what, worst.runbook) == (Level.ATTENTION, "warmup-stalled", "warmup-stalled")
    assert worst.sentence == "1 copy comes no closer to the end."
    assert worst.since_ms is not None
    assert begun_ms <= worst.since_ms <= begun_ms + 5_000
    assert (worst.cause is not None, "Look at the log of b" in worst.todo) == (True, True)
    stuck(60)
    assert scene.now_ms > min(stall.until_ms for task in ("0_0", "0_1") for stall in scene.task(task).marks.stalls)
    assert health(scene).worst.what == "warmup-stalled", "each gets its turn again"


def test_a_copy_that_reads_on_and_comes_no_closer_asks_for_attention() -> None:
    """It is as fast as what is written, and nobody waits for its place."""
    scene = pair(1, warmup_stall_timeout_ms=20_000)
    scene.settle()
    owner = scene.task(TASK).owner
    assert owner is not None
    scene.do(DrainRequest(owner))
    (other,) = set(scene.group.members) - {owner}
    for second in range(30):
        scene.tick(1_000)
        scene.obey(owner)
        positions = (("log", second),)
        scene.beat(other, {task: copy("warmup", 9_000, positions=positions) for task in scene.member(other).assignment})
    assert scene.task(TASK).warmups == (other,)
    assert scene.task(TASK).marks.stalls == ()
    assert "warmup-stalled" in {one.what for one in (health(scene).worst, *health(scene).others)}


def test_a_standby_that_never_catches_up_asks_for_attention_and_one_that_falls_behind_for_a_moment_does_not() -> None:
    """It is counted on when its owner dies, and nothing but this tells that it cannot take over."""
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1, acceptable_recovery_lag=100, warmup_stall_timeout_ms=20_000)
    for name in "ab":
        scene.join(name)
    scene.obey("a", "b", lag=9_000)
    scene.settle()
    (spare,) = scene.task(TASK).standbys
    scene.wait(30_000)
    scene.obey("a", "b", lag=9_000)
    assert [one.what for one in (health(scene).worst, *health(scene).others)] == ["moving"]
    restarted(scene)
    for _ in range(30):
        scene.tick(1_000)
        scene.obey("a", "b", lag=9_000)
    worst = health(scene).worst
    assert (worst.level, worst.what) == (Level.ATTENTION, "warmup-stalled")
    assert worst.cause is not None
    assert (worst.cause.task, worst.cause.member_id) == (TASK, spare)


def test_who_takes_over_from_a_silent_member_is_named() -> None:
    """By the copies that are caught up; where nobody is left, nothing is to be waited for."""

    def todo(*names: str, tasks: int = 2, stateless: int = 0, **config: object) -> str:
        scene = Scene()
        scene.declare(topology(tasks, stateless=stateless), acceptable_recovery_lag=100, **config)
        for name in names:
            scene.join(name, instance_id=InstanceId(f"pod-{name}"))
            scene.settle()
        for _ in range(20):
            scene.tick(1_000)
            for name in names[1:]:
                scene.obey(name)
        return health(scene).worst.todo

    soon = r"If pod-a does not come back within \d+ s, its tasks {}; only if its process is surely dead, evict it with --dead.*"
    for words, found in {
        "go to pod-b": todo("a", "b", num_standby_replicas=1),
        "go to their standbys": todo(*"abcde", tasks=20, num_standby_replicas=1),
        "are rebuilt elsewhere": todo("a", "b"),
        "are started elsewhere": todo("a", "b", tasks=0, stateless=2),
    }.items():
        assert re.fullmatch(soon.format(words), found), found
    assert todo("a") == "Start workers, or pod-a anew: nobody else can take its tasks."


def test_the_loss_of_all_members_is_trouble_since_the_last_was_heard() -> None:
    scene = guarded(2)
    heard_ms = scene.now_ms
    dying(scene, "a", "b")
    assert not scene.group.members
    words = "All members are gone, 2 of the last 2 without having left: nobody runs its 2 tasks."
    assert said(scene) == (Level.TROUBLE, "members-gone", words)
    worst = health(scene).worst
    assert worst.since_ms == heard_ms, "since they fell silent, as of one that is still waited for"
    assert worst.cause is not None
    assert (worst.cause.detail, worst.runbook) == ("its lease ran out", "storm")


def test_a_group_at_rest_without_a_member_for_a_spare_copy_says_so_and_since_when() -> None:
    scene = guarded(2)
    gone_ms = scene.now_ms
    dying(scene, "b")
    scene.settle()
    found = health(scene)
    assert (found.level, found.worst.what) == (Level.AT_REST, "no-spare")
    assert "no spare copy: 1 member takes tasks, and num_standby_replicas is 1." in found.sentence
    assert found.worst.since_ms is not None
    assert found.worst.since_ms > gone_ms
    assert found.worst.todo == "Start a worker, if the spare copies are to come back."


def test_spare_copies_that_have_no_place_ask_for_attention_after_a_while() -> None:
    """Too few members, or no room on those that are there; what warms up has a place."""

    def resting(*names: str, max_tasks: int | None = None, wanted: int = 1) -> Scene:
        scene = Scene()
        scene.declare(topology(2), acceptable_recovery_lag=100, num_standby_replicas=wanted)
        for name in names:
            scene.join(name, max_tasks=max_tasks)
            scene.settle()
        return scene

    for scene, words, todo in (
        (resting("a"), "with no spare copy: 1 member takes tasks, and", "Start a worker, if"),
        (resting("a", "b", wanted=2), "with too few spare copies: 2 members take tasks, and", "Start a worker, if"),
        (
            resting("a", "b", max_tasks=1),
            "with no spare copy: no other member may have one, or has room, and",
            "Give members more room, or start a worker, if",
        ),
    ):
        assert said(scene)[:2] == (Level.AT_REST, "no-spare"), words
        assert words in said(scene)[2]
        assert health(scene).worst.todo.startswith(todo)
        scene.group = replace(scene.group, placed_ms=scene.now_ms - LACKING_MS)
        assert said(scene)[:2] == (Level.ATTENTION, "no-spare")
        assert health(scene).worst.since_ms == scene.group.placed_ms
    assert said(resting("a", "b"))[:2] == (Level.AT_REST, "at-rest")


def test_a_group_that_was_scaled_to_nothing_only_asks_for_attention() -> None:
    scene = guarded()
    for name in "ab":
        scene.do(Leave(MemberId(name)))
    assert said(scene) == (Level.ATTENTION, "all-left", "All members have left: nobody runs its 1 task.")


def test_nothing_is_said_to_run_that_was_not_heard_since_the_restart() -> None:
    scene = guarded(2)
    restarted(scene)
    found = health(scene)
    words = "0 of 2 members heard since the coordinator started: nobody can say whether 2 tasks run."
    assert said(scene) == (Level.ATTENTION, "unheard", words)
    assert not any("run where" in one.sentence or "All" in one.sentence for one in found.others)
    assert (found.heard, found.unknown, found.worst.since_ms) == (0, 2, scene.soft.started_ms)
    assert found.judged_from_ms == scene.soft.judge_from_ms
    assert found.evidence.startswith("0 of 2 members heard since the restart; judged in ")
    assert found.worst.until_ms is not None
    scene.beat("a")
    assert health(scene).evidence.startswith("1 of 2 members heard since the restart")
    assert said(scene)[2] == "1 of 2 members heard since the coordinator started: nobody can say whether 1 task runs."
    scene.now_ms = scene.soft.judge_from_ms
    scene.beat("a")
    assert health(scene).evidence == "1 of 2 members heard since the restart; judged by their leases"
    assert health(scene).judged_from_ms is None


def test_a_parked_task_is_trouble_with_what_its_worker_said_and_the_command_that_releases_it() -> None:
    scene = Scene()
    scene.declare(topology(2), poison_members=2)
    for name in "abc":
        scene.join(name)
        scene.settle()
    for _ in range(10):
        task = scene.task(TASK)
        if task.marks.parked:
            break
        if task.owner is not None:
            scene.beat(task.owner, {TASK: failed("checksum mismatch")})
        scene.tick(1_000)
        for name in "abc":
            grants = {str(one): grant for one, grant in scene.member(name).assignment.items()}
            held = {one: running() if grant.token else copy(grant.role) for one, grant in grants.items()}
            # Whoever is to run it fails again.
            scene.beat(name, {one: report for one, report in held.items() if one != TASK or not grants[one].token})
    assert scene.task(TASK).marks.parked
    assert said(scene) == (Level.TROUBLE, "not-processed", "1 of 2 tasks is not processed: 1 parked after failures.")
    worst = health(scene).worst
    assert worst.cause is not None
    assert (worst.cause.task, worst.cause.detail) == (TASK, "checksum mismatch")
    assert worst.since_ms is not None
    assert worst.since_ms < scene.now_ms
    assert (worst.until, worst.runbook) == ("when an operator releases it, once it is mended", "task-not-running")
    assert commands(scene) == [f"batonpass release g {TASK}"]
    assert health(scene).states[TaskState.PARKED] == 1


def test_a_failed_task_is_trouble_since_it_last_ran() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a")
    scene.settle()
    failed_ms = scene.now_ms
    scene.beat("a", {TASK: failed("disk full")})
    scene.tick(9_000)
    scene.beat("a", {TASK: failed("disk full")})
    worst = health(scene).worst
    assert (worst.what, worst.since_ms, worst.until) == ("not-processed", failed_ms, "when it is mended")
    assert worst.cause is not None
    assert (worst.cause.member_id, worst.cause.detail) == (A, "disk full")
    scene.beat("a", {TASK: running()})
    assert health(scene).level is Level.AT_REST
    incident = health(scene).incident
    assert incident is not None
    assert (incident.task, incident.at_ms, incident.detail) == (TASK, failed_ms, "disk full")
    scene.now_ms += 3_600_001
    assert health(scene).incident is None


def test_a_task_that_its_owner_does_not_start_is_trouble_after_a_while() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a")
    for _ in range(scene.group.config.rebalance_timeout_ms // 5_000 + 1):
        scene.tick(5_000)
        scene.beat("a", {})
    assert said(scene)[::2] == (
        Level.TROUBLE,
        "1 of 1 task is not processed: 1 not started by its owner.",
    )
    assert health(scene).worst.cause is None


def test_a_task_without_an_owner_is_free_when_the_lease_of_its_last_owner_is_over() -> None:
    scene = pair(1)
    scene.tick(1_000)
    owner = scene.task(TASK).owner
    assert owner is not None
    scene.do(Eviction(owner))
    scene.wait(100)
    worst = health(scene).worst
    assert (worst.level, worst.until) == (Level.TROUBLE, "the lease of the last owner")
    words = f"Wait; only if the process of {owner} is surely dead, evict it with --dead to have that sooner."
    assert (worst.todo, commands(scene)) == (words, [f"batonpass evict g {owner} --dead"])
    assert health(scene).incident is None, "an operator did that"


def test_a_restore_says_how_much_is_left() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a")
    scene.beat("a", {TASK: restoring(90_000)})
    words = "1 of 1 task is not processed: 1 restoring, 90,000 records left."
    assert said(scene) == (Level.ATTENTION, "restoring", words)
    scene.beat("a", {TASK: restoring(None)})
    assert health(scene).sentence.startswith("1 of 1 task is not processed: 1 restoring")
    scene.beat("a", {TASK: restoring(90_000)._replace(detail="its changelog is gone")})
    assert said(scene) == (Level.ATTENTION, "restoring", f"{words} Held up: its changelog is gone.")


def test_a_storm_names_the_command_that_ends_it() -> None:
    scene = Scene()
    scene.declare(topology(4), session_timeout_ms=10_000)
    for name in "abcd":
        scene.join(name)
    scene.settle()
    dying(scene, "b", "c", "d")
    assert scene.group.storm_since_ms is not None
    found = health(scene)
    every = {one.what: one for one in (found.worst, *found.others)}
    assert found.level is Level.TROUBLE
    assert {"not-processed", "storm"} <= set(every)
    assert every["storm"].since_ms == scene.group.storm_since_ms
    assert commands(scene) == ["batonpass resume g"]
    assert found.worst.until == "the storm, if nobody else is lost"
    scene.do(StoreRecovered())
    assert "commits-lost" in {one.what for one in health(scene).others}


def test_a_drain_says_what_is_left_until_when_and_that_the_member_can_be_stopped() -> None:
    scene = guarded(4)
    scene.do(DrainRequest(A, deadline_ms=60_000))
    drained_ms = scene.now_ms
    words = "Member a drains: 2 tasks left to hand over. Of 4 tasks: 2 handing over; the others run."
    assert said(scene) == (Level.MOVING, "draining", words)
    worst = health(scene).worst
    assert (worst.since_ms, worst.until_ms, worst.until) == (drained_ms, drained_ms + 60_000, "the drain's deadline")
    assert commands(scene) == ["batonpass undrain g a"]
    scene.settle()
    found = [one.sentence for one in (health(scene).worst, *health(scene).others)]
    assert "Member a has handed everything over and can be stopped." in found


def test_a_drain_with_nowhere_to_go_asks_for_attention() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a", instance_id=InstanceId("pod-a"))
    scene.settle()
    scene.do(DrainRequest(A))
    scene.tick()
    level, what, sentence = said(scene)
    assert (level, what) == (Level.ATTENTION, "drain-blocked")
    assert sentence.startswith("Member pod-a cannot hand over 1 task: ")
    assert commands(scene) == ["batonpass undrain g pod-a"]
    assert (health(scene).worst.until_ms, health(scene).worst.until) == (None, "when others take what is left")


def test_a_drain_whose_time_is_over_names_no_end() -> None:
    """It goes on: its deadline was shown as the end of it, minutes and hours ago."""
    scene = pair(2, drain_timeout_ms=5_000)
    scene.do(DrainRequest(A))
    for _ in range(20):
        scene.tick(1_000)
        scene.obey("a")
        scene.obey("b", lag=90_000)
    worst = health(scene).worst
    assert (worst.what, worst.until_ms, worst.until) == ("drain-blocked", None, "when others take what is left")
    (obstacle,) = explain_group(scene.view(), limit=9).obstacles
    assert (obstacle.what, obstacle.until_ms) == ("drain-blocked", None)


def test_nor_does_one_whose_last_tasks_are_taken_away_and_not_confirmed() -> None:
    scene = guarded(4)
    scene.do(DrainRequest(A, deadline_ms=0))
    scene.tick(2_000)
    found = {one.what: one for one in (health(scene).worst, *health(scene).others)}["draining"]
    assert (found.until_ms, found.until) == (None, "when what was taken away is confirmed")
    ends = [one.until_ms for one in explain_group(scene.view(), limit=9).obstacles if one.what == "draining"]
    assert ends == [None]


def test_a_pause_says_why_and_until_when() -> None:
    scene = guarded()
    scene.do(PauseRequest(PauseScope.BALANCE))
    assert said(scene) == (Level.ATTENTION, "paused", "An operator holds moves for balance. Its task runs.")
    assert (health(scene).worst.until, commands(scene)) == ("when an operator resumes it", ["batonpass resume g"])
    scene.do(PauseRequest(PauseScope.ALL, "deploy", scene.now_ms + 60_000))
    assert health(scene).sentence == "An operator holds every move: deploy. Its task runs."
    assert health(scene).worst.until_ms == scene.now_ms + 60_000


def test_a_suspected_member_is_silent_and_what_was_taken_over_runs() -> None:
    scene = Scene()
    scene.declare(topology(1), acceptable_recovery_lag=100, num_standby_replicas=1)
    for name in "ab":
        scene.join(name, on_lease_lost=OnLeaseLost.CONTINUE)
        scene.settle()
    owner = scene.task(TASK).owner
    assert owner is not None
    scene.do(PollBroken(owner))
    scene.wait(2_500)
    scene.obey("b" if owner == A else "a")
    assert scene.member(owner).suspected
    assert scene.task(TASK).owner != owner
    assert said(scene)[2] == f"Member {owner} has fallen silent. Its task runs."
    assert scene.member(owner).may_run, "it has not confirmed, and nobody waits for that"
    assert (health(scene).worst.todo, commands(scene)) == ("Nothing; wait: no task runs there.", [])


def test_what_is_not_processed_comes_before_a_pause() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a")
    scene.settle()
    scene.do(PauseRequest(PauseScope.ALL))
    scene.beat("a", {TASK: failed()})
    found = health(scene)
    assert [found.worst.what, *(one.what for one in found.others)] == ["not-processed", "paused"]


def test_a_task_that_no_member_may_take_says_why() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("a", max_tasks=1)
    scene.settle()
    worst = health(scene).worst
    assert (worst.sentence, worst.runbook) == (
        "1 of 2 tasks is not processed: 1 without an owner.",
        "task-without-owner",
    )
    assert worst.cause is not None
    assert worst.cause.detail == meaning_of(Held.NO_CAPACITY)
    assert worst.todo == "Start workers that may take it, or give those that are there more room."
    assert (worst.until, worst.since_ms) == ("when workers join", scene.group.placed_ms)


def test_a_failed_task_that_a_pause_holds_is_not_said_to_be_tried_elsewhere() -> None:
    scene = pair(2)
    scene.settle(60)
    owner = scene.task(TASK).owner
    assert owner is not None
    scene.do(PauseRequest(PauseScope.ALL, reason="a kernel upgrade"))
    scene.beat(owner, {TASK: failed("disk full")})
    worst = health(scene).worst
    assert (worst.what, worst.until) == ("not-processed", "when it is mended, or an operator resumes")
    assert "or resume: until then no other member tries it." in worst.todo
    assert "by itself" not in worst.todo
    assert commands(scene) == ["batonpass resume g"]


def test_tasks_of_a_topology_that_no_member_knows_ask_for_workers_that_do() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a", topology_epoch=1)
    scene.settle()
    scene.change(topology(1, epoch=2, more=(Subtopology("9", 1),)))
    scene.settle()
    worst = health(scene).worst
    assert worst.todo.startswith("Deploy workers that know the newest topology")
    assert (worst.until, worst.runbook) == ("when workers join", "task-without-owner")


def test_lost_commits_say_since_when() -> None:
    scene = guarded()
    scene.do(StoreRecovered())
    lost_ms = scene.now_ms
    scene.now_ms += 2_000
    scene.obey()
    assert (health(scene).worst.what, health(scene).worst.since_ms) == ("commits-lost", lost_ms)


def test_a_member_that_is_given_nothing_new_is_named_with_the_command_that_trusts_it() -> None:
    scene = guarded(4, distrust_after=1)
    owner = scene.task(TASK).owner
    assert owner is not None
    held = scene.member(owner).assignment
    scene.beat(
        owner, {one: failed() if one == TASK else running() if held[one].token else copy("standby") for one in held}
    )
    scene.settle()
    found = {one.what: one for one in (health(scene).worst, *health(scene).others)}["distrusted"]
    assert found.sentence.startswith(f"Member {owner} is given nothing new: ")
    assert [one.command for one in found.remedies] == [f"batonpass trust g {owner}"]
    assert found.cause is not None
    assert (found.cause.task, found.cause.member_id, found.cause.detail) == (TASK, owner, "broken")


def test_a_placement_that_failed_asks_for_attention() -> None:
    scene = guarded()
    scene.group = replace(scene.group, placement_failed="no answer in 60 s")
    assert said(scene) == (Level.ATTENTION, "placement-failed", "Placement failed: no answer in 60 s. Its task runs.")


def test_an_application_that_is_heard_at_its_rebalances_alone_is_not_said_to_be_silent() -> None:
    scene = guarded(2)
    scene.group = replace(scene.group, config=replace(scene.group.config, kafka_streams=True))
    restarted_soft = Soft()
    found = describe(View(scene.group, restarted_soft, scene.now_ms))[1]
    assert found.evidence == "what the application told at its last rebalance"
    assert found.worst.what not in ("unheard", "silent")


def test_an_application_that_is_not_heard_is_not_said_to_copy_too_slowly() -> None:
    """What its copies lacked at its last rebalance says nothing of now."""
    leader = Leader()
    leader.ask(process("a", ALL), process("b"))
    for _ in range(100):
        leader.scene.tick(10_000)
    found = describe(leader.scene.view())[1]
    assert found.worst.sentence.startswith("Nothing has been heard of the application for 16 min 42 s")
    assert "warmup-stalled" not in {one.what for one in found.others}
    assert found.evidence == "what the application told at its last rebalance, 16 min 42 s ago"


def test_what_holds_every_grant_is_said_and_is_the_cause_and_the_end_of_what_waits() -> None:
    """A clock that has moved, and a group that was deleted by force and declared anew."""
    scene = guarded(2)
    scene.soft = Soft()
    scene.do(Started(clock_moved=True))
    started_ms = scene.now_ms
    scene.tick(1_000)
    scene.obey()
    worst = health(scene).worst
    session_ms = scene.group.config.session_timeout_ms
    assert said(scene)[:2] == (Level.ATTENTION, "grants-held")
    assert (worst.since_ms, worst.until_ms) == (started_ms, started_ms + session_ms)
    assert worst.sentence == "Nothing is granted for another 44 s."
    assert worst.todo == "Wait 44 s; then what waits is granted by itself."
    scene = guarded(2)
    lost_ms = scene.now_ms + session_ms
    scene.do(GroupDeletion(force=True))
    scene.declare(topology(2))
    scene.join("c")
    scene.tick(3_000)
    worst = health(scene).worst
    assert (worst.what, worst.until_ms, worst.until) == (
        "not-processed",
        lost_ms,
        "the time for which nothing is granted",
    )
    assert worst.cause is not None
    assert worst.cause.detail == meaning_of(Held.GRANTS_HELD)


@pytest.mark.parametrize("held", SCENES)
def test_whatever_holds_a_task_that_nobody_runs_is_the_cause(held: Held) -> None:
    """Or what went wrong where it ran."""
    worst = health(SCENES[held]()).worst
    if worst.what == "not-processed":
        told = {Held.LEASE: LOSSES[Cause.EVICTED], Held.PARKED: "broken", Held.FAILED: "broken"}
        assert worst.cause is not None
        assert worst.cause.detail == told.get(held, meaning_of(held))
        assert worst.until or held is Held.PLACEMENT_FAILED


def test_an_instance_that_is_kept_out_is_named_and_after_a_while_asks_for_attention() -> None:
    """A hold that nobody ends; one that has an end waits for it."""

    def kept_out(for_ms: int | None = None) -> Scene:
        scene = Scene()
        scene.declare(topology(2))
        for name in "ab":
            scene.join(name, instance_id=InstanceId(f"pod-{name}"))
            scene.settle()
        scene.do(Eviction(A, dead=True, until_undone=True, for_ms=for_ms))
        scene.settle()
        return scene

    scene = kept_out()
    words = "Instance pod-a is kept out: none of its runs gets a task, until that is undone."
    assert said(scene) == (Level.AT_REST, "kept-out", f"{words} All 2 tasks run.")
    assert commands(scene) == ["batonpass undrain g pod-a"]
    assert health(scene).worst.until == "when an operator undrains it"
    since_ms = health(scene).worst.since_ms
    scene.now_ms += FORGOTTEN_MS
    scene.obey()
    assert (health(scene).level, health(scene).worst.since_ms) == (Level.ATTENTION, since_ms)
    scene = kept_out(24 * 3_600_000)
    scene.now_ms += FORGOTTEN_MS
    scene.obey()
    worst = health(scene).worst
    assert (worst.level, worst.until) == (Level.AT_REST, "the end that this was given")
    assert worst.until_ms is not None


def test_where_everybody_drains_or_is_kept_out_that_can_be_undone() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("a", instance_id=InstanceId("pod-a"))
    scene.settle()
    scene.do(Eviction(A, dead=True, until_undone=True))
    scene.join("c", instance_id=InstanceId("pod-a"))
    scene.tick(1_000)
    assert said(scene)[:2] == (Level.TROUBLE, "not-processed")
    assert health(scene).worst.todo.endswith("or undrain one that may.")
    assert commands(scene) == ["batonpass undrain g pod-a"]


def test_a_callback_that_does_not_return_asks_for_attention_before_it_is_no_longer_waited_for() -> None:
    """For the task that it begins, and for the task that it gives up."""
    scene = pair(2)
    for _ in range(80):
        scene.tick(1_000)
        scene.obey("a")
        held = scene.member("b").assignment.items()
        scene.beat("b", {task: copy(grant.role) for task, grant in held if not grant.token})
    worst = health(scene).worst
    assert (worst.level, worst.what, worst.sentence) == (Level.ATTENTION, "slow", "1 task is still starting.")
    assert (worst.runbook, "Look at the log of b: its callback has not returned." in worst.todo) == (
        "handover-stuck",
        True,
    )
    assert worst.since_ms is not None
    assert worst.until_ms == worst.since_ms + scene.group.config.rebalance_timeout_ms
    scene = pair(2)
    for _ in range(60):
        scene.tick(1_000)
        scene.beat("a", {"0_0": running(), "0_1": running()})
        scene.beat("b", {task: copy("warmup") for task in scene.member("b").assignment})
    worst = health(scene).worst
    assert (worst.what, worst.sentence) == ("slow", "1 task is still handing over.")
    assert "Look at the log of a: its callback has not returned." in worst.todo
    for _ in range(10):
        scene.tick(1_000)
    assert "slow" not in {one.what for one in (health(scene).worst, *health(scene).others)}, "nobody was heard"


def test_a_task_that_fails_on_every_member_is_told_from_a_host_on_which_tasks_fail() -> None:
    scene = pair(2)
    for _ in range(40):
        scene.tick(1_000)
        for name in "ab":
            held = scene.member(name).assignment.items()
            reports = {
                one: (failed("checksum mismatch") if one == TASK else running()) for one, grant in held if grant.token
            }
            copies = {one: copy(grant.role) for one, grant in held if not grant.token}
            scene.beat(name, {str(one): report for one, report in (reports | copies).items()})
    worst = health(scene).worst
    assert worst.sentence == "1 of 2 tasks is not processed: 1 failed wherever it was tried."
    assert worst.todo.startswith("Members a and b failed it alike, and no other may try it now")
    assert worst.cause is not None
    assert worst.cause.detail == "checksum mismatch"


def test_of_two_troubles_each_has_its_cause_and_its_help() -> None:
    scene = Scene()
    scene.declare(topology(4), session_timeout_ms=10_000)
    for name in "abcd":
        scene.join(name)
    scene.settle()
    owner = scene.task(TASK).owner
    assert owner is not None
    for _ in range(15):
        scene.tick(1_000)
        scene.beat(owner, {TASK: failed("disk full")})
    found = health(scene)
    assert found.worst.sentence == "4 of 4 tasks are not processed: 1 failed, 3 without an owner."
    assert found.worst.cause is not None
    assert found.worst.cause.detail == "disk full", "what is named first"
    storm = next(one for one in found.others if one.what == "storm")
    assert (storm.level, [one.command for one in storm.remedies]) == (Level.TROUBLE, ["batonpass resume g"])
    assert found.incident is not None
    assert found.incident.detail == "its lease ran out; it ran 1 task; 2 more members were lost then"


def test_what_an_event_tells_is_looked_up_in_the_same_table() -> None:
    assert remedy_of("task-parked", "", "g", "0_0") == EventRemedy("batonpass release g 0_0", "task-not-running")
    assert remedy_of("member-gone", "expired", "g", "m") == EventRemedy("", "member-silent")
    assert (remedy_of("member-gone", "left", "g", "m"), remedy_of("at-rest", "", "g")) == (None, None)


def test_two_processes_with_one_instance_id_are_found_by_their_takeovers() -> None:
    """Each join is in order, and all tasks run: only their number says that something is wrong."""
    scene = Scene()
    scene.declare(topology(2))
    for number in range(FLAPS):
        assert said(scene)[1] != "taking-turns"
        scene.join(f"m{number}", instance_id=InstanceId("pod-1"), takeover=True)
        scene.settle()
        scene.tick(1_000)
    assert said(scene)[:2] == (Level.AT_REST, "at-rest")
    scene.join("last", instance_id=InstanceId("pod-1"), takeover=True)
    scene.settle()
    words = "Runs of instance pod-1 took each other's place 3 times within 15 min."
    assert said(scene) == (Level.ATTENTION, "taking-turns", f"{words} All 2 tasks run.")
    found = health(scene).worst
    assert found.todo.startswith("If two processes have the instance id pod-1, give each its own;")
    assert (found.runbook, found.remedies) == ("flapping", ())
    assert found.until_ms is not None
    scene.now_ms = found.until_ms
    scene.obey()
    assert said(scene)[:2] == (Level.AT_REST, "at-rest")
