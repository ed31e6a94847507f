"""Why a task is where it is, and what it waits for, in words. It asks the files that decide what they would do now.

It changes nothing. An explanation is true at the instant of the question; nothing is stored for it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from batonpass.core.handover.copies import HeldBack, TaskPlan, plan_task
from batonpass.core.handover.lag import Copy, caught_up_in_ms, open_transactions_of, place_in_words
from batonpass.core.handover.room import has_limit
from batonpass.core.handover.step import plan_step
from batonpass.core.handover.view import View
from batonpass.core.state.durations import duration
from batonpass.core.state.failures import is_avoided
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import ActiveState, Member, Outcome, Role, Task
from batonpass.core.state.reasons import Held, Hold, WaitsFor, Why, meaning_of
from batonpass.explain.status import is_idle


class TaskState(StrEnum):
    """The state of a task, in one word."""

    RUNNING = "running"
    HANDING_OVER = "handing-over"
    WARMING = "warming"
    STARTING = "starting"
    RESTORING = "restoring"
    FAILED = "failed"
    LOST = "lost"
    WAITING = "waiting"
    PARKED = "parked"


class Wait(NamedTuple):
    """One thing that a task waits for: from which member, until when at the latest, and the expected time left."""

    what: WaitsFor
    member_id: MemberId | None = None
    until_ms: int | None = None
    eta_ms: int | None = None
    detail: str = ""


class CopyStatus(NamedTuple):
    """One copy of a task. ``role`` is ``none`` for state on disk. ``rate`` is in records a second."""

    member_id: MemberId
    role: str
    readiness: str
    lag: int | None
    rate: float | None
    eta_ms: int | None
    progress_ms: int | None
    stalled_until_ms: int | None


@dataclass(frozen=True, slots=True)
class TaskExplanation:
    """Everything that can be said about one task now.

    ``to`` is the member that has it when the present step is complete, and ``why`` the reason for that. ``held`` says
    why its move is held back. ``sentences`` say the same in words, the most important first.
    """

    task: Task
    state: TaskState
    to: MemberId | None
    why: Why
    held: HeldBack | None
    copies: tuple[CopyStatus, ...]
    waits: tuple[Wait, ...]
    sentences: tuple[str, ...]


_SAID_ANYWAY: Final = (Held.REVOKING, Held.LEASE, Held.GRANTS_HELD, Held.OPEN_TRANSACTION)
"""Reasons that are left out of ``waits_of``, because the waits for releases, grants and transactions state them."""

SILENT_SUFFIX: Final = "; it is silent, and expires when its lease is over"


def explain_task(view: View, task_id: TaskId) -> TaskExplanation:
    """Return why ``task_id``, which must be a task of the group, is where it is, and what it waits for."""
    task = view.tasks[task_id]
    plan, state = _plan_of(view, task), state_of(view, task)
    waits = tuple(waits_of(view, plan))
    return TaskExplanation(
        task=task,
        state=state,
        to=plan.choice.active,
        why=plan.choice.why,
        held=plan.held,
        copies=tuple(copies_of(view, task)),
        waits=waits,
        sentences=tuple(_sentences(view, plan, state, waits)),
    )


def _plan_of(view: View, task: Task) -> TaskPlan:
    """Return what the present step does with a task, and why its move is held back."""
    if task.id not in view.group.unsettled:
        return plan_task(view, task)
    step = plan_step(view, [task.id])
    if step.task_plans[0].requests or view.limited:
        # Plan the whole step, because slots and room are shared. Alone, the task would get what others take.
        step = plan_step(view)
    return next(plan for plan in step.task_plans if plan.task.id == task.id)


def state_of(view: View, task: Task) -> TaskState:
    """Return the state of a task, in one word."""
    if task.marks.parked:
        return TaskState.PARKED
    if task.owner is None:
        return TaskState.HANDING_OVER if task.handover.next_owner is not None else TaskState.WAITING
    if task.state is ActiveState.GRANTED or is_idle(view, task):
        return TaskState.STARTING
    if task.state is not ActiveState.RUNNING:
        return TaskState(task.state.value)
    return TaskState.WARMING if task.target.owner in task.warmups else TaskState.RUNNING


def copies_of(view: View, task: Task) -> Iterator[CopyStatus]:
    """Yield every copy of a task: the active, the other copies, then state on disk."""
    roles: dict[MemberId, str] = {}
    if task.owner is not None:
        roles[task.owner] = Role.ACTIVE.value
    roles.update({member_id: role.value for member_id, role in task.holders.items()})
    roles.update({member_id: "none" for member_id in view.on_disk(task.id) if member_id not in roles})
    for member_id, role in roles.items():
        copy, measured = view.copy(task, member_id), view.soft.report_of(member_id, task.id)
        is_running = role == Role.ACTIVE and task.state is ActiveState.RUNNING
        yield CopyStatus(
            member_id,
            role,
            copy.readiness.name.lower().replace("_", "-"),
            copy.lag,
            copy.rate,
            None if is_running else caught_up_in_ms(copy, view.config),
            None if measured is None else measured.progress_ms,
            view.stalled_until_ms(task, member_id),
        )


def waits_of(view: View, plan: TaskPlan) -> list[Wait]:
    """Return what a task waits for on its way to its target; nothing if it is there and runs."""
    # If the next owner is the target too, its wait is found twice.
    return list(dict.fromkeys(_waits(view, plan)))


def _waits(view: View, plan: TaskPlan) -> Iterator[Wait]:
    task, choice, held = plan.task, plan.choice, plan.held
    for entry in task.handover.unreleased:
        yield _release_wait(view, task, entry.member_id, entry.free_at_ms)
    is_for_copy = held is not None and held.reason is Held.GRANTS_HELD and task.owner is not None
    if held is not None and (held.reason not in _SAID_ANYWAY or is_for_copy):
        yield _held_wait(view, task, held)
    elif choice.hold is not None and choice.held not in (Held.PARKED, Held.OPEN_TRANSACTION):
        yield _held_wait(view, task, HeldBack(task.id, choice.active, *choice.hold))
    if task.owner is None:
        yield from _grant_waits(view, task, choice.active)
    else:
        yield from _owner_waits(view, task, task.owner)
    yield from _copy_waits(view, task, held)
    for log, end in open_transactions_of(view.group, view.soft, task.id).items():
        place = place_in_words(log, end, view.now_ms)
        yield Wait(WaitsFor.TRANSACTION, detail=f"it begins at {place}, and nothing behind it can be read")


def _how_far(copy: Copy) -> str:
    if copy.lag is None:
        return "its lag is not known"
    comes_closer = copy.rate is None or copy.rate > 0
    return f"{copy.lag} records behind" + ("" if comes_closer else ", and comes no closer")


def _copy_waits(view: View, task: Task, held: HeldBack | None) -> Iterator[Wait]:
    """Yield the waits for copies that must catch up, or must begin, until everything is as the target says."""
    holders = task.holders
    wanted = [task.target.owner, *task.target.standbys, *task.warmups]
    for member_id in dict.fromkeys(member_id for member_id in wanted if member_id not in (None, task.owner)):
        member = view.present_member(member_id)
        if member_id in view.away and task.owner is not None:
            yield _held_wait(view, task, HeldBack(task.id, member_id, Held.REJOIN_GRACE, view.away[member_id]))
        if member is None or not view.is_stateful(task.id):
            continue
        if member.suspected:
            yield _silent_wait(view, member)
        elif member.id in holders:
            copy = view.copy(task, member.id)
            is_next = task.owner is not None and member.id in (task.target.owner, *task.warmups)
            is_held_back = held is not None and held.to == member.id
            if not copy.is_caught_up or (is_next and not is_held_back):
                yield Wait(WaitsFor.WARMUP, member.id, None, caught_up_in_ms(copy, view.config), _how_far(copy))
        elif member.revoking and held is None:
            yield _others_first(view, member)
        elif member.id in task.target.standbys and state_of(view, task) is TaskState.RUNNING:
            yield _standby_wait(view, task, member.id)
    for member_id in holders:
        if member_id not in wanted and view.group.members[member_id].drain is not None:
            yield Wait(WaitsFor.MEMBER, member_id, None, None, "it drains, and keeps its copy until it goes")


def _silent_wait(view: View, member: Member) -> Wait:
    """Return the wait for a member that may be dead: it is heard again, or its lease ends and others get its copies."""
    until_ms = view.expires_ms(member)
    detail = "it fell silent and may be dead; unless it is heard before, its tasks and copies go to others"
    return Wait(WaitsFor.LEASE, member.id, until_ms, max(0, until_ms - view.now_ms), detail)


def _standby_wait(view: View, task: Task, member_id: MemberId) -> Wait:
    """Return why a standby that the target wants has not begun: moves are held, or those to it, or it needs a slot."""
    hold = view.why_moves_are_held(for_balance=True)
    if hold is None and view.is_new_for(task, member_id):
        hold = Hold(Held.NEW_MEMBER, view.newcomers[member_id])
    hold = hold or view.why_not_granted(member_id)
    if hold is not None:
        return _held_wait(view, task, HeldBack(task.id, member_id, *hold))
    return Wait(WaitsFor.SLOT, member_id, None, None, "a standby is to begin there when it gets a slot")


def _release_wait(view: View, task: Task, member_id: MemberId, free_at_ms: int | None) -> Wait:
    if free_at_ms is not None:
        return Wait(WaitsFor.LEASE, member_id, free_at_ms, max(0, free_at_ms - view.now_ms), meaning_of(Held.LEASE))
    # No end of a lease is set, so the member still has to confirm.
    member = view.group.members[member_id]
    since_ms = member.revoking[task.id].since_ms
    until_ms, is_silent = fenced_by_ms(view, member, since_ms)
    detail = "it was told to stop and has not confirmed it"
    return Wait(WaitsFor.CONFIRMATION, member_id, until_ms, None, detail + (SILENT_SUFFIX if is_silent else ""))


def fenced_by_ms(view: View, member: Member, since_ms: int) -> tuple[int, bool]:
    """Return the instant until which a member that must give something up since ``since_ms`` can delay others.

    The second value is true if the member is silent, and its lease ends before it would be fenced for not confirming.
    """
    fenced_ms = max(since_ms + view.config.rebalance_timeout_ms, view.soft.judge_from_ms)
    expires_ms = view.expires_ms(member)
    is_silent = member.id in view.soft.members and view.is_overdue(member)
    return (expires_ms, True) if is_silent and expires_ms < fenced_ms else (fenced_ms, False)


def _held_wait(view: View, task: Task, held: HeldBack) -> Wait:
    """Return what ends the wait of a task that is held back, and when at the latest, if that is known."""
    detail, until_ms = meaning_of(held.reason), held.until_ms
    if held.reason is Held.REVOKE_FIRST and held.to is not None:
        return _others_first(view, view.members[held.to])
    if held.reason is Held.FAILED_THERE and held.to is not None:
        member = view.members[held.to]
        known = [one for one in task.marks.failures if is_avoided(one, member, view.config, view.now_ms)]
        detail = f"{detail}: {', '.join(dict.fromkeys(OUTCOMES[one.outcome] for one in known))}"
    elif held.reason is Held.MEMBER_OVERDUE and view.longest_silence is not None:
        detail = f"{detail}; {view.longest_silence[1]} has been silent longest"
    eta_ms = None if until_ms is None else max(0, until_ms - view.now_ms)
    return Wait(held.reason.waits_for, held.to, until_ms, eta_ms, detail)


OUTCOMES: Final[Mapping[Outcome, str]] = {
    Outcome.FAILED: "it failed",
    Outcome.DIED: "its owner died",
    Outcome.LOST: "its state was lost",
    Outcome.STUCK: "it did not come to run",
    Outcome.SILENT: "the member was silent when it could have had it",
}


def _grant_waits(view: View, task: Task, taker: MemberId | None) -> Iterator[Wait]:
    """Yield what keeps a task from being granted, except releases."""
    held_ms = view.group.grants_from_ms
    if held_ms > view.now_ms:
        yield Wait(WaitsFor.TIME, None, held_ms, held_ms - view.now_ms, meaning_of(Held.GRANTS_HELD))
    member = view.group.members.get(taker) if taker is not None else None
    if member is not None and member.revoking and not task.handover.unreleased:
        yield _others_first(view, member)


def _others_first(view: View, member: Member) -> Wait:
    """Return the wait for a member that gets no grant until it has confirmed its revocations."""
    since_ms = min(revocation.since_ms for revocation in member.revoking.values())
    until_ms, is_silent = fenced_by_ms(view, member, since_ms)
    count = len(member.revoking)
    detail = f"it must first confirm that it gave up {count} {'task' if count == 1 else 'tasks'}"
    detail += SILENT_SUFFIX if is_silent else ""
    return Wait(WaitsFor.CONFIRMATION, member.id, until_ms, None, detail)


def _owner_waits(view: View, task: Task, owner: MemberId) -> Iterator[Wait]:
    if is_idle(view, task):
        yield Wait(WaitsFor.REPORT, owner, None, None, "it ran the task, and reports now that it does not")
    elif not view.is_heard(owner):
        yield _silent_wait(view, view.members[owner])
    elif task.state is ActiveState.GRANTED:
        yield Wait(WaitsFor.REPORT, owner, None, None, "it was granted the task and has not reported it yet")
    elif task.state is ActiveState.RESTORING:
        copy = view.copy(task, owner)
        yield Wait(WaitsFor.RESTORE, owner, None, caught_up_in_ms(copy, view.config), _how_far(copy))
    elif task.state is ActiveState.LOST:
        yield Wait(WaitsFor.RESTORE, owner, None, None, "its state is gone, and no other member has a copy of it")
    elif task.state is ActiveState.FAILED:
        yield Wait(WaitsFor.REPORT, owner, None, None, "it failed there; until it recovers, no other copy is ready")


def _sentences(view: View, plan: TaskPlan, state: TaskState, waits: tuple[Wait, ...]) -> Iterator[str]:
    task, choice, held = plan.task, plan.choice, plan.held
    yield _where(view, task, state)
    if task.marks.pin is not None:
        yield _pin(view, task, task.marks.pin)
    if task.target.owner is not None and task.target.owner != task.owner:
        yield f"It belongs to {task.target.owner}."
    elif task.target.owner is None and task.target.waiting_reason:
        yield f"It has no target: {meaning_of(task.target.waiting_reason)}."
    if choice.active is not None and choice.active not in (task.owner, task.target.owner):
        yield f"{choice.active} has it until then, because its copy is the most caught up."
    meaning = "" if held is None else meaning_of(held.reason)
    if meaning:
        yield f"Its move is held back: {meaning}."
    yield from (sentence_of(wait) for wait in waits if wait.detail != meaning)
    for stall in task.marks.stalls:
        if stall.gave_way and stall.until_ms > view.now_ms and stall.member_id in view.members:
            yield f"Its copy on {stall.member_id} came no closer and gave way, because others waited; it is tried again later."
    is_there = task.target.owner == task.owner and task.marks.pin in (None, task.owner)
    if state is TaskState.RUNNING and not waits and is_there:
        yield "It is where it belongs, and waits for nothing."


def _pin(view: View, task: Task, pin: MemberId) -> str:
    member, is_placed = view.members[pin], view.group.placement_due_ms is None
    if member.drain is None:
        has_no_room = is_placed and has_limit(member) and task.target.owner != pin
        return f"An operator pinned it to {pin}{', which has no room for it' if has_no_room else ''}."
    return f"An operator pinned it to {pin}, which drains: the pin is suspended until the drain is taken back."


def _where(view: View, task: Task, state: TaskState) -> str:
    since = duration(view.now_ms - task.since_ms) if task.since_ms else "a time that is not known"
    match state:
        case TaskState.PARKED:
            failed = ", ".join(failure.member_id for failure in task.marks.failures)
            return f"{task.id} is parked: it failed on {failed or 'several members'}."
        case TaskState.WAITING | TaskState.HANDING_OVER:
            stopped = (
                f"{task.handover.stop.member_id} had it ({task.handover.stop.cause}); nobody"
                if task.handover.stop is not None
                else "Nobody"
            )
            to = f"; {task.handover.next_owner} gets it" if task.handover.next_owner is not None else ""
            ever = f" since {since}" if task.token else ", and never did"
            return f"{stopped} runs {task.id}{ever}{to}."
        case TaskState.STARTING:
            return f"{task.owner} was given {task.id} {since} ago."
        case TaskState.RESTORING:
            return f"{task.owner} restores {task.id}, which it has had for {since}."
        case TaskState.FAILED | TaskState.LOST:
            what = "failed on" if state is TaskState.FAILED else "lost its state on"
            return f"{task.id} {what} {task.owner}, which has had it for {since}."
        case _ if task.owner is not None and not view.is_heard(task.owner):
            silence = duration(view.now_ms - view.heard_since_ms(view.members[task.owner]))
            return f"{task.owner} ran {task.id} when it was last heard, {silence} ago."
        case _:
            return f"{task.owner} runs {task.id} and has had it for {since}."


def sentence_of(wait: Wait) -> str:
    """Return the wait as a sentence."""
    whom = f" {wait.member_id}" if wait.member_id is not None else ""
    what = "member" if wait.what is WaitsFor.MEMBER and whom else _WORDS[wait.what]
    eta = f", about {duration(wait.eta_ms)} to go" if wait.eta_ms is not None else ""
    return f"It waits for {what}{whom}: {wait.detail}{eta}."


_WORDS: Final[Mapping[WaitsFor, str]] = {
    WaitsFor.WARMUP: "the copy on",
    WaitsFor.CONFIRMATION: "the confirmation of",
    WaitsFor.LEASE: "the end of the lease of",
    WaitsFor.SLOT: "a warmup slot on",
    WaitsFor.ROOM: "room",
    WaitsFor.MEMBER: "a member",
    WaitsFor.REPORT: "the report of",
    WaitsFor.RESTORE: "the restore on",
    WaitsFor.PLACEMENT: "the next placement",
    WaitsFor.TIME: "time to pass",
    WaitsFor.TRANSACTION: "the end of a transaction",
    WaitsFor.OPERATOR: "an operator",
}
