"""The health of a group: how it is, what is most wrong, since when, why, until when, and what can be done.

Everything that shows a group takes it from here: API, commands, dashboard and metrics. It says what is known and by
whom. Of a task whose owner is silent, or was not heard since this coordinator started, it does not say that it runs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from batonpass.core.arrivals.answers import why_drain_is_blocked
from batonpass.core.arrivals.kept_out import name_of_instance
from batonpass.core.handover.probing import copies_behind
from batonpass.core.handover.step import plan_step
from batonpass.core.handover.turns import last_came_on
from batonpass.core.handover.view import View
from batonpass.core.state.application import Application, rebalance_due_ms
from batonpass.core.state.durations import duration
from batonpass.core.state.failures import distrusted_until_ms, faults_in_words, host_of
from batonpass.core.state.ids import HostId, InstanceId, MemberId, TaskId
from batonpass.core.state.model import (
    ActiveState,
    Cause,
    Drain,
    Failure,
    Member,
    Outcome,
    Pause,
    PauseScope,
    Task,
)
from batonpass.core.state.reasons import Held, meaning_of
from batonpass.core.state.soft import Refused
from batonpass.core.state.topology import is_ready
from batonpass.explain.remedies import HELP, Level
from batonpass.explain.status import GroupStatus, idle_tasks, status_of
from batonpass.explain.task import OUTCOMES, TaskState, state_of


class Remedy(NamedTuple):
    """A command that helps: its name, what it is about, and its command line."""

    action: str
    command: str
    member_id: MemberId | None = None
    task: TaskId | None = None


class Origin(NamedTuple):
    """Where something went wrong: the task, the member, when, and what the member said or what came of it."""

    task: TaskId | None
    member_id: MemberId | None
    at_ms: int | None
    detail: str


class Finding(NamedTuple):
    """One thing that can be said of a group.

    Attributes:
        what: a code.
        todo: what to do, with ``remedies``, commands for it, and ``runbook``, the name of a page in `docs/runbooks`.
        until_ms: when it ends by itself at the latest, by the deadline that ``until`` names.
        until: what ends it, in words. Empty if nobody knows, or nothing has to end.
        more: how many more ``remedies`` there are.
    """

    level: Level
    what: str
    sentence: str
    todo: str
    remedies: tuple[Remedy, ...]
    runbook: str
    since_ms: int | None = None
    until_ms: int | None = None
    until: str = ""
    cause: Origin | None = None
    more: int = 0


@dataclass(frozen=True, slots=True)
class Health:
    """A group in one glance.

    Attributes:
        worst: what is most wrong; of a group that is well, that it is.
        sentence: that, and whether work goes on.
        others: what else can be said, the worst first.
        states: how many tasks are in each state; those of owners that are silent are not among the running ones.
        unknown: how many tasks ran when their owners were last heard.
        members, heard: how many members are there, and how many of them are heard.
        judged_from_ms: members that were not heard since this coordinator started are judged from then on. None: now.
        evidence: what all this rests on, as a sentence.
        incident: what last went wrong within an hour.
        at_ms: when all this is so.
    """

    worst: Finding
    sentence: str
    others: tuple[Finding, ...]
    states: Mapping[TaskState, int]
    unknown: int
    members: int
    heard: int
    judged_from_ms: int | None
    evidence: str
    incident: Origin | None
    at_ms: int

    @property
    def level(self) -> Level:
        return self.worst.level


INCIDENT_MS: Final = 3_600_000
"""For how long the last incident is told."""

LACKING_MS: Final = 600_000
"""How long spare copies that a group asks for have no place before that asks for attention."""

FLAPS: Final = 3
FLAPS_WITHIN_MS: Final = 900_000
"""An instance flaps if so many of its runs ended within this time."""

FORGOTTEN_MS: Final = 4 * 3_600_000
"""After how long an instance that is kept out without an end asks for attention, as the alert on a pause has it."""

REMEDIES_MAX: Final = 5
"""The most commands that a finding names."""

HEIRS_MAX: Final = 2
"""How many members are named that take over."""

NAMED_MAX: Final = 3
"""How many members are named with whom the same is wrong; of more, the first, and their number."""

STILL: Final[Mapping[TaskState, str]] = {
    TaskState.FAILED: "failed",
    TaskState.LOST: "lost its state",
    TaskState.PARKED: "parked after failures",
    TaskState.WAITING: "without an owner",
}
"""States of a task that nobody processes or is about to process."""

BETWEEN: Final[Mapping[TaskState, str]] = {
    TaskState.RESTORING: "restoring",
    TaskState.STARTING: "starting",
    TaskState.HANDING_OVER: "handing over",
}
"""States of a task that is not processed for a short time."""

_NO_PLACE: Final[Mapping[str | None, str]] = {
    Held.NO_CAPACITY: "without-place",
    Held.NO_ELIGIBLE_MEMBER: "without-place",
    Held.STALE_TOPOLOGY: "stale-topology",
}
"""Why a task waits for a member that is not there, and what helps."""

ENDS: Final[Mapping[str, str]] = {
    Held.LEASE: "the lease of the last owner",
    Held.REJOIN_GRACE: "the time for which its place is kept",
    Held.GRANTS_HELD: "the time for which nothing is granted",
    Held.INITIAL_DELAY: "the next placement",
    Held.STATE_UNKNOWN: "the time for which its report is waited for",
}
"""Whose deadline ends what holds a task that nobody runs."""

LOSSES: Final[Mapping[Cause, str]] = {
    Cause.EXPIRED: "its lease ran out",
    Cause.FENCED: "it did not give up what it was told to, and was fenced",
    Cause.EVICTED: "it was evicted",
    Cause.GRACE_OVER: "it did not come back from its restart",
}
"""What made a member leave that had not said that it would."""


def describe(view: View) -> tuple[GroupStatus, Health]:
    """Return where a group stands, and how it is."""
    status = status_of(view, plan_step(view).held)
    return status, health_of(view, status)


def health_of(view: View, status: GroupStatus) -> Health:
    look = _Look(view, status)
    # Between its rebalances nobody knows what an application runs.
    between = view.config.kafka_streams
    begun = (task.since_ms for state in BETWEEN for task in look.by_state[state] if task.since_ms)
    due = look.found("moving", look.meanwhile, since_ms=min(begun, default=None))
    worst, *others = sorted(_findings(look), key=lambda one: _ORDER[one.level]) or [due]
    return Health(
        worst=worst,
        sentence=worst.sentence
        if worst is due or worst.what in _SAYS_WHAT_RUNS or between
        else f"{worst.sentence} {look.meanwhile}",
        others=tuple(others),
        states={state: look.states[state] for state in TaskState if look.states[state]},
        unknown=look.unknown,
        members=len(view.group.members),
        heard=len(look.heard),
        judged_from_ms=view.soft.judge_from_ms if look.unheard and view.soft.judge_from_ms > view.now_ms else None,
        evidence=_evidence(look),
        incident=_incident(view),
        at_ms=view.now_ms,
    )


_SAYS_WHAT_RUNS: Final = frozenset(
    {
        *("not-deployed", "all-left", "members-gone", "not-ready", "not-processed", "restoring", "unheard"),
        *("at-rest", "no-spare"),
    }
)
_ORDER: Final = {level: place for place, level in enumerate(Level)}


class _Look:
    """A group at one instant, sorted by who is heard and what runs."""

    def __init__(self, view: View, status: GroupStatus) -> None:
        self.view = view
        self.group = view.group
        self.status = status
        self.tasks = len(self.group.table.ids)
        here = [member for _, member in sorted(self.group.members.items()) if member.away_until_ms is None]
        # An application is heard at its rebalances alone.
        unheard = [one for one in here if one.id not in view.soft.members]
        self.unheard = [] if view.config.kafka_streams else unheard
        self.silent = [one for one in here if is_silent(view, one)]
        self.heard = [one for one in here if one.id in view.soft.members and one not in self.silent]
        self.here = len(self.unheard) + len(self.silent) + len(self.heard)
        self.drained = [member for member in here if member.drain is not None]
        self.by_state: dict[TaskState, list[Task]] = {state: [] for state in TaskState}
        unsettled = [task_id for task_id in self.group.unsettled if task_id in self.group.table.index_of]
        looked_at = dict.fromkeys([*unsettled, *([] if status.at_rest else idle_tasks(view))])
        for task in view.tasks.pick(looked_at):
            self.by_state[state_of(view, task)].append(task)
        self.held = {one.task: one for one in status.held_back}
        self.states = Counter({state: len(tasks) for state, tasks in self.by_state.items()})
        unsure = [self.group.tasks[task_id] for member in (*self.unheard, *self.silent) for task_id in member.actives]
        self.unknown = sum(task.state is ActiveState.RUNNING and not task.marks.parked for task in unsure)
        self.states[TaskState.RUNNING] += self.tasks - len(looked_at)

    def found(  # noqa: PLR0913 - each says something else of what was found, and most are left out
        self,
        row: str,
        sentence: str = "",
        *,
        what: str = "",
        level: Level | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        until: str = "",
        cause: Origin | None = None,
        members: Sequence[Member] = (),
        runs: Mapping[MemberId, str] | None = None,
        tasks: Sequence[TaskId] = (),
        name: str = "",
        detail: str = "",
    ) -> Finding:
        """Return what was found of the group, or of members or tasks, with level and help by a row of ``HELP``."""
        advice, group_id = HELP[row], self.group.id
        name = name or (self.name(members[0].id) if len(members) == 1 else "any of them")
        span = duration(max((until_ms or 0) - self.view.now_ms, 0))
        # Nobody vouches that one is dead by a name that its next run has, too.
        about = runs or {one.id: one.id if advice.option else self.name(one.id) for one in members}
        remedies = (
            *(Remedy(advice.action, advice.command(group_id, one), task=one) for one in tasks[:REMEDIES_MAX]),
            *(Remedy(advice.action, advice.command(group_id, about[one]), one) for one in [*about][:REMEDIES_MAX]),
        ) or (Remedy(advice.action, advice.command(group_id)),)
        return Finding(
            level or advice.level,
            what or row,
            sentence,
            advice.todo.format(name=name, span=span, detail=detail),
            remedies if advice.action else (),
            advice.runbook,
            since_ms,
            until_ms,
            until,
            cause,
            max(len(tasks) + len(about) - REMEDIES_MAX, 0) if advice.action else 0,
        )

    def who(self, members: Sequence[Member]) -> str:
        """Return members as a sentence begins with them: by their names, of many the first."""
        return _named("Member", [self.name(one.id) for one in members])

    def name(self, member_id: MemberId) -> str:
        """Return what people call a member: its instance, if it has one; of an application, its own id."""
        known = self.group.members.get(member_id) or self.group.gone.get(member_id)
        instance_id = None if known is None or self.view.config.kafka_streams else known.instance_id
        return instance_id or member_id

    @cached_property
    def meanwhile(self) -> str:
        """Whether work goes on, which matters most during a problem."""
        parts = [f"{self.states[state]} {words}" for state, words in {**STILL, **BETWEEN}.items() if self.states[state]]
        parts += [f"{self.unknown} of owners that are not heard"] if self.unknown else []
        if not parts:
            return f"All {count(self.tasks, 'task')} run." if self.tasks != 1 else "Its task runs."
        rest = self.tasks - self.unknown - sum(self.states[state] for state in (*STILL, *BETWEEN))
        return f"Of {count(self.tasks, 'task')}: {', '.join(parts)}{'; the others run' if rest > 0 else ''}."


def _named(what: str, names: Sequence[str]) -> str:
    """Return several of a kind as a sentence begins with them: by their names, of many the first."""
    named = names[:NAMED_MAX]
    more = len(names) - len(named)
    if more:
        return f"{count(len(names), what.lower())} ({', '.join(named)} and {more:,} more)"
    return f"{what} {named[0]}" if len(named) == 1 else f"{what}s {', '.join(named[:-1])} and {named[-1]}"


def is_silent(view: View, member: Member) -> bool:
    """Say whether a member that was heard is silent for longer than it should be; nothing follows of an application."""
    if view.config.kafka_streams or member.id not in view.soft.members or member.away_until_ms is not None:
        return False
    return member.suspected or view.is_overdue(member)


def _findings(look: _Look) -> Iterator[Finding]:
    """Yield all that can be said; of one level, the most important first."""
    group, application = look.group, look.status.application
    refused = None if application is None else application.refused
    if refused is not None:
        words = f"Rebalances are refused: {refusals(look.view, refused)}"
        yield look.found("refused", words, since_ms=refused.since_ms, until="when it is mended")
    elif not is_ready(group.topology):
        level = None if group.members else Level.NOT_DEPLOYED
        yield look.found("not-ready", f"The group is not ready: {look.status.detail}.", level=level)
    if not group.members:
        if group.declared:
            yield _without_members(look)
        return
    yield from _of_tasks(look)
    if application is not None and application.is_silent and was_to_rebalance(look.view):
        told_ms = rebalance_due_ms(group) or 0
        meaning = f"it was to rebalance {_ago(look.view, told_ms)}, so it is stopped, or does not get through"
        words = silence_of(look.view, application, meaning)
        yield look.found("application-silent", words, what="silent", since_ms=told_ms)
    elif application is None:
        yield from _slow(look)
    yield from _of_group(look)
    yield from _of_members(look)
    if application is None or not application.is_silent:
        yield from _stalled(look)
    if group.pause is not None:
        yield _paused(look, group.pause)
    if look.status.moves_pending or not (look.status.at_rest or refused is not None):
        yield from _moving(look)
    elif look.status.at_rest and not look.unheard and not look.silent:
        yield _resting(look)


def _without_members(look: _Look) -> Finding:
    tasks = [look.group.tasks[task_id] for task_id in look.group.table.ids]
    last = max((gone.at_ms for gone in look.group.gone.values()), default=None)
    nobody = f"nobody runs its {count(look.tasks, 'task')}" if look.tasks else "it has no tasks"
    if not look.group.generation or last is None or not any(task.token for task in tasks):
        return look.found("not-deployed", f"No member has joined: {nobody}.")
    lately = [one for one in look.group.gone.items() if one[1].at_ms > last - look.group.config.session_timeout_ms]
    lost = [member_id for member_id, gone in lately if gone.cause in LOSSES]
    if not lost:
        return look.found("all-left", f"All members have left: {nobody}.", since_ms=last, until="when workers join")
    return look.found(
        "members-gone",
        f"All members are gone, {len(lost):,} of the last {len(lately):,} without having left: {nobody}.",
        since_ms=max((task.stopped_ms for task in tasks if task.token), default=last),
        until="when workers join",
        cause=Origin(None, min(lost), look.group.gone[min(lost)].at_ms, LOSSES[look.group.gone[min(lost)].cause]),
    )


def _of_tasks(look: _Look) -> Iterator[Finding]:
    """Yield what is not processed: for good, or while it is restored."""
    waiting = look.by_state[TaskState.WAITING]
    if look.group.placement_due_ms is not None:
        # What never ran is about to be placed for the first time.
        waiting = [task for task in waiting if task.token]
    is_held = look.group.storm_since_ms is not None and bool(waiting)
    no_place = [row for task in waiting if (row := _NO_PLACE.get(task.target.waiting_reason))]
    unowned = "storm" if is_held else next(iter(no_place), "without-owner")
    if unowned == "without-place" and look.drained:
        unowned = "no-taker"
    stuck_ms = look.view.now_ms - look.group.config.rebalance_timeout_ms
    late = [task for task in look.by_state[TaskState.STARTING] if 0 < task.since_ms <= stuck_ms]
    leased = [
        task
        for task in look.by_state[TaskState.HANDING_OVER]
        if any(entry.free_at_ms is not None for entry in task.handover.unreleased)
    ]
    is_paused = any(held.reason is Held.PAUSED for held in look.status.held_back)
    failed = "failed-paused" if is_paused else "task-failed"
    everywhere = [task for task in look.by_state[TaskState.FAILED] if not is_paused and _failed_everywhere(look, task)]
    here = [task for task in look.by_state[TaskState.FAILED] if task not in everywhere]
    found = [
        (row, words, tasks)
        for row, words, tasks in (
            ("failed-everywhere", "failed wherever it was tried", everywhere),
            (failed, STILL[TaskState.FAILED], here),
            (failed, STILL[TaskState.LOST], look.by_state[TaskState.LOST]),
            ("task-parked", STILL[TaskState.PARKED], look.by_state[TaskState.PARKED]),
            (unowned, STILL[TaskState.WAITING], waiting),
            ("not-started", "not started by its owner", late),
            ("leased", "until the lease of the last owner is over", leased),
        )
        if tasks
    ]
    if found:
        tasks = [task for _, _, tasks in found for task in tasks]
        until_ms, until = _end_of(look, {row for row, _, _ in found}, tasks)
        each = [_not_run(look, row, tasks) for row, _, tasks in found]
        yield each[0]._replace(
            what="not-processed",
            sentence=_not_processed(look, len(tasks), ", ".join(f"{len(tasks)} {words}" for _, words, tasks in found)),
            todo=" ".join(dict.fromkeys(one.todo for one in each)),
            remedies=tuple(remedy for one in each for remedy in one.remedies),
            more=sum(one.more for one in each),
            since_ms=_since(look, tasks),
            until_ms=until_ms,
            until=until,
            cause=_vanished(look) if found[0][0] == "storm" else _cause(look, tasks),
        )
    if look.by_state[TaskState.RESTORING]:
        tasks = look.by_state[TaskState.RESTORING]
        copies = [look.view.copy(task, task.owner) for task in tasks if task.owner is not None]
        lags = [copy.lag for copy in copies if copy.lag is not None]
        left = f", {count(sum(lags), 'record')} left" if lags else ""
        words = _not_processed(look, len(tasks), f"{len(tasks)} restoring{left}")
        reports = [look.view.soft.report_of(task.owner, task.id) for task in tasks if task.owner is not None]
        hindered = [one.report.detail for one in reports if one is not None and one.report.detail]
        if hindered:
            words = f"{words} Held up: {hindered[0]}."
        yield look.found(
            "restoring", words, since_ms=_since(look, tasks), until="when restored", cause=_cause(look, tasks)
        )


def _slow(look: _Look) -> Iterator[Finding]:
    """Yield that members that are heard have neither begun what they were granted, nor given up what they were told to.

    It takes them longer than a death would have; after ``rebalance_timeout_ms`` it is no longer waited for.
    """
    heard = {one.id for one in look.heard}
    long_ms, most_ms = look.group.config.session_timeout_ms, look.group.config.rebalance_timeout_ms
    slow = sorted(
        (task.since_ms, task.id, who, state)
        for state in (TaskState.STARTING, TaskState.HANDING_OVER)
        for task in look.by_state[state]
        for who in [task.owner or next((one.member_id for one in task.handover.unreleased), None)]
        if who in heard
        and (task.owner is None or task.state is ActiveState.GRANTED)
        and long_ms <= look.view.now_ms - task.since_ms < most_ms
    )
    if slow:
        since_ms, task_id, who, _ = slow[0]
        states = " or ".join(BETWEEN[state] for state in dict.fromkeys(one[3] for one in slow))
        yield look.found(
            "slow",
            f"{count(len(slow), 'task is', 'tasks are')} still {states}.",
            since_ms=since_ms,
            until_ms=since_ms + most_ms,
            until="the longest that is waited for (rebalance_timeout_ms)",
            cause=Origin(task_id, who, since_ms, "its callback has not returned"),
            name=look.name(who),
        )


def _failed_everywhere(look: _Look, task: Task) -> bool:
    """Say whether a task failed on several hosts, and no other may try it now."""
    held = look.held.get(task.id)
    return len(task.marks.failures) > 1 and held is not None and held.reason is Held.FAILED


def _not_run(look: _Look, row: str, tasks: Sequence[Task]) -> Finding:
    """Return that tasks are not processed for the same reason, told of the first of them."""
    cause = _cause(look, tasks)
    who = cause.member_id if cause is not None and cause.member_id is not None else tasks[0].owner
    name, detail = "its owner" if who is None else look.name(who), "" if cause is None else cause.detail
    if row == "failed-everywhere":
        name = _named("Member", sorted({look.name(failure.member_id) for failure in tasks[0].marks.failures}))
    parked = [task.id for task in tasks] if row == "task-parked" else ()
    drained = look.drained if row == "no-taker" else ()
    leases = [entry.member_id for task in tasks for entry in task.handover.unreleased if row == "leased"]
    dead = {member_id: member_id for member_id in leases}
    return look.found(row, tasks=parked, members=drained, runs=dead, name=name, detail=detail)


def _not_processed(look: _Look, number: int, parts: str) -> str:
    return f"{number:,} of {count(look.tasks, 'task')} {'is' if number == 1 else 'are'} not processed: {parts}."


def _since(look: _Look, tasks: Iterable[Task]) -> int | None:
    """Return since when the first of these tasks has not been processed, as far as anybody said; None: not known.

    What never ran has not been since the group was last placed, at least.
    """
    return min((task.stopped_ms for task in tasks if task.stopped_ms), default=look.group.placed_ms or None)


def _end_of(look: _Look, rows: set[str], tasks: Sequence[Task]) -> tuple[int | None, str]:
    """Return when tasks that are not processed will be, at the latest, and by whose deadline, or what ends it."""
    if rows == {"task-parked"}:
        return None, "when an operator releases it, once it is mended"
    if rows & {"task-failed", "failed-everywhere", "task-parked", "not-started"}:
        return None, "when it is mended"
    if "failed-paused" in rows:
        return None, "when it is mended, or an operator resumes"
    if rows <= {*_NO_PLACE.values(), "no-taker"}:
        return None, "when workers join"
    holds = [look.held[task.id] for task in tasks if task.id in look.held]
    ends = [(one.until_ms, one.reason) for one in holds if one.until_ms is not None]
    until_ms, reason = max(ends) if len(ends) == len(tasks) else (None, Held.STORM)
    return _storm_end(look) if reason is Held.STORM else (until_ms, ENDS.get(reason, meaning_of(reason)))


def _storm_end(look: _Look) -> tuple[int | None, str]:
    """Return when a storm is over, or what ends it; nothing if there is none."""
    over_ms = look.group.storm_over_ms
    if over_ms is None:
        return None, ""
    if over_ms <= look.view.now_ms:
        return None, "when all members are heard"
    return over_ms, "the storm, if nobody else is lost"


def _vanished(look: _Look) -> Origin:
    """Return why a storm holds what waits for an owner."""
    vanished = f"{count(len(look.group.losses), 'member')} vanished at once"
    return Origin(None, None, look.group.storm_since_ms, vanished)


def _cause(look: _Look, tasks: Sequence[Task]) -> Origin | None:
    """Return why the first of these tasks is not processed: what its member said, or what came of it."""
    failed = [(failure, task) for task in tasks for failure in task.marks.failures]
    if failed:
        failure, task = max(failed, key=lambda one: (bool(one[0].detail), one[0].at_ms))
        return _failed(task.id, failure)
    held = next((look.held[task.id] for task in tasks if task.owner is None and task.id in look.held), None)
    if held is not None and held.reason not in (Held.LEASE, Held.REJOIN_GRACE):
        return Origin(held.task, None, None, meaning_of(held.reason))
    away = next((task for task in tasks if task.handover.away_owner is not None), None)
    if away is not None:
        at_ms = None if away.handover.stop is None else away.handover.stop.at_ms
        return Origin(away.id, away.handover.away_owner, at_ms, meaning_of(Held.REJOIN_GRACE))
    stopped = next(((task, task.handover.stop) for task in tasks if task.handover.stop is not None), None)
    if stopped is None:
        return None
    task, stop = stopped
    words = LOSSES[Cause(stop.cause)] if stop.cause in LOSSES else stop.cause
    return Origin(task.id, stop.member_id, stop.at_ms, words)


def _failed(task_id: TaskId, failure: Failure) -> Origin:
    return Origin(task_id, failure.member_id, failure.at_ms, failure.detail or OUTCOMES[failure.outcome])


def _of_group(look: _Look) -> Iterator[Finding]:
    group, now_ms = look.group, look.view.now_ms
    if group.storm_since_ms is not None:
        storm_over_ms, storm_until = _storm_end(look)
        words = f"{_vanished(look).detail}: moves for balance and cold takeovers wait."
        yield look.found("storm", words, since_ms=group.storm_since_ms, until_ms=storm_over_ms, until=storm_until)
    if look.unheard:
        until_ms = max(look.view.expires_ms(member) for member in look.unheard)
        yield look.found(
            "unheard",
            f"{look.here - len(look.unheard):,} of {count(look.here, 'member')} heard since the coordinator started: "
            f"nobody can say whether {count(look.unknown, 'task')} run{'s' if look.unknown == 1 else ''}.",
            since_ms=look.view.soft.started_ms or None,
            until_ms=until_ms,
            until="the leases of those that were not heard",
        )
    if group.recovering_until_ms > now_ms:
        yield look.found(
            "commits-lost",
            "The store lost commits: what members run is adopted, and nothing is granted.",
            since_ms=group.recovering_until_ms - group.longest_session_ms,
            until_ms=group.recovering_until_ms,
            until="a session timeout",
        )
    elif group.grants_from_ms > now_ms:
        yield look.found(
            "grants-held",
            f"Nothing is granted for another {duration(group.grants_from_ms - now_ms)}.",
            since_ms=look.view.soft.started_ms if look.view.soft.judge_from_ms == group.grants_from_ms else None,
            until_ms=group.grants_from_ms,
            until="a session timeout",
            cause=Origin(None, None, None, "a member that is not known here may still run what it had"),
        )
    if group.kept_out:
        yield _kept_out(look)
    if group.placement_failed:
        yield look.found(
            "placement-failed",
            f"Placement failed: {group.placement_failed}.",
            until_ms=group.next_probe_ms,
            until=f"{'at ' if group.next_probe_ms is None else ''}the next probe, or a change of members or settings",
        )


def _kept_out(look: _Look) -> Finding:
    """Return that an operator keeps instances out; once that has lasted for long without an end, it asks for a look."""
    entries, now_ms = look.group.kept_out, look.view.now_ms
    names = {instance_id: name_of_instance(look.group, instance_id) for instance_id in sorted(entries)}
    since_ms = min(one.since_ms for one in entries.values())
    ends = [one.until_ms for one in entries.values() if one.until_ms is not None]
    end_ms = max(ends) if len(ends) == len(entries) else None
    is_one, calm = len(names) == 1, Level.AT_REST if look.status.at_rest else Level.MOVING
    until = "until that is undone" if end_ms is None else f"for another {duration(end_ms - now_ms)}"
    who = f"{_named('Instance', [*names.values()])} {'is' if is_one else 'are'} kept out"
    return look.found(
        "kept-out",
        f"{who}: none of {'its' if is_one else 'their'} runs gets a task, {until}.",
        level=Level.ATTENTION if end_ms is None and since_ms <= now_ms - FORGOTTEN_MS else calm,
        since_ms=since_ms,
        until_ms=end_ms,
        until="when an operator undrains it" if end_ms is None else "the end that this was given",
        runs={look.group.instances.get(one) or MemberId(one): called for one, called in names.items()},
    )


def _of_members(look: _Look) -> Iterator[Finding]:
    """Yield what is wrong with members; of several with whom the same is wrong, one finding tells."""
    busy, idle = list[Member](), list[Member]()
    for member in look.silent:
        (busy if _awaited(look, member) else idle).append(member)
    for row, members in (("silent" if look.heard else "silent-alone", busy), ("silent-idle", idle)):
        if members:
            yield _silent(look, row, members)
    drains = defaultdict[tuple[str, str], list[Member]](list)
    for member in (look.group.members[member_id] for member_id in sorted(look.group.members)):
        if member.drain is not None and not member.gets_nothing:
            blocked = why_drain_is_blocked(look.group, member)
            row = "drained" if not member.may_run else "drain-blocked" if blocked else "draining"
            drains[row, blocked if row == "drain-blocked" else ""].append(member)
    if look.view.distrusted:
        yield _distrusted(look, [look.group.members[member_id] for member_id in sorted(look.view.distrusted)])
    for (row, blocked), members in drains.items():
        yield _draining(look, row, members, blocked)
    yield from _taking_turns(look)


def _taking_turns(look: _Look) -> Iterator[Finding]:
    """Yield the instances whose runs took each other's place again and again: what they ran went to and fro."""
    ends = defaultdict[InstanceId, list[int]](list)
    for gone in look.group.gone.values():
        if gone.cause is Cause.TAKEN_OVER and gone.instance_id and gone.at_ms > look.view.now_ms - FLAPS_WITHIN_MS:
            ends[gone.instance_id].append(gone.at_ms)
    for instance_id in sorted(one for one, times in ends.items() if len(times) >= FLAPS):
        times = sorted(ends[instance_id])
        words = f"Runs of instance {instance_id} took each other's place {len(times)} times"
        yield look.found(
            "taking-turns",
            f"{words} within {duration(FLAPS_WITHIN_MS)}.",
            since_ms=times[0],
            until_ms=times[-FLAPS] + FLAPS_WITHIN_MS,
            until="a quarter of an hour in which that is rare",
            name=instance_id,
        )


