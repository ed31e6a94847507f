"""Decides every logged decision again with the core of this program, and holds each one to the laws (L10, L1 to L8).

Everything that a coordinator writes follows from records and traces. Decisions have to come out the same and are held
to the laws; histories of tasks and generations, which readers are shown, have to follow from the records (L2) by the
code of a coordinator. What hangs on more than records (why something was done, and the
instant) is compared where the decision was made again. Where there is no trace of a decision, it is known to begin
where its history or its generation stands.

Each group is gone through in its order: a snapshot, then traces, histories, generations and records as they follow one
another. Traces say what had been heard of members only where it changed, so each chain begins where one was started
from nothing. Runs on the executors; what comes back are findings and counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from batonpass.audit.database import fetch, rows
from batonpass.audit.findings import END_MISSING, Severity
from batonpass.audit.flatten import DAMAGE, check_numbers, read_group, read_record
from batonpass.audit.plan import DayPlan, GroupPart, Rows, around, quoted
from batonpass.audit.spread import bundles, part_count
from batonpass.audit.tables import SELECTS
from batonpass.codec.changes import Change, changes_of
from batonpass.codec.code import code_version
from batonpass.codec.generations import PROBE, Generation, Moved, generation_of, why_of
from batonpass.codec.records import RECORD_TYPES, StoredRecord
from batonpass.codec.traces import Trace, UnreadableTrace, decode_trace, replay, soft_after
from batonpass.core.decide import Decision
from batonpass.core.evolve import evolve
from batonpass.core.ids import GroupId
from batonpass.core.invariants import Transition, check_group, check_step
from batonpass.core.model import Group
from batonpass.core.reasons import Reason
from batonpass.core.records import Record
from batonpass.core.soft import Soft

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from batonpass.audit.tables import DayTables

FINDINGS_MOST: Final = 200
"""So many findings of one group are told; the rest only counts."""

UNSURE_MS: Final = 60_000
"""Histories lie by the coordinator's clock and go by the day: what was logged so soon after midnight may have gone."""

_KINDS: Final = {record_type: kind for kind, record_type in RECORD_TYPES.items()}


class DayOfGroup(NamedTuple):
    """What is known of a group's day beforehand.

    Attributes:
        first: the first record of the day.
        begin_ms: when the day begins.
        is_end: whether the log ends with the day, and as the head says.
        is_cut: whether the head counts more records than there are.
        has_histories: whether histories of that day are kept.
    """

    first: int
    begin_ms: int
    is_end: bool
    is_cut: bool
    has_histories: bool


class Told(NamedTuple):
    """A finding, without its group."""

    law: str
    severity: Severity
    detail: str
    sequences: tuple[int, ...] = ()
    at_ms: int = 0
    task: str | None = None
    member: str | None = None


@dataclass(slots=True)
class _Pending:
    """A decision whose records are still being read; without a trace all that is known is where it begins."""

    version: int
    trace: Trace | None = None
    at_ms: int = 0
    records: list[Record] = field(default_factory=list)
    shown: list[ShownChange] = field(default_factory=list)


class _Logged(NamedTuple):
    """A generation that the log has, as it would be shown, and the decision that it is of.

    Where a decision ends is not known without its trace: then it is right if it is one of ``rows``.
    """

    rows: Sequence[ShownGeneration]
    pending: _Pending
    is_replayed: bool


