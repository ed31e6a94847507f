"""A group of Kafka Streams processes in virtual time, driven by a scenario: joins, closes, crashes, returns.

The assignor (`assignor`, or `eager`) decides; the rest is what the classic group protocol and Streams do at each event:

- *Rebalance.* A process that knows of the trigger rejoins at once, every other one with its next heartbeat, and the
  group goes on when the last one has. It waits for a process that is gone without a leave until its session is over.
  Meanwhile members of a cooperative group go on processing; members of an eager one stop as they rejoin.
- *Two-step handover* (KIP-429). A task that another process still runs is withheld from its new owner; the old owner
  revokes it, and a second rebalance follows at once, in which the assignor decides anew and the task is granted. No
  process has the task in between. A standby of it that the new owner had already is kept meanwhile. Old and new owners
  rejoin at once, the others with the next heartbeat: almost a whole interval later, since the rebalance before set all
  heartbeats in step (measured with real Kafka: half of such handovers took 3.4 s or more; 0.7 s where only the old and
  the new owner were in the group).
- *Probing* (KIP-441). An assignment that postponed anything sets one timer; a later assignment sets it anew.
- *Close.* Streams sends no leave by default, so the tasks of a closed process wait for its session to run out, as
  after a crash. With `leave_on_close` it leaves, as other consumers do and as `CloseOptions` can ask for.
- *Return.* With its state directory a process has its process id again, and reports what is on its disk. But its old
  session belongs to another member, and any rebalance waits for that session to end. With static membership, a process
  that returns in time takes the session over, and gets its tasks back without a rebalance. Without the directory it is
  a new process: `join` under a new id.
- *State on disk.* The state of a task that a process is no longer assigned stays on its disk for
  `state_cleanup_delay_ms`, where it counts as a copy with its lag. Then it is deleted.
- *Drain.* Kafka has none: a process that is to go can only be closed.

Heartbeats are not simulated one by one. Of n processes that do not know of a trigger, the i-th hears of it (i - 1/2)/n
of an interval later; a process that dies had sent its last heartbeat half an interval before. Fetching, commits and
syncing are one number, `rejoin_ms`. Time is milliseconds, and the same calls give the same run.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from batonpass.simulate.copies import Copies, Rates, Role
from batonpass.simulate.costs import PlayedGroup
from batonpass.simulate.kafka import eager
from batonpass.simulate.kafka.assignor import (
    LATEST,
    Assignment,
    ClientState,
    ClientTasks,
    Kip441Config,
    assign,
    lags_of,
)
from batonpass.simulate.tasks import Task, TaskSet

Assignor = Callable[[Iterable[ClientState], TaskSet, Kip441Config], Assignment]
"""What decides in a rebalance: `assignor.assign`, `eager.assign`."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How the group is configured, under Kafka's names and with Kafka's defaults.

    `rebalance_timeout_ms` is `max.poll.interval.ms`. `rejoin_ms` is what a rebalance takes beyond waiting for
    heartbeats and sessions: to revoke, commit, rejoin and sync.
    """

    assignor: Kip441Config = field(default_factory=Kip441Config)
    assign: Assignor = assign
    cooperative: bool = True
    probing_rebalance_interval_ms: int = 600_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000
    state_cleanup_delay_ms: int = 600_000
    leave_on_close: bool = False
    static_membership: bool = False
    rejoin_ms: int = 500

    def with_standbys(self, count: int) -> "KafkaSettings":
        return replace(self, assignor=replace(self.assignor, num_standby_replicas=count))


KAFKA_DEFAULTS = KafkaSettings()
"""Kafka Streams with its defaults: two warm-ups, a look every ten minutes."""

KAFKA_TUNED = KafkaSettings(assignor=Kip441Config(max_warmup_replicas=20), probing_rebalance_interval_ms=60_000)
"""Kafka Streams with twenty warm-ups, and a look every minute, which is as often as Kafka allows."""

EAGER = KafkaSettings(assign=eager.assign, cooperative=False, leave_on_close=True, state_cleanup_delay_ms=2**62)
"""Plain consumers: all stop at every rebalance, tasks are dealt out anew, and a closed process leaves.

