"""What was found out about every open task, kept from step to step, so that a step looks only at those with news.

A group that begins or grows has thousands of tasks that wait: for a slot, for a copy to catch up, for a confirmation. A
member's word concerns a few of them. Whatever was said of a task holds as long as the task, the members that it names
and what these say of it stay what they were, and until the instant up to which it was said (``View.changes_at``). Those
of which that is not so are staged anew, and so is what depends on more (``View.passes``).

Nothing here decides anything, and nothing of it is part of the state: without an agenda everything is looked at, and
the step is the same. Groups in which all may depend on everything (limits, pauses, storms, grants held) have none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import NamedTuple

from batonpass.core.budget import Entry, Tally, entries_of, is_free_for_a_warmup, usage
from batonpass.core.copies import Staged, is_for_drain, stage, stager
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.model import Group, Member, Task
from batonpass.core.pmap import PMap
from batonpass.core.policy import Policy
from batonpass.core.soft import MemberSoft
from batonpass.core.view import View

FEWEST = 64
"""Groups with fewer unsettled tasks are looked at whole: that costs less than to know where there is news."""

_READS_A_TASK = 4


class Stance(NamedTuple):
    """What was said of one open task, before slots were given.

    ``until_ms`` is when it may be another by time alone, ``used`` what its copies use of a budget (a drain's, where
    ``draining``), ``warming`` the members of its warmups, and ``entries`` what it asks for, as slots are given.
    """

    staged: Staged
    until_ms: int | None
    members: frozenset[MemberId]
    used: int
    draining: bool
    warming: tuple[MemberId, ...]
    entries: tuple[Entry, ...]


class Agenda(NamedTuple):
    """The stances of all open tasks, and the group and words on which they were taken.

    ``live`` are the tasks to be staged at every step. ``is_short`` says that slots for balance, or for drains, had gone
    when the last step was complete; ``served`` are the members that it gave some. ``until_ms`` is the first of all
    stances. ``disk`` and ``silent_since_ms`` are as in ``View``.
    """

    group: Group
    heard: PMap[MemberId, MemberSoft]
    started_ms: int
    now_ms: int
    policy: Policy
    stances: PMap[TaskId, Stance]
    asking: PMap[TaskId, tuple[Entry, ...]]
    by_member: PMap[MemberId, frozenset[TaskId]]
    disk: PMap[TaskId, frozenset[MemberId]]
    warmups: PMap[MemberId, int]
    tally: Tally
    until_ms: int | None = None
    live: frozenset[TaskId] = frozenset()
    is_short: tuple[bool, bool] = (True, True)
    served: frozenset[MemberId] = frozenset()
    silent_since_ms: int | None = None


class Look(NamedTuple):
    """An agenda brought up to date: what was staged anew for it, and who may be warming up fewer copies than before."""

    agenda: Agenda
    fresh: list[Staged]
    relieved: frozenset[MemberId]

    def asking(self, *, slots_left: tuple[bool, bool]) -> list[Entry]:
        """Return what asks for a copy and may get it now: everything where slots have come free, else what has news."""
        agenda = self.agenda
        if any(was_short and is_left for was_short, is_left in zip(agenda.is_short, slots_left, strict=True)):
            return list(chain.from_iterable(agenda.asking.values()))
        found = {one.task.id: agenda.stances[one.task.id].entries for one in self.fresh if one.asks}
        for member_id in self.relieved:
            for task_id in agenda.by_member.get(member_id) or ():
                if task_id in agenda.asking:
                    found[task_id] = agenda.stances[task_id].entries
        return list(chain.from_iterable(found.values()))

    def complete(self, view: View, granted: Mapping[TaskId, Iterable[MemberId]], is_short: tuple[bool, bool]) -> Agenda:
        """Return the agenda as the next step finds it, once these copies were given slots."""
        served = {*chain.from_iterable(granted.values()), *self._awaited()}
        return self.agenda._replace(
            live=self.agenda.live | granted.keys(),
            served=frozenset(served),
            is_short=is_short,
            silent_since_ms=view.silent_since_ms,
        )

    def _awaited(self) -> Iterable[MemberId]:
        chosen = (self.agenda.stances[task_id].staged.choice.active for task_id in self.agenda.live)
        return (one for one in chosen if one is not None)


def look(view: View, known: Agenda | None, concerned: Collection[TaskId]) -> Look | None:
    """Return the agenda of the group as it stands; None where everything is to be looked at.

    Costs what changed since ``known``, and a pass over everything without it. ``concerned`` are staged in any case.
    """
    group = view.group
    if len(group.unsettled) < FEWEST or not _is_plain(view):
        return None
    changed = group.members.changed_since(known.group.members) if known is not None else {}
    if known is None or not _goes_on(view, known, changed):
        has_limits = any(member.max_tasks is not None for member in group.members.values())
        return None if has_limits else _begin(view)
    return _update(view, known, changed, concerned)


def _is_plain(view: View) -> bool:
    return view.moves_held(draining=False) is None and view.group.grants_from_ms <= view.now_ms


def _goes_on(view: View, known: Agenda, changed: Mapping[MemberId, Member | None]) -> bool:
    """Say whether what was said holds but for tasks with news: nothing changed that may concern all of them."""
    group, before = view.group, known.group
    if group.table is not before.table or group.config is not before.config or view.policy is not known.policy:
        return False
    if view.now_ms < known.now_ms or view.soft.started_ms != known.started_ms:
        return False
    for member_id, member in changed.items():
        if member is None or member.away_until_ms is not None or member.max_tasks is not None:
            return False
        was = before.members.get(member_id)
        if member.drain is not (was.drain if was is not None else None):
            return False
    return True


def _begin(view: View) -> Look:
    """Return an agenda for which every open task was staged."""
    group = view.group
    disk: dict[TaskId, set[MemberId]] = {}
    for member_id, heard in view.soft.members.items():
        if not heard.tails_all:
            for task_id in _on_disk(heard):
                disk.setdefault(task_id, set()).add(member_id)
    nothing: PMap[TaskId, Stance] = PMap()
    empty = Agenda(
        group,
        view.soft.members,
        view.soft.started_ms,
        view.now_ms,
        view.policy,
        nothing,
        PMap(),
        PMap(),
        PMap({task_id: frozenset(members) for task_id, members in disk.items()}),
        PMap(),
        Tally(0, 0, {}),
    )
    return _staged_anew(view, empty, group.open_tasks())


def _on_disk(heard: MemberSoft | None) -> list[TaskId]:
    if heard is None:
        return []
    return [task_id for task_id, one in heard.reports.items() if one.said.role == "none" and not one.said.lost]


def _update(
    view: View, known: Agenda, changed: Mapping[MemberId, Member | None], concerned: Collection[TaskId]
) -> Look:
    group, before = view.group, known.group
    news: set[TaskId] = {*known.live, *concerned}
    news.update(group.tasks.changed_since(before.tasks))
    news.update(group.unsettled.changed_since(before.unsettled))
    silent_since_ms = known.silent_since_ms
    words = view.soft.members.changed_since(known.heard)
    for member_id in changed:
        news.update(known.by_member.get(member_id) or ())
        heard = view.soft.members.get(member_id)
        news.update(heard.reports if heard is not None else ())
    for member_id in words:
        news.update(_reported(known, member_id, known.heard.get(member_id), view.soft.members.get(member_id)))
    if known.until_ms is not None and known.until_ms <= view.now_ms:
        news.update(task_id for task_id, one in known.stances.items() if _is_over(one, view.now_ms))
    if silent_since_ms is not None:
        heard_anew = [(one, member) for one in {*changed, *words} if (member := group.members.get(one)) is not None]
        silent_since_ms = min([silent_since_ms, *(view.heard_since_ms(one, member) for one, member in heard_anew)])
    current = known._replace(
        group=group,
        heard=view.soft.members,
        now_ms=view.now_ms,
        disk=_disk_after(known, view.soft.members, words),
        silent_since_ms=silent_since_ms,
    )
    return _staged_anew(view, current, news)


def _is_over(stance: Stance, now_ms: int) -> bool:
    return stance.until_ms is not None and stance.until_ms <= now_ms


def _reported(known: Agenda, member_id: MemberId, old: MemberSoft | None, new: MemberSoft | None) -> Iterable[TaskId]:
    """Return the tasks of which a member's words, or its silence, may say something else than before."""
    named = [*(old.reports if old is not None else ()), *(new.reports if new is not None else ())]
    if old is None or new is None or old.full is not new.full:
        named += known.by_member.get(member_id) or ()
    return named