class GroupReplay:
    """Goes through a group; rows come in the order of versions: at each a trace, a history, a generation, a record."""

    def __init__(self, group: str, code: str, of: DayOfGroup) -> None:
        self.group_id = group
        self.code = code
        self.replayed = self.differing = 0
        self.told: list[Told] = []
        self._of = of
        self._group: Group | None = None
        # The group as it would be had every decision come out as it does now; None where it is the one above.
        self._meant: Group | None = None
        # What had been heard when the last trace was made; None where the chain of traces is broken.
        self._soft: Soft | None = None
        self._pending: _Pending | None = None
        self._at_ms = 0
        self._shown: dict[int, ShownGeneration] = {}
        self._unread: set[int] = set()
        self._logged: list[_Logged] = []
        self._has_lost_records = False

    def snapshot(self, version: int, form: int, payload: bytes) -> None:
        """Begin with the group as it was."""
        try:
            self._group = read_group(form, payload)
        except DAMAGE as error:
            self._note("replay-incomplete", f"the snapshot of version {version} cannot be read: {error}")
        else:
            self._begin(None, 0)

    def begin_empty(self) -> None:
        """Begin with the empty group: the log is read from its first record."""
        self._group = Group(GroupId(self.group_id))
        self._begin(None, 0)

    def trace(self, version: int, form: int, payload: bytes, at_ms: int) -> None:
        """Take the trace of the decision that was made at a version."""
        if self._known is not None and self._known < version:
            self._lose(version, at_ms)
        try:
            trace = decode_trace(form, payload)
        except (UnreadableTrace, *DAMAGE) as error:
            self._finish()
            self._soft = None
            detail = f"the trace at version {version} cannot be read: {error}"
            self._note("replay-incomplete", detail, (version + 1,), at_ms)
            self._begin(None, at_ms)
            return
        self._finish()
        if self._soft is None and not trace.soft.from_empty:
            self._begin(None, at_ms)
        elif self._group is None or self._group.version != version:
            # What was heard goes on, also where the group is not known yet.
            self._soft = soft_after(self._soft or Soft(), trace.soft)
            self._begin(None, at_ms)
        else:
            self._begin(trace, at_ms)

    def history(self, version: int, payload: bytes, at_ms: int) -> None:
        """Take the changes that readers are shown of the decision that was made at a version."""
        pending = self._boundary(version, at_ms)
        try:
            shown = changes_decoder.decode(payload)
        except DAMAGE as error:
            self._wrong(f"the history at version {version} cannot be read: {error}", (version + 1,), at_ms)
        else:
            if pending is not None:
                pending.shown += [ShownChange(version, one) for one in shown]

    def generation(self, version: int, payload: bytes, at_ms: int) -> None:
        """Take a generation that readers are shown, of the decision that was made at a version."""
        self._boundary(version, at_ms)
        try:
            shown = generation_decoder.decode(payload)
        except DAMAGE as error:
            self._wrong(f"a generation at version {version} cannot be read: {error}", (version + 1,), at_ms)
            self._unread.add(version)
        else:
            # Programs before this one named no trigger for what a probe had found.
            shown = shown._replace(triggers=shown.triggers or (PROBE,))
            self._shown[shown.number] = ShownGeneration(version, shown)

    def record(self, seq: int, stored: StoredRecord, at_ms: int) -> None:
        """Take the next record."""
        self._at_ms = at_ms
        known = self._known
        if known is None or seq <= known:
            return
        if seq != known + 1:
            self._lose(seq - 1, at_ms)
            return
        try:
            record = read_record(stored)
            check_numbers(record, at_ms)
        except DAMAGE:
            self._lose(seq, at_ms)
            return
        if seq == self._of.first:
            self._boundary(seq - 1, at_ms)
        if self._pending is not None:
            self._pending.at_ms = self._pending.at_ms or at_ms
            self._pending.records.append(record)

    @property
    def _known(self) -> int | None:
        """How many records the group is known to hold by now."""
        if self._group is None:
            return None
        return self._group.version + (len(self._pending.records) if self._pending is not None else 0)

    def end(self) -> None:
        """Judge the last decision, the whole group as it is when the day ends, and the generations."""
        is_whole = self._finish(is_last=True) and not self._of.is_cut
        if self._group is not None and is_whole:
            try:
                broken = check_group(self._group)
            except DAMAGE as error:
                self._note("replay-incomplete", f"the group as it is when the day ends cannot be judged: {error!r}")
            else:
                for found in broken:
                    detail, subject = f"when the day ended: {found.detail}", (found.task, found.member)
                    self._note(found.law, detail, (self._group.version,), self._at_ms, subject, Severity.FATAL)
        self._judge_generations()

    def _judge_generations(self) -> None:
        for logged, pending, is_replayed in self._logged:
            shown = self._shown.pop(logged[0].generation.number, None)
            if shown is None and pending.version in self._unread:
                continue
            wrong = [wrong_generation(shown, row, is_replayed=is_replayed) for row in logged]
            if None not in wrong and wrong[0] is not None:
                self._wrong(wrong[0].detail, _edges(pending), pending.at_ms, (wrong[0].task, None))
        if not self._has_lost_records and self._group is not None:
            for number, shown in sorted(self._shown.items()):
                self._wrong(f"generation {number} is stored, but not in the log", (), shown.generation.at_ms)

    def _begin(self, trace: Trace | None, at_ms: int) -> None:
        if self._group is not None:
            self._pending = _Pending(self._group.version, trace, at_ms)

    def _boundary(self, version: int, at_ms: int) -> _Pending | None:
        """Return the decision that what stands at a version belongs to; where none is traced, it begins one."""
        pending = self._pending
        if pending is not None and pending.trace is None and self._known == version and pending.records:
            self._finish()
            self._begin(None, at_ms)
        return self._pending

    def _lose(self, version: int, at_ms: int) -> None:
        """Go no further: what the group was from here on is not known."""
        first = (self._known or 0) + 1
        self._pending, self._group, self._meant = None, None, None
        self._has_lost_records = True
        which = f"record {first}" if first == version else f"records {first} to {version}"
        self._note("replay-incomplete", f"without {which} nothing that follows can be decided again", (), at_ms)

    def _finish(self, *, is_last: bool = False) -> bool:
        """Judge the decision whose records are all there now; say whether it is known to be whole."""
        pending, self._pending = self._pending, None
        if pending is None or self._group is None or not pending.records:
            return True
        try:
            return self._judge(pending, self._group, is_last=is_last)
        except DAMAGE as error:
            detail = f"from record {pending.version + 1} on nothing can be decided again: {error!r}"
            self._pending, self._group, self._meant = None, None, None
            self._has_lost_records = True
            self._note("replay-incomplete", detail, (pending.version + 1,), pending.at_ms)
            return True

    def _judge(self, pending: _Pending, before: Group, *, is_last: bool) -> bool:
        trace, written = pending.trace, tuple(pending.records)
        of_day = pending.version >= self._of.first - 1
        reasons: Sequence[Reason] | None = None
        if trace is not None and not of_day:
            self._soft = soft_after(self._soft or Soft(), trace.soft)
        elif trace is not None:
            heard = self._soft or Soft()
            try:
                decision, self._soft = replay(before, heard, trace)
            except DAMAGE as error:
                detail = f"the trace at version {pending.version} cannot be decided on again: {error!r}"
                self._note("replay-incomplete", detail, _edges(pending), pending.at_ms)
                self._soft = None
                return self._judge(replace(pending, trace=None), before, is_last=is_last)
            made = decision.records
            if made == written:
                reasons = decision.reasons
                self._hold_to_laws(trace, before, decision, pending)
            elif is_last and made[: len(written)] == written:
                self._group = evolve(before, written)
                self._lost_end(f"its last decision made {len(made)} records, {len(written)} of them are there", pending)
                return False
            elif made and written[: len(made)] == made:
                self._soft = heard
                return self._judge_apart(pending, before, len(made), is_last=is_last)
            else:
                self._differ(trace, before, decision, heard, pending)
        after = evolve(before, written)
        if trace is None and self._meant is not None:
            self._meant = evolve(self._meant, written)
        self._group = after
        return not of_day or self._compare(pending, before, after, reasons, is_last=is_last)

    def _hold_to_laws(self, trace: Trace, before: Group, decision: Decision, pending: _Pending) -> None:
        self.replayed += 1
        if self._meant is not None:
            self._meant = evolve(self._meant, decision.records)
        soft = self._soft or Soft()
        for found in check_step(
            Transition(before, decision.after, decision.records, soft, decision.soft, trace.now_ms, trace.inputs)
        ):
            subject = (found.task, found.member)
            self._note(found.law, found.detail, _edges(pending), pending.at_ms, subject, Severity.FATAL)

    def _judge_apart(self, pending: _Pending, before: Group, made: int, *, is_last: bool) -> bool:
        """Judge a decision behind which there are records that no trace tells of: what it made, then these."""
        version, end = pending.version + made, pending.version + len(pending.records)
        self._judge(_part_of(pending, pending.version, version), before, is_last=False)
        # What had been heard by the next trace is not known without the one that is missing.
        self._soft = None
        which = f"record {end}" if end == version + 1 else f"records {version + 1} to {end}"
        detail = f"there is no trace of the decision that made {which}; what follows cannot be decided again"
        self._note("L10", detail, (version + 1, end), pending.at_ms, severity=Severity.FATAL)
        beside = {one.version for one in pending.shown} | {one.version for one in self._shown.values()}
        edges = [version, *sorted(one for one in beside if version < one < end), end]
        is_whole = True
        for start, stop in pairwise(edges):
            part = replace(_part_of(pending, start, stop), trace=None)
            is_whole = self._judge(part, self._group or before, is_last=is_last and stop == end)
        return is_whole

    def _compare(
        self, pending: _Pending, before: Group, after: Group, reasons: Sequence[Reason] | None, *, is_last: bool
    ) -> bool:
        """Compare what stands beside the records of a decision with what follows from them; say whether it is whole."""
        # Another version of the program may say the same in other words.
        is_replayed = reasons is not None and pending.trace is not None and pending.trace.code == self.code
        now_ms = pending.trace.now_ms if pending.trace is not None and is_replayed else 0
        records = tuple(pending.records)
        if self._of.has_histories and (pending.shown or pending.at_ms >= self._of.begin_ms + UNSURE_MS):
            changes = changes_of(before, records, after, why_of(reasons or ()), now_ms)
            logged = [ShownChange(pending.version, one) for one in changes]
            wrong = list(wrong_changes(pending.shown, logged, is_replayed=is_replayed))
            if is_last and self._of.is_end and wrong and len(pending.shown) > len(logged) and pending.trace is None:
                beyond = len(pending.shown) - len(logged)
                if not list(wrong_changes(pending.shown[: len(logged)], logged, is_replayed=False)):
                    self._lost_end(f"histories have {beyond} more changes of its last decision", pending)
                    return False
            for one in wrong:
                sequences: tuple[int, ...] = _edges(pending)
                if one.logged is not None:
                    alike = [comparable(row, is_replayed=is_replayed) for row in logged]
                    # What each record changes is the same however many are read at once.
                    sequences = (pending.version + _made_by(before, records, after, alike.index(one.logged)),)
                self._wrong(one.detail, sequences, pending.at_ms, (one.task, one.member))
        made = _generations(before, records, after, reasons, now_ms)
        if made:
            self._logged.append(_Logged([ShownGeneration(pending.version, one) for one in made], pending, is_replayed))
        return True

    def _differ(self, trace: Trace, before: Group, decision: Decision, heard: Soft, pending: _Pending) -> None:
        """Tell of a decision that comes out otherwise, unless that follows from one that did before."""
        written = tuple(pending.records)
        self.replayed += 1
        if self._meant is not None:
            meant, _ = replay(replace(self._meant, version=before.version), heard, trace)
            if meant.records == written:
                self._meant = meant.after
                return
        self._meant = decision.after
        self.differing += 1
        same = trace.code == self.code
        kinds = ", ".join(dict.fromkeys(type(one).__name__ for one in trace.inputs))
        whose = "the same code" if same else f"by {trace.code}; this is {self.code}"
        how, places = _how(written, decision.records)
        sequences = tuple(pending.version + 1 + place for place in places) or _edges(pending)
        detail = f"{kinds} at version {pending.version} is decided differently: {how} ({whose})"
        severity = Severity.FATAL if same else Severity.NOTICE
        self._note("L10", detail, sequences, pending.at_ms, severity=severity)

    def _lost_end(self, why: str, pending: _Pending) -> None:
        self._has_lost_records = True
        if self._of.is_end:
            self._wrong(END_MISSING + why, _edges(pending), pending.at_ms)

    def _wrong(
        self, detail: str, sequences: tuple[int, ...], at_ms: int, subject: tuple[str | None, str | None] = (None, None)
    ) -> None:
        self._note("L2", detail, sequences, at_ms, subject, Severity.FATAL)

    def _note(  # noqa: PLR0917 - what a finding has
        self,
        law: str,
        detail: str,
        sequences: tuple[int, ...] = (),
        at_ms: int = 0,
        subject: tuple[str | None, str | None] = (None, None),
        severity: Severity = Severity.NOTICE,
    ) -> None:
        if len(self.told) < FINDINGS_MOST:
            self.told.append(Told(law, severity, detail, tuple(dict.fromkeys(sequences)), at_ms, *subject))


