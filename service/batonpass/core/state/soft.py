"""Soft state: the latest reports of members and of Kafka. It may be lost; it is then reported again.

Where something is absent, the core assumes what is safe:

* No ``MemberSoft``: the member has sent nothing since this coordinator started. Its actives count as running and its
  copies as unknown, so that nothing healthy moves. Its lease is not judged before ``Soft.judge_from_ms``.
* No ``MeasuredReport`` of a task: the same, for this task alone.
* No end offset: the lag of a copy that reports only positions is unknown.
* No begin offset: the changelog is assumed to begin at 0. A restore may then look longer than it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.loads import SmoothedLoad
from batonpass.core.state.model import ActiveState
from batonpass.core.state.numbers import bounded_sum
from batonpass.core.state.pmap import PMap

Positions = tuple[tuple[str, int], ...]
"""Offsets per changelog topic, sorted by topic. The topic is ``""`` where the member named none."""

Log = tuple[str, int]
"""A changelog of a task: its topic, and the partition."""


class TaskReport(NamedTuple):
    """What a heartbeat or join reports of one task. ``role`` is ``active``, ``standby``, ``warmup`` or ``none``."""

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
    load: float | None = None


class MeasuredReport(NamedTuple):
    """The last report of one copy, with what is derived from it and from earlier reports.

    Attributes:
        at_ms: when the report was last examined. One that repeats the last is not always examined (``reports``).
        lag: in records; None if unknown.
        other_incarnation: the positions cannot belong to the present changelog, or are doubted (``doubts``).
        progress_ms: when the copy last read on.
        rate: by how many records a second the lag shrinks. None until there are two reports to compare.
        least_lag: the least lag since the copy has its role; None if no lag was known.
        closer_ms: when the lag was last smaller than ever before in this role; without a lag, when the role began.
        began_ms: when the copy began anew: its position fell, its state was lost, or it was not there before. 0 if that
            was before the coordinator started, or the member joined.
    """

    report: TaskReport
    at_ms: int
    lag: int | None = None
    other_incarnation: bool = False
    progress_ms: int = 0
    rate: float | None = None
    least_lag: int | None = None
    closer_ms: int = 0
    began_ms: int = 0


@dataclass(frozen=True, slots=True)
class MemberSoft:
    """What the coordinator has learnt of one member since it started.

    ``timeouts`` has the session timeouts sent in answers, each with the member epoch of its answer. The lease counts by
    the largest of them since the epoch that the member last echoed. ``full`` is true once a full report has arrived.
    ``rhythm_ms`` is the time between its heartbeats: that of the last two, or half of what it was if that is more.
    ``unassigned`` is how much ``reports`` says of tasks that it does not have (``report_bounds``). ``loads`` has the
    load of the actives that it runs, where its last list says one and ``balance_by`` is not ``declared``. ``numbers``
    has by name what it last said of itself, beside its tasks.
    """

    heard_ms: int
    seq: int = -1
    echoed: int = 0
    full: bool = False
    timeouts: tuple[tuple[int, int], ...] = ()
    reports: Mapping[TaskId, MeasuredReport] = field(default_factory=dict)
    poll_broken_ms: int | None = None
    rhythm_ms: int = 0
    unassigned: int = 0
    loads: Mapping[TaskId, SmoothedLoad] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    def heard(self, at_ms: int) -> "MemberSoft":
        """Return this, once the member was heard again: that renews its lease, and says nothing else."""
        return replace(self, heard_ms=at_ms, poll_broken_ms=None)

    @property
    def disk_bytes(self) -> int | None:
        """The size of the member's state on disk, over all tasks. None if the member reports no sizes."""
        reported = [
            measured.report.disk_bytes for measured in self.reports.values() if measured.report.disk_bytes is not None
        ]
        return bounded_sum(reported) if reported else None


_NOTHING: Final = MemberSoft(0)

