"""Stories of a group, played input by input, with the events of each: what tests of events and explanations share."""

from collections.abc import Callable
from unittest.mock import patch

from ortools.graph.python.min_cost_flow import SimpleMinCostFlow
from tests.core.scene import Scene, copy, failed, restoring, running, topology

from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    DrainReversal,
    Eviction,
    GroupDeletion,
    Input,
    Leave,
    PauseRequest,
    PinRequest,
    PollBroken,
    ReleaseRequest,
    ResumeRequest,
    StoreRecovered,
    StreamsProcess,
    StreamsRebalance,
    TrustRequest,
)
from batonpass.core.state.model import OnLeaseLost, Role
from batonpass.core.state.replies import Reply
from batonpass.placement import flow
from batonpass.runtime.event_derivation import events_of
from batonpass.runtime.events import Event, EventType

A, B, C = MemberId("a"), MemberId("b"), MemberId("c")
TASK = TaskId("0_0")


class StoryScene(Scene):
    """A scene that notes the events of everything that happens in it."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def do(self, item: Input) -> Reply:
        """Let ``item`` happen, and note its events."""
        before = self.group
        reply = super().do(item)
        assert self.last is not None
        events = events_of(before, (item,), self.last, self.now_ms)
        assert events == events_of(before, (item,), self.last, self.now_ms)
        assert not events or self.last.records
        self.events.extend(events)
        return reply

    def forget(self) -> None:
        """Forget the events so far."""
        self.events.clear()

    def types(self) -> list[str]:
        """Return the types of the events, in order."""
        return [event.type for event in self.events]

    def only(self, kind: EventType) -> Event:
        """Return the one event of a type."""
        (found,) = [event for event in self.events if event.type == kind]
        assert found.at_ms <= self.now_ms
        return found


def alone(tasks: int = 1, **config: object) -> StoryScene:
    """Return a group at rest where a runs every task."""
    scene = StoryScene()
    scene.declare(topology(tasks), **({"acceptable_recovery_lag": 100} | config))
    scene.join("a")
    scene.settle()
    return scene


def guarded(*, on_lease_lost: OnLeaseLost = OnLeaseLost.STOP, members: str = "ab", **config: object) -> StoryScene:
    """Return a group at rest where a runs the one task and b stands by."""
    scene = StoryScene()
    scene.declare(topology(1), **({"acceptable_recovery_lag": 100, "num_standby_replicas": 1} | config))
    for name in members:
        scene.join(name, on_lease_lost=on_lease_lost, instance_id=InstanceId(f"i-{name}"))
        scene.settle()
    scene.forget()
    assert scene.task(TASK).owner == A
    return scene


def begins() -> StoryScene:
    """A group begins."""
    return alone(3)


def hands_over() -> StoryScene:
    """A newcomer warms one of two tasks up, catches up, and gets it; it takes 400 ms to begin."""
    scene = alone(2)
    scene.forget()
    scene.join("b")
    (task,) = scene.member("b").assignment
    scene.beat("b", {task: copy("warmup", 5_000)})
    scene.now_ms += 7_000
    scene.obey("a")
    scene.beat("b", {task: copy("warmup", 40)})
    scene.now_ms += 1_000
    scene.obey("a")
    scene.now_ms += 400
    scene.obey("b")
    return scene


def leaves() -> StoryScene:
    """The owner leaves, and its standby takes over, 250 ms later."""
    scene = guarded()
    scene.do(Leave(A))
    scene.now_ms += 250
    scene.obey("b")
    return scene


def expires() -> StoryScene:
    """The owner falls silent, and there is no copy of its task."""
    scene = alone()
    scene.join("b", tasks={})
    scene.settle()
    scene.forget()
    silent, other = (A, B) if scene.task(TASK).owner == A else (B, A)
    for _ in range(20):
        scene.tick(3_000)
        if silent not in scene.group.members:
            break
        scene.beat(other, {task: running() for task in scene.member(other).assignment})
    scene.beat(other, {TASK: restoring(500)})
    scene.now_ms += 9_000
    scene.beat(other, {TASK: running()})
    return scene


def restarts() -> StoryScene:
    """The owner restarts and comes back with its state before anybody else has the task."""
    scene = alone()
    scene.do(Leave(A))  # It has no instance id: it goes for good, and the next one starts.
    scene.join("a1", instance_id=InstanceId("i"))
    scene.settle()
    scene.forget()
    scene.do(Leave(MemberId("a1"), restart=True))
    scene.now_ms += 4_000
    scene.join("a2", instance_id=InstanceId("i"), tasks={TASK: copy("none", 0)})
    scene.now_ms += 1_000
    scene.obey("a2")
    return scene


def is_suspected() -> StoryScene:
    """The owner, whose outputs are fenced, breaks off its long-poll after 1.5 s; its standby takes over; it speaks."""
    scene = guarded(on_lease_lost=OnLeaseLost.CONTINUE)
    scene.obey("a")
    scene.now_ms += 1_500
    scene.do(PollBroken(A))
    scene.tick(2_000)
    scene.now_ms += 100
    scene.obey("b")
    scene.obey("a")
    return scene


def fails() -> StoryScene:
    """A task fails, recovers on its owner, loses its state, is restored; then fails on one member after another."""
    scene = alone()
    scene.forget()
    for report in (failed("disk"), running(), running(lost=True)):
        scene.now_ms += 500
        scene.beat("a", {TASK: report})
    scene.settle()
    scene.beat("a", {TASK: restoring(10)})
    scene.settle()
    for name in ("b", "c", "d"):
        scene.do(Eviction(scene.task(TASK).owner or A, dead=True))
        scene.join(name)
        scene.tick(1_000)
        scene.beat(name, {TASK: running()})
        scene.beat(name, {TASK: failed()})
    scene.do(ReleaseRequest(TASK))
    return scene


def is_distrusted() -> StoryScene:
    """Both tasks of a member fail there and are taken over; then an operator trusts it again."""
    scene = StoryScene()
    scene.declare(topology(4), num_standby_replicas=1)
    for name in ("a", "b"):
        scene.join(name)
    scene.settle(60)
    scene.forget()
    scene.beat("a", {task: failed("disk") for task in scene.held("a", Role.ACTIVE)})
    scene.settle()
    scene.do(TrustRequest(A))
    return scene


def drains() -> StoryScene:
    """A drain is taken back, then asked for again and carried through."""
    scene = guarded()
    scene.do(DrainRequest(A, 60_000))
    scene.do(DrainReversal(A))
    scene.settle()
    scene.do(DrainRequest(A))
    scene.settle()
    return scene


def is_kept_out() -> StoryScene:
    """An instance is kept out, its next run gets nothing, and it is let in: by an operator, then at its time."""
    scene = guarded()
    scene.join("c", instance_id=InstanceId("pod-c"))
    scene.settle()
    scene.do(Eviction(MemberId("c"), dead=True, until_undone=True))
    scene.join("c2", instance_id=InstanceId("pod-c"))
    scene.do(DrainReversal(MemberId("pod-c")))
    scene.settle()
    scene.do(DrainRequest(MemberId("c2"), until_undone=True, for_ms=5_000))
    scene.settle()
    scene.tick(5_000)
    scene.settle()
    return scene


def is_blocked() -> StoryScene:
    """One member drains, then the other one too: neither has anybody to hand its tasks to, until one stays."""
    scene = guarded()
    scene.do(DrainRequest(B))
    scene.do(DrainRequest(A))
    scene.tick(1_000)
    scene.do(DrainReversal(B))
    scene.settle()
    return scene


def is_paused() -> StoryScene:
    """Moves are held twice: until an operator lets them go on, and until an instant."""
    scene = guarded()
    scene.do(PauseRequest(reason="deploy"))
    scene.now_ms += 10
    scene.do(ResumeRequest())
    scene.do(PauseRequest(expires_ms=scene.now_ms + 5_000))
    scene.tick(5_000)
    return scene


def storms() -> StoryScene:
    """All but one of four members vanish, and an operator says that it is over."""
    scene = alone(4)
    for name in ("b", "c", "d"):
        scene.join(name)
    scene.settle()
    scene.forget()
    for _ in range(16):
        scene.tick(3_000)
        scene.obey("a")
    scene.do(ResumeRequest())
    return scene


def fails_to_be_placed() -> StoryScene:
    """The solver of placement finds no answer when a member joins."""
    scene = alone(2)
    scene.forget()
    with patch.object(flow, "SimpleMinCostFlow", _Unsolvable):
        scene.join("b")
    return scene


class _Unsolvable(SimpleMinCostFlow):  # type: ignore[misc] # published without types
    def solve(self) -> object:
        """Say that there is no answer."""
        return self.INFEASIBLE


def loses_commits() -> StoryScene:
    """An operator says that the store lost commits; a member says that it runs what the log gives to another."""
    scene = alone(2)
    scene.join("b")
    scene.settle()
    scene.forget()
    scene.do(StoreRecovered())
    scene.beat("a", {"0_0": running(), "0_1": running()})
    return scene


def warms_up_in_vain() -> StoryScene:
    """One warmup comes no closer, another is not needed any more."""
    scene = alone(2, warmup_stall_timeout_ms=10_000)
    scene.join("b")
    (task,) = scene.member("b").assignment
    for _ in range(6):
        scene.beat("b", {task: copy("warmup", 5_000)})
        scene.obey("a")
        scene.tick(3_000)
    scene.join("c")
    scene.tick(1_000)
    scene.do(Leave(C))
    scene.tick(1_000)
    return scene


def is_reconfigured() -> StoryScene:
    """A task is pinned to a standby and unpinned; settings and topology change; the group is deleted."""
    scene = guarded(members="abc")
    scene.do(PinRequest(TASK, B))
    scene.settle()
    scene.do(PinRequest(TASK, None))
    scene.change(max_warmup_replicas=7)
    scene.change(topology(3, epoch=2))
    scene.settle()
    scene.do(GroupDeletion(force=True))
    return scene


def is_probed() -> StoryScene:
    """A warmup is behind when the timer rings, so that there is nothing to do but to look again later."""
    scene = alone(2)
    scene.join("b")
    (task,) = scene.member("b").assignment
    lag = 9_000_000
    while "probed" not in scene.types():
        lag -= 1
        scene.beat("b", {task: copy("warmup", lag)})
        scene.obey("a")
        scene.tick(30_000)
    return scene


def changes_its_mind() -> StoryScene:
    """The member that was to get a task dies before the last owner has confirmed: another gets it."""
    scene = guarded(members="abc", num_standby_replicas=2)
    scene.do(PinRequest(TASK, B))
    scene.tick(100)
    assert scene.task(TASK).handover.next_owner == B
    scene.do(Leave(B))
    scene.tick(100)
    return scene


def dies_before_it_confirms() -> StoryScene:
    """The owner has to give its task up to a pinned standby, and is evicted. Its lease ends, and the standby runs."""
    scene = guarded()
    scene.do(PinRequest(TASK, B))
    scene.do(Eviction(A))
    for _ in range(20):
        scene.tick(3_000)
        scene.obey("b")
    return scene


def has_other_threads() -> StoryScene:
    """A process of a Kafka Streams application goes on with another thread, another tag and another address."""
    scene = StoryScene()
    for capacity in (1.0, 2.0):
        process = StreamsProcess(InstanceId("p"), capacity, {"zone": f"z{capacity:g}"}, {}, "pod", f"pod:{capacity:g}")
        scene.do(StreamsRebalance(topology(1), {}, (process,)))
    return scene


STORIES: tuple[Callable[[], StoryScene], ...] = (
    begins,
    fails_to_be_placed,
    hands_over,
    leaves,
    expires,
    restarts,
    is_suspected,
    fails,
    is_distrusted,
    drains,
    is_kept_out,
    is_blocked,
    is_paused,
    storms,
    loses_commits,
    warms_up_in_vain,
    is_reconfigured,
    is_probed,
    changes_its_mind,
    dies_before_it_confirms,
    has_other_threads,
)