def _generations(
    before: Group, records: Sequence[Record], after: Group, reasons: Sequence[Reason] | None, now_ms: int
) -> list[Generation]:
    """Return the generation that records began, if any: as it is with all of them, and as it would be with fewer."""
    whole = generation_of(before, records, after, reasons or (), at=(now_ms, 0.0))
    if whole is None or reasons is not None:
        return [whole] if whole is not None else []
    found, group = [whole], before
    for count, record in enumerate(records, start=1):
        group = evolve(group, (record,))
        one = generation_of(before, records[:count], group, (), at=(now_ms, 0.0))
        if one is not None and one not in found:
            found.append(one)
    return found


def _part_of(pending: _Pending, start: int, stop: int) -> _Pending:
    """Return what stands from one version to another, as a decision of its own."""
    first = pending.version
    shown = [one for one in pending.shown if start <= one.version < stop]
    return replace(pending, version=start, records=pending.records[start - first : stop - first], shown=shown)


def _made_by(before: Group, records: Sequence[Record], after: Group, place: int) -> int:
    """Return by how many records the change at a place has been made."""
    counts = range(1, len(records) + 1)
    return counts[
        bisect_left(counts, True, key=lambda count: len(changes_of(before, records[:count], after, {}, 0)) > place)
    ]


def _edges(pending: _Pending) -> tuple[int, int]:
    return pending.version + 1, pending.version + len(pending.records)


