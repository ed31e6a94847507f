"""The yardstick: the model of Kafka's KIP-441 assignor on the same groups, and the times of Kafka's own class.

The model starts from what members report, as ours does (`assign_reported`), ranks every client for every task, as Kafka
does, and returns the whole assignment. Its groups are the ones that it would itself have placed, everything caught up,
so that a re-run at rest changes nothing there either.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from tests.benchmarks.groups import SUBTOPOLOGIES, Shape, member_name, tags_of

from batonpass.simulate.kafka.assignor import LATEST, Assignment, ClientState, Kip441Config, assign, lags_of
from batonpass.simulate.tasks import Task, TaskSet

END = 1_000_000
"""The end of every changelog: far more than the acceptable lag, so that a client without the state is not caught up."""

# Medians of Kafka 4.0.0-SNAPSHOT's HighAvailabilityTaskAssignor on a warm JVM, milliseconds, one changelog and no tags:
# first placement, re-run, join, leave. `docs/performance.md` says how they were measured.
KAFKA_WARM_MS: Mapping[Shape, tuple[float, float, float, float]] = {
    Shape(6_000, 2, 1): (33, 21, 48, 8),
    Shape(1_000, 1_000, 1): (3_097, 4_319, 5_067, 5_152),
    Shape(1_000, 100, 50): (1_178, 1_053, 2_142, 3_146),
    Shape(1_000, 10, 1, 1_000): (16, 18, 31, 22),
    Shape(10_000, 100, 1): (2_097, 1_985, 5_241, 4_454),
}


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
