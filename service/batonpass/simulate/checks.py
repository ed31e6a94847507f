"""The laws, checked against the true state of the world after every step.

``invariants`` checks each decision by itself. The checks here need more than that: which workers really process a
task by their own machines and clocks, when a member was last heard, how often a task changed hands, and whether folding
the records and deciding again give the same result.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from batonpass.core.decide import Decision, decide
from batonpass.core.state import records as r
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import Input
from batonpass.core.state.model import ActiveState, Cause, Group, Role
from batonpass.core.state.pmap import PMap
from batonpass.core.state.soft import Soft
from batonpass.invariants import Transition, Violation, check_group, check_repeated, check_step
from batonpass.simulate.coordinator import POLICY, SimulatedCoordinator, Store
from batonpass.simulate.tasks import Task, name_of
from batonpass.simulate.worker import SharedState, Worker

K = TypeVar("K")
V = TypeVar("V")

Changes = Mapping[TaskId, tuple[MemberId | None, tuple[MemberId, ...], str]]

# One in so many decisions is made twice, and the whole group is checked then.
SAMPLE = 23


def reordered(group: Group, soft: Soft) -> tuple[Group, Soft]:
    """Return the same group and soft state with every mapping filled in the opposite order."""
    return (
        replace(
            group,
            members=_reversed(group.members),
            instances=_reversed(group.instances),
            tasks=_reversed(group.tasks),
            gone=_reversed(group.gone),
            unsettled=_reversed(group.unsettled),
        ),
        soft._replace(
            members=_reversed(soft.members),
            end_offsets=_reversed(soft.end_offsets),
            begin_offsets=_reversed(soft.begin_offsets),
        ),
    )


def _reversed(mapping: PMap[K, V]) -> PMap[K, V]:
    return PMap(dict(reversed(list(mapping.items()))))


class Checks:
    """Checks the laws and keeps the state that this needs. ``broken`` lists the violations, the earliest first."""

    def __init__(self, shared: SharedState, workers: list[Worker], store: Store, note: Callable[[str], None]) -> None:
        self._shared = shared
        self._workers = workers
        self._store = store
        self._note = note
        self.broken: list[Violation] = []
        self.decisions = 0
        self.handovers = 0
        self.moves = 0
        # Tasks that more than one process might be processing; the only ones at which time alone can break L1.
        self._contested: dict[Task, None] = {}
        # How many handovers from a running owner the target of each task still allows (L8).
        self.credit: dict[TaskId, int] = {}
        self.least_timeout_ms = 1 << 62
        # L1 is not promised before the coordinator can know that the store lost commits (L3). The first member that
        # knows more than the log proves it. One session timeout later every member has reported or has stopped.
        self.excused_until_ms = 0

    def fail(self, law: str, detail: str, task: str | None = None, member: str | None = None) -> None:
        violation = Violation(
            law, detail, None if task is None else TaskId(task), None if member is None else MemberId(member)
        )
        self._found([violation])

    def _found(self, violations: list[Violation]) -> None:
        for violation in violations:
            self._note(f"BROKEN {violation}")
            self.broken.append(violation)

    # --- after every step ---------------------------------------------------------------------------------------

    def after_step(self) -> None:
        """Check L1 for the tasks that more than one process might be processing."""
        self._contested |= self._shared.touched
        self._shared.touched.clear()
        for task in list(self._contested):
            busy = [worker for worker in self._workers if task in worker.tasks and worker.tasks[task].token]
            if len(busy) < 2:
                del self._contested[task]
                continue
            self._check_one_owner(task, [worker for worker in busy if worker.processes(task)])

    def _check_one_owner(self, task: Task, busy: list[Worker]) -> None:
        if len(busy) < 2 or self._shared.now_ms < self.excused_until_ms:
            return
        # First form: a worker that stops when its lease ends never processes beside a newer owner. Second form: of
        # workers that go on past their lease, the sink accepts only one.
        newest = max(worker.tasks[task].token for worker in busy)
        accepted = [worker for worker in busy if worker.tasks[task].token >= self._shared.sinks.get(task, 0)]
        late = [worker for worker in busy if worker.tasks[task].token < newest and not worker.is_fenced_by_token]
        names = ", ".join(f"{worker.last_id} (token {worker.tasks[task].token})" for worker in busy)
        if len(accepted) > 1:
            self.fail("L1", f"writes of several are accepted: {names}", name_of(task))
        elif late:
            self.fail("L1", f"processed by several at once: {names}", name_of(task))

    # --- decisions ----------------------------------------------------------------------------------------------

    def on_decision(self, coordinator: SimulatedCoordinator, item: Input, decision: Decision) -> None:
        inputs = (item,)
        self.decisions += 1
        before, soft, now_ms = coordinator.group, coordinator.soft, coordinator.clock_ms
        transition = Transition(before, decision.after, decision.records, soft, decision.soft, now_ms, inputs)
        self._found(check_step(transition))
        if decision.records or self.decisions % SAMPLE == 0:
            self._note(f"{coordinator.name} {inputs} -> {decision.replies}")
            for record in decision.records:
                self._note(f"    {record}")
        if decision.records and evolve(before, decision.records) != decision.after:
            self.fail("L2", "the records do not lead to the group that was decided")
        if self.decisions % SAMPLE == 0:
            self._found(check_group(decision.after))
            self._decide_again(coordinator, inputs, decision)
        for record in decision.records:
            if isinstance(record, r.TargetPlaced) and record.failed:
                self.fail("L9", f"placement failed: {record.failed}")
            if isinstance(record, r.MemberGone) and record.cause is Cause.EXPIRED:
                self._check_silence(coordinator, record.member_id)

    def _decide_again(self, coordinator: SimulatedCoordinator, inputs: tuple[Input, ...], decision: Decision) -> None:
        """Decide once more, on the same state built in another order (L10)."""
        group, soft = reordered(coordinator.group, coordinator.soft)
        again = decide(group, soft, inputs, coordinator.clock_ms, POLICY)
        for one, other in (
            (decision.records, again.records),
            (decision.replies, again.replies),
            (decision.wake_at_ms, again.wake_at_ms),
            (decision.reasons, again.reasons),
        ):
            self._found(check_repeated(one, other))
        if again.after != decision.after or again.soft != decision.soft:
            self.fail("L10", "the same input led to another state")

    def _check_silence(self, coordinator: SimulatedCoordinator, member_id: MemberId) -> None:
        """Check that no member is expired because the coordinator itself was silent (L5)."""
        # A member's lease has the session timeout of its last answer, which may be shorter than the present one.
        timeout_ms = self.least_timeout_ms
        heard_ms = coordinator.heard_at_ms.get(member_id)
        since_ms = max(coordinator.started_at_ms, heard_ms or 0)
        if self._shared.now_ms - since_ms < timeout_ms:
            self.fail("L5", f"expired {self._shared.now_ms - since_ms} ms after it was heard", None, member_id)

    def on_commit(self, coordinator: SimulatedCoordinator, decision: Decision) -> None:
        """Check that no other coordinator has written, and count moves, and handovers by task."""
        before = coordinator.group
        if self._store.history[-1][0].version != before.version:
            self.fail("L4", f"{coordinator.name} wrote past what another coordinator had written")
        for record in decision.records:
            match record:
                case r.GroupDeclared(config=config) | r.ConfigChanged(config=config):
                    self.least_timeout_ms = min(self.least_timeout_ms, config.session_timeout_ms)
                case r.TargetPlaced(changes=changes):
                    self._on_target(before, changes)
                case r.AssignmentChanged():
                    self._on_assignment(before, decision, record)
                case r.PlaceInherited(member_id=member_id) | r.MemberGone(member_id=member_id):
                    self._renew_credit(before, member_id)
                case r.GrantsHeld(adopting=True):
                    self.credit.clear()
                    noticed_ms = self._shared.now_ms + before.longest_session_ms
                    self.excused_until_ms = min(self.excused_until_ms, noticed_ms)
                case r.EpochsRaised() | r.GrantsHeld() | r.TaskPinned():
                    self.credit.clear()
                case _:
                    pass

    def _on_target(self, before: Group, changes: Changes) -> None:
        for task_id, (owner, _, _) in changes.items():
            task = before.tasks.get(task_id)
            if task is None or task.target.owner != owner:
                self.credit[task_id] = 1
                self.moves += 1

    def _renew_credit(self, before: Group, member_id: MemberId) -> None:
        for task_id, task in before.tasks.items():
            if task.target.owner == member_id:
                self.credit[task_id] = 1

    def _on_assignment(self, before: Group, decision: Decision, record: r.AssignmentChanged) -> None:
        owner = decision.after.members.get(record.member_id)
        for task_id, grant in record.granted.items():
            if grant.role is Role.ACTIVE and decision.after.tasks[task_id].target.owner != record.member_id:
                # A member other than the target has it for now; one handover brings it to its target.
                self.credit[task_id] = 1
        for task_id in (*record.revoked, *record.demoted):
            task = before.tasks.get(task_id)
            runs = task is not None and task.owner == record.member_id and task.state is ActiveState.RUNNING
            if not runs or owner is None or owner.suspected or not _is_stateful(before, task_id):
                continue
            if owner.drain is not None and owner.drain.deadline_ms is not None:
                continue
            said = decision.soft.report_of(record.member_id, task_id)
            if said is not None and (said.report.lost or said.report.state is ActiveState.FAILED):
                continue
            self.handovers += 1
            left = self.credit.get(task_id, 1) - 1
            self.credit[task_id] = left
            if left < 0:
                self.fail("L8", "handed over twice for one change of its target", task_id, record.member_id)

    def on_load(self, group: Group) -> None:
        """Check that the log leads to the committed group, and that this group is consistent."""
        if group != self._store.group:
            self.fail("L3", "the log leads to another group than was committed")
        self._found(check_group(group))


def _is_stateful(group: Group, task_id: TaskId) -> bool:
    task_index = group.table.index_of.get(task_id)
    return task_index is not None and group.table.stateful[task_index]
