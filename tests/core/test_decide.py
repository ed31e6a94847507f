"""The table of contents: every input is taken, refused where there is no group, and answered once all is decided."""

from inspect import isclass

import pytest
from tests.core.scene import Scene, copy, running, topology

from batonpass.core.decide import HANDLERS, decide
from batonpass.core.state import inputs
from batonpass.core.state.errors import Gone, ProtocolError, UnknownGroup
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    DrainReversal,
    EndOffsets,
    Eviction,
    GroupDeclaration,
    GroupDeletion,
    Heartbeat,
    Input,
    Join,
    Leave,
    PartitionCounts,
    PauseRequest,
    PinRequest,
    PollBroken,
    PollOpened,
    ProbeRequest,
    ReleaseRequest,
    ResumeRequest,
    Started,
    StoreRecovered,
    Tick,
)
from batonpass.core.state.model import Group, Role, Subtopology
from batonpass.core.state.policy import Policy
from batonpass.core.state.reasons import NoChange, Why
from batonpass.core.state.replies import Answer, Done, DrainProgress
from batonpass.core.state.soft import Soft

A = MemberId("a")
TASK = TaskId("0_0")


def test_every_input_has_a_handler() -> None:
    kinds = {kind for kind in vars(inputs).values() if isclass(kind) and issubclass(kind, Input)} - {Input}
    assert HANDLERS.keys() == kinds


def running_group() -> Scene:
    """Return a group in which a runs both tasks."""
    scene = Scene()
    scene.declare(topology(2))
    scene.join("a")
    scene.settle()
    return scene


@pytest.mark.parametrize(
    "item",
    [
        Join(A),
        Heartbeat(A, 1, 1),
        Leave(A),
        DrainRequest(A),
        DrainReversal(A),
        Eviction(A),
        ProbeRequest(),
        PauseRequest(),
        ResumeRequest(),
        PinRequest(TASK, A),
        ReleaseRequest(TASK),
        GroupDeletion(),
    ],
    ids=lambda item: type(item).__name__,
)
def test_what_names_a_group_that_is_not_there_is_refused_and_leaves_nothing(item: Input) -> None:
    group = Group(GroupId("nowhere"))
    decision = decide(group, Soft(), (item,), 1_000, Policy())
    assert isinstance(decision.replies[0], UnknownGroup)
    assert decision.records == ()
    assert decision.after is group


@pytest.mark.parametrize(
    "item",
    [Tick(), Started(), EndOffsets({}, 0), PartitionCounts({"in": 3}), PollBroken(A), PollOpened(A)],
    ids=lambda item: type(item).__name__,
)
def test_what_merely_happens_to_a_group_that_is_not_there_leaves_nothing(item: Input) -> None:
    group = Group(GroupId("nowhere"))
    decision = decide(group, Soft(), (item,), 1_000, Policy())
    assert decision.records == ()
    assert decision.after is group


def test_a_deleted_group_takes_members_no_more() -> None:
    """A tombstone keeps the tokens, which must never repeat."""
    scene = running_group()
    token = scene.task(TASK).token
    scene.do(GroupDeletion(force=True))
    scene.refused(Heartbeat(A, 99, 2), UnknownGroup)
    scene.do(GroupDeclaration(GroupId("g"), topology(2), None))
    scene.join("b")
    scene.tick(200_000)
    scene.tick(1)
    assert scene.task(TASK).token > token


def test_without_records_the_group_is_the_very_one_that_came_in() -> None:
    scene = running_group()
    before = scene.group
    scene.beat("a", {"0_0": running(), "0_1": running()})
    assert scene.group is before
    assert scene.last is not None
    assert scene.last.records == ()


def test_none_of_the_arguments_is_changed() -> None:
    scene = running_group()
    group, soft = scene.group, scene.soft
    first = decide(group, soft, (Join(MemberId("b")),), scene.now_ms, scene.policy)
    decide(first.after, first.soft, (Leave(A),), scene.now_ms + 5, scene.policy)
    assert decide(group, soft, (Join(MemberId("b")),), scene.now_ms, scene.policy) == first


def test_a_join_is_answered_with_the_assignment_that_the_whole_decision_led_to() -> None:
    scene = Scene()
    scene.declare(topology(2))
    answer = scene.join("a")
    assert answer.created
    assert list(answer.assignment or {}) == ["0_0", "0_1"]
    again = scene.ok(Join(A), Answer)
    assert not again.created
    assert again.assignment == answer.assignment


def test_a_current_epoch_needs_no_assignment() -> None:
    scene = running_group()
    reply = scene.beat("a", {"0_0": running(), "0_1": running()})
    assert isinstance(reply, Answer)
    assert reply.assignment is None
    scene.do(PinRequest(TASK, A))
    scene.join("b")
    scene.do(DrainRequest(A))
    scene.obey("b")
    late = scene.beat("a", epoch=2)
    assert isinstance(late, Answer)
    assert late.assignment is not None


