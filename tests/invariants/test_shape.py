"""A group's agreement with itself, and what rest means (L9), as checks. Each law holds, and breaks."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.invariants.laws import (
    CONFIG,
    M1,
    M2,
    M3,
    NOW,
    TOPOLOGY,
    A,
    B,
    C,
    active,
    details,
    group,
    member,
    with_member,
    with_task,
)

from batonpass.core.state import records as r
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.state.model import (
    ActiveState,
    Cause,
    GoneMember,
    Group,
    Handover,
    Marks,
    Pending,
    Target,
    Task,
    Topology,
    Unreleased,
)
from batonpass.core.state.pmap import PMap
from batonpass.invariants import check_group
from batonpass.invariants.shape import check_tasks, is_settled

NOBODY = MemberId("nobody")


def whole() -> Group:
    """Return the group with 0_1 placed and run by m3, so that nothing is to come."""
    return group(
        r.TargetPlaced(2, 1, NOW, {B: Target(M3)}),
        r.AssignmentChanged(M3, 2, NOW, {B: active(2, 1)}),
        r.ActiveReported(B, M3, ActiveState.RUNNING, NOW),
    )


def laws(one: Group) -> list[str]:
    """Return the laws that a whole group breaks, each once."""
    return sorted({violation.law for violation in check_group(one)})


def test_a_group_at_rest_agrees_with_itself() -> None:
    assert check_group(whole()) == []
    assert check_group(group(r.GroupDeleted(NOW, NOW))) == []


@pytest.mark.parametrize(("standbys", "broken"), [((M2,), []), ((M2, M3), ["L8"])])
def test_standbys_are_counted_also_where_every_task_has_state(
    standbys: tuple[MemberId, ...], broken: list[str]
) -> None:
    records: tuple[r.Record, ...] = (
        r.GroupDeclared(Topology(1, TOPOLOGY.subtopologies[:1]), CONFIG, NOW),
        *(r.MemberJoined(member(name)) for name in (M1, M2, M3)),
        r.TargetPlaced(1, 1, NOW, {A: Target(M1, standbys)}),
    )
    assert laws(evolve(Group(GroupId("g")), records)) == broken


@pytest.mark.parametrize(
    ("planted", "law"),
    [
        (with_task(whole(), A, standbys=(M2, M2)), "L8"),
        (with_task(whole(), A, standbys=(M1, M2)), "L8"),
        (with_task(whole(), A, owner=M3), "L2"),
        (with_task(whole(), A, warmups=(NOBODY,)), "L2"),
        (with_task(whole(), A, token=9), "L1"),
        (with_task(whole(), A, handover=Handover(unreleased=(Unreleased(M3, None),))), "L1"),
        (with_task(whole(), A, handover=Handover(unreleased=(Unreleased(NOBODY, None),))), "L1"),
        (with_task(whole(), A, handover=Handover(unreleased=(Unreleased(M3, NOW),))), "L1"),
        (with_task(whole(), A, target=Target(M1, (M1,))), "L8"),
        (with_task(whole(), A, target=Target(NOBODY, (M2,))), "L2"),
        (with_task(whole(), A, target=Target(standbys=(M2,))), "L8"),
        (with_task(whole(), A, target=Target(M1, (M2, M3))), "L8"),
        (with_task(whole(), C, target=Target(M1, (M2,))), "L8"),
        (with_member(whole(), M3, assignment=PMap({A: active(2, 1)})), "L2"),
        (with_member(whole(), M3, epoch=1), "L2"),
        (with_member(whole(), M3, assignment=PMap({B: active(2, 1), NOBODY: active(2, 1)})), "L2"),
        (with_member(whole(), M3, away_until_ms=NOW), "L1"),
        (replace(whole(), gone=PMap({M3: GoneMember(NOW, Cause.LEFT, NOW, None)})), "L1"),
        (replace(whole(), instances=PMap({InstanceId("pod-1"): M2})), "L2"),
        (replace(whole(), instances=PMap({InstanceId("pod-1"): NOBODY})), "L2"),
        (replace(whole(), instances=PMap()), "L2"),
        (replace(whole(), unsettled=PMap({A: Pending.MOVING})), "L9"),
        (with_task(whole(), A, state=ActiveState.RESTORING), "L9"),
        (replace(whole(), tasks=whole().tasks.without(A)), "L2"),
    ],
)
def test_a_contradiction_is_found(planted: Group, law: str) -> None:
    assert law in laws(planted)


def test_a_target_may_lag_behind_what_is_due() -> None:
    """Between a departure and its placement a target may be without an owner or of an older config."""
    pending = replace(whole(), placement_due_ms=NOW)
    assert check_group(with_task(pending, A, target=Target(M1, (M2,)))) == []
    late = replace(with_task(pending, A, target=Target(standbys=(M2,))), unsettled=PMap({A: Pending.MOVING}))
    assert check_group(late) == []


def test_what_the_topology_no_longer_has_is_settled_when_nobody_holds_it() -> None:
    first, second = TOPOLOGY.subtopologies
    smaller = group(r.TopologyChanged(replace(TOPOLOGY, subtopologies=(replace(first, partitions=1), second))))
    assert is_settled(smaller, smaller.task(B))
    kept = replace(smaller, tasks=smaller.tasks.having(B, smaller.task(B)))
    assert details(check_group(kept)) == "it has ended, and is still kept"
    held = group(r.TopologyChanged(replace(TOPOLOGY, subtopologies=(second,))))
    assert not is_settled(held, held.tasks[A])
    assert check_group(held) == []


def test_only_the_named_tasks_of_a_member_are_looked_at() -> None:
    planted = with_member(whole(), M3, assignment=whole().members[M3].assignment.having(A, active(2, 1)))
    assert list(check_tasks(planted, [B], [M3])) == []
    assert list(check_tasks(planted, [B, C, TaskId("none")], [M3])) == []
    assert "its assignment has it as active" in details(list(check_tasks(planted, [A, B], [M3])))


def test_a_task_that_has_ended_hides_none_with_the_same_target() -> None:
    many = Target(M1, (M2, M3))
    planted = with_task(whole(), A, target=many)
    ended = TaskId("ended_0")
    planted = replace(planted, tasks=planted.tasks.having(ended, Task(ended, target=many)))
    assert "2 target standbys; 1 are wanted" in details(list(check_tasks(planted, [A, ended], [])))


@pytest.mark.parametrize(
    "fields",
    [
        {"warmups": (M3,)},
        {"handover": Handover(next_owner=M2), "target": Target(M2, (M2,))},
        {"target": Target(M2, (M2,))},
    ],
)
def test_a_group_looks_again_while_something_is_to_come(fields: dict[str, object]) -> None:
    moving = replace(with_task(whole(), A, **fields), unsettled=PMap({A: Pending.MOVING}))
    assert "L9" in laws(moving)
    assert "L9" not in laws(replace(moving, next_probe_ms=NOW))
    assert "L9" not in laws(replace(moving, placement_due_ms=NOW))


def test_what_waits_for_an_event_needs_no_look() -> None:
    moving = replace(
        with_task(whole(), A, marks=Marks(parked=True), target=Target(M2, (M2,))), unsettled=PMap({A: Pending.MOVING})
    )
    assert "L9" not in laws(moving)
    waiting = group()
    assert waiting.tasks[B].target.owner is None
    assert check_group(waiting) == []


def test_a_whole_group_is_gone_over_as_often_however_many_members_it_has() -> None:
    """Once for each member, the laws would hold up whoever declares a large group."""

    class Counted(list[TaskId]):
        passes = 0

        def __iter__(self) -> Iterator[TaskId]:
            self.passes += 1
            return super().__iter__()

    before, after = Counted(whole().tasks), Counted(whole().tasks)
    list(check_tasks(whole(), before, [M1]))
    list(check_tasks(whole(), after, [M1, M2, M3]))
    assert before.passes == after.passes
