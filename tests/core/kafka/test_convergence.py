"""Kafka's tests of convergence, movement and scale: the same groups, with our bounds beside Kafka's.

Where a case says nothing else, ours does as Kafka does.
"""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.core.kafka.groups import (
    RUNS,
    active,
    aims,
    client,
    config,
    counts,
    everywhere,
    faults,
    grid,
    plan,
    snapshot,
    standby,
    warmup,
)
from tests.core.relay import Relay, moved, rounds_bound
from tests.core.scene import topology
from tests.often import cases

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.reasons import Held
from batonpass.dry_run.plan import plan_snapshot
from batonpass.dry_run.snapshot import SnapshotCopy, SnapshotMember

TRIO = grid(1, 3)


def test_one_client_with_one_task_of_each_kind_rests_at_once() -> None:
    """Kafka: one round. Ours is the round in which the task is restored."""
    relay = Relay(topology(1, stateless=1))
    relay.join("m1")
    assert relay.play() == 1
    assert relay.scene.owners() == {"0_0": "m1", "1_0": "m1"}


def test_a_second_client_gets_its_half_in_fewer_rounds_than_kafka_allows() -> None:
    """Kafka allows six rounds. Five tasks move, two at a time, and the last of them starts in the fourth."""
    relay = Relay(topology(11, stateless=7), max_warmup_replicas=2)
    relay.join("m1")
    relay.play()
    before = relay.owners()
    relay.join("m2")
    rounds = relay.play()
    moves = moved(before, relay.owners())
    assert len(moves) == 5
    assert rounds <= 4 < 11 // 2 + 1
    assert rounds <= rounds_bound(relay.group, moves.values())


def test_dropping_one_client_after_the_other_needs_no_warm_ups() -> None:
    """Kafka allows eight rounds each; ours needs the one in which the lost tasks are restored."""
    relay = Relay(topology(13, stateless=11), initial_rebalance_delay_ms=3_000)
    relay.join(*(f"m{number}" for number in range(7)))
    relay.play()
    for number in range(6):
        before = relay.owners()
        relay.forget()
        relay.leave(f"m{number}")
        assert relay.play() <= 1
        assert set(moved(before, relay.owners())) == {task for task, owner in before.items() if owner == f"m{number}"}
        assert not relay.interrupted() & set(before)
        assert not relay.begun


happenings = st.lists(st.tuples(st.sampled_from(["drop", "add", "return"]), st.integers(0, 9)), min_size=1, max_size=10)


@pytest.mark.no_cover
@settings(max_examples=cases(60), deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.integers(1, 10), st.integers(1, 10), st.integers(1, 10), st.data(), happenings)
def test_random_perturbations_converge_within_our_bound(
    cluster: int, stateless: int, stateful: int, data: st.DataObject, events: list[tuple[str, int]]
) -> None:
    """Kafka allows 2 (stateful + stateful x standbys) rounds an event; ours is L9's bound, moved standbys included."""
    budget = data.draw(st.integers(1, stateful), label="max_warmup_replicas")
    standbys = data.draw(st.integers(0, cluster), label="num_standby_replicas")
    relay = Relay(
        topology(stateful, stateless=stateless),
        max_warmup_replicas=budget,
        max_warmups_per_member=100,
        num_standby_replicas=standbys,
        initial_rebalance_delay_ms=3_000,
        # Members come and go here as an autoscaler's do that thrashes; the bound is that of the rounds alone.
        newcomer_wait_ms=0,
    )
    names = [f"m{number}" for number in range(cluster)]
    relay.join(*names)
    relay.play()
    gone: dict[str, dict[str, int | None]] = {}
    for count, (event, which) in enumerate(events):
        names = sorted(relay.group.members)
        aimed = {task: _aims(relay, task) for task in relay.owners()}
        if event == "drop" and len(names) > 1:
            name = names[which % len(names)]
            gone[name] = {str(task): lag for (member, task), lag in relay.lag.items() if member == name}
            relay.leave(name)
        elif event == "return" and gone:
            disk = gone.pop(sorted(gone)[which % len(gone)])
            relay.join(f"r{count}", disk={task: (lag or 0) + 50 * which for task, lag in disk.items()})
        else:
            relay.join(f"a{count}")
        new = [one for task, before in aimed.items() for one in _aims(relay, task) if one not in before]
        assert relay.play() <= rounds_bound(relay.group, new)
        assert max(relay.actives().values()) - min(relay.actives().values()) <= 1


def _aims(relay: Relay, task: TaskId) -> set[MemberId]:
    found = relay.group.tasks[task]
    return {*found.target.standbys, *([found.target.owner] if found.target.owner is not None else [])}


def test_movement_with_everybody_caught_up_there_is_none() -> None:
    others = {one: {task: 0 for task in TRIO if task != one} for one in TRIO}
    clients = [client(f"c{n}", runs=[one], stands_by=others[one]) for n, one in enumerate(TRIO)]
    made = plan(clients, TRIO, settings=config(num_standby_replicas=2))
    assert made.moves == 0
    assert made.at_rest


