"""What one member has of each task, and what has to happen so that it has what its assignment says.

Laws of this file:

- An active is given up only by an acknowledgement of the worker. Until then every report calls it active, because a
  report in which it is not active frees the task for another member.
- Whatever stops comes before whatever starts. A task that is still stopping starts again only once it has stopped.
- Every report says where an owner stopped, until a report that could confirm the revocation was answered.
- A newer token for a running task means that another member had it in between: it stops without a commit first.

What is done about one task, by what is here of it and what the assignment says:

| here | active, same token | active, newer token | standby, warmup | nothing |
|---|---|---|---|---|
| active | | stop without a commit, then start | demote in place; stop, if failed or lost | stop |
| standby, warmup | promote in place | promote in place | go on under that name | stop |
| nothing | start | start | start | |
| stopping | wait, then start | wait, then start | wait, then start | wait |

What is held changes only here. When something may start, and what is sent, is decided in `machine`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from batonpass.core.state.ids import task_sort_key
from batonpass.worker.protocol.messages import Assignment
from batonpass.worker.protocol.types import (
    UNKNOWN_PROGRESS,
    Instruction,
    Offsets,
    Progress,
    Role,
    RoleChanged,
    Stage,
    Start,
    Stop,
)


@dataclass(slots=True)
class Holding:
    """One task that this member has now, to be read only: the machine changes it.

    ``stage`` and ``token`` belong to actives. ``stopping`` is what was asked of the worker and is not acknowledged yet.
    """

    task: str
    role: Role
    progress: Progress = UNKNOWN_PROGRESS
    token: int | None = None
    stage: Stage | None = None
    stopping: Stop | None = None
    detail: str = ""
    input_lag: int | None = None
    load: float | None = None
    # The first heartbeat that reports the state as gone; None when there is nothing to report.
    lost_since_seq: int | None = None
    # Whether it was reported that this copy is within the acceptable lag.
    reported_ready: bool = False
    # Whether it was looked at since it began: what its state on disk was last said to lack may have grown since.
    looked_at: bool = False

    @property
    def may_write(self) -> bool:
        """Whether an active may still write, because it was not told to stop, or has to commit first."""
        return self.stopping is None or self.stopping.commit

    def body(self) -> dict[str, object]:
        fields: dict[str, object] = {"role": self.role.value}
        if self.stage is not None:
            fields |= {"state": self.stage.value, "fencing_token": self.token}
        if self.stage in (None, Stage.RESTORING):
            fields |= self.progress.body()
        if self.stage is Stage.FAILED:
            fields["detail"] = self.detail
        if self.input_lag is not None:
            fields["input_lag"] = self.input_lag
        if self.load is not None and self.stage in (None, Stage.RUNNING):
            fields["load"] = self.load
        if self.lost_since_seq is not None:
            fields["lost"] = True
        return fields


@dataclass(slots=True)
class Final:
    """Where an active of this member stopped, until the coordinator knows.

    ``since_seq`` is the first heartbeat that can confirm it; None while the assignment still grants the task, because
    then nothing has been revoked that could be confirmed.
    """

    position: Offsets | None
    since_seq: int | None


@dataclass(slots=True)
class Holdings:
    """Everything that one worker process has, across its runs. ``seq`` is the last heartbeat composed."""

    held: dict[str, Holding] = field(default_factory=dict)
    on_disk: dict[str, Progress] = field(default_factory=dict)
    # The bytes that each task's state takes on this member's disk, whatever its role.
    disk_bytes: dict[str, int] = field(default_factory=dict)
    finals: dict[str, Final] = field(default_factory=dict)
    # A task that stopped of its own accord starts again only after a heartbeat above this seq was answered.
    barred: dict[str, int] = field(default_factory=dict)
    # The token under which an assignment last took a task away. A grant with this token, or an older one, is out of
    # date.
    taken_away: dict[str, int] = field(default_factory=dict)
    seq: int = 0
    # When a copy is within the acceptable lag, as the last answer has it.
    acceptable_lag: int = 0
    acceptable_catchup_ms: int | None = None
    # Whether the next report differs from the last one that was composed, and whether it does only in what may wait:
    # how far copies are that have reported themselves as caught up and still are, input lags, loads, and bytes on
    # disk.
    changed: bool = True
    moved: bool = False

    def has_actives(self) -> bool:
        """Whether any task is active here, also one that is stopping."""
        return any(holding.role is Role.ACTIVE for holding in self.held.values())

    # --- toward the assignment -------------------------------------------------------------------------------------

    def follow(self, assignment: Assignment, *, may_start: bool) -> list[Instruction]:
        """Return what to stop and then, if anything may start, what to start, to have what the assignment says.

        A second call without news returns nothing.
        """
        out: list[Instruction] = []
        for task in _in_order(self.held):
            self._yield_to(assignment, self.held[task], out)
        for task, final in self.finals.items():
            if final.since_seq is None and assignment.roles.get(task) is not Role.ACTIVE:
                final.since_seq = self.seq + 1
                self.changed = True
        if may_start:
            for task in _in_order(assignment.roles):
                self._start(assignment, task, out)
        return out

    def _yield_to(self, assignment: Assignment, holding: Holding, out: list[Instruction]) -> None:
        """Stop, demote or rename one holding that the assignment does not have as it is."""
        wanted = assignment.roles.get(holding.task)
        if holding.role is not Role.ACTIVE:
            if holding.stopping is not None or wanted in (holding.role, Role.ACTIVE):
                return
            if wanted is None:
                out.append(_stop(holding))
            else:
                holding.role, holding.reported_ready = wanted, False
                self.changed = True
                out.append(RoleChanged(holding.task, wanted))
            return
        if wanted is Role.ACTIVE and assignment.grants[holding.task].fencing_token == holding.token:
            return
        if holding.token is not None:
            self.taken_away[holding.task] = max(holding.token, self.taken_away.get(holding.task, 0))
        if holding.stopping is None:
            sound = holding.stage is not Stage.FAILED and holding.lost_since_seq is None
            becomes = wanted if sound and wanted is not Role.ACTIVE else None
            out.append(_stop(holding, commit=sound and wanted is not Role.ACTIVE, becomes=becomes))

    def _start(self, assignment: Assignment, task: str, out: list[Instruction]) -> None:
        """Start or promote one task of the assignment, unless it is here already or still stopping."""
        wanted = assignment.roles[task]
        holding = self.held.get(task)
        if task in self.barred or (holding and (holding.role is wanted or holding.stopping is not None)):
            return
        if wanted is Role.ACTIVE and assignment.grants[task].fencing_token <= self.taken_away.get(task, -1):
            # A coordinator whose store lost commits may repeat an old grant. Tokens never repeat: it has to grant anew.
            return
        progress = holding.progress if holding else self.on_disk.pop(task, UNKNOWN_PROGRESS)
        self.changed = True
        if wanted is not Role.ACTIVE:
            # It is not here in another role either: such a holding was renamed, or told to stop, before.
            self.held[task] = Holding(task, wanted, progress=progress)
            out.append(Start(task, wanted))
            return
        grant = assignment.grants[task]
        active = Holding(task, Role.ACTIVE, progress=progress, token=grant.fencing_token, stage=Stage.RESTORING)
        if holding is not None:
            active.lost_since_seq = holding.lost_since_seq
        self.held[task] = active
        self.finals.pop(task, None)
        out.append(Start(task, wanted, grant.fencing_token, grant.restore_to, in_place=holding is not None))

    def stop_actives(self) -> list[Instruction]:
        """Stop every active without committing, also one that was to stop with a commit."""
        actives = [self.held[task] for task in _in_order(self.held) if self.held[task].role is Role.ACTIVE]
        return [_stop(one, commit=False) for one in actives if one.may_write]

    def stop_copies(self) -> list[Instruction]:
        copies = [self.held[task] for task in _in_order(self.held) if self.held[task].role is not Role.ACTIVE]
        return [_stop(one) for one in copies if one.stopping is None]

    # --- what the worker says -----------------------------------------------------------------------------------

    def stopped(self, task: str, final_position: Offsets | None, *, still_granted: bool) -> bool:
        """Remove a task that has stopped, except its state on disk; return whether the stop was asked for."""
        holding = self.held.pop(task, None)
        if holding is None:
            return False
        self.changed = True
        progress = holding.progress if holding.lost_since_seq is None else UNKNOWN_PROGRESS
        if holding.role is Role.ACTIVE:
            self.finals[task] = Final(final_position, None if still_granted else self.seq + 1)
            if final_position is not None:
                progress = Progress.at(final_position)
            elif holding.stage is not Stage.RESTORING:
                # Its progress is as old as its restoration; better unknown than caught up with an old end.
                progress = UNKNOWN_PROGRESS
        # A lag without a position means nothing once the changelog is not followed: it grows on.
        if progress.position is not None or progress.positions is not None:
            self.on_disk[task] = replace(progress, detail="")
        asked = holding.stopping is not None
        if not asked:
            self.barred[task] = self.seq
        return asked

    def demoted(self, task: str, final_position: Offsets | None, *, still_granted: bool) -> bool:
        """Make an active that was told to stop or demote a copy in place; return whether it was told to."""
        holding = self.held.get(task)
        if holding is None or holding.role is not Role.ACTIVE or holding.stopping is None:
            return False
        progress = UNKNOWN_PROGRESS if final_position is None else Progress.at(final_position)
        role = holding.stopping.becomes or Role.STANDBY
        self.held[task] = Holding(task, role, progress=progress, lost_since_seq=holding.lost_since_seq)
        self.finals[task] = Final(final_position, None if still_granted else self.seq + 1)
        self.changed = True
        return True

    def staged(self, task: str, stage: Stage, *, progress: Progress | None = None, detail: str = "") -> bool:
        """Note how far an active is; return whether it moved to another stage."""
        holding = self.held.get(task)
        if holding is None or holding.role is not Role.ACTIVE:
            return False
        moved = holding.stage is not stage or holding.detail != detail
        if moved or (progress is not None and progress != holding.progress):
            self.changed = True
        holding.stage, holding.detail = stage, detail
        if progress is not None:
            holding.progress = progress
        return moved

    def progressed(self, task: str, progress: Progress) -> bool:
        """Note how far a copy, or an active that restores, has come; return whether a warmup is ready as of now."""
        holding = self.held.get(task)
        if holding is None:
            return False
        holding.looked_at, is_ready = True, self._is_ready(progress)
        is_news = is_ready and holding.role is Role.WARMUP and not holding.reported_ready
        if is_news or progress != holding.progress:
            is_level = is_ready and holding.reported_ready and holding.role is not Role.ACTIVE
            if is_level and progress.detail == holding.progress.detail:
                self.moved = True
            else:
                self.changed = True
        holding.progress = progress
        return is_news

    def input_lagged(self, task: str, lag: int) -> None:
        """Note how far an active is behind its input."""
        holding = self.held.get(task)
        if holding is not None and holding.role is Role.ACTIVE and holding.input_lag != lag:
            holding.input_lag = lag
            self.moved = True

    def loaded(self, task: str, load: float) -> None:
        """Note how much of one unit of capacity a task uses here, as an active or as a copy."""
        holding = self.held.get(task)
        if holding is not None and holding.load != load:
            holding.load = load
            self.moved = True

    def lost(self, task: str) -> bool:
        """Note that the state of a task is gone, or that there is none on disk any more; return whether it is held."""
        if self.on_disk.pop(task, None) is not None:
            self.changed = True
        holding = self.held.get(task)
        if holding is None:
            return False
        holding.progress, holding.reported_ready = UNKNOWN_PROGRESS, False
        holding.lost_since_seq = self.seq + 1
        if holding.role is Role.ACTIVE:
            holding.stage = Stage.RESTORING
        self.changed = True
        return True

    def disk_measured(self, sizes: Mapping[str, int]) -> None:
        """Note how many bytes each task's state takes on disk."""
        if self.disk_bytes != sizes:
            self.disk_bytes = dict(sizes)
            self.moved = True

    def removed(self, task: str) -> None:
        """Forget the state on disk of a task that is not held."""
        self.on_disk.pop(task, None)
        self.disk_bytes.pop(task, None)
        self.changed = True

    def fenced(self, task: str) -> list[Instruction]:
        """Stop an active whose producer was fenced, and bar it until a later heartbeat was answered."""
        holding = self.held.get(task)
        if holding is None or holding.role is not Role.ACTIVE:
            return []
        self.barred[task] = self.seq
        return [_stop(holding, commit=False)] if holding.may_write else []

    # --- reports and their answers ------------------------------------------------------------------------------

    def report(self) -> dict[str, object]:
        """Return everything that is held, as heartbeat ``seq`` reports it."""
        tasks: dict[str, object] = {}
        for task in {**self.held, **self.on_disk, **self.finals, **self.disk_bytes}:
            holding = self.held.get(task)
            if holding is None:
                progress = self.on_disk.get(task, UNKNOWN_PROGRESS)
                fields: dict[str, object] = {"role": Role.NONE.value, **progress.body()}
            else:
                fields = holding.body()
                holding.reported_ready = holding.looked_at and self._is_ready(holding.progress)
            final = self.finals.get(task)
            if final is not None and final.position is not None:
                if isinstance(final.position, int):
                    fields["final_position"] = final.position
                else:
                    fields["final_positions"] = dict(final.position)
            if task in self.disk_bytes:
                fields["disk_bytes"] = self.disk_bytes[task]
            tasks[task] = fields
        self.changed = self.moved = False
        return tasks

    def _is_ready(self, progress: Progress) -> bool:
        remaining, by_ms = progress.remaining(), self.acceptable_catchup_ms
        return (remaining is not None and remaining <= self.acceptable_lag) or (
            by_ms is not None and progress.catchup_ms is not None and progress.catchup_ms <= by_ms
        )

    def disk_report(self) -> dict[str, object]:
        """Return the state on disk as a join reports it: copies that still tail are state on disk to a new run."""
        progress = self.on_disk | {task: holding.progress for task, holding in self.held.items()}
        return {
            task: {"role": Role.NONE.value, **progress[task].body()}
            for task in _in_order(progress)
            if progress[task].is_known
        }

    def answered(self, seq: int) -> bool:
        """Forget what a heartbeat answered 200 has reported; return whether a task that was barred may start."""
        for task in [
            task for task, final in self.finals.items() if final.since_seq is not None and final.since_seq <= seq
        ]:
            del self.finals[task]
            self.changed = True
        for holding in self.held.values():
            if holding.lost_since_seq is not None and holding.lost_since_seq <= seq:
                holding.lost_since_seq = None
                self.changed = True
        free = [task for task, bar in self.barred.items() if bar < seq]
        for task in free:
            del self.barred[task]
        return bool(free)

    def begin_run(self) -> None:
        """Forget what concerned only the old run: a new one has given nothing up, and its heartbeats count from 1."""
        self.finals.clear()
        self.barred.clear()
        self.seq = 0
        self.changed = True
        for holding in self.held.values():
            holding.reported_ready = False
            if holding.lost_since_seq is not None:
                holding.lost_since_seq = 1


def _stop(holding: Holding, *, commit: bool = True, becomes: Role | None = None) -> Stop:
    holding.stopping = Stop(holding.task, holding.role, commit, becomes)
    return holding.stopping


def _in_order(tasks: Iterable[str] | Mapping[str, object]) -> list[str]:
    return sorted(tasks, key=task_sort_key)
