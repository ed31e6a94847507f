"""A group under Batonpass in virtual time, with what `KafkaGroup` has: joins, closes, crashes, returns; and drains.

Every decision is the real core's (`core.decide`), and every member is driven by the real machine of the protocol: its
heartbeats every `heartbeat_interval_ms` and the urgent ones in between, its long-poll, its lease, and the order in
which it stops and starts. The wire loses nothing and the log takes every append; `simulate.world` has the faults.

- *Warm handover.* The owner stops with its last commit, which takes `stop_ms`, and says so; the new owner restores what
  is left and runs. The task is nobody's from the first stop to that moment.
- *Close.* With `leave` a member says goodbye; without, it says that it restarts, and its place is kept for
  `rejoin_grace_ms`. Kafka Streams says nothing in either case.
- *Crash.* The tasks wait for the lease, as Kafka's do for the session. Members whose outputs are fenced
  (`on_lease_lost: continue`) are suspected as soon as their long-poll breaks.
- *Return.* A member comes back under its instance id, vouching for the end of the run before it (`takeover`), as a
  StatefulSet may.
- *Drain.* The member keeps what it has until others can take over, and leaves when it has no active task left.

Processes restore, and changelogs grow, exactly as in the other arms. State that is left on a disk stays there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from batonpass.core.ids import GroupId
from batonpass.core.inputs import GroupDeclaration, Tick
from batonpass.core.model import Group
from batonpass.core.soft import Soft
from batonpass.simulate.declared import topology_of
from batonpass.simulate.ideal_coordinator import IdealCoordinator, Observe
from batonpass.simulate.ideal_worker import Ground, IdealWorker, Stint, name_of, task_of
from batonpass.simulate.kafka_copies import Copies, World
from batonpass.simulate.kafka_ledger import GroupOutcome, Ledger
from batonpass.simulate.kip441 import Task, TaskSet
from batonpass.simulate.timeline import Timeline
from batonpass.worker.protocol import LeaveMode, MemberProtocol, MemberSettings, OnLeaseLost, Phase, Progress

# A group with nothing to restore is at rest some seconds after its first member joined.
SETTLING_MS = 600_000
SAID_HEARTBEATS = 2
"""For so many intervals after a group came to rest, and before anything is to happen to it, no heartbeat is skipped."""


@dataclass(frozen=True, slots=True)
class BatonpassSettings:
    """How the group is configured: `config` has the group's settings that are not the defaults, by name.

    `stop_ms` is what a stop with its commit takes. It is set to the half second that the Kafka arms take to revoke,
    commit, rejoin and sync, which favours them. Workers look at their own restores every `look_ms`. The group is called
    `group_id`, and its virtual time begins at `start_ms`.
    """

    config: Mapping[str, object] = field(default_factory=dict)
    on_lease_lost: OnLeaseLost = OnLeaseLost.STOP
    stop_ms: int = 500
    wire_ms: int = 10
    look_ms: int = 500
    group_id: str = "compared"
    start_ms: int = 0

    def with_standbys(self, count: int) -> BatonpassSettings:
        """The same with so many standbys of every task."""
        return self.having(num_standby_replicas=count)

    def having(self, **config: object) -> BatonpassSettings:
        """The same with these settings of the group."""
        return replace(self, config={**self.config, **config})


BATONPASS = BatonpassSettings()
"""Batonpass as it comes."""

BATONPASS_FENCED = BatonpassSettings(on_lease_lost=OnLeaseLost.CONTINUE)
"""The same with members that fence their outputs, so that a broken connection is enough to suspect them."""


class BatonpassGroup:
    """A group and its virtual clock; what happens, happens at `now_ms`, and `advance` lets time pass."""

    def __init__(
        self, tasks: TaskSet, settings: BatonpassSettings, world: World, *, observe: Observe | None = None
    ) -> None:
        """Declare a group without members; `observe` hears of every decision that writes records."""
        self._tasks = tasks
        self._settings = settings
        self._timeline = Timeline(settings.start_ms)
        self._ground = Ground(
            self._timeline,
            Copies(tasks, world, now_ms=settings.start_ms),
            Ledger((*tasks.stateful, *tasks.stateless), owners={}, now_ms=settings.start_ms, restored_records=0.0),
            stop_ms=settings.stop_ms,
            wire_ms=settings.wire_ms,
            look_ms=settings.look_ms,
        )
        self._stateful = frozenset(tasks.stateful)
        self._up: dict[str, IdealWorker] = {}
        self._down: dict[str, tuple[MemberSettings, dict[Task, int]]] = {}
        self._settings_of: dict[str, MemberSettings] = {}
        self._client_of: dict[str, str] = {}
        self._runs: dict[str, int] = {}
        self._last_owners: dict[Task, str] = {}
        self._generation_before = 0
        # Since when the group has been at rest; None while it is not.
        self._rest_at_ms: int | None = None
        self._coordinator = IdealCoordinator(
            self._timeline, self._committed, group_id=settings.group_id, observe=observe
        )
        self._coordinator.take(GroupDeclaration(GroupId(settings.group_id), topology_of(tasks), settings.config))

    @classmethod
    def at_rest(
        cls,
        tasks: TaskSet,
        settings: BatonpassSettings,
        world: World,
        *,
        capacities: Mapping[str, int],
        tags: Mapping[str, Mapping[str, str]] | None = None,
    ) -> BatonpassGroup:
        """A group that has had its target for long: everything runs, every standby is caught up.

        Raises:
            RuntimeError: It does not come to rest although nothing takes time to restore.
        """
        group = cls(tasks, settings, world)
        for place, (client, capacity) in enumerate(sorted(capacities.items())):
            # Heartbeats of different members do not fall on one instant.
            group.advance(3_000 * place // (2 * len(capacities)))
            group.join(client, capacity=capacity, tags=(tags or {}).get(client))
        group.settle()
        return group

    def settle(self) -> None:
        """Come to rest with nothing taking time to restore; from here on it does, and everything is counted.

        A group without members has nobody who could run anything, and is left as it is.

        Raises:
            RuntimeError: It does not come to rest.
        """
        if self._up and not self.run_to_rest(limit_ms=self._settings.start_ms + SETTLING_MS):
            unsettled = sorted(self._coordinator.group.unsettled)
            which = f"{len(unsettled)} tasks, such as {unsettled[0]}, do not" if unsettled else "copies go on restoring"
            raise RuntimeError(f"the group does not come to rest: {which}")
        self._ground.is_instant = False
        self.begin_change()

    @property
    def now_ms(self) -> int:
        """The group's virtual time."""
        return self._timeline.now_ms

    @property
    def members(self) -> tuple[str, ...]:
        """The processes that are up, sorted."""
        return tuple(sorted(self._up))

    @property
    def owners(self) -> Mapping[Task, str]:
        """Who was granted each task and has not given it up; a task that nobody has is left out."""
        tasks = self._coordinator.group.tasks
        return {
            task_of(name): self._client_of[one.owner] for name, one in sorted(tasks.items()) if one.owner is not None
        }

    @property
    def group(self) -> Group:
        """The group as its records add up to it."""
        return self._coordinator.group

    @property
    def soft(self) -> Soft:
        """What the coordinator has heard of the members."""
        return self._coordinator.soft

    @property
    def stints(self) -> tuple[Stint, ...]:
        """Who had which task as its active when, in the order of their ends; what goes on comes last."""
        return (*self._ground.stints, *self._ground.open_stints.values())

    @property
    def is_at_rest(self) -> bool:
        """Whether everything runs, every copy has reached the end, and there is nothing to look at later."""
        return self._rest_at_ms is not None

    @property
    def decisions(self) -> int:
        """How often the core was asked."""
        return self._coordinator.decisions

    def join(
        self,
        client: str,
        *,
        capacity: float = 1,
        tags: Mapping[str, str] | None = None,
        disk: Mapping[Task, int] | None = None,
        on_lease_lost: OnLeaseLost | None = None,
    ) -> None:
        """Start a new process; `disk` has the positions of state that it finds there.

        Raises:
            ValueError: The id is known already.
        """
        if self.has_known(client):
            raise ValueError(f"process {client} is not new; one that was here before comes back")
        settings = MemberSettings(
            instance_id=client,
            capacity=capacity,
            client_tags=dict(tags or {}),
            on_lease_lost=on_lease_lost or self._settings.on_lease_lost,
        )
        self._boot(client, settings, disk or {})

    def close(self, client: str, *, leave: bool | None = None) -> None:
        """Stop a process in good order: for good with `leave`, else to come back."""
        self._rest_at_ms = None
        self._up[client].leave(LeaveMode.LEAVE if leave else LeaveMode.RESTART)

    def has_known(self, client: str) -> bool:
        """Whether a process of this name runs, or has run."""
        return client in self._up or client in self._down

    def drain(self, client: str, *, deadline_ms: int | None = None) -> None:
        """Let a process hand over everything, within so much time where there is a limit, and leave then."""
        self._rest_at_ms = None
        self._up[client].drain(deadline_ms=deadline_ms)

    def restart_coordinator(self) -> None:
        """Have the coordinator start again, with the records and without what it had heard."""
        self._rest_at_ms = None
        self._coordinator.start_again()

    def crash(self, client: str, *, unflushed_records: int = 0) -> None:
        """Kill a process; what is on its disk is short of its copies by so many records."""
        worker = self._up[client]
        self._take_down(worker, unflushed_records=unflushed_records)
        if worker.machine.member_id is not None:
            self._timeline.after(self._settings.wire_ms, self._coordinator.poll_broke, worker.machine.member_id)

    def come_back(self, client: str, *, keeps_disk: bool = True) -> None:
        """Start a process again that was closed or crashed, with its state on disk unless that is lost.

        Raises:
            ValueError: It is not down.
        """
        if client not in self._down:
            raise ValueError(f"process {client} is not down")
        settings, disk = self._down.pop(client)
        self._boot(client, replace(settings, takeover=True), disk if keeps_disk else {})

    def begin_change(self) -> None:
        """Count from here on."""
        ground = self._ground
        ground.catch_up()
        everything = (*self._tasks.stateful, *self._tasks.stateless)
        owners = {task: owner for task, owner in self._last_owners.items() if task in self._stateful}
        ground.ledger = Ledger(
            everything, owners=owners, now_ms=self.now_ms, restored_records=ground.copies.restored_records
        )
        for task in everything:
            runner = ground.running.get(task)
            if runner is None or not ground.copies.is_current(runner, task):
                ground.ledger.stopped(task, self.now_ms)
        self._generation_before = self._coordinator.group.generation

    def outcome(self) -> GroupOutcome:
        """What happened since the change began; a group that has not come to rest yet has no time to rest."""
        ground = self._ground
        ground.catch_up()
        found = ground.ledger.outcome(
            now_ms=self.now_ms, restored_records=ground.copies.restored_records, rest_at_ms=self._rest_at_ms
        )
        return replace(found, rebalances=self._coordinator.group.generation - self._generation_before)

    def advance(self, to_ms: int) -> None:
        """Let time pass until then; everything that falls due on the way happens."""
        while (due := self._next_event_ms()) is not None and due <= to_ms:
            self._happen(due)
        self._timeline.pass_to(to_ms)

    def advance_to_rest(self, to_ms: int, *, not_beyond_ms: int) -> None:
        """Let time pass until the earlier of the two, or until ``skip_rest`` to the first would skip something."""
        until_ms, awake_ms = min(to_ms, not_beyond_ms), to_ms - self._said_ms
        while (due := self._next_event_ms()) is not None and due <= until_ms:
            known_ms = self._rest_known_ms()
            if known_ms is not None and self.now_ms < known_ms <= due < awake_ms:
                self._timeline.pass_to(known_ms)
                return
            self._happen(due)
        self._timeline.pass_to(until_ms)

    def _rest_known_ms(self) -> int | None:
        """Return when everybody has said that there is nothing new; None where the group is not at rest."""
        if self._rest_at_ms is None:
            return None
        return self._rest_at_ms + self._said_ms

    @property
    def _said_ms(self) -> int:
        return SAID_HEARTBEATS * self.group.config.heartbeat_interval_ms

    def skip_rest(self, to_ms: int) -> None:
        """Go to shortly before then at once if the group is at rest: nothing would happen but heartbeats alike.

        All that is left out is members' saying the same again. Leases, waits and clocks go on from where they were.
        """
        by_ms = to_ms - self._said_ms - self.now_ms
        if by_ms > 0 and (known_ms := self._rest_known_ms()) is not None and known_ms <= self.now_ms:
            self._timeline.leap(by_ms)
            self._coordinator.leap(by_ms)
            self._ground.skipped_ms += by_ms
            self._ground.catch_up()
            self._coordinator.take(Tick())

    def run_to_rest(self, *, limit_ms: int) -> bool:
        """Let time pass until nothing is under way or still to come; False if it still is at the limit.

        At rest every task runs, every copy has reached the end, and the core has nothing to look at later.
        """
        while self._rest_at_ms is None:
            due = self._next_event_ms()
            if due is None or due > limit_ms:
                self._timeline.pass_to(limit_ms)
                return False
            self._happen(due)
        return True

    def _next_event_ms(self) -> int | None:
        moments = [moment for moment in (self._timeline.next_ms, self._ground.next_arrival_ms()) if moment is not None]
        return min(moments, default=None)

    def _happen(self, due_ms: int) -> None:
        ground = self._ground
        arrives = ground.next_arrival_ms() == due_ms
        if arrives:
            self._timeline.pass_to(due_ms)
            ground.catch_up()
            for client in sorted(self._up):
                self._up[client].look_for_arrivals()
        else:
            self._timeline.step()
        while ground.arrived:
            task = ground.arrived.pop()
            self._up[ground.running[task]].runs(task)
        if not self._is_at_rest():
            self._rest_at_ms = None
        elif self._rest_at_ms is None:
            self._rest_at_ms = self.now_ms

    def _is_at_rest(self) -> bool:
        group = self._coordinator.group
        if group.unsettled or group.placement_due_ms is not None or group.next_probe_ms is not None:
            return False
        if len(group.members) != len(self._up) or len(self._ground.running) != len(group.tasks):
            return False
        # A loop, not `all`: this is asked after everything that happens.
        for worker in self._up.values():
            if worker.behind or worker.leaves_when_drained or worker.machine.phase is not Phase.JOINED:
                return False
        return True

    def _boot(self, client: str, settings: MemberSettings, disk: Mapping[Task, int]) -> None:
        self._rest_at_ms = None
        ground = self._ground
        ground.start_process(client, disk)
        on_disk = {
            name_of(task): Progress(position=position, end_offset=ground.copies.end_offset(task))
            for task, position in sorted(disk.items())
        }
        machine = MemberProtocol(
            replace(settings, jitter_seed=len(self._client_of)), lambda: self._new_id(client), on_disk=on_disk
        )
        self._settings_of[client] = settings
        worker = self._up[client] = IdealWorker(client, ground, self._coordinator, machine, self._take_down)
        worker.start()

    def _new_id(self, client: str) -> str:
        self._runs[client] = run = self._runs.get(client, 0) + 1
        self._client_of[f"{client}.{run}"] = client
        return f"{client}.{run}"

    def _take_down(self, worker: IdealWorker, *, unflushed_records: int = 0) -> None:
        self._rest_at_ms = None
        worker.is_up = False
        client = worker.client
        del self._up[client]
        disk = self._ground.end_process(client, unflushed_records=unflushed_records)
        self._down[client] = (self._settings_of[client], disk)

    def _committed(self, group: Group) -> None:
        owners = {
            task_of(name): self._client_of[one.owner]
            for name, one in group.tasks.items()
            if one.owner is not None and task_of(name) in self._stateful
        }
        self._last_owners.update(owners)
        self._ground.ledger.granted(owners)
