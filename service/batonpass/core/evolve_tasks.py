"""How records about tasks change the group. Private to ``evolve``."""

from __future__ import annotations

from batonpass.core import records as r
from batonpass.core.draft import Draft, ended, failed, minus, plus, without
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.model import (
    ActiveState,
    Claim,
    Failure,
    Grant,
    Member,
    Revocation,
    Role,
    Stall,
    Stop,
    Task,
    with_copies,
    with_owner,
    with_target,
)

REVOKED = "revoked"
"""The ``cause`` of a stop that the member was told to make."""
SUSPECTED = "suspected"
"""The ``cause`` of a stop that a member was told to make because it seems to be dead."""


def target_placed(draft: Draft, record: r.TargetPlaced) -> None:
    """The target answers the group epoch; a change of target takes the choice of an heir along only where it agrees."""
    tasks = draft.tasks
    for task_id, target in record.changes.items():
        tasks[task_id] = with_target(draft.task(task_id), target)
    draft.change(generation=record.generation, generation_epoch=record.group_epoch, due_ms=None, triggers=())


def picture_changed(draft: Draft, record: r.PictureChanged) -> None:
    """What one member may hold is new, and so is its epoch; what it must give up it may still hold."""
    member = draft.member(record.member_id)
    if member is None:
        return
    picture: dict[TaskId, Grant | None] = {}
    revoking: dict[TaskId, Revocation | None] = {}
    demoted = frozenset(record.demoted)
    ready = frozenset(record.ready)
    for task_id in record.revoked:
        picture[task_id] = None
        revoking[task_id] = _give_up(draft, member, task_id, record)
    for task_id in [one for one in record.granted if one in demoted] if demoted else ():
        revoking[task_id] = _give_up(draft, member, task_id, record)
        task = draft.task(task_id)
        if task.state is ActiveState.RUNNING:
            draft.tasks[task_id] = task._replace(keeper=member.id)
    picture.update(record.granted)
    for task_id, grant in record.granted.items():
        draft.tasks[task_id] = _taken_up(draft.task(task_id), member.id, grant, ready=task_id in ready)
    draft.change_member(
        member.id,
        epoch=record.epoch,
        picture=member.picture.updated(picture),
        revoking=member.revoking.updated(revoking),
    )


def _give_up(draft: Draft, member: Member, task_id: TaskId, record: r.PictureChanged) -> Revocation:
    task = draft.task(task_id)
    was_active = task.owner == member.id
    claims = (*task.claims, Claim(member.id, None)) if was_active else task.claims
    after = without(task, member.id, claims)
    if was_active:
        cause = SUSPECTED if member.suspected else REVOKED
        stop = Stop(member.id, None, cause) if task.state is ActiveState.RUNNING else task.stop
        after = after._replace(since_ms=record.at_ms, stop=stop)
    draft.tasks[task_id] = after
    return Revocation(record.epoch, record.at_ms, was_active)


def _taken_up(task: Task, member_id: MemberId, grant: Grant, *, ready: bool) -> Task:
    """Return the task as it is once the member holds it as the grant says."""
    role, standbys, warmups = grant.role, task.standbys, task.warmups
    if standbys or warmups:
        standbys, warmups = minus(standbys, member_id), minus(warmups, member_id)
    if role is Role.STANDBY:
        return with_copies(task, plus(standbys, member_id), warmups)
    if role is Role.WARMUP:
        return with_copies(task, standbys, plus(warmups, member_id))
    if standbys is not task.standbys or warmups is not task.warmups:
        task = with_copies(task, standbys, warmups)
    return with_owner(task, member_id, grant, ready=ready)


def released(draft: Draft, record: r.TaskReleased) -> None:
    """The member does not run the task any more; where it stopped is remembered for the next owner."""
    task = draft.task(record.task)
    claims = tuple(claim for claim in task.claims if claim.member_id != record.member_id)
    if len(claims) != len(task.claims) or record.final:
        stop = ended(task.stop, claims, record.at_ms)
        draft.tasks[record.task] = task._replace(claims=claims, final=record.final, stop=stop)
    member = draft.member(record.member_id)
    if member is not None and record.task in member.revoking:
        draft.change_member(member.id, revoking=member.revoking.without(record.task))


