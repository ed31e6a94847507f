"""Kafka's assignor in a closed loop: it converges as Kafka's own test says, and costs what the real class costs.

The figures were measured with Kafka's real class in the same loop, over ten sets of process ids each; the ids here are
other ones, so a mean must fall within the range that was seen there.
"""

from dataclasses import dataclass, field
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.often import cases
from tests.simulate.kafka.cases import faults, grid, process_ids, skew
from tests.simulate.kafka.closed_loop import ClosedLoop, LoopOutcome

from batonpass.simulate.kafka.assignor import ClientState, Kip441Config
from batonpass.simulate.tasks import TaskSet


def settled(clients: int, tasks: TaskSet, config: Kip441Config) -> ClosedLoop:
    """A group that came to rest in its first rebalance."""
    loop = ClosedLoop(tasks, config)
    for place in range(clients):
        loop.join(f"c{place}")
    assert loop.settle().probing_rounds == 0
    return loop


def test_a_constant_group_is_at_rest_at_once() -> None:
    assert settled(1, TaskSet(((0, 0),), ((1, 0),)), Kip441Config()).clients == ("c0",)


def test_adding_a_client_converges_in_half_the_tasks() -> None:
    loop = settled(1, TaskSet(grid(1, 11), grid(2, 7)[7:]), Kip441Config())
    loop.join("c1")
    outcome = loop.settle(limit=11 // 2 + 1)
    assert outcome.moved == 5
    assert outcome.most_handovers_in_one_rebalance == 2


def test_dropping_clients_one_by_one_converges() -> None:
    loop = settled(7, TaskSet(grid(1, 13), grid(2, 11)[11:]), Kip441Config())
    for name in loop.clients[:-1]:
        loop.leave(name)
        loop.settle(limit=13 // 2 + 2)
    assert loop.clients == ("c6",)


@dataclass(frozen=True, slots=True)
class Change:
    """A client that joins, leaves, or comes back with what it held; which one, counted around."""

    kind: str
    place: int


@dataclass(slots=True)
class Roster:
    """Who is in the group, who left it, and who there ever was."""

    loop: ClosedLoop
    present: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    seen: int = 0

    def join(self) -> None:
        """Add a new client."""
        self.present.append(f"c{self.seen * 37 % 101:03d}")
        self.loop.join(self.present[-1])
        self.seen += 1

    def apply(self, change: Change) -> None:
        """Let the change happen; with nobody to leave or come back somebody joins."""
        if change.kind == "leave" and len(self.present) > 1:
            self.gone.append(self.present.pop(change.place % len(self.present)))
            self.loop.leave(self.gone[-1])
        elif change.kind == "return" and self.gone:
            self.present.append(self.gone.pop(change.place % len(self.gone)))
            self.loop.come_back(self.present[-1])
        else:
            self.join()


CHANGES = st.builds(Change, kind=st.sampled_from(["join", "leave", "return"]), place=st.integers(0, 9))


@settings(max_examples=cases(300), deadline=None, derandomize=True)
@given(
    clients=st.integers(1, 10),
    stateful=st.integers(1, 10),
    stateless=st.integers(1, 10),
    warmups=st.integers(1, 10),
    standbys=st.integers(0, 4),
    changes=st.lists(CHANGES, min_size=1, max_size=10),
)
def test_any_changes_converge_to_a_valid_balance(  # noqa: PLR0917
    clients: int, stateful: int, stateless: int, warmups: int, standbys: int, changes: list[Change]
) -> None:
    config = Kip441Config(max_warmup_replicas=min(warmups, stateful), num_standby_replicas=standbys)
    tasks = TaskSet(grid(1, stateful), grid(2, stateless)[stateless:])
    loop = ClosedLoop(tasks, config)
    roster = Roster(loop)
    for _ in range(clients):
        roster.join()
    for change in changes:
        roster.apply(change)
        assignment = loop.rebalance()
        rounds = 1
        while assignment.probing_needed:
            assert faults(assignment, tasks, config) == []
            assert rounds < 2 * stateful * (1 + standbys)
            assignment = loop.rebalance()
            rounds += 1
        assert faults(assignment, tasks, config) == []
        present = [ClientState(name, {}) for name in loop.clients]
        assert skew(assignment, present) <= 1
        assert skew(assignment, present, of=frozenset(tasks.stateful)) <= 1
        assert loop.rebalance() == assignment


def join_one(seed: int, *, clients: int, tasks: int, standbys: int = 0, warmups: int = 2) -> LoopOutcome:
    """What it costs when one more process joins a group at rest, with ids drawn from the seed."""
    config = Kip441Config(num_standby_replicas=standbys, max_warmup_replicas=warmups)
    loop = ClosedLoop(TaskSet(grid(1, tasks)), config)
    *first, newcomer = process_ids(seed, clients + 1)
    for name in first:
        loop.join(name)
    loop.settle()
    loop.join(newcomer)
    return loop.settle()


@pytest.mark.parametrize(("tasks", "minutes"), [(10, 30), (50, 130), (100, 250)])
def test_one_to_two_takes_a_round_for_every_two_tasks(tasks: int, minutes: int) -> None:
    """Half of the tasks move, two a round; with a hundred of them that is 25 probing rounds, 250 minutes."""
    outcome = join_one(1, clients=1, tasks=tasks)
    assert (outcome.moved, outcome.handovers, outcome.most_handovers_of_one_task) == (tasks // 2, tasks // 2, 1)
    assert outcome.minutes == minutes


def test_two_to_three_moves_two_thirds_where_one_third_would_do() -> None:
    """The ideal is dealt out anew."""
    assert mean(join_one(seed, clients=2, tasks=100).moved for seed in range(6)) == pytest.approx(67, abs=1)


@pytest.mark.parametrize(("warmups", "minutes"), [(10, 100), (100, 10)])
def test_more_warmups_take_fewer_rounds_and_save_no_move(warmups: int, minutes: int) -> None:
    """Ten warm-ups bring the join to eleven processes down to a fifth of the time, a hundred to one interval."""
    outcomes = [join_one(seed, clients=10, tasks=100, warmups=warmups) for seed in range(6)]
    assert mean(outcome.minutes for outcome in outcomes) == pytest.approx(minutes, rel=0.1)
    assert mean(outcome.moved for outcome in outcomes) == pytest.approx(95, abs=4)


@dataclass(frozen=True, slots=True)
class Measured:
    """What Kafka's real class took: the least and the most of ten sets of ids, and where two columns peaked."""

    moved: tuple[int, int]
    handovers: tuple[int, int]
    minutes: tuple[int, int]
    most_of_one_task: int
    most_at_once: int


# Clients before the join, tasks, standbys, sets of ids here.
MEASURED = {
    (10, 100, 0, 10): Measured((90, 99), (90, 99), (450, 500), 1, 2),
    (10, 100, 1, 10): Measured((90, 99), (691, 726), (830, 870), 20, 46),
    (10, 100, 2, 10): Measured((90, 99), (244, 298), (1080, 1130), 15, 71),
    (20, 200, 0, 4): Measured((180, 197), (180, 197), (900, 990), 1, 2),
    (20, 200, 1, 4): Measured((180, 197), (809, 1572), (1850, 1890), 22, 68),
    (20, 200, 2, 4): Measured((180, 197), (866, 1145), (2520, 2590), 26, 143),
}


@pytest.mark.parametrize("change", MEASURED, ids=lambda c: f"{c[0]} to {c[0] + 1}, {c[1]} tasks, {c[2]} standbys")
def test_a_join_costs_what_it_costs_the_real_class(change: tuple[int, int, int, int]) -> None:
    """On the mean; no task and no rebalance is far above the worst that Kafka's class showed."""
    clients, tasks, standbys, sets = change
    measured = MEASURED[change]
    outcomes = [join_one(seed, clients=clients, tasks=tasks, standbys=standbys) for seed in range(sets)]
    least, most = measured.moved
    assert least <= mean(outcome.moved for outcome in outcomes) <= most
    least, most = measured.handovers
    assert least <= mean(outcome.handovers for outcome in outcomes) <= most
    least, most = measured.minutes
    assert least <= mean(outcome.minutes for outcome in outcomes) <= most
    assert max(outcome.most_handovers_of_one_task for outcome in outcomes) <= 1.25 * measured.most_of_one_task
    assert max(outcome.most_handovers_in_one_rebalance for outcome in outcomes) <= 1.25 * measured.most_at_once


def test_with_a_standby_tasks_change_hands_far_more_often_than_they_move() -> None:
    """Kafka does not protect the running owner."""
    outcome = join_one(3, clients=10, tasks=100, standbys=1)
    assert outcome.handovers > 6 * outcome.moved
    assert outcome.most_handovers_of_one_task >= 10


def test_a_second_join_in_mid_move_moves_most_tasks_that_had_arrived() -> None:
    """Twenty rounds after the first join."""
    loop = ClosedLoop(TaskSet(grid(1, 100)), Kip441Config())
    names = process_ids(5, 12)
    for name in names[:10]:
        loop.join(name)
    start = loop.settle().assignment.owners
    loop.join(names[10])
    for _ in range(19):
        loop.rebalance()
    halfway = loop.rebalance().owners
    loop.join(names[11])
    end = loop.settle().assignment.owners
    arrived = [task for task, owner in halfway.items() if owner != start[task]]
    assert len(arrived) > 30
    assert sum(end[task] != halfway[task] for task in arrived) > len(arrived) / 2


def test_a_group_that_does_not_settle_is_an_error() -> None:
    loop = settled(1, TaskSet(grid(1, 10)), Kip441Config())
    loop.join("c1")
    with pytest.raises(RuntimeError, match="not at rest after 2 rebalances of 2 clients"):
        loop.settle(limit=2)
