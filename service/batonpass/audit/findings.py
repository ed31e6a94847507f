"""What an audit comes to: findings with their evidence, measures of each group, and bounded samples for pictures.

All of it is small: it grows with groups and with what is wrong, never with the events of the day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Final, NamedTuple

GROUP: Final = "group_id"
"""The column of a group's name, in every frame and file of the audit."""

FINDINGS_PER_LAW: Final = 50
"""How many findings of one law are kept for a group; the others are counted."""

INTERVALS_PER_GROUP: Final = 2000
POINTS_PER_PICTURE: Final = 2000


class Severity(StrEnum):
    """``FATAL``: a law was broken. ``NOTICE``: lawful, but worth a look."""

    FATAL = "fatal"
    NOTICE = "notice"


class DowntimeCause(StrEnum):
    """Why a task was run by nobody for a while."""

    WARM_HANDOVER = "warm-handover"
    FAILOVER = "failover"
    COLD_START = "cold-start"
    RESTART = "restart"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong or worth a look, with what proves it.

    Attributes:
        law: "L1" to "L10", or the name of a measure ("stuck-warmup", "flapping-member", ...).
        detail: one sentence in the field's words, with times.
        sequences: the sequence numbers of the records that prove it.
        at: when these were written, in milliseconds since 1970.
    """

    group: str
    law: str
    severity: Severity
    task: str | None
    member: str | None
    detail: str
    sequences: tuple[int, ...] = ()
    at: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupDay:
    """What a group's day came to.

    Attributes:
        measures: flat, by name; None where nothing is known (docs/audit.md lists them).
        downtime_by_cause: for each cause that occurred: count, p50_ms, p99_ms, max_ms, total_ms.
    """

    group: str
    measures: Mapping[str, float | int | None]
    downtime_by_cause: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a day costs under some settings. ``settings`` are by Kafka's names, as a group's config has them.

    ``waiting_ms`` is how long tasks ran elsewhere than where they belong, summed over all; None where nobody counted.
    """

    settings: Mapping[str, int | float | str | bool | None]
    downtime_ms: float
    moves: int
    bytes: int | None
    waiting_ms: float | None = None


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


class OwnershipInterval(NamedTuple):
    """A stretch in which a member had a task. ``to_ms`` of None: it still had it when the day ended.

    ``state`` is what it did then: "granted", "restoring", "running", "failed", "lost", or "" when it is not known.
    """

    group: str
    task: str
    member: str
    from_ms: int
    to_ms: int | None
    state: str


class WarmupPoint(NamedTuple):
    """One warmup: how long it took, and what it had to restore (None: unknown). ``outcome``: promoted or dropped."""

    group: str
    task: str
    member: str
    from_ms: int
    duration_ms: int
    lag: int | None
    outcome: str


class GenerationPoint(NamedTuple):
    """One committed target assignment: the moves it asked for, and the fewest that would have done."""

    group: str
    number: int
    at_ms: int
    moves: int
    lower_bound: int


@dataclass(frozen=True, slots=True)
class Pictures:
    """Bounded samples for plots.

    Attributes:
        worst_hour_ms: by group: when the hour with the most fatal findings began; without any, with the most downtime.
        ownership: the intervals that touch a group's worst hour, at most ``INTERVALS_PER_GROUP`` for each group.
        warmups: at most ``POINTS_PER_PICTURE`` of all groups.
        generations: at most ``POINTS_PER_PICTURE`` of all groups.
        names: by group and member: what people call it, of those in these samples and in findings; see ``names_of``.
    """

    worst_hour_ms: Mapping[str, int] = field(default_factory=dict)
    ownership: tuple[OwnershipInterval, ...] = ()
    warmups: tuple[WarmupPoint, ...] = ()
    generations: tuple[GenerationPoint, ...] = ()
    names: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Everything that one audit of one day has found.

    ``so_far_ms`` is until when records were read (milliseconds since 1970) where the day was under way, else None.
    ``findings`` are cut at ``FINDINGS_PER_LAW`` for each group and law; ``findings_left_out`` counts the others.
    """

    day: date
    started_at_ms: int
    finished_at_ms: int
    code_version: str
    groups: tuple[GroupDay, ...] = ()
    findings: tuple[Finding, ...] = ()
    findings_left_out: int = 0
    records: int = 0
    decisions_replayed: int = 0
    decisions_differing: int = 0
    recommendations: tuple[Recommendation, ...] = ()
    pictures: Pictures = field(default_factory=Pictures)
    log_lines: tuple[str, ...] = ()
    so_far_ms: int | None = None

    @property
    def fatal(self) -> int:
        """How many of the kept findings are fatal."""
        return sum(1 for one in self.findings if one.severity is Severity.FATAL)

    @property
    def notices(self) -> int:
        """How many of the kept findings are notices."""
        return len(self.findings) - self.fatal
