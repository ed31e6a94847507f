"""Kafka Streams' own assignor, KIP-441's `HighAvailabilityTaskAssignor`, as a model to compare against.

It computes an ideal placement that ignores history, then postpones whatever is not warm: a task whose
ideal owner is not caught up goes to a client that is, and the ideal owner gets a warm-up as long as
`max_warmup_replicas`, one pool for the whole group, lasts. No event says when a copy is warm; the group looks again
on its timer (`Assignment.probing_needed`), and this function starts anew each time from the lags of that moment.

Kept on purpose, because Kafka does so: a running owner is not preferred over another caught-up copy; the sentinels
`LATEST` and `UNKNOWN` are negative and sort before every real lag; the pool is charged for a movement that gets no
warm-up, and so goes below zero; stateless tasks are dealt out anew each time. Left out: rack-aware traffic costs
(KIP-925), spreading over the threads of a process, and the fallback used when no lag can be read.

The work is done as Kafka does it, with the lags of every client for every task in a table and in order, so that the
time it takes can stand for Kafka's design.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from batonpass.simulate.tasks import Task, TaskSet

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
class ClientTasks:
    """The tasks assigned to one client, sorted. Warm-ups are listed apart here, but not on Kafka's wire."""

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
    whether or not the pool had a warm-up left.
    """

    clients: Mapping[str, ClientTasks]
    probing_needed: bool
    active_movements: int = 0
    standby_movements: int = 0

    @property
    def owners(self) -> dict[Task, str]:
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


def assign(clients: Iterable[ClientState], tasks: TaskSet, config: Kip441Config) -> Assignment:
    """Place every task as Kafka's assignor would in one rebalance; the order of the arguments' items does not matter.

    Without any client the answer is empty and asks for no further look.

    Raises:
        KeyError: A client has no lag for a stateful task.
    """
    states = sorted(clients, key=lambda state: state.client)
    if not states:
        return Assignment(clients={}, probing_needed=False)
    drafts = {state.client: Draft(state) for state in states}
    in_order = list(drafts.values())
    stateful = sorted(tasks.stateful)

    place_actives(in_order, stateful)
    if config.num_standby_replicas > 0:
        place_standbys(in_order, stateful, config)

    movements = _Movements(drafts, stateful, config)
    active_movements = movements.postpone_actives()
    standby_movements = movements.postpone_standbys()
    _place_stateless(drafts, sorted(tasks.stateless))
    return Assignment(
        clients={
            draft.client: ClientTasks(
                active=tuple(sorted(draft.active)),
                standby=tuple(sorted(draft.standby - draft.warmup)),
                warmup=tuple(sorted(draft.warmup)),
            )
            for draft in in_order
        },
        probing_needed=active_movements + standby_movements > 0,
        active_movements=active_movements,
        standby_movements=standby_movements,
    )


# The ideal: it depends on process ids, capacities, tags and task ids alone. Neither owners nor lags are looked at, so
# the goal is the same from one probing rebalance to the next, and far from the present state after a change.


class Draft:
    """One client's share of the assignment that is being made."""

    __slots__ = ("active", "capacity", "client", "lags", "standby", "tags", "warmup")

    def __init__(self, state: ClientState) -> None:
        self.client, self.lags, self.capacity, self.tags = state.client, state.lags, state.capacity, state.tags
        self.active: set[Task] = set()
        self.standby: set[Task] = set()
        self.warmup: set[Task] = set()

    @property
    def load(self) -> float:
        """What it has per thread."""
        return (len(self.active) + len(self.standby)) / self.capacity

    @property
    def active_load(self) -> float:
        """Actives per thread."""
        return len(self.active) / self.capacity

    def holds(self, task: Task) -> bool:
        return task in self.active or task in self.standby


class LeastLoaded:
    """Clients in the order of a load, ties by process id, from which a fitting one is taken and put back.

    Kafka keeps the same kind of queue: clients that do not fit are taken out, set aside and put back, so a search
    costs more the more clients do not fit. A client's load is read when it is put in.
    """

    def __init__(self, drafts: Iterable[Draft]) -> None:
        self._drafts: dict[str, Draft] = {}
        self._queued: dict[str, tuple[float, str]] = {}
        self._heap: list[tuple[float, str]] = []
        self.offer(*drafts)

    def offer(self, *drafts: Draft) -> None:
        """Put clients in, or correct the loads of those that are in."""
        for draft in drafts:
            entry = (draft.load, draft.client)
            self._drafts[draft.client] = draft
            self._queued[draft.client] = entry
            heapq.heappush(self._heap, entry)

    def poll(self, task: Task, fits: Callable[[Draft, Task], bool]) -> Draft | None:
        """Take out the least loaded client that fits the task; None if there is none."""
        set_aside: list[tuple[float, str]] = []
        found: Draft | None = None
        while self._heap and found is None:
            entry = heapq.heappop(self._heap)
            client = entry[1]
            if self._queued.get(client) is not entry:
                continue  # The load was corrected since, so a later entry counts for this client.
            if fits(self._drafts[client], task):
                found = self._drafts[client]
                del self._queued[client]
            else:
                set_aside.append(entry)
        for entry in set_aside:
            heapq.heappush(self._heap, entry)
        return found


