"""The day under other settings: each group's day is told as a scenario, and played again once for each of them.

In the order of this file: how long copies took to restore; a day as a scenario, from its records and samples; which
settings are tried on it, how one trial goes, and which of them is recommended. All that is pure and deterministic. Last
how Spark does it: one task plays one group under one set of settings, and a line for each of these comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from batonpass.audit.database import rows
from batonpass.audit.findings import Finding, GroupDay, Outcome, Recommendation, Severity, amount
from batonpass.audit.flatten import DAMAGE, read_group, read_record
from batonpass.audit.plan import DAY_MS, DayPlan, GroupPart, quoted
from batonpass.audit.tables import COPIES, SELECTS, WHOLE_LAG
from batonpass.codec.records import StoredRecord
from batonpass.core import records as r
from batonpass.core.durations import duration
from batonpass.core.errors import InvalidConfig
from batonpass.core.evolve import evolve
from batonpass.core.ids import GroupId, MemberId, TaskId
from batonpass.core.model import ActiveState, Cause, Group, Member, OnLeaseLost, Role
from batonpass.core.policy import GroupConfig, parse_config
from batonpass.core.room import has_limits
from batonpass.simulate.scenario.model import RESTORE_PER_SECOND, Act, Scenario, Step, TaskSort, Worker
from batonpass.simulate.scenario.play import LEAD_MS, play
from batonpass.simulate.scenario.tally import Counted, Tally

if TYPE_CHECKING:
    from batonpass.audit.tables import DayTables

RECORDS_LEAST: Final = 1_000
"""A member that restored fewer records in all tells nothing of how fast it restores."""


class Span(NamedTuple):
    """One copy that was restored, from its grant on; ``is_first``: for the task's first start.

    ``is_whole``: until it ran the task, else until it was close enough to count as caught up.
    """

    member_id: MemberId
    task: TaskId
    from_ms: int
    to_ms: int
    is_first: bool
    is_whole: bool


class Restores:
    """Follows which copies are restored from nothing, from record to record.

    ``first_ms`` has, by task, how long its first owner took to restore it, of the time that it gave to each of the
    tasks that it began with it.
    """

    def __init__(self) -> None:
        self.first_ms: dict[TaskId, float] = {}
        self._spans: list[Span] = []
        self._open: dict[tuple[MemberId, TaskId], int] = {}
        self._held: set[tuple[MemberId, TaskId]] = set()
        # Cold starts: since when, and beside how many others, itself included.
        self._cold: dict[tuple[MemberId, TaskId], tuple[int, int]] = {}

    def granted(self, record: r.AssignmentChanged, *, kept: Collection[TaskId]) -> None:
        """Take what a member is to hold. What it held before, or before its start (``kept``), may be on its disk yet.

        How long that takes says nothing of a speed.
        """
        member_id, at_ms = record.member_id, record.at_ms
        cold = [
            task for task, grant in record.granted.items() if grant.role is Role.ACTIVE and task not in record.ready
        ]
        self._cold |= {(member_id, task): (at_ms, len(cold)) for task in cold}
        for task in record.revoked:
            self._open.pop((member_id, task), None)
        for task, grant in record.granted.items():
            if grant.role is Role.STANDBY:
                self._end(member_id, task, at_ms, is_whole=False)
            elif (
                (grant.role is Role.WARMUP or task in cold) and task not in kept and (member_id, task) not in self._held
            ):
                self._open[member_id, task] = at_ms
        self._held.update((member_id, task) for task in record.granted)

    def runs(self, member_id: MemberId, task: TaskId, at_ms: int) -> None:
        """Take that a member runs a task."""
        since, beside = self._cold.pop((member_id, task), (None, 1))
        self._end(member_id, task, at_ms, is_whole=True)
        if since is not None:
            self.first_ms.setdefault(task, (at_ms - since) / beside)

    def _end(self, member_id: MemberId, task: TaskId, at_ms: int, *, is_whole: bool) -> None:
        since = self._open.pop((member_id, task), None)
        if since is not None and at_ms > since:
            is_first = task not in self.first_ms
            self._spans.append(Span(member_id, task, since, at_ms, is_first, is_whole))

    def spans(self, *, with_first: bool) -> tuple[Span, ...]:
        """Return what was restored. ``with_first``: the first starts of tasks too, else what came after them."""
        return tuple(one for one in self._spans if with_first or not one.is_first)


class Learnt(NamedTuple):
    """How many records a second a member restores, all its copies together, and what told: whose copies, how many."""

    speed: float
    members: tuple[MemberId, ...]
    copies: int


def learnt(
    restores: Restores, size_at: Callable[[TaskId, int], float], *, is_new: bool, slack: int = 0
) -> Learnt | None:
    """Return how fast members restored, by how long that took them; None where that cannot be told.

    ``size_at`` says how large the state of a task was at an instant; a copy that lacks ``slack`` of it counts as caught
    up. Of a group that ``is_new`` the first starts are asked last: what there was to restore is known least then.
    """
    for with_first in (not is_new, True):
        by_member: dict[MemberId, list[Span]] = {}
        records: dict[MemberId, float] = {}
        for one in restores.spans(with_first=with_first):
            restored = size_at(one.task, one.to_ms) - (0 if one.is_whole else slack)
            if restored > 0:
                by_member.setdefault(one.member_id, []).append(one)
                records[one.member_id] = records.get(one.member_id, 0.0) + restored
        telling = tuple(sorted(member_id for member_id, count in records.items() if count >= RECORDS_LEAST))
        if telling:
            # Not the median: who restored most, and for longest, tells most.
            busy_ms = sum(_busy_ms(by_member[member_id]) for member_id in telling)
            speed = sum(records[member_id] for member_id in telling) * 1_000 / busy_ms
            return Learnt(speed, telling, sum(len(by_member[member_id]) for member_id in telling))
    return None


def first_sizes(sizes: Mapping[str, int], first_ms: Mapping[TaskId, float], speed: float) -> dict[str, int]:
    """Return the state that the tasks of a new group begin with: what takes as long to restore as it took them.

    Where a changelog ends tells all that was ever written to it, of which there may have been little at first. A start
    takes its time without any state, too.
    """
    took = {str(task): round(ms * speed / 1_000) for task, ms in first_ms.items()}
    most = max(took.values(), default=None)
    if most is None:
        return dict(sizes)
    return {task: took.get(task, min(sizes.get(task, most), most)) for task in {**sizes, **took}}


def _busy_ms(spans: Iterable[Span]) -> int:
    """Return for how long at least one of them went on."""
    busy_ms, until_ms = 0, 0
    for one in sorted(spans, key=lambda span: span.from_ms):
        busy_ms += max(0, one.to_ms - max(one.from_ms, until_ms))
        until_ms = max(until_ms, one.to_ms)
    return busy_ms


TAKEN_OVER_AFTER_MS: Final = 10_000
"""A run that another one took over from is assumed to have ended so long before; the records do not say when."""

RESTARTS_WITHIN_MS: Final = 900_000
"""Without a grace a restart is written as a leave: whoever is back by its instance id so soon was restarting."""

RECORDS_UNKNOWN: Final = 100_000
"""So much state has a task of which nothing is known, in a group in which nothing is known of any."""

LOST_SHARE: Final = 0.9
LOST_LEAST: Final = 1_000
"""A copy of state that was there before and lacks this share of it, and so many records, began from nothing."""

_SLOPE_LEAST_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Rates:
    """What the samples of a day tell of one group.

    ``lags`` has the largest lag of each member's copy of each task, and when that was; ``restored`` how fast each
    member restored, in records a second.
    """

    lags: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    restored: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Story:
    """A day as it can be played again, and its results when it was lived; ``so_far``: it is under way still.

    ``gaps`` say, in words for a person, what is not known or not simulated.
    """

    scenario: Scenario
    lived: Counted
    gaps: tuple[str, ...] = ()
    so_far: bool = False


class NoStory(Exception):
    """The day of a group cannot be played again; the text says why."""


def tell(
    base: Group, records: Sequence[tuple[int, int, r.Record]], rates: Rates, *, begin_ms: int, end_ms: int
) -> Story:
    """Return the day from ``begin_ms`` to ``end_ms``, told from the group as it was before the first record.

    The day of a group that was declared in it begins then, with nobody there: whoever joins restores what there is.

    ``records`` have the coordinator epoch and the instant with which each of them was appended.

    Raises:
        NoStory: when there is nothing to play: no members, no tasks, or the group was deleted, or is of Kafka Streams.
    """
    before = [one for _, at_ms, one in records if at_ms < begin_ms]
    day = [entry for entry in records if entry[1] >= begin_ms]
    start = evolve(base, before)
    is_new = not start.declared and bool(day)
    if is_new:
        begin_ms = day[0][1]
    teller = _Teller(start, begin_ms)
    tally = Tally(start, begin_ms=begin_ms, end_ms=end_ms)
    for epoch, at_ms, record in day:
        teller.take(record, at_ms, epoch)
        tally.take((record,), at_ms)
    end = evolve(start, (one for _, _, one in day))
    if not end.declared or not end.topology.subtopologies:
        raise NoStory("the group is not declared when the day ends")
    if end.config.kafka_streams:
        raise NoStory("the rebalances of a Kafka Streams application are not simulated")
    if not teller.workers:
        raise NoStory("the group has no members all day")
    growth, sizes = _sizes(teller.ends, rates, begin_ms)
    told = learnt(teller.restores, lambda task, at_ms: _size_at(growth, sizes, task, at_ms - begin_ms), is_new=is_new)
    rates, slow = _with_speed(rates, told)
    if is_new:
        sizes = first_sizes(sizes, teller.restores.first_ms, _usual_speed(rates))
    sorts, unknown = _sorts(end, growth, sizes)
    teller.look_at_disks(rates, lambda task, at_ms: _size_at(growth, sizes, task, at_ms - begin_ms))
    scenario = Scenario(
        name=f"day of {end.id}",
        group=end.id,
        tasks=tuple(sorts),
        workers=_workers(teller, rates),
        present=tuple(teller.present),
        config=_config(end.config),
        steps=tuple(sorted(teller.steps, key=lambda one: one.at_ms)),
        until_ms=end_ms - begin_ms,
    )
    return Story(scenario, tally.counted(), (*teller.gaps(), *unknown, *slow, *_left_out(end)))


class _Teller:
    """Follows one day: who is there, and what befalls them."""

    def __init__(self, start: Group, begin_ms: int) -> None:
        self._begin_ms = begin_ms
        self._config = start.config
        self.names: dict[MemberId, str] = {}
        self._up: dict[str, MemberId] = {}
        self._draining: set[str] = set()
        self._seen: set[str] = set()
        self._suspected_ms: dict[MemberId, int] = {}
        self._had: dict[str, set[TaskId]] = {}
        # Which step brought a run back, and what it had had before.
        self._returns: dict[MemberId, tuple[int, frozenset[TaskId]]] = {}
        # Which step has it leave who may have been restarting.
        self._left: dict[str, int] = {}
        self.restores = Restores()
        self._epoch: int | None = None
        self._unusual: dict[str, int] = {}
        self.workers: dict[str, Member] = {}
        self.present: list[str] = []
        self.steps: list[Step] = []
        # Where each changelog ended, and when that was said.
        self.ends: dict[TaskId, list[tuple[int, int]]] = {}
        for member_id, member in sorted(start.members.items()):
            name = self._name(member)
            self.workers[name] = member
            self._had[name] = set(member.assignment)
            self._seen.add(name)
            if member.away_until_ms is None:
                self._up[name] = member_id
                self.present.append(name)
                if member.drain is not None:
                    self._draining.add(name)
                    self._step(begin_ms, Act.DRAIN, name)
            else:
                # It restarts over midnight: it is there, and goes at once.
                self.present.append(name)
                self._step(begin_ms, Act.RESTART, name)

    def take(self, record: r.Record, at_ms: int, epoch: int) -> None:
        """Take the next record of the day."""
        if self._epoch is not None and epoch != self._epoch:
            self._step(at_ms, Act.COORDINATOR)
        self._epoch = epoch
        match record:
            case r.MemberJoined(member=member):
                self._joined(member)
            case r.MemberGone():
                self._gone(record)
            case r.MemberAway(member_id=member_id):
                self._ended(member_id, Act.RESTART, record.at_ms)
            case r.MemberSuspected(member_id=member_id):
                self._suspected_ms[member_id] = at_ms
            case r.SuspicionCleared(member_id=member_id):
                self._suspected_ms.pop(member_id, None)
            case r.DrainStarted(member_id=member_id):
                self._drains(record)
            case r.AssignmentChanged():
                self._assignment_changed(record)
            case r.ActiveReported(task=task, member_id=member_id, state=ActiveState.RUNNING):
                self.restores.runs(member_id, task, record.at_ms)
            case r.TaskReleased(task=task, final_position=final) if final:
                self.ends.setdefault(task, []).append((record.at_ms or at_ms, sum(end for _, end in final)))
            case r.ConfigChanged(config=config):
                self._config = config
                self._note("changes of settings")
            case r.TopologyChanged():
                self._note("changes of the topology")
            case r.Paused() | r.TaskPinned() | r.StormBegan() | r.GrantsHeld() | r.TaskParked():
                self._note("pauses, pins, storms and parked tasks")
            case _:
                pass

    def gaps(self) -> tuple[str, ...]:
        """Say what happened that is not played again."""
        told = sorted(self._unusual.items())
        return tuple(f"{what} are left out ({'once' if count == 1 else f'{count:,} times'})" for what, count in told)

    def _note(self, what: str) -> None:
        self._unusual[what] = self._unusual.get(what, 0) + 1

    def _name(self, member: Member) -> str:
        name = str(member.instance_id or member.id)
        self.names[member.id] = name
        return name

    def _step(self, at_ms: int, act: Act, worker: str = "", **more: object) -> None:
        self.steps.append(Step(max(0, at_ms - self._begin_ms), act, worker, **more))  # type: ignore[arg-type]

    def _joined(self, member: Member) -> None:
        name = self._name(member)
        if name in self._up:
            # The run before it ended unseen.
            self._crashed(name, member.joined_ms - TAKEN_OVER_AFTER_MS)
        act = Act.RETURN if name in self._seen else Act.JOIN
        if act is Act.RETURN:
            self._restarted(name, member)
            self._returns[member.id] = len(self.steps), frozenset(self._had.get(name, ()))
        self._step(member.joined_ms, act, name)
        self._seen.add(name)
        self._up[name] = member.id
        self._draining.discard(name)
        self.workers[name] = member

    def _restarted(self, name: str, member: Member) -> None:
        place = self._left.pop(name, None)
        came_ms = member.joined_ms - self._begin_ms
        if place is not None and member.instance_id and came_ms - self.steps[place].at_ms <= RESTARTS_WITHIN_MS:
            self.steps[place] = replace(self.steps[place], act=Act.RESTART)

    def _crashed(self, name: str, at_ms: int) -> None:
        del self._up[name]
        self._step(at_ms, Act.CRASH, name)

    def _gone(self, record: r.MemberGone) -> None:
        match record.cause:
            case Cause.EXPIRED | Cause.FENCED:
                since = self._suspected_ms.pop(record.member_id, None)
                heard_ms = record.at_ms - self._config.session_timeout_ms
                broke_ms = None if since is None else since - self._config.suspect_timeout_ms
                self._ended(record.member_id, Act.CRASH, heard_ms if broke_ms is None else max(heard_ms, broke_ms))
            case Cause.REPLACED | Cause.TAKEN_OVER:
                self._ended(record.member_id, Act.CRASH, record.at_ms - TAKEN_OVER_AFTER_MS)
            case Cause.EVICTED:
                self._ended(record.member_id, Act.CRASH, record.at_ms)
            case Cause.LEFT:
                self._ended(record.member_id, Act.LEAVE, record.at_ms)
            case Cause.RESTARTED | Cause.GRACE_OVER:
                # It has stopped before, which has been told.
                pass

    def _ended(self, member_id: MemberId, act: Act, at_ms: int) -> None:
        name = self.names.get(member_id)
        if name is None or self._up.get(name) != member_id:
            return
        del self._up[name]
        if not (act is Act.LEAVE and name in self._draining):
            if act is Act.LEAVE and not self._config.rejoin_grace_ms:
                self._left[name] = len(self.steps)
            self._step(at_ms, act, name)
        self._draining.discard(name)

    def _drains(self, record: r.DrainStarted) -> None:
        name = self.names.get(record.member_id)
        if name is not None and name in self._up and name not in self._draining:
            self._draining.add(name)
            deadline_ms = None if record.deadline_ms is None else max(1, record.deadline_ms - record.since_ms)
            self._step(record.since_ms, Act.DRAIN, name, deadline_ms=deadline_ms)

    def _assignment_changed(self, record: r.AssignmentChanged) -> None:
        _, had_before = self._returns.get(record.member_id, (0, frozenset()))
        self.restores.granted(record, kept=had_before)
        name = self.names.get(record.member_id)
        if name is not None:
            had = self._had.setdefault(name, set())
            had.update(record.granted)
            had.difference_update(record.revoked)

    def look_at_disks(self, rates: Rates, size_at: Callable[[str, int], float]) -> None:
        """Have those come back without their disks who had to restore from the beginning what they had before."""
        for (member_id, task), (lag, at_ms) in sorted(rates.lags.items()):
            place, had = self._returns.get(MemberId(member_id), (None, frozenset()))
            if place is not None and task in had and lag >= max(LOST_LEAST, LOST_SHARE * size_at(task, at_ms)):
                self.steps[place] = replace(self.steps[place], keeps_disk=False)


def _config(config: GroupConfig) -> dict[str, object]:
    """Return the settings that are not the defaults, as a declaration would name them."""
    usual = asdict(GroupConfig())
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(config).items()
        if value != usual[name]
    }


def _sizes(
    ends: Mapping[TaskId, Sequence[tuple[int, int]]], rates: Rates, begin_ms: int
) -> tuple[dict[str, float], dict[str, int]]:
    """Return by how much the changelog of each task grew a second, and where it ended when the day began.

    A changelog's end is known where a member said where it stopped writing, else from the lag of a copy that had it
    all before it.
    """
    growth: dict[str, float] = {task: slope for task, said in ends.items() if (slope := _slope(said)) is not None}
    usual = median(growth.values()) if growth else 0.0
    sizes: dict[str, int] = {}
    for task, said in ends.items():
        at_ms, end = said[0]
        sizes[task] = max(0, end - round(growth.get(task, usual) * (at_ms - begin_ms) / 1_000))
    seen: dict[str, int] = {}
    for (_, name), (lag, at_ms) in rates.lags.items():
        begun = lag - round(growth.get(name, usual) * max(0, at_ms - begin_ms) / 1_000)
        seen[name] = max(seen.get(name, 0), begun)
    return growth, {**seen, **sizes}


def _size_at(growth: Mapping[str, float], sizes: Mapping[str, int], task: str, in_ms: int) -> float:
    return sizes.get(task, 0) + growth.get(task, 0.0) * in_ms / 1_000


def _sorts(group: Group, growth: Mapping[str, float], sizes: Mapping[str, int]) -> tuple[list[TaskSort], list[str]]:
    """Return the tasks by subtopology, with state and growth, and what is not known of them."""
    usual_growth = median(growth.values()) if growth else 0.0
    usual_size = round(median(sizes.values())) if sizes else RECORDS_UNKNOWN
    sorts, known, stateful = [], 0, 0
    for one in group.topology.subtopologies:
        names = [f"{one.id}_{partition}" for partition in range(one.partitions or 0)]
        if not names:
            continue
        if one.stateful:
            stateful += len(names)
            known += sum(name in sizes for name in names)
        sorts.append(
            TaskSort(
                records=tuple(sizes.get(name, usual_size) if one.stateful else 0 for name in names),
                rate=tuple(growth.get(name, usual_growth) if one.stateful else 0.0 for name in names),
                stateful=one.stateful,
            )
        )
    if not sorts:
        raise NoStory("the group has no tasks when the day ends")
    missing = stateful - known
    unknown = [f"the state of {missing} of {stateful} tasks is not known and taken to be the usual"] if missing else []
    return sorts, unknown


def _slope(said: Sequence[tuple[int, int]]) -> float | None:
    """Return by how many records a second a changelog grew, from where it was said to end."""
    (first_ms, first), (last_ms, last) = said[0], said[-1]
    if last_ms - first_ms < _SLOPE_LEAST_MS or last < first:
        return None
    return (last - first) * 1_000 / (last_ms - first_ms)


def _with_speed(rates: Rates, learnt: Learnt | None) -> tuple[Rates, list[str]]:
    """Return the rates with how fast members restore, and what to say of it where samples do not tell."""
    if rates.restored:
        return rates, []
    if learnt is None:
        said = f"nobody was seen restoring; {RESTORE_PER_SECOND:,.0f} records a second are assumed"
        return rates, [f"{said} (samples are taken once a minute: a restore that takes longer tells the speed)"]
    copies = "1 copy" if learnt.copies == 1 else f"{learnt.copies:,} copies"
    said = f"how fast members restore, {learnt.speed:,.0f} records a second, is taken from how long {copies} took"
    everybody = {str(member_id): learnt.speed for member_id in learnt.members}
    return replace(rates, restored=everybody), [f"{said}, as no sample fell into a restore"]


def _usual_speed(rates: Rates) -> float:
    return median(rates.restored.values()) if rates.restored else RESTORE_PER_SECOND


def _workers(teller: _Teller, rates: Rates) -> tuple[Worker, ...]:
    """Return the workers, with how fast they restore."""
    speeds: dict[str, float] = {}
    for member_id, speed in rates.restored.items():
        name = teller.names.get(MemberId(member_id))
        if name is not None:
            speeds[name] = max(speeds.get(name, 0.0), speed)
    usual = median(speeds.values()) if speeds else RESTORE_PER_SECOND
    return tuple(
        Worker(
            name,
            capacity=member.capacity,
            tags=dict(member.client_tags),
            restore_per_second=speeds.get(name, usual),
            fenced=member.on_lease_lost is OnLeaseLost.CONTINUE,
        )
        for name, member in sorted(teller.workers.items())
    )


def _left_out(group: Group) -> list[str]:
    found = []
    if any(weight != 1.0 for weight in group.table.weight):
        found.append("weights of tasks are left out")
    if has_limits(group):
        found.append("limits of members on tasks and on their disks are left out")
    return found


Value = int | float | str | bool | None

TUNED: Final = (
    *("max_warmup_replicas", "acceptable_recovery_lag", "num_standby_replicas", "rejoin_grace_ms"),
    "probing_rebalance_interval_ms",
)
"""The settings that are tried: those that trade downtime, moves and restored bytes against each other."""

USUAL: Final = GroupConfig()
"""The defaults are tried too: settings that are far off do not come right by doubling or halving them."""

GRACES_MS: Final = (60_000, 900_000)
PROBE_OFTEN_MS: Final = 60_000

BETTER_SHARE: Final = 0.10
BETTER_MS: Final = 1_000
"""A change of settings is worth its while from so much less downtime on: this share of it, and so many milliseconds."""

SAME_SHARE: Final = 0.05
"""Outcomes whose downtime differs by less than this share of the present one are taken to be equal."""

SOONER_SHARE: Final = 0.25
SOONER_MS: Final = 60_000
"""Tasks that run where they belong so much sooner are worth a change where that costs no downtime."""

STEPS: Final = 10
"""Bytes and waiting are compared in tenths of the present ones, so that a handful of records decides nothing."""

STANDBY_SHARE: Final = 0.5
"""A further standby costs a copy of all state for good: it is to leave less than this share of the downtime, but for
sessions of members that died, which run out as they do whoever stands by."""

SILENCE_SHARE: Final = 0.5
"""It is said that members that died are waited for where this is more than such a share of the downtime left."""

CLOSE: Final = 0.25
ROUGH: Final = 0.5
"""By how large a share the simulation of the present settings may differ from the day to be called close, or rough."""


SHORT_MS: Final = 3_600_000
"""Of a shorter day it is said that it was short, where its simulation does not follow it."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Results of one set of settings. ``missed`` steps could not be taken; ``refused`` says why none was.

    ``waiting_ms`` is how long tasks ran elsewhere than where they belong; ``silence_ms`` is the part of the downtime in
    which members that had died were waited for.
    """

    settings: Mapping[str, Value]
    downtime_ms: int = 0
    moves: int = 0
    bytes: int = 0
    missed: int = 0
    refused: str = ""
    waiting_ms: int = 0
    silence_ms: int = 0

    @property
    def outcome(self) -> Outcome:
        """The trial as it is reported."""
        return Outcome(self.settings, float(self.downtime_ms), self.moves, self.bytes, float(self.waiting_ms))


def present(scenario: Scenario) -> dict[str, Value]:
    """Return the settings that a day had, of those that are tried."""
    config = parse_config(scenario.config)
    return {name: getattr(config, name) for name in TUNED}


def grid(scenario: Scenario) -> tuple[dict[str, Value], ...]:
    """Return the settings to try, the present ones first: each changed by itself, the likely pairs, the defaults."""
    config = parse_config(scenario.config)
    stateful = sum(sort.partitions for sort in scenario.tasks if sort.stateful)
    budget, lag, standbys = config.warmup_budget(stateful), config.acceptable_recovery_lag, config.num_standby_replicas
    one_by_one: list[dict[str, Value]] = [{"max_warmup_replicas": count} for count in (2 * budget, 4 * budget)]
    if budget > 1:
        one_by_one.append({"max_warmup_replicas": budget // 2})
    one_by_one += [{"acceptable_recovery_lag": lag * 10}, {"acceptable_recovery_lag": lag // 10}]
    one_by_one.append({"acceptable_recovery_lag": lag // 10, "max_warmup_replicas": 4 * budget})
    if standbys:
        one_by_one.append({"num_standby_replicas": standbys - 1})
    if most_at_once(scenario) > standbys + 1:
        one_by_one.append({"num_standby_replicas": standbys + 1})
        one_by_one.append({"num_standby_replicas": standbys + 1, "max_warmup_replicas": 4 * budget})
    one_by_one += [{"rejoin_grace_ms": grace} for grace in GRACES_MS]
    one_by_one.append({"rejoin_grace_ms": GRACES_MS[-1], "max_warmup_replicas": 4 * budget})
    if config.probing_rebalance_interval_ms > PROBE_OFTEN_MS:
        one_by_one.append({"probing_rebalance_interval_ms": PROBE_OFTEN_MS})
    usual: dict[str, Value] = {name: getattr(USUAL, name) for name in TUNED}
    one_by_one += [*({name: value} for name, value in usual.items()), usual]
    now = present(scenario)
    tried: list[dict[str, Value]] = [now]
    for change in one_by_one:
        wanted = {**now, **change}
        if wanted not in tried and _is_allowed(config, wanted):
            tried.append(wanted)
    return tuple(tried)


def most_at_once(scenario: Scenario) -> int:
    """Return how many members there were at the most at one time."""
    there = set(scenario.present)
    most = len(there)
    for step in sorted(scenario.steps, key=lambda one: one.at_ms):
        if step.act in {Act.JOIN, Act.RETURN}:
            there.add(step.worker)
        elif step.act in {Act.CRASH, Act.LEAVE, Act.RESTART}:
            there.discard(step.worker)
        most = max(most, len(there))
    return most


def _is_allowed(config: GroupConfig, wanted: Mapping[str, Value]) -> bool:
    try:
        parse_config(wanted, config)
    except InvalidConfig:
        return False
    return True


def attempt(scenario: Scenario, settings: Mapping[str, Value]) -> Trial:
    """Play a day under other settings, and count its results as those of the day itself are counted."""
    tried = replace(scenario, config={**scenario.config, **settings})
    end_ms = LEAD_MS + (scenario.until_ms or 0)
    tally = Tally(Group(GroupId(scenario.group)), begin_ms=LEAD_MS, end_ms=end_ms)
    try:
        played = play(tried, observer=tally)
    except (RuntimeError, InvalidConfig) as error:
        return Trial(settings, refused=str(error)[:200])
    counted = tally.counted()
    restored = played.outcome.restored_records * scenario.record_bytes
    return Trial(
        settings,
        downtime_ms=counted.downtime_ms,
        moves=counted.moves,
        bytes=restored,
        missed=len(played.missed),
        waiting_ms=counted.waiting_ms,
        silence_ms=counted.silence_ms,
    )


def recommendation(group: str, story: Story, trials: Sequence[Trial]) -> Recommendation:
    """Return what to set; ``trials`` begin with that of the present settings.

    Raises:
        ValueError: The present settings could not be played.
    """
    now = trials[0]
    if now.refused:
        raise ValueError(now.refused)
    played = [one for one in trials if not one.refused]
    best = choose(played)
    return Recommendation(
        group=group,
        present=now.outcome,
        recommended=best.outcome,
        confidence=" ".join(_sentences(story, now, best)),
        grid=tuple(one.outcome for one in played),
    )


def choose(trials: Sequence[Trial]) -> Trial:
    """Return the trial to recommend, of several that begin with the present settings.

    The least downtime wins if it is worth a change; what costs a further copy of all state wins only where it leaves
    less than half of what can be had without, not counting how long the dead are waited for. Among equals the fewest
    standbys win, then the fewest bytes, the least waiting, the fewest moves, and the fewest changed settings. Where
    nothing lowers the downtime, what brings tasks to where they belong sooner is recommended, or what does less for
    the same.
    """
    now = trials[0]
    free = [one for one in trials if _standbys(one) <= _standbys(now)]
    best = _best_of(free, now)
    dear = [one for one in trials if _standbys(one) > _standbys(now)]
    if dear:
        bought = _best_of([*dear, best], now)
        if _avoidable_ms(bought) < STANDBY_SHARE * _avoidable_ms(best) and _is_better(bought, best):
            best = bought
    return best


def _avoidable_ms(one: Trial) -> int:
    """Return the downtime that settings of the grid can do something about."""
    return one.downtime_ms - one.silence_ms


def _best_of(trials: Sequence[Trial], now: Trial) -> Trial:
    least = min(one.downtime_ms for one in trials)
    room = SAME_SHARE * now.downtime_ms
    near = [one for one in trials if one.downtime_ms <= least + room]
    best = min(near, key=lambda one: _cost(one, now))
    if _is_better(best, now):
        return best
    # Nothing is down for less; perhaps something is done sooner, or for less.
    bearable_ms = now.downtime_ms + max(BETTER_MS, room)
    same = [one for one in trials if one.downtime_ms <= bearable_ms and _is_no_dearer(one, now)]
    soonest = min(same, key=lambda one: (one.waiting_ms // SOONER_MS, _cost(one, now)), default=now)
    if _is_sooner(soonest, now):
        return soonest
    cheapest = min((now, *same), key=lambda one: _cost(one, now))
    saves = cheapest.bytes < (1 - BETTER_SHARE) * now.bytes or cheapest.moves < (1 - BETTER_SHARE) * now.moves
    return cheapest if saves else now


def _is_no_dearer(one: Trial, now: Trial) -> bool:
    return one.bytes <= (1 + SAME_SHARE) * now.bytes and one.moves <= now.moves


def _is_sooner(one: Trial, now: Trial) -> bool:
    saved = now.waiting_ms - one.waiting_ms
    return saved >= SOONER_MS and saved >= SOONER_SHARE * now.waiting_ms


def _is_better(one: Trial, other: Trial) -> bool:
    saved = other.downtime_ms - one.downtime_ms
    return saved >= BETTER_MS and saved >= BETTER_SHARE * other.downtime_ms


def _cost(one: Trial, now: Trial) -> tuple[int, int, int, int, int, str]:
    changed = sum(one.settings[name] != now.settings[name] for name in TUNED)
    restored = round(STEPS * one.bytes / now.bytes) if now.bytes else one.bytes
    waiting = round(STEPS * one.waiting_ms / max(now.waiting_ms, SOONER_MS))
    named = str(sorted(one.settings.items(), key=lambda item: item[0]))
    return _standbys(one), restored, waiting, one.moves, changed, named


def _standbys(one: Trial) -> int:
    count = one.settings["num_standby_replicas"]
    assert isinstance(count, int)  # noqa: S101 - a setting that is always a number
    return count


def _sentences(story: Story, now: Trial, best: Trial) -> list[str]:
    """Say how sure the recommendation is, and what it costs beside."""
    lived = story.lived
    day = "the day so far" if story.so_far else "the day"
    told = [
        (
            f"Simulated with the present settings, {day} has {duration(now.downtime_ms)} of downtime and {amount(now.moves, 'move')}; "
            f"in truth it had {duration(lived.downtime_ms)} and {lived.moves}."
        ),
        _how_sure(story, now, best),
    ]
    if best is now:
        told.append("No setting that was tried is enough better to change anything.")
    if _is_sooner(best, now):
        told.append(
            f"Tasks run elsewhere than where they belong for {duration(best.waiting_ms)} in all instead of {duration(now.waiting_ms)}."
        )
    if best.silence_ms >= BETTER_MS and best.silence_ms > SILENCE_SHARE * best.downtime_ms:
        told.append(
            f"Of the downtime that is left, {duration(best.silence_ms)} is waiting for members that had died: "
            "session_timeout_ms says how long, suspect_timeout_ms where outputs are fenced; neither is tried here."
        )
    extra = _standbys(best) - _standbys(now)
    if extra > 0:
        size = story.scenario.record_bytes
        state = sum(sum(sort.records) for sort in story.scenario.tasks) * size * extra
        more = "1 more copy" if extra == 1 else f"{extra} more copies"
        told.append(f"It keeps {more} of every task, about {state / 1e9:.1f} GB at {size} bytes a record.")
    left_out = [*story.gaps, *([f"{amount(now.missed, 'event')} could not be repeated"] if now.missed else [])]
    if left_out:
        told.append(f"Beware: {'; '.join(left_out)}.")
    return told


def _how_sure(story: Story, now: Trial, best: Trial) -> str:
    """Say how far the simulation of the present settings agrees with the day, in what the recommendation rests on."""
    pairs = {"moves": (now.moves, story.lived.moves, 1)}
    pairs["downtime"] = (now.downtime_ms, story.lived.downtime_ms, BETTER_MS)
    if best is not now and _is_sooner(best, now) and not _is_better(best, now):
        pairs["how long tasks run elsewhere"] = (now.waiting_ms, story.lived.waiting_ms, SOONER_MS)
    # What is next to nothing in both agrees.
    apart = {
        what: abs(one - other) / max(one, other) if max(one, other) >= least else 0.0
        for what, (one, other, least) in pairs.items()
    }
    worst = max(apart.values())
    if worst <= CLOSE:
        return "The simulation follows this day closely."
    if worst <= ROUGH:
        return "The simulation follows this day roughly: trust the order of the settings more than the figures."
    what = " and ".join(what for what, share in apart.items() if share > ROUGH)
    told = f"The simulation does not follow this day in {what}: take this as a hint, and try it on one group first."
    return f"{told} {_why_apart(story, now)}"


def _why_apart(story: Story, now: Trial) -> str:
    """Say what may keep a simulation from following its day, and what would change that."""
    if story.gaps or now.missed:
        return "What is not known of it, or left out, may be why, and is said below."
    lasted_ms = story.scenario.until_ms or 0
    if lasted_ms < SHORT_MS:
        return f"It lasted {duration(lasted_ms)}, in which a few seconds decide: a longer one says more."
    return "Its processes may have been slower to start and to stop, or failed otherwise, than simulated ones do."


GROUPS_MOST: Final = 12
"""So many groups are played again, those with the most downtime first: each costs some dozen simulated days."""

RECORDS_MOST: Final = 200_000
"""A group with more records a day than this is left out: it would hold up the others."""

NOT_TOLD: Final = -1
"""The place of a row that has, in place of a story or a trial, why the group's day cannot be played again."""

