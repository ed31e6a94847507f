"""What the audit knows of one group at a place in its log: members, tasks, who may run them, copies and settings.

The ledger takes a group's entries in the order of the log, once, and says what came of them: a grant, a run that has
ended, a decision that has been read, and so on (``Fact``). Laws and measures are functions of these facts (``checks``,
``downtime``, ``measures``). It is the audit's own book-keeping and shares nothing with the core's ``evolve``, on which
it is a witness. Its memory grows with tasks, copies and members, never with records.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from operator import itemgetter
from typing import Final, NamedTuple

from batonpass.audit.entries import LAG, UNREADABLE, Entry
from batonpass.audit.facts import (
    Assigned,
    Budgets,
    Fact,
    Granted,
    Handovers,
    Interval,
    Lag,
    Overlap,
    Probe,
    Run,
    Warmup,
    Warmups,
)
from batonpass.audit.findings import GIVEN_ID
from batonpass.audit.order import Order
from batonpass.audit.plan import GroupPlan
from batonpass.core.state.model import Topology
from batonpass.core.state.policy import GroupConfig

GRANT, REVOCATION, RELEASE, GONE = "grant", "revocation", "release", "gone"
"""What an entry does to its member's right to run its task: a grant gives it, a revocation ends it but for a
confirmation, a release is that confirmation, and to be gone ends it with the member's lease."""

_ROLES: Final = {
    **dict.fromkeys(("active", "adopted"), "active"),
    **{role: role for role in ("standby", "warmup")},
    **dict.fromkeys(("revoked", "demoted", "dropped", "gone"), "none"),
}
"""The role that a member has in a task from an entry on."""

_WARMTH: Final = {
    **dict.fromkeys(("active", "adopted", "next-owner"), "promoted"),
    **{role: role for role in ("standby", "warmup")},
    **dict.fromkeys(("revoked", "dropped", "gone"), "dropped"),
}
"""How an entry ends the warmup of a copy, or that it begins one."""


@dataclass(slots=True)
class Member:
    """A member, from its join on, and as far as it is named.

    ``tasks`` are those of which it has had a copy; ``epoch`` was told by ``epoch_told``, ``epoch_most`` is its
    highest. ``run`` says which of its instance's members it is, from 1.
    """

    id: str
    joined: bool = False
    instance: str | None = None
    run: int = 0
    tasks: dict[str, None] = field(default_factory=dict)
    epoch: int | None = None
    epoch_most: int = 0
    epoch_told: Entry | None = None

    @property
    def identity(self) -> str | None:
        """The name by which it is recognised after a restart; None where nobody saw it join."""
        return (self.instance or self.id) if self.joined else None


@dataclass(slots=True)
class Copy:
    """A member's copy of a task, and its right to run the task.

    ``licensed``: the member may be running it, until ``until_ms`` as far as is known. ``last_act`` and ``last_right``
    are its last acts, the latter without releases. ``grant`` is its last grant, or what else gave it the right first.
    ``was_gone``: it is known to have gone, with its lease.
    """

    role: str = "none"
    licensed: bool = False
    last_act: str | None = None
    last_right: str | None = None
    grant: Entry | None = None
    until_ms: float = inf
    was_gone: bool = False
    interval: Interval | None = None
    warmth: str = "dropped"
    warmup: Warmup | None = None


class _Open(NamedTuple):
    """A grant while others might still run the task, before it is over, or the day is."""

    entry: Entry
    copy: Copy
    others: Sequence[tuple[Entry, Copy]]

    @property
    def is_over(self) -> bool:
        return not (self.copy.licensed and any(one.licensed for _, one in self.others))

    def fact(self) -> Overlap:
        """Return it with its end, as far as it is known: when its member, or the last of the others, had stopped."""
        last, copy = max(self.others, key=lambda one: one[1].until_ms)
        ends = (copy.until_ms, last.member), (self.copy.until_ms, self.entry.member)
        until_ms, stopped = min(ends, key=itemgetter(0))
        others = tuple(entry for entry, _ in self.others)
        return Overlap(self.entry, others, None if until_ms == inf else int(until_ms), stopped)


