"""Eager reassignment: on every change of the group all tasks are taken from everybody and dealt out anew.

What a group of plain consumers does with the round-robin assignor, and what most stream processors outside of the JVM
build on. Nobody looks at who has state: a task whose new owner lacks it restores from nothing, a task whose new owner
has it on disk restores the rest. There are no standbys and no warm-ups, and nothing to look at later. That all tasks
stop while the group rebalances is the group's part (`group`, `cooperative=False`).
"""

from collections.abc import Iterable

from batonpass.simulate.kafka.assignor import Assignment, ClientState, ClientTasks, Kip441Config
from batonpass.simulate.tasks import Task, TaskSet


def assign(clients: Iterable[ClientState], tasks: TaskSet, config: Kip441Config) -> Assignment:
    """Deal all tasks out by turns, one consumer per thread, in the order of ids (Kafka's `RoundRobinAssignor`)."""
    del config
    states = sorted(clients, key=lambda state: state.client)
    consumers = [state.client for state in states for _ in range(state.capacity)]
    dealt: dict[str, list[Task]] = {client: [] for client in consumers}
    if consumers:
        for turn, task in enumerate(sorted((*tasks.stateful, *tasks.stateless))):
            dealt[consumers[turn % len(consumers)]].append(task)
    shares = {client: ClientTasks(tuple(sorted(share)), (), ()) for client, share in dealt.items()}
    return Assignment(clients=shares, probing_needed=False)
