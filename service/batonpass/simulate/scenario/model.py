"""A scenario as a value: the group, its subtopologies, its members, and what happens when. Times are milliseconds.

Instants count from the beginning of the scenario; state and rates are counted in records.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

RECORD_BYTES: Final = 500
RESTORE_PER_SECOND: Final = 20_000.0


@dataclass(frozen=True, slots=True)
class SimulatedSubtopology:
    """One subtopology: as many tasks as it has partitions.

    ``records`` is the state of each task at the beginning, ``rate`` how many records a second its changelog grows by
    while it runs; both have one entry for each partition. ``load`` is how much of one unit of capacity each task uses;
    empty where workers say nothing of it.
    """

    records: tuple[int, ...]
    rate: tuple[float, ...]
    stateful: bool = True
    load: tuple[float, ...] = ()

    @property
    def partitions(self) -> int:
        return len(self.records)


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker process. ``fenced``: its outputs are fenced, so that it goes on when its lease is over."""

    name: str
    capacity: float = 1.0
    tags: Mapping[str, str] = field(default_factory=dict)
    restore_per_second: float = RESTORE_PER_SECOND
    fenced: bool = False


class Act(StrEnum):
    """What may happen to a group."""

    JOIN = "join"
    """A new process starts."""
    RETURN = "return"
    """A process that was here before starts again."""
    RESTART = "restart"
    """A process stops in good order and announces that it comes back."""
    LEAVE = "leave"
    """A process stops in good order for good."""
    CRASH = "crash"
    """A process is killed."""
    DRAIN = "drain"
    """A process hands everything over, then leaves."""
    LOAD = "load"
    """Changelogs grow faster or slower from now on, and tasks use more or less."""
    MEASURED = "measured"
    """From now on, tasks use what was measured of them."""
    COORDINATOR = "coordinator-restart"
    """The coordinator starts again."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens.

    ``worker`` is the process concerned. ``keeps_disk`` belongs to a return, ``deadline_ms`` to a drain (counted from
    the step). ``factor`` belongs to a change of load: it multiplies the rates of the tasks' changelogs and what
    they use, in the subtopology ``subtopology`` or in all of them. ``loads`` are what was measured, by the numbers of
    subtopology and partition, of the tasks for which that is another than before.
    """

    at_ms: int
    act: Act
    worker: str = ""
    keeps_disk: bool = True
    deadline_ms: int | None = None
    factor: float = 1.0
    subtopology: int | None = None
    loads: Mapping[tuple[int, int], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A group at rest and what happens to it.

    ``config`` has the settings that are not the defaults. ``workers`` has all that ever take part, ``present`` the
    names of those that run from the beginning. The scenario ends at ``until_ms``; None: when the group has come to rest
    after the last step.
    """

    name: str
    subtopologies: tuple[SimulatedSubtopology, ...]
    workers: tuple[Worker, ...]
    present: tuple[str, ...]
    title: str = ""
    group: str = "simulated"
    config: Mapping[str, object] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    until_ms: int | None = None
    record_bytes: int = RECORD_BYTES

    @property
    def task_count(self) -> int:
        return sum(subtopology.partitions for subtopology in self.subtopologies)