def _how(then: Sequence[Record], now: Sequence[Record]) -> tuple[str, list[int]]:
    """Return in words how two decisions differ, and at which places of the first one."""
    if len(then) == len(now) and all(type(one) is type(other) for one, other in zip(then, now, strict=True)):
        places = [place for place, (one, other) in enumerate(zip(then, now, strict=True)) if one != other]
        told = [f"{_KINDS[type(then[place])]}: {_fields(then[place], now[place])}" for place in places]
        return "; ".join(told[:2]) + (f"; and {len(told) - 2} more records" if len(told) > 2 else ""), places
    more = [_KINDS[type(one)] for one in now if one not in then]
    less = [place for place, one in enumerate(then) if one not in now]
    gone = ", ".join(_KINDS[type(then[place])] for place in less[:5])
    if more or less:
        return f"{gone or 'nothing'} then, {', '.join(more[:5]) or 'nothing'} now", less
    return "the same records in another order", []


def _fields(then: Record, now: Record) -> str:
    return in_words(differences(then, now), "then", "now")


class ShownChange(NamedTuple):
    """A change as readers are shown it, with the version that it stands under."""

    version: int
    change: Change


class ShownGeneration(NamedTuple):
    """A generation as readers are shown it, with the version that it stands under."""

    version: int
    generation: Generation


