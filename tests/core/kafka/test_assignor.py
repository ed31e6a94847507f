"""The 34 cases of Kafka's own test of its high-availability assignor: what Kafka does, what ours does, and why.

Where a Kafka client "ran" a task or is the only one caught up on it, it runs it here; lags of tasks that nobody runs
are state on disk. Kafka's ``stable`` is our ``not probing_needed``. Kafka runs every case under three rack strategies
as well; ours has none for actives (decision record 0002).
"""

import random

import pytest
from tests.core.kafka.groups import (
    COLD,
    active,
    aims,
    client,
    config,
    counts,
    everywhere,
    grid,
    plan,
    skew,
    standby,
    subtopology_skew,
    warmup,
)

from batonpass.core.state.ids import MemberId
from batonpass.core.state.policy import LAG_UNBOUNDED
from batonpass.core.state.reasons import Held

NINE = grid(3, 3)
FOUR = grid(2, 2)
PAIR = grid(1, 2)
STRICT = config(acceptable_recovery_lag=0, max_warmup_replicas=1)
WITH = config(num_standby_replicas=1)


def test_01_a_running_owner_keeps_its_tasks_while_another_warms_up() -> None:
    """Kafka lets four tasks leave c1 for c2 although none is for it; ours moves what c2 is to have for good."""
    settings = config(acceptable_recovery_lag=11, num_standby_replicas=1)
    clients = [client("c1", runs=NINE), client("c2", stands_by=dict.fromkeys(NINE, 10)), client("c3")]
    made = plan(clients, NINE, settings=settings)
    assert aims(made) == [3, 3, 3]
    assert set(active(made, "c2")) == set(made.target[MemberId("c2")]["active"])
    assert active(made, "c3") == []
    assert len(warmup(made, "c3")) == 2
    assert len(active(made, "c1")) == 6
    assert made.probing_needed


def test_02_an_unbounded_acceptable_lag_moves_everything_at_once() -> None:
    """Kafka then counts every client as caught up, ours every readable copy; c3 has none that is tailed yet."""
    settings = config(acceptable_recovery_lag=LAG_UNBOUNDED, max_warmup_replicas=1, num_standby_replicas=1)
    had = everywhere(COLD, NINE)
    clients = [client("c1", runs=NINE), client("c2", stands_by=dict.fromkeys(NINE, COLD)), client("c3", disk=had)]
    made = plan(clients, NINE, settings=settings)
    assert aims(made) == [3, 3, 3]
    assert aims(made, "standby") == [3, 3, 3]
    assert len(active(made, "c2")) == 3
    assert len(active(made, "c1")) == 6


@pytest.mark.parametrize("capacity", [1, 3, 9], ids=["03 one thread", "04 threads divide", "08 threads equal tasks"])
def test_equally_cold_tasks_are_spread_evenly(capacity: int) -> None:
    clients = [client(name, disk=everywhere(10, NINE), capacity=capacity) for name in ("c1", "c2", "c3")]
    made = plan(clients, NINE, settings=STRICT)
    assert counts(made) == aims(made) == [3, 3, 3]
    assert subtopology_skew(made) <= 1
    assert counts(made, "warmup") == [0, 0, 0]


def test_05_clients_that_do_not_divide_the_tasks() -> None:
    made = plan([client(name, disk=everywhere(10, NINE)) for name in ("c1", "c2")], NINE, settings=STRICT)
    assert sorted(counts(made)) == [4, 5]
    assert counts(made) == aims(made)


def test_06_uneven_threads_get_uneven_shares() -> None:
    tasks = grid(2, 3)
    clients = [client(f"c{threads}", disk=everywhere(10, tasks), capacity=threads) for threads in (1, 2, 3)]
    assert counts(plan(clients, tasks, settings=STRICT)) == [1, 2, 3]


def test_07_more_clients_than_tasks_leaves_one_empty() -> None:
    made = plan([client(name, disk=everywhere(10, PAIR)) for name in ("c1", "c2", "c3")], PAIR, settings=STRICT)
    assert sorted(counts(made)) == [0, 1, 1]


def test_09_balance_over_threads_needs_both_newcomers() -> None:
    settings = config(acceptable_recovery_lag=0)
    clients = [client("c1", runs=FOUR, capacity=5), client("c2", capacity=5), client("c3", capacity=5)]
    made = plan(clients, FOUR, settings=settings)
    assert active(made, "c1") == FOUR
    assert len(warmup(made, "c2")) == len(warmup(made, "c3")) == 1
    assert made.probing_needed