State that is left on a disk is never deleted, which favours this arm: a task that returns restores only what it missed.
"""


@dataclass(slots=True)
class _Rebalance:
    """A rebalance that is not complete. In an eager group, `stopped` processes have given everything up for it."""

    started_ms: int
    rejoins_at_ms: dict[str, int]
    not_before_ms: int
    stopped: set[str] = field(default_factory=set)


class KafkaGroup(PlayedGroup):
    """A group of Kafka Streams processes, or of plain consumers."""

    def __init__(self, tasks: TaskSet, settings: KafkaSettings, rates: Rates) -> None:
        super().__init__(tasks)
        self._tasks = tasks
        self._settings = settings
        self._copies = Copies(frozenset(tasks.stateful).__contains__, rates, account=self._account)
        # Processes as the assignor sees them, but for their lags.
        self._up: dict[str, ClientState] = {}
        self._down: dict[str, tuple[ClientState, dict[Task, int]]] = {}
        # Until when the group waits for members that are gone without a leave, by process.
        self._silent_until_ms: dict[str, int] = {}
        self._returns_at_ms: dict[str, int] = {}
        self._assigned: dict[str, ClientTasks] = {}
        self._owners: dict[Task, str] = {}
        self._rebalance: _Rebalance | None = None
        self._probe_at_ms: int | None = None
        self.rebalances = 0
        """How many rebalances were completed since the change began."""

    @classmethod
    def at_rest(
        cls,
        tasks: TaskSet,
        settings: KafkaSettings,
        rates: Rates,
        *,
        capacities: Mapping[str, int],
        tags: Mapping[str, Mapping[str, str]] | None = None,
    ) -> "KafkaGroup":
        """A group that has long reached its ideal placement: every task runs, every standby is caught up."""
        group = cls(tasks, settings, rates)
        for client, capacity in sorted(capacities.items()):
            group._up[client] = ClientState(client, {}, capacity, (tags or {}).get(client, {}))
            group._copies.add_process(client, {})
        assignment = settings.assign(group._states(), tasks, settings.assignor)
        for client, assigned in assignment.clients.items():
            for task in assigned.copies:
                group._copies.hold_ready(client, task, Role.STANDBY)
            for task in assigned.active:
                group._copies.hold_ready(client, task, Role.ACTIVE)
                group._owners[task] = client
        group._account.granted(group._owners)
        group._assigned = dict(assignment.clients)
        group._rest_at_ms = 0
        group.begin_change()
        return group

    @property
    def now_ms(self) -> int:
        return self._copies.now_ms

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(sorted(self._up))

    @property
    def owners(self) -> Mapping[Task, str]:
        """The process that was granted each task and has not given it up; a task without an owner is left out."""
        return dict(self._owners)

    def join(self, client: str, *, disk: Mapping[Task, int] | None = None) -> None:
        """Start a new process; `disk` has the positions of the state that it finds on its disk.

        Raises:
            ValueError: The id is known already.
        """
        if client in self._up or client in self._down:
            raise ValueError(f"process {client} is not new; one that was here before comes back")
        self._up[client] = ClientState(client, {})
        self._copies.add_process(client, disk or {})
        self._rejoin(client)

    def close(self, client: str, *, leave: bool | None = None) -> None:
        """Stop a process in good order; without `leave` its session runs on (None: as the group is configured)."""
        self._stop(client)
        if self._settings.leave_on_close if leave is None else leave:
            if self._rebalance is None:
                self._start(set())
        else:
            self._wait_for(client)

    def drain(self, client: str) -> None:
        """Close a process: that is all that can be done here."""
        self.close(client)

    def crash(self, client: str) -> None:
        self._stop(client)
        self._wait_for(client)

    def come_back(self, client: str) -> None:
        """Start a closed or crashed process again, with its state directory.

        Raises:
            ValueError: The process is not down.
        """
        if client not in self._down:
            raise ValueError(f"process {client} is not down")
        self._up[client], disk = self._down.pop(client)
        self._copies.add_process(client, disk)
        takes_session_over = self._settings.static_membership and client in self._silent_until_ms
        if takes_session_over:
            del self._silent_until_ms[client]
        if takes_session_over and client in self._assigned and self._rebalance is None:
            self._returns_at_ms[client] = self.now_ms + self._settings.rejoin_ms
        else:
            self._rejoin(client)

    def begin_change(self) -> None:
        super().begin_change()
        self.rebalances = 0

    def _restored_records(self) -> float:
        return self._copies.restored_records

    def _has_come_to_rest(self) -> bool:
        still_to_come = self._rebalance or self._probe_at_ms is not None or self._silent_until_ms or self._returns_at_ms
        everything_runs = len(self._owners) == len(self._tasks.stateful) + len(self._tasks.stateless)
        return not still_to_come and everything_runs and self._copies.all_current()

    @property
    def next_ms(self) -> int | None:
        moments = [*self._returns_at_ms.values(), *self._silent_until_ms.values()]
        arrival = self._copies.next_arrival_ms()
        moments += [moment for moment in (arrival, self._probe_at_ms) if moment is not None]
        if self._rebalance is not None:
            moments.append(self._completes_at_ms(self._rebalance))
            moments += [at for client, at in self._rebalance.rejoins_at_ms.items() if self._must_stop(client)]
        return max(min(moments), self.now_ms) if moments else None

    def _pass_to(self, to_ms: int) -> None:
        self._copies.advance(to_ms)

    def _happen(self, due_ms: int) -> None:
        self._pass_to(due_ms)
        now = self.now_ms
        for client in [client for client, at in self._returns_at_ms.items() if at <= now]:
            del self._returns_at_ms[client]
            self._resume(client)
        for client in [client for client, at in self._silent_until_ms.items() if at <= now]:
            self._expire(client)
        rebalance = self._rebalance
        if rebalance is not None:
            for client in [client for client, at in rebalance.rejoins_at_ms.items() if at <= now]:
                if self._must_stop(client):
                    self._give_everything_up(client)
                    rebalance.stopped.add(client)
            if self._completes_at_ms(rebalance) <= now:
                self._complete()
        elif self._probe_at_ms is not None and self._probe_at_ms <= now:
            # One consumer of the leader has the timer: it rejoins, and the others hear of it.
            self._start({min(self._up)} if self._up else set())

    # Membership.

    def _rejoin(self, client: str) -> None:
        self._rest_at_ms = None
        if self._rebalance is None:
            self._start({client})
        else:
            self._rebalance.rejoins_at_ms[client] = self.now_ms

    def _stop(self, client: str) -> None:
        self._rest_at_ms = None
        process = self._up.pop(client)
        self._give_everything_up(client)
        self._down[client] = (process, self._copies.stop_process(client))
        self._returns_at_ms.pop(client, None)
        if self._rebalance is not None:
            self._rebalance.rejoins_at_ms.pop(client, None)

    def _wait_for(self, client: str) -> None:
        silent_ms = self._settings.session_timeout_ms - self._settings.heartbeat_interval_ms // 2
        self._silent_until_ms[client] = self.now_ms + silent_ms

    def _expire(self, client: str) -> None:
        del self._silent_until_ms[client]
        if self._rebalance is not None:
            self._rebalance.not_before_ms = self.now_ms
        else:
            self._start(set())

    def _resume(self, client: str) -> None:
        """Give a static member that is back in time its tasks again, without a rebalance."""
        assigned = self._assigned[client]
        for task in assigned.copies:
            self._copies.hold(client, task, Role.STANDBY)
        for task in assigned.active:
            self._grant(client, task)

    # Rebalances.

    def _start(self, informed: set[str], *, in_step: bool = False) -> None:
        """Begin a rebalance; a process that is not `informed` hears of it with its next heartbeat."""
        self._probe_at_ms = None
        rejoins_at_ms = {client: self.now_ms for client in sorted(informed) if client in self._up}
        others = sorted(self._up.keys() - informed)
        interval_ms = self._settings.heartbeat_interval_ms
        for place, client in enumerate(others):
            share = interval_ms if in_step else interval_ms * (2 * place + 1) // (2 * len(others))
            rejoins_at_ms[client] = self.now_ms + share
        self._rebalance = _Rebalance(self.now_ms, rejoins_at_ms, not_before_ms=self.now_ms)

    def _completes_at_ms(self, rebalance: _Rebalance) -> int:
        patience_ms = rebalance.started_ms + self._settings.rebalance_timeout_ms
        waits = [min(until, patience_ms) for until in self._silent_until_ms.values()]
        last = max([rebalance.not_before_ms, *rebalance.rejoins_at_ms.values(), *waits])
        return last + self._settings.rejoin_ms

    def _must_stop(self, client: str) -> bool:
        rebalance = self._rebalance
        return rebalance is not None and not self._settings.cooperative and client not in rebalance.stopped

    def _complete(self) -> None:
        """Decide, apply the assignment, and begin another rebalance at once if a task had to be withheld."""
        self._rebalance = None
        # The group has waited long enough for members that are still silent: they are out.
        self._silent_until_ms.clear()
        if not self._up:
            return
        self._copies.clean_disks(older_than_ms=self._settings.state_cleanup_delay_ms)
        assignment = self._settings.assign(self._states(), self._tasks, self._settings.assignor)
        withheld = self._withhold(assignment)
        self._apply(assignment, withheld.keys())
        self._assigned = dict(assignment.clients)
        self.rebalances += 1
        self._account.granted(self._owners)
        if withheld:
            self._start({client for pair in withheld.values() for client in pair}, in_step=True)
        elif assignment.probing_needed:
            self._probe_at_ms = self.now_ms + self._settings.probing_rebalance_interval_ms

    def _states(self) -> list[ClientState]:
        copies = self._copies
        ends = {task: copies.end_offset(task) for task in self._tasks.stateful}
        states = []
        for client, process in self._up.items():
            runs = {
                task: LATEST
                for task, owner in self._owners.items()
                if owner == client and copies.is_current(client, task)
            }
            states.append(replace(process, lags=lags_of(ends, copies.positions(client) | runs)))
        return states

    def _withhold(self, assignment: Assignment) -> dict[Task, tuple[str, str]]:
        """Take every task from a holder that is not to keep it; return the holder and the owner that must wait."""
        withheld: dict[Task, tuple[str, str]] = {}
        for task, owner in sorted(assignment.owners.items()):
            holder = self._owners.get(task, owner)
            if holder != owner:
                self._give_up(holder, task)
                withheld[task] = (holder, owner)
        return withheld

    def _apply(self, assignment: Assignment, withheld: Collection[Task]) -> None:
        """Bring every process's copies to its assignment; a withheld task has no owner, and its copies stay."""
        for client, assigned in assignment.clients.items():
            for task in self._copies.held(client):
                if task not in assigned.active and task not in assigned.copies:
                    self._copies.drop(client, task)
            for task in assigned.copies:
                self._copies.hold(client, task, Role.STANDBY)
            for task in assigned.active:
                if task not in withheld:
                    self._grant(client, task)

    def _grant(self, client: str, task: Task) -> None:
        self._owners[task] = client
        self._copies.hold(client, task, Role.ACTIVE)

    def _give_up(self, client: str, task: Task) -> None:
        del self._owners[task]
        self._copies.drop(client, task)

    def _give_everything_up(self, client: str) -> None:
        for task in sorted(task for task, owner in self._owners.items() if owner == client):
            self._give_up(client, task)