def _silent(look: _Look, row: str, members: Sequence[Member]) -> Finding:
    has = "has" if len(members) == 1 else "have"
    return look.found(
        row,
        f"{look.who(members)} {has} fallen silent.",
        what="silent",
        since_ms=min(look.view.heard_since_ms(one) for one in members),
        until_ms=max(look.view.expires_ms(one) for one in members),
        until="its lease" if len(members) == 1 else "the last of their leases",
        members=members,
        detail=_heirs(look, members),
    )


def _awaited(look: _Look, member: Member) -> list[Task]:
    """Return the tasks that a silent member has, or has to confirm that it gave up before anybody else may run them."""
    tasks = [look.group.tasks[task_id] for task_id in member.may_run]
    return [
        task
        for task in tasks
        if task.owner == member.id or any(entry.member_id == member.id for entry in task.handover.unreleased)
    ]


def _heirs(look: _Look, members: Sequence[Member]) -> str:
    """Return where the tasks of silent members go, when their leases are over."""
    tasks = [task for member in members for task in _awaited(look, member)]
    heard = {one.id for one in look.heard}
    ready = [
        [one for one in (*task.standbys, *task.warmups) if one in heard and look.view.copy(task, one).is_caught_up]
        for task in tasks
    ]
    heirs = sorted({look.name(one[0]) for one in ready if one})
    bare = "are rebuilt elsewhere" if look.group.table.stateful_indexes else "are started elsewhere"
    if not heirs:
        return bare
    named = ", ".join(heirs) if len(heirs) <= HEIRS_MAX else "their standbys"
    return f"go to {named}" if all(ready) else f"go to {named}, and those without a copy {bare}"


