"""Eager reassignment: on every change of the group all tasks are taken from all members and dealt out anew.

A group of plain consumers does this with the round-robin assignor, and most stream processors outside of the JVM build
on it. It ignores where state is: a task whose new owner lacks the state restores from nothing, a task whose new owner
has it on disk restores the rest. There are no standbys and no warm-ups, and nothing to look at later. The group itself
(`group`, `cooperative=False`) stops all tasks while it rebalances.
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