def _disk_after(
    known: Agenda, heard: PMap[MemberId, MemberSoft], words: Iterable[MemberId]
) -> PMap[TaskId, frozenset[MemberId]]:
    changes: dict[TaskId, frozenset[MemberId] | None] = {}
    for member_id in words:
        before, after = set(_on_disk(known.heard.get(member_id))), set(_on_disk(heard.get(member_id)))
        for task_id in before ^ after:
            held = changes[task_id] if task_id in changes else known.disk.get(task_id)
            found = (held or frozenset()) ^ {member_id}
            changes[task_id] = found or None
    return known.disk.updated(changes)


def _staged_anew(view: View, known: Agenda, news: Collection[TaskId]) -> Look:
    """Return the agenda once the tasks with news are staged, as far as they are open; the others are let go of."""
    view.disk, view.silent_since_ms = known.disk, known.silent_since_ms
    unsettled, rank = view.group.unsettled, view.group.table.rank
    fresh = [task_id for task_id in news if unsettled.get(task_id)]
    fresh.sort(key=lambda one: (rank.get(one, len(rank)), one))
    view.expect(len(fresh))
    staged = stager(view) if len(fresh) * _READS_A_TASK > len(view.group.members) else partial(stage, view)
    changes: dict[TaskId, Stance | None] = dict.fromkeys(one for one in news if one in known.stances)
    live: list[TaskId] = []
    for task_id in fresh:
        view.begin_task()
        changes[task_id] = stance = _stance(view, staged(view.tasks[task_id]))
        if view.is_passing or is_free_for_a_warmup(stance.staged):
            live.append(task_id)
    relieved, warmups, tally = _tally_after(known, changes)
    stances = known.stances.updated(changes)
    asking = {task_id: one.entries or None if one is not None else None for task_id, one in changes.items()}
    until = [one.until_ms for one in changes.values() if one is not None and one.until_ms is not None]
    if known.until_ms is not None:
        # The first may have been that of a task with news; to look in vain costs less than to know.
        is_over = known.until_ms <= view.now_ms
        until += [one.until_ms for one in stances.values() if one.until_ms] if is_over else [known.until_ms]
    current = known._replace(
        stances=stances,
        asking=known.asking.updated(asking),
        by_member=_index_after(known, changes),
        warmups=warmups,
        tally=tally,
        until_ms=min(until, default=None),
        live=frozenset(live),
    )
    return Look(current, [current.stances[task_id].staged for task_id in fresh], relieved | known.served)


