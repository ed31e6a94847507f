"""Kafka Streams' own assignor, KIP-441's `HighAvailabilityTaskAssignor`, as a model to compare against.

It computes an ideal placement that ignores history (`kip441_ideal`), then postpones whatever is not warm: a task whose
ideal owner is not caught up goes to a client that is, and the ideal owner gets a warm-up as long as
`max_warmup_replicas`, one pool for the whole group, lasts. Nobody is told when a copy is warm; the group looks again
on its timer (`Assignment.probing_needed`), and this function starts anew each time from the lags of that moment.

Kept on purpose, because Kafka does so: a running owner is not preferred over another caught-up copy; the sentinels
`LATEST` and `UNKNOWN` are negative and sort before every real lag; the pool is charged for a movement that gets no
warm-up, and so goes below zero; stateless tasks are dealt out anew each time. Left out: rack-aware traffic costs
(KIP-925), spreading over the threads of a process, and the fallback used when no lag can be read.

The work is done as Kafka does it, with the lags of every client for every task in a table and in order, so that the
time it takes can stand for Kafka's design.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from batonpass.simulate.kip441_ideal import Draft, LeastLoaded, place_actives, place_standbys
from batonpass.simulate.kip441_model import (
    LATEST,
    UNBOUNDED_LAG,
    UNKNOWN,
    Assignment,
    ClientReport,
    ClientState,
    ClientTasks,
    Kip441Config,
    Task,
    TaskSet,
    lags_of,
)

__all__ = [
    "LATEST",
    "UNBOUNDED_LAG",
    "UNKNOWN",
    "Assignment",
    "ClientReport",
    "ClientState",
    "ClientTasks",
    "Kip441Config",
    "Task",
    "TaskSet",
    "assign",
    "assign_reported",
    "lags_of",
]


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

    movements = _Movements(drafts, _readiness(states, stateful, config), config.max_warmup_replicas)
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


def assign_reported(
    reports: Iterable[ClientReport], tasks: TaskSet, config: Kip441Config, *, end_offsets: Mapping[Task, int]
) -> Assignment:
    """Place every task from what the clients report: the leader's whole decision, its table of lags included.

    This is the unit to time against a decision that starts from what members report. `end_offsets` has the summed
    end of every stateful task's changelogs.
    """
    return assign(
        [
            ClientState(report.client, lags_of(end_offsets, report.offset_sums), report.capacity, report.tags)
            for report in reports
        ],
        tasks,
        config,
    )


@dataclass(frozen=True, slots=True)
class _Readiness:
    """Who is caught up on what, and who comes next.

    `by_lag` has every client for every task, lowest lag first, ties by process id.
    """

    lags: Mapping[str, Mapping[Task, int]]
    caught_up: Mapping[Task, set[str]]
    by_lag: Mapping[Task, Sequence[str]]

    def must_wait(self, task: Task, client: str) -> bool:
        """Whether the client is not caught up on the task while another has strictly less to restore."""
        if client in self.caught_up[task]:
            return False
        least = self.lags[self.by_lag[task][0]][task]
        return least < self.lags[client][task]


def _readiness(states: Sequence[ClientState], stateful: Sequence[Task], config: Kip441Config) -> _Readiness:
    """Rank every client for every task."""
    caught_up: dict[Task, set[str]] = {}
    by_lag: dict[Task, Sequence[str]] = {}
    acceptable = config.acceptable_recovery_lag
    for task in stateful:
        ready: set[str] = set()
        ranked: list[tuple[int, str]] = []
        for state in states:
            lag = state.lags[task]
            if lag == LATEST or acceptable == UNBOUNDED_LAG or 0 <= lag <= acceptable:
                ready.add(state.client)
            ranked.append((lag, state.client))
        ranked.sort()
        caught_up[task] = ready
        by_lag[task] = [client for _, client in ranked]
    return _Readiness(lags={state.client: state.lags for state in states}, caught_up=caught_up, by_lag=by_lag)


class _Movements:
    """The second half of the assignor: copies that are not warm give way to copies that are.

    The warm-ups left are counted across actives and standbys alike.
    """

    def __init__(self, drafts: Mapping[str, Draft], readiness: _Readiness, max_warmup_replicas: int) -> None:
        self._drafts = drafts
        self._readiness = readiness
        self._warmups_left = max_warmup_replicas

    def postpone_actives(self) -> int:
        """Give every active that would start behind to a client that is further; return how many that were."""
        queue = self._queue((task, draft) for draft in self._drafts.values() for task in draft.active)
        by_load = self._by_load()
        for task, destination in queue:
            source = by_load.poll(task, self._is_caught_up_standby)
            if source is not None:
                self._swap(task, source, destination)
            else:
                source = by_load.poll(task, self._is_caught_up)
                if source is None:
                    # Somebody has less to restore than the destination, or it would not have to wait.
                    source = self._drafts[self._readiness.by_lag[task][0]]
                if task in source.standby:
                    self._swap(task, source, destination)
                else:
                    self._move_active(task, source, destination)
            by_load.offer(source, destination)
        return len(queue)

    def postpone_standbys(self) -> int:
        """Give every standby that would start behind to a client that is further, where there is one; count those.

        Warm-ups are left alone: they are behind by their nature.
        """
        queue = self._queue(
            (task, draft) for draft in self._drafts.values() for task in draft.standby if task not in draft.warmup
        )
        by_load = self._by_load()
        found = 0
        for task, destination in queue:
            source = by_load.poll(task, self._is_caught_up_without_copy)
            if source is None:
                source = self._furthest_without_copy(task, destination)
                if source is None:
                    continue
            found += 1
            source.add_standby(task)
            if self._pays_for_warmup():
                destination.warmup.add(task)
            else:
                destination.remove_standby(task)
            by_load.offer(source, destination)
        return found

    def _queue(self, placed: Iterable[tuple[Task, Draft]]) -> list[tuple[Task, Draft]]:
        """What must wait, the tasks with the fewest caught-up clients first."""
        caught_up = self._readiness.caught_up
        waiting = [(task, draft) for task, draft in placed if self._readiness.must_wait(task, draft.client)]
        return sorted(waiting, key=lambda item: (len(caught_up[item[0]]), item[0], item[1].client))

    def _by_load(self) -> LeastLoaded:
        return LeastLoaded(self._drafts.values(), lambda draft: draft.load)

    def _is_caught_up(self, draft: Draft, task: Task) -> bool:
        return draft.client in self._readiness.caught_up[task]

    def _is_caught_up_standby(self, draft: Draft, task: Task) -> bool:
        return task in draft.standby and draft.client in self._readiness.caught_up[task]

    def _is_caught_up_without_copy(self, draft: Draft, task: Task) -> bool:
        return draft.client in self._readiness.caught_up[task] and not draft.holds(task)

    def _furthest_without_copy(self, task: Task, destination: Draft) -> Draft | None:
        """The client without a copy that has least to restore, of those before the destination in lag order."""
        for client in self._readiness.by_lag[task]:
            if client == destination.client:
                return None
            if not self._drafts[client].holds(task):
                return self._drafts[client]
        return None

    def _swap(self, task: Task, source: Draft, destination: Draft) -> None:
        """Let a standby and the ideal owner change places; no copy is added, so none has to be paid for."""
        destination.remove_active(task)
        source.remove_standby(task)
        source.add_active(task)
        destination.add_standby(task)

    def _move_active(self, task: Task, source: Draft, destination: Draft) -> None:
        """Put the active where its state is, and a warm-up where it belongs if there is one left."""
        destination.remove_active(task)
        source.add_active(task)
        if self._pays_for_warmup():
            destination.add_standby(task)
            destination.warmup.add(task)

    def _pays_for_warmup(self) -> bool:
        """Charge the pool, and say whether there was anything in it."""
        self._warmups_left -= 1
        return self._warmups_left >= 0


def _place_stateless(drafts: Mapping[str, Draft], tasks: Sequence[Task]) -> None:
    """Give every stateless task to the client with the fewest actives per thread, whoever had it before."""
    by_load = [(draft.active_load, draft.client) for draft in drafts.values()]
    heapq.heapify(by_load)
    for task in tasks:
        draft = drafts[by_load[0][1]]
        draft.add_active(task)
        heapq.heapreplace(by_load, (draft.active_load, draft.client))
