"""Eager reassignment: on every change of the group all tasks are taken from everybody and dealt out anew.

What a group of plain consumers does with the round-robin or the range assignor, and what most stream processors
outside of the JVM build on. Nobody looks at who has state: a task whose new owner lacks it restores from nothing, a
task whose new owner has it on disk restores the rest. There are no standbys and no warm-ups, and nothing to look at
later. The functions have the shape of `kip441.assign`, so that the same group in virtual time runs either; that all
tasks stop while the group rebalances is the group's part (`kafka_group`, `cooperative=False`).
"""

from collections.abc import Iterable

from batonpass.simulate.kip441 import Assignment, ClientState, ClientTasks, Kip441Config, Task, TaskSet


def assign(clients: Iterable[ClientState], tasks: TaskSet, config: Kip441Config) -> Assignment:
    """Deal all tasks out by turns, one consumer per thread, in the order of ids (Kafka's `RoundRobinAssignor`)."""
    del config
    consumers = _consumers(clients)
    dealt: dict[str, list[Task]] = {client: [] for client in consumers}
    if consumers:
        for turn, task in enumerate(sorted((*tasks.stateful, *tasks.stateless))):
            dealt[consumers[turn % len(consumers)]].append(task)
    return _assignment(dealt)


def assign_ranges(clients: Iterable[ClientState], tasks: TaskSet, config: Kip441Config) -> Assignment:
    """Cut every subtopology's partitions into one block per consumer (Kafka's `RangeAssignor`).

    Where they do not divide, the first blocks are longer by one.
    """
    del config
    consumers = _consumers(clients)
    dealt: dict[str, list[Task]] = {client: [] for client in consumers}
    by_subtopology: dict[int, list[Task]] = {}
    for task in sorted((*tasks.stateful, *tasks.stateless)):
        by_subtopology.setdefault(task[0], []).append(task)
    if consumers:
        for partitions in by_subtopology.values():
            length, longer = divmod(len(partitions), len(consumers))
            start = 0
            for place, client in enumerate(consumers):
                end = start + length + (place < longer)
                dealt[client].extend(partitions[start:end])
                start = end
    return _assignment(dealt)


def _consumers(clients: Iterable[ClientState]) -> list[str]:
    """One entry per thread of every client, in the order of ids."""
    return [state.client for state in sorted(clients, key=lambda state: state.client) for _ in range(state.capacity)]


def _assignment(dealt: dict[str, list[Task]]) -> Assignment:
    return Assignment(
        clients={client: ClientTasks(tuple(sorted(tasks)), (), ()) for client, tasks in dealt.items()},
        probing_needed=False,
    )
