"""The cases of Kafka's own test of its assignor, each with what Kafka does, put before the model.

Kafka's settings there: acceptable lag 100 and two warm-ups unless a case says otherwise. Its last case, and its
repetitions with rack-aware strategies, are about traffic costs, which the model leaves out.
"""

import random

import pytest
from tests.simulate.kafka.cases import (
    COLD,
    actives,
    caught_up,
    client,
    faults,
    grid,
    process_ids,
    skew,
    subtopology_skew,
    totals,
)

from batonpass.simulate.kafka.assignor import LATEST, UNBOUNDED_LAG, ClientState, ClientTasks, Kip441Config, assign
from batonpass.simulate.tasks import TaskSet

NINE = grid(3, 3)
FOUR = grid(2, 2)
PAIR = grid(1, 2)
STRICT = Kip441Config(acceptable_recovery_lag=0, max_warmup_replicas=1)
WITHOUT = Kip441Config(acceptable_recovery_lag=100)
WITH = Kip441Config(acceptable_recovery_lag=100, num_standby_replicas=1)


def test_01_a_running_owner_is_not_preferred_while_others_warm_up() -> None:
    """Four of the nine actives leave the client that runs them."""
    config = Kip441Config(acceptable_recovery_lag=11, num_standby_replicas=1)
    clients = [client("c1", NINE, 0), client("c2", NINE, 10), client("c3", NINE)]
    assignment = assign(clients, TaskSet(NINE), config)
    assert totals(assignment) == [9, 9, 2]
    assert actives(assignment) == [5, 4, 0]
    assert assignment.probing_needed
    assert faults(assignment, TaskSet(NINE), config) == []


def test_02_an_unbounded_acceptable_lag_moves_everything_at_once() -> None:
    """Every client counts as caught up then."""
    config = Kip441Config(acceptable_recovery_lag=UNBOUNDED_LAG, max_warmup_replicas=1, num_standby_replicas=1)
    clients = [client("c1", NINE, LATEST), client("c2", NINE), client("c3", NINE)]
    assignment = assign(clients, TaskSet(NINE), config)
    assert totals(assignment) == [6, 6, 6]
    assert not assignment.probing_needed


@pytest.mark.parametrize("capacity", [1, 3, 9], ids=["03 one thread", "04 threads divide", "08 threads equal tasks"])
def test_equally_cold_tasks_are_spread_evenly_in_every_subtopology_for_good(capacity: int) -> None:
    clients = [client(name, NINE, 10, capacity=capacity) for name in ("c1", "c2", "c3")]
    assignment = assign(clients, TaskSet(NINE), STRICT)
    assert actives(assignment) == [3, 3, 3]
    assert [subtopology_skew(assignment, subtopology) for subtopology in range(3)] == [0, 0, 0]
    assert not assignment.probing_needed


def test_05_clients_that_do_not_divide_the_tasks() -> None:
    assignment = assign([client(name, NINE, 10) for name in ("c1", "c2")], TaskSet(NINE), STRICT)
    assert actives(assignment) == [5, 4]
    assert not assignment.probing_needed


def test_06_uneven_threads_get_uneven_shares() -> None:
    tasks = grid(2, 3)
    clients = [client(f"c{threads}", tasks, 10, capacity=threads) for threads in (1, 2, 3)]
    assignment = assign(clients, TaskSet(tasks), STRICT)
    assert actives(assignment) == [1, 2, 3]
    # Of what was dealt out by turns the first task moved.
    assert assignment.clients["c1"].active == ((1, 0),)


def test_07_more_clients_than_tasks_leaves_one_empty() -> None:
    assignment = assign([client(name, PAIR, 10) for name in ("c1", "c2", "c3")], TaskSet(PAIR), STRICT)
    assert actives(assignment) == [1, 1, 0]
    assert not assignment.probing_needed


def test_09_balance_over_threads_needs_both_newcomers() -> None:
    config = Kip441Config(acceptable_recovery_lag=0, max_warmup_replicas=2)
    clients = [client("c1", FOUR, 0, capacity=5), *(client(name, FOUR, capacity=5) for name in ("c2", "c3"))]
    assignment = assign(clients, TaskSet(FOUR), config)
    assert assignment.clients["c2"].warmup
    assert assignment.clients["c3"].warmup
    assert assignment.warmups == 2
    assert assignment.probing_needed
    assert faults(assignment, TaskSet(FOUR), config) == []