@dataclass(slots=True)
class Task:
    """A task: its copies, its present run, and the grants so far.

    ``overlaps`` has the grants while others might still run it; ``held`` is the last grant, ``token`` the highest one.
    ``meant`` is the member of its target, ``target`` counts its targets. ``first_ms``: when it was first granted, or
    run, since it exists; ``lives`` has from when to when it did before. ``handovers`` are those for one target.
    """

    id: str
    run: Run
    copies: dict[str | None, Copy] = field(default_factory=dict)
    overlaps: list[_Open] = field(default_factory=list)
    held: Entry | None = None
    token: int | None = None
    has_target: bool = False
    meant: str | None = None
    target: int = 0
    seen: bool = False
    first_ms: int | None = None
    lives: list[tuple[int, int]] = field(default_factory=list)
    handovers: list[Run] = field(default_factory=list)


@dataclass(slots=True)
class _Instant:
    """What was written at one instant.

    ``edges`` are where warmups began (1) or ended (-1), ``began`` has the members that had no copy of theirs before.
    ``drains``: a member drained. ``changed``: more than ``probes`` that took place was written.
    """

    at_ms: int
    edges: list[tuple[Entry, int]] = field(default_factory=list)
    began: dict[str | None, None] = field(default_factory=dict)
    probes: list[Entry] = field(default_factory=list)
    drains: bool = False
    changed: bool = False


