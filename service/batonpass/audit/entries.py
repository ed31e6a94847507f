"""Records and snapshots as entries, one for each thing that changed, for the audit's ledger (``ledger``) to take.

The codec decodes, so that what old programs wrote is read as well; nothing here folds or decides. Damage of any kind
becomes an error of the one record that has it: a coordinator may refuse a group that it cannot read completely, but the
audit looks at all groups. Runs on the executors.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

from batonpass.codec.groups import UnreadableGroup, decode_group
from batonpass.codec.records import StoredRecord, UnreadableRecord, decode_record
from batonpass.codec.traces import UnreadableTrace
from batonpass.core.state import records as r
from batonpass.core.state.errors import InvalidConfig
from batonpass.core.state.model import ActiveState, Group, Role, Topology
from batonpass.core.state.policy import GroupConfig, parse_config
from batonpass.core.state.records import Record


class Entry(NamedTuple):
    """One thing that changed.

    ``seq`` is the record, ``place`` orders the entries of one record; each record has one of place 0. ``at_ms`` is when
    it was appended, ``ms`` the time in the record itself (else ``at_ms``). Entries of the snapshot that the reading
    starts from have its version as ``seq``, and places below 0.

    ``what`` changed decides what the other fields mean. Not listed: ``task`` and ``member``, which some entries have.

    | ``what`` | |
    |---|---|
    | active, standby, warmup | ``number``: the member's epoch; of active ``token``, and ``ready``: was it caught up |
    | revoked, demoted | ``number``: the member's epoch |
    | adopted, dropped | after lost commits; of an adopted one ``token`` |
    | reported, stopped | ``word``: the state of the active; how the last run ended |
    | released, waived | the member confirmed; the group no longer waits for it |
    | waived, stopped, gone | ``number``: when the member was last heard, in milliseconds since 1970 |
    | unreleased | at the snapshot the group still waited for the member; ``until_ms``: until when |
    | next-owner, parked | |
    | lag | ``number``: what the warmup that the record grants has to restore |
    | stalled | ``until_ms``: until then no warmup is tried there |
    | placed | ``number``: generation, ``token``: changed targets, ``until_ms``: moves, ``word``: lower bound |
    | target | ``number``: the generation, ``word``: why the task waits |
    | joined, raised, assigned | ``number``: the member's epoch. Of joined ``word``: its instance id |
    | gone, away, deleted | ``until_ms``: when the lease, or the grace, ends. Of gone ``word``: the cause |
    | inherited | ``word``: the successor |
    | drain, undrain, suspected, cleared | of a drain ``until_ms``: its deadline |
    | config, topology | ``whole``: it |
    | probe | ``until_ms``: when it is due |
    | other, unreadable | ``word``: the kind of record; why it cannot be read |
    """

    seq: int
    place: int
    at_ms: int
    coordinator_epoch: int
    what: str
    ms: int = 0
    task: str | None = None
    member: str | None = None
    number: int | None = None
    token: int | None = None
    until_ms: int | None = None
    ready: bool | None = None
    word: str | None = None
    whole: GroupConfig | Topology | None = None


LAG: Final = "lag"
OTHER: Final = "other"
UNREADABLE: Final = "unreadable"

NUMBER_MOST: Final = 2**62
"""No token, epoch or generation gets so high; 64 bits hold one more, and the difference of two."""
INSTANT_MOST: Final = 253_402_300_800_000
"""The end of the year 9999, in milliseconds since 1970."""

DAMAGE: Final = (
    *(UnreadableRecord, UnreadableGroup, UnreadableTrace, InvalidConfig, zlib.error),
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
)
"""The errors of reading damaged data, and of working with impossible values in it."""

SETTING_MOST: Final = 2**40
"""Settings that are used in calculations stay far below."""


def read_record(stored: StoredRecord) -> Record:
    """Return the record that was stored.

    Raises:
        Exception: one of ``DAMAGE``.
    """
    record = decode_record(stored)
    if isinstance(record, r.GroupDeclared | r.ConfigChanged):
        _check_settings(record.config)
    return record


def read_group(form: int, payload: bytes) -> Group:
    """Return the group that a snapshot holds.

    Raises:
        Exception: one of ``DAMAGE``.
    """
    group = decode_group(form, zlib.decompress(payload))
    _check_settings(group.config)
    return group


def _check_settings(config: GroupConfig) -> None:
    """Check settings: the codec takes any text for a number or a share, and whole numbers of any size."""
    parse_config({name: getattr(config, name) for name in ("max_warmup_replicas", "max_drain_warmups")})
    for name in ("max_warmups_per_member", "session_timeout_ms", "suspect_timeout_ms"):
        if not -SETTING_MOST < getattr(config, name) < SETTING_MOST:
            raise ValueError(f"config.{name}: {getattr(config, name)} is out of range")


def read_entries(seq: int, at_ms: int, epoch: int, stored: StoredRecord) -> tuple[list[Entry], Record | None]:
    """Return what a record changed, and the record itself, or None if it cannot be read.

    ``at_ms`` and ``epoch`` are those of its row. A record with a number out of range cannot be read.
    """
    is_dated = -INSTANT_MOST < at_ms < INSTANT_MOST
    try:
        record = read_record(stored)
        entries = entries_of(record, seq, at_ms if is_dated else 0, epoch, stored.kind)
    except DAMAGE as error:
        return [_unreadable(seq, 0, at_ms if is_dated else 0, epoch, str(error))], None
    if not is_dated:
        return [_unreadable(seq, 0, 0, epoch, f"{entries[0].what}: at_ms {at_ms} is out of range")], record
    return entries, record


def entries_of(record: Record, seq: int, at_ms: int, epoch: int, kind: str = "") -> list[Entry]:
    """Return what a record changed; of a ``kind`` that changes nothing here, one entry that says so.

    Raises:
        ValueError: when a number is out of range.
    """
    find = _ENTRIES.get(type(record))
    said = () if find is None else find(record, at_ms)
    return _of_row(said, seq, at_ms, epoch) or [Entry(seq, 0, at_ms, epoch, OTHER, ms=at_ms, word=kind)]


def _check_numbers(one: Entry) -> None:
    for name, value, most in (
        ("ms", one.ms, INSTANT_MOST),
        ("number", one.number, NUMBER_MOST),
        ("token", one.token, NUMBER_MOST),
        ("until_ms", one.until_ms, INSTANT_MOST),
    ):
        if value is not None and not -most < value < most:
            raise ValueError(f"{one.what}: {name} {value} is out of range")


def _unreadable(seq: int, place: int, at_ms: int, epoch: int, why: str) -> Entry:
    return Entry(seq, place, at_ms, epoch, UNREADABLE, ms=at_ms, word=why[:200])


def read_standing(version: int, at_ms: int, form: int, payload: bytes) -> tuple[list[Entry], Group | None]:
    """Return the state at a snapshot, in the words of the records that would have led to it, and the group itself.

    The group is None if it cannot be read.
    """
    try:
        group = read_group(form, payload)
        return standing(group, version, at_ms), group
    except DAMAGE as error:
        return [_unreadable(version, -1, at_ms, 0, str(error))], None


def standing(group: Group, version: int, at_ms: int) -> list[Entry]:
    """Return the state of a group, in the words of the records that would have led to it.

    Raises:
        ValueError: when a number is out of range.
    """
    said = list(_standing(group, at_ms))
    return _of_row(said, version, at_ms, 0, -len(said))


_said: Final[Callable[..., Entry]] = partial(Entry, 0, 0, 0, 0)
"""Says what changed, when, of which task and member; the row of the record has the rest (``_of_row``)."""


def _of_row(said: Iterable[Entry], seq: int, at_ms: int, epoch: int, first: int = 0) -> list[Entry]:
    """Return entries of one row, in their places from the ``first`` on.

    Raises:
        ValueError: when a number is out of range.
    """
    entries = [Entry(seq, place, at_ms, epoch, *one[4:]) for place, one in enumerate(said, start=first)]
    for one in entries:
        _check_numbers(one)
    return entries


def _assignment_changed(record: r.AssignmentChanged, _at_ms: int) -> list[Entry]:
    member, epoch, ms = record.member_id, record.epoch, record.at_ms
    changed = [
        *(_said("revoked", ms, task, member, number=epoch) for task in record.revoked),
        *(_said("demoted", ms, task, member, number=epoch) for task in record.demoted),
        *(
            _said(grant.role.value, ms, task, member, number=epoch, token=grant.token, ready=task in record.ready)
            for task, grant in record.granted.items()
        ),
        *(_said(LAG, ms, task, member, number=lag) for task, lag in record.lags.items()),
    ]
    # Whose next epoch is to be echoed, and nothing else, is told one too.
    return changed or [_said("assigned", ms, member=member, number=epoch)]


def _placed(record: r.TargetPlaced, _at_ms: int) -> list[Entry]:
    ms, number, bound, changes = record.at_ms, record.generation, str(record.lower_bound), record.changes
    return [
        _said("placed", ms, number=number, token=len(changes), until_ms=record.moves, word=bound),
        *(_said("target", ms, task, to[0], number=number, word=to[2]) for task, to in changes.items()),
    ]


def _adopted(record: r.TasksAdopted, _at_ms: int) -> list[Entry]:
    member, ms, runs = record.member_id, record.at_ms, ActiveState.RUNNING.value
    return [
        *(_said("dropped", ms, task, member) for task in record.dropped),
        *(_said("adopted", ms, task, member, token=one, ready=True, word=runs) for task, one in record.tokens.items()),
    ]


def _joined(record: r.MemberJoined, _at_ms: int) -> list[Entry]:
    member, drain = record.member, record.member.drain
    joined = _said("joined", member.joined_ms, member=member.id, number=member.epoch, word=member.instance_id)
    return [joined] if drain is None else [joined, _said("drain", drain.since_ms, member=member.id)]


_ENTRIES: Final[Mapping[type[Any], Callable[[Any, int], list[Entry]]]] = {
    r.AssignmentChanged: _assignment_changed,
    r.TargetPlaced: _placed,
    r.TasksAdopted: _adopted,
    r.MemberJoined: _joined,
    r.EpochsRaised: lambda one, at: [
        _said("raised", at, member=who, number=epoch) for who, epoch in one.epochs.items()
    ],
    r.GroupDeclared: lambda one, _: [
        _said("config", one.at_ms, whole=one.config),
        _said("topology", one.at_ms, whole=one.topology),
    ],
    r.ConfigChanged: lambda one, at: [_said("config", at, whole=one.config)],
    r.TopologyChanged: lambda one, at: [_said("topology", at, whole=one.topology)],
    r.GroupDeleted: lambda one, _: [_said("deleted", one.at_ms, until_ms=one.lease_end_ms)],
    r.MemberGone: lambda one, _: [
        _said("gone", one.at_ms, None, one.member_id, one.heard_ms, until_ms=one.lease_end_ms, word=one.cause.value)
    ],
    r.MemberAway: lambda one, _: [_said("away", one.at_ms, member=one.member_id, until_ms=one.until_ms)],
    r.PlaceInherited: lambda one, at: [_said("inherited", at, member=one.member_id, word=one.successor)],
    r.DrainStarted: lambda one, _: [_said("drain", one.since_ms, member=one.member_id, until_ms=one.deadline_ms)],
    r.DrainCancelled: lambda one, at: [_said("undrain", at, member=one.member_id)],
    r.MemberSuspected: lambda one, at: [_said("suspected", at, member=one.member_id)],
    r.SuspicionCleared: lambda one, at: [_said("cleared", at, member=one.member_id)],
    r.TaskReleased: lambda one, at: [_said("released", one.at_ms or at, task=one.task, member=one.member_id)],
    r.ReleaseWaived: lambda one, at: [_said("waived", at, task=one.task, member=one.member_id, number=one.heard_ms)],
    r.NextOwnerChosen: lambda one, at: [_said("next-owner", at, task=one.task, member=one.next_owner)],
    r.ActiveReported: lambda one, _: [_said("reported", one.at_ms, one.task, one.member_id, word=one.state.value)],
    r.WarmupStalled: lambda one, at: [_said("stalled", at, task=one.task, member=one.member_id, until_ms=one.until_ms)],
    r.TaskParked: lambda one, at: [_said("parked", at, task=one.task)],
    # What an application has no longer is granted to nobody, like what is parked.
    r.TasksEnded: lambda one, at: [_said("parked", at, task=task) for task in one.tasks],
    r.ProbeScheduled: lambda one, at: [_said("probe", at, until_ms=one.at_ms)],
}


def _standing(group: Group, at_ms: int) -> Iterator[Entry]:
    """Yield the state at a snapshot, in the words of the records that would have led to it."""
    yield _said("config", at_ms, whole=group.config)
    yield _said("topology", at_ms, whole=group.topology)
    if group.next_probe_ms is not None:
        yield _said("probe", at_ms, until_ms=group.next_probe_ms)
    yield _said("placed", at_ms, number=group.generation, token=0, until_ms=0, word="0")
    for task_id, task in sorted(group.tasks.items()):
        # A task without an owner keeps the state of its last one.
        runs, stop = task.owner is not None and task.state is ActiveState.RUNNING, task.handover.stop
        if stop is not None and stop.at_ms is not None and not runs:
            heard_ms, cause = stop.heard_ms, stop.cause
            yield _said("stopped", stop.at_ms, task=task_id, member=stop.member_id, number=heard_ms, word=cause)
        if task.marks.parked:
            yield _said("parked", at_ms, task=task_id)
        for entry in task.handover.unreleased:
            yield _said("unreleased", at_ms, task=task_id, member=entry.member_id, until_ms=entry.free_at_ms)
    grants = []
    for member_id, member in sorted(group.members.items()):
        yield _said("joined", member.joined_ms, member=member_id, number=member.epoch, word=member.instance_id)
        if member.drain is not None:
            yield _said("drain", member.drain.since_ms, member=member_id, until_ms=member.drain.deadline_ms)
        if member.suspected:
            yield _said("suspected", at_ms, member=member_id)
        grants += [(grant.since_ms, member_id, task_id, grant) for task_id, grant in member.assignment.items()]
    # Of two owners the later one was granted what the other still had.
    for since_ms, member_id, task_id, grant in sorted(grants, key=itemgetter(0, 1, 2)):
        yield _said(grant.role.value, since_ms, task_id, member_id, token=grant.token, ready=True)
        owned = group.tasks.get(task_id)
        if grant.role is Role.ACTIVE and owned is not None and owned.state is not ActiveState.GRANTED:
            yield _said("reported", owned.since_ms, task=task_id, member=member_id, word=owned.state.value)
    for task_id, task in sorted(group.tasks.items()):
        if task.target.owner is not None:
            yield _said("target", at_ms, task=task_id, member=task.target.owner)
        if task.handover.next_owner is not None:
            yield _said("next-owner", at_ms, task=task_id, member=task.handover.next_owner)
