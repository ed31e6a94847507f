"""A change can be imagined on a snapshot: who would be there, what would be theirs, and how even it would be."""

from dataclasses import replace

import pytest

from batonpass.core.state.errors import InvalidConfig, InvalidRequest, TooLarge
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.policy import GroupConfig
from batonpass.dry_run.plan import plan_snapshot
from batonpass.dry_run.snapshot import Snapshot, SnapshotCopy, SnapshotMember, SnapshotTask
from batonpass.dry_run.whatif import Balance, Newcomers, WhatIf, balance_now, balance_then, imagine

M1, M2 = MemberId("m1"), MemberId("m2")
TASKS = tuple(TaskId(f"0_{number}") for number in range(4))
RUNNING = SnapshotCopy("active", lag=0)


def snapshot() -> Snapshot:
    """Return two members with two running tasks each, one of them pinned, one being revoked."""
    tasks = tuple(SnapshotTask(task, revoking=M2 if task == "0_3" else None) for task in TASKS)
    members = (
        SnapshotMember(M1, tasks={TASKS[0]: RUNNING, TASKS[1]: RUNNING}),
        SnapshotMember(M2, tasks={TASKS[2]: RUNNING, TASKS[3]: RUNNING}),
    )
    target = {TASKS[0]: (M1, (M2,)), TASKS[2]: (M2, (M1,))}
    return Snapshot(tasks=tasks, members=members, target=target, pins={TASKS[0]: M1, TASKS[2]: M2})


def test_nothing_to_imagine_is_the_snapshot_itself() -> None:
    assert imagine(snapshot(), WhatIf(), max_members=2) == snapshot()


def test_newcomers_get_names_that_are_free() -> None:
    before = Snapshot(members=(SnapshotMember(MemberId("join-2")),))
    kinds = (Newcomers(capacity=4.0, count=2), Newcomers())
    after = imagine(before, WhatIf(join=kinds), max_members=10)
    assert [one.id for one in after.members] == ["join-2", "join-1", "join-3", "join-4"]
    assert after.members[1] == SnapshotMember(MemberId("join-1"), capacity=4.0)
    assert after.members[3].capacity == 1.0


def test_whoever_leaves_is_gone_from_targets_pins_and_revocations() -> None:
    after = imagine(snapshot(), WhatIf(leave=(M2,)), max_members=2)
    assert [one.id for one in after.members] == [M1]
    assert after.pins == {TASKS[0]: M1}
    assert after.target == {TASKS[0]: (M1, ()), TASKS[2]: (None, (M1,))}
    assert [task.revoking for task in after.tasks] == [None] * 4


def test_draining_and_settings_take_their_place() -> None:
    change = WhatIf(drain=(M1,), config={"num_standby_replicas": 1})
    after = imagine(snapshot(), change, max_members=2)
    assert [one.draining for one in after.members] == [True, False]
    assert after.config == GroupConfig(num_standby_replicas=1)


def test_a_what_if_that_cannot_be_is_refused_with_every_fault() -> None:
    strangers = WhatIf(leave=(M1, MemberId("m8")), drain=(MemberId("m9"),))
    with pytest.raises(InvalidRequest) as refused:
        imagine(snapshot(), strangers, max_members=2)
    assert [path for path, _ in refused.value.errors] == ["leave[1]", "drain[0]"]
    with pytest.raises(InvalidRequest, match="leave: names a member twice"):
        imagine(snapshot(), WhatIf(leave=(M1, M1)), max_members=2)
    with pytest.raises(InvalidRequest, match="drain: names 3 members, the group has 2"):
        imagine(snapshot(), WhatIf(drain=(M1, M2, M1)), max_members=2)
    with pytest.raises(TooLarge, match="5 members, the limit is 4"):
        imagine(snapshot(), WhatIf(join=(Newcomers(count=3),)), max_members=4)
    with pytest.raises(InvalidConfig):
        imagine(snapshot(), WhatIf(config={"colour": "red"}), max_members=2)


def test_balance_is_weight_per_capacity_of_those_who_stay() -> None:
    assert balance_now(snapshot()) == Balance(2.0, 2.0)
    after = imagine(snapshot(), WhatIf(join=(Newcomers(capacity=2.0),)), max_members=3)
    plan = plan_snapshot(after)
    assert plan.moves == 2
    assert balance_then(after, plan) == Balance(1.0, 1.0)
    drained = imagine(replace(snapshot(), pins={}), WhatIf(drain=(M1,)), max_members=2)
    assert balance_then(drained, plan_snapshot(drained)) == Balance(4.0, 4.0)
    assert balance_now(Snapshot()) == Balance(0.0, 0.0)


def test_copies_and_tasks_without_state_weigh_nothing_in_it() -> None:
    listed = (SnapshotTask(TASKS[0]), SnapshotTask(TASKS[1]), SnapshotTask(TaskId("1_0"), stateful=False))
    standby = {TASKS[1]: SnapshotCopy("standby", lag=0)}
    members = (
        SnapshotMember(M1, tasks={TASKS[0]: RUNNING, TaskId("1_0"): RUNNING, **standby}),
        SnapshotMember(M2, tasks={TASKS[1]: RUNNING}),
    )
    assert balance_now(Snapshot(tasks=listed, members=members)) == Balance(1.0, 1.0)