NOT_TRIED: Final = "what-if-incomplete"

RESTORES_LEAST: Final = 1_000
"""A copy that lacks fewer records, or what two seconds restore, tells nothing of how fast a member restores."""

TOLD: Final = pa.schema(
    [("group_id", pa.string()), ("place", pa.int32()), ("settings", pa.string()), ("story", pa.string())]
)
"""One row for each group and set of settings; ``place`` 0 has the present ones, ``NOT_TOLD`` why there are none."""

TRIED: Final = pa.schema(
    [("group_id", pa.string()), ("place", pa.int32()), ("trial", pa.string()), ("story", pa.string())]
)
"""The results of each; the row of the present settings has the story, without its steps."""

_RATE: Final = r"case when copy ->> 5 ~ '^\d{1,15}(\.\d+)?([eE]-?\d{1,2})?$' then (copy ->> 5)::float8 end"
_SAMPLES: Final = (
    "select group_id, (date_part('epoch', at) * 1000)::bigint as at_ms, copy ->> 0 as task, copy ->> 1 as member,"  # noqa: S608 - constants
    f" {WHOLE_LAG} as lag, {_RATE} as rate, at"
    f" from samples cross join lateral {COPIES} as copy where {WHOLE_LAG} > 0 and copy ->> 2 <> 'none'"
)


