"""What the event stream tells of a story, and that it leaves nothing out that it has a word for."""

from collections.abc import Callable
from datetime import datetime

import pytest
from tests.core.scene import copy, running, topology
from tests.placement.placing import Unsolvable
from tests.runtime.stories import (
    STORIES,
    TASK,
    A,
    B,
    StoryScene,
    begins,
    drains,
    expires,
    fails,
    guarded,
    hands_over,
    has_other_threads,
    is_blocked,
    is_kept_out,
    is_suspected,
    leaves,
    restarts,
)
from tests.schemas.validating import bodies_of_events

from batonpass.core.decide import decide
from batonpass.core.state.ids import InstanceId, MemberId, TaskId, task_sort_key
from batonpass.core.state.inputs import DrainRequest, Heartbeat, Join, Leave, Tick
from batonpass.core.state.model import Role, Subtopology
from batonpass.core.state.replies import DrainProgress
from batonpass.placement import flow
from batonpass.runtime.event_derivation import MANY, events_of, merged
from batonpass.runtime.events import Event, EventType


def test_every_type_of_event_occurs_in_some_story_with_the_body_that_is_described() -> None:
    """No word of the vocabulary is idle."""
    types: set[str] = set()
    bodies = bodies_of_events()
    for story in STORIES:
        for event in story().events:
            types.add(event.type)
            assert sorted(event.body) == sorted(bodies[EventType(event.type)]), event
    assert types == set(EventType)


def test_the_beginning_of_a_group_has_the_event_of_its_generation() -> None:
    """First grants and first runs have no events of their own."""
    assert begins().types() == ["group-declared", "member-joined", "generation", "at-rest"]


def test_a_member_that_joins_and_goes_in_one_decision_has_both_events() -> None:
    """Its container ended again, while the database was slow. Who follows the events would take it for present."""
    scene, pod = begins(), InstanceId("pod")
    names = [MemberId(name) for name in ("x", "y", "z")]
    inputs = [Join(name, pod, takeover=True) for name in names]
    decision = decide(scene.group, scene.soft, inputs, scene.now_ms, scene.policy)
    found = events_of(scene.group, inputs, decision, scene.now_ms)
    assert [(one.type, one.member) for one in found if one.type.startswith("member")] == [
        ("member-joined", "x"),
        ("member-joined", "y"),
        ("member-gone", "x"),
        ("member-joined", "z"),
        ("member-gone", "y"),
    ]


def test_an_instance_may_be_let_in_as_its_next_run_joins() -> None:
    """The time for which it was kept out is over at that moment."""
    scene, pod = begins(), InstanceId("pod")
    scene.join("x", instance_id=pod)
    scene.ok(DrainRequest(MemberId("x"), until_undone=True, for_ms=5_000), DrainProgress)
    scene.now_ms += 5_000
    inputs = [Join(MemberId("y"), pod, takeover=True), Tick()]
    decision = decide(scene.group, scene.soft, inputs, scene.now_ms, scene.policy)
    found = events_of(scene.group, inputs, decision, scene.now_ms)
    assert ("drain-cancelled", "y") in [(one.type, one.member) for one in found]


def test_a_handover_has_events_from_its_warmup_to_its_gap() -> None:
    """The gap counts from the confirmation."""
    scene = hands_over()
    assert scene.types() == [
        "member-joined",
        "generation",
        "warmup-started",
        "warmup-caught-up",
        "handover-begun",
        "task-stopped",
        "handover-done",
    ]
    begun, done = scene.only(EventType.HANDOVER_BEGUN), scene.only(EventType.HANDOVER_DONE)
    assert (begun.member, begun.body["from"], begun.body["why"]) == (B, A, "handover")
    assert scene.only(EventType.WARMUP_CAUGHT_UP).body == {"took_ms": 7_000}
    assert scene.only(EventType.TASK_STOPPED).body == {"cause": "revoked", "to": B}
    assert (done.member, done.body["from"], done.body["warm"], done.body["gap_ms"]) == (B, A, True, 400)


def test_a_takeover_counts_from_when_its_owner_went() -> None:
    scene = leaves()
    begun, done = scene.only(EventType.TAKEOVER_BEGUN), scene.only(EventType.TAKEOVER_DONE)
    assert scene.types().index("member-gone") < scene.types().index("takeover-begun")
    assert (begun.member, begun.body["from"], begun.body["cause"], begun.body["warm"]) == (B, A, "left", True)
    assert (done.body["cause"], done.body["warm"], done.body["gap_ms"]) == ("left", True, 250)
    assert (done.body["gap_is_lower_bound"], done.body["gap_at_most_ms"]) == (False, None)