class Fault(NamedTuple):
    """What is wrong with one row; ``logged`` is what it should be, if anything."""

    detail: str
    task: str | None = None
    member: str | None = None
    logged: ShownChange | None = None


changes_decoder: Final = msgspec.json.Decoder(tuple[Change, ...])
generation_decoder: Final = msgspec.json.Decoder(Generation)

SHOWN, LOGGED = "as shown", "by the log"


def wrong_changes(shown: Sequence[ShownChange], logged: Sequence[ShownChange], *, is_replayed: bool) -> Iterator[Fault]:
    """Yield what is wrong with the changes that are shown of one decision.

    Their order among themselves is no matter: of a member that goes it is that in which its tasks are found.
    """
    ours, theirs = (Counter(comparable(one, is_replayed=is_replayed) for one in rows) for rows in (logged, shown))
    lacking, odd = list((ours - theirs).elements()), list((theirs - ours).elements())
    for is_same in _LIKENESSES:
        for one in list(lacking):
            other = next((row for row in odd if is_same(row.change, one.change)), None)
            if other is not None:
                lacking.remove(one)
                odd.remove(other)
                what = in_words(differences(_flat(*other), _flat(*one)), SHOWN, LOGGED)
                yield Fault(
                    f"its history is not what was logged ({_change_in_words(one)}): {what}",
                    one.change.task,
                    one.change.member,
                    one,
                )
    for one in lacking:
        yield Fault(
            f"its history lacks what was logged: {_change_in_words(one)}", one.change.task, one.change.member, one
        )
    for one in odd:
        yield Fault(f"its history has what was not logged: {_change_in_words(one)}", one.change.task, one.change.member)


