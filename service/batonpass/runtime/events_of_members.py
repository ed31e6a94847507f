"""What the event stream tells of records about members and about the group as a whole. Private to ``events_of``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, TypeAlias

from batonpass.codec.answers import rfc3339
from batonpass.core import records as r
from batonpass.core.ids import MemberId
from batonpass.core.inputs import Tick
from batonpass.core.model import Group, Member, Role
from batonpass.runtime.events import EventType

if TYPE_CHECKING:
    from batonpass.core.decide import Decision
    from batonpass.core.inputs import Input
    from batonpass.core.policy import GroupConfig

Told: TypeAlias = tuple[EventType, MemberId | None, dict[str, object]]
"""The type of an event, the member that it concerns, and its body."""


def time_of(at_ms: int | None) -> str | None:
    """Return an instant as bodies write it."""
    return None if at_ms is None else rfc3339(at_ms)


def told_of_member(before: Group, record: r.Record, decision: Decision) -> Told | None:
    """Return what a record about a member tells; None where it is not one, or tells nothing."""
    match record:
        case r.MemberJoined(member=joined):
            places = (one for one in decision.records if isinstance(one, r.PlaceInherited) and one.heir == joined.id)
            return EventType.MEMBER_JOINED, joined.id, _profile(joined, next(places, None))
        case r.MemberGone(member_id=member_id) if member_id in before.members:
            return EventType.MEMBER_GONE, member_id, _gone(before.members[member_id], record, decision)
        case r.MemberAway(member_id=member_id, until_ms=until_ms):
            away = before.members[member_id]
            body = {"until_at": rfc3339(until_ms), "running": running(away), "instance_id": away.instance_id}
            return EventType.MEMBER_AWAY, member_id, body
        case r.MemberSuspected(member_id=member_id):
            return EventType.MEMBER_SUSPECTED, member_id, {"running": running(before.members[member_id])}
        case r.SuspicionCleared(member_id=member_id):
            return EventType.SUSPICION_CLEARED, member_id, {}
        case r.TasksAdopted(member_id=member_id, tokens=tokens, dropped=dropped):
            return EventType.TASKS_ADOPTED, member_id, {"tasks": len(tokens), "dropped": len(dropped)}
        case r.DrainStarted(member_id=member_id, deadline_ms=deadline_ms, gives_up_ms=gives_up_ms, blocked=""):
            times = {"deadline_at": time_of(deadline_ms), "gives_up_at": rfc3339(gives_up_ms)}
            return EventType.DRAIN_STARTED, member_id, {**times, "running": running(before.members[member_id])}
        case r.DrainCancelled(member_id=member_id):
            drain = before.members[member_id].drain
            return EventType.DRAIN_CANCELLED, member_id, {"since_at": time_of(drain.since_ms if drain else None)}
        case _:
            return None


def running(member: Member) -> int:
    """Return how many tasks a member has as active."""
    return sum(grant.role is Role.ACTIVE for grant in member.picture.values())


def _profile(member: Member, place: r.PlaceInherited | None) -> dict[str, object]:
    return {
        "instance_id": member.instance_id,
        "capacity": member.capacity,
        "max_tasks": member.max_tasks,
        "client_tags": dict(member.client_tags),
        "endpoint": member.endpoint,
        "on_lease_lost": member.on_lease_lost.value,
        "in_place_of": place.member_id if place is not None else None,
    }


def _gone(member: Member, record: r.MemberGone, decision: Decision) -> dict[str, object]:
    heard = decision.soft.members.get(member.id)
    return {
        "cause": record.cause.value,
        "running": running(member),
        "lease_end_at": rfc3339(record.lease_end_ms),
        "last_heard_at": time_of(heard.heard_ms if heard is not None else None),
        "instance_id": member.instance_id,
        "joined_at": rfc3339(member.joined_ms),
    }


def told_of_group(before: Group, record: r.Record, inputs: Sequence[Input], after: Group) -> Told | None:
    """Return what a record about the group as a whole tells; None where it is not one, or tells nothing."""
    match record:
        case r.GroupDeclared(topology=topology):
            return EventType.GROUP_DECLARED, None, {"topology_epoch": topology.epoch, "tasks": len(after.table.ids)}
        case r.TopologyChanged(topology=topology):
            sizes = {"tasks": len(after.table.ids), "tasks_before": len(before.table.ids)}
            return EventType.TOPOLOGY_CHANGED, None, {"topology_epoch": topology.epoch, **sizes}
        case r.ConfigChanged(config=config):
            return EventType.CONFIG_CHANGED, None, {"changed": _differences(before.config, config)}
        case r.GroupDeleted(lease_end_ms=lease_end_ms):
            body = {"members": len(before.members), "granted_from_at": rfc3339(lease_end_ms)}
            return EventType.GROUP_DELETED, None, body
        case r.GrantsHeld(until_ms=until_ms, reason=reason, adopting=True):
            return EventType.COMMITS_LOST, None, {"reason": reason, "until_at": rfc3339(until_ms)}
        case r.Paused(pause=pause):
            scope, expires_at = pause.scope.value, time_of(pause.expires_ms)
            return EventType.PAUSED, None, {"scope": scope, "reason": pause.reason, "expires_at": expires_at}
        case r.Resumed() if before.pause is not None:
            scope, paused_at = before.pause.scope.value, rfc3339(before.pause.since_ms)
            is_expired = any(isinstance(one, Tick) for one in inputs)
            return EventType.RESUMED, None, {"scope": scope, "paused_at": paused_at, "expired": is_expired}
        case r.StormBegan():
            return EventType.STORM_BEGAN, None, {"lost": len(after.losses), "members_left": len(after.members)}
        case r.StormEnded():
            return EventType.STORM_ENDED, None, {"began_at": time_of(before.storm_since_ms)}
        case _:
            return None


def _differences(before: GroupConfig, after: GroupConfig) -> dict[str, object]:
    names = [field.name for field in fields(after)]
    return {
        name: {"from": getattr(before, name), "to": getattr(after, name)}
        for name in names
        if getattr(before, name) != getattr(after, name)
    }
