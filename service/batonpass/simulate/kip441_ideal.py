"""Where Kafka's assignor wants every stateful task to be, with no regard to where it is.

The ideal placement depends on process ids, capacities, tags and task ids alone: actives are dealt out by turns and
evened out, standbys go to whoever has least (KIP-441; with tags KIP-708). Neither owners nor lags are looked at, which
makes the goal the same from one probing rebalance to the next, and far from the present state after a change. How the
group gets there is decided in `kip441`.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from batonpass.simulate.kip441_model import ClientState, Kip441Config, Task


class Draft:
    """One client's share of the assignment that is being made."""

    __slots__ = ("active", "capacity", "client", "load", "standby", "tags", "warmup")

    def __init__(self, state: ClientState) -> None:
        self.client = state.client
        self.capacity = state.capacity
        self.tags = state.tags
        self.active: set[Task] = set()
        self.standby: set[Task] = set()
        self.warmup: set[Task] = set()
        self.load = 0.0

    @property
    def active_load(self) -> float:
        """Actives per thread."""
        return len(self.active) / self.capacity

    def holds(self, task: Task) -> bool:
        """Whether any copy of the task is here."""
        return task in self.active or task in self.standby

    def add_active(self, task: Task) -> None:
        """Make this client the task's owner."""
        self.active.add(task)
        self._weigh()

    def remove_active(self, task: Task) -> None:
        """Take the task's active from this client."""
        self.active.remove(task)
        self._weigh()

    def add_standby(self, task: Task) -> None:
        """Place a copy of the task here."""
        self.standby.add(task)
        self._weigh()

    def remove_standby(self, task: Task) -> None:
        """Take the task's copy from here."""
        self.standby.remove(task)
        self._weigh()

    def _weigh(self) -> None:
        self.load = (len(self.active) + len(self.standby)) / self.capacity


class LeastLoaded:
    """Clients in the order of a load, ties by process id, from which a fitting one is taken and put back.

    Kafka keeps the same kind of queue: clients that do not fit are taken out, set aside and put back, so that a look
    costs more the more clients do not fit. A client's load is read when it is put in.
    """

    def __init__(self, drafts: Iterable[Draft], load: Callable[[Draft], float]) -> None:
        self._load = load
        self._drafts: dict[str, Draft] = {}
        self._queued: dict[str, tuple[float, str]] = {}
        self._heap: list[tuple[float, str]] = []
        self.offer(*drafts)

    def offer(self, *drafts: Draft) -> None:
        """Put clients in, or correct the loads of those that are in."""
        for draft in drafts:
            entry = (self._load(draft), draft.client)
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
                continue  # The load was corrected since, so a later entry speaks for this client.
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
        drafts[turn % len(drafts)].add_active(task)

    def move(task: Task, source: Draft, destination: Draft) -> None:
        source.remove_active(task)
        destination.add_active(task)

    _even_out(drafts, lambda draft: draft.active, move, lambda _source, _destination: True)


def place_standbys(drafts: Sequence[Draft], tasks: Sequence[Task], config: Kip441Config) -> None:
    """Place the standbys of every task, by tags where the group has them, then even out what clients hold."""
    by_load = LeastLoaded(drafts, lambda draft: draft.load)
    missing = dict.fromkeys(tasks, config.num_standby_replicas)
    if config.rack_aware_tags:
        _place_by_tags(drafts, by_load, missing, config.rack_aware_tags)
    for task, count in missing.items():
        for _ in range(count):
            draft = by_load.poll(task, _holds_no_copy)
            if draft is None:
                break  # Fewer clients than copies: Kafka warns, and the task has fewer.
            draft.add_standby(task)
            by_load.offer(draft)

    def move(task: Task, source: Draft, destination: Draft) -> None:
        source.remove_standby(task)
        destination.add_standby(task)

    def may_move(source: Draft, destination: Draft) -> bool:
        return not config.rack_aware_tags or all(destination.tags.get(key) == source.tags[key] for key in source.tags)

    _even_out(drafts, lambda draft: draft.standby, move, may_move)


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
            draft = by_load.poll(task, _Apart(used))
            if draft is None:
                break
            draft.add_standby(task)
            by_load.offer(draft)
            missing[task] -= 1
            latest = draft


@dataclass(frozen=True, slots=True)
class _Apart:
    """Says whether a client holds no copy of a task and has none of the used tag values."""

    used: set[tuple[str, str]]

    def __call__(self, draft: Draft, task: Task) -> bool:
        return not draft.holds(task) and all(draft.tags.get(key) != value for key, value in self.used)


def _even_out(
    drafts: Sequence[Draft],
    tasks_of: Callable[[Draft], Iterable[Task]],
    move: Callable[[Task, Draft, Draft], None],
    may_move: Callable[[Draft, Draft], bool],
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
                    move(task, source, destination)
                    moved = True
                    if not _evens_out(source, destination):
                        break


def _evens_out(source: Draft, destination: Draft) -> bool:
    """Whether one task moved makes the two clients' loads more alike without tipping the scale."""
    skew = source.load - destination.load
    if skew <= 0:
        return False
    source_after = (len(source.active) + len(source.standby) - 1) / source.capacity
    destination_after = (len(destination.active) + len(destination.standby) + 1) / destination.capacity
    return 0 <= source_after - destination_after < skew
