"""How many moves balance by load takes at once, beside the fewest that an exact solver finds for the same balance."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from ortools.sat.python import cp_model
from tests.placement.placing import Group, seats, tasks

from batonpass.core.target import load
from batonpass.placement.place import place

pytestmark = pytest.mark.no_cover
WORLDS = 100


def world(seed: int) -> tuple[list[float], list[int], int]:
    """Return what tasks weigh, where each runs, as many on each member, and how many members there are."""
    luck = Random(seed)
    members, count = luck.choice((3, 4, 5, 5, 6)), luck.choice((8, 12, 16, 20))
    weights = {
        "zipf": [2 / rank for rank in range(1, count + 1)],
        "power": [luck.expovariate(1) + 0.02 for _ in range(count)],
        "even": [luck.uniform(0.2, 1) for _ in range(count)],
        "two": [luck.choice((1.0, 1.0, 1.0, 4.0)) for _ in range(count)],
    }[luck.choice(("zipf", "zipf", "power", "even", "two"))]
    home = [task % members for task in range(count)]
    luck.shuffle(weights)
    luck.shuffle(home)
    return weights, home, members


def balanced(weights: list[float], home: list[int], members: int) -> list[int]:
    """Return where tasks run once nothing more is moved for load. What was moved rests."""
    at, rests = [*home], dict[int, int]()
    names = [one.id for one in seats(members)]
    while True:
        group = Group(
            tasks(len(weights), weight=lambda _, task: weights[task]),
            seats(members),
            home=tuple(names[member] for member in at),
            bound={task: names[member] for task, member in rests.items()},
        )
        request = group.request()
        wanted = {
            task: to
            for task, to in enumerate(place(replace(request, tolerance=load.WORTH_A_MOVE)).owner)
            if to != at[task]
        }
        moves = load._choose(request, wanted, load.WITHIN)
        if not moves:
            return at
        rests |= moves
        for task, to in moves.items():
            at[task] = to


def fewest(weights: list[float], home: list[int], members: int, most: float) -> int:
    """Return the fewest moves after which no member has more than so much, or one task alone that weighs more."""
    model = cp_model.CpModel()
    at = [[model.new_bool_var(f"{task} {member}") for member in range(members)] for task in range(len(weights))]
    for row in at:
        model.add_exactly_one(row)
    for member in range(members):
        # In millionths. A task that is too heavy for anybody takes the rest of the room away.
        taken = [round(min(weight, most) * 1e6) * row[member] for weight, row in zip(weights, at, strict=True)]
        model.add(sum(taken) <= int(most * 1e6) + len(weights))
    model.minimize(sum(1 - row[member] for row, member in zip(at, home, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)


def test_balance_by_load_takes_few_moves_more_than_the_fewest_for_the_same_balance() -> None:
    """With a tolerance of a thousandth, as few in 79 worlds only. With all of ``WITHIN`` more members stay too hot."""
    more, too_hot = Counter[int](), 0
    for seed in range(WORLDS):
        weights, home, members = world(seed)
        at = balanced(weights, home, members)
        loads = [
            sum(weight for weight, where in zip(weights, at, strict=True) if where == one) for one in range(members)
        ]
        alone = {where for weight, where in zip(weights, at, strict=True) if weight > 1.1 * sum(weights) / members}
        moves = sum(map(int.__ne__, at, home))
        most = max(amount for member, amount in enumerate(loads) if member not in alone)
        too_hot += most > (1 + load.WITHIN) * sum(weights) / members
        more[max(0, moves - fewest(weights, home, members, most))] += 1
    assert more == {0: 98, 1: 2}
    assert too_hot <= 8, "no move of one task, and no exchange of two, helps there"
