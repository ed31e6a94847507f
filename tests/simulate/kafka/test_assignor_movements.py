"""How the model postpones what is not warm, what a reported offset means to it, and what it moves at scale."""

import random

import pytest
from tests.benchmarks.kafka import assign_reported
from tests.simulate.kafka.cases import COLD, caught_up, client, grid, process_ids

from batonpass.simulate.kafka.assignor import (
    LATEST,
    UNKNOWN,
    Assignment,
    ClientState,
    Kip441Config,
    assign,
    lags_of,
)
from batonpass.simulate.tasks import Task, TaskSet

THREE = grid(1, 3)
NAMES = ("c1", "c2", "c3")
UNLIMITED = Kip441Config(acceptable_recovery_lag=100, max_warmup_replicas=1000)


def owners(assignment: Assignment) -> list[str]:
    """The owner of each task, in order."""
    return [owner for _, owner in sorted(assignment.owners.items())]


@pytest.mark.parametrize("lag", [0, 10_000], ids=["all caught up", "nobody caught up"])
def test_nothing_is_postponed_where_nobody_is_further(lag: int) -> None:
    assignment = assign([client(name, THREE, lag) for name in NAMES], TaskSet(THREE), UNLIMITED)
    assert (assignment.active_movements, assignment.standby_movements) == (0, 0)
    assert owners(assignment) == ["c1", "c2", "c3"]


@pytest.mark.parametrize("lag", [0, 10_000], ids=["caught up elsewhere", "only further elsewhere"])
def test_actives_run_where_their_state_is_and_warm_up_where_they_belong(lag: int) -> None:
    places = {"c1": (0, 0), "c2": (0, 2), "c3": (0, 1)}
    clients = [client(name, THREE, {task: lag}) for name, task in places.items()]
    assignment = assign(clients, TaskSet(THREE), UNLIMITED)
    assert assignment.active_movements == 2
    assert owners(assignment) == ["c1", "c3", "c2"]
    assert assignment.clients["c2"].warmup == ((0, 1),)
    assert assignment.clients["c3"].warmup == ((0, 2),)


def test_the_furthest_client_wins_and_not_the_first() -> None:
    lags = {"c1": (20_000, 30_000, 10_000), "c2": (10_000, 20_000, 30_000), "c3": (30_000, 10_000, 20_000)}
    clients = [client(name, THREE, dict(zip(THREE, given, strict=True))) for name, given in lags.items()]
    assignment = assign(clients, TaskSet(THREE), UNLIMITED)
    assert owners(assignment) == ["c2", "c3", "c1"]
    assert assignment.active_movements == 3


def test_the_first_in_the_queue_gets_the_only_warmup() -> None:
    clients = [caught_up(name, THREE, task) for name, task in (("c1", (0, 0)), ("c2", (0, 2)), ("c3", (0, 1)))]
    assignment = assign(clients, TaskSet(THREE), Kip441Config(max_warmup_replicas=1))
    assert assignment.active_movements == 2
    assert assignment.clients["c2"].warmup == ((0, 1),)
    assert assignment.clients["c3"].copies == ()


def test_the_rarest_state_comes_first_in_the_queue() -> None:
    """A task that one client has warm goes before a lower one that two have."""
    tasks = grid(1, 2)
    clients = [client("c1", tasks), client("c2", tasks), caught_up("c3", tasks, *tasks), caught_up("c4", tasks, (0, 0))]
    assignment = assign(clients, TaskSet(tasks), Kip441Config(max_warmup_replicas=1))
    assert assignment.clients["c2"].warmup == ((0, 1),)
    assert assignment.clients["c1"].warmup == ()


def test_loads_are_read_anew_after_every_movement() -> None:
    tasks = grid(1, 4)
    clients = [
        client("c1", tasks),
        caught_up("c2", tasks, (0, 0), (0, 1)),
        caught_up("c3", tasks, (0, 0)),
        caught_up("c4", tasks, (0, 2), (0, 3)),
    ]
    assignment = assign(clients, TaskSet(tasks), Kip441Config(max_warmup_replicas=0))
    assert owners(assignment) == ["c3", "c2", "c4", "c4"]


def test_a_caught_up_standby_changes_places_without_a_warmup() -> None:
    """A swap of roles is a movement, and costs nothing of the budget."""
    task = (0, 0)
    config = Kip441Config(max_warmup_replicas=0, num_standby_replicas=1)
    assignment = assign([client("c1", [task]), caught_up("c2", [task], task)], TaskSet((task,)), config)
    assert assignment.clients["c2"].active == (task,)
    assert assignment.clients["c1"].standby == (task,)
    assert assignment.active_movements == 1
    assert assignment.probing_needed


def test_an_active_without_a_warmup_left_leaves_its_ideal_owner_empty() -> None:
    task = (0, 0)
    clients = [client("c1", [task]), caught_up("c2", [task], task)]
    assignment = assign(clients, TaskSet((task,)), Kip441Config(max_warmup_replicas=0))
    assert assignment.owners == {task: "c2"}
    assert assignment.clients["c1"].copies == ()
    assert assignment.probing_needed