def _distrusted(look: _Look, members: Sequence[Member]) -> Finding:
    hosts = {host_of(one): look.group.hosts[host_of(one)] for one in members}
    marked = ((task.id, one) for task in look.view.tasks.pick(look.group.table.ids) for one in task.marks.failures)
    there = [(-one.at_ms, task_id, one) for task_id, one in marked if HostId(one.instance_id or one.member_id) in hosts]
    last = min(there, default=None)
    is_one, known = len(hosts) == 1, list(hosts.values())
    why = faults_in_words(known[0]) if is_one else "tasks failed there, or they died, and what they had runs elsewhere"
    return look.found(
        "distrusted",
        f"{look.who(members)} {'is' if is_one else 'are'} given nothing new: {why}.",
        since_ms=min(one.distrusted_ms for one in known),
        until_ms=max(distrusted_until_ms(look.group.config, one) for one in known),
        until="a time that doubles when it happens again",
        cause=None if last is None else _failed(*last[1:]),
        members=members,
    )


def _draining(look: _Look, row: str, members: Sequence[Member], blocked: str) -> Finding:
    who, is_one = look.who(members), len(members) == 1
    left = count(sum(len(one.may_run) for one in members), "task")
    drains = [one.drain for one in members if one.drain is not None]
    since_ms = min(one.since_ms for one in drains)
    if row == "drained":
        level = Level.AT_REST if look.status.at_rest else None
        words = f"{who} {'has' if is_one else 'have'} handed everything over and can be stopped."
        return look.found(row, words, level=level, since_ms=since_ms, members=members)
    if blocked:
        words = f"{who} cannot hand over {left}: {meaning_of(blocked)}."
        return look.found(row, words, since_ms=since_ms, until="when others take what is left", members=members)
    last = max(drains, key=lambda one: one.deadline_ms or one.gives_up_ms)
    until_ms = drain_ends_ms(last, look.view.now_ms)
    until = "the drain's deadline" if last.deadline_ms is not None else "the drain's own time limit"
    return look.found(
        row,
        f"{who} {'drains' if is_one else 'drain'}: {left} left to hand over.",
        since_ms=since_ms,
        until_ms=until_ms,
        until=until if until_ms is not None else "when what was taken away is confirmed",
        members=members,
    )