_LIKENESSES: Final[tuple[Callable[[Change, Change], bool], ...]] = (
    lambda a, b: (a.task, a.member, a.kind) == (b.task, b.member, b.kind),
    lambda a, b: (a.task, a.member) == (b.task, b.member),
    lambda a, b: (a.task, a.kind) == (b.task, b.kind),
    lambda a, b: (a.member, a.kind) == (b.member, b.kind),
)
"""Which of two rows that differ are taken for the same one: first those that have most in common."""


def comparable(row: ShownChange, *, is_replayed: bool) -> ShownChange:
    """Return what is compared of a change: what hangs on the records alone, unless its decision was made again."""
    if is_replayed:
        return row
    # Who goes has a cause of its own.
    why = row.change.why if row.change.kind == "gone" else ""
    return row._replace(change=row.change._replace(why=why, at_ms=0))


def _flat(version: int, row: Change | Generation) -> dict[str, object]:
    return {"version": version, **row._asdict()}


def _change_in_words(row: ShownChange) -> str:
    one = row.change
    role = f" {one.role}" if one.kind == "granted" else f" {one.state}" if one.state else ""
    token = f" under token {one.token}" if one.token else ""
    return (
        f"{one.kind}{role} to {one.member}{token}"
        if one.kind == "granted"
        else f"{one.kind}{role} by {one.member}{token}"
    )


def wrong_generation(shown: ShownGeneration | None, logged: ShownGeneration, *, is_replayed: bool) -> Fault | None:
    """Return what is wrong with a generation that the log has."""
    number = logged.generation.number
    if shown is None:
        return Fault(f"generation {number} is in the log, and not among the generations")
    ours, theirs = (_comparable(one, is_replayed=is_replayed) for one in (logged, shown))
    if ours == theirs:
        return None
    what = in_words(differences(_flat(*theirs), _flat(*ours)), SHOWN, LOGGED)
    return Fault(f"generation {number} is not what was logged: {what}", _task_of(theirs.generation, ours.generation))


def _comparable(row: ShownGeneration, *, is_replayed: bool) -> ShownGeneration:
    one = row.generation._replace(decide_ms=0.0)
    if not is_replayed:
        moved = tuple(move._replace(why="") for move in one.moved)
        one = one._replace(at_ms=0, moved=moved, reasons=())
    return row._replace(generation=one)


def _task_of(one: Generation, other: Generation) -> str | None:
    """Return the task of the first line in which two generations differ, where there is one."""
    lines: Iterable[tuple[Moved, Moved]] = zip(one.moved, other.moved, strict=False)
    return next((there.task for here, there in lines if here != there), None)


TOLD_MOST: Final = 3
WORD_MOST: Final = 60
NOTHING: Final = "nothing"


class Difference(NamedTuple):
    """One field, by its path, that is one thing here and another there."""

    path: str
    here: object
    there: object


