"""A small world: a store, its coordinators, worker processes with the real member's machine, and what is under way.

A world is a value to the search: a move copies it, and changes the copy. Time is coarse. All deadlines of a scenario
are whole units; what takes less (a retry, the least gap between two heartbeats) lets a moment of the unit pass, and the
moments of a whole story are shorter than a unit. So two worlds whose times lie in the same units go on alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from tests.core.in_vain import left_at_deadline, stopped_in_vain
from tests.core.transcripts.words import Happened

from batonpass.core.arrivals.reports import count_as_heard
from batonpass.core.decide import Decision, decide
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId
from batonpass.core.state.inputs import Heartbeat, Input, Join
from batonpass.core.state.model import Group
from batonpass.core.state.policy import Policy
from batonpass.core.state.soft import Soft
from batonpass.invariants import Transition, Violation, check_group, check_step
from batonpass.simulate.wire import Body, to_answer, unavailable
from batonpass.worker.protocol import (
    Instruction,
    MemberProtocol,
    MemberSettings,
    Offsets,
    OnLeaseLost,
    Progress,
    Request,
    RequestKind,
    Role,
    Send,
    Stop,
    StopForGood,
)

UNIT_MS = 1_000_000
"""A heartbeat interval. Every timeout of a scenario is a number of these."""
MOMENT_MS = 10_000
"""What comes due within this is not worth a unit of its own."""
END = 1_000_000
"""Where every changelog ends; a copy is there, or has read nothing yet."""
POLICY = Policy(coordinator_lease_ms=UNIT_MS // 2)
AT_END = Progress(position=END, end_offset=END)
AT_BEGIN = Progress(position=0, end_offset=END)


class LawBroken(Exception):
    """The laws that broke, the first one first; and the ``way`` there, where that was a way to rest."""

    def __init__(self, violations: list[Violation]) -> None:
        super().__init__("; ".join(f"{one.law} {one.task or ''} {one.detail}" for one in violations))
        self.law = violations[0].law
        self.way: list[str] = []


class Coordinator(NamedTuple):
    """A coordinator process. ``leads`` is false once another one has the lease: it may not answer from memory then."""

    epoch: int
    group: Group
    soft: Soft = Soft()
    leads: bool = True


class Message(NamedTuple):
    """A request under way, or (with a ``status``) its answer, to or from one process of a worker.

    It is gone once its process waits for it no longer, unless it is ``late``: then it may still arrive, or never.
    """

    worker: str
    process: int
    request: Request
    status: int = 0
    body: Body | None = None
    late: bool = False

    def is_open_poll_of(self, name: str) -> bool:
        return self.worker == name and self.request.kind is RequestKind.POLL and not self.status

    def is_waited_for_by(self, machine: MemberProtocol) -> bool:
        """Whether it is the join, heartbeat or leave that a process has under way, or the answer to anything."""
        return machine._main.in_flight == self.request or (self.status > 0 and machine._poll.in_flight == self.request)

    @property
    def words(self) -> str:
        """What it is, in a story."""
        what = self.request.kind.value + (f" {self.request.seq}" if self.request.seq else "")
        return f"{'the answer to ' if self.status else ''}{self.request.member_id}'s {what}"


@dataclass(slots=True)
class Ids:
    """Names the runs of a worker: a.1, a.2 and so on."""

    name: str
    runs: int = 0

    def __call__(self) -> str:
        self.runs += 1
        return f"{self.name}.{self.runs}"


@dataclass(slots=True)
class Worker:
    """A machine and the process on it, if one runs. What it has of each task is what its member's machine holds.

    A worker with ``takeover`` is started by somebody who knows that the last process is dead. One that has ``left`` for
    good stays away.
    """

    settings: MemberSettings
    ids: Ids
    process: int = 0
    machine: MemberProtocol | None = None
    disk: Mapping[str, Progress] = field(default_factory=dict)
    left: bool = False

    @property
    def is_fenced(self) -> bool:
        """Whether its outputs are refused once another worker has a newer token."""
        return self.settings.on_lease_lost is OnLeaseLost.CONTINUE


@dataclass(slots=True)
class World:
    """The state of everything. ``budget`` says what may still go wrong, and how many units may still pass."""

    now_ms: int
    store: Group
    store_epoch: int
    coordinators: tuple[Coordinator, ...]
    workers: dict[str, Worker]
    wire: tuple[Message, ...]
    budget: Mapping[str, int]
    happened: list[Happened] = field(default_factory=list)

    def copy(self, spent: tuple[str, ...] = ()) -> "World":
        """Return a world to be changed, with one less of all that was spent."""
        budget = {**self.budget, **{each: self.budget[each] - 1 for each in spent}} if spent else self.budget
        return World(
            self.now_ms,
            self.store,
            self.store_epoch,
            self.coordinators,
            dict(self.workers),
            self.wire,
            budget,
        )

    @property
    def leader(self) -> Coordinator:
        """The coordinator that was started last."""
        return self.coordinators[-1]

    # --- coordinators -------------------------------------------------------------------------------------------

    def start_coordinator(self, *, others_live: bool) -> None:
        """Start a coordinator from the log: in place of the last one, or beside it, when its lease is over."""
        self.store_epoch += 1
        others = tuple(one._replace(leads=False) for one in self.coordinators) if others_live else ()
        self.coordinators = (*others, Coordinator(self.store_epoch, self.store))

    def decide(self, index: int, item: Input) -> tuple[int, Body | None] | None:
        """Let a coordinator decide, hold the decision to the laws, commit, and return the answer; None if it ended."""
        one = self.coordinators[index]
        decision = decide(one.group, one.soft, (item,), self.now_ms, POLICY)
        self._check(one, item, decision)
        self.happened.append(Happened(item, self.now_ms, one.group, decision, decision.replies[0]))
        if decision.records:
            written = self.store.version
            if not append(self, one, decision.after):
                self.coordinators = tuple(other for other in self.coordinators if other is not one)
                return None
            if written != one.group.version:
                raise LawBroken([Violation("L4", f"written past {written}, which another coordinator wrote")])
        if not decision.records and not one.leads:
            soft = (
                count_as_heard(one.group, one.soft, item, self.now_ms)
                if isinstance(item, Heartbeat | Join)
                else one.soft
            )
            self._set(index, one._replace(soft=soft))
            return unavailable("coordinator-loading")
        self._set(index, one._replace(group=decision.after, soft=decision.soft))
        return to_answer(decision.replies[0])

    def _set(self, index: int, one: Coordinator) -> None:
        self.coordinators = (*self.coordinators[:index], one, *self.coordinators[index + 1 :])

    def _check(self, one: Coordinator, item: Input, decision: Decision) -> None:
        after = decision.after
        transition = Transition(one.group, after, decision.records, one.soft, decision.soft, self.now_ms, (item,))
        found = check_step(transition)
        if decision.records:
            found += check_group(after)
            found += [Violation("in vain", each) for each in stopped_in_vain(transition) + left_at_deadline(transition)]
            if evolve(one.group, decision.records) != after:
                found.append(Violation("L2", "the records do not lead to the group that was decided"))
        if found:
            raise LawBroken(found)

    # --- workers ------------------------------------------------------------------------------------------------

    def boot(self, name: str) -> None:
        """Start a process, with what is on the disk."""
        worker = self.workers[name]
        ids = replace(worker.ids)
        machine = MemberProtocol(worker.settings, ids, on_disk=worker.disk)
        self.workers[name] = replace(worker, ids=ids, machine=machine, process=worker.process + 1, disk={})
        self._carry_out(name, machine.start(self.now_ms))
        self.wake(name)

    def end(self, name: str) -> None:
        """End a process. Copies at the end of their changelog stay on the disk; what it has sent is under way."""
        worker = self.workers[name]
        held = worker.machine.holdings if worker.machine else {}
        disk = {task: AT_END for task, holding in held.items() if holding.progress == AT_END}
        self.workers[name] = replace(worker, machine=None, disk=disk)
        self.wire = tuple(
            each
            for each in self.wire
            if not (each.worker == name and (each.status or each.request.kind is RequestKind.POLL))
        )

    def tell(self, name: str, what: str, *arguments: object, **named: object) -> None:
        """Call a method of a worker's machine, now, and carry out what it says."""
        worker = self.workers[name]
        machine = fork(worker.machine)
        self.workers[name] = replace(worker, machine=machine, ids=machine._new_member_id)
        self._carry_out(name, getattr(machine, what)(*arguments, **named, now_ms=self.now_ms))
        self.wake(name)

    def wake(self, name: str) -> None:
        """Let a worker send what is due within a moment, as a process does that is awake."""
        machine = self.workers[name].machine
        while (
            machine is not None and (wake_ms := machine.wake_at_ms) is not None and wake_ms <= self.now_ms + MOMENT_MS
        ):
            self.now_ms = max(self.now_ms, wake_ms)
            self._carry_out(name, machine.tick(self.now_ms))

    def _carry_out(self, name: str, instructions: list[Instruction]) -> None:
        worker = self.workers[name]
        if worker.machine is not None:
            waits_for = [channel.in_flight for channel in worker.machine._channels()]
            self.wire = tuple(
                each
                for each in self.wire
                if each.worker != name or each.process != worker.process or each.late or each.request in waits_for
            )
        for each in instructions:
            if isinstance(each, Send):
                self.wire = (*self.wire, Message(name, worker.process, each.request))
            elif isinstance(each, Stop) and each.role is not Role.ACTIVE:
                self.tell(name, "task_stopped", each.task)
            elif isinstance(each, StopForGood):
                self.end(name)

    def stop(self, name: str, task: str) -> None:
        """Let a worker finish what it was told to stop, or to demote."""
        holding = self.workers[name].machine.holdings[task]  # type: ignore[union-attr]
        final: Offsets | None = END if holding.progress == AT_END else None
        what = "task_demoted" if holding.stopping and holding.stopping.becomes else "task_stopped"
        self.tell(name, what, task, final_position=final)

    # --- what is true -------------------------------------------------------------------------------------------

    def check_workers(self) -> None:
        """Hold what the workers really do to the worker's half of L1."""
        running: dict[str, list[tuple[int, str, bool]]] = {}
        for name, worker in self.workers.items():
            machine = worker.machine
            for task, holding in machine.holdings.items() if machine else ():
                if machine and holding.role is Role.ACTIVE and machine.may_process(task, self.now_ms):
                    running.setdefault(task, []).append((holding.token or 0, name, worker.is_fenced))
        for task, found in running.items():
            newest = max(token for token, _, _ in found)
            with_newest = [name for token, name, _ in found if token == newest]
            unfenced = [name for token, name, is_fenced in found if token < newest and not is_fenced]
            if len(with_newest) > 1:
                raise LawBroken([Violation("L1", f"{with_newest} run {task} with one token, {newest}")])
            if unfenced:
                raise LawBroken([Violation("L1", f"{unfenced} run {task} beside {with_newest}, and are not fenced")])