def test_10_warm_newcomers_take_over_at_once() -> None:
    """In Kafka lag 0 is enough; ours wants a copy that is tailed while the owner runs."""
    settings = config(acceptable_recovery_lag=0)
    clients = [
        client("c1", runs=FOUR, capacity=5),
        client("c2", warms={"0_1": 0}, capacity=5),
        client("c3", warms={"1_0": 0}, capacity=5),
    ]
    made = plan(clients, FOUR, settings=settings)
    assert active(made, "c2") == ["0_1"]
    assert active(made, "c3") == ["1_0"]
    assert counts(made) == aims(made) == [2, 1, 1]
    assert made.moves == made.lower_bound == 2


def test_11_unequal_clients_are_balanced_by_threads() -> None:
    clients = [client("c1", disk=everywhere(10, NINE), capacity=6), client("c2", disk=everywhere(10, NINE), capacity=3)]
    assert counts(plan(clients, NINE, settings=STRICT)) == [6, 3]


def test_12_an_active_that_nobody_had_is_placed() -> None:
    made = plan([client("c1", disk={"0_0": 0})], ["0_0"], stateless=["0_1"], settings=WITH)
    assert active(made, "c1") == ["0_0", "0_1"]
    assert counts(made, "standby") == [0]
    assert not made.probing_needed


def test_13_a_standby_that_nobody_had_is_placed() -> None:
    made = plan([client("c1", runs=["0_0"]), client("c2", disk={"0_0": 0})], ["0_0"], settings=WITH)
    assert active(made, "c1") == ["0_0"]
    assert standby(made, "c2") == ["0_0"]


def test_14_a_task_goes_to_the_caught_up_client_and_stays_there() -> None:
    """Kafka gives c2 the task and warms c1 up to move it back, which its own test calls not the best route."""
    clients = [client("c1", disk={"0_0": 500}), client("c2", disk={"0_0": 0})]
    made = plan(clients, ["0_0"], stateless=["0_1"])
    assert active(made, "c2") == ["0_0"]
    assert active(made, "c1") == ["0_1"]
    assert counts(made, "warmup") == [0, 0]
    assert not made.probing_needed


def test_15_with_nobody_caught_up_the_most_caught_up_takes_over() -> None:
    """Kafka's ideal is c1, which it warms up to move the task again; ours makes the warmest client the goal."""
    clients = [client("c1"), client("c2", disk={"0_0": 1_000}), client("c3", disk={"0_0": 500})]
    made = plan(clients, ["0_0"], settings=WITH)
    assert active(made, "c3") == ["0_0"]
    assert standby(made, "c2") == ["0_0"]
    assert counts(made, "warmup") == [0, 0, 0]


def test_16_standbys_of_stateful_tasks_are_placed() -> None:
    clients = [client("c1", disk={"0_0": 0, "0_1": COLD}), client("c2", disk={"0_0": COLD, "0_1": 0})]
    made = plan(clients, PAIR, settings=WITH)
    assert (active(made, "c1"), standby(made, "c1")) == (["0_0"], ["0_1"])
    assert (active(made, "c2"), standby(made, "c2")) == (["0_1"], ["0_0"])


def test_17_stateless_tasks_have_no_standbys() -> None:
    made = plan([client("c1"), client("c2")], [], stateless=PAIR, settings=WITH)
    assert counts(made) == [1, 1]
    assert counts(made, "standby") == counts(made, "warmup") == [0, 0]
    assert not made.probing_needed


def test_18_warm_ups_are_made_although_no_standbys_are_wanted() -> None:
    made = plan([client("c1", runs=PAIR), client("c2")], PAIR)
    assert active(made, "c1") == PAIR
    assert len(warmup(made, "c2")) == 1
    assert standby(made, "c2") == []
    assert made.probing_needed


def test_19_no_more_warm_ups_than_the_budget() -> None:
    made = plan([client("c1", runs=FOUR), client("c2")], FOUR, settings=config(max_warmup_replicas=1))
    assert active(made, "c1") == FOUR
    assert len(warmup(made, "c2")) == 1
    assert [entry.reason for entry in made.held_back] == [Held.WARMUP_BUDGET]
    assert made.probing_needed


def test_20_a_warm_up_and_a_standby_of_a_task_are_never_on_one_client() -> None:
    settings = config(max_warmup_replicas=1, num_standby_replicas=1)
    made = plan([client("c1", runs=FOUR), client("c2")], FOUR, settings=settings)
    assert active(made, "c1") == FOUR
    assert sorted([*standby(made, "c2"), *warmup(made, "c2")]) == FOUR
    assert made.probing_needed


def test_21_too_few_clients_for_a_standby() -> None:
    made = plan([client("c1", runs=PAIR)], PAIR, settings=WITH)
    assert active(made, "c1") == PAIR
    assert made.at_rest
    assert not made.probing_needed


def test_22_a_lone_client_restores_what_nobody_has() -> None:
    """As in Kafka; ours looks on until the tasks run."""
    made = plan([client("c1", disk=everywhere(COLD, PAIR))], PAIR, settings=WITH)
    assert active(made, "c1") == PAIR
    assert counts(made, "standby") == [0]
    assert made.probing_needed


