"""Groups to put before the model of Kafka's assignor, and what makes its answer valid and balanced."""

import random
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping

from batonpass.simulate.kafka.assignor import UNBOUNDED_LAG, Assignment, ClientState, Kip441Config
from batonpass.simulate.tasks import Task, TaskSet

COLD = UNBOUNDED_LAG
"""The lag of a copy that is not there, in Kafka's own cases."""


def grid(subtopologies: int, partitions: int) -> tuple[Task, ...]:
    """Every task of so many subtopologies with so many partitions each."""
    return tuple((subtopology, partition) for subtopology in range(subtopologies) for partition in range(partitions))


def client(
    name: str, stateful: Iterable[Task], lags: Mapping[Task, int] | int = COLD, *, capacity: int = 1
) -> ClientState:
    """A client with one lag for everything, or with the lags given and nothing else."""
    given = lags if isinstance(lags, Mapping) else dict.fromkeys(stateful, lags)
    return ClientState(name, dict.fromkeys(stateful, COLD) | dict(given), capacity)


def caught_up(name: str, stateful: Iterable[Task], *tasks: Task, capacity: int = 1) -> ClientState:
    """A client with lag 0 for some tasks and nothing of the others."""
    return client(name, stateful, dict.fromkeys(tasks, 0), capacity=capacity)


def totals(assignment: Assignment) -> list[int]:
    """How many copies each client holds, actives included, in the order of ids."""
    return [len(tasks.active) + len(tasks.copies) for _, tasks in sorted(assignment.clients.items())]


def actives(assignment: Assignment) -> list[int]:
    """How many actives each client has, in the order of ids."""
    return [len(tasks.active) for _, tasks in sorted(assignment.clients.items())]


def faults(assignment: Assignment, tasks: TaskSet, config: Kip441Config) -> list[str]:
    """What is invalid, by the rules of Kafka's own checker and the bound on warm-ups; empty if nothing is."""
    held = assignment.clients.values()
    owners = Counter(task for client in held for task in client.active)
    copies = Counter(task for client in held for task in (*client.active, *client.copies))
    wanted = min(len(assignment.clients), 1 + config.num_standby_replicas)
    found = [f"{task} has {owners[task]} actives" for task in (*tasks.stateful, *tasks.stateless) if owners[task] != 1]
    found += [f"stateless {task} has {copies[task]} copies" for task in tasks.stateless if copies[task] != 1]
    found += [
        f"{task} has {copies[task]} copies"
        for task in tasks.stateful
        if copies[task] < wanted or (copies[task] > wanted and not assignment.probing_needed)
    ]
    found += [
        f"{name} holds {task} twice"
        for name, client in assignment.clients.items()
        for task, count in Counter((*client.active, *client.copies)).items()
        if count > 1
    ]
    extra = sum(max(0, copies[task] - wanted) for task in tasks.stateful)
    if extra > config.max_warmup_replicas:
        found.append(f"{extra} copies too many, {config.max_warmup_replicas} may be")
    return found


def skew(assignment: Assignment, clients: Iterable[ClientState], *, of: frozenset[Task] | None = None) -> float:
    """How far apart the clients' actives per thread are, of these tasks or of all."""
    loads = [
        sum(of is None or task in of for task in assignment.clients[state.client].active) / state.capacity
        for state in clients
    ]
    return max(loads) - min(loads)


def subtopology_skew(assignment: Assignment, subtopology: int) -> int:
    """How far apart the clients' counts of actives of one subtopology are."""
    counts = [sum(task[0] == subtopology for task in client.active) for client in assignment.clients.values()]
    return max(counts) - min(counts)


def process_ids(seed: int, count: int) -> list[str]:
    """Process ids as Kafka Streams draws them, in the order of joining, from a seed."""
    source = random.Random(seed)
    return [str(uuid.UUID(int=source.getrandbits(128), version=4)) for _ in range(count)]