def test_a_standby_stays_where_its_state_is_and_warms_up_where_it_belongs() -> None:
    task = (0, 0)
    clients = [client("c1", [task], LATEST), client("c2", [task]), client("c3", [task], 5)]
    funded = assign(clients, TaskSet((task,)), Kip441Config(num_standby_replicas=1))
    assert funded.clients["c3"].standby == (task,)
    assert funded.clients["c2"].warmup == (task,)
    assert (funded.active_movements, funded.standby_movements) == (0, 1)

    unfunded = assign(clients, TaskSet((task,)), Kip441Config(max_warmup_replicas=0, num_standby_replicas=1))
    assert unfunded.clients["c3"].standby == (task,)
    assert unfunded.clients["c2"].copies == ()
    assert unfunded.probing_needed


def test_actives_and_standbys_draw_on_one_pool() -> None:
    """With one warm-up allowed an active takes it; the standby's movement still counts."""
    tasks = grid(1, 2)
    clients = [client("c1", tasks), client("c2", tasks, {(0, 1): LATEST}), caught_up("c3", tasks, *tasks)]
    config = Kip441Config(max_warmup_replicas=1, num_standby_replicas=1)
    assignment = assign(clients, TaskSet(tasks), config)
    assert assignment.warmups == 1
    assert assignment.active_movements + assignment.standby_movements > 1


def test_unknown_state_sorts_before_every_real_lag() -> None:
    """An ideal owner of unknown state keeps the active over a caught-up client."""
    task = (0, 0)
    clients = [client("c1", [task], UNKNOWN), client("c2", [task], 0)]
    assignment = assign(clients, TaskSet((task,)), Kip441Config())
    assert assignment.owners == {task: "c1"}
    assert not assignment.probing_needed


def test_unknown_state_beats_state_that_is_behind() -> None:
    """A client that knows nothing of its state is taken for the furthest."""
    task = (0, 0)
    clients = [client("c1", [task]), client("c2", [task], UNKNOWN), client("c3", [task], 20_000)]
    assert assign(clients, TaskSet((task,)), Kip441Config()).owners == {task: "c2"}


def test_reported_offsets_become_lags() -> None:
    """What was not reported lags by everything, a sum beyond the end too; the sentinels stay what they are."""
    ends = {(0, partition): 100 for partition in range(6)}
    reported = {(0, 1): LATEST, (0, 2): UNKNOWN, (0, 3): 101, (0, 4): 100, (0, 5): 30}
    assert list(lags_of(ends, reported).values()) == [100, LATEST, UNKNOWN, 100, 0, 70]


def test_a_missing_lag_is_an_illegal_state() -> None:
    with pytest.raises(KeyError):
        assign([ClientState("c1", {})], TaskSet(((0, 0),)), Kip441Config())


def test_without_clients_nothing_is_assigned() -> None:
    assert assign([], TaskSet(((0, 0),), ((0, 1),)), Kip441Config()) == Assignment({}, probing_needed=False)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_input_does_not_matter(seed: int) -> None:
    source = random.Random(seed)
    tasks = grid(4, 5)
    clients = [
        ClientState(name, {task: source.choice((LATEST, 0, 50, COLD)) for task in tasks}, source.randint(1, 3))
        for name in process_ids(seed, 7)
    ]
    config = Kip441Config(num_standby_replicas=1)
    expected = assign(clients, TaskSet(tasks[:12], tasks[12:]), config)
    shuffled = source.sample(clients, len(clients))
    backwards = TaskSet(tasks[:12][::-1], tasks[12:][::-1])
    assert assign(shuffled, backwards, config) == expected


# Tasks, clients, standbys, threads: actives that change their owner in the first rebalance after a join of a process
# that sorts last, and after the middle one left. Counts of Kafka's real class.
SCALE = {
    "6000x2": ((6000, 2, 1, 1), 2000, 3000),
    "1000x10 of 1000 threads": ((1000, 10, 1, 1000), 423, 475),
    "1000x100 with 50 standbys": ((1000, 100, 50, 1), 894, 938),
    "10000x100": ((10_000, 100, 1, 1), 488, 721),
    "1000x1000": ((1000, 1000, 1, 1), 0, 499),
}


def reports(names: list[str], before: Assignment | None, threads: int) -> list[ClientState]:
    """What each client reports when it runs its actives and is caught up on its copies."""
    sums: dict[str, dict[Task, int]] = {name: {} for name in names}
    for name in names:
        if before is not None and name in before.clients:
            sums[name] = dict.fromkeys(before.clients[name].copies, 150_000)
            sums[name].update(dict.fromkeys(before.clients[name].active, LATEST))
    return [ClientState(name, sums[name], threads) for name in names]


@pytest.mark.parametrize("shape", SCALE)
def test_as_many_actives_move_as_in_kafka(shape: str) -> None:
    """At the sizes of Kafka's own scale test the model moves as many actives as Kafka's class: at rest, none."""
    (partitions, count, standbys, threads), join, leave = SCALE[shape]
    tasks = TaskSet(grid(1, partitions))
    ends = dict.fromkeys(tasks.stateful, 150_000)
    config = Kip441Config(num_standby_replicas=standbys)
    names = [f"c{place:05d}" for place in range(count)]
    first = assign_reported(reports(names, None, threads), tasks, config, end_offsets=ends)

    def moved(now: list[str]) -> int:
        after = assign_reported(reports(now, first, threads), tasks, config, end_offsets=ends).owners
        return sum(after[task] != owner for task, owner in first.owners.items())

    assert moved(names) == 0
    assert moved([*names, f"c{count:05d}"]) == join
    assert moved([name for place, name in enumerate(names) if place != count // 2]) == leave
