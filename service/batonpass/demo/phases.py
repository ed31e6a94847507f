"""What is done to the workers, phase by phase."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from batonpass.demo.form import Policy
from batonpass.demo.scene import Scene, now_ms
from batonpass.worker import Exit

if TYPE_CHECKING:
    from batonpass.demo.figures import PhaseFigures

Figures = list["PhaseFigures"]
FASTER = 5
"""How many times faster copies are restored while only handovers are looked at."""

UNDRAIN_S = 0.3
"""Within this time a group has begun to do what an undrain asks for (`rebalance_batch_ms` is 50)."""


async def main_job(scene: Scene, into: Figures) -> None:
    """Scale out, roll, crash and drain the workers of the large job."""
    form, names = scene.form, first_names(scene)
    await scene.throttle([name_of(scene, number) for number in range(1, 8)])
    await scene.be_quiet(form.first_quiet_s)
    newcomer = name_of(scene, len(names) + 1)
    await scale_out(scene, into, names, newcomer)
    names = [*names, newcomer]
    if form.with_extras:
        await rolling_restart(scene, into, names, "rolling-restart-no-standby")
        scene.tell("every task gets a standby")
        await scene.configure(standbys=1)
        await scene.rest(set(names))
    await rolling_restart(scene, into, names, "rolling-restart")
    await crash(scene, into, names, newcomer)
    if form.with_extras:
        await come_back(scene, into, names, newcomer)
    else:
        names = names[:-1]
    await drain(scene, into, names, names[0])
    if form.warm_moves:
        await warm_handovers(scene, into, names)
    if form.with_extras and scene.policy is not Policy.EAGER:
        await eager(scene, into, names)


async def replaced_pod(scene: Scene, into: Figures) -> None:
    """End one of three workers, and start another one in its place some time later, with an empty disk."""
    form, names = scene.form, first_names(scene)
    newcomer = name_of(scene, len(names) + 1)
    await scene.throttle([*names, newcomer])
    await scene.be_quiet(form.first_quiet_s)
    goes, stay = names[-1], set(names[:-1])
    async with scene.phase("replaced-pod" if scene.job.stateful else "replaced-pod-stateless", into) as steps:
        async with scene.step(steps, stay):
            scene.tell(f"{goes} is told to end, and leaves")
            await scene.crew.stop(goes)
        waited = now_ms()
        left_s = form.replace_after_s - (waited - steps.begun_ms) / 1_000
        if left_s > 0:
            await asyncio.sleep(left_s)
        steps.paused_ms += now_ms() - waited
        async with scene.step(steps, stay | {newcomer}):
            scene.tell(f"{newcomer} comes in its place, with an empty disk")
            await scene.crew.start(newcomer, on_exit=Exit.LEAVE)


async def scale_out(scene: Scene, into: Figures, names: list[str], newcomer: str) -> None:
    """Start one more worker, with an empty disk."""
    async with scene.phase("scale-out", into) as steps, scene.step(steps, {*names, newcomer}):
        scene.tell(f"{newcomer} is started, with an empty disk")
        await scene.crew.start(newcomer)


async def rolling_restart(scene: Scene, into: Figures, names: list[str], title: str) -> None:
    """Restart every worker, one after the other, each as soon as the one before is back."""
    async with scene.phase(title, into) as steps:
        for name in names:
            async with scene.step(steps, set(names), restarts=name):
                scene.tell(f"{name} is restarted, with its state on disk")
                await scene.crew.stop(name)
                await scene.crew.start(name)


async def crash(scene: Scene, into: Figures, names: list[str], victim: str) -> None:
    """Kill a worker."""
    async with scene.phase("crash", into) as steps, scene.step(steps, set(names) - {victim}):
        scene.tell(f"{victim} is killed (kill -9)")
        scene.crew.kill(victim)


async def come_back(scene: Scene, into: Figures, names: list[str], who: str) -> None:
    """Start the worker that was killed again, with what its disk has."""
    async with scene.phase("comes-back", into) as steps, scene.step(steps, set(names)):
        scene.tell(f"{who} is started again, with its state on disk")
        await scene.crew.start(who)


async def drain(scene: Scene, into: Figures, names: list[str], who: str) -> None:
    """Have a worker hand everything over, and let it stay afterwards."""
    members = {one["instance_id"]: one["member_id"] for one in await scene.group.members()}
    async with scene.phase("drain", into) as steps, scene.step(steps, set(names)):
        scene.tell(f"{who} is drained")
        await scene.group.drain(members[who])
        await drained(scene, members[who])
    await scene.group.undrain(members[who])
    await scene.rest(set(names))


async def drained(scene: Scene, member: str) -> None:
    """Wait until a draining member has nothing left to run."""
    while True:
        found = next(one for one in await scene.group.members() if one["member_id"] == member)
        if not found["assignment"]["active"] and not found["revoking"]:
            return
        await asyncio.sleep(0.1)


async def warm_handovers(scene: Scene, into: Figures, names: list[str]) -> None:
    """Drain one worker after the other and let it stay, until there were enough moves.

    Copies are restored faster meanwhile: it is the handovers that are looked at, not what comes before them.
    """
    await scene.throttle(names, FASTER)
    members = {one["instance_id"]: one["member_id"] for one in await scene.group.members()}
    async with scene.phase("warm-handovers", into) as steps:
        turn = 0
        while steps.moves < scene.form.warm_moves:
            who = names[turn % len(names)]
            async with scene.step(steps, set(names)):
                scene.tell(f"{who} is drained ({steps.moves} moves so far)")
                await scene.group.drain(members[who])
                await drained(scene, members[who])
            async with scene.step(steps, set(names)):
                await scene.group.undrain(members[who])
                await asyncio.sleep(UNDRAIN_S)
            turn += 1
    await scene.throttle(names)


async def eager(scene: Scene, into: Figures, names: list[str]) -> None:
    """Scale out once more, with every copy taken for caught up: what immediate reassignment costs."""
    await scene.configure(standbys=0, policy=Policy.EAGER)
    await scene.rest(set(names))
    newcomer = name_of(scene, 6)
    async with scene.phase("scale-out-eager", into) as steps, scene.step(steps, {*names, newcomer}):
        scene.tell(f"{newcomer} is started, and every copy counts as caught up")
        await scene.crew.start(newcomer)
    await scene.configure(standbys=0)


def name_of(scene: Scene, number: int) -> str:
    """Return the name of a worker."""
    return f"{scene.job.group}-{number}"


def first_names(scene: Scene) -> list[str]:
    """Return the names of the workers that a scene begins with."""
    return [name_of(scene, number) for number in range(1, scene.form.workers + 1)]
