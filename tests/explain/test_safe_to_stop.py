"""A member is safe to stop when everything that it runs can be taken over at once."""

from dataclasses import replace

from batonpass.core.decide import decide
from batonpass.core.handover.view import View
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import GroupDeclaration, Heartbeat, Input, Join, Tick
from batonpass.core.state.model import ActiveState, Group, Revocation, Subtopology, Topology, Unreleased
from batonpass.core.state.policy import Policy
from batonpass.core.state.soft import Soft, TaskReport
from batonpass.explain.safe_to_stop import reasons_to_stay

M1, M2 = MemberId("m1"), MemberId("m2")
STATE, FREE = TaskId("0_0"), TaskId("1_0")
RUNNING = TaskReport("active", ActiveState.RUNNING)


class Relay:
    """A group with one stateful and one stateless task, and one standby for the former."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.group, self.soft = Group(GroupId("orders")), Soft()
        parts = (Subtopology("0", partitions=1), Subtopology("1", partitions=1, stateful=False))
        settings = {"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0, "num_standby_replicas": 1}
        self.do(GroupDeclaration(self.group.id, Topology(1, parts), settings))

    def do(self, item: Input) -> None:
        """Decide on an input."""
        decision = decide(self.group, self.soft, (item,), self.now_ms, Policy())
        self.group, self.soft = decision.after, decision.soft

    def beat(self, member_id: MemberId, seq: int, **lags: int) -> None:
        """Let a member report what it holds: actives running, copies with the lag given by task."""
        member = self.group.members[member_id]
        reports = {
            task: RUNNING if grant.role.value == "active" else TaskReport(grant.role.value, lag=lags.get(task, 0))
            for task, grant in member.assignment.items()
        }
        self.do(Heartbeat(member_id, seq, member.epoch, reports))

    def reasons(self, member_id: MemberId) -> list[str]:
        """Return the tasks that speak against stopping a member."""
        found = reasons_to_stay(View(self.group, self.soft, self.now_ms), self.group.members[member_id])
        assert all(reason for _, reason in found)
        return [task for task, _ in found]


def test_the_only_member_is_never_safe_to_stop() -> None:
    relay = Relay()
    relay.do(Join(M1))
    relay.beat(M1, 1)
    assert relay.reasons(M1) == [STATE, FREE]


def test_a_caught_up_standby_makes_its_owner_safe_to_stop() -> None:
    relay = Relay()
    relay.do(Join(M1))
    relay.beat(M1, 1)
    relay.do(Join(M2))
    relay.do(Tick())
    assert STATE in relay.group.members[M2].assignment
    relay.beat(M2, 1, **{STATE: 1_000_000})
    relay.beat(M1, 2)
    assert relay.reasons(M1) == [STATE]
    relay.beat(M2, 2, **{STATE: 0})
    relay.beat(M1, 3)
    assert relay.reasons(M1) == []
    assert FREE in relay.group.members[M2].assignment
    assert relay.reasons(M2) == []


def test_a_revocation_that_is_not_confirmed_is_waited_for() -> None:
    relay = Relay()
    relay.do(Join(M1))
    member = relay.group.members[M1]
    revoking = member.revoking.updated({STATE: Revocation(2, 0, active=True), FREE: Revocation(2, 0, active=False)})
    revoked_member = replace(member, assignment=type(member.assignment)(), revoking=revoking)
    for unreleased, found in (((Unreleased(M1, None),), [STATE]), ((), [])):
        # A task that no longer waits for the member's confirmation, because it is suspected, is another's already.
        task = relay.group.tasks[STATE].with_handover(unreleased=unreleased)
        group = replace(relay.group, tasks=relay.group.tasks.having(STATE, task))
        assert [task for task, _ in reasons_to_stay(View(group, relay.soft, 0), revoked_member)] == found
