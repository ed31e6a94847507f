"""Commands of operators: declare and delete a group, pause it, pin and release tasks."""

from typing import Final

from batonpass.core.arrivals.answers import Taken, no_such_task, refusal
from batonpass.core.arrivals.kept_out import instance_named
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.state import inputs as i
from batonpass.core.state import records as r
from batonpass.core.state.application import application_of
from batonpass.core.state.durations import duration
from batonpass.core.state.errors import (
    GroupNotEmpty,
    InvalidConfig,
    InvalidRequest,
    InvalidTopology,
    PreconditionFailed,
    PreconditionRequired,
    TooLarge,
    UnknownGroup,
    UnknownMember,
)
from batonpass.core.state.model import Group, Pause, Topology
from batonpass.core.state.policy import OF_AN_APPLICATION, WHOSE_GROUP, GroupConfig, Policy, parse_config
from batonpass.core.state.replies import Declared, Done, Reply
from batonpass.core.state.topology import next_topology, with_partitions

_SAID_BY_LEADER: Final = "the leader of a Kafka Streams application says this at each rebalance; leave it out"


def declare(draft: DecisionDraft, item: i.GroupDeclaration) -> Reply:
    """Create the group, or change it. What the caller leaves out stays as it is.

    A change needs the revision that the caller has read. Nothing is recorded if nothing changes.
    """
    group = draft.group
    if not group.declared and item.if_match is not None:
        raise PreconditionFailed(f"group {group.id!r} is not declared; send no If-Match to create it")
    if group.declared and item.if_match is None:
        raise PreconditionRequired(f"group {group.id!r} exists; send If-Match with its ETag to change it")
    if group.declared and item.if_match != group.revision:
        raise PreconditionFailed(f"group {group.id!r} has changed since; read it again and send its present ETag")
    topology = _topology_said(item, group)
    config = _config_said(item, group.config if group.declared else GroupConfig())
    require_size(draft, topology)
    if record_declared(draft, topology, config) and group.declared:
        draft.schedule("topology" if topology != group.topology else "config")
    warnings = warnings_of(draft.policy, config)
    return Declared(created=not group.declared, revision=draft.group.revision, warnings=warnings)


def record_declared(draft: DecisionDraft, topology: Topology, config: GroupConfig) -> bool:
    """Record that the group is declared, or what is new of it; say whether anything is."""
    group, known = draft.group, len(draft.records)
    if not group.declared:
        draft.record(r.GroupDeclared(topology, config, draft.now_ms))
        return True
    if topology != group.topology:
        draft.record(r.TopologyChanged(topology))
    if config != group.config:
        draft.record(r.ConfigChanged(config))
    if config.session_timeout_ms < group.config.session_timeout_ms:
        # Who echoes its next epoch has seen the lower timeout (protocol 7.5).
        there = (member for _, member in sorted(group.members.items()) if member.away_until_ms is None)
        draft.record(*(r.AssignmentChanged(one.id, one.epoch + 1, draft.now_ms) for one in there))
    return len(draft.records) > known


def _config_said(item: i.GroupDeclaration, before: GroupConfig) -> GroupConfig:
    """Return the config with what a caller changes of it.

    A caller may clear whose group it is, for the application's next rebalance to say it anew.

    Raises:
        InvalidConfig: naming every setting that is wrong, or for the leader of a Kafka Streams application to say.
    """
    config = before if item.config is None else parse_config(item.config, before)
    own = ("kafka_streams", "other_assignor", *WHOSE_GROUP, *(OF_AN_APPLICATION if before.kafka_streams else ()))
    changed = [name for name in own if getattr(config, name) != getattr(before, name)]
    faults = [
        (f"config.{name}", _SAID_BY_LEADER) for name in changed if name not in WHOSE_GROUP or getattr(config, name)
    ]
    if faults:
        raise InvalidConfig(f"the config is refused: {faults[0][0]}: {_SAID_BY_LEADER}", errors=faults)
    return config


def _topology_said(item: i.GroupDeclaration, group: Group) -> Topology:
    """Return the topology with what a caller changes of it.

    Raises:
        InvalidTopology: if a new group has none, or it cannot follow the present one, or a leader says it.
    """
    if item.topology is None and not group.declared:
        message = "a new group needs a topology"
        raise InvalidTopology(message, errors=[("topology", message)])
    topology = group.topology if item.topology is None else next_topology(group.topology, item.topology)
    if group.declared and group.config.kafka_streams and topology != group.topology:
        raise InvalidTopology(f"the topology is refused: {_SAID_BY_LEADER}", errors=[("topology", _SAID_BY_LEADER)])
    return topology


def require_size(draft: DecisionDraft, topology: Topology) -> None:
    """Refuse a topology with more tasks than a group may have.

    Raises:
        TooLarge: naming the limit.
    """
    count = sum(part.partitions or 0 for part in topology.subtopologies)
    if count > draft.policy.max_tasks:
        message = f"the topology has {count} tasks, the limit is {draft.policy.max_tasks}"
        raise TooLarge(message, errors=[("topology", message)])


