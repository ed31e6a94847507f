"""The quality bar on moves: how many tasks move, where to, how often, and in how many rounds."""

import pytest
from tests.core.relay import COLD_LAG, Relay, least_moves, moved, rounds_bound
from tests.core.scene import topology

from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, Join, ProbeRequest
from batonpass.core.state.model import Role, Subtopology
from batonpass.core.state.replies import Answer, DrainProgress
from batonpass.core.state.soft import TaskReport

pytestmark = pytest.mark.no_cover


def crowd(count: int) -> list[str]:
    """Return the names of so many members."""
    return [f"m{number:02}" for number in range(count)]


def begun(members: int, tasks: int, **config: object) -> Relay:
    """Return a group at rest whose members all joined before it began."""
    settings = {"initial_rebalance_delay_ms": 3_000} | config
    relay = Relay(topology(tasks), policy=None, whole=False, **settings)
    relay.join(*crowd(members))
    relay.play()
    relay.forget()
    return relay


def level(counts: dict[str, int]) -> bool:
    """Say whether the counts differ by at most one."""
    return max(counts.values()) - min(counts.values()) <= 1


SIZES = [(1, 10, 0), (1, 100, 0), (2, 30, 0), (3, 7, 1), (10, 100, 0), (10, 100, 1), (10, 100, 2), (5, 3, 1)]


@pytest.mark.parametrize(("members", "tasks", "standbys"), SIZES)
def test_a_join_moves_the_fewest_tasks_once_each_and_to_the_joiner_alone(
    members: int, tasks: int, standbys: int
) -> None:
    relay = begun(members, tasks, num_standby_replicas=standbys)
    before = relay.owners()
    relay.join("new")
    relay.play()
    moves = moved(before, relay.owners())
    assert set(moves.values()) <= {"new"}
    assert len(moves) == least_moves(before, relay.group.members)
    assert dict(relay.taken) == dict.fromkeys(moves, 1)
    assert relay.granted == {task: ["new"] for task in moves}
    assert not relay.cold
    assert level(relay.actives())
    assert relay.most_extra <= 2


@pytest.mark.parametrize(("members", "tasks", "standbys"), [size for size in SIZES if size[0] > 1])
def test_a_leave_moves_the_leavers_tasks_alone(members: int, tasks: int, standbys: int) -> None:
    relay = begun(members, tasks, num_standby_replicas=standbys)
    before = relay.owners()
    own = {task for task, owner in before.items() if owner == "m01"}
    relay.leave("m01")
    relay.play()
    moves = moved(before, relay.owners())
    assert set(moves) == own
    assert len(moves) == least_moves(before, relay.group.members)
    # The caught-up standby serves at once; where counts ask for it, the task goes on from there, once.
    assert set(relay.taken) <= own
    assert max(relay.taken.values(), default=0) <= 1
    assert relay.cold == (own if standbys == 0 else set())
    assert level(relay.actives())


@pytest.mark.parametrize("standbys", [0, 1])
def test_a_crash_moves_the_tasks_of_the_dead_alone(standbys: int) -> None:
    relay = begun(4, 17, num_standby_replicas=standbys)
    before = relay.owners()
    own = {task for task, owner in before.items() if owner == "m02"}
    relay.silent.add(MemberId("m02"))
    while "m02" in relay.group.members:
        relay.round()
    assert set(relay.granted) == own
    relay.play()
    assert set(moved(before, relay.owners())) == own
    assert relay.cold == (own if standbys == 0 else set())
    assert level(relay.actives())


@pytest.mark.parametrize("known_as", ["replaces", "instance"])
def test_a_replacement_gets_the_tasks_of_the_one_that_it_replaces(known_as: str) -> None:
    """Kafka moves tasks of survivors as well."""
    relay = Relay(topology(100), whole=False, initial_rebalance_delay_ms=3_000)
    for name in crowd(10):
        relay.join(name, instance_id=InstanceId(f"i-{name}"))
    relay.play()
    relay.forget()
    before = relay.owners()
    own = {task for task, owner in before.items() if owner == "m03"}
    if known_as == "replaces":
        relay.join("new", instance_id=InstanceId("i-m03"), replaces=MemberId("m03"))
    else:
        relay.join("new", instance_id=InstanceId("i-m03"), takeover=True)
    relay.play()
    assert moved(before, relay.owners()) == dict.fromkeys(own, "new")
    assert not relay.taken


