"""The yardsticks: Kafka's own assignor on the same groups, and the model of it, which is in Python as ours is.

The model starts from what members report, as ours does (`assign_reported`), ranks every client for every task, as Kafka
does, and returns the whole assignment. Its groups are the ones that it would itself have placed, everything caught up,
so that a re-run at rest changes nothing there either.
"""

import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.groups import SUBTOPOLOGIES, ZONES, Shape, member_name, tags_of
from tests.benchmarks.streams.versions import libraries
from tests.programs import program

from batonpass.kafka.broker_parts import broker_version
from batonpass.simulate.kafka.assignor import LATEST, Assignment, ClientState, Kip441Config, assign, lags_of
from batonpass.simulate.tasks import Task, TaskSet

END = 1_000_000
"""The end of every changelog: far more than the acceptable lag, so that a client without the state is not caught up."""

SECONDS = 10
"""How long Kafka's own class is called for each shape, at least three times: a JVM warms up."""
PATIENCE_S = 900


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What the model is asked for one shape: what clients report before each of the four operations."""

    tasks: TaskSet
    config: Kip441Config
    end_offsets: Mapping[Task, int]
    empty: tuple[ClientState, ...]
    at_rest: tuple[ClientState, ...]
    joined: tuple[ClientState, ...]
    left: tuple[ClientState, ...]

    def operations(self) -> dict[str, Callable[[], Assignment]]:
        """Return each operation as a call."""
        return {
            "first": lambda: self._assign(self.empty),
            "re-run": lambda: self._assign(self.at_rest),
            "join": lambda: self._assign(self.joined),
            "leave": lambda: self._assign(self.left),
        }

    def _assign(self, reports: tuple[ClientState, ...]) -> Assignment:
        return assign_reported(reports, self.tasks, self.config, end_offsets=self.end_offsets)


def yardstick(shape: Shape) -> Yardstick:
    """Return the questions to the model for one shape."""
    tasks = tuple((number % SUBTOPOLOGIES, number // SUBTOPOLOGIES) for number in range(shape.tasks))
    tasks = tuple(sorted(tasks))
    ends = dict.fromkeys(tasks, END)
    config = Kip441Config(num_standby_replicas=shape.standbys, rack_aware_tags=("zone",))
    empty = tuple(_client(shape, index, {}) for index in range(shape.members))
    placed = assign_reported(empty, TaskSet(tasks), config, end_offsets=ends)
    at_rest = tuple(_client(shape, index, _held(placed, member_name(index))) for index in range(shape.members))
    leaver = shape.members // 2
    return Yardstick(
        tasks=TaskSet(tasks),
        config=config,
        end_offsets=ends,
        empty=empty,
        at_rest=at_rest,
        joined=(*at_rest, _client(shape, shape.members, {})),
        left=(*at_rest[:leaver], *at_rest[leaver + 1 :]),
    )


def assign_reported(
    reports: Iterable[ClientState], tasks: TaskSet, config: Kip441Config, *, end_offsets: Mapping[Task, int]
) -> Assignment:
    """Place every task from what the clients report: the leader's whole decision, its table of lags included.

    `end_offsets` has the summed end of every stateful task's changelogs. In the place of lags the reports have the sums
    of the offsets that clients have restored to.
    """
    states = [replace(report, lags=lags_of(end_offsets, report.lags)) for report in reports]
    return assign(states, tasks, config)


def _client(shape: Shape, index: int, offset_sums: Mapping[Task, int]) -> ClientState:
    return ClientState(member_name(index), offset_sums, shape.capacity, tags_of(index))


def _held(placed: Assignment, client: str) -> dict[Task, int]:
    tasks = placed.clients[client]
    return {**dict.fromkeys(tasks.active, LATEST), **dict.fromkeys(tasks.copies, END)}


class Calls(NamedTuple):
    """Milliseconds of processor time of Kafka's own class, by operation: its first call, and the least when warm."""

    cold: Mapping[str, float]
    warm: Mapping[str, float]


def time_kafka(shape: Shape, seconds: int = SECONDS) -> Calls:
    """Time Kafka's `HighAvailabilityTaskAssignor` on the groups of one shape, in a JVM of its own.

    Raises:
        AssertionError: when there is no Maven or Java to fetch and run it.
        SubprocessError: when either fails, or the calls take longer than `PATIENCE_S`.
    """
    size = (shape.tasks, shape.members, shape.standbys, shape.capacity, SUBTOPOLOGIES, ZONES, seconds)
    java = [program("java"), "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", _libraries()]
    command = [*java, str(Path(__file__).with_name("KafkaAssignor.java"))]
    done = subprocess.run(
        [*command, *map(str, size)], stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE_S
    )
    calls: dict[str, list[float]] = {}
    for line in done.stdout.splitlines():
        name, spent = line.split()
        calls.setdefault(name, []).append(float(spent))
    return Calls(
        {name: spent[0] for name, spent in calls.items()},
        {name: min(spent[len(spent) // 2 :]) for name, spent in calls.items()},
    )


@cache
def _libraries() -> str:
    with tempfile.TemporaryDirectory() as folder:
        return libraries(broker_version(), Path(folder) / "libraries")
