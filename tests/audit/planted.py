"""A day with many groups: one that is in order, and variants of it that each have one thing wrong."""

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from tests.audit.streams_day import lived_by_streams

from batonpass.codec.changes import changes_of
from batonpass.codec.groups import GROUP_VERSION, encode_group
from batonpass.codec.records import StoredRecord, decode_records, encode_record
from batonpass.core.state import records as r
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.state.model import ActiveState, Cause, Grant, Group, Member, Role
from batonpass.days.generate import rows_of
from batonpass.days.plant import Fault, plant
from batonpass.days.rows import EPOCH, GroupRows
from batonpass.days.writing import make_days, write
from batonpass.postgres.connect import connect
from batonpass.simulate.scenario.model import Act, Scenario, SimulatedSubtopology, Step, Worker

DAY = date(2026, 11, 18)
MIDNIGHT = datetime(2026, 11, 18, tzinfo=UTC)
MIDNIGHT_MS = int(MIDNIGHT.timestamp() * 1_000)
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
QUIET_MS = 4 * HOUR_MS
"""From here on nothing happens in any of these days but what is planted."""

STEPS = (
    Step(30 * MINUTE_MS, Act.JOIN, "late"),
    Step(60 * MINUTE_MS, Act.CRASH, "w1"),
    Step(63 * MINUTE_MS, Act.RETURN, "w1"),
    Step(90 * MINUTE_MS, Act.RESTART, "w0"),
    Step(91 * MINUTE_MS, Act.RETURN, "w0"),
    Step(100 * MINUTE_MS, Act.COORDINATOR),
    Step(120 * MINUTE_MS, Act.DRAIN, "w2"),
)


def scenario(group: str, steps: Sequence[Step] = STEPS, until_ms: int | None = 24 * HOUR_MS) -> Scenario:
    """Return a small day: three workers and a fourth, six tasks with state and two without."""
    subtopologies = (
        SimulatedSubtopology((40_000,) * 6, (5.0,) * 6),
        SimulatedSubtopology((0, 0), (0.0, 0.0), stateful=False),
    )
    names = ("w0", "w1", "w2", "late")
    workers = tuple(Worker(name, restore_per_second=2_000) for name in names)
    return Scenario(
        *(group, subtopologies, workers, names[:3]),
        group=group,
        steps=tuple(steps),
        until_ms=until_ms,
        config={"num_standby_replicas": 1},
    )


def lived(group: str, steps: Sequence[Step] = STEPS) -> GroupRows:
    """Return the day of a group as the service would have written it."""
    return rows_of(scenario(group, steps), DAY, sample_every=30)


def folded(rows: GroupRows, version: int | None = None) -> Group:
    """Return the group that the records of a day come to, all of them or the first so many."""
    stored = [StoredRecord(row[4], row[5], row[6].encode()) for row in rows.tables["record_log"][:version]]
    return evolve(Group(GroupId(rows.group_id)), decode_records(stored))


