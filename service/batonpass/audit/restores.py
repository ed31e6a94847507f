"""How long copies took to restore on a day, and how fast members restore."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import Role

RECORDS_LEAST: Final = 1_000
"""If a member restored fewer records in all, its speed cannot be told from them."""


class Span(NamedTuple):
    """One copy that was restored, from its grant on; ``is_first``: for the task's first start.

    ``is_whole``: until it ran the task, else until it was close enough to count as caught up.
    """

    member_id: MemberId
    task: TaskId
    from_ms: int
    to_ms: int
    is_first: bool
    is_whole: bool


class Restores:
    """Follows which copies are restored from nothing, from record to record.

    ``first_ms`` has, by task, how long its first owner took to restore it, divided by the number of tasks that it began
    to restore together.
    """

    def __init__(self) -> None:
        self.first_ms: dict[TaskId, float] = {}
        self._spans: list[Span] = []
        self._open: dict[tuple[MemberId, TaskId], int] = {}
        self._held: set[tuple[MemberId, TaskId]] = set()
        # Cold starts: since when, and how many tasks started together.
        self._cold: dict[tuple[MemberId, TaskId], tuple[int, int]] = {}

    def granted(self, record: r.AssignmentChanged, *, kept: Collection[TaskId]) -> None:
        """Note what a member is to hold. What it held before, or before its start (``kept``), may still be on its disk.

        How long it takes to restore that says nothing about its speed.
        """
        member_id, at_ms = record.member_id, record.at_ms
        cold = [
            task for task, grant in record.granted.items() if grant.role is Role.ACTIVE and task not in record.ready
        ]
        self._cold |= {(member_id, task): (at_ms, len(cold)) for task in cold}
        for task in record.revoked:
            self._open.pop((member_id, task), None)
        for task, grant in record.granted.items():
            if grant.role is Role.STANDBY:
                self._end(member_id, task, at_ms, is_whole=False)
            elif (
                (grant.role is Role.WARMUP or task in cold) and task not in kept and (member_id, task) not in self._held
            ):
                self._open[member_id, task] = at_ms
        self._held.update((member_id, task) for task in record.granted)

    def runs(self, member_id: MemberId, task: TaskId, at_ms: int) -> None:
        """Note that a member runs a task."""
        since, together = self._cold.pop((member_id, task), (None, 1))
        self._end(member_id, task, at_ms, is_whole=True)
        if since is not None:
            self.first_ms.setdefault(task, (at_ms - since) / together)

    def _end(self, member_id: MemberId, task: TaskId, at_ms: int, *, is_whole: bool) -> None:
        since = self._open.pop((member_id, task), None)
        if since is not None and at_ms > since:
            is_first = task not in self.first_ms
            self._spans.append(Span(member_id, task, since, at_ms, is_first, is_whole))

    def spans(self, *, with_first: bool) -> tuple[Span, ...]:
        """Return what was restored. ``with_first``: the first starts of tasks, too, else only later restores."""
        return tuple(one for one in self._spans if with_first or not one.is_first)


class RestoreSpeed(NamedTuple):
    """How many records a second a member restores, all its copies together; from whose and how many copies."""

    speed: float
    members: tuple[MemberId, ...]
    copies: int


def restore_speed(
    restores: Restores, size_at: Callable[[TaskId, int], float], *, is_new: bool, slack: int = 0
) -> RestoreSpeed | None:
    """Return how fast members restored, by how long that took them; None if that cannot be told.

    ``size_at`` says how large the state of a task was at an instant; a copy that lacks ``slack`` of it counts as caught
    up. For a group that ``is_new`` first starts are used last: how much there was to restore is known least then.
    """
    for with_first in (not is_new, True):
        by_member: dict[MemberId, list[Span]] = {}
        records: dict[MemberId, float] = {}
        for one in restores.spans(with_first=with_first):
            restored = size_at(one.task, one.to_ms) - (0 if one.is_whole else slack)
            if restored > 0:
                by_member.setdefault(one.member_id, []).append(one)
                records[one.member_id] = records.get(one.member_id, 0.0) + restored
        telling = tuple(sorted(member_id for member_id, count in records.items() if count >= RECORDS_LEAST))
        if telling:
            # Not the median: members that restored most, and for longest, show it best.
            busy_ms = sum(_busy_ms(by_member[member_id]) for member_id in telling)
            speed = sum(records[member_id] for member_id in telling) * 1_000 / busy_ms
            return RestoreSpeed(speed, telling, sum(len(by_member[member_id]) for member_id in telling))
    return None


def first_sizes(sizes: Mapping[str, int], first_ms: Mapping[TaskId, float], speed: float) -> dict[str, int]:
    """Return the state that the tasks of a new group begin with: as much as they could restore in the time they took.

    The end of a changelog counts all that was ever written to it; at first there may have been little. A start takes
    some time without any state, too.
    """
    took = {str(task): round(ms * speed / 1_000) for task, ms in first_ms.items()}
    most = max(took.values(), default=None)
    if most is None:
        return dict(sizes)
    return {task: took.get(task, min(sizes.get(task, most), most)) for task in {**sizes, **took}}


def _busy_ms(spans: Iterable[Span]) -> int:
    """Return for how long at least one of the spans went on."""
    busy_ms, until_ms = 0, 0
    for one in sorted(spans, key=lambda span: span.from_ms):
        busy_ms += max(0, one.to_ms - max(one.from_ms, until_ms))
        until_ms = max(until_ms, one.to_ms)
    return busy_ms
