"""Scenes that suites begin with, and what they ask of one."""

from tests.core.described import describe_group
from tests.core.scene import Scene, topology

from batonpass.core.state.ids import InstanceId, TaskId
from batonpass.core.state.model import OnLeaseLost
from batonpass.core.state.reasons import Held

TASK = TaskId("0_0")


def pair(tasks: int = 1, **config: object) -> Scene:
    """Return a group where a runs every task and b has just joined."""
    scene = Scene()
    scene.declare(topology(tasks), **({"acceptable_recovery_lag": 100} | config))
    scene.join("a")
    scene.obey()
    scene.join("b")
    return scene


def guarded(tasks: int = 1, members: str = "ab", **config: object) -> Scene:
    """Return a group at rest with one standby a task."""
    scene = Scene()
    scene.declare(topology(tasks), **({"acceptable_recovery_lag": 100, "num_standby_replicas": 1} | config))
    for name in members:
        scene.join(name)
    scene.settle()
    return scene


def settled(members: int = 2, partitions: int = 2, **config: object) -> Scene:
    """Return a scene at rest in which m1, m2 and so on share stateful tasks."""
    scene = Scene()
    scene.declare(topology(partitions), **config)
    for number in range(1, members + 1):
        scene.join(f"m{number}")
    scene.settle(60)
    return scene


def running_scene(members: int = 2, partitions: int = 2, **config: object) -> Scene:
    """Return the same, but m1 fences its outputs: it goes on without its lease, and the others stop."""
    scene = Scene()
    scene.declare(topology(partitions), **config)
    for number in range(1, members + 1):
        scene.join(f"m{number}", on_lease_lost=OnLeaseLost.CONTINUE if number == 1 else OnLeaseLost.STOP)
    scene.settle(60)
    return scene


def alone(instance_id: InstanceId | None = None, partitions: int = 2) -> Scene:
    """Return a scene in which m1 runs every task."""
    scene = Scene()
    scene.declare(topology(partitions))
    scene.join("m1", instance_id=instance_id)
    scene.tick()
    scene.obey()
    return scene


def both() -> Scene:
    """Return a scene at rest in which m1 and m2 run one task each."""
    scene = alone()
    scene.join("m2")
    scene.settle()
    assert sorted(map(str, scene.owners().values())) == ["m1", "m2"]
    return scene


def reasons(scene: Scene) -> set[str]:
    """Return the codes of the reasons of the last decision."""
    assert scene.last is not None
    return {reason.code for reason in scene.last.reasons}


def held_back(scene: Scene) -> list[tuple[str, str | None, Held]]:
    """Return the moves that the group holds back: the task, where it is to go, and why it has to wait."""
    status = describe_group(scene.view())
    return [(entry.task, entry.to, entry.reason) for entry in status.held_back]
