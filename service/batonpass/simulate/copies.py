"""What processes hold of each task's state, in virtual time.

A process has a copy as the active, as a standby (a warm-up is one), or only on its disk. Restoring takes time: every
process restores at the rate that the world gives it. Its restoring copies share the rate evenly, actives before
standbys. A copy that has reached the end follows it from then on. A changelog grows only while its task runs. When the
task runs again, the records that it missed count as written at once, for every arm of a comparison alike.

Offsets are records, times milliseconds since the start of the world.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from batonpass.simulate.costs import Account
from batonpass.simulate.tasks import Task, TaskSet


class Rates(Protocol):
    """How fast changelogs grow, and how fast machines restore."""

    def end_offset(self, task: Task, at_ms: int) -> int:
        """The end of the task's changelogs, summed, if the task had run until `at_ms`; it never falls over time."""

    def restore_rate(self, client: str) -> float:
        """How many records a second the process restores, all of its copies together; above 0."""


@dataclass(frozen=True, slots=True)
class SteadyRates:
    """All changelogs are alike and grow at one rate, and all processes restore at one rate."""

    records: int
    growth_per_second: float
    restore_per_second: float

    def end_offset(self, task: Task, at_ms: int) -> int:
        """The same for every task."""
        del task
        return self.records + int(self.growth_per_second * at_ms / 1000)

    def restore_rate(self, client: str) -> float:
        """The same for every process."""
        del client
        return self.restore_per_second


class Role(StrEnum):
    """What a process does with a copy."""

    ACTIVE = "active"
    STANDBY = "standby"
    DISK = "disk"


@dataclass(slots=True)
class _Copy:
    """One copy on one process. `current`: it has reached the end and follows it, so `position` is out of date."""

    role: Role
    position: float
    current: bool = False
    unassigned_at_ms: int = 0


