"""Eager reassignment: everybody stops, tasks are dealt out anew, and whoever lacks the state restores it cold."""

from tests.simulate.kafka.cases import client, grid

from batonpass.simulate.copies import SteadyRates
from batonpass.simulate.kafka import eager
from batonpass.simulate.kafka.assignor import Kip441Config
from batonpass.simulate.kafka.group import EAGER, KafkaGroup
from batonpass.simulate.tasks import TaskSet

CONFIG = Kip441Config(num_standby_replicas=2)
TEN = TaskSet(grid(1, 10))
WORLD = SteadyRates(records=10_000, growth_per_second=0, restore_per_second=1000)


def test_tasks_are_dealt_out_by_turns_and_without_copies() -> None:
    tasks = TaskSet(grid(1, 5), grid(2, 2)[2:])
    clients = [client("b", tasks.stateful), client("a", tasks.stateful, capacity=2)]
    assignment = eager.assign(clients, tasks, CONFIG)
    assert assignment.clients["a"].active == ((0, 0), (0, 1), (0, 3), (0, 4), (1, 1))
    assert assignment.clients["b"].active == ((0, 2), (1, 0))
    assert not assignment.probing_needed
    assert all(held.copies == () for held in assignment.clients.values())


def test_without_a_client_no_task_is_dealt_out() -> None:
    assert eager.assign([], TEN, CONFIG).clients == {}


def test_a_join_stops_every_task_and_restores_what_moved() -> None:
    group = KafkaGroup.at_rest(TEN, EAGER, WORLD, capacities={"a": 1})
    group.join("b")
    assert group.run_to_rest(limit_ms=1_000_000)
    outcome = group.outcome()
    assert (outcome.moved, outcome.handovers, group.rebalances) == (5, 5, 1)
    assert sorted(set(outcome.downtime_ms.values())) == [500, 50_500]
    assert outcome.restored_records == 50_000


def test_a_join_beside_a_dead_session_stops_everybody_until_that_is_over() -> None:
    """A newcomer starts a rebalance that waits 45 s for a process killed before."""
    group = KafkaGroup.at_rest(TEN, EAGER, WORLD, capacities={"a": 1, "b": 1})
    group.crash("b")
    group.join("c")
    assert group.run_to_rest(limit_ms=1_000_000)
    assert min(group.outcome().downtime_ms.values()) > 40_000


def test_state_that_was_left_on_a_disk_is_taken_up_again() -> None:
    group = KafkaGroup.at_rest(TEN, EAGER, WORLD, capacities={"a": 1, "b": 1})
    group.close("b")
    assert group.run_to_rest(limit_ms=1_000_000)
    group.begin_change()
    group.come_back("b")
    assert group.run_to_rest(limit_ms=2_000_000)
    outcome = group.outcome()
    assert (outcome.moved, outcome.restored_records) == (5, 0)
