"""Large networks are solved in a process of its own: the same answers, whatever becomes of the process."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Self

import numpy as np
import pytest
from tests.core import scene as scenes
from tests.core.scene import Scene, topology
from tests.placement.placing import Group, seats, tasks
from tests.programs import is_alive
from tests.waiting import wait_until

from batonpass.core.decide import decide
from batonpass.core.state.inputs import ProbeRequest
from batonpass.core.state.reasons import NoChange
from batonpass.core.state.records import TargetPlaced
from batonpass.placement.flow import Ints, PlacementError, minimum_flow
from batonpass.placement.place import place
from batonpass.placement.types import Readiness, Warmth
from batonpass.runtime.solver_process import SolverProcess

LIMIT_S = 5

INFEASIBLE = tuple(np.array(one, np.int64) for one in ([0], [1], [1], [1], [2, -2]))


@pytest.fixture
def solver() -> Iterator[SolverProcess]:
    """A solver that gives everything to its process."""
    made = SolverProcess(arcs_here=0, limit_s=LIMIT_S)
    yield made
    made.close()


def transport(tasks: int, members: int, *, seed: int = 1) -> tuple[Ints, ...]:
    """Return a network in which each task goes to one of four members that were drawn for it, at a cost drawn too."""
    drawn = np.random.default_rng(seed)
    begin = np.repeat(np.arange(tasks), 4)
    first = tasks + (begin + np.tile([0, 1, 2, 3], tasks)) % members
    end = np.where(np.arange(4 * tasks) % 4 == 0, first, tasks + drawn.integers(0, members, 4 * tasks))
    sink, room = tasks + members, -(-tasks // members)
    tails = np.concatenate([begin, np.arange(tasks, sink)])
    heads = np.concatenate([end, np.full(members, sink)])
    capacity = np.concatenate([np.ones(4 * tasks, np.int64), np.full(members, room)])
    cost = np.concatenate([drawn.integers(0, 10**6, 4 * tasks), np.zeros(members, np.int64)])
    supply = np.concatenate([np.ones(tasks, np.int64), np.zeros(members, np.int64), [-tasks]])
    return tails, heads, capacity, cost, supply


SMALL = transport(50, 5)


def pid(solver: SolverProcess) -> int | None:
    """Return which process it has."""
    process = solver._process
    return None if process is None else process.pid


@pytest.mark.parametrize("seed", range(4))
def test_the_process_gives_the_same_flows(solver: SolverProcess, seed: int) -> None:
    network = transport(400, 20, seed=seed)
    assert solver.solve(*network).tobytes() == minimum_flow(*network).tobytes()


def test_placement_is_the_same_with_it(solver: SolverProcess) -> None:
    drawn = random.Random(3)
    for replicas in (0, 1):
        warm = {
            task: {f"m{one:02}": Warmth(Readiness.ON_DISK, drawn.randrange(9)) for one in drawn.sample(range(6), 3)}
            for task in range(40)
        }
        request = Group(tasks(20, 20), seats(6), replicas=replicas, warm=warm).request()
        assert place(request, solver.solve) == place(request)
    assert pid(solver) is not None


def test_small_networks_need_no_process() -> None:
    solver = SolverProcess(arcs_here=len(SMALL[0]))
    assert np.array_equal(solver.solve(*SMALL), minimum_flow(*SMALL))
    assert pid(solver) is None


def test_the_process_is_kept_and_an_unsolvable_network_does_not_end_it(solver: SolverProcess) -> None:
    solver.solve(*SMALL)
    before = pid(solver)
    with pytest.raises(PlacementError, match="INFEASIBLE"):
        solver.solve(*INFEASIBLE)
    assert np.array_equal(solver.solve(*SMALL), minimum_flow(*SMALL))
    assert pid(solver) == before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hangs"])
def test_after_a_process_that_died_or_hangs_comes_another(solver: SolverProcess, number: signal.Signals) -> None:
    solver.solve(*SMALL)
    before = pid(solver)
    assert before is not None
    os.kill(before, number)
    assert np.array_equal(solver.solve(*SMALL), minimum_flow(*SMALL))
    assert pid(solver) != before
    assert not is_alive(before)


class _Killing:
    """Kills the processes of a solver, each as soon as it is seen, so many of them."""

    def __init__(self, solver: SolverProcess, most: int) -> None:
        self.killed: list[int] = []
        self._solver, self._most, self._is_over = solver, most, False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over and len(self.killed) < self._most:
            seen = pid(self._solver)
            if seen is not None and seen not in self.killed:
                os.kill(seen, signal.SIGKILL)
                self.killed.append(seen)
            time.sleep(0.001)


def test_a_process_that_is_killed_at_work_costs_nothing_but_time(solver: SolverProcess) -> None:
    network = transport(2_000, 50)
    with _Killing(solver, 1) as killing:
        assert solver.solve(*network).tobytes() == minimum_flow(*network).tobytes()
    assert len(killing.killed) == 1


def test_when_every_process_is_killed_it_says_so_and_works_again_later(solver: SolverProcess) -> None:
    network = transport(2_000, 50)
    with _Killing(solver, 9) as killing, pytest.raises(PlacementError, match=r"ended twice .* short of memory"):
        solver.solve(*network)
    assert len(killing.killed) == 2
    assert solver.solve(*network).tobytes() == minimum_flow(*network).tobytes()


def test_a_group_keeps_its_target_when_no_process_lives_and_is_placed_at_the_next_probe(
    solver: SolverProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with any failure of the solver: one record says so, from which the event is made."""
    monkeypatch.setattr(scenes, "decide", partial(decide, solver=solver.solve))
    scene = Scene()
    scene.declare(topology(4))
    scene.join("a")
    scene.settle()
    seen: list[Any] = []
    with monkeypatch.context() as broken:
        solver.close()
        broken.setattr(sys, "executable", "/bin/false")
        scene.join("b")
        seen += scene.of(TargetPlaced)
        for _ in range(3):
            seen += [one for one in scene.tick(1_000).records if isinstance(one, TargetPlaced)]
            scene.obey()
    assert {str(scene.task(f"0_{one}").target.owner) for one in range(4)} == {"a"}
    (failed,) = [one for one in seen if one.failed]
    assert "ended twice" in failed.failed
    scene.do(ProbeRequest())
    assert NoChange.PLACEMENT_FAILED not in {one.code for one in scene.last.reasons} if scene.last else False
    scene.settle()
    assert sorted(str(scene.task(f"0_{one}").target.owner) for one in range(4)) == ["a", "a", "b", "b"]


def test_several_threads_may_ask_at_once(solver: SolverProcess) -> None:
    networks = [transport(300, 10, seed=seed) for seed in range(6)]
    found: dict[int, Ints] = {}
    threads = [
        threading.Thread(target=lambda place=place: found.update({place: solver.solve(*networks[place])}))
        for place in range(len(networks))
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert all(np.array_equal(found[place], minimum_flow(*network)) for place, network in enumerate(networks))


def test_when_it_is_closed_no_process_is_left(solver: SolverProcess) -> None:
    solver.solve(*SMALL)
    before = pid(solver)
    assert before is not None
    assert is_alive(before)
    solver.close()
    assert not is_alive(before)


PARENT = """
import sys
from tests.runtime.test_solver_process import SMALL
from batonpass.runtime.solver_process import SolverProcess
solver = SolverProcess(arcs_here=0)
solver.solve(*SMALL)
print(solver._process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_process_ends_with_the_one_that_started_it(number: signal.Signals) -> None:
    """However that one ends: nothing has to be done for it."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.send_signal(number)
        parent.wait()
    wait_until(lambda: not is_alive(child))
