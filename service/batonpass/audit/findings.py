"""Results of an audit: findings with their evidence, measures of each group, samples for pictures, a verdict.

All of it is small: it grows with groups and with what is wrong, never with the events of the day.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Final

from batonpass.audit.rows import Generation, Interval, Of, Warmup
from batonpass.audit_words import amount, times_of
from batonpass.laws import MEANINGS, NOTICES, TITLES, meaning_of, require_known

FINDINGS_PER_LAW: Final = 50
"""How many findings of one law are kept for a group; the others are counted."""

INTERVALS_PER_GROUP: Final = 1000
POINTS_PER_PICTURE: Final = 2000


class Severity(StrEnum):
    """``FATAL``: a law was broken. ``NOTICE``: lawful, but worth a look."""

    FATAL = "fatal"
    NOTICE = "notice"


class DowntimeCause(StrEnum):
    """Why no member ran a task for a while."""

    WARM_HANDOVER = "warm-handover"
    FAILOVER = "failover"
    COLD_START = "cold-start"
    RESTART = "restart"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong or worth a look, with what proves it.

    Attributes:
        law: "L1" to "L10", or the name of a notice ("stuck-warmup", "flapping-member", ...): one that ``laws`` has.
        detail: one sentence in the field's words, with times.
        sequences: the sequence numbers of the records that prove it.
        at: when these were written, in milliseconds since 1970; behind them the end of what a grant began, if known.
        others: who had the task before ``member`` was granted it: its older owners, or who was told to stop for it.
    """

    group: str
    law: str
    severity: Severity
    task: str | None
    member: str | None
    detail: str
    sequences: tuple[int, ...] = ()
    at: tuple[int, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def times(self) -> Sequence[int]:
        """When it was so."""
        return times_of(self.severity, self.sequences, self.at)

    @property
    def is_urgent(self) -> bool:
        """Whether two members may still run a task: before all else one of them has to stop."""
        return self.law == "L1" and self.detail.endswith(f", still so {STILL}")

    @property
    def is_over(self) -> bool:
        """Whether the log has its end, whatever else is missing there."""
        return 0 < len(self.sequences) < len(self.at)

    def __post_init__(self) -> None:
        """Refuse a finding whose law or notice ``laws`` does not explain."""
        require_known(self.law)


@dataclass(frozen=True, slots=True)
class GroupDay:
    """Results of a group's day.

    Attributes:
        measures: flat, by name; None where nothing is known (docs/audit.md lists them).
        downtime_by_cause: for each cause that occurred: count, p50_ms, p99_ms, max_ms, total_ms.
    """

    group: str
    measures: Mapping[str, float | int | None]
    downtime_by_cause: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def unknown(self) -> "GroupDay":
        """Return it as that of a group that was not read whole: nothing is known but how many records were read."""
        return GroupDay(self.group, {**dict.fromkeys(self.measures), "records": self.measures["records"]})


Value = int | float | str | bool | None
"""The value of a setting."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a day costs under some settings. ``settings`` are by Kafka's names, as a group's config has them.

    ``waiting_ms`` is how long tasks ran on a member other than their target, summed over all; ``silence_ms`` is the
    part of the downtime that was spent waiting for the sessions of dead members to end. ``missed`` steps of the day
    could not be taken. ``imbalance`` is by how much the hottest member was above the average by measured load, on
    average; None where the day has no samples of load.
    """

    settings: Mapping[str, Value]
    downtime_ms: int
    moves: int
    bytes: int
    waiting_ms: int = 0
    silence_ms: int = 0
    missed: int = 0
    imbalance: float | None = None


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to set for a group, what is expected of it, and how sure that is.

    Attributes:
        present: the settings that the day had, and what they cost when the day is simulated.
        recommended: the best of the grid; the present ones where nothing is better.
        confidence: a sentence or two for a person.
        grid: every outcome that was tried, for the frontier plot.
    """

    group: str
    present: Outcome
    recommended: Outcome
    confidence: str
    grid: tuple[Outcome, ...] = ()


@dataclass(frozen=True, slots=True)
class Pictures:
    """Bounded samples for plots.

    Attributes:
        worst_hour_ms: by group: when the hour with the most fatal findings began; without any, with the most downtime.
        ownership: the intervals that touch a group's worst hour, at most ``INTERVALS_PER_GROUP`` for each group.
        warmups: at most ``POINTS_PER_PICTURE`` of all groups.
        generations: at most ``POINTS_PER_PICTURE`` of all groups.
    """

    worst_hour_ms: Mapping[str, int] = field(default_factory=dict)
    ownership: tuple[Of[Interval], ...] = ()
    warmups: tuple[Of[Warmup], ...] = ()
    generations: tuple[Of[Generation], ...] = ()


UNREAD: Final = frozenset({"replay-incomplete", "unknown-beginning", "unreadable-snapshot"})
"""The findings of a group whose day was not read whole."""


@dataclass(frozen=True, slots=True)
class Before:
    """What audits of earlier days said.

    Attributes:
        known: the group and law or notice of each finding of the day before; None: that day has no verdict.
        availability: by day, at most thirty of them: of the least available group.
    """

    known: frozenset[tuple[str, str]] | None = None
    availability: Mapping[date, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Everything that one audit of one day has found.

    ``so_far_ms`` is until when records were read (milliseconds since 1970) where the day was under way, else None.
    ``decisions`` counts those of the day that have a trace: those behind what cannot be read are not replayed.
    ``findings`` are cut at ``FINDINGS_PER_LAW`` for each group and law; ``left_out`` counts the others, by law.
    ``names`` has what people call the members that findings name, by group and id, where their ids were drawn.
    """

    day: date
    started_at_ms: int
    finished_at_ms: int
    code_version: str
    groups: tuple[GroupDay, ...] = ()
    findings: tuple[Finding, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    records: int = 0
    decisions: int = 0
    decisions_replayed: int = 0
    decisions_differing: int = 0
    records_untraced: int = 0
    recommendations: tuple[Recommendation, ...] = ()
    pictures: Pictures = field(default_factory=Pictures)
    log_lines: tuple[str, ...] = ()
    so_far_ms: int | None = None
    before: Before = field(default_factory=Before)
    names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def replayed(self) -> str:
        """How many decisions were made again, and of how many, if not all were."""
        if self.decisions <= self.decisions_replayed:
            return amount(self.decisions_replayed, "decision")
        return f"{self.decisions_replayed:,} of {amount(self.decisions, 'decision')}"

    @property
    def findings_left_out(self) -> int:
        """How many findings were counted but not kept."""
        return sum(self.left_out.values())

    @property
    def unread(self) -> frozenset[str]:
        """The groups whose day was not read whole: their measures say too little."""
        return frozenset(one.group for one in self.findings if one.law in UNREAD)

    @property
    def fatal(self) -> int:
        """How many of the kept findings are fatal."""
        return sum(1 for one in self.findings if one.severity is Severity.FATAL)

    @property
    def notices(self) -> int:
        """How many of the kept findings are notices."""
        return len(self.findings) - self.fatal


STILL: Final = "at the end of what was read"
"""What the sentence of a finding has in it that was still so then."""

END_MISSING: Final = "the end of the log is missing: "
"""How each finding begins that reports this."""

STUCK: Final = frozenset({"stuck-task", "stuck-warmup"})
"""The findings about something that did not end."""


def without_consequences(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings without the consequences of a missing end of a group's log, which is reported once."""
    first: dict[str, Finding] = {}
    for one in findings:
        if one.detail.startswith(END_MISSING):
            first.setdefault(one.group, one)
    return [
        one
        for one in findings
        if one.group not in first
        or (one is first[one.group] if one.detail.startswith(END_MISSING) else one.law not in STUCK)
    ]


RANK: Final = {name: rank for rank, name in enumerate(dict.fromkeys((*MEANINGS, *NOTICES)))}
"""The order in which to work on what was found."""


def ordered(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings in the order in which they are listed: fatal ones first, the worst law first, then by group."""
    return sorted(
        findings,
        key=lambda one: (
            one.severity is not Severity.FATAL,
            not one.is_urgent,
            RANK[one.law],
            one.group,
            one.at[:1],
            one.task or "",
            one.detail,
        ),
    )


class Kept:
    """The first findings of each law in one group, fatal ones first and then in the order of the log.

    ``left_out`` says how many more there are, by law.
    """

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self._findings: defaultdict[str, list[Finding]] = defaultdict(list)

    def add(self, *found: Finding) -> None:
        for one in found:
            of_law = self._findings[one.law]
            of_law.append(one)
            if len(of_law) >= 10 * FINDINGS_PER_LAW:
                self._cut(one.law)

    def first(self) -> list[Finding]:
        """Return what is kept."""
        for law in self._findings:
            self._cut(law)
        return [one for _, of_law in sorted(self._findings.items()) for one in of_law]

    def _cut(self, law: str) -> None:
        of_law = self._findings[law]
        of_law.sort(key=_place_of)
        self.left_out[law] += len(of_law[FINDINGS_PER_LAW:])
        del of_law[FINDINGS_PER_LAW:]


def _place_of(one: Finding) -> tuple[object, ...]:
    return (one.severity.value, tuple(one.times[:1]), one.task or "", one.member or "", one.detail)


def kept_of(findings: Iterable[Finding]) -> tuple[tuple[Finding, ...], Counter[str]]:
    """Return the first findings of each group and law, and by law how many were left out."""
    of_group: defaultdict[str, Kept] = defaultdict(Kept)
    for one in findings:
        of_group[one.group].add(one)
    found = tuple(one for _, kept in sorted(of_group.items()) for one in kept.first())
    return found, sum((kept.left_out for kept in of_group.values()), Counter())


def named(result: AuditResult) -> str:
    """Return the day of an audit: "2026-11-20", of one under way "2026-11-20 so far, until 18:07 UTC"."""
    if result.so_far_ms is None:
        return result.day.isoformat()
    return f"{result.day} so far, until {datetime.fromtimestamp(result.so_far_ms / 1_000, UTC):%H:%M} UTC"


def headline(result: AuditResult) -> str:
    """Return the verdict in a sentence: whether every law held, and if not, the worst that happened, and where."""
    so_far = "" if result.so_far_ms is None else " so far"
    if not result.fatal:
        return f"Every law held{so_far}." if result.groups else f"Nothing happened{so_far or ' that day'}."
    fatal = [one for one in ordered(result.findings) if one.severity is Severity.FATAL]
    where = {one.group for one in fatal}
    of_all = f" of {len(result.groups):,}" if len(result.groups) > len(where) else ""
    worst, *laws = dict.fromkeys(one.law for one in fatal)
    # Of a law that has more than one meaning the worst has the law's own title.
    titles = {meaning_of(worst, one.detail).title for one in fatal if one.law == worst}
    title = TITLES[worst] if TITLES[worst] in titles else titles.pop()
    more = f"; {amount(len(laws), 'more law')} broken ({', '.join(laws)})" if laws else ""
    return f"{title[0].upper()}{title[1:]} ({worst}){more}{so_far}, in {amount(len(where), 'group')}{of_all}."


def summary(result: AuditResult) -> str:
    """Return the verdict with its figures, as one line of plain text."""
    counts = [amount(len(result.groups), "group"), amount(result.records, "record")]
    counts += [amount(result.fatal, "fatal finding"), amount(result.notices, "notice")]
    parts = [headline(result), ", ".join(counts).capitalize() + "."]
    if result.findings_left_out:
        parts.append(f"{amount(result.findings_left_out, 'more finding')} counted but not kept.")
    if result.decisions_replayed:
        parts.append(f"{result.replayed} made again, {result.decisions_differing:,} of them with another outcome.")
    parts += untraced(result)
    return " ".join(parts)


def untraced(result: AuditResult) -> list[str]:
    """Return a sentence on the records without a trace, which the replay could not judge, if there are any."""
    if not result.records_untraced:
        return []
    made = f"{amount(result.records_untraced, 'record')} could not be checked by making their decisions again"
    return [f"{made}: what these were decided from was not stored."]


def time_of(ms: int) -> str:
    """Return an instant as a sentence has it."""
    try:
        return f"{datetime.fromtimestamp(ms // 1_000, UTC):%Y-%m-%d %H:%M:%S}.{ms % 1_000:03}"
    except (OverflowError, ValueError):
        return "an unknown time"


GIVEN_ID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
"""An id that a coordinator, or the SDK, drew for a member; one that a person chose is readable as it is."""


def readable(result: AuditResult) -> AuditResult:
    """Return the same with names in place of ids, where ``result.names`` has one, and without the date of the day.

    Two members of a group never have the same name, so that two owners of a task are still seen as two.
    """

    def shown(one: Finding) -> Finding:
        names = result.names.get(one.group, {})
        detail = GIVEN_ID.sub(lambda found: names.get(found[0], found[0]), one.detail)
        detail = re.sub(rf"{result.day} (?=\d\d:)", "", detail)
        return replace(one, member=names.get(one.member or "", one.member), detail=detail)

    return replace(result, findings=tuple(map(shown, result.findings)))
