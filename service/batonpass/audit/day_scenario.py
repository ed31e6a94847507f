"""A group's day as a scenario that can be played again, from its records and samples."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from statistics import median
from typing import Final, NamedTuple

from batonpass.audit.cost import Cost, Counted
from batonpass.core.handover.room import has_limit
from batonpass.core.state import records as r
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import ActiveState, Cause, Group, Member, OnLeaseLost, Role
from batonpass.core.state.policy import BalanceBy, GroupConfig
from batonpass.core.state.topology import build_table
from batonpass.simulate.scenario.model import RESTORE_PER_SECOND, Act, Scenario, SimulatedSubtopology, Step, Worker

TAKEN_OVER_AFTER_MS: Final = 10_000
"""A run that was taken over or replaced is assumed to have ended so long before; the records do not say when."""

RESTARTS_WITHIN_MS: Final = 900_000
"""Without a rejoin grace a restart is logged as a leave: an instance id that is back so soon was restarting."""

RECORDS_UNKNOWN: Final = 100_000
"""The state that every task is assumed to have if nothing is known of the state of any task of the group."""

LOST_SHARE: Final = 0.9
LOST_LEAST: Final = 1_000
"""A copy that a member had before and that lacks this share of its state, and so many records, began from nothing."""

RESTORED_LEAST: Final = 1_000
"""The speed of restores cannot be told from fewer records."""

_SLOPE_LEAST_MS: Final = 60_000

LOADS_EVERY_MS: Final = 600_000
"""What was measured within so long is played at once; that is the half-life of loads by default."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """What the samples of a day show of one group.

    ``lags`` has the largest lag of each member's copy of each task, and when that was; ``speeds`` how fast each
    member restored, in records a second.
    """

    lags: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    speeds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DayScenario:
    """A day as it can be played again, and what it cost as it was (``lived``); ``so_far``: it is still under way.

    ``left_out`` says, in words for a person, what is not known or not simulated.
    """

    scenario: Scenario
    lived: Counted
    left_out: tuple[str, ...] = ()
    so_far: bool = False


class Restore(NamedTuple):
    """A task of which a member had no state: from its grant until it ran, or was a standby."""

    member_id: MemberId
    task: TaskId
    from_ms: int
    to_ms: int


class NoDayScenario(Exception):
    """The day of a group cannot be played again; the text says why."""


def day_scenario(
    base: Group, records: Sequence[tuple[int, int, r.Record]], sampled: Sampled, *, begin_ms: int, end_ms: int
) -> DayScenario:
    """Return the day from ``begin_ms`` to ``end_ms``; ``base`` is the group as it was before the first record.

    ``records`` have the coordinator epoch and the instant with which each of them was appended. Nothing tells what the
    tasks of a new group had to restore, so the day of one that was declared on it begins when all of them first ran.

    Raises:
        NoDayScenario: when there is nothing to play: no members, no tasks, a deleted group, one of Kafka Streams, or
            one that was declared on that day, and whose tasks never all ran.
    """
    place = bisect_left(records, begin_ms, key=itemgetter(1))
    start = evolve(base, (one for *_, one in records[:place]))
    end = evolve(start, (one for *_, one in records[place:]))
    if not end.declared or not end.topology.subtopologies:
        raise NoDayScenario("the group is not declared when the day ends")
    if end.config.kafka_streams:
        raise NoDayScenario("the rebalances of a Kafka Streams application are not simulated")
    left_out = []
    if not start.declared:
        start, place = _first_whole(start, records, place)
        left_out.append("what came before all tasks of the new group first ran is left out")
        begin_ms = records[place - 1][1]
    builder = _DayBuilder(start, begin_ms)
    cost = Cost(start, begin_ms=begin_ms, end_ms=end_ms)
    for epoch, at_ms, record in records[place:]:
        builder.take(record, at_ms, epoch)
        cost.take((record,), at_ms)
    if not builder.workers:
        raise NoDayScenario("the group has no members all day")
    growth, sizes = _sizes(builder.ends, sampled, begin_ms)

    def size_at(task: str, at_ms: int) -> float:
        return sizes.get(task, 0) + growth.get(task, 0.0) * (at_ms - begin_ms) / 1_000

    measured = _measured(start, records[place:], begin_ms) if end.config.balance_by is not BalanceBy.DECLARED else {}
    subtopologies, unknown = _subtopologies(end, growth, sizes, measured)
    speed = RESTORE_PER_SECOND
    if not sampled.speeds:
        seen = _restore_speed(builder.restores, size_at)
        speed = seen or speed
        source = "comes from how long copies took" if seen else "is assumed"
        unknown.append(f"no sample fell into a restore; a speed of {speed:,.0f} records a second {source}")
    builder.look_at_disks(sampled, size_at)
    scenario = Scenario(
        name=f"day of {end.id}",
        group=end.id,
        subtopologies=tuple(subtopologies),
        workers=_workers(builder, sampled, speed),
        present=tuple(builder.present),
        config=_config(end.config),
        steps=tuple(sorted([*builder.steps, *_loads(end, measured)], key=lambda one: one.at_ms)),
        until_ms=end_ms - begin_ms,
    )
    return DayScenario(scenario, cost.counted(), (*left_out, *builder.left_out(), *unknown, *_left_out(end)))


def _first_whole(group: Group, records: Sequence[tuple[int, int, r.Record]], place: int) -> tuple[Group, int]:
    """Return the group when each of its tasks first ran where it belongs, and how many records it took."""
    for number, (*_, record) in enumerate(records[place:], place + 1):
        group = evolve(group, (record,))
        if isinstance(record, r.ActiveReported) and all(
            one.state is ActiveState.RUNNING and one.owner == one.target.owner for one in group.tasks.values()
        ):
            return group, number
    raise NoDayScenario("the group was declared on this day, and its tasks never all ran")


class _DayBuilder:
    """Follows one day: which workers are there, and what happens to them."""

    def __init__(self, start: Group, begin_ms: int) -> None:
        self._begin_ms = begin_ms
        self._config = start.config
        self.names: dict[MemberId, str] = {}
        self._up: dict[str, MemberId] = {}
        self._draining: set[str] = set()
        self._had: dict[str, set[TaskId]] = {}
        # The step with which each run came back, and the tasks that its worker had had before.
        self._returns: dict[MemberId, tuple[int, frozenset[TaskId]]] = {}
        # The step with which each worker left that may have been restarting.
        self._left: dict[str, int] = {}
        # Tasks that each worker has ever had, and when it was granted those of which it had no state.
        self._ever: set[tuple[str, TaskId]] = set()
        self._cold: dict[tuple[MemberId, TaskId], int] = {}
        self.restores: list[Restore] = []
        self._epoch: int | None = None
        self._unusual: Counter[str] = Counter()
        self.workers: dict[str, Member] = {}
        self.present: list[str] = []
        self.steps: list[Step] = []
        # Where each changelog ended, and when that was reported.
        self.ends: dict[TaskId, list[tuple[int, int]]] = {}
        for member_id, member in sorted(start.members.items()):
            name = self._name(member)
            self.workers[name] = member
            self._had[name] = set(member.assignment)
            self._ever |= {(name, task) for task in member.assignment}
            if member.away_until_ms is None:
                self._up[name] = member_id
                self.present.append(name)
                if member.drain is not None:
                    self._draining.add(name)
                    self._step(begin_ms, Act.DRAIN, name)
            else:
                # It restarts over midnight: it is present, and stops at once.
                self.present.append(name)
                self._step(begin_ms, Act.RESTART, name)

    def take(self, record: r.Record, at_ms: int, epoch: int) -> None:
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
            case r.DrainStarted(member_id=member_id):
                self._drains(record)
            case r.AssignmentChanged():
                self._assignment_changed(record)
            case r.ActiveReported(task=task, member_id=member_id, state=ActiveState.RUNNING):
                self._restored(member_id, task, record.at_ms)
            case r.TaskReleased(task=task, final_position=final) if final:
                self.ends.setdefault(task, []).append((record.at_ms or at_ms, sum(end for _, end in final)))
            case r.ConfigChanged(config=config):
                self._config = config
                self._unusual["changes of settings"] += 1
            case r.TopologyChanged():
                self._unusual["changes of the topology"] += 1
            case r.Paused() | r.TaskPinned() | r.StormBegan() | r.GrantsHeld() | r.TaskParked():
                self._unusual["pauses, pins, storms and parked tasks"] += 1
            case _:
                pass

    def left_out(self) -> tuple[str, ...]:
        """Return what happened and is not played again."""
        return tuple(
            f"{what} are left out ({'once' if count == 1 else f'{count:,} times'})"
            for what, count in sorted(self._unusual.items())
        )

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
            self._step(member.joined_ms - TAKEN_OVER_AFTER_MS, Act.CRASH, name)
        act = Act.RETURN if name in self.workers else Act.JOIN
        if act is Act.RETURN:
            self._restarted(name, member)
            self._returns[member.id] = len(self.steps), frozenset(self._had.get(name, ()))
        self._step(member.joined_ms, act, name)
        self._up[name] = member.id
        self._draining.discard(name)
        self.workers[name] = member

    def _restarted(self, name: str, member: Member) -> None:
        place = self._left.pop(name, None)
        came_ms = member.joined_ms - self._begin_ms
        if place is not None and member.instance_id and came_ms - self.steps[place].at_ms <= RESTARTS_WITHIN_MS:
            self.steps[place] = replace(self.steps[place], act=Act.RESTART)

    def _gone(self, record: r.MemberGone) -> None:
        match record.cause:
            case Cause.EXPIRED | Cause.FENCED:
                heard_ms = (
                    record.at_ms - self._config.session_timeout_ms if record.heard_ms is None else record.heard_ms
                )
                self._ended(record.member_id, Act.CRASH, heard_ms)
            case Cause.REPLACED | Cause.TAKEN_OVER:
                self._ended(record.member_id, Act.CRASH, record.at_ms - TAKEN_OVER_AFTER_MS)
            case Cause.EVICTED:
                self._ended(record.member_id, Act.CRASH, record.at_ms)
            case Cause.LEFT:
                self._ended(record.member_id, Act.LEAVE, record.at_ms)
            case Cause.RESTARTED | Cause.GRACE_OVER:
                # It stopped earlier, for which there was a record.
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
        name = self.names.get(record.member_id)
        if name is not None:
            for task in record.revoked:
                self._cold.pop((record.member_id, task), None)
            for task, grant in record.granted.items():
                if grant.role is Role.STANDBY:
                    self._restored(record.member_id, task, record.at_ms)
                # What a worker had before may still be on its disk, and says nothing of its speed.
                begins = grant.role is Role.WARMUP or (grant.role is Role.ACTIVE and task not in record.ready)
                if begins and (name, task) not in self._ever:
                    self._cold[record.member_id, task] = record.at_ms
                self._ever.add((name, task))
            had = self._had.setdefault(name, set())
            had.update(record.granted)
            had.difference_update(record.revoked)

    def _restored(self, member_id: MemberId, task: TaskId, at_ms: int) -> None:
        since = self._cold.pop((member_id, task), None)
        if since is not None:
            self.restores.append(Restore(member_id, task, since, at_ms))

    def look_at_disks(self, sampled: Sampled, size_at: Callable[[str, int], float]) -> None:
        """Mark a return as one without disk if the member had to restore from the beginning what it had before."""
        for (member_id, task), (lag, at_ms) in sorted(sampled.lags.items()):
            place, had = self._returns.get(MemberId(member_id), (None, frozenset()))
            if place is not None and task in had and lag >= max(LOST_LEAST, LOST_SHARE * size_at(task, at_ms)):
                self.steps[place] = replace(self.steps[place], keeps_disk=False)


def _config(config: GroupConfig) -> dict[str, object]:
    """Return the settings that are not the defaults, as a declaration would name them."""
    defaults = asdict(GroupConfig())
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(config).items()
        if value != defaults[name]
    }


def _sizes(
    ends: Mapping[TaskId, Sequence[tuple[int, int]]], sampled: Sampled, begin_ms: int
) -> tuple[dict[str, float], dict[str, int]]:
    """Return by how much the changelog of each task grew a second, and where it ended when the day began.

    A changelog's end is known from a final position, else from the lag of a copy that had all of it to restore.
    """
    growth: dict[str, float] = {task: slope for task, said in ends.items() if (slope := _slope(said)) is not None}
    median_growth = median(growth.values()) if growth else 0.0
    sizes: dict[str, int] = {}
    for task, said in ends.items():
        at_ms, end = said[0]
        sizes[task] = max(0, end - round(growth.get(task, median_growth) * (at_ms - begin_ms) / 1_000))
    seen: dict[str, int] = {}
    for (_, name), (lag, at_ms) in sampled.lags.items():
        begun = lag - round(growth.get(name, median_growth) * max(0, at_ms - begin_ms) / 1_000)
        seen[name] = max(seen.get(name, 0), begun)
    return growth, {**seen, **sizes}


def _measured(
    start: Group, records: Sequence[tuple[int, int, r.Record]], begin_ms: int
) -> dict[int, dict[TaskId, float]]:
    """Return the loads that were known when the day began, and those that were recorded later, by when that was."""
    found: dict[int, dict[TaskId, float]] = {0: dict(start.loads)}
    for _, at_ms, record in records:
        if isinstance(record, r.LoadsMeasured):
            after_ms = max(0, at_ms - begin_ms) // LOADS_EVERY_MS * LOADS_EVERY_MS
            found.setdefault(after_ms, {}).update(record.loads)
    return found


def _loads(group: Group, measured: Mapping[int, Mapping[TaskId, float]]) -> Iterator[Step]:
    played = [one for one in group.topology.subtopologies if one.partitions]
    number_of = {
        f"{one.id}_{partition}": (number, partition)
        for number, one in enumerate(played)
        for partition in range(one.partitions or 0)
    }
    for at_ms, loads in measured.items():
        known = {number_of[task]: load for task, load in loads.items() if task in number_of}
        if at_ms and known:
            yield Step(at_ms, Act.MEASURED, loads=known)


def _subtopologies(
    group: Group,
    growth: Mapping[str, float],
    sizes: Mapping[str, int],
    measured: Mapping[int, Mapping[TaskId, float]],
) -> tuple[list[SimulatedSubtopology], list[str]]:
    """Return the tasks by subtopology, with state, growth and first load, and what is not known of them."""
    first = {task: load for _, loads in sorted(measured.items(), reverse=True) for task, load in loads.items()}
    median_load = median(first.values()) if first else None
    median_growth = median(growth.values()) if growth else 0.0
    median_size = round(median(sizes.values())) if sizes else RECORDS_UNKNOWN
    subtopologies, known, stateful = [], 0, 0
    for one in group.topology.subtopologies:
        names = [f"{one.id}_{partition}" for partition in range(one.partitions or 0)]
        if not names:
            continue
        if one.stateful:
            stateful += len(names)
            known += sum(name in sizes for name in names)
        subtopologies.append(
            SimulatedSubtopology(
                records=tuple(sizes.get(name, median_size) if one.stateful else 0 for name in names),
                rate=tuple(growth.get(name, median_growth) if one.stateful else 0.0 for name in names),
                stateful=one.stateful,
                load=() if median_load is None else tuple(first.get(TaskId(name), median_load) for name in names),
            )
        )
    if not subtopologies:
        raise NoDayScenario("the group has no tasks when the day ends")
    missing = stateful - known
    unknown = [f"the state of {missing} of {stateful} tasks is not known; the median is assumed"] if missing else []
    return subtopologies, unknown


def _slope(said: Sequence[tuple[int, int]]) -> float | None:
    """Return by how many records a second a changelog grew, from the ends that were reported."""
    (first_ms, first), (last_ms, last) = said[0], said[-1]
    if last_ms - first_ms < _SLOPE_LEAST_MS or last < first:
        return None
    return (last - first) * 1_000 / (last_ms - first_ms)


def _restore_speed(restores: Sequence[Restore], size_at: Callable[[str, int], float]) -> float | None:
    """Return how many records a second members restored, all their copies together; None if too few tell it."""
    records = sum(size_at(one.task, one.to_ms) for one in restores)
    busy_ms, until_ms = 0, {one.member_id: 0 for one in restores}
    for one in sorted(restores, key=lambda one: one.from_ms):
        busy_ms += max(0, one.to_ms - max(one.from_ms, until_ms[one.member_id]))
        until_ms[one.member_id] = max(until_ms[one.member_id], one.to_ms)
    return records * 1_000 / busy_ms if busy_ms and records >= RESTORED_LEAST else None


def _workers(builder: _DayBuilder, sampled: Sampled, speed: float) -> tuple[Worker, ...]:
    """Return the workers, with how fast they restore; ``speed``: as is assumed if no sample tells it."""
    speeds: dict[str, float] = {}
    for member_id, sampled_speed in sampled.speeds.items():
        name = builder.names.get(MemberId(member_id))
        if name is not None:
            speeds[name] = max(speeds.get(name, 0.0), sampled_speed)
    median_speed = median(speeds.values()) if speeds else speed
    return tuple(
        Worker(
            name,
            capacity=member.capacity,
            tags=dict(member.client_tags),
            restore_per_second=speeds.get(name, median_speed),
            fenced=member.on_lease_lost is OnLeaseLost.CONTINUE,
        )
        for name, member in sorted(builder.workers.items())
    )


def _left_out(group: Group) -> list[str]:
    found = []
    if any(weight != 1.0 for weight in build_table(group.topology).weight):
        found.append("weights of tasks are left out")
    if any(map(has_limit, group.members.values())):
        found.append("limits of members on tasks and on their disks are left out")
    return found