def test_movement_with_nobody_caught_up_there_is_none() -> None:
    made = plan([client(f"c{n}") for n in range(3)], TRIO)
    assert counts(made) == aims(made) == [1, 1, 1]
    assert counts(made, "warmup") == [0, 0, 0]


def test_movement_where_others_are_caught_up_they_get_the_tasks() -> None:
    """Kafka moves each task twice, with a warm-up to go back; ours makes the caught-up client the goal."""
    clients = [client(f"c{n}", disk={TRIO[(n + 1) % 3]: 0}) for n in range(3)]
    made = plan(clients, TRIO, settings=config(max_warmup_replicas=100))
    assert [active(made, f"c{n}") for n in range(3)] == [[TRIO[1]], [TRIO[2]], [TRIO[0]]]
    assert counts(made, "warmup") == [0, 0, 0]


def test_movement_where_all_are_behind_the_most_caught_up_get_the_tasks() -> None:
    """So does Kafka, which warms up its ideal owners besides."""
    lags = (10_000, 20_000, 30_000)
    clients = [client(f"c{n}", disk={task: lags[(n + at) % 3] for at, task in enumerate(TRIO)}) for n in range(3)]
    made = plan(clients, TRIO)
    assert [active(made, f"c{n}") for n in range(3)] == [[TRIO[0]], [TRIO[2]], [TRIO[1]]]
    assert counts(made, "warmup") == [0, 0, 0]


def test_movement_with_a_budget_of_one_the_first_in_order_is_funded() -> None:
    clients = [client("c0", runs=TRIO), client("c1"), client("c2")]
    made = plan(clients, TRIO, settings=config(max_warmup_replicas=1))
    assert made.moves == 2
    assert sum(counts(made, "warmup")) == 1
    going = [task for name in ("c1", "c2") for task in warmup(made, name)]
    waiting = [str(entry.task) for entry in made.held_back]
    assert going < waiting
    assert [entry.reason for entry in made.held_back] == [Held.WARMUP_BUDGET]


def test_movement_to_a_caught_up_standby_uses_no_slot() -> None:
    """Kafka's case allows no warm-up at all; here 0_2 has the only slot."""
    clients = [
        client("c0", runs=["0_0", "0_1", "0_2", "0_3"]),
        client("c1", stands_by=dict.fromkeys(["0_0", "0_1"], 0)),
        client("c2", stands_by={"0_3": 5_000}, warms={"0_2": 5_000}),
    ]
    settings_ = config(max_warmup_replicas=1, num_standby_replicas=1)
    made = plan_snapshot(snapshot(clients, grid(1, 4), settings=settings_))
    swapped = [task for task in active(made, "c1") if task in ("0_0", "0_1")]
    assert swapped
    assert set(swapped) <= set(standby(made, "c0"))


SIZES = [
    pytest.param(6_000, 2, 1, 1, id="many partitions"),
    pytest.param(1_000, 1_000, 1, 1, id="many consumers"),
    pytest.param(1_000, 100, 1, 50, id="many standbys"),
    pytest.param(1_000, 10, 1_000, 1, id="many threads"),
]


@pytest.mark.no_cover
@pytest.mark.parametrize(("partitions", "clients", "threads", "standbys"), SIZES)
def test_large_groups_are_placed_whole_and_then_rest(
    partitions: int, clients: int, threads: int, standbys: int
) -> None:
    """Kafka's four large groups. It allows 120 seconds a placement; what ours costs is the benchmark's subject."""
    tasks = grid(1, partitions)
    members = [client(f"c{number:04}", capacity=threads) for number in range(clients)]
    settings_ = config(num_standby_replicas=standbys)
    shot = snapshot(members, tasks, settings=settings_)
    first = plan_snapshot(shot)
    assert faults(first, shot) == []
    assert sum(counts(first)) == partitions
    assert sum(counts(first, "standby")) == partitions * standbys
    assert max(counts(first)) - min(counts(first)) <= 1
    assert max(counts(first, "standby")) - min(counts(first, "standby")) <= 1
    settled = [_settled(one, first.assignment[one.id]) for one in members]
    target = {TaskId(task): (member_id, ()) for member_id, roles in first.target.items() for task in roles["active"]}
    second = plan_snapshot(snapshot(settled, tasks, settings=settings_, target=target))
    assert second.at_rest
    assert second.assignment == first.assignment


def _settled(member: SnapshotMember, roles: object) -> SnapshotMember:
    assert isinstance(roles, dict)
    copies = dict.fromkeys(roles["active"], RUNS)
    copies |= dict.fromkeys(roles["standby"], SnapshotCopy("standby", lag=0))
    return replace(member, tasks=copies)


def test_disk_state_that_is_equally_good_everywhere_does_not_clump() -> None:
    tasks = grid(4, 6)
    made = plan([client(f"c{n}", disk=everywhere(0, tasks)) for n in range(4)], tasks)
    for name in range(4):
        per_subtopology = [sum(task.startswith(f"{part}_") for task in active(made, f"c{name}")) for part in range(4)]
        assert set(per_subtopology) <= {1, 2}
