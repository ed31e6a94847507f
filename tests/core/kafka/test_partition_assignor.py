"""Kafka's tests around its assignor: what is read, what is withheld, what happens when something cannot be read."""

from tests.core.kafka.groups import active, client, config, counts, plan, standby, warmup
from tests.core.relay import Relay
from tests.core.scene import Scene, copy, restoring, running, topology

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import EndOffsets, PartitionCounts
from batonpass.core.state.model import Role, Subtopology, Topology
from batonpass.core.state.records import AssignmentChanged
from batonpass.core.state.soft import TaskReport
from batonpass.placement.types import Readiness


def logs(partitions: int = 1, *changelogs: str) -> Topology:
    """Return one subtopology with these changelogs."""
    names = changelogs or ("log",)
    return Topology(1, (Subtopology("0", partitions, source_topics=("in",), changelog_topics=names),))


def at(role: str, *positions: tuple[str, int]) -> TaskReport:
    """Return the report of a copy by its positions."""
    return TaskReport(role, positions=positions)


def test_ends_that_cannot_be_read_leave_everything_where_it_is() -> None:
    """Kafka's fallback keeps all previous owners too, and looks again by the timer."""
    scene = Scene()
    scene.declare(logs(2), acceptable_recovery_lag=10)
    scene.join("a")
    scene.beat("a", {"0_0": running(), "0_1": running()})
    scene.join("b")
    (task,) = scene.held("b", Role.WARMUP)
    for _ in range(5):
        scene.tick(3_000)
        scene.beat("a", {"0_0": running(), "0_1": running()})
        scene.beat("b", {task: at("warmup", ("", 90))})
    assert scene.owners() == {"0_0": "a", "0_1": "a"}
    assert scene.held("b", Role.WARMUP) == [task]
    assert scene.group.next_probe_ms is not None
    scene.do(EndOffsets({("log", int(task[-1])): 95}, scene.now_ms))
    assert scene.task(task).handover.next_owner == "b"


def test_the_timer_belongs_to_the_group_and_not_to_a_member() -> None:
    """Kafka gives the deadline to the leader's first consumer alone: where that one is stuck, no look follows."""
    relay = Relay(topology(2))
    relay.join("a")
    relay.play()
    at_rest_ms = relay.group.next_probe_ms
    assert at_rest_ms is None
    relay.step = 1
    relay.join("b")
    due_ms = relay.group.next_probe_ms
    assert due_ms is not None
    relay.round()
    relay.join("c")
    relay.leave("c")
    assert relay.group.next_probe_ms == due_ms


def test_a_task_given_to_another_is_granted_with_the_very_heartbeat_that_confirms() -> None:
    """Kafka withholds what must be revoked first, and rebalances all members a second time."""
    scene = Scene()
    scene.declare(topology(2))
    scene.join("a")
    scene.obey()
    scene.join("b")
    scene.obey()
    (task,) = [one for one in scene.owners() if scene.task(one).handover.next_owner == "b"]
    assert scene.owners() == {"0_0": None, "0_1": "a"}
    scene.obey("a")
    assert scene.of(AssignmentChanged)[0].member_id == "b"
    assert scene.task(task).owner == "b"
    assert scene.grant("b", task) is not None
    assert scene.task(task).token == 2


def test_a_change_of_endpoint_moves_nothing() -> None:
    """Kafka rebalances at once when a member's host changes."""
    relay = Relay(topology(4))
    relay.join("a", instance_id="i", endpoint="http://a:1")
    relay.join("b")
    relay.play()
    before = relay.scene.held("a", Role.ACTIVE)
    generation = relay.group.generation
    relay.forget()
    relay.join("a2", instance_id="i", takeover=True, endpoint="http://a:2")
    relay.play()
    assert relay.scene.held("a2", Role.ACTIVE) == before
    assert relay.scene.member("a2").endpoint == "http://a:2"
    assert relay.group.generation == generation
    assert not relay.interrupted()


def test_the_previous_owner_keeps_its_copy_until_the_new_one_runs() -> None:
    """Kafka keeps a temporary standby only where one was before, and loses the state otherwise (D13)."""
    scene = Scene()
    scene.declare(topology(2))
    scene.join("a")
    scene.obey()
    scene.join("b")
    scene.obey("b")
    (task,) = [one for one in scene.owners() if scene.task(one).handover.next_owner == "b"]
    assert scene.held("a", Role.STANDBY) == [task]
    scene.obey("a")
    assert scene.task(task).owner == "b"
    assert scene.held("a", Role.STANDBY) == [task]
    scene.obey("b")
    assert scene.held("a", Role.STANDBY) == []


def test_stateless_tasks_have_no_temporary_standby() -> None:
    """As in Kafka since KAFKA-10263."""
    scene = Scene()
    scene.declare(topology(0, stateless=2))
    scene.join("a")
    scene.obey()
    scene.join("b")
    assert scene.held("a", Role.STANDBY) == []
    scene.settle()
    assert sorted(map(str, scene.owners().values())) == ["a", "b"]