def test_10_warm_newcomers_take_over_at_once() -> None:
    """The group of test 09, with the newcomers warm on what is meant for them."""
    config = Kip441Config(acceptable_recovery_lag=0, max_warmup_replicas=2)
    clients = [
        client("c1", FOUR, 0, capacity=5),
        caught_up("c2", FOUR, (0, 1), capacity=5),
        caught_up("c3", FOUR, (1, 0), capacity=5),
    ]
    assignment = assign(clients, TaskSet(FOUR), config)
    assert actives(assignment) == [2, 1, 1]
    assert skew(assignment, clients) <= 1.0
    assert not assignment.probing_needed
    assert faults(assignment, TaskSet(FOUR), config) == []


def test_11_unequal_clients_are_balanced_by_threads() -> None:
    clients = [client("c1", NINE, 10, capacity=6), client("c2", NINE, 10, capacity=3)]
    assignment = assign(clients, TaskSet(NINE), STRICT)
    assert actives(assignment) == [6, 3]
    assert not assignment.probing_needed


def test_12_an_active_that_nobody_had_is_placed() -> None:
    tasks = TaskSet(((0, 0),), ((0, 1),))
    assignment = assign([caught_up("c1", tasks.stateful, (0, 0))], tasks, WITH)
    assert assignment.clients == {"c1": ClientTasks(((0, 0), (0, 1)), (), ())}
    assert not assignment.probing_needed


def test_13_a_standby_that_nobody_had_is_placed() -> None:
    tasks = TaskSet(((0, 0),))
    assignment = assign([client("c1", tasks.stateful, 0), client("c2", tasks.stateful, 0)], tasks, WITH)
    assert assignment.clients["c2"].standby == ((0, 0),)
    assert not assignment.probing_needed


def test_14_an_active_goes_to_the_caught_up_client_and_its_ideal_owner_warms_up() -> None:
    """The ideal owner is 500 behind; the active goes elsewhere for now, though the owner could simply keep it."""
    tasks = TaskSet(((0, 0),), ((0, 1),))
    clients = [client("c1", tasks.stateful, 500), client("c2", tasks.stateful, 0)]
    assignment = assign(clients, tasks, WITHOUT)
    assert assignment.clients == {
        "c1": ClientTasks(active=((0, 1),), standby=(), warmup=((0, 0),)),
        "c2": ClientTasks(active=((0, 0),), standby=(), warmup=()),
    }
    assert assignment.probing_needed


def test_15_where_nobody_is_caught_up_the_furthest_gets_the_active() -> None:
    task = (0, 0)
    clients = [client("c1", [task]), client("c2", [task], 1000), client("c3", [task], 500)]
    assignment = assign(clients, TaskSet((task,)), WITH)
    assert assignment.clients["c3"].active == (task,)
    assert assignment.clients["c2"].standby == (task,)
    assert assignment.clients["c1"].warmup == (task,)
    assert assignment.probing_needed


def test_16_stateful_tasks_get_standbys() -> None:
    """A cold standby alone does not ask for a look."""
    clients = [caught_up("c1", PAIR, (0, 0)), caught_up("c2", PAIR, (0, 1))]
    assignment = assign(clients, TaskSet(PAIR), WITH)
    assert assignment.clients == {
        "c1": ClientTasks(active=((0, 0),), standby=((0, 1),), warmup=()),
        "c2": ClientTasks(active=((0, 1),), standby=((0, 0),), warmup=()),
    }
    assert not assignment.probing_needed


