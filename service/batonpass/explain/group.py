"""Why a group is not at rest: what is held back, which slots are taken, which members keep others waiting, until when.

It changes nothing. It sums up what ``explain`` says of the group's tasks, and adds what concerns the whole group.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from batonpass.core.arrivals.answers import why_drain_is_blocked
from batonpass.core.handover.copies import HeldBack, TaskPlan, plan_task
from batonpass.core.handover.probing import copies_behind
from batonpass.core.handover.step import plan_step
from batonpass.core.handover.view import View
from batonpass.core.state.durations import duration
from batonpass.core.state.failures import distrusted_until_ms, faults_in_words, host_of
from batonpass.core.state.ids import MemberId, TaskId, task_sort_key
from batonpass.core.state.model import Drain, Member, Role
from batonpass.core.state.policy import BalanceBy
from batonpass.core.state.reasons import meaning_of
from batonpass.core.target.load import due_ms
from batonpass.dry_run.load import TOO_HOT_ALONE, LoadStatus, load_status
from batonpass.explain.health import (
    STILL,
    Health,
    count,
    drain_ends_ms,
    health_of,
    refusals,
    silence_of,
    was_to_rebalance,
)
from batonpass.explain.status import GroupState, GroupStatus, idle_tasks, status_of
from batonpass.explain.task import SILENT_SUFFIX, TaskState, Wait, fenced_by_ms, state_of, waits_of


class Budget(NamedTuple):
    """Slots for extra copies: how many are taken, and how many there are."""

    used: int
    limit: int


class Obstacle(NamedTuple):
    """A member that keeps a task from moving, or that is leaving.

    ``what`` is ``unrevoked`` (it has not confirmed a revocation), ``away``, ``suspected``, ``distrusted``, ``draining``
    or ``drain-blocked``. ``until_ms`` is when that ends by itself.
    """

    member_id: MemberId
    what: str
    tasks: int
    since_ms: int | None
    until_ms: int | None
    detail: str


class WaitingTask(NamedTuple):
    """A task that is not yet as its target says, with what it waits for."""

    task: TaskId
    state: TaskState
    held: HeldBack | None
    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True)
class GroupExplanation:
    """Everything that can be said about a group now.

    Attributes:
        held_until_ms: nothing is granted before this instant.
        judges_from_ms: silent members are expired from this instant on. None: now.
        full_members: the members whose warmup slots are all taken.
        waiting: the first of the ``waiting_total`` unsettled tasks, those that are not processed before the others.
    """

    status: GroupStatus
    health: Health
    held_until_ms: int | None
    judges_from_ms: int | None
    warmups: Budget
    drain_warmups: Budget
    full_members: tuple[MemberId, ...]
    obstacles: tuple[Obstacle, ...]
    waiting: tuple[WaitingTask, ...]
    waiting_total: int
    sentences: tuple[str, ...]
    load: LoadStatus | None


def explain_group(view: View, *, limit: int) -> GroupExplanation:
    """Return why the group is where it is, with at most ``limit`` of its waiting tasks."""
    group, soft, now_ms = view.group, view.soft, view.now_ms
    step = plan_step(view)
    known = [plan for plan in step.task_plans if plan.task.id in group.table.index_of]
    not_processed = {*STILL, TaskState.RESTORING}
    unsettled = sorted(known, key=lambda plan: state_of(view, plan.task) not in not_processed)
    waiting = [_waiting(view, plan) for plan in unsettled[:limit]]
    status = status_of(view, step.held)
    health = health_of(view, status)
    behind = [] if unsettled or status.at_rest else list(_behind(view))
    idle = idle_tasks(view)
    idling = [_waiting(view, plan_task(view, task)) for task in view.tasks.pick(idle)]
    of_balance, of_drains = step.slots.used
    warmups, drains = Budget(of_balance, step.slots.balance), Budget(of_drains, step.slots.drains)
    obstacles, load = tuple(_obstacles(view)), load_status(group, view.soft)
    return GroupExplanation(
        status=status,
        health=health,
        held_until_ms=group.grants_from_ms if group.grants_from_ms > now_ms else None,
        judges_from_ms=soft.judge_from_ms if soft.judge_from_ms > now_ms else None,
        warmups=warmups,
        drain_warmups=drains,
        full_members=step.slots.full_members,
        obstacles=obstacles,
        waiting=tuple(waiting or [*idling, *behind][:limit]),
        waiting_total=len(unsettled) or len(idle) + len(behind),
        sentences=(
            health.sentence,
            *(one.sentence for one in health.others),
            *_sentences(view, status, (warmups, drains), obstacles),
            *_of_settled(idle, behind if view.config.kafka_streams else []),
            *(_of_load(view, load) if load is not None else ()),
        ),
        load=load,
    )


def _waiting(view: View, plan: TaskPlan) -> WaitingTask:
    return WaitingTask(plan.task.id, state_of(view, plan.task), plan.held, tuple(waits_of(view, plan)))


def _behind(view: View) -> Iterator[WaitingTask]:
    """Yield the settled tasks with a copy that is not caught up, by member and task."""
    for member_id in sorted(view.group.members):
        for task in sorted(copies_behind(view, view.members[member_id]), key=lambda task: task_sort_key(task.id)):
            yield _waiting(view, plan_task(view, task))


def _of_settled(idle: list[TaskId], behind: list[WaitingTask]) -> Iterator[str]:
    if idle:
        yield f"{count(len(idle), 'task ran, and its owner reports', 'tasks ran, and their owners report')} now that nobody runs it."
    if behind:
        yield f"{count(len(behind), 'copy is', 'copies are')} not caught up."


def _of_load(view: View, load: LoadStatus) -> Iterator[str]:
    """Yield how the measured load lies, what comes of that, and which task alone is too much for any member."""
    group, at_ms = view.group, due_ms(view.group, view.soft)
    needed = f"all of it would fill {load.members_needed:.3g} members of average capacity"
    if load.standbys_need:
        needed += f", of which standbys {load.standbys_need:.2g}"
    if not load.by_member:
        return
    hot = max(load.by_member, key=lambda member_id: load.by_member[member_id])
    yield f"The highest measured load is that of {hot}, {load.imbalance:.0%} above the average; {needed}."
    if group.hot_since_ms is not None and at_ms is not None:
        too_hot = f"That is too hot (load_imbalance), since {duration(view.now_ms - group.hot_since_ms)}"
        alone = [task for task, grant in group.members[hot].assignment.items() if grant.role is Role.ACTIVE]
        if len(alone) == 1:
            yield f"{too_hot}; {hot} runs nothing but {alone[0]}, so nothing can leave it."
        elif group.config.balance_by is BalanceBy.SHADOW:
            yield f"{too_hot}; in shadow nothing moves for it, and a plan says what would."
        else:
            left = duration(max(0, at_ms - view.now_ms))
            yield f"{too_hot}; in {left} it is decided what moves for it, if the group is at rest then."
    if load.hottest_share > TOO_HOT_ALONE:
        yield (
            f"{load.hottest} alone takes {load.hottest_share:.0%} of the largest member: "
            "no placement helps, so split it, or give a member more capacity."
        )
    for member_id, known in sorted(view.member_softs.items()):
        said = {task_id: one.until(view.now_ms, group.config.load_half_life_ms) for task_id, one in known.loads.items()}
        if doubted := sorted([task_id for task_id, one in said.items() if one.is_doubted], key=task_sort_key):
            yield (
                f"{member_id} says of {count(len(doubted), 'task', 'tasks')} ({', '.join(doubted[:_NAMED])}{', …' if len(doubted) > _NAMED else ''}) less than a quarter "
                "of the load measured elsewhere: one of the two is wrong, and what is nearer to the median counts."
            )


def _obstacles(view: View) -> Iterator[Obstacle]:
    # Counted once for all members: a whole fleet may restart or drain, and wait for as many tasks.
    unsettled = view.group.tasks.pick(view.group.unsettled)
    awaited = Counter(task.handover.away_owner for task in unsettled)
    pins = Counter(view.group.pins.values())
    for member_id in sorted(view.group.members):
        member = view.group.members[member_id]
        if member.away_until_ms is not None:
            yield Obstacle(
                member_id, "away", awaited[member_id], None, view.away[member_id], "its instance is restarting"
            )
        if member.suspected:
            detail = "its long-poll broke, and it has been silent since"
            yield Obstacle(member_id, "suspected", len(member.assignment), None, view.expires_ms(member), detail)
        elif member.revoking:
            yield _unrevoked(view, member)
        if member_id in view.distrusted:
            yield _distrusted(view, member)
        if member.drain is not None:
            yield _draining(view, member, member.drain, pins[member_id])


def _unrevoked(view: View, member: Member) -> Obstacle:
    since_ms = min(revocation.since_ms for revocation in member.revoking.values())
    detail = "it was told to give tasks up and has not confirmed it"
    if view.config.kafka_streams:
        detail += "; the application's next rebalance tells"
        return Obstacle(member.id, "unrevoked", len(member.revoking), since_ms, None, detail)
    until_ms, is_silent = fenced_by_ms(view, member, since_ms)
    detail += SILENT_SUFFIX if is_silent else "; after that it is fenced"
    return Obstacle(member.id, "unrevoked", len(member.revoking), since_ms, until_ms, detail)


def _distrusted(view: View, member: Member) -> Obstacle:
    known = view.group.hosts[host_of(member)]
    until_ms = distrusted_until_ms(view.config, known)
    detail = f"it is given nothing new: {faults_in_words(known)}"
    return Obstacle(member.id, "distrusted", len(member.assignment), known.distrusted_ms, until_ms, detail)


def _draining(view: View, member: Member, drain: Drain, pins: int) -> Obstacle:
    left, blocked = len(member.may_run), why_drain_is_blocked(view.group, member)
    what = "drain-blocked" if blocked and left else "draining"
    detail = (
        meaning_of(blocked)
        if blocked and left
        else (f"{count(left, 'active task is', 'active tasks are')} left" if left else "it has no active task left")
    )
    if pins:
        detail += f"; {count(pins, 'pin', 'pins')} on it suspended until the drain is taken back"
    until_ms = drain_ends_ms(drain, view.now_ms) if what == "draining" else None
    return Obstacle(member.id, what, left, drain.since_ms, until_ms, detail)


def _sentences(
    view: View, status: GroupStatus, budgets: tuple[Budget, Budget], obstacles: tuple[Obstacle, ...]
) -> Iterator[str]:
    """Yield the details that the health of the group does not say."""
    group, now_ms = view.group, view.now_ms
    yield from _of_application(view, status)
    if group.placement_due_ms is not None and group.members:
        why = ", ".join(group.triggers)
        if group.config.kafka_streams:
            yield f"What has changed since ({why}) is answered at the application's next rebalance."
        else:
            yield f"The next placement is due in {duration(group.placement_due_ms - now_ms)} ({why})."
    if status.warmups:
        soon = (
            ""
            if status.eta_ms is None
            else f"; the last of them should be caught up in about {duration(status.eta_ms)}"
        )
        warmups, drains = budgets
        slots = _slots(warmups) + (f"; for drains, {_slots(drains)}" if drains.used else "")
        yield f"{count(status.warmups, 'copy warms', 'copies warm')} up ({slots}){soon}."
    reasons = Counter(entry.reason.value for entry in status.held_back)
    for reason, number in reasons.most_common():
        yield f"{count(number, 'task is', 'tasks are')} held back: {meaning_of(reason)}."
    for obstacle in obstacles:
        if obstacle.what not in _OF_DETAIL:
            continue
        left = "" if obstacle.until_ms is None else f" (until then {duration(obstacle.until_ms - now_ms)})"
        yield f"{obstacle.member_id} is {obstacle.what} with {count(obstacle.tasks, 'task', 'tasks')}: {obstacle.detail}{left}."
    if view.config.other_assignor:
        yield (
            f"{view.config.other_assignor} decides, not this group (shadow): what is still to come here is what would be "
            "done, and nothing of it is carried out."
        )
    elif (
        group.config.kafka_streams
        and status.next_probe_ms is not None
        and status.state is GroupState.BALANCING
        and not was_to_rebalance(view)
    ):
        left = duration(status.next_probe_ms - now_ms)
        yield f"The application was asked to rebalance again in {left}; between two rebalances nothing moves."


def _slots(budget: Budget) -> str:
    if budget.used <= budget.limit:
        return f"{budget.used} of {budget.limit} slots taken"
    return (
        f"{budget.used} slots taken where there are {budget.limit}: "
        "what was begun for a drain, or under a larger budget, goes on"
    )


_NAMED: Final = 5
"""How many tasks a sentence names at most."""
_OF_DETAIL: Final = ("unrevoked", "away")
"""Obstacles that are no finding of the group's health."""


def _of_application(view: View, status: GroupStatus) -> Iterator[str]:
    """Yield that nothing was heard of an application that is not due, and that another one asks under its name."""
    if status.application is not None and status.application.is_silent and not was_to_rebalance(view):
        yield silence_of(view, status.application, "it rests, is stopped, or does not get through")
    if status.others_refusals is not None:
        words = refusals(view, status.others_refusals)
        yield f"Another application asks under this name, and is refused: {words}"