class Forger:
    """Adds records to a day that nobody decided, and takes away what was."""

    def __init__(self, day: GroupRows, name: str) -> None:
        self.rows = day.copy_as(name)
        self._at_ms = MIDNIGHT_MS + QUIET_MS
        self._epochs: dict[str, int] = {}
        self.owners: dict[str, tuple[str, int]] = {}
        copies: dict[tuple[str, str], str] = {}
        for row in self.rows.tables["assignment_events"]:
            task, member, kind, role, epoch, token = row[3], row[4], row[5], row[7], row[10], row[11]
            self._epochs[member] = max(self._epochs.get(member, 0), epoch)
            copies[task, member] = role
            if kind == "granted" and role == "active":
                self.owners[task] = (member, token)
        self.copies = {key for key, role in copies.items() if role != "none"}
        self.members = sorted({member for member, _ in self.owners.values()})
        self.group = folded(self.rows)

    def epoch(self, member: str) -> int:
        """Return the next epoch of a member."""
        self._epochs[member] = self._epochs.get(member, 0) + 1
        return self._epochs[member]

    @property
    def now_ms(self) -> int:
        """When the next records are written."""
        return self._at_ms

    def later(self, ms: int) -> None:
        """Let time pass."""
        self._at_ms += ms

    def add(self, *records: r.Record, coordinator_epoch: int | None = None) -> None:
        """Add records with the history that they come to, and let a second pass."""
        at = EPOCH + timedelta(milliseconds=self._at_ms)
        after = evolve(self.group, records)
        for place, one in enumerate(changes_of(self.group, records, after, {}, self._at_ms)):
            change = (*one[:5], at, *one[6:])
            self.rows.tables["assignment_events"].append((self.rows.group_id, self.rows.version, place, *change))
        self.group = after
        for record in records:
            self.rows.version += 1
            stored = encode_record(record)
            epoch = self.rows.coordinator_epoch if coordinator_epoch is None else coordinator_epoch
            self.rows.tables["record_log"].append(
                (self.rows.group_id, self.rows.version, epoch, at, stored.kind, stored.version, stored.payload.decode())
            )
        self.later(1_000)

    def assignment_changed(self, member: str, **changes: Any) -> r.AssignmentChanged:
        """Return a new assignment for a member."""
        return r.AssignmentChanged(MemberId(member), self.epoch(member), self._at_ms, **changes)

    def grant(self, member: str, role: Role, *, token: int = 0) -> Grant:
        """Return a grant in the assignment that a member gets next."""
        return Grant(role, self._epochs.get(member, 0) + 1, self._at_ms, token)

    def hand_over(self, task: str, to: str, *, ready: bool = True) -> None:
        """Have the owner give a task up, and somebody else run it."""
        owner, token = self.owners[task]
        self.owners[task] = (to, token + 1)
        name = TaskId(task)
        self.add(self.assignment_changed(owner, revoked=(name,)), r.NextOwnerChosen(name, MemberId(to)))
        self.add(r.TaskReleased(name, MemberId(owner), at_ms=self._at_ms))
        granted = {name: self.grant(to, Role.ACTIVE, token=token + 1)}
        self.add(self.assignment_changed(to, granted=granted, ready=(name,) if ready else ()))
        self.add(r.ActiveReported(name, MemberId(to), ActiveState.RUNNING, self._at_ms))

    def without_copy(self, task: str) -> str:
        """Return a member that has nothing of a task."""
        return next(one for one in self.members if (task, one) not in self.copies)


def _planted(fault: Fault) -> Callable[[GroupRows, str], GroupRows]:
    return lambda day, name: plant(day.copy_as(name), (fault,))


def _token_falls(day: GroupRows, name: str) -> GroupRows:
    forger = Forger(day, name)
    owner, token = forger.owners["0_0"]
    forger.owners["0_0"] = (owner, token - 2)
    other = next(one for one in forger.members if one != owner)
    forger.hand_over("0_0", other)
    return forger.rows


def _cold_copy(day: GroupRows, name: str) -> GroupRows:
    """The chosen one has a copy, which is far behind."""
    forger = Forger(day, name)
    owner, _ = forger.owners["0_1"]
    standby = next(member for task, member in sorted(forger.copies) if task == "0_1" and member != owner)
    forger.hand_over("0_1", standby, ready=False)
    return forger.rows


def _to_and_fro(day: GroupRows, name: str) -> GroupRows:
    forger = Forger(day, name)
    owner, _ = forger.owners["0_2"]
    other = next(one for one in forger.members if one != owner)
    forger.hand_over("0_2", other)
    forger.hand_over("0_2", owner)
    return forger.rows


def _many_warmups(day: GroupRows, name: str) -> GroupRows:
    forger = Forger(day, name)
    member = MemberId("greedy")
    forger.add(r.MemberJoined(Member(member, forger.now_ms, instance_id=InstanceId("greedy"), epoch=1)))
    forger.epoch("greedy")
    tasks = [TaskId(f"0_{number}") for number in range(6)]
    granted = {task: forger.grant("greedy", Role.WARMUP) for task in tasks}
    forger.add(forger.assignment_changed("greedy", granted=granted))
    forger.add(forger.assignment_changed("greedy", revoked=tuple(tasks)))
    return forger.rows


def _stuck_warmup(day: GroupRows, name: str) -> GroupRows:
    forger = Forger(day, name)
    member = forger.without_copy("0_3")
    forger.add(forger.assignment_changed(member, granted={TaskId("0_3"): forger.grant(member, Role.WARMUP)}))
    return forger.rows


def _flapping(day: GroupRows, name: str) -> GroupRows:
    forger = Forger(day, name)
    for run in range(6):
        member = MemberId(f"shaky.{run}")
        forger.add(r.MemberJoined(Member(member, forger.now_ms, instance_id=InstanceId("shaky"), epoch=1)))
        forger.later(4 * MINUTE_MS)
        forger.add(r.MemberGone(member, Cause.EXPIRED, forger.now_ms, forger.now_ms))
    return forger.rows


def _unowned(day: GroupRows, name: str) -> GroupRows:
    forger = Forger(day, name)
    owner, _ = forger.owners["0_4"]
    forger.add(forger.assignment_changed(owner, revoked=(TaskId("0_4"),)))
    forger.add(r.TaskReleased(TaskId("0_4"), MemberId(owner), at_ms=forger.now_ms))
    return forger.rows