class Copies:
    """Every copy on every process, and how far each has come. ``account`` notes who has which task as its active."""

    def __init__(
        self, is_stateful: Callable[[Task], bool], rates: Rates, *, now_ms: int = 0, account: Account | None = None
    ) -> None:
        self.account = account or Account(TaskSet(()))
        self._rates = rates
        self._is_stateful = is_stateful
        self._held: dict[str, dict[Task, _Copy]] = {}
        # How many processes run a task. Where a fault lets an old owner go on beside the new one, it is more than one.
        self._runners: dict[Task, int] = {}
        # A stopped task's changelog does not grow. If its task never ran, it was filled before the world began.
        self._stopped_at_ms: dict[Task, int] = {}
        self._started_ms = now_ms
        self.now_ms = now_ms
        self.restored_records = 0.0
        self.frozen: set[str] = set()
        """The processes whose restores make no progress."""

    def end_offset(self, task: Task) -> int:
        """The present end of the task's changelogs, summed; 0 for a stateless task."""
        if not self._is_stateful(task):
            return 0
        at_ms = self.now_ms if task in self._runners else self._stopped_at_ms.get(task, self._started_ms)
        return self._rates.end_offset(task, at_ms)

    def add_process(self, client: str, disk: Mapping[Task, int]) -> None:
        """Start a process with what is on its disk."""
        self._held[client] = {
            task: _Copy(Role.DISK, position, unassigned_at_ms=self.now_ms) for task, position in disk.items()
        }

    def stop_process(self, client: str) -> dict[Task, int]:
        """End a process and return what is on its disk: the position of every copy."""
        for task in list(self._held[client]):
            self.drop(client, task)
        return {task: int(copy.position) for task, copy in self._held.pop(client).items()}

    def role(self, client: str, task: Task) -> Role | None:
        """What the process does with its copy of the task; None if it has none."""
        copy = self._held[client].get(task)
        return copy.role if copy else None

    def is_current(self, client: str, task: Task) -> bool:
        """Whether the process's copy has reached the end: for an active, whether it processes."""
        copy = self._held[client].get(task)
        return copy is not None and copy.current

    def runs(self, task: Task) -> bool:
        return task in self._runners

    @property
    def running(self) -> int:
        return len(self._runners)

    def all_current(self) -> bool:
        """Whether every active processes and every standby has reached the end."""
        return all(copy.current for held in self._held.values() for copy in held.values() if copy.role != Role.DISK)

    def hold(self, client: str, task: Task, role: Role) -> bool:
        """Give the process a copy in this role, from the state that it has; True if an active starts to run."""
        copy = self._held[client].setdefault(task, _Copy(Role.DISK, 0.0))
        if role == copy.role == Role.ACTIVE and copy.current:
            return False
        self._settle(task, copy)
        if copy.role == Role.ACTIVE and role != Role.ACTIVE:
            self.account.ends(task, self.now_ms)
        copy.role = role
        is_at_end = self._look(task, copy)
        if role == Role.ACTIVE:
            self.account.begins(task, client, self.now_ms, is_running=is_at_end)
        return is_at_end

    def hold_ready(self, client: str, task: Task, role: Role) -> None:
        """Give the process a copy that needs no restoring, to set up a group before anything happens to it."""
        self._held[client][task] = _Copy(Role.DISK, self.end_offset(task))
        self.hold(client, task, role)

    def drop(self, client: str, task: Task) -> None:
        """Close the process's copy, if there is one; the state of a stateful task stays on disk."""
        copy = self._held[client].get(task)
        if copy is None or copy.role == Role.DISK:
            return
        self._settle(task, copy)
        if copy.role == Role.ACTIVE:
            self.account.ends(task, self.now_ms)
        copy.role, copy.unassigned_at_ms = Role.DISK, self.now_ms
        if not self._is_stateful(task):
            del self._held[client][task]

    def lose(self, client: str, task: Task) -> None:
        """Delete the process's state of the task; an open copy restores from the beginning."""
        copy = self._held[client].get(task)
        if copy is None:
            return
        if copy.role == Role.DISK:
            del self._held[client][task]
            return
        self._settle(task, copy)
        copy.position = 0.0
        if copy.role == Role.ACTIVE:
            self.account.begins(task, client, self.now_ms, is_running=False)

    def held(self, client: str) -> tuple[Task, ...]:
        """The tasks of which the process has a copy, on disk or in memory, sorted."""
        return tuple(sorted(self._held[client]))

    def clean_disks(self, *, older_than_ms: int) -> None:
        """Delete state on disk that has been unassigned there for so long (`state.cleanup.delay.ms`)."""
        for held in self._held.values():
            stale = [
                task
                for task, copy in held.items()
                if copy.role == Role.DISK and self.now_ms - copy.unassigned_at_ms >= older_than_ms
            ]
            for task in stale:
                del held[task]

    def positions(self, client: str) -> dict[Task, int]:
        """The position of each copy that the process has of a stateful task."""
        return {
            task: self.end_offset(task) if copy.current else int(copy.position)
            for task, copy in self._held[client].items()
            if self._is_stateful(task)
        }

    def next_arrival_ms(self) -> int | None:
        """When the next copy reaches the end, at the present rates and ends; None if nothing restores."""
        return self._first_arrival_ms(self._restoring())

    def _first_arrival_ms(self, restoring: Iterable[tuple[str, Task, _Copy, float]]) -> int | None:
        waits = (math.ceil(1000 * (self.end_offset(task) - copy.position) / rate) for _, task, copy, rate in restoring)
        return min((self.now_ms + max(1, wait) for wait in waits), default=None)

    def advance(self, to_ms: int) -> list[tuple[str, Task, int]]:
        """Let time pass; return which process began to run which task on the way, and when, in order."""
        started: list[tuple[str, Task, int]] = []
        while self.now_ms < to_ms:
            restoring = list(self._restoring())
            arrival = self._first_arrival_ms(restoring)
            step_ms = min(to_ms, arrival if arrival is not None else to_ms) - self.now_ms
            self.now_ms += step_ms
            for _, task, copy, rate in restoring:
                before = copy.position
                copy.position = min(before + rate * step_ms / 1000, self.end_offset(task))
                self.restored_records += copy.position - before
            for client, task, copy, _ in restoring:
                if self._look(task, copy):
                    started.append((client, task, self.now_ms))
                    self.account.begins(task, client, self.now_ms, is_running=True)
        return started

    def _look(self, task: Task, copy: _Copy) -> bool:
        """Make a copy that has reached the end current; True if its task begins to run."""
        # Less than half a record is rounding: positions are fractions while they move.
        if copy.current or self.end_offset(task) - copy.position >= 0.5:
            return False
        copy.current = True
        if copy.role == Role.ACTIVE:
            self._runners[task] = self._runners.get(task, 0) + 1
            return True
        return False

    def _settle(self, task: Task, copy: _Copy) -> None:
        """Let a copy that follows the end stay where that is now; a task of which it was the active stops."""
        if not copy.current:
            return
        copy.position, copy.current = self.end_offset(task), False
        if copy.role == Role.ACTIVE:
            self._runners[task] -= 1
            if not self._runners[task]:
                del self._runners[task]
                self._stopped_at_ms[task] = self.now_ms

    def _restoring(self) -> Iterator[tuple[str, Task, _Copy, float]]:
        """Every copy that restores now, with its share of its process's rate in records a second."""
        for client, held in self._held.items():
            if client in self.frozen:
                continue
            behind = [(task, copy) for task, copy in held.items() if copy.role != Role.DISK and not copy.current]
            first = [(task, copy) for task, copy in behind if copy.role == Role.ACTIVE] or behind
            for task, copy in first:
                yield client, task, copy, self._rates.restore_rate(client) / len(first)
