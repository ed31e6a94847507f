"""Small groups to begin with: one member that runs everything beside a newcomer, and members with standbys at rest."""

from __future__ import annotations

from tests.core.scene import Scene, topology

from batonpass.core.ids import TaskId

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


def why(scene: Scene) -> set[str]:
    """Return the codes of the reasons of the last decision."""
    assert scene.last is not None
    return {reason.code for reason in scene.last.reasons}
