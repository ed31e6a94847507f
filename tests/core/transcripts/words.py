"""A decision in words: what its sender is answered, what is recorded, who is told what, and why."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, assert_never

from batonpass.core.decide import Decision
from batonpass.core.state import records as r
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import MemberId, TaskId, task_sort_key
from batonpass.core.state.inputs import Heartbeat, Input
from batonpass.core.state.model import Grant, Group, Member, Role
from batonpass.core.state.reasons import Held, NoChange, Why
from batonpass.core.state.replies import Answer, Declared, Done, DrainProgress, Reply, StreamsAdvice
from batonpass.core.state.soft import Positions


class Happened(NamedTuple):
    """One input, when it arrived, the group that it met, what was decided and what its sender was answered."""

    item: Input
    at_ms: int
    before: Group
    decision: Decision
    reply: Reply


def exact_time(ms: int) -> str:
    """Return a time to the millisecond: ``50 ms``, ``45.05 s``, ``10 min``. What is tested must not be rounded."""
    if abs(ms) < 1_000:
        return f"{ms} ms"
    if ms % 60_000 == 0 and ms >= 120_000:
        return f"{ms // 60_000} min"
    return f"{ms / 1_000:g} s"


def tasks_of(tasks: Iterable[str]) -> str:
    """Return tasks in order."""
    return " ".join(sorted(tasks, key=task_sort_key))


def lines_of(happened: Happened, *, brief: bool = False) -> list[str]:
    """Return what an input led to, a line a fact; ``brief`` leaves out answers that are no refusals."""
    return [
        *(_answer(happened) if not brief or isinstance(happened.reply, ProtocolError) else ()),
        *(f"recorded: {line}" for line in _recorded(happened)),
        *_told(happened.before, happened.decision.after),
        *_reasons(happened.decision),
    ]


def _answer(happened: Happened) -> Iterator[str]:
    reply = happened.reply
    if isinstance(reply, Answer):
        epoch = happened.item.member_epoch if isinstance(happened.item, Heartbeat) else None
        moved = "" if reply.member_epoch == epoch else f"epoch {reply.member_epoch}, "
        holds = "nothing new" if reply.assignment is None else f"{moved}it may hold {_holding(reply.assignment)}"
        yield f"answer: {holds}" + ("; it must report all that it holds" if reply.report == "full" else "")
        yield from (f"answer: {code}: {detail}" for code, detail in reply.status)
    elif isinstance(reply, ProtocolError):
        yield f"refused: {reply.type} ({reply.action}): {reply.detail}"
    elif isinstance(reply, Declared):
        yield f"answer: revision {reply.revision}"
    elif isinstance(reply, DrainProgress):
        left = f"still to hand over: {tasks_of(reply.remaining)}" if reply.remaining else "nothing is left"
        yield f"answer: {left}"
        yield from (f"answer: {task} is blocked: {why}" for task, why in reply.blocked)
    elif isinstance(reply, StreamsAdvice):
        for process, roles in reply.assignment.items():
            held = "; ".join(f"{tasks_of(tasks)} {role}" for role, tasks in roles.items() if tasks)
            yield f"answer: {process} is to have {held or 'nothing'}"
        who = "everybody" if reply.follow_up_by_everybody else "the leader"
        yield f"answer: {'nothing is to come' if reply.follow_up_ms is None else f'{who} asks again in {reply.follow_up_ms} ms'}"
    elif isinstance(reply, Done):
        return
    else:
        assert_never(reply)


def _holding(assignment: Mapping[TaskId, Grant]) -> str:
    roles = [
        f"{tasks_of(task for task, grant in assignment.items() if grant.role is role)} {role}"
        for role in Role
        if any(grant.role is role for grant in assignment.values())
    ]
    return ", ".join(roles) or "nothing"


def _told(before: Group, after: Group) -> Iterator[str]:
    """Yield what changed about what each member may hold; it learns so at once, from an answer or its long-poll."""
    for member_id in sorted(after.members):
        old, new = before.members.get(member_id), after.members[member_id]
        if old is not None and old.assignment is not new.assignment and new.away_until_ms is None:
            changes = [*_taken(old, new), *_changed_role(old, new), *_given(old, new)]
            kept = [task for task, grant in new.assignment.items() if old.assignment.get(task) == grant]
            if changes:
                keep = f"; keep {tasks_of(kept)}" if kept else ""
                yield f"{member_id} is told (epoch {new.epoch}): {'; '.join(changes)}{keep}"


def _taken(old: Member, new: Member) -> Iterator[str]:
    gone = [task for task in old.assignment if task not in new.assignment]
    for role in Role:
        tasks = [task for task in gone if old.assignment[task].role is role]
        if tasks:
            yield f"give up {tasks_of(tasks)} ({role})"


def _changed_role(old: Member, new: Member) -> Iterator[str]:
    alike: dict[str, list[str]] = {}
    for task, now in new.assignment.items():
        was = old.assignment.get(task)
        if was is not None and was.role is not now.role:
            verb = "run" if now.role is Role.ACTIVE else "stop" if was.role is Role.ACTIVE else "keep"
            words = f"{verb} {{}} ({was.role} becomes {now.role}{_rights(now)})"
            alike.setdefault(words, []).append(task)
    yield from (words.format(tasks_of(tasks)) for words, tasks in sorted(alike.items(), reverse=True))


def _given(old: Member, new: Member) -> Iterator[str]:
    alike: dict[str, list[str]] = {}
    for task, grant in new.assignment.items():
        if task not in old.assignment:
            verb = "run" if grant.role is Role.ACTIVE else "build up"
            alike.setdefault(f"{verb} {{}} ({grant.role}{_rights(grant)})", []).append(task)
    yield from (words.format(tasks_of(tasks)) for words, tasks in sorted(alike.items(), reverse=True))


def _rights(grant: Grant) -> str:
    """Return what goes along with the grant of an active: its token, and up to where the last owner wrote."""
    if grant.role is not Role.ACTIVE:
        return ""
    return f", token {grant.token}" + (f", restore to {_offsets(grant.restore_to)}" if grant.restore_to else "")


def _offsets(positions: Positions) -> str:
    return ", ".join(f"{topic} {offset}".strip() for topic, offset in positions)


def _reasons(decision: Decision) -> list[str]:
    """Return why tasks go somewhere, then what is held back, tasks that share a reason together.

    Where nothing is recorded, it is said why nothing changes.
    """
    alike: dict[tuple[str, str | None, str], set[str]] = {}
    for reason in decision.reasons:
        if reason.code != Why.STAYS:
            alike.setdefault((reason.code, reason.to, reason.detail), set()).update(
                [reason.task] if reason.task else []
            )
    why, held, quiet = [], [], []
    for (code, to, detail), tasks in sorted(alike.items(), key=lambda entry: (entry[0][0], min(entry[1], default=""))):
        where = " -> ".join([*([tasks_of(tasks)] if tasks else []), *([to] if to else [])])
        words = (f"{where}: {code}" if where else code) + (f" ({detail})" if detail else "")
        if code in set(NoChange):
            quiet.append(f"{'why' if decision.records else 'nothing changes'}: {words}")
        elif tasks and code in set(Held):
            held.append(f"held back: {words}")
        else:
            why.append(f"why: {words}")
    return why + held + quiet


def _recorded(happened: Happened) -> Iterator[str]:
    """Yield the records in words, those that say the same of several tasks or members as one.

    What a member may hold from now on is left out: it is told so, which has a line of its own.
    """
    alike: dict[str, list[str]] = {}
    for record in happened.decision.records:
        if isinstance(record, r.TargetPlaced):
            alike |= {line: [] for line in _target(record, happened.before)}
        elif not isinstance(record, r.AssignmentChanged):
            words, subjects = in_words(record, happened.at_ms)
            alike.setdefault(words, []).extend(subjects)
    for words, subjects in alike.items():
        yield f"{' '.join(subjects)}: {words}" if subjects else words


def in_words(record: r.Record, now_ms: int) -> tuple[str, Iterable[str]]:
    """Return what one record says, and the tasks or members of which it says so; none where it is of the group."""
    of_member = _of_a_member(record, now_ms)
    if of_member is not None:
        return of_member[1], (of_member[0],)
    of_task = _of_a_task(record)
    if of_task is not None:
        return of_task[1], (of_task[0],)
    if isinstance(record, r.LoadsMeasured | r.ImbalanceNoted | r.MovedForLoad):
        return _of_load(record), ()
    return _of_the_group(record, now_ms), ()


def _of_a_member(record: r.Record, now_ms: int) -> tuple[str, str] | None:
    words: str | None = None
    match record:
        case r.MemberJoined():
            name = record.member.instance_id
            return record.member.id, "a member" + (f", instance {name}" if name else "")
        case r.MemberGone():
            claimed_ms = record.lease_end_ms - record.at_ms
            until = f"; it may run its tasks for {exact_time(claimed_ms)} more" if claimed_ms > 0 else ""
            words = f"no member any more, {record.cause}{until}"
        case r.MemberAway():
            words = f"away; its place is kept for {exact_time(record.until_ms - record.at_ms)}"
        case r.PlaceInherited():
            words = f"{record.successor} stands in its place"
        case r.DrainStarted():
            end = "" if record.deadline_ms is None else f", within {exact_time(record.deadline_ms - now_ms)}"
            words = (
                f"its drain is over, and tasks are left: {record.blocked}"
                if record.blocked
                else f"to hand over everything{end}"
            )
        case r.DrainCancelled():
            words = "stays after all"
        case r.MemberSuspected():
            words = "suspected to be dead"
        case r.SuspicionCleared():
            words = "heard again"
        case r.StateDoubted():
            words = f"its state of {tasks_of(record.tasks)} is of another changelog"
        case r.StateTrusted():
            words = f"its state of {tasks_of(record.tasks)} is restored anew, or gone"
        case r.InstanceKeptOut():
            words = "kept out" + ("" if record.until_ms is None else f" for {exact_time(record.until_ms - now_ms)}")
            return record.instance_id, words
        case r.InstanceLetIn():
            return record.instance_id, "may have tasks again"
        case r.MemberTrusted():
            words = "trusted again, whatever failed on it"
        case r.TasksAdopted():
            words = f"runs {tasks_of(record.tokens) or 'nothing'} by its own word, and so it is"
        case _:
            return None
    return record.member_id, words


def _of_a_task(record: r.Record) -> tuple[str, str] | None:
    words: str | None = None
    match record:
        case r.ActiveReported():
            words = f"{record.state.value} on {record.member_id}"
        case r.TaskReleased():
            words = f"given up by {record.member_id}" + (
                f", which stopped at {_offsets(record.final_position)}" if record.final_position else ""
            )
        case r.NextOwnerChosen():
            words = f"{record.next_owner} is to have it next"
        case r.ReleaseWaived():
            words = f"{record.member_id} is not waited for"
        case r.WarmupStalled():
            words = f"its warmup on {record.member_id} comes no closer"
        case r.TaskParked():
            words = f"parked, because it failed on {', '.join(record.members)}"
        case r.TaskUnparked():
            words = "may be tried again"
        case r.TaskPinned():
            words = f"pinned to {record.member_id}" if record.member_id else "not pinned"
        case _:
            return None
    return record.task, words


def _of_load(record: r.LoadsMeasured | r.ImbalanceNoted | r.MovedForLoad) -> str:
    match record:
        case r.LoadsMeasured():
            return f"the measured load of {tasks_of(record.loads)} is another"
        case r.ImbalanceNoted():
            return "no member is too hot" if record.since_ms is None else "a member is too hot"
        case r.MovedForLoad():
            return f"moved for load: {tasks_of(record.tasks)}"


def _of_the_group(record: r.Record, now_ms: int) -> str:
    match record:
        case r.GroupDeclared() | r.TopologyChanged():
            parts = [f"{part.partitions} of subtopology {part.id}" for part in record.topology.subtopologies]
            return f"the group's tasks: {', '.join(parts)}"
        case r.MemberChanged():
            return f"{record.member_id} goes on with {record.capacity:g} threads"
        case r.TasksEnded():
            return f"{tasks_of(record.tasks)} ended, with all that was said of them"
        case r.ConfigChanged():
            return "the config is another"
        case r.GroupDeleted():
            return "the group is deleted"
        case r.RebalanceScheduled():
            return f"a new target is due {_in(record.due_ms - now_ms)}, because of: {record.trigger}"
        case r.Paused():
            return f"moves are held: {record.pause.scope}"
        case r.Resumed():
            return "moves go on"
        case r.StormBegan():
            return "a storm: too many members vanished at once"
        case r.StormEnded():
            return "the storm is over"
        case r.GrantsHeld():
            return f"nothing is granted for {exact_time(record.until_ms - now_ms)}: {record.reason}"
        case r.EpochsRaised():
            raised = ", ".join(f"{member} to {epoch}" for member, epoch in sorted(record.epochs.items()))
            return f"member epochs are raised: {raised or 'none'}; new tokens lie above {record.tokens_from}"
        case r.ProbeScheduled():
            at_ms = record.at_ms
            return "no look is planned" if at_ms is None else f"a probing look is due {_about(at_ms - now_ms)}"
        case r.GoneForgotten():
            return f"forgotten: {', '.join(record.member_ids)}"
        case _:
            raise TypeError(f"{type(record).__name__} has no words yet; give it some here")


def _about(ms: int) -> str:
    """Return when a timer goes off, without its jitter."""
    return f"in about {ms // 60_000} min" if ms >= 120_000 else f"in {exact_time(ms)}"


def _in(ms: int) -> str:
    return f"in {exact_time(ms)}" if ms > 0 else "now"


def _target(record: r.TargetPlaced, before: Group) -> Iterator[str]:
    """Yield where tasks belong from now on, those that go the same way together."""
    kept = "" if record.changes else ", as before"
    yield f"generation {record.generation}{kept}; moves of tasks with state: {record.moves}, needed: {record.lower_bound}"
    ways: dict[str, list[str]] = {}
    for task_id, (owner, standbys, waits) in record.changes.items():
        old = before.tasks.get(task_id)
        was, stood = (old.target.owner, old.target.standbys) if old is not None else (None, ())
        if owner != was or waits:
            way = f"{was or 'nobody'} -> {owner or 'nobody'}{f', waiting: {waits}' if waits else ''}"
            ways.setdefault(way, []).append(task_id)
        if standbys != stood:
            way = f"standby {' '.join(stood) or 'nobody'} -> {' '.join(standbys) or 'nobody'}"
            ways.setdefault(way, []).append(task_id)
    yield from sorted(f"target of {tasks_of(tasks)}: {way}" for way, tasks in ways.items())


def table_of(group: Group) -> list[str]:
    """Return where every task is and should be, a line a task; tasks that are alike share one."""
    alike: dict[str, list[TaskId]] = {}
    for task_id in sorted(group.tasks, key=task_sort_key):
        alike.setdefault(_where(group, task_id), []).append(task_id)
    return [f"{tasks_of(tasks)}: {where}" for where, tasks in alike.items()]


def _where(group: Group, task_id: TaskId) -> str:
    task = group.tasks[task_id]
    doing = {"running": "runs on", "granted": "was given to", "restoring": "is restored on"}
    words = [
        f"{doing.get(task.state.value, task.state.value + ' on')} {task.owner}" if task.owner else "nobody runs it"
    ]
    unsure: list[MemberId] = [entry.member_id for entry in task.handover.unreleased]
    words += [f"{' '.join(unsure)} may still run it"] if unsure else []
    words += [f"standby on {' '.join(task.standbys)}"] if task.standbys else []
    words += [f"warmup on {' '.join(task.warmups)}"] if task.warmups else []
    words += [f"belongs to {task.target.owner or 'nobody'}"] if task.target.owner != task.owner else []
    return ", ".join(words)
