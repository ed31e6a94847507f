"""Makes the events of a decision from its records.

``events_of`` is pure: the same decision leads to the same events, in order. A group's first grants and first runs have
no events of their own: its ``generation`` covers them. If a decision does the same to more than ``MANY`` tasks of a
member, there is one event.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, Final, TypeAlias

from batonpass.codec.answers import rfc3339, time_of
from batonpass.codec.generations import triggers_of
from batonpass.core.arrivals.answers import why_drain_is_blocked
from batonpass.core.decide import Decision
from batonpass.core.state import records as r
from batonpass.core.state.failures import distrusted_until_ms, faults_in_words, host_of
from batonpass.core.state.ids import MemberId, TaskId, task_sort_key
from batonpass.core.state.inputs import DrainReversal, Input, Tick
from batonpass.core.state.model import REVOKED, UNSEEN_STOPS, ActiveState, Grant, Group, Member, Role, Stop, Task
from batonpass.core.state.policy import GroupConfig
from batonpass.core.state.reasons import Why
from batonpass.runtime.events import Event, EventType

MANY: Final = 100
"""If one decision leads to more alike events than this, one event stands for them (``merged``)."""


_WHYS = frozenset(Why)
_FELL_BACK = {
    ActiveState.FAILED: EventType.TASK_FAILED,
    ActiveState.LOST: EventType.TASK_LOST,
    ActiveState.RESTORING: EventType.TASK_RESTORING,
}
_Kind: TypeAlias = "tuple[str, bool, MemberId | None, object]"

_FELL_BACK_CAUSES = frozenset(state.value for state in _FELL_BACK)


def events_of(before: Group, inputs: Sequence[Input], decision: Decision, now_ms: int) -> tuple[Event, ...]:
    """Return the events of a decision that was made on ``before``; none if it wrote nothing.

    The cost depends on what the records name, not on the size of the group.
    """
    if not decision.records:
        return ()
    builder = _EventBuilder(before, inputs, decision, now_ms)
    builder.add_all_records()
    return tuple(merged(builder.events))


def merged(events: Iterable[Event]) -> list[Event]:
    """Return the events; where more than ``MANY`` are alike, one event replaces them.

    Events are alike if they have the same type and the same ``warm``, and concern either tasks of one member, or
    members. The event that stands for them has no task, or no member. Its body holds the fields that are the same for
    all of them, how many ``tasks`` or ``members`` there are, the first ``MANY`` of these as ``sample``, and the largest
    ``gap_ms`` and ``gap_at_most_ms``.
    """
    events = list(events)
    alike: dict[_Kind, list[Event]] = {}
    for event in events:
        if event.task is not None or event.member is not None:
            alike.setdefault(_kind_of(event), []).append(event)
    found: list[Event] = []
    seen: set[_Kind] = set()
    for event in events:
        kind = _kind_of(event)
        if len(alike.get(kind, ())) <= MANY:
            found.append(event)
        elif kind not in seen:
            seen.add(kind)
            found.append(_one_for(alike[kind]))
    return found


def _kind_of(event: Event) -> _Kind:
    is_task = event.task is not None
    return (event.type, is_task, event.member if is_task else None, event.body.get("warm"))


def _one_for(alike: list[Event]) -> Event:
    first = alike[0]
    same = {key: value for key, value in first.body.items() if all(one.body.get(key) == value for one in alike)}
    if first.task is None:
        members = sorted(one.member for one in alike if one.member is not None)
        return first._replace(member=None, body=same | {"members": len(alike), "sample": members[:MANY]})
    tasks = sorted((one.task for one in alike if one.task is not None), key=task_sort_key)
    body: dict[str, object] = same | {"tasks": len(alike), "sample": tasks[:MANY]}
    for name in ("gap_ms", "gap_at_most_ms"):
        gaps = [gap for one in alike if isinstance(gap := one.body.get(name), int)]
        body |= {name: max(gaps)} if gaps else {}
    return first._replace(task=None, body=body)


class _EventBuilder:
    """Makes events of the records of one decision, in order."""

    def __init__(self, before: Group, inputs: Sequence[Input], decision: Decision, now_ms: int) -> None:
        self._before = before
        self._after = decision.after
        self._inputs = inputs
        self._decision = decision
        self._now_ms = now_ms
        # Some may have joined by this very decision.
        self._joined = {one.member.id: one.member for one in decision.records if isinstance(one, r.MemberJoined)}
        self._next_owners = {one.task: one.next_owner for one in decision.records if isinstance(one, r.NextOwnerChosen)}
        self._handed: set[TaskId] = set()
        self._whys: dict[TaskId, str] | None = None
        self.events: list[Event] = []

    def add_all_records(self) -> None:
        for record in self._decision.records:
            match record:
                case r.AssignmentChanged():
                    self._assignment_changed(record)
                case r.ActiveReported():
                    self._reported(record)
                case r.TaskReleased():
                    self._released(record)
                case r.NextOwnerChosen():
                    self._next_owner_chosen(record)
                case r.TargetPlaced():
                    self._placed(record)
                case r.ProbeScheduled():
                    self._scheduled(record)
                case r.WarmupStalled(task=task, member_id=member_id, until_ms=until_ms):
                    self._add(EventType.WARMUP_STALLED, member=member_id, task=task, until_at=rfc3339(until_ms))
                case r.TaskParked(task=task, members=members):
                    self._add(EventType.TASK_PARKED, task=task, members=list(members))
                case r.TaskUnparked(task=task):
                    self._add(EventType.TASK_UNPARKED, task=task)
                case r.TaskPinned(task=task, member_id=pin):
                    kind = EventType.TASK_UNPINNED if pin is None else EventType.TASK_PINNED
                    self._add(kind, member=pin, task=task, before=self._before.task(task).marks.pin)
                case _:
                    self._of_member(record)
                    self._of_group(record)
        self._distrusted()
        self._blocked()
        self._drained()

    def _add(
        self, kind: EventType, *, member: MemberId | None = None, task: TaskId | None = None, **body: object
    ) -> None:
        self.events.append(Event(kind.value, self._now_ms, self._after.generation, member, task, body))

    def _why(self, task: TaskId) -> str:
        """Return the reason why a task moves; "" if the decision gives none."""
        if self._whys is None:
            reasons = self._decision.reasons
            self._whys = {one.task: str(one.code) for one in reasons if one.task is not None and one.code in _WHYS}
        return self._whys.get(task, "")

    def _assignment_changed(self, record: r.AssignmentChanged) -> None:
        member = self._before.members.get(record.member_id)
        assignment = member.assignment if member is not None else None
        for task in (*record.revoked, *record.demoted):
            was = assignment.get(task) if assignment is not None else None
            if was is not None and was.role is Role.ACTIVE:
                self._given_up(task, record.member_id)
            elif was is not None and was.role is Role.WARMUP:
                self._add(
                    EventType.WARMUP_DROPPED,
                    member=record.member_id,
                    task=task,
                    after_ms=self._now_ms - was.since_ms,
                )
        ready = frozenset(record.ready)
        for task, grant in record.granted.items():
            if grant.role is Role.ACTIVE:
                if grant.token > 1:
                    self._granted(task, record.member_id, grant, warm=task in ready)
            elif grant.role is Role.WARMUP:
                owner = self._after.task(task).owner
                self._add(EventType.WARMUP_STARTED, member=record.member_id, task=task, owner=owner)
            elif assignment:
                self._caught_up(task, record.member_id, assignment.get(task))

    def _caught_up(self, task: TaskId, member: MemberId, was: Grant | None) -> None:
        if was is not None and was.role is Role.WARMUP:
            self._add(EventType.WARMUP_CAUGHT_UP, member=member, task=task, took_ms=self._now_ms - was.since_ms)

    def _given_up(self, task_id: TaskId, owner: MemberId) -> None:
        """Add the event for a running owner that has to stop. Any other owner has nothing to hand over."""
        task, after = self._before.task(task_id), self._after.task(task_id)
        # A new stop means that the task ran. It may have begun to run by an earlier input of the same decision.
        has_run = after.handover.stop is not None and after.handover.stop != task.handover.stop
        if task.owner != owner or not has_run or task_id in self._handed:
            return
        self._handed.add(task_id)
        successor = self._next_owners.get(task_id) or after.owner
        if successor is None:
            why = "parked" if after.marks.parked else self._why(task_id)
            self._add(EventType.TASK_REVOKED, member=owner, task=task_id, why=why)
            return
        if after.handover.stop is not None and after.handover.stop.cause != REVOKED:
            return  # A takeover, because the owner is suspected: ``_granted`` adds the event.
        taker = self._before.members.get(successor)
        self._caught_up(task_id, successor, taker.assignment.get(task_id) if taker is not None else None)
        self._add(EventType.HANDOVER_BEGUN, member=successor, task=task_id, **{"from": owner}, why=self._why(task_id))

    def _granted(self, task_id: TaskId, member: MemberId, grant: Grant, *, warm: bool) -> None:
        """Add the event for a grant, unless it completes a handover or is the first of its task."""
        stop = self._after.task(task_id).handover.stop
        if stop is None or stop.cause == REVOKED:
            return
        self._add(
            EventType.TAKEOVER_BEGUN,
            member=member,
            task=task_id,
            **_of(stop),
            why=self._why(task_id),
            warm=warm,
            fencing_token=grant.token,
        )

    def _next_owner_chosen(self, record: r.NextOwnerChosen) -> None:
        """Add the event for a handover that goes to another member than an earlier event said."""
        task, stop = self._before.task(record.task), self._after.task(record.task).handover.stop
        if record.task not in self._handed and stop is not None and stop.cause == REVOKED:
            self._add(
                EventType.HANDOVER_REDIRECTED,
                member=record.next_owner,
                task=record.task,
                before=task.handover.next_owner,
            )

    def _released(self, record: r.TaskReleased) -> None:
        before, after = self._before.task(record.task), self._after.task(record.task)
        stop = before.handover.stop
        if stop is not None and stop.at_ms is None and not _unreleased_left(before, after, record.member_id):
            to = after.owner or after.handover.next_owner
            self._add(EventType.TASK_STOPPED, member=stop.member_id, task=record.task, cause=stop.cause, to=to)

    def _reported(self, record: r.ActiveReported) -> None:
        # A task may be new, or granted by this same decision: what a rebalance of Kafka Streams grants starts at once.
        task, granted = self._before.task(record.task), self._after.task(record.task)
        member, stop = record.member_id, task.handover.stop
        if record.state is ActiveState.RUNNING:
            if stop is not None:
                self._runs_again(granted, member, stop)
        elif task.state is ActiveState.RUNNING or record.state is not ActiveState.RESTORING:
            body: dict[str, object] = {"detail": record.detail}
            if record.state is ActiveState.FAILED:
                body["failures"] = len(self._after.task(task.id).marks.failures)
            self._add(_FELL_BACK[record.state], member=member, task=task.id, **body)

    def _runs_again(self, task: Task, member: MemberId, stop: Stop) -> None:
        gap_ms = None if stop.at_ms is None else max(0, self._now_ms - stop.at_ms)
        if stop.cause in _FELL_BACK_CAUSES and stop.member_id == member:
            stopped_at = time_of(stop.at_ms)
            self._add(
                EventType.TASK_RECOVERED,
                member=member,
                task=task.id,
                cause=stop.cause,
                gap_ms=gap_ms,
                stopped_at=stopped_at,
            )
            return
        kind = EventType.HANDOVER_DONE if stop.cause == REVOKED else EventType.TAKEOVER_DONE
        bound: dict[str, object] = {}
        if kind is EventType.TAKEOVER_DONE:
            at_most_ms = None if stop.heard_ms is None else max(gap_ms or 0, self._now_ms - stop.heard_ms)
            bound = {"gap_is_lower_bound": stop.cause in UNSEEN_STOPS, "gap_at_most_ms": at_most_ms}
        self._add(
            kind,
            member=member,
            task=task.id,
            **_of(stop),
            warm=task.ready_grant,
            gap_ms=gap_ms,
            **bound,
            granted_at=rfc3339(task.since_ms),
            fencing_token=task.token,
        )

    def _placed(self, record: r.TargetPlaced) -> None:
        if record.failed:
            self._add(EventType.PLACEMENT_FAILED, why=record.failed)
        if record.generation == self._before.generation:
            return
        self._add(
            EventType.GENERATION,
            number=record.generation,
            group_epoch=record.group_epoch,
            triggers=list(triggers_of(self._before, self._decision.records)),
            changed=len(record.changes),
            moves=record.moves,
            lower_bound=record.lower_bound,
            members=len(self._after.members),
            tasks=len(self._after.table.ids),
        )

    def _scheduled(self, record: r.ProbeScheduled) -> None:
        due_ms = self._before.next_probe_ms
        if self._has(Tick) and due_ms is not None and due_ms <= self._now_ms:
            changed = any(isinstance(one, r.TargetPlaced | r.AssignmentChanged) for one in self._decision.records)
            self._add(EventType.PROBED, changed=changed, next_probe_at=time_of(record.at_ms))
        if record.at_ms is None and self._after.members:
            self._add(EventType.AT_REST)

    def _member(self, member_id: MemberId) -> Member:
        return self._joined.get(member_id) or self._before.members[member_id]

    def _of_member(self, record: r.Record) -> None:
        records = self._decision.records
        match record:
            case r.MemberJoined(member=joined):
                places = (one for one in records if isinstance(one, r.PlaceInherited) and one.successor == joined.id)
                self._add(EventType.MEMBER_JOINED, member=joined.id, **_profile(joined, next(places, None)))
            case r.MemberChanged(member_id=one, capacity=capacity, client_tags=tags, endpoint=endpoint):
                profile: dict[str, Any] = {"capacity": capacity, "client_tags": dict(tags), "endpoint": endpoint}
                self._add(EventType.MEMBER_CHANGED, member=one, **profile)
            case r.MemberGone(member_id=one):
                self._add(EventType.MEMBER_GONE, member=one, **_gone(self._member(one), record, self._decision))
            case r.MemberAway(member_id=one, until_ms=until_ms):
                running, instance_id = len(self._member(one).actives), self._member(one).instance_id
                until_at = rfc3339(until_ms)
                self._add(
                    EventType.MEMBER_AWAY, member=one, until_at=until_at, running=running, instance_id=instance_id
                )
            case r.MemberSuspected(member_id=one):
                self._add(EventType.MEMBER_SUSPECTED, member=one, running=len(self._member(one).actives))
            case r.SuspicionCleared(member_id=one):
                self._add(EventType.SUSPICION_CLEARED, member=one)
            case r.MemberTrusted(member_id=one):
                self._add(EventType.MEMBER_TRUSTED, member=one)
            case r.TasksAdopted(member_id=one, tokens=tokens, dropped=dropped):
                cause = "rebalance" if self._after.config.kafka_streams else "commits-lost"
                self._add(EventType.TASKS_ADOPTED, member=one, tasks=len(tokens), dropped=len(dropped), cause=cause)
            case r.DrainStarted(member_id=one, deadline_ms=deadline_ms, gives_up_ms=gives_up_ms, blocked=""):
                times: dict[str, Any] = {"deadline_at": time_of(deadline_ms), "gives_up_at": rfc3339(gives_up_ms)}
                self._add(EventType.DRAIN_STARTED, member=one, **times, running=len(self._member(one).actives))
            case r.DrainCancelled(member_id=one):
                drain = self._member(one).drain
                self._add(EventType.DRAIN_CANCELLED, member=one, since_at=time_of(drain.since_ms if drain else None))
            case _:
                pass

    def _of_group(self, record: r.Record) -> None:
        """Add the event of a record that is about the group as a whole, or about an instance."""
        before, after = self._before, self._after
        tasks = len(after.table.ids)
        match record:
            case r.GroupDeclared(topology=topology):
                self._add(EventType.GROUP_DECLARED, topology_epoch=topology.epoch, tasks=tasks)
            case r.TopologyChanged(topology=topology):
                epoch, tasks_before = topology.epoch, len(before.table.ids)
                self._add(EventType.TOPOLOGY_CHANGED, topology_epoch=epoch, tasks=tasks, tasks_before=tasks_before)
            case r.ConfigChanged(config=config):
                self._add(EventType.CONFIG_CHANGED, changed=_differences(before.config, config))
            case r.GroupDeleted(lease_end_ms=lease_end_ms):
                members, granted_from = len(before.members), rfc3339(lease_end_ms)
                self._add(EventType.GROUP_DELETED, members=members, granted_from_at=granted_from)
            case r.GrantsHeld(until_ms=until_ms, reason=reason, adopting=True):
                self._add(EventType.COMMITS_LOST, reason=reason, until_at=rfc3339(until_ms))
            case r.Paused(pause=pause):
                scope, expires_at = pause.scope.value, time_of(pause.expires_ms)
                self._add(EventType.PAUSED, scope=scope, reason=pause.reason, expires_at=expires_at)
            case r.Resumed() if before.pause is not None:
                scope, paused_at = before.pause.scope.value, rfc3339(before.pause.since_ms)
                self._add(EventType.RESUMED, scope=scope, paused_at=paused_at, expired=self._has(Tick))
            case r.InstanceKeptOut(instance_id=name, until_ms=until_ms):
                run, until_at = before.instances.get(name), time_of(until_ms)
                self._add(EventType.INSTANCE_KEPT_OUT, member=run, instance_id=name, until_at=until_at)
            case r.InstanceLetIn(instance_id=name) if name in before.kept_out:
                run, since_at = before.instances.get(name), rfc3339(before.kept_out[name].since_ms)
                expired = not self._has(DrainReversal)
                self._add(EventType.INSTANCE_LET_IN, member=run, instance_id=name, since_at=since_at, expired=expired)
            case r.StormBegan():
                self._add(EventType.STORM_BEGAN, lost=len(after.losses), members_left=len(after.members))
            case r.StormEnded():
                self._add(EventType.STORM_ENDED, began_at=time_of(before.storm_since_ms))
            case _:
                pass

    def _has(self, kind: type[Input]) -> bool:
        """Return whether an input of this kind led to the decision."""
        return any(isinstance(one, kind) for one in self._inputs)

    def _distrusted(self) -> None:
        """Add an event for every member whose host this decision began to distrust."""
        if self._after.hosts is self._before.hosts:
            return
        for member_id, member in sorted(self._after.members.items()):
            before, after = (group.hosts.get(host_of(member)) for group in (self._before, self._after))
            if after is None or not after.times or (before is not None and before.distrusted_ms == after.distrusted_ms):
                continue
            until_at = rfc3339(distrusted_until_ms(self._after.config, after))
            why = faults_in_words(after)
            self._add(EventType.MEMBER_DISTRUSTED, member=member_id, why=why, times=after.times, until_at=until_at)

    def _blocked(self) -> None:
        """Add an event for every draining member that this decision left blocked.

        Such a member has actives left, and its time is over, no member can take them, or placement failed.
        """
        concerns = r.DrainStarted | r.MemberGone | r.MemberAway | r.TargetPlaced
        if not any(isinstance(one, concerns) for one in self._decision.records):
            return
        for member_id, after in sorted(self._after.members.items()):
            if after.drain is None or not after.may_run:
                continue
            before = self._before.members.get(member_id)
            why = why_drain_is_blocked(self._after, after)
            if why and (before is None or not why_drain_is_blocked(self._before, before)):
                self._add(EventType.DRAIN_BLOCKED, member=member_id, why=why, running=len(after.actives))

    def _drained(self) -> None:
        """Add an event for every draining member that has no active left since this decision."""
        concerned: dict[MemberId, None] = {}
        for record in self._decision.records:
            if isinstance(record, r.TaskReleased | r.AssignmentChanged | r.DrainStarted):
                concerned[record.member_id] = None
        for member_id in concerned:
            after = self._after.members.get(member_id)
            if after is None or after.drain is None or after.drain.kept_out or after.may_run:
                continue
            before = self._before.members.get(member_id)
            if before is None or before.drain is None or before.may_run:
                took_ms = self._now_ms - after.drain.since_ms
                self._add(EventType.DRAIN_DONE, member=member_id, took_ms=took_ms)


def _unreleased_left(before: Task, after: Task, released: MemberId) -> bool:
    """Return whether another member may still be running the task."""
    others = {one.member_id for one in before.handover.unreleased if one.member_id != released}
    return any(one.member_id in others for one in after.handover.unreleased)


def _of(stop: Stop) -> dict[str, object]:
    return {"from": stop.member_id, "cause": stop.cause, "stopped_at": time_of(stop.at_ms)}


def _profile(member: Member, place: r.PlaceInherited | None) -> dict[str, Any]:
    return {
        "instance_id": member.instance_id,
        "capacity": member.capacity,
        "max_tasks": member.max_tasks,
        "max_disk_bytes": member.max_disk_bytes,
        "client_tags": dict(member.client_tags),
        "endpoint": member.endpoint,
        "on_lease_lost": member.on_lease_lost.value,
        "in_place_of": place.member_id if place is not None else None,
    }


def _gone(member: Member, record: r.MemberGone, decision: Decision) -> dict[str, Any]:
    member_soft = decision.soft.members.get(member.id)
    return {
        "cause": record.cause.value,
        "running": len(member.actives),
        "lease_end_at": rfc3339(record.lease_end_ms),
        "last_heard_at": time_of(member_soft.heard_ms if member_soft is not None else None),
        "instance_id": member.instance_id,
        "joined_at": rfc3339(member.joined_ms),
    }


def _differences(before: GroupConfig, after: GroupConfig) -> dict[str, object]:
    names = [field.name for field in fields(after)]
    return {
        name: {"from": getattr(before, name), "to": getattr(after, name)}
        for name in names
        if getattr(before, name) != getattr(after, name)
    }