def drain_ends_ms(drain: Drain, now_ms: int) -> int | None:
    """Return when the time of a drain that goes on is over; None: it is, and only confirmations are missing."""
    end_ms = drain.deadline_ms or drain.gives_up_ms
    return end_ms if end_ms > now_ms else None


def _paused(look: _Look, pause: Pause) -> Finding:
    what = "every move" if pause.scope is PauseScope.ALL else "moves for balance"
    why = f": {pause.reason}" if pause.reason else ""
    return look.found(
        "paused",
        f"An operator holds {what}{why}.",
        since_ms=pause.since_ms,
        until_ms=pause.expires_ms,
        until="the end that the pause was given" if pause.expires_ms is not None else "when an operator resumes it",
    )


def _moving(look: _Look) -> Iterator[Finding]:
    """Yield what moves, or is still due; nothing if all that is due is said of its tasks, or a finding of its own."""
    status, moves, warming = look.status, look.status.moves_pending, look.states[TaskState.WARMING]
    parts = [f"{count(moves, 'task')} still to move"] if moves else []
    parts += [f"{warming} warming up"] if warming else []
    if not parts and any(look.states[state] for state in BETWEEN):
        return
    if not parts and status.application is not None and look.tasks:
        when = _at_last_rebalance(look.view, status.application)
        parts = [f"{when}, every task was where it belongs, but not every copy caught up, or something is still due"]
    parts = parts or list(_still_due(look))
    if not parts:
        return
    until = ""
    if moves > warming and status.held_back:
        reason, _ = Counter(held.reason for held in status.held_back).most_common(1)[0]
        until = f"not known yet: {meaning_of(reason)}"
    elif status.warmups and status.eta_ms is None:
        until = "not known yet: no rate has been seen"
    elif warming >= moves and status.eta_ms is not None:
        until = f"in about {duration(status.eta_ms)}, as fast as copies catch up now"
    yield look.found("moving", f"{', '.join(parts)}.", until=until)


