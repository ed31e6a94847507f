"""Worker machines: a process that drives the real member's protocol, its disk, and what it truly does with each task.

What is true here does not depend on what any coordinator believes: whether a task is being processed at this instant is
asked of the process and of its own machine and clock. The laws are held against that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from batonpass.core.model import OnLeaseLost
from batonpass.simulate.activity import WRITING, Activity, LocalTask, Trouble, settings_of
from batonpass.simulate.scenario import WorkerPlan, seeded
from batonpass.worker.protocol import (
    DemoteActive,
    Instruction,
    LeaveMode,
    MemberProtocol,
    Phase,
    Progress,
    PromoteCopy,
    Rejoining,
    RoleChanged,
    Send,
    StartActive,
    StartStandby,
    StartWarmup,
    StopActive,
    StopCopy,
    StopForGood,
)

if TYPE_CHECKING:
    from batonpass.simulate.world import World


class Worker:
    """One machine: its disk outlives the processes that run on it."""

    def __init__(self, plan: WorkerPlan, world: World) -> None:
        self.plan = plan
        self.world = world
        self.chance = seeded(world.scenario.seed, "work", plan.name)
        self.disk: dict[str, int] = {}
        self.tasks: dict[str, LocalTask] = {}
        self.machine: MemberProtocol | None = None
        self.process = 0
        self.runs = 0
        self.last_id: str | None = None
        self.backlog: list[tuple[Callable[..., None], tuple[object, ...]]] | None = None
        self.armed_ms: int | None = None
        self.trouble = Trouble()
        self.leaving = False
        self._turns = 0
        # A machine that is to stay away does not come back by itself.
        self.retired = False

    # --- the process --------------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether a process runs, be it suspended."""
        return self.machine is not None

    @property
    def is_suspended(self) -> bool:
        """Whether the machine is frozen: nothing of it runs until it wakes."""
        return self.backlog is not None

    @property
    def clock_ms(self) -> int:
        """What this machine's clock says; it counts time spent suspended."""
        return self.world.now_ms + self.plan.clock_offset_ms

    def boot(self, *, takeover: bool = False, replaces: bool = False) -> None:
        """Start a process with what is on disk. ``takeover`` and ``replaces`` vouch for the end of the one before."""
        if self.is_up:
            return
        self.process += 1
        self.leaving = self.retired = False
        settings = settings_of(self.plan, takeover=takeover, jitter_seed=self.process)
        disk = {task: self._progress_of(task, position) for task, position in sorted(self.disk.items())}
        self.machine = MemberProtocol(settings, self._new_id, on_disk=disk, replaces=self.last_id if replaces else None)
        self.world.log(f"{self.plan.name} starts process {self.process}")
        self.feed(lambda machine: machine.start(self.clock_ms))
        self._plan_look(self.process)

    def _new_id(self) -> str:
        self.runs += 1
        self.last_id = f"{self.plan.name}.{self.runs}"
        self.world.owner_of_id[self.last_id] = self
        return self.last_id

    def kill(self) -> None:
        """End the process at once; what it restored stays on disk."""
        if not self.is_up:
            return
        for task in self.tasks.values():
            self.disk[task.task] = self.position(task)
            self._go_over_to(task, Activity.TAILING)
        self.world.log(f"{self.plan.name} is killed")
        self._end()

    def _end(self) -> None:
        self.machine = None
        self.tasks = {}
        self.backlog = None
        self.armed_ms = None
        self.world.sockets_closed(self)

    def suspend(self, for_ms: int) -> None:
        """Freeze the machine."""
        if self.is_up and not self.is_suspended:
            self.world.log(f"{self.plan.name} is suspended for {for_ms} ms")
            self.backlog = []
            self.world.after(for_ms, self._wake, self.process)

    def _wake(self, process: int) -> None:
        if process != self.process or self.backlog is None:
            return
        self.world.log(f"{self.plan.name} wakes")
        pending, self.backlog = self.backlog, None
        # Timers and sockets race when a machine wakes; either may come first.
        if self.chance.random() < 0.5:
            self._tick(process)
        for act, arguments in pending:
            act(*arguments)
        if self.is_up:
            self._tick(self.process)

    def runs_as(self, process: int, act: Callable[..., None], *arguments: object) -> bool:
        """Return whether ``process`` may act now; while it is suspended the act waits for it to wake."""
        if process != self.process or not self.is_up:
            return False
        if self.backlog is not None:
            self.backlog.append((act, arguments))
            return False
        return True

    def feed(self, say: Callable[[MemberProtocol], list[Instruction]]) -> None:
        """Tell the machine something and do what it says."""
        if self.machine is not None:
            self._carry_out(say(self.machine))
            self._arm()

    def _arm(self) -> None:
        machine = self.machine
        wake_ms = machine.wake_at_ms if machine is not None else None
        if wake_ms is None:
            return
        at_ms = max(self.world.now_ms, wake_ms - self.plan.clock_offset_ms)
        if self.armed_ms is None or at_ms < self.armed_ms:
            self.armed_ms = at_ms
            self.world.after(at_ms - self.world.now_ms, self._alarm, self.process, at_ms)

    def _alarm(self, process: int, at_ms: int) -> None:
        """Tick, unless the timer was set anew to fire earlier and has done so."""
        if at_ms == self.armed_ms:
            self._tick(process)

    def _tick(self, process: int) -> None:
        if self.runs_as(process, self._tick, process):
            self.armed_ms = None
            self.feed(lambda machine: machine.tick(self.clock_ms))

    # --- what the machine says ----------------------------------------------------------------------------------

    def _carry_out(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Send(request):
                    self.world.send(self, request)
                case StopActive(task, commit):
                    self._stop(task, commit=commit)
                case DemoteActive(task):
                    self._stop(task, commit=True, demote=True)
                case StopCopy(task):
                    self._plan(self.tasks[task], self.chance.randint(0, 30), self._stopped)
                case StartStandby(task) | StartWarmup(task):
                    self._open(task, Activity.TAILING, 0)
                case StartActive(task, token) | PromoteCopy(task, token):
                    self.world.sinks[task] = max(token, self.world.sinks.get(task, 0))
                    local = self._open(task, Activity.RESTORING, token)
                    self._plan_running(local)
                case Rejoining(old_member_id, cause):
                    self.world.log(f"{self.plan.name} must rejoin as {old_member_id} was refused: {cause.type}")
                case StopForGood(reason):
                    self.world.log(f"{self.plan.name} ends: {reason}")
                    self.world.after(0, self._exit, self.process)
                case RoleChanged():
                    pass
                case _:
                    self.world.log(f"{self.plan.name}: {instruction}")

    def _exit(self, process: int) -> None:
        if process == self.process and self.is_up:
            if self.tasks:
                # The machine said that nothing more is sent; the process ends once its tasks have stopped.
                self.world.after(10, self._exit, process)
            else:
                self._end()

    def _open(self, task: str, work: Activity, token: int) -> LocalTask:
        now_ms = self.world.now_ms
        local = self.tasks.get(task)
        if local is None:
            local = self.tasks[task] = LocalTask(task, work, self.disk.pop(task, 0), now_ms)
        else:
            local.position, local.at_ms = self.position(local), now_ms
        self._go_over_to(local, work)
        local.token, local.turn = token, self._next_turn()
        return local

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns

    def _go_over_to(self, local: LocalTask, work: Activity) -> None:
        wrote, writes = local.activity in WRITING, work in WRITING
        if wrote is not writes:
            self.world.writes(local.task, 1 if writes else -1)
        local.activity = work

    def _stop(self, task: str, *, commit: bool, demote: bool = False) -> None:
        local = self.tasks[task]
        now_ms = self.world.now_ms
        local.position, local.at_ms = self.position(local), now_ms
        if commit and local.activity is Activity.RUNNING:
            self.world.interrupted(self)
        if local.activity is Activity.RUNNING:
            self._go_over_to(local, Activity.STOPPING)
        took_ms = self.chance.randint(0, 40) if commit else self.chance.randint(0, 3)
        if commit and now_ms < self.trouble.slow_until_ms:
            took_ms = self.chance.randint(500, 2_500)
        if commit and now_ms < self.trouble.hangs_until_ms:
            took_ms = self.trouble.hangs_until_ms - now_ms
        self._plan(local, took_ms, self._demoted if demote else self._stopped)

    def _plan(self, local: LocalTask, in_ms: int, act: Callable[[int, str, int], None]) -> None:
        local.turn = self._next_turn()
        self.world.after(in_ms, act, self.process, local.task, local.turn)

    def _due(self, process: int, task: str, turn: int) -> LocalTask | None:
        local = self.tasks.get(task)
        return local if process == self.process and local is not None and local.turn == turn else None

    def _stopped(self, process: int, task: str, turn: int) -> None:
        if not self.runs_as(process, self._stopped, process, task, turn):
            return
        local = self._due(process, task, turn)
        if local is not None:
            position = self.position(local)
            self._go_over_to(local, Activity.TAILING)
            del self.tasks[task]
            self.disk[task] = position
            self.world.check_processing(task)
            self.feed(lambda machine: machine.task_stopped(task, now_ms=self.clock_ms, final_position=position))

    def _demoted(self, process: int, task: str, turn: int) -> None:
        if not self.runs_as(process, self._demoted, process, task, turn):
            return
        local = self._due(process, task, turn)
        if local is not None:
            position = self.position(local)
            local.position, local.at_ms = position, self.world.now_ms
            self._go_over_to(local, Activity.TAILING)
            local.turn = self._next_turn()
            self.feed(lambda machine: machine.task_demoted(task, now_ms=self.clock_ms, final_position=position))

    def _plan_running(self, local: LocalTask) -> None:
        self._plan(local, self.chance.randint(1, 10) + self._restore_ms(local), self._running)

    def _restore_ms(self, local: LocalTask) -> int:
        missing = self.world.end_of(local.task) - self.position(local)
        speed = self.plan.records_per_s - self.world.scenario.growth_per_s
        if missing > 0 and self.world.now_ms < self.trouble.frozen_until_ms:
            return self.trouble.frozen_until_ms - self.world.now_ms + missing * 1000 // speed
        return missing * 1000 // speed

    def _running(self, process: int, task: str, turn: int) -> None:
        if not self.runs_as(process, self._running, process, task, turn):
            return
        local = self._due(process, task, turn)
        if local is None or local.activity is not Activity.RESTORING:
            return
        if self.world.end_of(task) - self.position(local) > self.world.scenario.growth_per_s:
            self._plan_running(local)
            return
        local.position, local.at_ms = self.world.end_of(task), self.world.now_ms
        self._go_over_to(local, Activity.RUNNING)
        self.world.check_processing(task)
        self.feed(lambda machine: machine.task_running(task, now_ms=self.clock_ms))

    # --- what befalls the work ----------------------------------------------------------------------------------

    def fail(self, task: str) -> None:
        """Let the processing of a task fail."""
        local = self.tasks.get(task)
        if local is not None and local.activity is Activity.RUNNING:
            local.position, local.at_ms = self.position(local), self.world.now_ms
            self._go_over_to(local, Activity.FAILED)
            self.feed(lambda machine: machine.task_failed(task, "poison record", now_ms=self.clock_ms))

    def fence_producer(self, task: str) -> None:
        """Let the sink refuse the producer of a task, rightly or not."""
        self.feed(lambda machine: machine.producer_fenced(task, now_ms=self.clock_ms))

    def recover(self) -> None:
        """Let what failed be tried again."""
        for local in list(self.tasks.values()):
            if local.activity is Activity.FAILED:
                self._go_over_to(local, Activity.RESTORING)
                self._plan_running(local)

    def lose(self, task: str) -> None:
        """Lose the state of a task; what was active restores anew."""
        self.disk.pop(task, None)
        local = self.tasks.get(task)
        if local is not None and local.activity is not Activity.STOPPING:
            local.position, local.at_ms = 0, self.world.now_ms
            if local.activity in (Activity.RUNNING, Activity.RESTORING):
                self._go_over_to(local, Activity.RESTORING)
                self._plan_running(local)
        self.feed(lambda machine: machine.state_lost(task, now_ms=self.clock_ms))

    def drain(self, deadline_ms: int | None = None) -> None:
        """Ask to have everything handed over."""
        self.feed(lambda machine: machine.drain(now_ms=self.clock_ms, deadline_ms=deadline_ms))

    def undrain(self) -> None:
        """Ask to stay after all."""
        self.feed(lambda machine: machine.undrain(now_ms=self.clock_ms))

    def leave(self, *, restart: bool) -> None:
        """Stop in good order, and say so."""
        if self.is_up and not self.leaving:
            self.leaving = True
            can = restart and self.plan.instance_id is not None
            mode = LeaveMode.RESTART if can else LeaveMode.LEAVE
            self.world.log(f"{self.plan.name} leaves ({mode})")
            self.feed(lambda machine: machine.leave(now_ms=self.clock_ms, mode=mode))

    def _plan_look(self, process: int) -> None:
        self.world.after(self.chance.randint(300, 700), self._look, process)

    def _look(self, process: int) -> None:
        """Tell the machine how far the copies have come, as a worker does now and then."""
        if not self.runs_as(process, self._look, process):
            return
        for local in list(self.tasks.values()):
            if local.activity is Activity.TAILING or local.activity is Activity.RESTORING:
                progress = self._progress_of(local.task, self.position(local))
                self._report(local.task, progress)
        self._plan_look(process)

    def _report(self, task: str, progress: Progress) -> None:
        self.feed(lambda machine: machine.copy_progress(task, progress, now_ms=self.clock_ms))

    def _progress_of(self, task: str, position: int) -> Progress:
        if self.world.now_ms < self.trouble.mute_until_ms:
            return Progress()
        end = self.world.end_of(task)
        match self.plan.reports:
            case "lag" if self.is_up:
                return Progress(lag=max(0, end - position))
            case "position":
                return Progress(position=position)
            case _:
                return Progress(position=position, end_offset=end)

    # --- the truth ----------------------------------------------------------------------------------------------

    def position(self, local: LocalTask) -> int:
        """Return how far the state of a task has come by now."""
        end = self.world.end_of(local.task)
        if local.activity in (Activity.RUNNING, Activity.STOPPING):
            return end
        if local.activity is Activity.FAILED:
            return local.position
        frozen_ms = max(0, min(self.world.now_ms, self.trouble.frozen_until_ms) - local.at_ms)
        spent_ms = max(0, self.world.now_ms - local.at_ms - frozen_ms)
        return min(end, local.position + self.plan.records_per_s * spent_ms // 1000)

    def processes(self, task: str) -> bool:
        """Whether a record of this task could be processed and written by this worker at this instant."""
        local = self.tasks.get(task)
        if local is None or self.machine is None or self.is_suspended:
            return False
        return local.activity in (Activity.RUNNING, Activity.STOPPING) and self.machine.may_process(task, self.clock_ms)

    @property
    def is_fenced_by_token(self) -> bool:
        """Whether a sink refuses this worker's outputs once somebody has a newer token."""
        return self.plan.on_lease_lost is OnLeaseLost.CONTINUE

    @property
    def is_joined(self) -> bool:
        """Whether the process takes part in the group, as far as it knows."""
        return self.machine is not None and self.machine.phase is Phase.JOINED