def place_actives(drafts: Sequence[Draft], tasks: Sequence[Task]) -> None:
    """Deal the tasks out by turns, then even out what clients hold per thread."""
    for turn, task in enumerate(tasks):
        drafts[turn % len(drafts)].active.add(task)
    _even_out(drafts, lambda draft: draft.active, lambda _source, _destination: True)


def place_standbys(drafts: Sequence[Draft], tasks: Sequence[Task], config: Kip441Config) -> None:
    """Place the standbys of every task, by tags where the group has them, then even out what clients hold."""
    by_load = LeastLoaded(drafts)
    missing = dict.fromkeys(tasks, config.num_standby_replicas)
    if config.rack_aware_tags:
        _place_by_tags(drafts, by_load, missing, config.rack_aware_tags)
    for task, count in missing.items():
        for _ in range(count):
            draft = by_load.poll(task, _holds_no_copy)
            if draft is None:
                break  # Fewer clients than copies: Kafka warns, and the task has fewer.
            draft.standby.add(task)
            by_load.offer(draft)

    def may_move(source: Draft, destination: Draft) -> bool:
        return not config.rack_aware_tags or all(destination.tags.get(key) == source.tags[key] for key in source.tags)

    _even_out(drafts, lambda draft: draft.standby, may_move)


def _holds_no_copy(draft: Draft, task: Task) -> bool:
    return not draft.holds(task)


def _place_by_tags(
    drafts: Sequence[Draft], by_load: LeastLoaded, missing: dict[Task, int], keys: Sequence[str]
) -> None:
    """Place standbys on clients that share no tag value with any copy of the task; count down what was placed.

    A key with no more distinct values than the task has copies stops to count for that task (KIP-708 calls this
    partial rack awareness).
    """
    owners = {task: draft for draft in drafts for task in draft.active}
    tags = {(key, draft.tags[key]) for draft in drafts for key in keys if key in draft.tags}
    values = Counter(key for key, _ in tags)
    for task, count in missing.items():
        used: set[tuple[str, str]] = set()
        latest = owners[task]
        for copies in range(1, count + 1):
            used |= {(key, latest.tags[key]) for key in keys if key in latest.tags}
            used = {(key, value) for key, value in used if values[key] > copies}
            draft = by_load.poll(task, partial(_is_apart, used))
            if draft is None:
                break
            draft.standby.add(task)
            by_load.offer(draft)
            missing[task] -= 1
            latest = draft


def _is_apart(used: set[tuple[str, str]], draft: Draft, task: Task) -> bool:
    """Whether a client holds no copy of a task and has none of the used tag values."""
    return not draft.holds(task) and all(draft.tags.get(key) != value for key, value in used)


def _even_out(
    drafts: Sequence[Draft], tasks_of: Callable[[Draft], set[Task]], may_move: Callable[[Draft, Draft], bool]
) -> None:
    """Move tasks between every two clients while that makes their loads per thread more alike, until nothing moves."""
    moved = True
    while moved:
        moved = False
        for source in drafts:
            for destination in drafts:
                if not _evens_out(source, destination) or not may_move(source, destination):
                    continue
                for task in sorted(tasks_of(source)):
                    if destination.holds(task):
                        continue
                    tasks_of(source).remove(task)
                    tasks_of(destination).add(task)
                    moved = True
                    if not _evens_out(source, destination):
                        break


def _evens_out(source: Draft, destination: Draft) -> bool:
    """Whether moving one task makes the two clients' loads more alike, and the destination's not the larger."""
    skew = source.load - destination.load
    if skew <= 0:
        return False
    source_after = (len(source.active) + len(source.standby) - 1) / source.capacity
    destination_after = (len(destination.active) + len(destination.standby) + 1) / destination.capacity
    return 0 <= source_after - destination_after < skew


# The movements: copies that are not warm give way to copies that are.