def test_new_partitions_become_new_tasks_and_the_old_ones_stay() -> None:
    relay = Relay(Topology(1, (Subtopology("0", 2, source_topics=("in",), changelog_topics=("log",)),)))
    relay.join("a", "b")
    relay.play()
    before = relay.owners()
    relay.forget()
    relay.scene.do(PartitionCounts({"in": 4}))
    relay.count()
    relay.play()
    assert {task: relay.owners()[task] for task in before} == before
    assert relay.actives() == {"a": 2, "b": 2}
    assert not relay.interrupted()


def test_a_missing_source_topic_is_reported_and_nothing_is_granted() -> None:
    """Kafka sends every member an error code and shuts threads down."""
    scene = Scene()
    scene.declare(Topology(1, (Subtopology("0", None, source_topics=("in",)),)))
    answer = scene.join("a")
    assert [code for code, _ in answer.status] == ["topology-not-ready"]
    assert dict(answer.assignment or {}) == {}
    scene.do(PartitionCounts({"in": 2}))
    scene.tick(100)
    assert scene.owners() == {"0_0": "a", "0_1": "a"}


def test_a_copy_of_nothing_comes_after_any_known_lag() -> None:
    """Kafka counts the end sum as the lag of what a client does not have."""
    made = plan([client("a"), client("b", disk={"0_0": 10**12})], ["0_0"])
    assert active(made, "b") == ["0_0"]


def test_a_running_owner_outranks_every_copy() -> None:
    """Kafka's sentinel for a running owner sorts first; ours is the first class of readiness."""
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1)
    scene.join("a")
    scene.obey()
    scene.join("b")
    scene.settle()
    task = scene.task("0_0")
    assert scene.view().copy(task, MemberId("a")).readiness is Readiness.RUNNING
    assert scene.view().copy(task, MemberId("b")).readiness is Readiness.CAUGHT_UP


def test_an_unknown_lag_is_worse_than_any_known_one() -> None:
    """Kafka's sentinel for an unknown lag is negative, and beats 500 records (D6)."""
    made = plan([client("a", disk={"0_0": None}), client("b", disk={"0_0": 500})], ["0_0"], settings=config())
    assert active(made, "b") == ["0_0"]
    assert counts(made, "warmup") == [0, 0]


def test_a_position_beyond_the_end_is_another_incarnation() -> None:
    """Kafka counts a position above the end as the whole changelog."""
    scene = Scene()
    scene.declare(logs(), num_standby_replicas=1, acceptable_recovery_lag=10)
    scene.join("a")
    scene.beat("a", {"0_0": running()})
    scene.join("b")
    scene.beat("b", {"0_0": at("standby", ("log", 900))})
    scene.now_ms += 1_000
    scene.do(EndOffsets({("log", 0): 500}, scene.now_ms))
    assert scene.view().copy(scene.task("0_0"), MemberId("b")).readiness is Readiness.UNKNOWN
    measured = scene.soft.members[MemberId("b")].reports[TaskId("0_0")]
    assert measured.other_incarnation


def test_a_task_with_several_changelogs_is_known_only_with_all_of_them() -> None:
    """Kafka leaves an unknown partition out of the sum, so that a partly unknown task looks better."""
    scene = Scene()
    scene.declare(logs(1, "left", "right"), num_standby_replicas=1, acceptable_recovery_lag=10)
    scene.join("a")
    scene.beat("a", {"0_0": running()})
    scene.join("b")
    scene.do(EndOffsets({("left", 0): 100, ("right", 0): 50}, scene.now_ms))
    scene.beat("b", {"0_0": at("standby", ("left", 100))})
    assert scene.view().copy(scene.task("0_0"), MemberId("b")).readiness is Readiness.UNKNOWN
    scene.beat("b", {"0_0": at("standby", ("left", 100), ("right", 20))})
    assert scene.view().copy(scene.task("0_0"), MemberId("b")).lag == 30


def test_an_active_and_a_standby_of_one_task_on_one_client_cannot_be_said() -> None:
    """Kafka refuses it with an exception; an assignment of ours has one role a task."""
    clients = [client("a", runs=["0_0"], stands_by={}), client("b", stands_by={"0_0": 0})]
    made = plan(clients, ["0_0"], settings=config(num_standby_replicas=1))
    assert (active(made, "a"), standby(made, "a"), warmup(made, "a")) == (["0_0"], [], [])
    assert standby(made, "b") == ["0_0"]


def test_an_owner_that_restores_yields_to_a_copy_that_is_caught_up() -> None:
    """Kafka restores wiped state in place, offline (D14)."""
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1, acceptable_recovery_lag=10)
    scene.join("a")
    scene.obey()
    scene.join("b")
    scene.settle()
    scene.beat("a", {"0_0": restoring(lost=True)})
    assert scene.task("0_0").handover.next_owner == "b"
    scene.beat("a", {"0_0": copy("standby", None)})
    assert scene.task("0_0").owner == "b"
