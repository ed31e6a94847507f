"""Groups of a given size, at the points at which the decisions on them are timed.

Every group has four subtopologies, a zone for every member, `rack_aware_tags` by it, and the coordinator's usual
checks of what members report; weights are equal or mixed. Whatever a group is, the core made it: it was declared,
joined and placed by `decide`. Only the thousands of heartbeats after which a first placement runs are given at once,
as the records and reports that they amount to.
"""

from dataclasses import dataclass, replace

from batonpass.core.decide import Decision, decide
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import GroupDeclaration, Heartbeat, Input, Join, Leave, Tick
from batonpass.core.state.model import ActiveState, Cause, Group, Member, Role, Subtopology, Topology
from batonpass.core.state.policy import Policy
from batonpass.core.state.records import ActiveReported, MemberGone, RebalanceScheduled
from batonpass.core.state.soft import MeasuredReport, MemberSoft, Soft, TaskReport

BEGINNING_MS = 1_000_000
ZONES = 3
SUBTOPOLOGIES = 4
MIXED_WEIGHTS = (1.0, 2.0, 1.5, 1.0)
EQUAL_WEIGHTS = (1.0,) * SUBTOPOLOGIES
POLICY = Policy(max_members=20_000)


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a group: stateful tasks, members, standbys of each task, and the capacity of each member."""

    tasks: int
    members: int
    standbys: int
    capacity: int = 1

    def __str__(self) -> str:
        """Return the shape as the tables name it."""
        capacity = f" (capacity {self.capacity})" if self.capacity != 1 else ""
        return f"{self.tasks:,} x {self.members:,}{capacity} x {self.standbys}"


@dataclass(frozen=True, slots=True)
class Moment:
    """A group with its soft state at an instant. Decisions on it leave it as it is, so it can be timed repeatedly."""

    group: Group
    soft: Soft
    now_ms: int

    def decide(self, item: Input, after_ms: int = 0) -> Decision:
        """Return the decision on an input that arrives `after_ms` later."""
        return decide(self.group, self.soft, (item,), self.now_ms + after_ms, POLICY)

    def then(self, item: Input, after_ms: int = 0) -> "Moment":
        """Return the group as it is after an input that arrives `after_ms` later."""
        decision = self.decide(item, after_ms)
        return Moment(decision.after, decision.soft, self.now_ms + after_ms)


@dataclass(frozen=True, slots=True)
class Stage:
    """One group of a shape at the moments that are timed.

    Attributes:
        empty: everybody has joined, and the first placement is due.
        at_rest: everything runs where it belongs, and every copy is caught up.
        before: the same a second later, when somebody joins or leaves.
        joined: at rest, but for one more member, for which the placement is due.
        gone: at rest, but for one member that is gone, before anything is done about it.
        left: the same once the decision on its leave has let ready copies take over, and the placement is due.
    """

    shape: Shape
    empty: Moment
    at_rest: Moment
    before: Moment
    joined: Moment
    gone: Moment
    left: Moment


def member_name(index: int) -> MemberId:
    """Return the id of a member; ids sort as their numbers do."""
    return MemberId(f"member-{index:05}")


def join_of(shape: Shape, index: int) -> Join:
    """Return the join of one member: its capacity, and the zone that it is in."""
    return Join(member_name(index), capacity=float(shape.capacity), client_tags=tags_of(index))


def tags_of(index: int) -> dict[str, str]:
    """Return the client tags of a member."""
    return {"zone": f"zone-{index % ZONES}"}


def topology_of(shape: Shape, weights: tuple[float, ...]) -> Topology:
    """Return a topology of as many tasks as the shape has, dealt out to the subtopologies."""
    counts = [shape.tasks // SUBTOPOLOGIES + (index < shape.tasks % SUBTOPOLOGIES) for index in range(SUBTOPOLOGIES)]
    return Topology(
        1,
        tuple(
            Subtopology(str(index), count, stateful=True, weight=weights[index], source_topics=(f"in-{index}",))
            for index, count in enumerate(counts)
        ),
    )


def prepare(shape: Shape, weights: tuple[float, ...] = EQUAL_WEIGHTS) -> Stage:
    """Return a group of the shape at every moment that is timed.

    Raises:
        AssertionError: when the group does not come to rest, because what is timed would then be something else.
    """
    empty = everybody_joined(shape, weights)
    at_rest = _everything_runs(empty.then(Tick()))
    before = replace(at_rest, now_ms=at_rest.now_ms + 1_000)
    joined = before.then(join_of(shape, shape.members))
    leaver = member_name(shape.members // 2)
    left = before.then(Leave(leaver))
    facts = (MemberGone(leaver, Cause.LEFT, before.now_ms, before.now_ms), RebalanceScheduled(before.now_ms, "leave"))
    gone = replace(before, group=evolve(before.group, facts))
    return Stage(shape, empty, at_rest, before, due(joined), gone, due(left))


def declared(shape: Shape, weights: tuple[float, ...] = EQUAL_WEIGHTS) -> Moment:
    """Return a group of the shape that nobody has joined."""
    config = {"num_standby_replicas": shape.standbys, "rack_aware_tags": ["zone"]}
    declaration = GroupDeclaration(GroupId("bench"), topology_of(shape, weights), config)
    return Moment(Group(GroupId("bench")), Soft(), BEGINNING_MS).then(declaration)


def everybody_joined(shape: Shape, weights: tuple[float, ...] = EQUAL_WEIGHTS) -> Moment:
    """Return a group that everybody has joined, when its first placement is due."""
    moment = declared(shape, weights)
    for index in range(shape.members):
        moment = moment.then(join_of(shape, index))
    return due(moment)


def due(moment: Moment) -> Moment:
    """Return the moment at which the placement is due that the group waits for."""
    due_ms = moment.group.placement_due_ms
    assert due_ms is not None, "nothing is to be placed"
    return replace(moment, now_ms=due_ms)


def _everything_runs(moment: Moment) -> Moment:
    """Return the moment after every member has reported that it runs its actives and is caught up on its copies.

    The last one says so in a heartbeat, with which the group comes to rest.
    """
    now_ms = moment.now_ms + 1_000
    *members, last = (moment.group.members[member_id] for member_id in sorted(moment.group.members))
    records = [
        ActiveReported(task_id, member.id, ActiveState.RUNNING, now_ms)
        for member in members
        for task_id, grant in member.assignment.items()
        if grant.role is Role.ACTIVE
    ]
    group = evolve(moment.group, records)
    known = {member.id: heard_of(member, now_ms, group.config.session_timeout_ms) for member in members}
    soft = moment.soft._replace(members=moment.soft.members.updated(known))
    at_rest = Moment(group, soft, now_ms).then(Heartbeat(last.id, 1, last.epoch, reported_by(last)))
    assert not at_rest.group.unsettled, "the group is not at rest"
    assert at_rest.group.next_probe_ms is None, "the group is not at rest"
    return at_rest


def heard_of(member: Member, now_ms: int, session_timeout_ms: int) -> MemberSoft:
    """Return what is known of a member that has reported everything it holds, and has seen its present assignment."""
    reports = {
        task: MeasuredReport(report, now_ms, report.lag, progress_ms=now_ms)
        for task, report in reported_by(member).items()
    }
    timeouts = ((member.epoch, session_timeout_ms),)
    return MemberSoft(now_ms, seq=0, echoed=member.epoch, full=True, timeouts=timeouts, reports=reports)


def reported_by(member: Member) -> dict[TaskId, TaskReport]:
    """Return what a member reports when it runs all of its actives and is level on all of its copies."""
    running = TaskReport("active", ActiveState.RUNNING)
    return {
        task: running if grant.role is Role.ACTIVE else TaskReport(grant.role.value, lag=0)
        for task, grant in member.assignment.items()
    }
