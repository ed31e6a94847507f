"""A group under Batonpass on which a script can be played (joins, closes, crashes, ...), and what that costs.

It is a world (`simulate.world`) without faults: the wire loses nothing, the log takes every append, and everything
takes the same time each time. Every decision is the real core's, and every member is driven by the real machine of the
protocol.

- *Warm handover.* The owner stops with its last commit, and confirms; the new owner restores what is left and runs. No
  member runs the task in between.
- *Close.* With `leave` a member leaves for good. Without, it announces a restart, and its place is kept for
  `rejoin_grace_ms`. Kafka Streams announces neither.
- *Crash.* The tasks wait for the end of the lease, as Kafka's do for the session timeout. Members whose outputs are
  fenced (`on_lease_lost: continue`) are suspected as soon as their long-poll breaks.
- *Return.* A member comes back under its instance id and vouches that its last run has ended (`takeover`), as a
  StatefulSet may.
- *Drain.* The member keeps what it has until others can take over, and leaves when it has no active task left.

Processes restore, and changelogs grow, exactly as in the other arms. State that is left on a disk stays there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from batonpass.core.decide import Decision
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.state.inputs import Tick
from batonpass.core.state.model import Group
from batonpass.core.state.soft import Soft
from batonpass.core.wakeups import hold_ends_ms
from batonpass.simulate.coordinator import POLICY, SimulatedCoordinator
from batonpass.simulate.copies import Rates
from batonpass.simulate.costs import PlayedGroup
from batonpass.simulate.plan import Pace, WorkerPlan, WorldPlan
from batonpass.simulate.tasks import Task, TaskSet, task_of, topology_of
from batonpass.simulate.worker import Worker
from batonpass.simulate.world import World
from batonpass.worker.protocol import MemberSettings, OnLeaseLost

# A group with nothing to restore is at rest some seconds after its first member joined.
SETTLING_MS = 600_000
SAID_HEARTBEATS = 2
"""For so many heartbeat intervals after every position was reported, and before the next event, none is skipped."""


class NeverAtRest(ValueError):
    """With these members and settings the group does not come to rest before anything happens to it."""


STEADY = Pace(
    message=(10, 10), closing=(10, 10), commit=(500, 500), stop=(0, 0), close_copy=(0, 0), begin=(0, 0), look=(500, 500)
)
"""Everything takes the same time each time."""


@dataclass(frozen=True, slots=True)
class BatonpassSettings:
    """How the group is configured: `config` has the group's settings that are not the defaults, by name.

    A stop with its commit takes half a second: as long as the Kafka arms take to revoke, commit, rejoin and sync, which
    favours them. The group is called `group_id`, and its virtual time begins at `start_ms`.
    """

    config: Mapping[str, object] = field(default_factory=dict)
    on_lease_lost: OnLeaseLost = OnLeaseLost.STOP
    pace: Pace = STEADY
    group_id: str = "compared"
    start_ms: int = 0

    def with_standbys(self, count: int) -> "BatonpassSettings":
        return self.having(num_standby_replicas=count)

    def having(self, **config: object) -> "BatonpassSettings":
        return replace(self, config={**self.config, **config})


BATONPASS = BatonpassSettings()
"""Batonpass with its defaults."""

BATONPASS_FENCED = BatonpassSettings(on_lease_lost=OnLeaseLost.CONTINUE)
"""The same with members that fence their outputs, so that a broken connection is enough to suspect them."""


class BatonpassGroup(World, PlayedGroup):
    """A group under Batonpass."""

    def __init__(self, tasks: TaskSet, settings: BatonpassSettings, rates: Rates) -> None:
        """Declare a group without members."""
        PlayedGroup.__init__(self, tasks)
        self._settings = settings
        plan = WorldPlan(
            seed=0,
            topology=topology_of(tasks),
            config=settings.config,
            group_id=settings.group_id,
            start_ms=settings.start_ms,
            reads_ends=False,
            pace=settings.pace,
        )
        World.__init__(self, plan, rates=rates, check_laws=False)
        self.shared.is_instant = True
        self.shared.copies.account = self._account
        self.begin()

    @classmethod
    def at_rest(
        cls,
        tasks: TaskSet,
        settings: BatonpassSettings,
        rates: Rates,
        *,
        capacities: Mapping[str, int],
        tags: Mapping[str, Mapping[str, str]] | None = None,
    ) -> "BatonpassGroup":
        """A group that has long reached its target: every task runs, every standby is caught up.

        Raises:
            NeverAtRest: The group does not come to rest although restoring takes no time.
        """
        group = cls(tasks, settings, rates)
        for place, (client, capacity) in enumerate(sorted(capacities.items())):
            # Heartbeats of different members do not fall on one instant.
            group.advance(3_000 * place // (2 * len(capacities)))
            group.join(client, capacity=capacity, tags=(tags or {}).get(client))
        group.settle()
        return group

    def settle(self) -> None:
        """Come to rest while restoring takes no time; from then on it does, and costs are counted.

        A group without members cannot run anything, and is left as it is.

        Raises:
            NeverAtRest: The group does not come to rest.
        """
        if self.members and not self.run_to_rest(limit_ms=self._settings.start_ms + SETTLING_MS):
            unsettled = sorted(self.group.unsettled)
            which = f"{len(unsettled)} tasks, such as {unsettled[0]}, do not" if unsettled else "copies go on restoring"
            raise NeverAtRest(f"the group does not come to rest within ten minutes of its beginning: {which}")
        self.shared.is_instant = False
        self.begin_change()

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(sorted(worker.name for worker in self.workers if worker.is_up))

    @property
    def owners(self) -> Mapping[Task, str]:
        """The process that was granted each task and has not given it up; a task without an owner is left out."""
        return self._owners_of(self.group)

    def _owners_of(self, group: Group) -> dict[Task, str]:
        owner_of_id = self.shared.owner_of_id
        return {
            task_of(name): owner_of_id[one.owner].name
            for name, one in sorted(group.tasks.items())
            if one.owner is not None
        }

    @property
    def group(self) -> Group:
        """The group as its records add up to it."""
        return self.leader.group

    @property
    def soft(self) -> Soft:
        return self.leader.soft

    @property
    def is_at_rest(self) -> bool:
        """Whether every task runs, every copy has reached the end, and the core has nothing to look at later."""
        return self._rest_at_ms is not None

    @property
    def decisions(self) -> int:
        return sum(coordinator.decisions for coordinator in self.coordinators)

    def join(
        self,
        client: str,
        *,
        capacity: float = 1,
        tags: Mapping[str, str] | None = None,
        disk: Mapping[Task, int] | None = None,
        on_lease_lost: OnLeaseLost | None = None,
    ) -> None:
        """Start a new process; `disk` has the positions of the state that it finds on its disk.

        Raises:
            ValueError: The id is known already.
        """
        if client in self.named:
            raise ValueError(f"process {client} is not new; one that was here before comes back")
        settings = MemberSettings(
            instance_id=client,
            capacity=capacity,
            client_tags=dict(tags or {}),
            on_lease_lost=on_lease_lost or self._settings.on_lease_lost,
        )
        worker = self.add_worker(WorkerPlan(client, settings))
        worker.disk = dict(disk or {})
        self._rest_at_ms = None
        worker.boot()

    def close(self, client: str, *, leave: bool | None = None) -> None:
        """Stop a process in good order: for good with `leave`, else to come back."""
        self._up(client).leave(restart=not leave)

    def drain(self, client: str, *, deadline_ms: int | None = None) -> None:
        """Let a process hand over everything, within `deadline_ms` if there is one, and then leave."""
        self._up(client).drain(deadline_ms=deadline_ms, then_leave=True)

    def crash(self, client: str) -> None:
        """Kill a process; its disk has what its copies had."""
        self._up(client).kill()

    def _up(self, client: str) -> Worker:
        """Return a process that is up, and count the group as not at rest."""
        self._rest_at_ms = None
        worker = self.named[client]
        if not worker.is_up:
            raise KeyError(client)
        return worker

    def come_back(self, client: str, *, keeps_disk: bool = True) -> None:
        """Start a closed or crashed process again, with its state on disk unless that is lost.

        Raises:
            ValueError: The process is not down.
        """
        worker = self.named.get(client)
        if worker is None or worker.is_up:
            raise ValueError(f"process {client} is not down")
        if not keeps_disk:
            worker.disk = {}
        self._rest_at_ms = None
        worker.boot(takeover=True)

    def restart_coordinator(self) -> None:
        """Restart the coordinator: it has the records, but has lost its soft state."""
        self._rest_at_ms = None
        self.leader.stop(in_order=True)
        self.lead_anew()

    def use(self, loads: Mapping[Task, float]) -> None:
        """Let tasks use so much of one unit of capacity from now on, as workers say."""
        self.shared.loads = loads
        for worker in self.workers:
            for task in list(worker.tasks) if worker.is_up else ():
                worker.say_load(task)

    def _restored_records(self) -> float:
        self.shared.catch_up()
        return self.shared.copies.restored_records

    def _happen(self, _due_ms: int) -> None:
        self.step()

    def _pass_to(self, to_ms: int) -> None:
        self.clock.pass_to(to_ms)

    def advance_to_rest(self, to_ms: int, *, not_beyond_ms: int) -> None:
        """Let time pass until the earlier of the two, or until ``skip_rest(to_ms)`` would skip something."""
        until_ms = min(to_ms, not_beyond_ms)
        while (due := self.next_ms) is not None and due <= until_ms:
            known_ms = self._rest_known_ms()
            if known_ms is not None and self.now_ms < known_ms <= due < self._awake_ms(to_ms):
                self._pass_to(known_ms)
                return
            self._step(due)
        self._pass_to(until_ms)

    def _rest_known_ms(self) -> int | None:
        """Return when every member has reported that nothing is new; None if the group is not at rest.

        Where loads are said, each heartbeat counts: their averages go on.
        """
        if self._rest_at_ms is None or self.shared.loads:
            return None
        return self._rest_at_ms + self._said_ms

    @property
    def _said_ms(self) -> int:
        return self.group.report_interval_ms + SAID_HEARTBEATS * self.group.heartbeat_interval_ms

    def skip_rest(self, to_ms: int) -> None:
        """Jump to shortly before `to_ms` if the group is at rest: only identical heartbeats would happen until then.

        Only repeated reports of members are left out. Leases, waits and clocks go on from where they were. Nothing is
        left out of what time brings about in the group by itself, as when a host is trusted again.
        """
        if (known_ms := self._rest_known_ms()) is None or known_ms > self.now_ms:
            return
        if (by_ms := self._awake_ms(to_ms) - self.now_ms) > 0:
            self.leap(by_ms)
            self.leader.decide(Tick())

    def _awake_ms(self, to_ms: int) -> int:
        """Return until when nothing new happens in a group at rest to which nothing happens before `to_ms`."""
        ends = hold_ends_ms(DecisionDraft(self.group, self.soft, self.now_ms, POLICY))
        return min([to_ms, *ends]) - self._said_ms

    def _has_come_to_rest(self) -> bool:
        group = self.group
        if group.unsettled or group.placement_due_ms is not None or group.next_probe_ms is not None:
            return False
        if self.shared.copies.running != len(group.tasks):
            return False
        # A loop, not `all`, for speed: this runs after every step.
        up = 0
        for worker in self.workers:
            if worker.is_up:
                up += 1
                if worker.behind or worker.leaves_when_drained or not worker.is_joined:
                    return False
        return up == len(group.members)

    def committed(self, _coordinator: SimulatedCoordinator, decision: Decision) -> None:
        self._account.granted(self._owners_of(decision.after))
