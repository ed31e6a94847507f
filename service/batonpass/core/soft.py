"""Soft state: what members and Kafka last told us. It may be lost; it is then reported again.

What each absence means, and which way is safe:

* no ``MemberSoft``: nothing heard since this coordinator started. Its actives count as running and its copies as
  unknown, so that nothing healthy is moved; its lease is not judged before ``Soft.judge_from_ms``.
* no ``Report`` of a task: the same, for that task alone.
* no end offset: the lag of a copy that reports positions only is unknown.
* no begin offset: the changelog is taken to begin at 0, so that a restore counts as dearer than it may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from batonpass.core.ids import MemberId, TaskId
from batonpass.core.model import ActiveState, Member
from batonpass.core.pmap import PMap

Positions = tuple[tuple[str, int], ...]
"""Offsets per changelog topic, sorted by topic; the topic is ``""`` where the member named none."""


class TaskReport(NamedTuple):
    """What one heartbeat or join says of one task. ``role`` is ``active``, ``standby``, ``warmup`` or ``none``."""

    role: str
    state: ActiveState | None = None
    lag: int | None = None
    positions: Positions = ()
    end_offsets: Positions = ()
    lost: bool = False
    input_lag: int | None = None
    detail: str = ""
    final: Positions = ()
    token: int | None = None


class Report(NamedTuple):
    """The last report of one copy, with what follows from the ones before it.

    ``at_ms`` is when it was last looked into: words that repeat the last ones of a steady member are not. ``lag`` is in
    records, None when unknown. ``other_incarnation`` says that the positions cannot belong to the present changelog.
    ``progress_ms`` is when the copy last came closer; ``rate`` how many records a second it comes closer, net of what
    is being appended to the changelog, None until two reports tell.
    """

    said: TaskReport
    at_ms: int
    lag: int | None = None
    other_incarnation: bool = False
    progress_ms: int = 0
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class MemberSoft:
    """What is known of one member since this coordinator started.

    ``timeouts`` are the session timeouts answered, with the member epoch of the answer: the lease counts by the largest
    since the epoch that the member last echoed. ``full`` says that a full report has been received.

    Three notes spare the next decision a pass over all reports; without them it looks. ``tails_all``: no report is of
    state on disk that nobody tails. ``level_at``: every copy was found caught up, by these reports, when the member was
    at this epoch and the group at this revision. ``steady_at``: the same words again would say nothing (``steady``).
    ``said`` is the very mapping that the last report came in, to tell quickly that it has come again; no part of the
    value.
    """

    heard_ms: int
    seq: int = -1
    echoed: int = 0
    full: bool = False
    timeouts: tuple[tuple[int, int], ...] = ()
    reports: Mapping[TaskId, Report] = field(default_factory=dict)
    poll_broken_ms: int | None = None
    tails_all: bool = False
    level_at: tuple[int, int] | None = None
    steady_at: tuple[int, int] | None = None
    said: Mapping[TaskId, TaskReport] | None = field(default=None, compare=False, repr=False)


def _is_doubtful(heard: MemberSoft) -> bool:
    """Say whether it is not noted that the member is caught up on every copy."""
    return heard.level_at is None


def heard_of_nobody() -> PMap[MemberId, MemberSoft]:
    """Return what is known of members when nobody has spoken yet."""
    return PMap(mark=_is_doubtful)


class Rest(NamedTuple):
    """The last look whether the group rests: at which members and revision, and of whom it was not certain then."""

    members: PMap[MemberId, Member]
    revision: int
    doubtful: tuple[MemberId, ...]


class EndOffset(NamedTuple):
    """The end of one changelog partition as the coordinator read it, and when the read was begun."""

    offset: int
    read_ms: int
    shrunk: bool = False


@dataclass(frozen=True, slots=True)
class Soft:
    """Everything soft of one group. ``wake_ms`` is no later than the first instant at which something is due.

    ``bound_target`` says that the present target respects what lasts only for a while, so that another may be better
    once the group would rest; after a start nobody knows, and it is taken to be so. ``rest`` spares the next look
    whether the group rests a pass over all members; it says nothing that they do not, and is no part of the value.
    ``goodbyes`` are the ids that left before they joined, and when: their joins were overtaken and are still to come.
    ``agenda`` spares the next step a look at the open tasks of which there is no news; no part of the value either, and
    read by nobody but the step (``agenda``).
    """

    started_ms: int = 0
    judge_from_ms: int = 0
    members: PMap[MemberId, MemberSoft] = field(default_factory=heard_of_nobody)
    end_offsets: PMap[tuple[str, int], EndOffset] = field(default_factory=PMap)
    begin_offsets: PMap[tuple[str, int], int] = field(default_factory=PMap)
    wake_ms: int | None = None
    bound_target: bool = True
    rest: Rest | None = field(default=None, compare=False, repr=False)
    goodbyes: PMap[MemberId, int] = field(default_factory=PMap)
    agenda: object = field(default=None, compare=False, repr=False)