class Tried(NamedTuple):
    """What to set for which group, and for which group that is not known, each with the reason."""

    recommendations: tuple[Recommendation, ...] = ()
    findings: tuple[Finding, ...] = ()


def recommend(tables: DayTables, groups: Sequence[GroupDay], *, most: int = GROUPS_MOST) -> Tried:
    """Return what to set for the groups that were down longest, by name; the same day gives the same.

    A group whose day cannot be played again is named as a notice, with the reason.
    """
    chosen = worth_trying(groups, most)
    parts = tuple(one for one in tables.plan.groups if one.group in chosen and one.last >= one.first)
    if not parts:
        return Tried((), too_large(groups))
    numbers = tables.spark.range(0, len(parts), 1, len(parts))
    told = numbers.mapInArrow(Tell(tables.url, tables.plan, parts), from_arrow_schema(TOLD)).persist()
    try:
        # One task for each line: a simulation takes seconds, and a slow one must not have others wait behind it.
        tried = told.repartition(max(1, told.count())).mapInArrow(try_batches, from_arrow_schema(TRIED))
        lines = [(row.group_id, row.place, row.trial, row.story) for row in tried.collect()]
    finally:
        told.unpersist()
    found = recommendations(lines)
    return Tried(found.recommendations, (*found.findings, *too_large(groups)))