def _deposed(day: GroupRows, name: str) -> GroupRows:
    forger = Forger(day, name)
    forger.add(r.ProbeScheduled(forger.now_ms + HOUR_MS))
    forger.add(r.ProbeScheduled(None), coordinator_epoch=0)
    return forger.rows


def _skipped_epoch(day: GroupRows, name: str) -> GroupRows:
    forger = Forger(day, name)
    member = forger.without_copy("0_5")
    forger.epoch(member)
    forger.add(forger.assignment_changed(member, granted={TaskId("0_5"): forger.grant(member, Role.STANDBY)}))
    return forger.rows


def _unreadable(day: GroupRows, name: str) -> GroupRows:
    forger = Forger(day, name)
    forger.add(r.ProbeScheduled(None))
    log = forger.rows.tables["record_log"]
    log[-1] = (*log[-1][:4], "from-the-future", 7, "{}")
    return forger.rows


def _tail_lost(day: GroupRows, name: str) -> GroupRows:
    forger = Forger(day, name)
    forger.add(r.ProbeScheduled(forger.now_ms + HOUR_MS), r.ProbeScheduled(None))
    del forger.rows.tables["record_log"][-2:]
    return forger.rows


def _generation_untold(day: GroupRows, name: str) -> GroupRows:
    rows = day.copy_as(name)
    del rows.tables["generations"][-1]
    return rows


def _quiet(day: GroupRows, name: str) -> GroupRows:
    """Nothing happens all day, and retention has left nothing but a snapshot, in which a task has no owner."""
    rows = _unowned(day, name)
    log = rows.tables["record_log"]
    whole = folded(rows)
    yesterday = MIDNIGHT - timedelta(hours=1)
    packed = zlib.compress(encode_group(whole))
    rows.tables["snapshots"] = [(name, rows.version, GROUP_VERSION, yesterday, packed)]
    log.clear()
    rows.tables["generations"].clear()
    return rows


VARIANTS: dict[str, Callable[[GroupRows, str], GroupRows]] = {
    "clean": lambda day, name: day.copy_as(name),
    "two-owners": _planted(Fault.TWO_OWNERS),
    "token-falls": _token_falls,
    "cold-promotion": _planted(Fault.COLD_PROMOTION),
    "cold-copy": _cold_copy,
    "to-and-fro": _to_and_fro,
    "many-warmups": _many_warmups,
    "stuck-warmup": _stuck_warmup,
    "flapping": _flapping,
    "unowned": _unowned,
    "quiet": _quiet,
    "hole": _planted(Fault.SEQUENCE_HOLE),
    "tail-lost": _tail_lost,
    "deposed": _deposed,
    "skipped-epoch": _skipped_epoch,
    "unreadable": _unreadable,
    "generation-untold": _generation_untold,
}
"""The variants of a day, each with one thing wrong, but for the first."""


def _altered(day: GroupRows, name: str, code: str | None = None) -> GroupRows:
    """Return a day in which the last probe was set for another time than the core would have said."""
    rows = replace(day, tables={table: list(found) for table, found in day.tables.items()})
    log = rows.tables["record_log"]
    place, row = max((n, row) for n, row in enumerate(log) if row[4] == "probe-scheduled" and "null" not in row[6])
    payload = json.loads(row[6])
    log[place] = (*row[:6], json.dumps(payload | {"at_ms": payload["at_ms"] + 1}))
    if code is not None:
        traces = rows.tables["traces"]
        for at, trace in enumerate(traces):
            traces[at] = (*trace[:4], code, trace[5], json.dumps(json.loads(trace[6]) | {"code": code}))
    assert name == rows.group_id
    return rows


def whole_day() -> list[GroupRows]:
    """Return every group of the day: those with traces, which are decided again, and the variants, which have none."""
    few = STEPS[:2]
    with_traces = [
        lived("calm"),
        _altered(lived("otherwise", few), "otherwise"),
        _altered(lived("older", few), "older", "0.0.1+x"),
        lived_by_streams("streams"),
    ]
    return [*with_traces, *(make(with_traces[0], name) for name, make in VARIANTS.items())]


async def write_day(url: str, groups: Sequence[GroupRows]) -> None:
    """Write groups to a migrated database."""
    engine = connect(url)
    try:
        await make_days(engine, (DAY - timedelta(days=1), DAY))
        for rows in groups:
            await write(engine, rows)
    finally:
        await engine.dispose()