def test_23_standbys_are_free_and_warm_ups_are_not() -> None:
    made = plan([client("c1", runs=FOUR), client("c2"), client("c3")], FOUR, settings=WITH)
    assert active(made, "c1") == FOUR
    assert sum(counts(made, "standby")) == 4
    assert sum(counts(made, "warmup")) <= 2
    assert made.probing_needed


def test_24_stateless_tasks_fill_the_gaps() -> None:
    stateless = ["2_0", "2_1", "2_2"]
    made = plan([client("c1", runs=FOUR), client("c2")], FOUR, stateless=stateless, settings=WITH)
    assert set(FOUR) <= set(active(made, "c1"))
    assert sorted([*standby(made, "c2"), *warmup(made, "c2")]) == FOUR
    assert sorted(aims(made)) == [3, 4]
    assert [sum(task in FOUR for task in held["active"]) for held in made.target.values()] == [2, 2]
    assert made.probing_needed


def test_25_a_client_with_few_threads_is_not_given_more_than_its_share() -> None:
    """Kafka: 6/2/1. The quotas are 5.96, 2.98 and 0.06 tasks; ours keeps to the floor or ceiling of each."""
    clients = [
        client(name, disk=everywhere(0, NINE), capacity=threads)
        for name, threads in (("c1", 100), ("c2", 50), ("c3", 1))
    ]
    made = plan(clients, NINE)
    assert counts(made) == aims(made)
    assert all(low <= count <= low + 1 for low, count in zip((5, 2, 0), counts(made), strict=True))


def test_26_what_ran_well_is_left_alone() -> None:
    """Kafka leaves this split alone as well, which is its ideal by chance."""
    tasks = grid(1, 4)
    made = plan([client("c1", runs=["0_0", "0_2"]), client("c2", runs=["0_1", "0_3"])], tasks)
    assert made.moves == 0
    assert made.at_rest


def test_26b_another_balanced_split_is_left_alone_too() -> None:
    """Kafka reshuffles this split (D2)."""
    made = plan([client("c1", runs=["0_0", "0_1"]), client("c2", runs=["0_2", "0_3"])], grid(1, 4))
    assert made.moves == 0
    assert made.at_rest


def test_27_stateless_tasks_alone_need_no_second_look() -> None:
    made = plan([client("c1"), client("c2")], [], stateless=grid(1, 4), settings=WITH)
    assert counts(made) == [2, 2]
    assert not made.probing_needed


def test_28_a_warm_up_needs_a_second_look() -> None:
    made = plan([client("c1", runs=PAIR), client("c2")], PAIR)
    assert counts(made, "warmup") == [0, 1]
    assert made.probing_needed


@pytest.mark.parametrize(
    "threads", [(7, 7, 7), (2, 2, 2), (1, 2, 3), (3, 3, 3)], ids=["29 ample", "30 short", "31 uneven", "32 all on one"]
)
def test_stateless_tasks_are_balanced(threads: tuple[int, int, int]) -> None:
    stateless = grid(1, 7)
    had = stateless if threads == (3, 3, 3) else []
    clients = [client(f"c{n}", runs=had if n == 0 else (), capacity=count) for n, count in enumerate(threads)]
    made = plan(clients, [], stateless=stateless)
    assert sum(counts(made)) == 7
    assert skew(made, clients) <= 1.0
    assert not made.probing_needed


@pytest.mark.parametrize("seed", range(8))
def test_33_random_groups_are_valid_and_balanced(seed: int) -> None:
    """Kafka's balance is one task per thread; ours is the floor or the ceiling of each client's quota."""
    rng = random.Random(seed)
    tasks = grid(60, 3)
    clients = []
    for number in range(50):
        lags: dict[str, int | None] = {task: rng.choice((0, 50, 5_000)) for task in rng.sample(tasks, rng.randrange(6))}
        clients.append(client(f"c{number:02}", disk=lags, capacity=rng.randint(1, 3)))
    made = plan(clients, tasks, settings=config(num_standby_replicas=seed % 3))
    total = sum(one.capacity for one in clients)
    for one in clients:
        assert abs(len(made.target[one.id]["active"]) - len(tasks) * one.capacity / total) < 1


def test_34_tags_without_a_rule_change_nothing() -> None:
    """Kafka's case is its rack strategy with a traffic cost of zero."""
    bare = [client(f"c{n}", disk={NINE[n]: 0}) for n in range(3)]
    tagged = [client(f"c{n}", disk={NINE[n]: 0}, tags={"zone": str(n)}) for n in range(3)]
    assert plan(tagged, NINE, settings=WITH) == plan(bare, NINE, settings=WITH)