def warnings_of(policy: Policy, config: GroupConfig) -> tuple[str, ...]:
    """Return warnings about settings that are accepted but unwise."""
    least = 2 * policy.coordinator_lease_ms
    if config.session_timeout_ms < least:
        warning = (
            f"session_timeout_ms {config.session_timeout_ms} is shorter than two coordinator leases ({least} ms): "
            "members may be lost while a coordinator is being replaced"
        )
        return (warning,)
    return ()


def delete(draft: DecisionDraft, item: i.GroupDeletion) -> Reply:
    """Delete an empty group, or (``force``) one with members. A tombstone keeps its epochs and its highest token.

    Of an application that has no group, because each of its questions was refused, that is forgotten.
    """
    group = draft.group
    if not group.declared and draft.soft.refused is None:
        raise UnknownGroup(f"no group {group.id!r} is declared")
    application = application_of(group, draft.soft, draft.now_ms)
    if group.members and not item.force and (application is None or not application.is_silent):
        names = ", ".join(sorted(group.members)[:10])
        way_out = "let them leave"
        if application is not None:
            way_out = f"stop the application and wait {duration(application.silent_in_ms)} (protocol 14.8)"
        raise GroupNotEmpty(
            f"group {group.id!r} has members ({len(group.members)}: {names}); {way_out}, or use force=true"
        )
    # Only members of the group and unreleased members can be running a task. Those of an application have no lease.
    in_use = application is None and (
        len(group.members) > 0 or any(group.tasks[task_id].handover.unreleased for task_id in group.unsettled)
    )
    draft.soft = draft.soft._replace(refused=None)
    if group.declared:
        draft.record(r.GroupDeleted(draft.now_ms, draft.now_ms + (group.longest_session_ms if in_use else 0)))
    return Done()


def partition_counts(draft: DecisionDraft, item: i.PartitionCounts) -> Reply:
    """Take the partition counts of source topics. Each new partition is a new task.

    The tasks of a Kafka Streams application come from its rebalances instead.
    """
    group = draft.group
    if group.config.kafka_streams:
        return Done()
    topology = with_partitions(group.topology, item.partitions)
    if group.declared and topology != group.topology:
        require_size(draft, topology)
        draft.record(r.TopologyChanged(topology))
        draft.schedule("partitions")
    return Done()


def pause(draft: DecisionDraft, item: i.PauseRequest) -> Reply:
    expires_ms = item.expires_ms if item.for_ms is None else draft.now_ms + item.for_ms
    if expires_ms is not None and expires_ms <= draft.now_ms:
        message = "expires_at lies in the past"
        raise InvalidRequest(message, errors=[("expires_at", message)])
    draft.record(r.Paused(Pause(item.scope, item.reason, draft.now_ms, expires_ms)))
    return Done()


def resume(draft: DecisionDraft, _item: i.ResumeRequest) -> Reply:
    was_paused, was_storm = draft.group.pause is not None, draft.group.storm_since_ms is not None
    if was_paused:
        draft.record(r.Resumed())
    if was_storm:
        draft.record(r.StormEnded())
    if was_paused or was_storm:
        # Place without a delay: meanwhile, copies that only the old target wants would take the slots.
        draft.schedule("resume", 0)
    return Done()


def probe(_draft: DecisionDraft, _item: i.ProbeRequest) -> Reply:
    """Place the group anew, as ``decide`` does on each such request."""
    return Taken(is_news=True)


def pin(draft: DecisionDraft, item: i.PinRequest) -> Reply:
    """Pin a task to a member, so that it stays or moves (warm) there; or remove the pin."""
    group = draft.group
    _require_task(draft, item.task)
    if item.member_id is not None and item.member_id not in group.members:
        raise UnknownMember(f"group {group.id!r} has no member {item.member_id!r} to pin task {item.task} to")
    if group.tasks[item.task].marks.pin != item.member_id:
        draft.record(r.TaskPinned(item.task, item.member_id))
        draft.schedule("pin")
    return Done()


def release(draft: DecisionDraft, item: i.ReleaseRequest) -> Reply:
    """Forget a task's failures, so that a parked task is tried again and no member is avoided for it."""
    _require_task(draft, item.task)
    task = draft.group.tasks[item.task]
    if task.marks.parked or draft.view().avoided_for(task):
        draft.record(r.TaskUnparked(item.task))
        draft.schedule("release")
    return Done()


def trust(draft: DecisionDraft, item: i.TrustRequest) -> Reply:
    """Forget what is held against a member's host: it is given tasks again, also those that failed there.

    A host without a member now is named by its instance, or by a run that is gone.
    """
    group, member_id = draft.group, item.member_id
    instance_id = None if member_id in group.members else instance_named(group, member_id)
    if not group.declared or (member_id not in group.members and instance_id is None):
        raise refusal(group, member_id)
    present_id = None if instance_id is None else group.instances.get(instance_id)
    draft.record(r.MemberTrusted(member_id, instance_id) if present_id is None else r.MemberTrusted(present_id))
    draft.schedule("member-trusted")
    return Done()


def _require_task(draft: DecisionDraft, task: str) -> None:
    if task not in draft.group.table.index_of:
        raise InvalidRequest(no_such_task(draft.group, task), errors=[("task", "there is no such task")])