def too_large(groups: Iterable[GroupDay]) -> tuple[Finding, ...]:
    """Return a notice for each group that has too many records to be played again."""
    sizes = sorted((one.group, int(one.measures.get("records") or 0)) for one in groups)
    return tuple(
        not_tried(group, f"its day has {size:,} records, and at most {RECORDS_MOST:,} are played again")
        for group, size in sizes
        if size > RECORDS_MOST
    )


def not_tried(group: str, why: str) -> Finding:
    """Return the notice that a group's day was not tried under other settings."""
    return Finding(group, NOT_TRIED, Severity.NOTICE, None, None, f"other settings were not tried: {why}")


def worth_trying(groups: Sequence[GroupDay], most: int) -> frozenset[str]:
    """Return the groups to try: those with the most downtime, then the most moves, of a day that is not too large."""

    def weight(one: GroupDay) -> tuple[float, float, str]:
        return -float(one.measures.get("downtime_ms") or 0), -float(one.measures.get("moves") or 0), one.group

    fit = [one for one in groups if (one.measures.get("records") or 0) <= RECORDS_MOST]
    return frozenset(one.group for one in sorted(fit, key=weight)[:most])


def recommendations(lines: Iterable[tuple[str, int, str, str]]) -> Tried:
    """Return the recommendation of each group from what was tried, in any order, or why there is none."""
    tried: dict[str, dict[int, Trial]] = {}
    known: dict[str, Story] = {}
    reasons: dict[str, str] = {}
    for group, place, trial, story in lines:
        if place == NOT_TOLD:
            reasons[group] = trial
            continue
        tried.setdefault(group, {})[place] = msgspec.json.decode(trial, type=Trial)
        if story:
            known[group] = msgspec.json.decode(story, type=Story)
    found = []
    for group in sorted(known):
        trials = [trial for _, trial in sorted(tried[group].items())]
        if trials[0].refused:
            reasons[group] = f"simulated with the present settings, {trials[0].refused}"
        else:
            found.append(recommendation(group, known[group], trials))
    return Tried(tuple(found), tuple(not_tried(group, why) for group, why in sorted(reasons.items())))