def _stalled(look: _Look) -> Iterator[Finding]:
    """Yield that copies came no closer for ``warmup_stall_timeout_ms``: those under way, and those that gave up.

    A standby that has been caught up since it was granted falls behind for a moment whenever much is written at once.
    """
    view, timeout_ms = look.view, look.view.config.warmup_stall_timeout_ms
    judged = {one.id for one in look.heard}
    stuck: dict[tuple[TaskId, MemberId], int] = {}
    for task in () if look.status.at_rest else view.tasks.pick(look.group.table.ids):
        for stall in task.marks.stalls:
            if stall.until_ms > view.now_ms and stall.member_id in judged:
                stuck[task.id, stall.member_id] = stall.until_ms - 3 * timeout_ms
        for member_id in [one for one in (*task.warmups, *task.standbys) if one in judged]:
            closer_ms, _ = last_came_on(view.soft, task.id, view.members[member_id])
            measured = view.soft.report_of(member_id, task.id)
            least_lag = measured.least_lag if measured is not None and member_id in task.standbys else None
            was_there = least_lag is not None and least_lag <= view.config.acceptable_recovery_lag
            if closer_ms <= view.now_ms - timeout_ms and not was_there and not view.copy(task, member_id).is_caught_up:
                stuck[task.id, member_id] = closer_ms
    if stuck:
        since_ms, task_id, member_id = min((at_ms, *whose) for whose, at_ms in stuck.items())
        yield look.found(
            "warmup-stalled",
            f"{count(len(stuck), 'copy comes', 'copies come')} no closer to the end.",
            since_ms=since_ms,
            until="when it is mended, or less is written",
            cause=Origin(task_id, member_id, None, "its lag does not fall"),
            members=[view.members[member_id]],
        )