OPEN_TRANSACTION_MS: Final = 5_000
"""A transaction that has been open in a changelog for so long holds its readers up.

An owner's own transaction is open for the milliseconds of a commit: the worker SDK writes all its records at its end,
and a crashed owner's is ended by the next owner, or by the broker. So one of several seconds is somebody else's, or its
owner is in trouble. It may stay open until its own timeout, or until an operator ends it (KIP-664).
"""


class EndOffset(NamedTuple):
    """The end of one changelog partition as the coordinator read it, and when that read began.

    Attributes:
        offset: how far a reader of the group's isolation level gets: under ``read_committed`` the last stable offset,
            where the first open transaction begins, else the log's end.
        shrunk: the log's end fell since the read before.
        unstable: how far the log's end (the high watermark) is beyond ``offset``.
        open_since_ms: since when the transaction that begins at ``offset`` is known to be open; None without one.
        topic_id: the id of the topic (KIP-516), which another one of the same name does not have; "" if not known.
    """

    offset: int
    read_ms: int
    shrunk: bool = False
    unstable: int = 0
    open_since_ms: int | None = None
    topic_id: str = ""

    @property
    def log_end(self) -> int:
        """The high watermark: the end of the log for a reader that waits for no transaction."""
        return self.offset + self.unstable

    @property
    def is_held_up(self) -> bool:
        """Whether a transaction stays open, so that no reader gets to the log's end."""
        return self.open_since_ms is not None and self.read_ms - self.open_since_ms >= OPEN_TRANSACTION_MS

    @property
    def level_at(self) -> int:
        """The position at which a copy is level.

        What lies behind a transaction that is open for a moment is about to be committed, and does not count yet. What
        lies behind one that stays open has mostly been committed already.
        """
        return self.log_end if self.is_held_up else self.offset


class Refused(NamedTuple):
    """The questions of a Kafka Streams application that were refused in a row: why the last one was, and when.

    ``is_another`` is true if they were those of another application, which asks under the group's name.
    """

    why: str
    since_ms: int
    last_ms: int
    times: int
    is_another: bool = False


class Soft(NamedTuple):
    """All soft state of one group.

    Attributes:
        wake_ms: no later than the first instant at which something is due. None if nothing is.
        target_is_provisional: the present target respects a temporary condition, so another target may be better once
            the group is about to rest. After a start this is unknown, and taken to be true.
        left_before_joining: ids whose leave overtook their join, and when. The joins may still arrive.
        listens_since_ms: since when this coordinator hears members without having stood still: its start, or the end of
            its own last silence.
        placed_without: the members that stay and that the present target gives nothing new, because they were not there
            (``Availability``). Once one of them is, the group is placed anew.
        refused: the refusals since the last answer to a Kafka Streams application, or else those of another one under
            the group's name (``application``). None: it was answered, or not heard.
        loads_read_ms: when the loads that members say were last compared with the recorded ones.
        load_tried_ms: when it was last decided what to move for load.
        restless: the member that the group was last not at rest for, which is looked at first (``probing``).
    """

    started_ms: int = 0
    judge_from_ms: int = 0
    members: PMap[MemberId, MemberSoft] = PMap()
    end_offsets: PMap[Log, EndOffset] = PMap()
    begin_offsets: PMap[Log, int] = PMap()
    wake_ms: int | None = None
    target_is_provisional: bool = True
    left_before_joining: PMap[MemberId, int] = PMap()
    listens_since_ms: int = 0
    placed_without: frozenset[MemberId] = frozenset()
    refused: Refused | None = None
    loads_read_ms: int = 0
    load_tried_ms: int = 0
    restless: MemberId | None = None

    def of(self, member_id: MemberId) -> MemberSoft:
        """Return what is known of a member: of one that was not heard, nothing."""
        return self.members.get(member_id) or _NOTHING

    def report_of(self, member_id: MemberId, task_id: TaskId) -> MeasuredReport | None:
        """Return the last report of a member on a task; None without one."""
        return self.of(member_id).reports.get(task_id)