def differences(here: object, there: object, path: str = "") -> Iterator[Difference]:
    """Yield the innermost fields in which two values differ, in their order."""
    if here == there:
        return
    if type(here) is type(there) and is_dataclass(here):
        for field in fields(here):
            yield from differences(getattr(here, field.name), getattr(there, field.name), _within(path, field.name))
    elif isinstance(here, tuple) and isinstance(there, tuple) and len(here) == len(there):
        names = getattr(here, "_fields", range(len(here)))
        for name, one, other in zip(names, here, there, strict=True):
            yield from differences(one, other, _within(path, name))
    elif isinstance(here, Mapping) and isinstance(there, Mapping):
        for name in dict.fromkeys([*here, *there]):
            yield from differences(here.get(name, NOTHING), there.get(name, NOTHING), _within(path, name))
    else:
        yield Difference(path, here, there)


def _within(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def in_words(found: Iterator[Difference], here: str, there: str) -> str:
    """Return differences in words, the first few: ``here`` and ``there`` name whose values they are."""
    told = list(found)
    words = [f"{one.path} {_word(one.here)} {here}, {_word(one.there)} {there}" for one in told[:TOLD_MOST]]
    more = len(told) - TOLD_MOST
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")


def _word(value: Any) -> str:
    said = str(value) if isinstance(value, str | int | float | None) else repr(value)
    said = said or "empty"
    return said if len(said) <= WORD_MOST else f"{said[:WORD_MOST]}…"


SNAPSHOT, RECORD, TRACE, HISTORY, GENERATION = range(5)
"""In which order what stands at one version is taken: a snapshot or the last record up to it, then what stands beside
the decision that was made there."""

REPLAYED: Final = pa.schema(
    [
        *(("group_id", pa.string()), ("law", pa.string()), ("severity", pa.string()), ("task", pa.string())),
        *(
            ("member", pa.string()),
            ("detail", pa.string()),
            ("sequences", pa.list_(pa.int64())),
            ("at", pa.list_(pa.int64())),
        ),
        *(("replayed", pa.int64()), ("differing", pa.int64())),
    ]
)
"""Findings, and for each group one row without a law that counts the decisions."""


class Row(NamedTuple):
    """One row of what a group is gone through by; ``rank`` is one of those above."""

    version: int
    rank: int
    at_ms: int
    kind: str | None
    form: int
    payload: bytes


_COLUMNS: Final[Mapping[int, tuple[str, str]]] = {
    SNAPSHOT: ("snapshots", "version, at_ms, null::text, format, payload"),
    RECORD: ("records", "seq, at_ms, kind, version, convert_to(payload, 'UTF8')"),
    TRACE: ("traces", "version, at_ms, null::text, format, convert_to(payload, 'UTF8')"),
    HISTORY: ("histories", "version, at_ms, null::text, 0, convert_to(payload, 'UTF8')"),
    GENERATION: ("told", "version, at_ms, null::text, 0, convert_to(payload, 'UTF8')"),
}
"""For each rank the name of what is read (``tables.SELECTS``), and the columns of ``Row`` that are read of it."""

# The last trace before the day that was started from nothing, else the first one of the day: what had been heard begins
# there.
_SINCE: Final = """
    select coalesce((select max(version) from traces where group_id = {group} and version < {first}
                        and payload -> 'soft' ->> 'from_empty' = 'true'),
                    (select min(version) from traces where group_id = {group} and version between {first} - 1 and {last}))
"""

AT_ONCE: Final = 5_000
"""So many versions of a group are read, and put in order, at once."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A step of ``mapInArrow``: goes through the groups of the parts whose numbers it is given."""

    url: str
    plan: DayPlan
    parts: tuple[tuple[GroupPart, ...], ...]
    has_histories: bool

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what is found (``REPLAYED``)."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from map(self._replayed, self.parts[number])

    def _replayed(self, one: GroupPart) -> pa.RecordBatch:
        is_end, is_cut = one.ends and not one.missing, one.missing > 0
        known = DayOfGroup(one.first, self.plan.begin_ms, is_end, is_cut, self.has_histories)
        current = GroupReplay(one.group, code_version(), known)
        if not one.base and one.known:
            current.begin_empty()
        for version, rank, at_ms, kind, form, payload in self._in_order(one):
            if rank == SNAPSHOT:
                current.snapshot(version, form, payload)
            elif rank == TRACE:
                current.trace(version, form, payload, at_ms)
            elif rank == HISTORY:
                current.history(version, payload, at_ms)
            elif rank == GENERATION:
                current.generation(version, payload, at_ms)
            else:
                current.record(version, StoredRecord(kind or "", form, payload), at_ms)
        return _rows_of(current)

    def _in_order(self, one: GroupPart) -> Iterator[Row]:
        """Yield what is read of a group, by version and rank."""
        stretches = list(self._stretches(one))
        answers = fetch(self.url, [sql for queries in stretches for _, sql in queries])
        for queries in stretches:
            found = [
                Row(version, rank, *rest)
                for (rank, _), batches in zip(queries, answers, strict=False)
                for batch in batches
                for version, *rest in zip(*(column.to_pylist() for column in batch.columns), strict=True)
            ]
            yield from sorted(found, key=itemgetter(0, 1))

    def _stretches(self, one: GroupPart) -> Iterator[list[tuple[int, str]]]:
        """Yield the queries of a group, each with the rank of its rows: some versions at once, up to the last ones."""
        within = f"at >= '{around(self.plan, -1)}' and at < '{around(self.plan, 1)}'"
        first = {RECORD: one.begin, GENERATION: one.first - 1}
        sql = _SINCE.format(group=quoted(one.group), first=one.first, last=one.last)
        ((since,),) = rows(self.url, sql) if one.last >= one.first else [(None,)]
        if since is not None:
            first[TRACE] = since
        if self.has_histories:
            first[HISTORY] = one.first - 1
        if one.base and one.known:
            yield [(SNAPSHOT, _select(SNAPSHOT, one, one.base, one.base))]
        for low in range(min(first.values()), one.last + 1, AT_ONCE):
            high = min(low + AT_ONCE - 1, one.last)
            # What was decided at the last record is of the day after.
            last = {rank: high if rank == RECORD else min(high, one.last - 1) for rank in first}
            yield [
                (rank, _select(rank, one, max(low, begin), last[rank], within))
                for rank, begin in first.items()
                if begin <= last[rank]
            ]


def _select(rank: int, one: GroupPart, low: int, high: int, within: str = "") -> str:
    name, columns = _COLUMNS[rank]
    select = SELECTS[name].replace("{within}", within)
    number = "seq" if rank == RECORD else "version"
    where = f"group_id = {quoted(one.group)} and {number} between {low} and {high}"
    return f"select {columns} from ({select}) as whole where {where}"  # noqa: S608 - our own words


def _rows_of(replayed: GroupReplay) -> pa.RecordBatch:
    """Return what was found of a group, then one row with how many decisions were made again."""
    replayed.end()
    group = replayed.group_id
    rows: list[dict[str, Any]] = [
        one._asdict()
        | {"group_id": group, "severity": one.severity.value, "at": [one.at_ms] if one.at_ms else []}
        | {"replayed": 0, "differing": 0}
        for one in replayed.told
    ]
    rows.append({"group_id": group, "replayed": replayed.replayed, "differing": replayed.differing})
    return pa.RecordBatch.from_pylist(rows, schema=REPLAYED)


def replayed(tables: DayTables, cores: int) -> DataFrame:
    """Return what comes of deciding the day again (``REPLAYED``)."""
    plan = tables.plan
    parts = tuple(map(tuple, bundles(plan.groups, part_count(plan.records, len(plan.groups), cores, tables.chunk))))
    step = Replay(tables.url, plan, parts, has_histories(tables.rows, plan))
    numbers = tables.spark.range(0, len(parts), 1, max(1, len(parts)))
    return numbers.mapInArrow(step, from_arrow_schema(REPLAYED))


def has_histories(ask: Rows, plan: DayPlan) -> bool:
    """Say whether histories of tasks are kept of the day; where retention has taken them, it took all."""
    within = f"at >= '{around(plan, -1)}' and at < '{around(plan, 1)}'"
    asked = [f"exists (select from {name} where {within})" for name in ("assignment_events", "fresh_changes")]
    ((found,),) = ask(f"select {' or '.join(asked)} as found")
    return bool(found)