def _stance(view: View, staged: Staged) -> Stance:
    replicas = view.config.num_standby_replicas
    used, warming = usage(staged, replicas)
    draining = used > 0 and is_for_drain(view, staged.task)
    entries = entries_of(view, staged) if staged.asks else ()
    return Stance(staged, view.until_ms, _members_of(staged), used, draining, warming, entries)


def _members_of(staged: Staged) -> frozenset[MemberId]:
    """Return every member that a task names or goes to."""
    task: Task = staged.task
    named = {task.owner, task.target, task.heir, task.keeper, task.awaits, staged.choice.active}
    named.update(task.standbys, task.warmups, task.target_standbys)
    if task.claims:
        named.update(claim.member_id for claim in task.claims)
    return frozenset(one for one in named if one is not None)


def _tally_after(
    known: Agenda, changes: Mapping[TaskId, Stance | None]
) -> tuple[frozenset[MemberId], PMap[MemberId, int], Tally]:
    """Return who warms up fewer copies than before, the warmups of each member, and what all stances use."""
    balance, drain = known.tally.balance, known.tally.drain
    more: Counter[MemberId] = Counter()
    for task_id, stance in changes.items():
        for one, sign in ((known.stances.get(task_id), -1), (stance, 1)):
            if one is None or not one.used:
                continue
            if one.draining:
                drain += sign * one.used
            else:
                balance += sign * one.used
            for member_id in one.warming:
                more[member_id] += sign
    counts = {one: ((known.warmups.get(one) or 0) + count) or None for one, count in more.items() if count}
    relieved = frozenset(one for one, count in more.items() if count < 0)
    warmups = known.warmups.updated(counts)
    return relieved, warmups, Tally(balance, drain, warmups)


def _index_after(known: Agenda, changes: Mapping[TaskId, Stance | None]) -> PMap[MemberId, frozenset[TaskId]]:
    added: dict[MemberId, set[TaskId]] = {}
    gone: dict[MemberId, set[TaskId]] = {}
    nobody: frozenset[MemberId] = frozenset()
    for task_id, stance in changes.items():
        was = known.stances.get(task_id)
        old, new = was.members if was is not None else nobody, stance.members if stance is not None else nobody
        if old != new:
            for member_id in new - old:
                added.setdefault(member_id, set()).add(task_id)
            for member_id in old - new:
                gone.setdefault(member_id, set()).add(task_id)
    after: dict[MemberId, frozenset[TaskId] | None] = {}
    for member_id in {*added, *gone}:
        tasks = (known.by_member.get(member_id) or frozenset()) - gone.get(member_id, set()) | added.get(
            member_id, set()
        )
        after[member_id] = tasks or None
    return known.by_member.updated(after)