def append(world: World, one: Coordinator, after: Group) -> bool:
    """Commit, unless another coordinator has the group by now, or has written; say whether it was committed."""
    if one.epoch != world.store_epoch or one.group.version != world.store.version:
        return False
    world.store = after
    return True


def fork(value: Any) -> Any:
    """Return a copy of a machine: of everything in it that changes. Values that cannot change are shared."""
    kind = type(value)
    if kind is dict:
        return {key: fork(each) for key, each in value.items()} if value else {}
    if kind is list:
        return list(value)
    names = _changing_fields(kind)  # type: ignore[arg-type]
    if not names:
        return value
    twin = object.__new__(kind)
    for name in names if kind is not MemberProtocol else value.__dict__:
        setattr(twin, name, fork(getattr(value, name)))
    return twin


@cache
def _changing_fields(kind: type) -> tuple[str, ...]:
    """Return the fields of a type whose values change; none if they do not."""
    if kind is MemberProtocol:
        return ("all",)
    changes = is_dataclass(kind) and not kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return tuple(each.name for each in fields(kind)) if changes else ()


def empty(workers: Mapping[str, MemberSettings], budget: Mapping[str, int]) -> World:
    """Return a world in which nothing has happened."""
    group = Group(GroupId("g"))
    machines = {name: Worker(settings, Ids(name)) for name, settings in workers.items()}
    return World(UNIT_MS, group, 1, (Coordinator(1, group),), machines, (), budget)