def test_a_drain_moves_the_tasks_of_the_drained_alone_and_cold_never() -> None:
    relay = begun(5, 40, max_drain_warmups=4, max_warmup_replicas=1)
    before = relay.owners()
    own = {task for task, owner in before.items() if owner == "m00"}
    relay.scene.ok(DrainRequest(MemberId("m00")), DrainProgress)
    relay.count()
    while relay.actives()["m00"]:
        relay.round()
    assert set(moved(before, relay.owners())) == own
    assert dict(relay.taken) == dict.fromkeys(own, 1)
    assert not relay.cold
    assert relay.most_extra <= 4
    counts = relay.actives()
    del counts["m00"]
    assert level(counts)
    assert ("drained", "this member has no active task left and may leave") in status(relay, "m00")


def status(relay: Relay, name: str) -> tuple[tuple[str, str], ...]:
    """Return the status that a member is answered."""
    relay.scene.beat(name)
    assert relay.scene.last is not None
    assert isinstance(relay.scene.last.replies[0], Answer)
    return relay.scene.last.replies[0].status


@pytest.mark.parametrize(("warmups", "per_member"), [(1, 1), (2, 2), (5, 2), (3, 100), (100, 1), ("10%", 100)])
def test_the_rounds_to_rest_are_within_the_bound(warmups: int | str, per_member: int) -> None:
    """The bound is that of L9."""
    relay = begun(4, 60, max_warmup_replicas=warmups, max_warmups_per_member=per_member)
    before = relay.owners()
    relay.join("n1", "n2")
    rounds = relay.play()
    moves = moved(before, relay.owners())
    assert len(moves) == 20
    assert rounds <= rounds_bound(relay.group, moves.values())


@pytest.mark.parametrize("standbys", [1, 2])
def test_moved_standbys_count_alike_in_the_bound(standbys: int) -> None:
    """Standbys that move for balance take slots as actives do."""
    relay = begun(10, 100, num_standby_replicas=standbys)
    before = {
        task: (relay.group.tasks[task].target.owner, relay.group.tasks[task].target.standbys) for task in relay.owners()
    }
    relay.join("new")
    aims: list[MemberId | None] = []
    for task, (target, standing) in before.items():
        after = relay.group.tasks[task]
        aims += [after.target.owner] if after.target.owner != target else []
        aims += [one for one in after.target.standbys if one not in (*standing, target)]
    assert relay.play() <= rounds_bound(relay.group, aims)


def test_a_second_join_keeps_the_warmups_that_still_have_a_goal() -> None:
    relay = begun(10, 100)
    relay.step = COLD_LAG // 3
    relay.join("n1")
    relay.round()
    warming = {(task, MemberId("n1")) for task in relay.scene.held("n1", Role.WARMUP)}
    assert len(warming) == 2
    relay.join("n2")
    assert {(task, MemberId("n1")) for task in relay.scene.held("n1", Role.WARMUP)} == warming
    arrived = {task for task, owner in relay.owners().items() if owner == "n1"}
    relay.play()
    assert {task for task, _ in warming} | arrived <= {task for task, owner in relay.owners().items() if owner == "n1"}
    assert set(relay.taken.values()) == {1}
    assert {owner for owners in relay.granted.values() for owner in owners} == {"n1", "n2"}
    # Each copy that was begun came to run the task: none was for nothing.
    assert {(task, owners[-1]) for task, owners in relay.granted.items()} == {
        one for one in relay.begun if one[1] in ("n1", "n2")
    }


def test_a_joiner_that_leaves_again_leaves_nothing_behind() -> None:
    relay = begun(3, 30)
    relay.step = 1
    relay.join("new")
    relay.round()
    assert relay.scene.held("new", Role.WARMUP)
    before = relay.owners()
    relay.leave("new")
    assert relay.play() == 0
    assert relay.owners() == before
    assert not relay.taken


def test_a_stable_group_is_a_fixed_point() -> None:
    relay = begun(4, 30, num_standby_replicas=1)
    version, generation = relay.group.version, relay.group.generation
    relay.scene.ok(ProbeRequest(), object)
    relay.beats()
    for _ in range(5):
        relay.round()
    assert (relay.group.version, relay.group.generation) == (version, generation)