def _still_due(look: _Look) -> Iterator[str]:
    """Yield why a group is not at rest in which no task moves."""
    members = look.group.members.values()
    behind = sum(1 for member in members for _ in copies_behind(look.view, member))
    for number, one, many in (
        (behind, "copy is not caught up yet", "copies are not caught up yet"),
        (len(look.by_state[TaskState.RUNNING]), "task is not yet as planned", "tasks are not yet as planned"),
        (sum(one.away_until_ms is not None for one in members), "member restarts", "members restart"),
        (sum(bool(one.revoking) for one in members), "member gives up tasks", "members give up tasks"),
        (int(look.group.placement_due_ms is not None), "placement is due", ""),
    ):
        if number:
            yield f"{number:,} {one if number == 1 else many}"


def _resting(look: _Look) -> Finding:
    application, wanted = look.status.application, look.view.config.num_standby_replicas
    words = (
        f"All {count(look.tasks, 'task')} run where they belong"
        if look.tasks != 1
        else "Its task runs where it belongs"
    )
    caught_up = "every copy is caught up"
    if application is not None:
        words = f"{_at_last_rebalance(look.view, application)}, every task was where it belongs"
        caught_up = "every copy caught up"
    table, placed = look.group.table, look.group.tasks.plain()
    stateful = [placed[table.ids[index]] for index in table.stateful_indexes] if wanted else []
    lacking = [task for task in stateful if len(task.target.standbys) < wanted]
    if lacking:
        return _lacking_spares(look, words, stateful, lacking)
    return look.found("at-rest", f"{words}, and {caught_up}.")