def test_a_cold_start_is_a_takeover_that_was_not_warm() -> None:
    scene = expires()
    done, gone = scene.only(EventType.TAKEOVER_DONE), scene.only(EventType.MEMBER_GONE)
    assert (gone.body["cause"], gone.body["running"]) == ("expired", 1)
    assert done.body["cause"] == "expired"
    assert done.body["warm"] is False
    assert (done.body["gap_ms"], done.body["gap_is_lower_bound"]) == (scene.now_ms - gone.at_ms, True)
    heard = datetime.fromisoformat(str(gone.body["last_heard_at"])).timestamp() * 1_000
    assert done.body["gap_at_most_ms"] == scene.now_ms - round(heard) >= scene.group.config.session_timeout_ms
    assert "task-restoring" not in scene.types()


def test_a_restart_is_a_takeover_from_the_run_before() -> None:
    scene = restarts()
    done = scene.only(EventType.TAKEOVER_DONE)
    assert (done.member, done.body["from"], done.body["cause"], done.body["gap_ms"]) == ("a2", "a1", "restarted", 5_000)
    assert scene.only(EventType.MEMBER_JOINED).body["in_place_of"] == "a1"
    assert scene.only(EventType.MEMBER_AWAY).body["running"] == 1


def test_a_suspected_owner_loses_its_task_by_a_takeover() -> None:
    """What is taken from a member that seems to be dead is no handover."""
    scene = is_suspected()
    done = scene.only(EventType.TAKEOVER_DONE)
    assert (done.body["cause"], done.body["gap_ms"], done.body["warm"]) == ("suspected", 100, True)
    assert done.body["gap_at_most_ms"] == 1_500 + scene.group.config.suspect_timeout_ms + 100, "since it was heard"
    assert scene.types().count("takeover-begun") == 1
    types = scene.types()
    assert "handover-begun" not in types[: types.index("suspicion-cleared")]


def test_a_task_that_begins_to_run_and_is_handed_over_in_one_decision_has_both_events() -> None:
    """Its owner's word and that of its next owner have arrived together."""
    scene = StoryScene()
    scene.declare(topology(2), acceptable_recovery_lag=100)
    scene.join("a")
    scene.join("b")
    (task,) = scene.held("b", Role.WARMUP)
    inputs = (
        Heartbeat(A, 1, scene.member("a").epoch, {TaskId(f"0_{number}"): running() for number in range(2)}),
        Heartbeat(B, 1, scene.member("b").epoch, {TaskId(task): copy("warmup", 0)}),
    )
    decision = decide(scene.group, scene.soft, inputs, scene.now_ms, scene.policy)
    types = [event.type for event in events_of(scene.group, inputs, decision, scene.now_ms) if event.task == task]
    assert types == ["warmup-caught-up", "handover-begun"]


def test_a_task_that_fell_back_recovers() -> None:
    """An owner that failed and runs again closes its gap by itself; the third member to fail parks the task."""
    scene = fails()
    first = next(event for event in scene.events if event.type == "task-recovered")
    assert (first.member, first.body["cause"], first.body["gap_ms"]) == (A, "failed", 500)
    assert scene.types().index("task-parked") < scene.types().index("task-unparked")


def test_a_drain_has_events_from_its_start_to_its_end() -> None:
    scene = drains()
    assert scene.types()[:2] == ["drain-started", "generation"]
    assert scene.only(EventType.DRAIN_CANCELLED).member == A
    assert scene.only(EventType.DRAIN_DONE).member == A
    assert scene.types().index("task-stopped") < scene.types().index("drain-done")


def test_an_instance_that_is_kept_out_has_events_from_the_word_to_its_end() -> None:
    scene = is_kept_out()
    kept, again = (event for event in scene.events if event.type == "instance-kept-out")
    first, second = (event for event in scene.events if event.type == "instance-let-in")
    assert (kept.member, kept.body["until_at"], again.member) == (MemberId("c"), None, MemberId("c2"))
    assert [first.body["expired"], second.body["expired"]] == [False, True]
    # A run that has had nothing has nothing to hand over.
    assert [event.member for event in scene.events if event.type == "drain-done"] == [MemberId("c2")]


def test_a_process_that_goes_on_with_other_threads_has_an_event_that_says_what_it_has_now() -> None:
    changed = has_other_threads().only(EventType.MEMBER_CHANGED)
    assert (changed.member, changed.body) == (
        MemberId("pod"),
        {"capacity": 2.0, "client_tags": {"zone": "z2"}, "endpoint": "pod:2"},
    )


def test_a_drain_with_nowhere_to_go_has_an_event_when_it_comes_to_that() -> None:
    """When the second drain begins, the member that has something to hand over has nowhere to go."""
    scene = is_blocked()
    blocked = [event for event in scene.events if event.type == "drain-blocked"]
    assert [(event.member, event.body) for event in blocked] == [(A, {"why": "no-eligible-member", "running": 1})]
    assert scene.types().index("drain-blocked") > scene.types().index("drain-started")