def test_a_probe_in_mid_move_makes_no_generation() -> None:
    relay = begun(2, 20)
    relay.step = COLD_LAG // 5
    relay.join("new")
    relay.round()
    generation = relay.group.generation
    warming = relay.scene.held("new", Role.WARMUP)
    for _ in range(3):
        relay.scene.ok(ProbeRequest(), object)
        relay.round()
        assert relay.scene.held("new", Role.WARMUP) == warming
    assert relay.group.generation == generation


def test_counts_follow_capacity_within_one_task() -> None:
    relay = Relay(topology(60), whole=False, initial_rebalance_delay_ms=3_000, max_warmup_replicas=50)
    capacities = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 5.0}
    for name, capacity in capacities.items():
        relay.join(name, capacity=capacity)
    relay.play()
    relay.join("e", capacity=4.0)
    capacities["e"] = 4.0
    relay.play()
    total = sum(capacities.values())
    for name, count in relay.actives().items():
        assert abs(count - 60 * capacities[name] / total) < 1


def test_subtopologies_are_even_from_the_start() -> None:
    shape = topology(9, more=(Subtopology("1", 7), Subtopology("2", 5), Subtopology("3", 3)))
    relay = Relay(shape, initial_rebalance_delay_ms=3_000)
    relay.join(*crowd(4))
    relay.play()
    for subtopology in "0123":
        counts = dict.fromkeys(crowd(4), 0)
        for task, owner in relay.owners().items():
            counts[str(owner)] += task.startswith(f"{subtopology}_")
        assert level(counts), subtopology


def test_weights_are_balanced_within_the_heaviest_task() -> None:
    shape = topology(6, more=(Subtopology("1", 6, weight=5.0), Subtopology("2", 6, weight=2.5)))
    relay = Relay(shape, initial_rebalance_delay_ms=3_000, max_warmup_replicas=10)
    relay.join(*crowd(3))
    relay.play()
    relay.join("new")
    relay.play()
    weight = {"0": 1.0, "1": 5.0, "2": 2.5}
    loads = dict.fromkeys([*crowd(3), "new"], 0.0)
    for task, owner in relay.owners().items():
        loads[str(owner)] += weight[task[0]]
    quota = sum(loads.values()) / 4
    assert all(abs(load - quota) <= 5.0 for load in loads.values()), loads


def test_the_group_does_not_depend_on_the_order_of_joins() -> None:
    owners = []
    for order in (crowd(5), list(reversed(crowd(5)))):
        relay = Relay(topology(23), initial_rebalance_delay_ms=3_000, num_standby_replicas=1)
        relay.join(*order)
        relay.play()
        owners.append(
            [(task, relay.group.tasks[task].owner, relay.group.tasks[task].standbys) for task in relay.owners()]
        )
    assert owners[0] == owners[1]


def test_state_on_disk_decides_who_gets_what_when_all_come_back() -> None:
    relay = Relay(topology(12), initial_rebalance_delay_ms=3_000)
    # Deliberately not what a deal by name would give.
    had = {f"0_{number}": f"m{(number * 5 + 2) % 4:02}" for number in range(12)}
    for name in crowd(4):
        relay.join(name, disk={task: 40 for task, owner in had.items() if owner == name})
    relay.play()
    assert {str(task): str(owner) for task, owner in relay.owners().items()} == had


def test_a_rolling_restart_with_disks_moves_nothing() -> None:
    relay = Relay(topology(50), whole=False, initial_rebalance_delay_ms=3_000)
    for name in crowd(10):
        relay.join(name, instance_id=InstanceId(f"i-{name}"))
    relay.play()
    relay.forget()
    before = {task: relay.scene.group.members[owner].instance_id for task, owner in relay.owners().items() if owner}
    for name in crowd(10):
        disk = {str(task): 10 for task, owner in relay.owners().items() if owner == name}
        relay.leave(name, restart=True)
        relay.round()
        member = MemberId(f"{name}-b")
        for task in disk:
            relay.lag[member, TaskId(task)] = 10
        found = {TaskId(task): TaskReport("none", lag=10) for task in disk}
        relay.scene.ok(Join(member, instance_id=InstanceId(f"i-{name}"), tasks=found), Answer)
        relay.count()
        relay.play()
    after = {task: relay.scene.group.members[owner].instance_id for task, owner in relay.owners().items() if owner}
    assert after == before
    assert not relay.taken
    assert not relay.begun