def _lacking_spares(look: _Look, words: str, stateful: Sequence[Task], lacking: Sequence[Task]) -> Finding:
    """Return that the group rests, but spare copies that it asks for have no place: nothing that goes on ends that."""
    placed_ms, wanted = look.group.placed_ms, look.view.config.num_standby_replicas
    here = sum(member.drain is None for member in look.group.members.values())
    spare = "too few spare copies" if any(task.target.standbys for task in lacking) else "no spare copy"
    which = "" if len(lacking) == len(stateful) else f" of {count(len(lacking), 'task')}"
    why = f"{count(here, 'member')} {'takes' if here == 1 else 'take'} tasks"
    return look.found(
        "no-spare",
        f"{words}, with {spare}{which}: {why if here <= wanted else 'no other member may have one, or has room'}, "
        f"and num_standby_replicas is {wanted}.",
        level=Level.ATTENTION if placed_ms <= look.view.now_ms - LACKING_MS else None,
        since_ms=placed_ms or None,
        detail="Start a worker" if here <= wanted else "Give members more room, or start a worker",
    )


def _at_last_rebalance(view: View, application: Application) -> str:
    """Return when what is known of an application's tasks was so. A question that was refused says nothing of them."""
    if application.answered_ms is None:
        return f"At the last rebalance that was answered, before this coordinator started {_ago(view, view.soft.started_ms)}"
    return f"At the application's last rebalance, {_ago(view, application.answered_ms)}"