@pytest.mark.parametrize("tasks", [grid(1, 2), grid(1, 4)], ids=["17", "27"])
def test_stateless_tasks_get_no_standbys(tasks: tuple[tuple[int, int], ...]) -> None:
    assignment = assign([client("c1", ()), client("c2", ())], TaskSet((), tasks), WITH)
    assert actives(assignment) == totals(assignment) == [len(tasks) // 2] * 2
    assert not assignment.probing_needed


@pytest.mark.parametrize("config", [WITHOUT, STRICT], ids=["18", "28"])
def test_a_warmup_is_made_where_a_task_shall_go(config: Kip441Config) -> None:
    assignment = assign([caught_up("c1", PAIR, *PAIR), caught_up("c2", PAIR)], TaskSet(PAIR), config)
    assert assignment.clients["c1"].active == PAIR
    assert assignment.clients["c2"] == ClientTasks((), (), ((0, 1),))
    assert assignment.probing_needed


def test_19_no_more_warmups_than_allowed() -> None:
    """Two of four tasks shall go: one warm-up is made, and both movements count."""
    config = Kip441Config(acceptable_recovery_lag=100, max_warmup_replicas=1)
    assignment = assign([caught_up("c1", FOUR, *FOUR), caught_up("c2", FOUR)], TaskSet(FOUR), config)
    assert actives(assignment) == [4, 0]
    assert len(assignment.clients["c2"].copies) == 1
    assert assignment.active_movements == 2
    assert assignment.probing_needed


def test_20_a_warmup_and_a_standby_of_one_task_are_never_on_one_client() -> None:
    config = Kip441Config(acceptable_recovery_lag=100, max_warmup_replicas=1, num_standby_replicas=1)
    assignment = assign([caught_up("c1", FOUR, *FOUR), caught_up("c2", FOUR)], TaskSet(FOUR), config)
    assert actives(assignment) == [4, 0]
    assert assignment.clients["c2"].copies == FOUR
    assert assignment.probing_needed


@pytest.mark.parametrize("lag", [0, COLD], ids=["21 caught up", "22 nobody caught up"])
def test_one_client_runs_everything_without_standbys(lag: int) -> None:
    """The standby has no place, and no look would find one."""
    assignment = assign([client("c1", PAIR, lag)], TaskSet(PAIR), WITH)
    assert assignment.clients == {"c1": ClientTasks(PAIR, (), ())}
    assert not assignment.probing_needed


def test_23_standbys_and_warmups_share_the_bound() -> None:
    clients = [caught_up("c1", FOUR, *FOUR), caught_up("c2", FOUR), caught_up("c3", FOUR)]
    assignment = assign(clients, TaskSet(FOUR), WITH)
    assert faults(assignment, TaskSet(FOUR), WITH) == []
    assert actives(assignment) == [4, 0, 0]
    assert assignment.probing_needed


def test_24_stateless_tasks_fill_the_gaps() -> None:
    """So actives are balanced meanwhile."""
    tasks = TaskSet(FOUR, grid(3, 3)[6:])
    clients = [caught_up("c1", FOUR, *FOUR), caught_up("c2", FOUR)]
    assignment = assign(clients, tasks, WITH)
    assert assignment.clients["c1"].active == tasks.stateful
    assert assignment.clients["c2"].active == tasks.stateless
    assert skew(assignment, clients) <= 1.0
    assert totals(assignment) == [4, 7]
    assert assignment.probing_needed


def test_25_every_client_gets_stateful_tasks() -> None:
    clients = [client(name, NINE, 0, capacity=threads) for name, threads in (("c1", 100), ("c2", 50), ("c3", 1))]
    assignment = assign(clients, TaskSet(NINE), WITHOUT)
    assert actives(assignment) == [6, 2, 1]
    assert not assignment.probing_needed


def test_26_the_previous_assignment_is_kept_where_it_is_the_ideal() -> None:
    """The same tasks in two blocks, as evenly spread, would be dealt out anew."""
    tasks = grid(1, 4)
    kept = [caught_up("c1", tasks, (0, 0), (0, 2)), caught_up("c2", tasks, (0, 1), (0, 3))]
    assignment = assign(kept, TaskSet(tasks), WITHOUT)
    assert assignment.clients["c1"].active == ((0, 0), (0, 2))
    assert not assignment.probing_needed

    blocks = [caught_up("c1", tasks, (0, 0), (0, 1)), caught_up("c2", tasks, (0, 2), (0, 3))]
    assert assign(blocks, TaskSet(tasks), WITHOUT).active_movements == 2


@pytest.mark.parametrize(
    "capacities",
    [(7, 7, 7), (2, 2, 2), (1, 2, 3), (3, 3, 3)],
    ids=["29 threads enough", "30 threads short", "31 threads uneven", "32 one had all"],
)
def test_stateless_tasks_are_balanced_over_threads(capacities: tuple[int, ...]) -> None:
    clients = [client(f"c{place}", (), capacity=threads) for place, threads in enumerate(capacities)]
    tasks = TaskSet((), grid(1, 7))
    assignment = assign(clients, tasks, WITHOUT)
    assert faults(assignment, tasks, WITHOUT) == []
    assert skew(assignment, clients) <= 1.0
    assert not assignment.probing_needed


@pytest.mark.parametrize("seed", range(3))
def test_33_large_random_groups_are_valid_and_balanced(seed: int) -> None:
    source = random.Random(seed)
    tasks = TaskSet(grid(60, 3))
    config = Kip441Config(num_standby_replicas=source.randrange(3))
    clients = [
        ClientState(name, dict.fromkeys(tasks.stateful, COLD), source.randint(1, 3)) for name in process_ids(seed, 50)
    ]
    assignment = assign(clients, tasks, config)
    assert faults(assignment, tasks, config) == []
    assert skew(assignment, clients) <= 1.0
    assert not assignment.probing_needed
