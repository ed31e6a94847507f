"""Instances that an operator keeps out: what is said of a host holds for each of its runs, until it is undone.

A drain or an eviction ends with the run that it names. Said ``until_undone``, it holds for the instance: a run that
joins meanwhile is a member, drains from its start, and gets nothing, not even as the last choice. It ends with an
``undrain``, by itself when its time is over, or with the group.
"""

from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.state import records as r
from batonpass.core.state.errors import InvalidRequest, LimitExceeded
from batonpass.core.state.ids import InstanceId, MemberId
from batonpass.core.state.inputs import DrainRequest, Eviction
from batonpass.core.state.model import Drain, Group, KeptOut, Member


def instance_named(group: Group, name: str) -> InstanceId | None:
    """Return the instance that the id of a present or past run, or an instance id, names; None if none is known."""
    run = group.members.get(MemberId(name)) or group.gone.get(MemberId(name))
    if run is not None:
        return run.instance_id
    known = {*group.instances, *group.kept_out, *(gone.instance_id for gone in group.gone.values())}
    return InstanceId(name) if name in known else None


def name_of_instance(group: Group, instance_id: InstanceId) -> str:
    """Return what people call an instance. That of a Kafka Streams application is a process id; its runs have names."""
    runs = {gone.at_ms: member_id for member_id, gone in group.gone.items() if gone.instance_id == instance_id}
    last = runs[max(runs)] if runs else instance_id
    return (group.instances.get(instance_id) or last) if group.config.kafka_streams else instance_id


def run_named(group: Group, item: DrainRequest | Eviction) -> Member | None:
    """Return the member that a command is about: by its id; ``until_undone`` also the present run of the instance."""
    member = group.members.get(item.member_id)
    if member is not None or not item.until_undone:
        return member
    instance_id = instance_named(group, item.member_id)
    present_id = None if instance_id is None else group.instances.get(instance_id)
    return None if present_id is None else group.members[present_id]


def keep_out(draft: DecisionDraft, item: DrainRequest | Eviction) -> None:
    """Keep the instance of a member out, if the command says so.

    Raises:
        InvalidRequest, LimitExceeded: when that is not possible.
    """
    if not item.until_undone:
        if item.for_ms is not None:
            message = "for_ms says how long until_undone lasts; say until_undone=true with it"
            raise InvalidRequest(message, errors=[("query.for_ms", message)])
        return
    group = draft.group
    instance_id = instance_named(group, item.member_id)
    if instance_id is None:
        message = (
            f"{item.member_id!r} names no instance: until_undone needs an instance_id, by which the next run of a member "
            "is known; join with one, or leave until_undone out, and the command holds for this run only"
        )
        raise InvalidRequest(message, errors=[("query.until_undone", message)])
    known = group.kept_out.get(instance_id)
    if known is None and len(group.kept_out) >= draft.policy.max_members:
        raise LimitExceeded(f"group {group.id!r} keeps {len(group.kept_out)} instances out, which is the limit")
    since_ms = draft.now_ms if known is None else known.since_ms
    until_ms = None if item.for_ms is None else draft.now_ms + item.for_ms
    draft.record(r.InstanceKeptOut(instance_id, since_ms, until_ms))


def kept_out_of(group: Group, member: Member) -> KeptOut | None:
    """Return what an operator said of the member's instance; None if it is not kept out."""
    return None if member.instance_id is None else group.kept_out.get(member.instance_id)


def drain_of_newcomer(draft: DecisionDraft, instance_id: InstanceId | None) -> Drain | None:
    """Return the drain with which a new run of an instance that is kept out begins; None for any other."""
    if instance_id is None or instance_id not in draft.group.kept_out:
        return None
    gives_up_ms = draft.now_ms + draft.group.config.drain_timeout_ms
    return Drain(draft.now_ms, None, gives_up_ms, kept_out=True)


def let_in(draft: DecisionDraft, instance_id: InstanceId, trigger: str) -> None:
    """Let an instance have tasks again: its present run stays, and later ones join as any other."""
    draft.record(r.InstanceLetIn(instance_id))
    member_id = draft.group.instances.get(instance_id)
    if member_id is not None:
        draft.record(r.DrainCancelled(member_id))
        draft.schedule(trigger)


def let_in_when_over(draft: DecisionDraft) -> None:
    """Let in the instances that were to be kept out until now."""
    for instance_id, entry in sorted(draft.group.kept_out.items()):
        if entry.until_ms is not None and entry.until_ms <= draft.now_ms:
            let_in(draft, instance_id, "kept-out-over")