def refusals(view: View, refused: Refused) -> str:
    """Return why questions are refused, how often and since when, and what that means for who asks."""
    effect = "" if view.config.other_assignor else " Nothing moves for who asks, and new instances get nothing."
    return (
        f"{refused.why} ({count(refused.times, 'refusal')} in "
        f"{duration(view.now_ms - refused.since_ms)}, the last {_ago(view, refused.last_ms)}).{effect}"
    )


def silence_of(view: View, application: Application, meaning: str) -> str:
    """Return for how long nothing was heard of an application, and what that means."""
    heard_ms = view.soft.started_ms if application.heard_ms is None else application.heard_ms
    silence = duration(view.now_ms - heard_ms)
    return f"Nothing has been heard of the application for {silence}: {meaning}, and its group can be deleted."


def was_to_rebalance(view: View) -> bool:
    """Say whether an application was to rebalance again and has not."""
    told_ms = rebalance_due_ms(view.group)
    return view.config.kafka_streams and told_ms is not None and told_ms < view.now_ms


def _ago(view: View, at_ms: int) -> str:
    return f"{duration(view.now_ms - at_ms)} ago"


def _evidence(look: _Look) -> str:
    if (application := look.status.application) is not None:
        at_ms = application.answered_ms
        return (
            f"what the application told at its last rebalance{'' if at_ms is None else f', {_ago(look.view, at_ms)}'}"
        )
    words = f"{len(look.heard):,} of {count(look.here, 'member')} heard"
    if look.unheard:
        left_ms = look.view.soft.judge_from_ms - look.view.now_ms
        when = f"judged in {duration(left_ms)}" if left_ms > 0 else "judged by their leases"
        return f"{words} since the restart; {when}"
    oldest_ms = min((look.view.heard_since_ms(one) for one in look.heard), default=None)
    return words if oldest_ms is None else f"{words} within {duration(max(look.view.now_ms - oldest_ms, 0))}"


def _incident(view: View) -> Origin | None:
    """Return what last went wrong within an hour: members that were lost, or a task that failed."""
    oldest_ms = view.now_ms - INCIDENT_MS
    died: Counter[MemberId] = Counter()
    found: list[Origin] = []
    for task in view.tasks.pick(view.group.table.ids):
        for failure in task.marks.failures:
            if failure.outcome is Outcome.DIED:
                died[failure.member_id] += 1
            elif failure.at_ms > oldest_ms and failure.outcome is not Outcome.SILENT:
                found.append(_failed(task.id, failure))
    lost = [
        (-gone.at_ms, member_id)
        for member_id, gone in view.group.gone.items()
        if gone.at_ms > oldest_ms and gone.cause in LOSSES and gone.cause is not Cause.EVICTED
    ]
    if lost:
        at_ms, member_id = min(lost)
        detail = LOSSES[view.group.gone[member_id].cause]
        detail += f"; it ran {count(died[member_id], 'task')}" if died[member_id] else ""
        more = sum(one_ms <= at_ms + view.config.session_timeout_ms for one_ms, _ in lost) - 1
        detail += f"; {count(more, 'more member was', 'more members were')} lost then" if more else ""
        found.append(Origin(None, member_id, -at_ms, detail))
    return min(found, key=lambda one: (-(one.at_ms or 0), one.task or "", one.member_id or ""), default=None)


def count(number: int, one: str, many: str = "") -> str:
    """Return a number of things: `1 task`, `12 tasks`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
