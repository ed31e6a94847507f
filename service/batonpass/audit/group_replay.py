"""Makes every logged decision of a group's day again, with the core of this program, and compares it with the log.

| the log has | it is compared with | what differs is |
|---|---|---|
| the records of a decision, and its trace | what the core decides from that | L10; a notice if other code decided |
| records that no traced decision made | | L10 |
| a decision that was made again | the laws, as the coordinator checks them | that law |
| the group when the day ends | the laws | that law |
| task histories and generations, as readers are shown them | what follows from the records | L2 |
| a snapshot, from which coordinators start | what the records come to | L2 |
| the policy in a trace | that of the first trace since the coordinator loaded the group | L2 |
| its last decision, of which records are missing | its trace, or its task history | L2: the end of the log is missing |

What cannot be read or followed is the notice replay-incomplete.

A trace says what had changed in soft state since the trace before. So a chain of traces begins with one that was
started from empty soft state, and ends where a trace is missing. A decision without a trace is not made again: its
records are followed. A task history or a generation shows where it begins. Only what follows from the records alone is
compared: not reasons and times.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from batonpass.audit.comparison import (
    LOGGED,
    ChangeRow,
    GenerationRow,
    in_words,
    records_in_words,
    wrong_generation,
    wrong_history,
)
from batonpass.audit.entries import DAMAGE, read_group
from batonpass.audit.findings import END_MISSING, STILL, Finding, Kept, Severity
from batonpass.audit.plan import GroupPlan
from batonpass.codec.changes import Change, changes_of
from batonpass.codec.generations import PROBE, Generation, generation_of, why_of
from batonpass.codec.groups import is_current
from batonpass.codec.traces import Trace, UnreadableTrace, decode_trace, replay, soft_after
from batonpass.core.decide import Decision
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group
from batonpass.core.state.policy import Policy
from batonpass.core.state.reasons import Reason
from batonpass.core.state.records import Record
from batonpass.core.state.soft import Soft
from batonpass.invariants import Transition, Violation, check_group, check_step
from batonpass.laws import LAWS

UNSURE_MS: Final = 60_000
"""Retention deletes task histories by the day of the coordinator's clock: those so soon after midnight may be gone."""

_changes_decoder: Final = msgspec.json.Decoder(tuple[Change, ...])
_generation_decoder: Final = msgspec.json.Decoder(Generation)

_Subject = tuple[str | None, str | None]
"""The task and the member that a finding is about."""


@dataclass(slots=True)
class _LoggedDecision:
    """A decision as the log has it: its records, its trace if that is kept, and its task history as shown.

    ``version`` is how many records the group held before. Without a trace, the records of several decisions may be
    taken for those of one.
    """

    version: int
    trace: Trace | None = None
    at_ms: int = 0
    records: list[Record] = field(default_factory=list)
    history: list[ChangeRow] = field(default_factory=list)

    @property
    def edges(self) -> tuple[int, int]:
        """The numbers of its first and last record."""
        return self.version + 1, self.version + len(self.records)

    def between(self, start: int, stop: int) -> "_LoggedDecision":
        """Return the part from one version to another, as a decision of its own."""
        records = self.records[start - self.version : stop - self.version]
        history = [one for one in self.history if start <= one.version < stop]
        return replace(self, version=start, records=records, history=history)


class _LoggedGeneration(NamedTuple):
    """A generation that follows from records, and its decision.

    Without a trace it is not known where a decision ends: the generation shown is right if it is one of ``rows``.
    """

    rows: Sequence[GenerationRow]
    decision: _LoggedDecision
    exactly: bool