def test_a_deadline_that_leaves_tasks_behind_is_one_event() -> None:
    scene = StoryScene()
    scene.declare(topology(1))
    scene.join("a")
    scene.settle()
    scene.join("b", max_tasks=0)
    scene.forget()
    scene.do(DrainRequest(A, 5_000))
    for _ in range(9):
        scene.wait(1_000)
        scene.obey()
    blocked = scene.only(EventType.DRAIN_BLOCKED)
    assert (blocked.member, blocked.body) == (A, {"why": "drain-deadline", "running": 1})
    assert scene.types().count("drain-started") == 1


def test_a_drain_whose_placement_fails_has_an_event_when_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The placement comes some time after the drain; its failure is why the member keeps what it has."""
    scene = guarded()
    scene.change(rebalance_batch_ms=1_000)
    scene.tick(1_000)
    scene.settle()
    scene.forget()
    monkeypatch.setattr(flow, "SimpleMinCostFlow", Unsolvable)
    scene.do(DrainRequest(A, 60_000))
    assert "drain-blocked" not in scene.types()
    scene.tick(1_000)
    blocked = scene.only(EventType.DRAIN_BLOCKED)
    assert (blocked.member, blocked.body) == (A, {"why": "placement-failed", "running": 1})


def test_the_same_change_of_many_tasks_is_one_event() -> None:
    """More than a hundred events of a type and member become one, with their number and the largest gap."""
    scene = StoryScene()
    scene.whole = False
    scene.declare(topology(2 * MANY + 40), num_standby_replicas=1)
    scene.join("a")
    scene.join("b")
    scene.settle()
    ran = sorted(scene.held("b", Role.ACTIVE), key=task_sort_key)
    scene.forget()
    scene.do(Leave(B))
    scene.now_ms += 700
    scene.obey("a")
    begun, done = scene.only(EventType.TAKEOVER_BEGUN), scene.only(EventType.TAKEOVER_DONE)
    assert (begun.body["tasks"], begun.body["sample"], begun.body["warm"]) == (MANY + 20, ran[:MANY], True)
    assert (done.body["tasks"], done.body["sample"], done.body["gap_ms"]) == (MANY + 20, ran[:MANY], 700)
    assert (done.body["from"], done.body["cause"], done.body["warm"]) == (B, "left", True)
    assert (begun.task, done.task, done.member) == (None, None, A)
    gone = [Event("member-gone", 0, 0, MemberId(f"m{number}"), None, {"running": 2}) for number in range(MANY + 1)]
    (storm,) = merged([*gone[1:], gone[0]._replace(body={"running": 3, "cause": "left"})])
    assert "running" not in storm.body
    both = merged(
        [*gone, *(one._replace(task=TASK, member=A, body={"warm": n % 2 == 0}) for n, one in enumerate(2 * gone))]
    )
    assert [one.body.get("tasks", one.body.get("members")) for one in both] == [MANY + 1] * 3
    (storm,) = merged(gone)
    assert storm.body["running"] == 2
    assert (storm.member, storm.body["members"]) == (None, MANY + 1)
    assert storm.body["sample"] == sorted(one.member for one in gone if one.member)[:MANY]
    whole = [Event("probed", 0, 0, None, None, {}) for _ in range(MANY + 1)]
    assert merged(whole) == whole
    few = [Event("x", 0, 0, A, TaskId(f"0_{number}"), {}) for number in range(MANY)]
    assert merged(few) == few
    assert merged([*few, Event("x", 0, 0, B, TASK, {})]) == [*few, Event("x", 0, 0, B, TASK, {})]


@pytest.mark.parametrize("story", STORIES)
def test_the_same_inputs_at_the_same_instants_make_the_same_events(story: Callable[[], StoryScene]) -> None:
    """L10 asks for it."""
    assert story().events == story().events


def test_who_gives_up_what_has_ended_says_so_as_ever() -> None:
    """A standby's task is forgotten before its member has confirmed, an active's with the confirmation."""
    scene = StoryScene()
    extra = Subtopology("n", 1, changelog_topics=("n",))
    scene.declare(topology(1, more=(extra,)), num_standby_replicas=1)
    scene.join("a")
    scene.join("b")
    scene.settle()
    assert {*scene.held("a", Role.ACTIVE), *scene.held("a", Role.STANDBY)} == {TASK, "n_0"}
    scene.forget()
    scene.change(topology(1, epoch=2))
    scene.obey()
    assert "n_0" not in scene.group.tasks
    assert [(one.type, one.task) for one in scene.events if one.task == "n_0"] == [
        ("task-revoked", "n_0"),
        ("task-stopped", "n_0"),
    ]
