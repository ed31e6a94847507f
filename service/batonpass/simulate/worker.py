"""Worker machines: processes that drive the real member's protocol, their disks, and what they do with each task.

The protocol's machine (`batonpass.worker.protocol`) decides what is sent when, and what stops before what starts.
Whether a task is being processed at this instant follows from the process, its own machine and its clock, not from what
a coordinator believes. The laws are checked against that.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from batonpass.core.state.numbers import WHOLE_MAX
from batonpass.simulate.clock import Clock
from batonpass.simulate.copies import Copies, Role
from batonpass.simulate.plan import Pace, ReportStyle, Span, WorkerPlan
from batonpass.simulate.tasks import Task, name_of, task_of
from batonpass.worker.protocol import (
    Instruction,
    LeaveMode,
    MemberProtocol,
    OnLeaseLost,
    Phase,
    Progress,
    Rejoining,
    Request,
    RoleChanged,
    Send,
    Start,
    StatusChanged,
    Stop,
    StopForGood,
)


class Activity(StrEnum):
    """What the process does with a task."""

    TAILING = "tailing"
    RESTORING = "restoring"
    RUNNING = "running"
    STOPPING = "stopping"
    FAILED = "failed"


@dataclass(slots=True)
class LocalTask:
    """One task in one process. ``token`` is 0 for a copy. An action that is due is skipped if ``turn`` has changed."""

    activity: Activity
    token: int
    turn: int


@dataclass(slots=True)
class MachineFaults:
    """Until when a machine is cut off, slow or stuck; instants of the world's time.

    Attributes:
        cut_until_ms: no coordinator can be reached.
        cut_poll_until_ms: no long-poll goes through.
        slow_until_ms: a commit takes seconds.
        hangs_until_ms: a commit ends only then.
        frozen_until_ms: nothing is restored.
        mute_until_ms: the worker cannot report how far a copy is.
        huge_until_ms: the worker reports that copies are as far behind as a number can say.
    """

    cut_until_ms: int = 0
    cut_poll_until_ms: int = 0
    slow_until_ms: int = 0
    hangs_until_ms: int = 0
    frozen_until_ms: int = 0
    mute_until_ms: int = 0
    huge_until_ms: int = 0


class SharedState:
    """What worker processes share: time, the copies of all of them, and the sinks that they write to.

    While ``is_instant`` is set, restoring takes no time; that is how a group gets to its first rest.
    """

    def __init__(self, clock: Clock, copies: Copies, pace: Pace, *, keep_looking: bool) -> None:
        self.clock = clock
        self.copies = copies
        self.pace = pace
        self.keep_looking = keep_looking
        self.is_instant = False
        # How much time was skipped in all; workers' clocks stood still meanwhile.
        self.skipped_ms = 0
        # The newest fencing token that the sink of each task has seen.
        self.sinks: dict[Task, int] = {}
        # How much of one unit of capacity tasks use, those of which workers say it.
        self.loads: Mapping[Task, float] = {}
        # The machine that each member runs, or has run, on.
        self.owner_of_id: dict[str, Worker] = {}
        # Tasks that a worker began or ceased to process since the laws were last checked.
        self.touched: dict[Task, None] = {}
        # Actives that have reached the end and whose process has not been told, as process and task.
        self.arrived: list[tuple[str, Task]] = []
        self._arrival_ms: int | None = None
        self._is_arrival_known = False

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms

    def next_arrival_ms(self) -> int | None:
        """When the next copy that restores may be at the end."""
        if not self._is_arrival_known:
            self.catch_up()
            self._arrival_ms, self._is_arrival_known = self.copies.next_arrival_ms(), True
        return self._arrival_ms

    def catch_up(self) -> None:
        """Let the copies restore until now."""
        if self.copies.now_ms == self.now_ms:
            return
        self.arrived += [(client, task) for client, task, _ in self.copies.advance(self.now_ms)]
        self._is_arrival_known = False

    def changing(self) -> Copies:
        """Return the copies as of now, for the caller to change."""
        self.catch_up()
        self._is_arrival_known = False
        return self.copies

    def hold(self, client: str, task: Task, role: Role) -> bool:
        """Give a process a copy in this role; True if that is an active that runs at once."""
        copies = self.changing()
        if self.is_instant and copies.role(client, task) in (None, Role.DISK):
            copies.hold_ready(client, task, role)
        else:
            copies.hold(client, task, role)
        return role is Role.ACTIVE and copies.is_current(client, task)

    def halt(self, client: str, task: Task, becomes: Role) -> int | None:
        """Have a process cease to run a task; return the end of its changelog if the process had reached it."""
        copies = self.changing()
        final = copies.end_offset(task) if copies.is_current(client, task) else None
        if becomes is Role.DISK:
            copies.drop(client, task)
        else:
            copies.hold(client, task, becomes)
        return final

    def end_of(self, task: Task) -> int:
        self.catch_up()
        return self.copies.end_offset(task)


class Worker:
    """One machine: its disk outlives the processes that run on it.

    ``send`` carries a request to a coordinator, ``gone`` is called when a process has ended, ``note`` writes a trace.
    """

    def __init__(
        self,
        plan: WorkerPlan,
        shared: SharedState,
        chance: Random,
        *,
        send: "Callable[[Worker, Request], None]",
        gone: "Callable[[Worker], None]",
        note: Callable[[str], None],
    ) -> None:
        self.plan = plan
        self.name = plan.name
        self.chance = chance
        self.disk: dict[Task, int] = {}
        self.tasks: dict[Task, LocalTask] = {}
        self.machine: MemberProtocol | None = None
        self.process = 0
        self.last_id: str | None = None
        self.faults = MachineFaults()
        self.leaving = False
        self.leaves_when_drained = False
        # A machine that is to stay away does not come back by itself.
        self.retired = False
        # Tasks whose copy has not reached the end, or has but was not reported to have.
        self.behind: set[Task] = set()
        # How often a task was told to stop while it was processed.
        self.interruptions = 0
        self._shared = shared
        self._send = send
        self._gone = gone
        self._note = note
        self._runs = 0
        self._turns = 0
        self._is_looking = False
        self._tick_at_ms: int | None = None
        # What waits for a suspended machine to wake; None while it is awake.
        self._backlog: list[tuple[Callable[..., None], tuple[object, ...]]] | None = None

    # --- the process --------------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether a process runs, even if it is suspended."""
        return self.machine is not None

    @property
    def is_suspended(self) -> bool:
        """Whether the machine is frozen: nothing of it runs until it wakes."""
        return self._backlog is not None

    @property
    def is_joined(self) -> bool:
        """Whether the process takes part in the group, as far as it knows."""
        return self.machine is not None and self.machine.phase is Phase.JOINED

    @property
    def clock_ms(self) -> int:
        """What this machine's clock says; it counts time spent suspended."""
        return self._shared.now_ms - self._shared.skipped_ms + self.plan.clock_offset_ms

    def boot(self, *, takeover: bool = False, replaces: bool = False) -> None:
        """Start a process with what is on disk. ``takeover`` and ``replaces`` vouch that the last one has ended."""
        if self.is_up:
            return
        self.process += 1
        self.leaving = self.leaves_when_drained = self.retired = False
        settings = replace(
            self.plan.settings,
            # Only an instance can be taken over.
            takeover=takeover and self.plan.settings.instance_id is not None,
            jitter_seed=len(self._shared.owner_of_id),
        )
        disk, self.disk = self.disk, {}
        self._shared.changing().add_process(self.name, disk)
        on_disk = {name_of(task): self._progress(task, position) for task, position in sorted(disk.items())}
        self.machine = MemberProtocol(
            settings, self._new_id, on_disk=on_disk, replaces=self.last_id if replaces else None
        )
        self._note(f"{self.name} starts process {self.process}")
        self.feed(lambda machine: machine.start(self.clock_ms))
        if self._shared.keep_looking:
            self._look_soon(self._draw(self._shared.pace.look))

    def _new_id(self) -> str:
        self._runs += 1
        self.last_id = f"{self.name}.{self._runs}"
        self._shared.owner_of_id[self.last_id] = self
        return self.last_id

    def kill(self) -> None:
        """End the process at once; what it restored stays on disk."""
        if self.is_up:
            self._note(f"{self.name} is killed")
            self._end()

    def _end(self) -> None:
        shared = self._shared
        for task, local in sorted(self.tasks.items()):
            if local.activity in (Activity.RESTORING, Activity.RUNNING):
                shared.halt(self.name, task, Role.DISK)
        self.disk = shared.changing().stop_process(self.name)
        self.machine = self._backlog = self._tick_at_ms = None
        self._is_looking = False
        self.tasks, self.behind = {}, set()
        self._gone(self)

    def suspend(self, for_ms: int) -> None:
        if self.is_up and not self.is_suspended:
            self._note(f"{self.name} is suspended for {for_ms} ms")
            self._backlog = []
            self._after(for_ms, self._wake, self.process)

    def _wake(self, process: int) -> None:
        if process != self.process or self._backlog is None:
            return
        self._note(f"{self.name} wakes")
        pending, self._backlog = self._backlog, None
        # Timers and sockets race when a machine wakes; either may come first.
        if self.chance.random() < 0.5:
            self.feed(lambda machine: machine.tick(self.clock_ms))
        for act, arguments in pending:
            act(*arguments)
        self.feed(lambda machine: machine.tick(self.clock_ms))

    def runs_as(self, process: int, act: Callable[..., None], *arguments: object) -> bool:
        """Return whether ``process`` may act now; if it is suspended, the act is queued until it wakes."""
        if process != self.process or not self.is_up:
            return False
        if self._backlog is not None:
            self._backlog.append((act, arguments))
            return False
        return True

    def feed(self, say: Callable[[MemberProtocol], list[Instruction]]) -> None:
        """Tell the machine something and carry out its instructions."""
        machine = self.machine
        if machine is None:
            return
        self._carry_out(say(machine))
        wake_ms = machine.wake_at_ms
        if wake_ms is not None and (self._tick_at_ms is None or wake_ms < self._tick_at_ms):
            self._tick_at_ms = wake_ms
            self._after(wake_ms - self.clock_ms, self._tick, self.process, wake_ms)

    def _tick(self, process: int, due_ms: int) -> None:
        """Tick, unless the timer was set anew to fire earlier and has done so."""
        if due_ms == self._tick_at_ms and self.runs_as(process, self._tick, process, due_ms):
            self._tick_at_ms = None
            self.feed(lambda machine: machine.tick(self.clock_ms))

    def _after(self, in_ms: int, act: Callable[..., None], *arguments: object) -> None:
        self._shared.clock.after(in_ms, act, *arguments)

    def _draw(self, span: Span) -> int:
        return self.chance.randint(*span)

    # --- what the machine says ----------------------------------------------------------------------------------

    def _carry_out(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Send(request):
                    self._send(self, request)
                case Stop(task, "active", commit, becomes):
                    self._stop(task_of(task), Role.DISK if becomes is None else Role.STANDBY, commit=commit)
                case Stop(task):
                    self._close(task_of(task))
                case Start(task, _, int() as token):
                    self._open(task_of(task), Activity.RESTORING, token)
                case Start(task):
                    self._open(task_of(task), Activity.TAILING, 0)
                case StatusChanged(statuses):
                    if self.leaves_when_drained and any(status.code == "drained" for status in statuses):
                        self._after(0, self._leave_drained, self.process)
                case Rejoining(old_member_id, cause):
                    self._note(f"{self.name} must rejoin as {old_member_id} was refused: {cause.type}")
                case StopForGood(reason):
                    self._note(f"{self.name} ends: {reason}")
                    self._after(0, self._exit, self.process)
                case RoleChanged():
                    pass
                case _:
                    self._note(f"{self.name}: {instruction}")

    def _exit(self, process: int) -> None:
        if process == self.process and self.is_up:
            if self.tasks:
                # The machine said that nothing more is sent; the process ends once its tasks have stopped.
                self._after(10, self._exit, process)
            else:
                self._end()

    def _leave_drained(self, process: int) -> None:
        if process == self.process and self.is_joined:
            self.leave(restart=False)

    def _open(self, task: Task, activity: Activity, token: int) -> None:
        """Open a copy of a task, to process it or to follow its changelog."""
        self._turns += 1
        self.tasks[task] = LocalTask(activity, token, self._turns)
        if token:
            sinks = self._shared.sinks
            sinks[task] = max(token, sinks.get(task, 0))
        self._hold(task)

    def _hold(self, task: Task) -> None:
        role = Role.ACTIVE if self.tasks[task].activity is Activity.RESTORING else Role.STANDBY
        if self._shared.hold(self.name, task, role):
            self._due_in(self._draw(self._shared.pace.begin), task, self._begun)
            return
        self.behind.add(task)
        self._look_soon(0)

    def _close(self, task: Task) -> None:
        """Give up a copy that is not active; its state stays on disk."""
        self._shared.changing().drop(self.name, task)
        self.behind.discard(task)
        self._due_in(self._draw(self._shared.pace.close_copy), task, self._stopped, None)

    def _stop(self, task: Task, becomes: Role, *, commit: bool) -> None:
        """Cease to process a task; with ``commit`` its last work is committed first, which takes a while."""
        local, shared = self.tasks[task], self._shared
        if commit and local.activity is Activity.RUNNING:
            self.interruptions += 1
        if local.activity is Activity.RUNNING:
            local.activity = Activity.STOPPING
        final = shared.halt(self.name, task, becomes)
        self.behind.discard(task)
        if becomes is Role.STANDBY:
            self._due_in(self._commit_ms(), task, self._demoted, final)
        else:
            takes_ms = self._commit_ms() if commit and final is not None else self._draw(shared.pace.stop)
            self._due_in(takes_ms, task, self._stopped, final)

    def _commit_ms(self) -> int:
        now_ms, faults = self._shared.now_ms, self.faults
        if now_ms < faults.hangs_until_ms:
            return faults.hangs_until_ms - now_ms
        return self._draw((500, 2_500) if now_ms < faults.slow_until_ms else self._shared.pace.commit)

    def _due_in(self, in_ms: int, task: Task, act: Callable[..., None], *arguments: object) -> None:
        """Call `act` for a task in a while, unless something else is scheduled for the task before."""
        self._turns += 1
        self.tasks[task].turn = self._turns
        self._after(in_ms, self._due, self.process, task, self._turns, act, *arguments)

    def _due(self, process: int, task: Task, turn: int, act: Callable[..., None], *arguments: object) -> None:
        if self.runs_as(process, self._due, process, task, turn, act, *arguments):
            local = self.tasks.get(task)
            if local is not None and local.turn == turn:
                act(task, *arguments)

    def _stopped(self, task: Task, final: int | None) -> None:
        del self.tasks[task]
        self._shared.touched[task] = None
        self.feed(lambda machine: machine.task_stopped(name_of(task), now_ms=self.clock_ms, final_position=final))

    def _demoted(self, task: Task, final: int | None) -> None:
        local = self.tasks[task]
        local.activity, local.token = Activity.TAILING, 0
        self.feed(lambda machine: machine.task_demoted(name_of(task), now_ms=self.clock_ms, final_position=final))
        self.behind.add(task)
        self._look()

    def begun(self, task: Task) -> None:
        """Called when an active has restored; it is processed from now on, unless it was stopped meanwhile."""
        if self.runs_as(self.process, self.begun, task) and task in self.tasks:
            self._begun(task)

    def _begun(self, task: Task) -> None:
        local = self.tasks[task]
        if local.activity is Activity.RESTORING and self._shared.copies.is_current(self.name, task):
            local.activity = Activity.RUNNING
            self.behind.discard(task)
            self._shared.touched[task] = None
            self.feed(lambda machine: machine.task_running(name_of(task), now_ms=self.clock_ms))
            self.say_load(task)

    def say_load(self, task: Task) -> None:
        """Say how much a task uses that runs here, if that is known."""
        load = self._shared.loads.get(task)
        if load is not None and self.tasks[task].activity is Activity.RUNNING:
            self.feed(lambda machine: machine.load(name_of(task), load, now_ms=self.clock_ms))

    # --- how far the copies are ---------------------------------------------------------------------------------

    def _look_soon(self, in_ms: int) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._after(in_ms, self._look_again, self.process)

    def _look_again(self, process: int) -> None:
        if not self.runs_as(process, self._look_again, process):
            return
        self._is_looking = False
        if self.behind or self._shared.keep_looking:
            self._look()
            self._look_soon(self._draw(self._shared.pace.look))

    def look_for_arrivals(self) -> None:
        """Look at the copies now if one of them has reached the end."""
        copies = self._shared.copies
        if any(copies.is_current(self.name, task) for task in self.behind):
            self._look()

    def _look(self) -> None:
        """Report to the machine how far copies are that were not reported at the end; with ``keep_looking``, all."""
        if self.is_suspended:
            return
        self._shared.catch_up()
        copies = self._shared.copies
        positions = copies.positions(self.name)
        followed = [task for task, local in self.tasks.items() if local.activity is Activity.TAILING]
        for task in sorted(self.behind.union(followed) if self._shared.keep_looking else self.behind):
            is_current = copies.is_current(self.name, task)
            if is_current and not self._is_mute and not self._is_wrong:
                self.behind.discard(task)
            local = self.tasks.get(task)
            if local is None or (is_current and local.activity is not Activity.TAILING):
                # It runs now, which is reported separately.
                continue
            progress = self._progress(task, positions.get(task, 0))
            self._report(task, progress)

    def _report(self, task: Task, progress: Progress) -> None:
        self.feed(lambda machine: machine.copy_progress(name_of(task), progress, now_ms=self.clock_ms))

    @property
    def _is_mute(self) -> bool:
        return self._shared.now_ms < self.faults.mute_until_ms

    @property
    def _is_wrong(self) -> bool:
        return self._shared.now_ms < self.faults.huge_until_ms

    def _progress(self, task: Task, position: int) -> Progress:
        if self._is_mute:
            return Progress()
        if self._is_wrong:
            by_lag = self.plan.reports is ReportStyle.LAG
            return Progress(lag=WHOLE_MAX) if by_lag else Progress(position=position, end_offset=WHOLE_MAX)
        end = self._shared.end_of(task)
        match self.plan.reports:
            case ReportStyle.LAG if self.is_up:
                return Progress(lag=max(0, end - position))
            case ReportStyle.POSITION:
                return Progress(position=position)
            case _:
                return Progress(position=position, end_offset=end)

    # --- what happens to the work -------------------------------------------------------------------------------

    def fail(self, task: Task) -> None:
        local = self.tasks.get(task)
        if local is not None and local.activity is Activity.RUNNING:
            self._shared.halt(self.name, task, Role.DISK)
            local.activity = Activity.FAILED
            self.feed(lambda machine: machine.task_failed(name_of(task), "poison record", now_ms=self.clock_ms))

    def fence_producer(self, task: Task) -> None:
        """Let the sink refuse the producer of a task, rightly or not."""
        self.feed(lambda machine: machine.producer_fenced(name_of(task), now_ms=self.clock_ms))

    def recover(self) -> None:
        """Let failed tasks be tried again."""
        for task, local in list(self.tasks.items()):
            if local.activity is Activity.FAILED:
                local.activity = Activity.RESTORING
                self._hold(task)

    def lose(self, task: Task) -> None:
        """Lose the state of a task; an active restores anew."""
        self.disk.pop(task, None)
        local = self.tasks.get(task)
        if self.is_up and (local is None or local.activity is not Activity.STOPPING):
            self._shared.changing().lose(self.name, task)
            if local is not None and local.activity is not Activity.FAILED:
                if local.activity is Activity.RUNNING:
                    local.activity = Activity.RESTORING
                self.behind.add(task)
                self._look_soon(0)
        self.feed(lambda machine: machine.state_lost(name_of(task), now_ms=self.clock_ms))

    def freeze(self, for_ms: int) -> None:
        """Let no restore make progress for a while."""
        self.faults.frozen_until_ms = self._shared.now_ms + for_ms
        self._shared.changing().frozen.add(self.name)
        self._after(for_ms, self._thaw)

    def _thaw(self) -> None:
        if self._shared.now_ms >= self.faults.frozen_until_ms:
            self._shared.changing().frozen.discard(self.name)

    def end_faults(self) -> None:
        """Let every fault be over."""
        self.faults = MachineFaults()
        self._thaw()

    # --- what it asks for ---------------------------------------------------------------------------------------

    def drain(self, *, deadline_ms: int | None = None, then_leave: bool = False) -> None:
        """Ask to have everything handed over, within ``deadline_ms`` if given; with ``then_leave``, leave then."""
        self.leaves_when_drained = then_leave
        self.feed(lambda machine: machine.drain(now_ms=self.clock_ms, deadline_ms=deadline_ms))

    def undrain(self) -> None:
        self.feed(lambda machine: machine.undrain(now_ms=self.clock_ms))

    def leave(self, *, restart: bool) -> None:
        """Stop in good order, and announce it: as a restart if there is an instance id, else for good."""
        if self.is_up and not self.leaving:
            self.leaving = True
            can = restart and self.plan.settings.instance_id is not None
            mode = LeaveMode.RESTART if can else LeaveMode.LEAVE
            self._note(f"{self.name} leaves ({mode})")
            self.feed(lambda machine: machine.leave(now_ms=self.clock_ms, mode=mode))

    # --- the truth ----------------------------------------------------------------------------------------------

    def processes(self, task: Task) -> bool:
        """Whether a record of this task could be processed and written by this worker at this instant."""
        local = self.tasks.get(task)
        if local is None or self.machine is None or self.is_suspended:
            return False
        runs = local.activity in (Activity.RUNNING, Activity.STOPPING)
        return runs and self.machine.may_process(name_of(task), self.clock_ms)

    @property
    def is_fenced_by_token(self) -> bool:
        """Whether a sink refuses this worker's outputs once another worker has a newer token."""
        return self.plan.settings.on_lease_lost is OnLeaseLost.CONTINUE
