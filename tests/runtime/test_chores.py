"""Samples and snapshots are taken now and then, and never stand in the way."""

import threading
from collections.abc import Sequence

import pytest
from tests.core.scene import Scene, copy, running, topology
from tests.runtime.fakes import GROUP, World, make_world

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import Heartbeat, ProbeRequest
from batonpass.core.state.model import Group
from batonpass.core.state.soft import Soft
from batonpass.runtime import chores
from batonpass.runtime.chores import Chores, sample_of
from batonpass.runtime.coordinator import Coordinator
from batonpass.runtime.history import CopySample, Sample
from batonpass.runtime.ports import StoreUnavailable


def test_a_sample_says_how_far_every_copy_has_come() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("m1")
    scene.beat("m1", {"0_0": running(), "0_1": copy("none", None)})
    scene.join("m2", {"0_1": copy("none", 40)})
    sample = sample_of(scene.group, scene.soft, scene.now_ms)
    assert (sample.group, sample.at_ms) == (scene.group.id, scene.now_ms)
    assert set(sample.copies) == {
        CopySample(TaskId("0_0"), MemberId("m1"), "active", "running", None, None),
        CopySample(TaskId("0_1"), MemberId("m1"), "none", "", None, None),
        CopySample(TaskId("0_1"), MemberId("m2"), "none", "", 40, None),
    }


async def a_coordinator(world: World) -> Coordinator:
    """Return a coordinator with one group of three records."""
    coordinator = Coordinator(world.ports)
    for _ in range(3):
        await coordinator.ask(GROUP, ProbeRequest())
    await coordinator.ask(GROUP, Heartbeat(MemberId("m1"), 1, 1))
    return coordinator


async def test_a_turn_keeps_a_sample_of_every_group_and_a_snapshot_of_those_that_have_grown() -> None:
    world = make_world()
    kept: list[int] = []

    async def keep(group: Group) -> None:
        kept.append(group.version)

    samples: list[Sample] = []

    async def keep_samples(taken: Sequence[Sample]) -> None:
        samples.extend(taken)

    world.log.keep_snapshot = keep  # type: ignore[method-assign]
    coordinator = await a_coordinator(world)
    coordinator.archive.keep_samples = keep_samples  # type: ignore[assignment, method-assign]
    chores = Chores(coordinator, world.seen, snapshot_every=2)
    await chores.once()
    await chores.once()
    assert [sample.group for sample in samples] == [GROUP, GROUP]
    assert kept == [3]


async def test_a_group_is_sampled_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 200,000 copies of a large one take half a second."""
    world, threads = make_world(), list[threading.Thread]()

    def watched(group: Group, soft: Soft, now_ms: int) -> Sample:
        threads.append(threading.current_thread())
        return sample_of(group, soft, now_ms)

    monkeypatch.setattr(chores, "sample_of", watched)
    coordinator = await a_coordinator(world)
    await Chores(coordinator, world.seen, snapshot_every=2).once()
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_a_turn_survives_a_store_that_is_away() -> None:
    world = make_world()

    async def refuse(*_: object) -> None:
        raise StoreUnavailable("the store is away")

    coordinator = await a_coordinator(world)
    world.log.keep_snapshot = coordinator.archive.keep_samples = refuse  # type: ignore[assignment, method-assign]
    chores = Chores(coordinator, world.seen, snapshot_every=2)
    await chores.once()
    assert world.seen.failures == ["the store is away"] * 2
