"""The laws of groups of Kafka Streams applications: what the report of a rebalance licenses, and what it does not."""

import pytest
from tests.invariants.laws import CONFIG, M1, M3, NOW, TOPOLOGY, A, B, C, broken, group, member, step

from batonpass.core.state import records as r
from batonpass.core.state.ids import InstanceId, TaskId
from batonpass.core.state.inputs import StreamsProcess, StreamsRebalance
from batonpass.core.state.model import Cause
from batonpass.core.state.soft import TaskReport

POD, OTHER = InstanceId("pod-1"), InstanceId("pod-3")
REVOKED = (r.AssignmentChanged(M1, 3, NOW, revoked=(A,)), r.NextOwnerChosen(A, M1))


def rebalance(*processes: StreamsProcess) -> StreamsRebalance:
    """Return what the leader says of these processes."""
    return StreamsRebalance(TOPOLOGY, {}, processes)


def running(name: InstanceId, *tasks: TaskId, **more: object) -> StreamsProcess:
    """Return a process that runs these tasks."""
    return StreamsProcess(name, tasks=dict.fromkeys(tasks, TaskReport("active")), **more)  # type: ignore[arg-type]


def test_a_process_that_is_not_named_is_gone() -> None:
    gone = r.MemberGone(M1, Cause.LEFT, NOW, NOW)
    assert broken(step([gone], item=rebalance())) == []
    assert "L1" in broken(step([gone], item=rebalance(running(POD, A, C))))


def test_a_process_that_changed_is_still_there() -> None:
    gone = r.MemberGone(M1, Cause.LEFT, NOW, NOW)
    for capacity in (1.0, 2.0):
        assert "L1" in broken(step([gone], item=rebalance(running(POD, A, C, capacity=capacity))))
    assert broken(step([gone], item=rebalance(running(OTHER)))) == []


def test_who_is_no_member_was_not_vouched_for() -> None:
    gone = r.MemberGone(M3, Cause.LEFT, NOW, NOW)
    assert broken(step([gone], item=rebalance())) == []


@pytest.mark.parametrize(("process", "laws"), [(running(POD, C), []), (running(POD, A, C), ["L1"])])
def test_a_task_is_released_by_a_report_without_it(process: StreamsProcess, laws: list[str]) -> None:
    revoked = group(*REVOKED)
    assert broken(step([r.TaskReleased(A, M1)], before=revoked, item=rebalance(process))) == laws


def test_what_kafka_gave_to_somebody_is_taken_as_it_is_and_only_that() -> None:
    before = group(r.MemberGone(M3, Cause.LEFT, NOW, NOW))
    joined = r.MemberJoined(member(InstanceId("m5"), instance_id=OTHER))  # type: ignore[arg-type]
    last = before.tasks[A].token
    adopted = r.TasksAdopted(joined.member.id, {A: last + 1}, (), NOW)
    runs = rebalance(running(POD, C), running(OTHER, A))
    assert broken(step([joined, adopted, r.TaskReleased(A, M1)], before=before, item=runs)) == []
    for item in (rebalance(running(POD, C), running(OTHER)), rebalance(running(POD, A, C), running(OTHER, A))):
        assert "L1" in broken(step([joined, adopted], before=before, item=item))
    old = r.TasksAdopted(joined.member.id, {A: last}, (), NOW)
    assert "L1" in broken(step([joined, old], before=before, item=runs))
    assert "L1" in broken(step([joined, adopted], before=before, item=rebalance(running(POD, A, C))))
    new = r.TasksAdopted(joined.member.id, {B: 9}, (), NOW)
    assert broken(step([joined, new], before=before, item=rebalance(running(OTHER, B)))) == []
    assert CONFIG.kafka_streams is False
