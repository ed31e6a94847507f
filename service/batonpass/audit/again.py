"""One group's day made again: its records are folded, its traced decisions decided anew, its rows derived anew.

Everything that a coordinator writes follows from records and traces. Decisions have to come out the same (L10) and are
held to the laws; histories and generations have to be what the records come to (L2). Where there is no trace of a
decision, it is known to begin where its history or its generation stands.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

from batonpass.audit.beside import (
    ShownChange,
    ShownGeneration,
    changes_decoder,
    comparable,
    generation_decoder,
    wrong_changes,
    wrong_generation,
)
from batonpass.audit.checks import END_MISSING
from batonpass.audit.damage import DAMAGE, read_group, read_record
from batonpass.audit.differing import differences, in_words
from batonpass.audit.findings import Severity
from batonpass.audit.flatten import check_numbers
from batonpass.codec.changes import changes_of
from batonpass.codec.generations import Generation, generation_of, why_of
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

MOST: Final = 200
"""So many findings of one group are told; the rest only counts."""

UNSURE_MS: Final = 60_000
"""Histories lie by the coordinator's clock and go by the day: what was logged so soon after midnight may have gone."""

_KINDS: Final = {record_type: kind for kind, record_type in RECORD_TYPES.items()}


class Of(NamedTuple):
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


class Again:
    """Goes through a group; rows come in the order of versions: at each a trace, a history, a generation, a record."""

    def __init__(self, group: str, code: str, of: Of) -> None:
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
        for rows, pending, is_replayed in self._logged:
            shown = self._shown.pop(rows[0].generation.number, None)
            if shown is None and pending.version in self._unread:
                continue
            wrong = [wrong_generation(shown, row, is_replayed=is_replayed) for row in rows]
            if None not in wrong and wrong[0] is not None:
                self._wrong(wrong[0].detail, _edges(pending), pending.at_ms, (wrong[0].task, None))
        if not self._has_lost_records and self._group is not None:
            for number, shown in sorted(self._shown.items()):
                self._wrong(f"generation {number} is told, and not in the log", (), shown.generation.at_ms)

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
        detail = f"no trace tells of the decision that made {which}; what follows cannot be decided again"
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
        """Hold what stands beside the records of a decision against what they come to; say whether it is whole."""
        is_replayed = reasons is not None and pending.trace is not None
        now_ms = pending.trace.now_ms if pending.trace is not None and is_replayed else 0
        records = tuple(pending.records)
        if self._of.has_histories and (pending.shown or pending.at_ms >= self._of.begin_ms + UNSURE_MS):
            changes = changes_of(before, records, after, why_of(reasons or ()), now_ms)
            logged = [ShownChange(pending.version, one) for one in changes]
            wrong = list(wrong_changes(pending.shown, logged, is_replayed=is_replayed))
            if is_last and self._of.is_end and wrong and len(pending.shown) > len(logged) and pending.trace is None:
                beyond = len(pending.shown) - len(logged)
                if not list(wrong_changes(pending.shown[: len(logged)], logged, is_replayed=False)):
                    self._lost_end(f"histories tell of {beyond} more changes by its last decision", pending)
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
        detail = f"{kinds} at version {pending.version} is decided otherwise: {how} ({whose})"
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
        if len(self.told) < MOST:
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


def rows_of(again: Again) -> Iterator[dict[str, Any]]:
    """Yield what was found of a group, and last how many decisions were made again, and how many came out otherwise."""
    for one in again.told:
        yield {
            "group_id": again.group_id,
            "law": one.law,
            "severity": one.severity.value,
            "task": one.task,
            "member": one.member,
            "detail": one.detail,
            "sequences": list(one.sequences),
            "at": [one.at_ms] if one.at_ms else [],
            "replayed": 0,
            "differing": 0,
        }
    yield {"group_id": again.group_id, "replayed": again.replayed, "differing": again.differing}
