"""Soft state: what members and Kafka last told us. It may be lost; it is then reported again.

What each absence means, and which way is safe:

* no ``MemberSoft``: nothing heard since this coordinator started. Its actives count as running and its copies as
  unknown, so that nothing healthy is moved; its lease is not judged before ``Soft.judge_from_ms``.
* no ``MeasuredReport`` of a task: the same, for that task alone.
* no end offset: the lag of a copy that reports positions only is unknown.
* no begin offset: the changelog is taken to begin at 0, so that a restore counts as dearer than it may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from batonpass.core.ids import MemberId, TaskId
from batonpass.core.model import ActiveState
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
    final_position: Positions = ()
    token: int | None = None
    disk_bytes: int | None = None


class MeasuredReport(NamedTuple):
    """The last report of one copy, with what follows from the ones before it.

    ``at_ms`` is when it was last looked into: a report that repeats the last one is not (``reports``). ``lag`` is in
    records, None when unknown. ``other_incarnation`` says that the positions cannot belong to the present changelog.
    ``progress_ms`` is when the copy last came closer; ``rate`` how many records a second it comes closer, net of what
    is being appended to the changelog, None until two reports tell.
    """

    report: TaskReport
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
    """

    heard_ms: int
    seq: int = -1
    echoed: int = 0
    full: bool = False
    timeouts: tuple[tuple[int, int], ...] = ()
    reports: Mapping[TaskId, MeasuredReport] = field(default_factory=dict)
    poll_broken_ms: int | None = None

    @property
    def disk_bytes(self) -> int | None:
        """Return what its state on disk takes, of all its tasks; None where it reports nothing of that."""
        said = [one.report.disk_bytes for one in self.reports.values() if one.report.disk_bytes is not None]
        return sum(said) if said else None


class EndOffset(NamedTuple):
    """The end of one changelog partition as the coordinator read it, and when the read was begun."""

    offset: int
    read_ms: int
    shrunk: bool = False


@dataclass(frozen=True, slots=True)
class Soft:
    """Everything soft of one group. ``wake_ms`` is no later than the first instant at which something is due.

    ``target_is_provisional`` says that the present target respects what lasts only for a while, so that another may be
    better once the group would rest; after a start nobody knows, and it is taken to be so. ``left_before_joining`` are
    the ids that left before they joined, and when: their joins were overtaken and are still to come. ``other_assignor``
    is who decides in place of this group's own decisions, at the last rebalance of a Kafka Streams application.
    """

    started_ms: int = 0
    judge_from_ms: int = 0
    members: PMap[MemberId, MemberSoft] = field(default_factory=PMap)
    end_offsets: PMap[tuple[str, int], EndOffset] = field(default_factory=PMap)
    begin_offsets: PMap[tuple[str, int], int] = field(default_factory=PMap)
    wake_ms: int | None = None
    target_is_provisional: bool = True
    left_before_joining: PMap[MemberId, int] = field(default_factory=PMap)
    other_assignor: str = ""