def test_who_runs_what_is_not_in_its_assignment_is_shown_it_again() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("a")
    scene.join("b")
    scene.settle()
    foreign = next(task for task, owner in scene.owners().items() if owner == "b")
    own = next(task for task, owner in scene.owners().items() if owner == "a")
    reply = scene.beat("a", {own: running(), foreign: running()})
    assert isinstance(reply, Answer)
    assert list(reply.assignment or {}) == [own]


def test_unknown_tasks_and_fields_are_named_and_otherwise_ignored() -> None:
    """A newer client talks to an older coordinator."""
    scene = Scene()
    scene.declare(topology(1))
    reply = scene.ok(Join(A, tasks={TaskId("9_9"): copy("none", 0)}, unknown_fields=("mood",)), Answer)
    assert [code for code, _ in reply.status] == ["unknown-field", "unknown-task"]
    reports = {TASK: running(), TaskId("9_9"): running()}
    beat = scene.ok(Heartbeat(A, 1, 2, reports, unknown_fields=("hue",)), Answer)
    assert [code for code, _ in beat.status] == ["unknown-field", "unknown-task"]
    assert scene.owners() == {TASK: "a"}


def test_a_task_that_the_topology_drops_is_unknown_from_then_on_in_every_answer() -> None:
    scene = Scene()
    scene.declare(topology(1, more=(Subtopology("2", 1),)))
    scene.join("a")
    scene.join("b")
    scene.settle()
    other = next(str(name) for name in scene.group.members if name != scene.task("2_0").owner)
    reports = {task: running() for task in scene.held(other, Role.ACTIVE)} | {"2_0": copy("none", 0)}
    scene.beat(other, reports)
    scene.change(topology(1))
    for _ in range(2):
        reply = scene.beat(other, reports)
        assert isinstance(reply, Answer)
        assert [code for code, _ in reply.status] == ["unknown-task"]


def test_a_drain_is_answered_with_what_is_left_after_the_decision() -> None:
    scene = running_group()
    scene.join("b")
    assert scene.ok(DrainRequest(A), DrainProgress).remaining == ("0_0", "0_1")
    assert scene.ok(DrainRequest(MemberId("b")), DrainProgress).remaining == ()


def test_the_wake_up_is_the_first_instant_at_which_anything_is_due() -> None:
    scene = running_group()
    decision = scene.tick(1_000)
    assert decision.wake_at_ms is not None
    assert decision.wake_at_ms > scene.now_ms
    scene.join("b")
    scene.do(DrainRequest(A, 2_000))
    assert scene.last is not None
    assert scene.last.wake_at_ms is not None
    assert scene.last.wake_at_ms <= scene.now_ms + 2_000


def test_an_empty_group_needs_no_wake_up() -> None:
    scene = Scene()
    scene.declare(topology(1))
    assert scene.tick(1_000).wake_at_ms is None


def test_a_tick_too_early_or_too_often_changes_nothing() -> None:
    scene = running_group()
    version = scene.group.version
    for _ in range(5):
        scene.tick()
    assert scene.group.version == version


def test_tasks_that_stay_share_one_reason() -> None:
    scene = Scene()
    scene.declare(topology(50), max_warmup_replicas=1)
    scene.join("a")
    scene.obey()
    scene.join("b")
    assert scene.last is not None
    staying = [reason for reason in scene.last.reasons if reason.code == Why.STAYS]
    assert len(staying) == 1
    assert staying[0].tasks == 25


def test_what_was_heard_is_explained_when_it_changes_nothing() -> None:
    scene = running_group()
    scene.do(Heartbeat(A, 1, 2))
    assert scene.last is not None
    assert [reason.code for reason in scene.last.reasons] == [NoChange.DUPLICATE]


def test_a_store_that_lost_commits_holds_grants_and_raises_an_alarm() -> None:
    scene = running_group()
    scene.ok(StoreRecovered(), Done)
    assert scene.group.grants_from_ms > scene.now_ms
    assert scene.last is not None
    assert "store-lost-commits" in {reason.code for reason in scene.last.reasons}


def test_a_protocol_error_is_a_reply_and_never_raised() -> None:
    scene = Scene()
    reply = scene.do(GroupDeclaration(GroupId("g"), None, {"max_warmup_replicas": -1}))
    assert isinstance(reply, ProtocolError)
    assert not scene.group.declared


def test_a_drain_is_refused_if_the_member_leaves_in_the_same_decision() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a")
    both = (DrainRequest(A), Leave(A))
    drained, left = decide(scene.group, scene.soft, both, scene.now_ms, scene.policy).replies
    assert isinstance(drained, Gone)
    assert isinstance(left, Done)