class Ledger:
    """Takes the entries of one group; ``take`` and ``end`` return what came of them.

    Attributes:
        begin_ms: when the day begins.
        tasks, members: by id.
        stateless: the subtopologies without state.
        session_ms, suspect_ms: the longest timeouts that the settings have had.
        has_topology: whether the log has said what tasks there are.
        kafka_streams: whether this is a Kafka Streams application.
        excused: members from whom tasks may be taken without a ready copy: suspected, or drained with a deadline.
        order: which records were lost.
    """

    def __init__(self, plan: GroupPlan, begin_ms: int) -> None:
        self.plan, self.begin_ms = plan, begin_ms
        self.tasks: dict[str, Task] = {}
        self.members: dict[str, Member] = {}
        self.stateless: set[str] = set()
        self.session_ms = self.suspect_ms = 0
        self.has_topology = self.kafka_streams = False
        self.excused: set[str] = set()
        self.order = Order(plan)
        self._facts: list[Fact] = []
        self._raised_seq = -1
        self._instances: Counter[str] = Counter()
        self._config: GroupConfig | None = None
        self._stateful = 0
        self._parts: set[str] | None = None
        self.budgets: Budgets | None = None
        self._draining: set[str] = set()
        # By member; None has those of the group.
        self._warming: Counter[str | None] = Counter()
        self._instant = _Instant(-1)
        self._probe_due_ms: int | None = None
        self._of_group: Final[Mapping[str, Callable[[Entry], None]]] = {
            UNREADABLE: self._take_unreadable,
            "joined": self._take_joined,
            "raised": self._take_raised,
            "assigned": self._take_epoch,
            **dict.fromkeys(("gone", "away"), self._take_departure),
            "deleted": self._take_deleted,
            "suspected": self._take_suspected,
            "drain": self._take_drain,
            "undrain": self._take_undrain,
            "config": self._take_config,
            "topology": self._take_topology,
            "probe": self._take_probe,
        }

    def take(self, entry: Entry) -> list[Fact]:
        self._facts = []
        if entry.at_ms != self._instant.at_ms:
            self._end_instant()
            self._instant = _Instant(entry.at_ms)
        if entry.place == 0:
            self._facts += self.order.take(entry)
            if self.order.loses(entry.seq - 1, entry.seq):
                self._raised_seq = entry.seq
            self._instant.changed |= entry.what != "probe"
        what = entry.what
        if entry.task is None:
            step = self._of_group.get(what)
            if step is not None:
                step(entry)
            elif what == "placed":
                self._facts.append(entry)
        elif what == "stalled":
            self._facts.append(entry)
        elif what == LAG:
            self._take_lag(entry)
        else:
            if what in _ASSIGNED and entry.place == 0:
                self._take_epoch(entry)
            self._take_of_task(entry)
        return self._facts

    def end(self) -> list[Fact]:
        """Return what is open when the day ends."""
        self._facts = []
        self._end_instant()
        self._facts += self.order.end()
        for task in self.tasks.values():
            self._end_run(task)
            self._end_handovers(task)
            self._facts += [one.fact() for one in task.overlaps]
            for copy in task.copies.values():
                self._forget(copy)
        return self._facts

    @property
    def knows_topology(self) -> bool:
        """Whether it is known which tasks have state: the log told of it, or nothing of it is lost."""
        return self.has_topology or (self.plan.known and not self.order.loses())

    def identity_of(self, member: str | None) -> str | None:
        """Return the name by which a member is recognised after a restart, if it is known."""
        known = self.members.get(member) if member is not None else None
        return known.identity if known is not None else None

    def name_of(self, member: str) -> str:
        """Return what people call a member whose id was drawn: its instance, and from its second run on which one."""
        known = self.members.get(member)
        if known is None or known.instance is None or not GIVEN_ID.fullmatch(member):
            return member
        return known.instance if known.run == 1 else f"{known.instance}, run {known.run}"

    def has_state(self, task: str) -> bool:
        """Whether a task has state, as far as is known."""
        return subtopology_of(task) not in self.stateless

    def _take_unreadable(self, entry: Entry) -> None:
        self._facts.append(entry)
        if entry.place >= 0:
            self.order.lose(entry.seq)
            self._raised_seq = entry.seq

    def _end_instant(self) -> None:
        instant = self._instant
        self._facts += [Probe(one, not instant.changed and one.until_ms is not None) for one in instant.probes]
        for member in (None, *instant.began) if instant.began else ():
            of_whom = [
                (one.seq, change, one.task, one.member, one)
                for one, change in instant.edges
                if member in (None, one.member)
            ]
            last = max(of_whom, key=itemgetter(0, 1, 2, 3))[-1]
            self._facts.append(Warmups(last, self._warming[member], self.budgets, instant.drains, member))

    # What concerns a group, or a member.

    def _member(self, name: str | None) -> Member:
        assert name is not None  # noqa: S101 - for the type checker
        known = self.members.get(name)
        if known is None:
            known = self.members[name] = Member(name)
        return known

    def _take_joined(self, entry: Entry) -> None:
        member = self._member(entry.member)
        member.joined = True
        if entry.word is not None:
            member.instance = entry.word
            self._instances[entry.word] += 1
            member.run = self._instances[entry.word]
        self._tell_epoch(member, entry)

    def _take_raised(self, entry: Entry) -> None:
        self._tell_epoch(self._member(entry.member), entry)

    def _take_epoch(self, entry: Entry) -> None:
        member = self._member(entry.member)
        told = member.epoch_told
        if told is not None and entry.number is not None and member.epoch is not None:
            known = member.epoch_most if told.what == "raised" else member.epoch
            self._facts.append(Assigned(entry, known, told, unsure=self._raised_seq > told.seq))
        self._tell_epoch(member, entry)

    @staticmethod
    def _tell_epoch(member: Member, entry: Entry) -> None:
        member.epoch_told, member.epoch = entry, entry.number
        member.epoch_most = max(member.epoch_most, entry.number or 0)

    def _take_departure(self, entry: Entry) -> None:
        self._facts.append(entry)
        # Who is away has said that it stopped; its place is kept, not its tasks.
        away = entry.what == "away"
        self._end_member(
            entry._replace(
                what="gone",
                until_ms=entry.ms if away else entry.until_ms,
                word="restarted" if away else entry.word,
            ),
            for_good=not away,
        )

    def _take_deleted(self, entry: Entry) -> None:
        gone = entry._replace(what="gone", until_ms=entry.ms, word="group-deleted")
        for member in [one for one in self.members.values() if one.joined]:
            self._end_member(gone._replace(member=member.id), for_good=True)
        self._draining.clear()
        self._take_parts(set(), entry.ms)

    def _end_member(self, gone: Entry, *, for_good: bool) -> None:
        member = self._member(gone.member)
        self._draining.discard(member.id)
        for name in list(member.tasks):
            self._take_of_task(gone._replace(task=name))
            task = self.tasks[name]
            copy = task.copies[member.id]
            if for_good and not copy.licensed:
                # Nothing follows from a copy of who is gone: to name it again is to begin anew.
                self._forget(copy)
                del task.copies[member.id], member.tasks[name]

    def _take_suspected(self, entry: Entry) -> None:
        self.excused.add(self._member(entry.member).id)
        self._facts.append(entry)

    def _take_drain(self, entry: Entry) -> None:
        member = self._member(entry.member).id
        self._draining.add(member)
        if entry.until_ms is not None:
            self.excused.add(member)

    def _take_undrain(self, entry: Entry) -> None:
        self._draining.discard(self._member(entry.member).id)

    def _take_config(self, entry: Entry) -> None:
        config = entry.whole
        assert isinstance(config, GroupConfig)  # noqa: S101 - for the type checker
        self._config = config
        self.session_ms = max(self.session_ms, config.session_timeout_ms)
        self.suspect_ms = max(self.suspect_ms, config.suspect_timeout_ms)
        self.kafka_streams |= config.kafka_streams
        self._budget()

    def _take_topology(self, entry: Entry) -> None:
        assert isinstance(entry.whole, Topology)  # noqa: S101 - for the type checker
        parts = entry.whole.subtopologies
        self.has_topology = True
        self.stateless |= {one.id for one in parts if not one.stateful}
        self._stateful = sum(one.partitions or 0 for one in parts if one.stateful)
        self._budget()
        self._take_parts({one.id for one in parts}, entry.ms)

    def _take_parts(self, parts: set[str], at_ms: int) -> None:
        """End the tasks whose subtopology is no longer there; those of one that is there again begin anew."""
        self._parts = parts
        for task in self.tasks.values():
            exists = subtopology_of(task.id) in parts
            if exists == (task.run.ended_ms is None):
                continue
            run = task.run
            self._end_run(task)
            task.run.ended_ms = None
            if not exists:
                run.ended_ms = task.run.ended_ms = at_ms
                task.lives += [] if task.first_ms is None else [(task.first_ms, at_ms)]
                task.first_ms = None

    def _budget(self) -> None:
        """Read the budgets. One that is a share is a share of the stateful tasks that there are by now."""
        config = self._config
        if config is not None:
            normal = _copies(config.max_warmup_replicas, self._stateful, least=1)
            drains = _copies(config.max_drain_warmups, self._stateful, least=2)
            self.budgets = Budgets(normal, drains, config.max_warmups_per_member)

    def _take_probe(self, entry: Entry) -> None:
        """A probe took place if it was set for an instant and is set anew, or given up, at that instant or later."""
        if self._probe_due_ms is not None and self._probe_due_ms <= entry.at_ms:
            self._instant.probes.append(entry)
        self._probe_due_ms = entry.until_ms

    # What concerns a task.

    def _take_lag(self, entry: Entry) -> None:
        task = self.tasks.get(entry.task or "")
        copy = task.copies.get(entry.member) if task is not None else None
        if copy is not None and copy.warmup is not None:
            copy.warmup.lags.append(Lag(entry.ms, entry.number))

    def _take_of_task(self, entry: Entry) -> None:
        name = entry.task
        assert name is not None  # noqa: S101 - for the type checker
        task = self.tasks.get(name)
        if task is None:
            task = self.tasks[name] = Task(name, Run(name))
            if entry.place < 0 and self._parts is not None and subtopology_of(name) not in self._parts:
                # A snapshot has also what was left out before it.
                task.run.ended_ms = 0
        what = entry.what
        if what in _HOLDS and entry.member is not None:
            self._member(entry.member).tasks[name] = None
        copy = task.copies.get(entry.member)
        if copy is None:
            copy = task.copies[entry.member] = Copy()
        role_before, granted_before = copy.role, copy.grant
        act = _act_of(copy, entry)
        role = _ROLES.get(what)
        if role is not None or what in ("target", "unreleased"):
            copy.was_gone = what == "gone" and entry.until_ms is not None and entry.until_ms <= entry.ms
            copy.role = role or copy.role
        was_licensed = copy.licensed
        if act is not None:
            self._act(task, copy, entry, act, role_before)
        self._warm(copy, entry)
        if what in ("standby", "warmup") or (what == "gone" and act is None):
            return
        self._follow(task, copy, entry, act, granted_before, ends=was_licensed and not copy.licensed)
        if act == GRANT and what != "adopted" and task.run.taken is None:
            task.run.taken, task.run.taken_role = entry, role_before
        if what == "adopted":
            self._raised_seq = entry.seq
            # Somebody turned out to run it, whatever was decided: its target may be reached from there once more.
            task.target += 1
            # Its owner gives it up, next in order; whoever has a copy keeps it.
            for other, held in list(task.copies.items()):
                if other != entry.member and held.role == "active":
                    row = entry[:4]
                    self._take_of_task(Entry(*row, "dropped", entry.ms, name, other))

    def _act(self, task: Task, copy: Copy, entry: Entry, act: str, role_before: str) -> None:
        """Change a member's right to run a task."""
        was_licensed = copy.licensed
        if act in (GRANT, REVOCATION):
            copy.licensed = True
        elif act == RELEASE:
            # A confirmation of something given up before the present grant ends nothing.
            copy.licensed = copy.last_right == GRANT
        else:
            held = role_before == "active" or copy.last_act == REVOCATION
            copy.licensed = held and entry.until_ms is not None and entry.until_ms > entry.ms
        if not copy.licensed:
            copy.until_ms = min(copy.until_ms, entry.ms)
        else:
            copy.until_ms = inf if entry.until_ms is None else entry.until_ms
        if task.overlaps and was_licensed and not copy.licensed:
            self._facts += [one.fact() for one in task.overlaps if one.is_over]
            task.overlaps = [one for one in task.overlaps if not one.is_over]
        copy.last_act = act
        if act != RELEASE:
            copy.last_right = act
        if act == GRANT:
            if entry.what == "active":
                self._facts.append(Granted(entry, task.held, task.token))
                self._note_overlap(task, copy, entry)
            copy.grant = task.held = entry
            if entry.token is not None:
                task.token = max(task.token, entry.token) if task.token is not None else entry.token
            if copy.interval is not None:
                self._facts.append(copy.interval)
            copy.interval = Interval(entry)
        elif copy.grant is None:
            copy.grant = entry
        if not copy.licensed and copy.interval is not None and copy.interval.ended is None:
            copy.interval.ended = entry
        if act == GONE:
            task.target += 1

    def _follow(
        self, task: Task, copy: Copy, entry: Entry, act: str | None, granted_before: Entry | None, *, ends: bool
    ) -> None:
        """Follow who runs the task: where runs begin and end."""
        what = entry.what
        task.seen = True
        is_runner = task.run.up is not None and task.run.up.member == entry.member
        is_fall = what == "reported" and entry.word != "running"
        if what in ("adopted", "stopped") or (what == "reported" and not is_fall):
            self._end_run(task, entry, granted_before)
            if what != "stopped" and copy.interval is not None:
                copy.interval.running_ms = (
                    entry.ms if copy.interval.running_ms is None else min(copy.interval.running_ms, entry.ms)
                )
        run = task.run
        if run.down is None and (what == "stopped" or (is_runner and (ends or is_fall))):
            run.down = entry
        if what in _HEARD and entry.number is not None and (is_runner or what == "stopped"):
            run.heard_ms = max(run.heard_ms or 0, entry.number)
        if is_runner and act == REVOCATION and run.revoked is None:
            run.revoked, run.target = entry, task.target
        if is_runner and is_fall and run.fell is None:
            run.fell = entry
        if what == "next-owner":
            run.next_owner = entry.member
        elif what == "parked":
            run.parked = True
        elif what == "target" and not (task.has_target and task.meant == entry.member):
            task.has_target, task.meant, task.target = True, entry.member, task.target + 1

    def _end_run(self, task: Task, up: Entry | None = None, granted: Entry | None = None) -> None:
        """End the present run of a task: ``up`` begins the next one."""
        run = task.run
        run.next_up, run.next_granted = up, granted
        begun = run.up or run.taken
        if begun is not None and run.ended_ms is None and (task.first_ms is None or begun.ms < task.first_ms):
            task.first_ms = begun.ms
        if self.is_handover(run):
            if task.handovers and task.handovers[0].target != run.target:
                self._end_handovers(task)
            task.handovers.append(run)
        self._facts.append(run)
        task.run = Run(task.id, up, ended_ms=run.ended_ms)

    def is_handover(self, run: Run) -> bool:
        """Whether a run ended because the owner was told to give the task up to another member, without a failure."""
        return (
            run.revoked is not None
            and run.taken is not None
            and run.gave_up
            and run.taken.seq > run.revoked.seq
            and not run.parked
            and run.taken.member != run.runner
            and run.runner not in self.excused
        )

    def runs_beside(self, run: Run) -> bool:
        """Whether another owner, who was told nothing, ran the task when a run ended, and has it still (L1)."""
        down = run.down
        return down is not None and any(
            copy.last_act == GRANT
            and copy.interval is not None
            and copy.interval.began.seq < down.seq
            and copy.interval.running_ms is not None
            and copy.interval.running_ms < down.ms
            and not self.order.loses(copy.interval.began.seq, down.seq)
            for member, copy in self.tasks[run.task].copies.items()
            if member != run.runner
        )

    def _note_overlap(self, task: Task, copy: Copy, entry: Entry) -> None:
        """Note a grant while others might still run the task, whose stop is in no record that was lost."""
        others = [
            (one.grant, one)
            for one in task.copies.values()
            if one is not copy and one.licensed and one.until_ms > entry.ms
            if one.grant is not None and not self.order.loses(one.grant.seq, entry.seq)
        ]
        if others:
            task.overlaps.append(_Open(entry, copy, sorted(others, key=lambda one: one[0].seq)))

    def _end_handovers(self, task: Task) -> None:
        if len(task.handovers) > 1:
            self._facts.append(Handovers(task.id, task.handovers))
        task.handovers = []

    def _warm(self, copy: Copy, entry: Entry) -> None:
        """Follow the warmup of a copy."""
        warmth = _WARMTH.get(entry.what)
        if warmth is None:
            return
        if warmth == "warmup":
            # A warmup that is granted again is the same one, from then on.
            fresh = copy.warmup is None and copy.warmth == "dropped"
            if copy.warmup is None:
                self._edge(entry, 1, fresh=fresh)
            copy.warmup = Warmup(entry, fresh)
        elif copy.warmup is not None:
            copy.warmup.ended, copy.warmup.outcome = entry, warmth
            self._facts.append(copy.warmup)
            self._edge(entry, -1, fresh=False)
            copy.warmup = None
        copy.warmth = warmth

    def _edge(self, entry: Entry, change: int, *, fresh: bool) -> None:
        self._warming[None] += change
        self._warming[entry.member] += change
        self._instant.edges.append((entry, change))
        self._instant.drains |= bool(self._draining)
        if fresh:
            self._instant.began[entry.member] = None

    def _forget(self, copy: Copy) -> None:
        """Say what is open of a copy."""
        if copy.interval is not None:
            self._facts.append(copy.interval)
        if copy.warmup is not None:
            self._facts.append(copy.warmup)