class _Movements:
    """The second half of the assignor: copies that are not warm give way to copies that are.

    The warm-ups left are counted across actives and standbys alike. ``_caught_up`` has which clients are caught up on
    each task, ``_by_lag`` every client for every task, lowest lag first, ties by process id.
    """

    def __init__(self, drafts: Mapping[str, Draft], stateful: Sequence[Task], config: Kip441Config) -> None:
        self._drafts = drafts
        self._warmups_left = config.max_warmup_replicas
        self._caught_up: dict[Task, set[str]] = {}
        self._by_lag: dict[Task, Sequence[str]] = {}
        acceptable = config.acceptable_recovery_lag
        for task in stateful:
            ready: set[str] = set()
            ranked: list[tuple[int, str]] = []
            for client, draft in drafts.items():
                lag = draft.lags[task]
                if lag == LATEST or acceptable == UNBOUNDED_LAG or 0 <= lag <= acceptable:
                    ready.add(client)
                ranked.append((lag, client))
            ranked.sort()
            self._caught_up[task] = ready
            self._by_lag[task] = [client for _, client in ranked]

    def postpone_actives(self) -> int:
        """Give every active that would start behind to a client that is further; return how many these were."""
        queue = self._queue((task, draft) for draft in self._drafts.values() for task in draft.active)
        by_load = LeastLoaded(self._drafts.values())
        for task, destination in queue:
            source = by_load.poll(task, self._is_caught_up_standby)
            if source is not None:
                self._swap(task, source, destination)
            else:
                source = by_load.poll(task, self._is_caught_up)
                if source is None:
                    # Another client has less to restore than the destination, or the task would not have to wait.
                    source = self._drafts[self._by_lag[task][0]]
                if task in source.standby:
                    self._swap(task, source, destination)
                else:
                    self._move_active(task, source, destination)
            by_load.offer(source, destination)
        return len(queue)

    def postpone_standbys(self) -> int:
        """Give every standby that would start behind to a client that is further, if there is one; count these.

        Warm-ups are left alone: they are expected to be behind.
        """
        queue = self._queue(
            (task, draft) for draft in self._drafts.values() for task in draft.standby if task not in draft.warmup
        )
        by_load = LeastLoaded(self._drafts.values())
        found = 0
        for task, destination in queue:
            source = by_load.poll(task, self._is_caught_up_without_copy)
            if source is None:
                source = self._furthest_without_copy(task, destination)
                if source is None:
                    continue
            found += 1
            source.standby.add(task)
            if self._pays_for_warmup():
                destination.warmup.add(task)
            else:
                destination.standby.remove(task)
            by_load.offer(source, destination)
        return found

    def _queue(self, placed: Iterable[tuple[Task, Draft]]) -> list[tuple[Task, Draft]]:
        """Return the placements that must wait, the tasks with the fewest caught-up clients first."""
        waiting = [(task, draft) for task, draft in placed if self._must_wait(task, draft)]
        return sorted(waiting, key=lambda item: (len(self._caught_up[item[0]]), item[0], item[1].client))

    def _must_wait(self, task: Task, draft: Draft) -> bool:
        """Whether the client is not caught up on the task while another has strictly less to restore."""
        if draft.client in self._caught_up[task]:
            return False
        return self._drafts[self._by_lag[task][0]].lags[task] < draft.lags[task]

    def _is_caught_up(self, draft: Draft, task: Task) -> bool:
        return draft.client in self._caught_up[task]

    def _is_caught_up_standby(self, draft: Draft, task: Task) -> bool:
        return task in draft.standby and draft.client in self._caught_up[task]

    def _is_caught_up_without_copy(self, draft: Draft, task: Task) -> bool:
        return draft.client in self._caught_up[task] and not draft.holds(task)

    def _furthest_without_copy(self, task: Task, destination: Draft) -> Draft | None:
        """The client without a copy that has least to restore, of those before the destination in lag order."""
        for client in self._by_lag[task]:
            if client == destination.client:
                return None
            if not self._drafts[client].holds(task):
                return self._drafts[client]
        return None

    def _swap(self, task: Task, source: Draft, destination: Draft) -> None:
        """Let a standby and the ideal owner change places; no copy is added, so none has to be paid for."""
        destination.active.remove(task)
        source.standby.remove(task)
        source.active.add(task)
        destination.standby.add(task)

    def _move_active(self, task: Task, source: Draft, destination: Draft) -> None:
        """Put the active where its state is, and a warm-up on its ideal owner if the pool has one left."""
        destination.active.remove(task)
        source.active.add(task)
        if self._pays_for_warmup():
            destination.standby.add(task)
            destination.warmup.add(task)

    def _pays_for_warmup(self) -> bool:
        """Charge the pool; return whether it had a warm-up left."""
        self._warmups_left -= 1
        return self._warmups_left >= 0


def _place_stateless(drafts: Mapping[str, Draft], tasks: Sequence[Task]) -> None:
    """Give every stateless task to the client with the fewest actives per thread, whatever its last owner was."""
    by_load = [(draft.active_load, draft.client) for draft in drafts.values()]
    heapq.heapify(by_load)
    for task in tasks:
        draft = drafts[by_load[0][1]]
        draft.active.add(task)
        heapq.heapreplace(by_load, (draft.active_load, draft.client))