class Facts(NamedTuple):
    """What the day of one group is told from.

    ``snapshot`` has its version, its format and what it holds; ``records`` the number of each, when and under which
    coordinator epoch it was appended, and what was stored.
    """

    group_id: str
    rates: Rates
    snapshot: tuple[int, int, bytes] | None
    records: Sequence[tuple[int, int, int, StoredRecord]]


def facts_of(url: str, plan: DayPlan, one: GroupPart) -> Facts:
    """Read what the day of a group is told from."""
    begin = datetime.fromtimestamp(plan.begin_ms / 1_000, UTC)
    group = f"group_id = {quoted(one.group)}"
    samples = (
        f"select * from ({_SAMPLES}) as copies where {group} and member is not null and task is not null"  # noqa: S608
        f" and at >= '{begin.isoformat()}' and at < '{(begin + timedelta(days=1)).isoformat()}'"
    )
    lags = (
        f"select distinct on (member, task) member, task, lag, at_ms from ({samples}) as seen"  # noqa: S608
        " order by member, task, lag desc, at_ms"
    )
    speeds = (
        "select member, percentile_disc(0.5) within group (order by rate)"  # noqa: S608
        f" from (select member, at_ms, sum(rate) as rate from ({samples}) as seen"
        f" where lag >= {RESTORES_LEAST} and lag >= 2 * rate group by member, at_ms) as restored group by member"
    )
    snapshot = (
        f"select version, format, payload from ({SELECTS['snapshots']}) as whole"  # noqa: S608
        f" where {group} and version = {one.base} and {one.base > 0 and one.known}"
    )
    records = (
        f"select seq, at_ms, coordinator_epoch, kind, version, payload from ({SELECTS['records']}) as whole"  # noqa: S608
        f" where {group} and seq between {one.begin} and {one.last} order by seq"
    )
    return Facts(
        one.group,
        Rates(
            {(member, task): (lag, at_ms) for member, task, lag, at_ms in rows(url, lags)},
            {member: speed for member, speed in rows(url, speeds) if speed > 0},
        ),
        next(iter(rows(url, snapshot)), None),
        [
            (seq, at_ms, epoch, StoredRecord(kind, form, payload.encode()))
            for seq, at_ms, epoch, kind, form, payload in rows(url, records)
        ],
    )


