"""Folding records: the only place where hard state changes, and always to the same end."""

from dataclasses import replace
from inspect import isclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.scene import Scene, copy, failed, topology
from tests.often import cases

from batonpass.core.state import records as r
from batonpass.core.state.evolve import _FOLD, evolve
from batonpass.core.state.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    DrainReversal,
    Eviction,
    GroupDeletion,
    Leave,
    PauseRequest,
    PinRequest,
    PollBroken,
    ReleaseRequest,
    ResumeRequest,
    Started,
    StoreRecovered,
)
from batonpass.core.state.model import (
    ActiveState,
    Cause,
    Grant,
    Group,
    Member,
    OnLeaseLost,
    PauseScope,
    Role,
    Subtopology,
    Topology,
)
from batonpass.core.state.policy import GroupConfig

M1, M2 = MemberId("m1"), MemberId("m2")
T0 = TaskId("0_0")

RECORDS = {kind for kind in vars(r).values() if isclass(kind) and issubclass(kind, r.Record)} - {r.Record}


def story() -> Scene:
    """Return a scene in which nearly everything that can happen to a group has happened."""
    scene = Scene()
    scene.declare(num_standby_replicas=1, max_warmup_replicas=1)
    scene.join("m1", instance_id=InstanceId("i1"), on_lease_lost=OnLeaseLost.CONTINUE)
    scene.settle()
    scene.join("m2")
    scene.settle()
    scene.join("m3")
    scene.settle()
    scene.do(DrainRequest(M2))
    scene.settle()
    scene.do(DrainReversal(M2))
    scene.do(PauseRequest(PauseScope.ALL, "look"))
    scene.do(ResumeRequest())
    scene.do(PinRequest(T0, MemberId("m3")))
    scene.settle()
    scene.do(PinRequest(T0, None))
    scene.change(topology(3, epoch=2, more=(Subtopology("1", 1),)))
    scene.settle()
    scene.change(Topology(3, (Subtopology("0", 3),)), acceptable_recovery_lag=5)
    scene.settle()
    scene.do(PollBroken(M1))
    scene.tick(2_500)
    scene.obey()
    scene.settle()
    scene.do(Leave(M1, restart=True))
    scene.settle()
    scene.join("m1b", {"0_0": copy("none", 3)}, instance_id=InstanceId("i1"))
    scene.settle()
    scene.do(Eviction(MemberId("m3"), dead=True))
    scene.beat("m2", {task: failed() for task in scene.held("m2", Role.ACTIVE)})
    scene.do(ReleaseRequest(T0))
    scene.settle()
    scene.do(Started())
    scene.do(StoreRecovered())
    scene.obey()
    scene.tick(60_000)
    scene.settle()
    scene.do(GroupDeletion(force=True))
    scene.declare(topology(2, epoch=1))
    scene.join("m9")
    scene.tick(60_000)
    scene.obey("m9")
    scene.settle()
    return scene


STORY = story()


def test_the_story_tells_of_most_records() -> None:
    """The laws below are held to this story."""
    kinds = {type(record) for record in STORY.log}
    assert len(kinds) >= 24, sorted(kind.__name__ for kind in RECORDS - kinds)


@settings(max_examples=cases(60), deadline=None)
@given(st.lists(st.integers(min_value=1, max_value=len(STORY.log) - 1), max_size=12))
def test_it_does_not_matter_how_records_are_batched(cuts: list[int]) -> None:
    """A load ends where the living group stood (L3)."""
    group = Group(GroupId("g"))
    edges = [0, *sorted(set(cuts)), len(STORY.log)]
    for start, end in pairwise(edges):
        group = evolve(group, STORY.log[start:end])
    assert group == STORY.group


def test_one_record_at_a_time_is_no_different() -> None:
    group = Group(GroupId("g"))
    for version, record in enumerate(STORY.log):
        assert group.version == version
        group = evolve(group, [record])
    assert group == STORY.group


def test_no_records_is_the_very_same_group() -> None:
    group = STORY.group
    assert evolve(group, []) is group


def test_every_record_has_its_meaning() -> None:
    assert set(_FOLD) == RECORDS


ABOUT_A_MEMBER: list[r.Record] = [
    r.MemberGone(M2, Cause.LEFT, 5, 5),
    r.MemberAway(M2, 9, 5),
    r.PlaceInherited(M2, M1),
    r.DrainStarted(M2, 5, None, 9),
    r.DrainCancelled(M2),
    r.MemberSuspected(M2),
    r.SuspicionCleared(M2),
    r.AssignmentChanged(M2, 2, 5, {T0: Grant(Role.ACTIVE, 2, 5, 1)}),
    r.TasksAdopted(M2, {T0: 1}, (), 5),
    r.EpochsRaised({M2: 9}, 0),
    r.ActiveReported(T0, M2, ActiveState.RUNNING, 5),
    r.TaskReleased(T0, M2),
]


@pytest.mark.parametrize("record", ABOUT_A_MEMBER, ids=lambda record: type(record).__name__)
def test_a_record_about_nobody_changes_nothing_but_the_version(record: r.Record) -> None:
    group = evolve(Group(GroupId("g")), [r.GroupDeclared(topology(), GroupConfig(), 1), r.MemberJoined(Member(M1, 1))])
    assert evolve(group, [record]) == replace(group, version=group.version + 1)


def active(member: MemberId, epoch: int = 2, token: int = 1) -> r.AssignmentChanged:
    """Return the record that grants 0_0 to a member as active."""
    return r.AssignmentChanged(member, epoch, 10, {T0: Grant(Role.ACTIVE, epoch, 10, token)})