class GroupReplay:
    """Goes through a group; rows come in the order of versions: at each a trace, a history, a generation, a record.

    Attributes:
        decisions: how many decisions of the day have a trace.
        replayed: how many of them were made again.
        differing: how many of them came out differently, and not only because an earlier one did.
        untraced: how many records of the day have no trace: their decisions were not made again.
        kept: what is wrong.
    """

    def __init__(self, plan: GroupPlan, *, begin_ms: int, code: str, has_histories: bool) -> None:
        """Begin with nothing. ``code``: that of this program. ``has_histories``: task histories of the day are kept."""
        self.decisions = self.replayed = self.differing = self.untraced = 0
        self.kept = Kept()
        self._plan = plan
        self._begin_ms = begin_ms
        self._code = code
        self._has_histories = has_histories
        # Where the log is read from its first record, the group is empty; else a snapshot comes first.
        is_whole = plan.known and not plan.base
        self._group: Group | None = Group(GroupId(plan.group)) if is_whole else None
        # The group if each decision had come out as it does now; None while that is the same as the group above.
        self._group_made_again: Group | None = None
        # The soft state that the last traced decision was made on; None where the chain of traces is broken.
        self._soft: Soft | None = None
        # What is still being read.
        self._decision: _LoggedDecision | None = _LoggedDecision(0) if is_whole else None
        self._at_ms = 0
        self._shown: dict[int, GenerationRow] = {}
        self._unread: set[int] = set()
        self._logged: list[_LoggedGeneration] = []
        self._has_lost_records = False
        # The number of the last record, once the day has ended.
        self._last: int | None = None
        self._policy: Policy | None = None
        # How many changes of the day, up to which record, have been read without any task history beside them.
        self._untold = 0
        self._untold_to = 0
        self._has_told = False

    def snapshot(self, version: int, form: int, payload: bytes, at_ms: int) -> None:
        """Begin with the group as it was, or hold what is stored of it against what its records come to."""
        try:
            stored = read_group(form, payload)
        except DAMAGE as error:
            if version == self._plan.base:
                self._find("replay-incomplete", f"the snapshot of version {version} cannot be read: {error}")
            else:
                self._find("unreadable-snapshot", _of_snapshot(version, str(error)), (), at_ms)
            return
        if (stored.id, stored.version) != (self._plan.group, version):
            detail = _of_snapshot(version, f"it holds {stored.id} at version {stored.version}")
            self._find("L2", detail, (version,), at_ms)
        elif version == self._plan.base:
            self._group = stored
            self._begin(None, 0)
        elif self._group is not None and self._version == version and is_current(form, zlib.decompress(payload)):
            records = self._decision.records if self._decision is not None else ()
            logged = evolve(self._group, records)
            if stored != logged:
                detail = _of_snapshot(version, in_words(stored, logged, "as stored", LOGGED))
                self._find("L2", detail, (version,), at_ms)

    def trace(self, version: int, form: int, payload: bytes, at_ms: int) -> None:
        """Take the trace of the decision that was made at a version."""
        self.decisions += version >= self._plan.first - 1
        if self._version is not None and self._version < version:
            self._lose_records(version, at_ms)
        try:
            trace = decode_trace(form, payload)
        except (UnreadableTrace, *DAMAGE) as error:
            self._finish()
            self._soft = None
            self._find(
                "replay-incomplete", f"the trace at version {version} cannot be read: {error}", (version + 1,), at_ms
            )
            self._begin(None, at_ms)
            return
        self._finish()
        if self._policy is None or trace.soft.from_empty:
            self._policy = trace.policy
        elif trace.policy != self._policy and version >= self._plan.first - 1:
            what = in_words(trace.policy, self._policy, "here", "in the traces before it")
            detail = f"the trace at version {version} is of another policy, under the same coordinator: {what}"
            self._find("L2", detail, (version + 1,), at_ms)
        if self._soft is None and not trace.soft.from_empty:
            self._begin(None, at_ms)
        elif self._group is None or self._group.version != version:
            # The chain of traces goes on even if the group is not known, or begins later.
            self._soft = soft_after(self._soft or Soft(), trace.soft)
            self._begin(None, at_ms)
        else:
            self._begin(trace, at_ms)

    def history(self, version: int, payload: bytes, at_ms: int) -> None:
        """Take the task history that readers are shown of the decision that was made at a version."""
        decision = self._decision_at(version, at_ms)
        self._tell_untold()
        try:
            changes = _changes_decoder.decode(payload)
        except DAMAGE as error:
            self._find("L2", f"the history at version {version} cannot be read: {error}", (version + 1,), at_ms)
        else:
            if decision is not None:
                decision.history += [ChangeRow(version, one) for one in changes]

    def generation(self, version: int, payload: bytes, at_ms: int) -> None:
        """Take a generation that readers are shown, of the decision that was made at a version."""
        self._decision_at(version, at_ms)
        try:
            generation = _generation_decoder.decode(payload)
        except DAMAGE as error:
            self._find("L2", f"a generation at version {version} cannot be read: {error}", (version + 1,), at_ms)
            self._unread.add(version)
        else:
            # Older programs named no trigger for what a probe had found.
            generation = generation._replace(triggers=generation.triggers or (PROBE,))
            self._shown[generation.number] = GenerationRow(version, generation)

    def record(self, seq: int, record: Record | None, at_ms: int) -> None:
        """Take the next record; None: it cannot be read."""
        self._at_ms = at_ms
        version = self._version
        if version is None or seq <= version:
            return
        if seq != version + 1 or record is None:
            self._lose_records(seq if seq == version + 1 else seq - 1, at_ms)
            return
        if seq == self._plan.first:
            self._decision_at(seq - 1, at_ms)
        if self._decision is not None:
            self._decision.at_ms = self._decision.at_ms or at_ms
            self._decision.records.append(record)

    def end(self) -> None:
        """Judge the last decision, the whole group as it is when the day ends, and the generations."""
        self._last = self._version
        self._finish()
        self._tell_untold()
        if self._group is not None and not self._has_lost_records and not self._plan.missing:
            try:
                self._find_broken(check_group(self._group), (self._group.version,), self._at_ms, f"{STILL}: ")
            except DAMAGE as error:
                self._find("replay-incomplete", f"the group as it is when the day ends cannot be judged: {error!r}")
        self._compare_generations()

    @property
    def is_lawful(self) -> bool:
        """Whether every decision of the day was made again, and nothing was found."""
        return bool(self.replayed) and not self.untraced and not self.kept.first()

    @property
    def _version(self) -> int | None:
        """How many records of the group have been taken; None where the group is not known."""
        if self._group is None:
            return None
        return self._group.version + (len(self._decision.records) if self._decision is not None else 0)

    def _begin(self, trace: Trace | None, at_ms: int) -> None:
        """Have the next record begin a decision."""
        if self._group is not None:
            self._decision = _LoggedDecision(self._group.version, trace, at_ms)

    def _decision_at(self, version: int, at_ms: int) -> _LoggedDecision | None:
        """Return the decision to which a row at a version belongs. Without a trace, a decision begins there."""
        decision = self._decision
        if decision is not None and decision.trace is None and self._version == version and decision.records:
            self._finish()
            self._begin(None, at_ms)
        return self._decision

    def _finish(self) -> None:
        """Judge the decision whose records have all been read."""
        decision, self._decision = self._decision, None
        if decision is None or self._group is None or not decision.records:
            return
        try:
            self._judge(decision, self._group)
        except DAMAGE as error:
            first = decision.version + 1
            self._give_up(f"from record {first} on nothing can be decided again: {error!r}", (first,), decision.at_ms)

    def _lose_records(self, version: int, at_ms: int) -> None:
        """Go no further: records up to a version are missing or cannot be read."""
        first = (self._version or 0) + 1
        which = f"record {first}" if first == version else f"records {first} to {version}"
        self._give_up(f"without {which} nothing that follows can be decided again", (), at_ms)

    def _give_up(self, detail: str, sequences: tuple[int, ...], at_ms: int) -> None:
        """Go no further: from here on the group is not known."""
        self._decision, self._group, self._group_made_again = None, None, None
        self._has_lost_records = True
        self._find("replay-incomplete", detail, sequences, at_ms)

    def _judge(self, logged: _LoggedDecision, before: Group) -> None:
        """Judge a decision, if it is of the day, and go on to the group after it."""
        trace, written = logged.trace, tuple(logged.records)
        if logged.version < self._plan.first - 1:
            if trace is not None:
                self._soft = soft_after(self._soft or Soft(), trace.soft)
            self._group = evolve(before, written)
            return
        reasons: Sequence[Reason] | None = None
        comes_out_otherwise = False
        if trace is not None:
            traced = self._soft or Soft()
            try:
                decision, self._soft = replay(before, traced, trace)
            except DAMAGE as error:
                detail = f"the trace at version {logged.version} cannot be decided on again: {error!r}"
                self._find("replay-incomplete", detail, logged.edges, logged.at_ms)
                self._soft = None
                self._judge(replace(logged, trace=None), before)
                return
            made = decision.records
            if made == written:
                reasons = decision.reasons
                self.replayed += 1
                self._hold_to_laws(logged, trace, before, decision)
            elif self._is_last(logged) and made[: len(written)] == written:
                self._group = evolve(before, written)
                self._lost_end(f"its last decision made {len(made)} records, {len(written)} of them are there", logged)
                return
            elif made and written[: len(made)] == made:
                self._soft = traced
                self._judge_apart(logged, before, len(made))
                return
            else:
                comes_out_otherwise = True
                self.replayed += 1
                self._judge_otherwise(logged, trace, before, traced, decision)
        else:
            self.untraced += len(written)
        after = evolve(before, written)
        if self._group_made_again is not None and not comes_out_otherwise:
            self._group_made_again = evolve(self._group_made_again, written)
        self._group = after
        self._compare_rows(logged, before, after, reasons)

    def _is_last(self, logged: _LoggedDecision) -> bool:
        """Whether the day ends with a decision."""
        return logged.edges[1] == self._last

    def _hold_to_laws(self, logged: _LoggedDecision, trace: Trace, before: Group, decision: Decision) -> None:
        soft = self._soft or Soft()
        step = Transition(before, decision.after, decision.records, soft, decision.soft, trace.now_ms, trace.inputs)
        self._find_broken(check_step(step), logged.edges, logged.at_ms)

    def _judge_otherwise(
        self, logged: _LoggedDecision, trace: Trace, before: Group, traced: Soft, decision: Decision
    ) -> None:
        """Judge a decision that comes out differently: wrong, unless that follows from an earlier one that did."""
        written = tuple(logged.records)
        if self._group_made_again is not None:
            again, _ = replay(replace(self._group_made_again, version=before.version), traced, trace)
            if again.records == written:
                self._group_made_again = again.after
                return
        self._group_made_again = decision.after
        self.differing += 1
        is_same_code = trace.code == self._code
        kinds = ", ".join(dict.fromkeys(type(one).__name__ for one in trace.inputs))
        whose = "the same code" if is_same_code else f"by {trace.code}; this is {self._code}"
        how, places = records_in_words(written, decision.records)
        sequences = tuple(logged.version + 1 + place for place in places) or logged.edges
        detail = f"{kinds} at version {logged.version} is decided differently: {how} ({whose})"
        self._find("L10", detail, sequences, logged.at_ms, is_fatal=is_same_code)

    def _judge_apart(self, logged: _LoggedDecision, before: Group, made: int) -> None:
        """Judge the ``made`` records of a traced decision, then the records behind them, which have no trace."""
        version, end = logged.version + made, logged.version + len(logged.records)
        self._judge(logged.between(logged.version, version), before)
        # The soft state of the next trace is not known without the one that is missing.
        self._soft = None
        which = f"record {end}" if end == version + 1 else f"records {version + 1} to {end}"
        detail = f"there is no trace of the decision that made {which}; what follows cannot be decided again"
        self._find("L10", detail, (version + 1, end), logged.at_ms)
        versions = {one.version for one in logged.history} | {one.version for one in self._shown.values()}
        edges = [version, *sorted(one for one in versions if version < one < end), end]
        for start, stop in pairwise(edges):
            self._judge(replace(logged.between(start, stop), trace=None), self._group or before)

    def _compare_rows(
        self, logged: _LoggedDecision, before: Group, after: Group, reasons: Sequence[Reason] | None
    ) -> None:
        """Compare the rows that readers are shown of a decision with what follows from it.

        ``reasons`` are those of the decision that was made again, to the same records; None where it was not.
        """
        # Another version of the program may word the same differently.
        exactly = reasons is not None and logged.trace is not None and logged.trace.code == self._code
        now_ms = logged.trace.now_ms if logged.trace is not None and exactly else 0
        records = tuple(logged.records)
        if self._has_histories and not self._has_told:
            if self._at_ms >= self._begin_ms + UNSURE_MS:
                self._untold += len(changes_of(before, records, after, {}, now_ms))
                self._untold_to = after.version
        elif self._has_histories and (logged.history or logged.at_ms >= self._begin_ms + UNSURE_MS):
            changes = changes_of(before, records, after, why_of(reasons or ()), now_ms)
            rows = [ChangeRow(logged.version, one) for one in changes]
            wrong = list(wrong_history(logged.history, rows, exactly=exactly))
            if wrong and self._is_last(logged) and self._is_without_its_end(logged, rows):
                beyond = len(logged.history) - len(rows)
                self._lost_end(f"histories have {beyond} more changes of its last decision", logged)
                return
            for one in wrong:
                self._find("L2", one.detail, logged.edges, logged.at_ms, subject=(one.task, one.member))
        made = _possible_generations(before, records, after, reasons, now_ms)
        if made:
            possible = [GenerationRow(logged.version, one) for one in made]
            self._logged.append(_LoggedGeneration(possible, logged, exactly))

    def _is_without_its_end(self, logged: _LoggedDecision, rows: Sequence[ChangeRow]) -> bool:
        """Return whether the task history of the log's last decision begins as logged, and then goes on."""
        if logged.trace is not None or not self._ends_as_counted or len(logged.history) <= len(rows):
            return False
        return not list(wrong_history(logged.history[: len(rows)], rows, exactly=False))

    def _tell_untold(self) -> None:
        """Say that there was no task history so far, where the records have changes."""
        if self._untold and not self._has_told:
            last = self._untold_to
            detail = f"there are no task histories of the day up to record {last}; the log has {self._untold} changes"
            self._find("L2", detail, (last,), self._at_ms)
        self._has_told = True

    def _compare_generations(self) -> None:
        """Compare the generations of the day with those that follow from its records."""
        for rows, logged, exactly in self._logged:
            shown = self._shown.pop(rows[0].generation.number, None)
            if shown is None and logged.version in self._unread:
                continue
            wrong = [wrong_generation(shown, row, exactly=exactly) for row in rows]
            if None not in wrong and wrong[0] is not None:
                self._find("L2", wrong[0], logged.edges, logged.at_ms)
        if not self._has_lost_records and self._group is not None:
            for number, shown in sorted(self._shown.items()):
                self._find("L2", f"generation {number} is stored, but not in the log", (), shown.generation.at_ms)

    @property
    def _ends_as_counted(self) -> bool:
        """Whether the log ends with the day, with as many records as its head counts."""
        return self._plan.ends and not self._plan.missing

    def _lost_end(self, why: str, logged: _LoggedDecision) -> None:
        self._has_lost_records = True
        if self._ends_as_counted:
            self._find("L2", END_MISSING + why, logged.edges, logged.at_ms)

    def _find(
        self,
        law: str,
        detail: str,
        sequences: Iterable[int] = (),
        at_ms: int = 0,
        *,
        subject: _Subject = (None, None),
        is_fatal: bool = True,
    ) -> None:
        severity = Severity.FATAL if law in LAWS and is_fatal else Severity.NOTICE
        evidence = tuple(dict.fromkeys(sequences)), (at_ms,) if at_ms else ()
        self.kept.add(Finding(self._plan.group, law, severity, *subject, detail, *evidence))

    def _find_broken(self, broken: Iterable[Violation], sequences: Iterable[int], at_ms: int, when: str = "") -> None:
        for one in broken:
            self._find(one.law, when + one.detail, sequences, at_ms, subject=(one.task, one.member))


def _of_snapshot(version: int, detail: str) -> str:
    return f"the snapshot of version {version}, from which a coordinator would start: {detail}"


def _possible_generations(
    before: Group, records: Sequence[Record], after: Group, reasons: Sequence[Reason] | None, now_ms: int
) -> list[Generation]:
    """Return the generation that records began, if any. Without ``reasons``, also as fewer of the records make it."""
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