@dataclass(frozen=True, slots=True)
class Tell:
    """A step of ``mapInArrow``: tells the days of the groups whose numbers it is given (``TOLD``)."""

    url: str
    plan: DayPlan
    groups: tuple[GroupPart, ...]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each day once for each set of settings."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                facts = facts_of(self.url, self.plan, self.groups[number])
                yield told_batch(facts, begin_ms=self.plan.begin_ms, end_ms=self.plan.end_ms)


def told_batch(facts: Facts, *, begin_ms: int, end_ms: int) -> pa.RecordBatch:
    """Return a day, once for each set of settings; one row with the reason where it cannot be told (``TOLD``)."""
    group = facts.group_id
    try:
        story = _story(facts, begin_ms, end_ms)
    except (NoStory, *DAMAGE) as error:
        found = [{"group_id": group, "place": NOT_TOLD, "settings": "", "story": str(error)}]
    else:
        text = _json(story)
        found = [
            {"group_id": group, "place": place, "settings": _json(settings), "story": text}
            for place, settings in enumerate(grid(story.scenario))
        ]
    return pa.RecordBatch.from_pylist(found, schema=TOLD)


def _story(facts: Facts, begin_ms: int, end_ms: int) -> Story:
    base = Group(GroupId(facts.group_id))
    if facts.snapshot is not None:
        version, form, payload = facts.snapshot
        try:
            base = read_group(form, payload)
        except DAMAGE:
            raise NoStory(f"the snapshot of version {version} cannot be read") from None
    records: list[tuple[int, int, r.Record]] = []
    for due, (seq, at_ms, epoch, stored) in enumerate(facts.records, start=base.version + 1):
        if seq != due:
            raise NoStory(f"record {due} is missing")
        try:
            records.append((epoch, at_ms, read_record(stored)))
        except DAMAGE:
            raise NoStory(f"record {seq} cannot be read") from None
    story = tell(base, records, facts.rates, begin_ms=begin_ms, end_ms=end_ms)
    return replace(story, so_far=end_ms < begin_ms + DAY_MS)


def try_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Play each day under its settings (``TOLD``) and yield its results (``TRIED``)."""
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in TOLD.names)
        for group, place, settings, text in zip(*columns, strict=True):
            if place == NOT_TOLD:
                row = {"group_id": group, "place": place, "trial": text, "story": ""}
                yield pa.RecordBatch.from_pylist([row], schema=TRIED)
                continue
            story = msgspec.json.decode(text, type=Story)
            wanted: Mapping[str, Any] = msgspec.json.decode(settings)
            trial = attempt(story.scenario, wanted)
            kept = _json(replace(story, scenario=replace(story.scenario, steps=()))) if place == 0 else ""
            row = {"group_id": group, "place": place, "trial": _json(trial), "story": kept}
            yield pa.RecordBatch.from_pylist([row], schema=TRIED)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
