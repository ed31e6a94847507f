"""The words of Kafka Streams' assignor: processes, their lags, and an assignment with its warm-ups marked.

Kafka's assignor (KIP-441) decides between *processes*, which it calls clients: one Streams application instance with
one or more threads. Here a client is its process id, a string; a task is a (subtopology, partition) pair. Nothing in
this module decides anything but what a reported offset means (`lags_of`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Task: TypeAlias = tuple[int, int]
"""(subtopology, partition); sorts as Kafka's task ids do."""

LATEST = -2
"""The lag, and the reported offset sum, of a task that its client was running when it reported."""

UNKNOWN = -3
"""The lag, and the reported offset sum, of a task whose offsets the client could not add up."""

UNBOUNDED_LAG = 2**63 - 1
"""An acceptable recovery lag that every copy meets: Kafka's way to switch warm-ups off."""


@dataclass(frozen=True, slots=True)
class Kip441Config:
    """The settings that the assignor reads, under Kafka's names and with Kafka's defaults.

    `max_warmup_replicas` may be 0 here, which Kafka refuses, because one of Kafka's own cases asks for it.
    """

    acceptable_recovery_lag: int = 10_000
    max_warmup_replicas: int = 2
    num_standby_replicas: int = 0
    rack_aware_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientState:
    """One process as the group's leader sees it in a rebalance.

    `lags` has an entry for every stateful task, one of the sentinels included; a missing one is a `KeyError` in the
    assignor, as it is an illegal state in Kafka. `capacity` counts the threads that joined.
    """

    client: str
    lags: Mapping[Task, int]
    capacity: int = 1
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientReport:
    """What one process says of itself when it joins a rebalance.

    `offset_sums` has an entry for each stateful task that it holds or finds on its disk: `LATEST` for one that it
    runs, `UNKNOWN` where the sum cannot be had, else the sum of the offsets it has restored to.
    """

    client: str
    offset_sums: Mapping[Task, int]
    capacity: int = 1
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Every task of the application, by whether it has state to restore."""

    stateful: tuple[Task, ...]
    stateless: tuple[Task, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientTasks:
    """What one client is told to hold, sorted. Warm-ups are told apart here, but not on Kafka's wire."""

    active: tuple[Task, ...]
    standby: tuple[Task, ...]
    warmup: tuple[Task, ...]

    @property
    def copies(self) -> tuple[Task, ...]:
        """Standbys and warm-ups together: what Kafka's client state calls its standby tasks."""
        return tuple(sorted((*self.standby, *self.warmup)))


@dataclass(frozen=True, slots=True)
class Assignment:
    """An assignor's answer: every client's tasks, and whether the group must look again on its timer.

    `active_movements` and `standby_movements` count what Kafka counts: placements of the ideal that were postponed,
    whether or not a warm-up could be paid for.
    """

    clients: Mapping[str, ClientTasks]
    probing_needed: bool
    active_movements: int = 0
    standby_movements: int = 0

    @property
    def owners(self) -> dict[Task, str]:
        """The client that each task is active on."""
        return {task: client for client, tasks in self.clients.items() for task in tasks.active}

    @property
    def warmups(self) -> int:
        """How many copies of the group are warm-ups."""
        return sum(len(tasks.warmup) for tasks in self.clients.values())


def lags_of(end_offsets: Mapping[Task, int], reported: Mapping[Task, int]) -> dict[Task, int]:
    """Turn one client's reported offset sums into a lag for every stateful task.

    A task that was not reported lags by its whole changelog; so does a sum beyond the end, which Kafka takes for
    state that must be restored from scratch. The sentinels pass through unchanged.
    """
    lags: dict[Task, int] = {}
    for task, end in end_offsets.items():
        position = reported.get(task, 0)
        if position in {LATEST, UNKNOWN}:
            lags[task] = position
        elif position > end:
            lags[task] = end
        else:
            lags[task] = end - position
    return lags