_HOLDS: Final = frozenset({"active", "standby", "warmup", "adopted", "unreleased"})
_HEARD: Final = frozenset({"gone", "waived", "stopped"})
"""The entries whose number says when the member was last heard."""
_ASSIGNED: Final = frozenset({"active", "standby", "warmup", "revoked", "demoted"})


def _act_of(copy: Copy, entry: Entry) -> str | None:
    """Return what an entry does to its member's right to run its task, if anything."""
    what = entry.what
    if what in ("active", "adopted"):
        return GRANT
    if what in ("released", "waived"):
        return RELEASE
    if what == "unreleased" or (what in ("revoked", "demoted", "dropped") and copy.role == "active"):
        return REVOCATION
    # Many entries say that somebody went again who had come back to nothing of this task.
    return GONE if what == "gone" and not copy.was_gone else None


_NAMED_TASK: Final = re.compile(r"(.*)_[0-9]+", re.DOTALL)


def subtopology_of(task: str) -> str:
    """Return the subtopology that a task's name has; none if it is named otherwise."""
    found = _NAMED_TASK.fullmatch(task)
    return found[1] if found else ""


def _copies(setting: int | str, stateful: int, least: int) -> int:
    """Return how many warmups a setting allows: a number, or a share of the stateful tasks and at least ``least``."""
    if isinstance(setting, str):
        return max(least, ceil(float(setting.rstrip("%")) * stateful / 100 - 1e-9))
    return max(1, setting)