def waived(draft: Draft, record: r.ClaimsWaived) -> None:
    """A suspected member's claim holds nobody back; it must still confirm."""
    task = draft.task(record.task)
    claims = tuple(claim for claim in task.claims if claim.member_id != record.member_id)
    stop = ended(task.stop, claims, task.since_ms)
    draft.tasks[record.task] = task._replace(claims=claims, final=(), stop=stop)


def heir_chosen(draft: Draft, record: r.HeirChosen) -> None:
    """The task has somebody to go to."""
    draft.tasks[record.task] = draft.task(record.task)._replace(heir=record.heir)


def active_reported(draft: Draft, record: r.ActiveReported) -> None:
    """The owner said how far it is; once it runs, the last owner's copy need not be kept for it."""
    task = draft.task(record.task)
    if task.owner != record.member_id:
        return
    if record.state is ActiveState.RUNNING:
        task = task._replace(keeper=None, final=(), stop=None)
    elif task.state is ActiveState.RUNNING:
        task = task._replace(stop=Stop(record.member_id, record.at_ms, record.state.value))
    if record.state is ActiveState.FAILED:
        task = task._replace(failures=failed(task, Failure(record.member_id, record.at_ms)))
    draft.tasks[record.task] = task._replace(state=record.state)


def stalled(draft: Draft, record: r.WarmupStalled) -> None:
    """The member is not tried again for a while."""
    task = draft.task(record.task)
    others = tuple(stall for stall in task.stalls if stall.member_id != record.member_id)
    draft.tasks[record.task] = task._replace(stalls=(*others, Stall(record.member_id, record.until_ms)))


def parked(draft: Draft, record: r.TaskParked) -> None:
    """The task is tried no more."""
    draft.tasks[record.task] = draft.task(record.task)._replace(parked=True)


def unparked(draft: Draft, record: r.TaskUnparked) -> None:
    """The task may be tried again, with a clean slate."""
    draft.tasks[record.task] = draft.task(record.task)._replace(parked=False, failures=())


def pinned(draft: Draft, record: r.TaskPinned) -> None:
    """The task belongs to one member, or to whom placement says; a pin is a clean slate where it does not fail now."""
    task = draft.task(record.task)
    if task.owner != record.member_id or task.state is not ActiveState.FAILED:
        failures = tuple(failure for failure in task.failures if failure.member_id != record.member_id)
        task = task._replace(failures=failures)
    draft.tasks[record.task] = task._replace(pin=record.member_id)
    draft.change(pins=draft.group.pins.updated({record.task: record.member_id}))


def adopted(draft: Draft, record: r.TasksAdopted) -> None:
    """What a member runs is its own, whatever the log that survived says; another holder must give it up."""
    member = draft.member(record.member_id)
    if member is None:
        return
    picture: dict[TaskId, Grant | None] = {}
    revoking: dict[TaskId, Revocation | None] = {}
    for task_id in record.dropped:
        task = draft.task(task_id)
        picture[task_id] = None
        revoking[task_id] = Revocation(member.epoch, record.at_ms, active=True)
        after = without(task, member.id, (*task.claims, Claim(member.id, None)))
        draft.tasks[task_id] = after._replace(stop=task.stop or Stop(member.id, record.at_ms, REVOKED))
    for task_id, token in record.tokens.items():
        task = draft.task(task_id)
        if task.owner is not None and task.owner != member.id:
            _dispossess(draft, task_id, record)
            task = draft.task(task_id)
        grant = Grant(Role.ACTIVE, member.epoch, record.at_ms, max(token, task.token))
        picture[task_id] = grant
        revoking[task_id] = None
        claims = tuple(claim for claim in task.claims if claim.member_id != member.id)
        draft.tasks[task_id] = _taken_up(task, member.id, grant, ready=True)._replace(
            state=ActiveState.RUNNING, claims=claims, keeper=None, stop=None
        )
    draft.change_member(
        member.id,
        picture=member.picture.updated(picture),
        revoking=member.revoking.updated(revoking),
    )


def _dispossess(draft: Draft, task_id: TaskId, record: r.TasksAdopted) -> None:
    task = draft.task(task_id)
    other = draft.member(task.owner) if task.owner is not None else None
    if other is None:
        return
    epoch = other.epoch + 1
    draft.tasks[task_id] = without(task, other.id, (*task.claims, Claim(other.id, None)))
    draft.change_member(
        other.id,
        epoch=epoch,
        picture=other.picture.without(task_id),
        revoking=other.revoking.having(task_id, Revocation(epoch, record.at_ms, active=True)),
    )
