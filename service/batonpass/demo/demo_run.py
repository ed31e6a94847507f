"""Runs a whole demonstration: three experiments, and what is done to the workers of each, phase by phase."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from batonpass.demo.experiment import Experiment, now_ms
from batonpass.demo.figures import RunFigures
from batonpass.demo.infrastructure import Infrastructure
from batonpass.demo.job import Job
from batonpass.demo.sizes import HandoverMode, Sizes
from batonpass.demo.view import View
from batonpass.worker import Exit

FASTER = 5
"""How many times faster copies are restored while only handovers are measured."""

UNDRAIN_S = 0.3
"""Within this time a group begins to act on an undrain (`rebalance_batch_ms` is 50)."""


class DemoRun:
    """One run. Its ``experiments`` can be watched while it goes on."""

    def __init__(self, sizes: Sizes, policy: HandoverMode, *, folder: Path, logs: Path, view: View) -> None:
        """Take the configuration; nothing happens before ``run``."""
        self.sizes = sizes
        self.policy = policy
        self.view = view
        self.infrastructure = Infrastructure(folder, logs, say=view.tell)
        self.figures = RunFigures()
        self.experiments: list[Experiment] = []

    async def run(self) -> RunFigures:
        """Run everything, and stop whatever was started, however the run ends."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.infrastructure.stop)
            self.view.tell("a broker, a database and a coordinator are started")
            await self.infrastructure.start()
            sizes = self.sizes
            await self._experiment("demo", sizes.tasks, main_job, standbys=0 if sizes.with_extras else 1)
            await self._experiment("twin", sizes.small_tasks, replaced_pod, stateful=False, on_exit=Exit.LEAVE)
            await self._experiment("pods", sizes.small_tasks, replaced_pod, standbys=1, on_exit=Exit.LEAVE)
        return self.figures

    async def _experiment(
        self,
        group: str,
        tasks: int,
        phases: Callable[[Experiment], Awaitable[None]],
        *,
        stateful: bool = True,
        standbys: int = 0,
        on_exit: Exit = Exit.RESTART,
    ) -> None:
        job = Job(
            bootstrap=self.infrastructure.bootstrap,
            group=group,
            tasks=tasks,
            customers=self.sizes.customers,
            rate=self.sizes.rate,
            stateful=stateful,
        )
        experiment = Experiment(
            job=job,
            infrastructure=self.infrastructure,
            sizes=self.sizes,
            policy=self.policy,
            figures=self.figures,
            tell=self.view.tell,
            done=self.view.phase_done,
            standbys=standbys,
            on_exit=on_exit,
        )
        self.experiments.append(experiment)
        async with self.view.showing(experiment), experiment.begun(first_names(experiment)):
            await phases(experiment)
            await experiment.settle()


async def main_job(experiment: Experiment) -> None:
    """Scale out, roll, crash and drain the workers of the large job."""
    sizes, names = experiment.sizes, first_names(experiment)
    await experiment.throttle([name_of(experiment, number) for number in range(1, 8)])
    await experiment.be_quiet(sizes.first_quiet_s)
    newcomer = name_of(experiment, len(names) + 1)
    await scale_out(experiment, names, newcomer)
    names = [*names, newcomer]
    if sizes.with_extras:
        await rolling_restart(experiment, names, "rolling-restart-no-standby")
        experiment.tell("every task gets a standby")
        await experiment.configure(standbys=1)
        await experiment.rest(set(names))
    await rolling_restart(experiment, names, "rolling-restart")
    await crash(experiment, names, newcomer)
    if sizes.with_extras:
        await come_back(experiment, names, newcomer)
    else:
        names = names[:-1]
    await drain(experiment, names, names[0])
    if sizes.warm_moves:
        await warm_handovers(experiment, names)
    if sizes.with_extras and experiment.policy is not HandoverMode.EAGER:
        await eager(experiment, names)


async def replaced_pod(experiment: Experiment) -> None:
    """End one of three workers, and start another one in its place some time later, with an empty disk."""
    sizes, names = experiment.sizes, first_names(experiment)
    newcomer = name_of(experiment, len(names) + 1)
    await experiment.throttle([*names, newcomer])
    await experiment.be_quiet(sizes.first_quiet_s)
    goes, stay = names[-1], set(names[:-1])
    async with experiment.phase("replaced-pod" if experiment.job.stateful else "replaced-pod-stateless") as steps:
        async with experiment.step(steps, stay):
            experiment.tell(f"{goes} is told to end, and leaves")
            await experiment.workers.stop(goes)
        waited = now_ms()
        left_s = sizes.replace_after_s - (waited - steps.begun_ms) / 1_000
        if left_s > 0:
            await asyncio.sleep(left_s)
        steps.paused_ms += now_ms() - waited
        async with experiment.step(steps, stay | {newcomer}):
            experiment.tell(f"{newcomer} comes in its place, with an empty disk")
            await experiment.workers.start(newcomer)


async def scale_out(experiment: Experiment, names: list[str], newcomer: str) -> None:
    """Start one more worker, with an empty disk."""
    async with experiment.phase("scale-out") as steps, experiment.step(steps, {*names, newcomer}):
        experiment.tell(f"{newcomer} is started, with an empty disk")
        await experiment.workers.start(newcomer)


async def rolling_restart(experiment: Experiment, names: list[str], title: str) -> None:
    """Restart every worker, one after the other, each as soon as the one before is back."""
    async with experiment.phase(title) as steps:
        for name in names:
            async with experiment.step(steps, set(names), restarts=name):
                experiment.tell(f"{name} is restarted, with its state on disk")
                await experiment.workers.stop(name)
                await experiment.workers.start(name)


async def crash(experiment: Experiment, names: list[str], victim: str) -> None:
    async with experiment.phase("crash") as steps, experiment.step(steps, set(names) - {victim}):
        experiment.tell(f"{victim} is killed (kill -9)")
        experiment.workers.kill(victim)


async def come_back(experiment: Experiment, names: list[str], who: str) -> None:
    """Start the worker that was killed again, with the state on its disk."""
    async with experiment.phase("comes-back") as steps, experiment.step(steps, set(names)):
        experiment.tell(f"{who} is started again, with its state on disk")
        await experiment.workers.start(who)


async def drain(experiment: Experiment, names: list[str], who: str) -> None:
    """Have a worker hand over all its tasks, and let it stay afterwards."""
    members = {one["instance_id"]: one["member_id"] for one in await experiment.group.members()}
    async with experiment.phase("drain") as steps, experiment.step(steps, set(names)):
        experiment.tell(f"{who} is drained")
        await experiment.group.drain(members[who])
        await drained(experiment, members[who])
    await experiment.group.undrain(members[who])
    await experiment.rest(set(names))


async def drained(experiment: Experiment, member: str) -> None:
    """Wait until a draining member has nothing left to run."""
    while True:
        found = next(one for one in await experiment.group.members() if one["member_id"] == member)
        if not found["assignment"]["active"] and not found["revoking"]:
            return
        await asyncio.sleep(0.1)


async def warm_handovers(experiment: Experiment, names: list[str]) -> None:
    """Drain one worker after the other and let it stay, until there were enough moves.

    Copies are restored faster meanwhile, because only the handovers are measured, not what comes before them.
    """
    await experiment.throttle(names, FASTER)
    members = {one["instance_id"]: one["member_id"] for one in await experiment.group.members()}
    async with experiment.phase("warm-handovers") as steps:
        turn = 0
        while steps.moves < experiment.sizes.warm_moves:
            who = names[turn % len(names)]
            async with experiment.step(steps, set(names)):
                experiment.tell(f"{who} is drained ({steps.moves} moves so far)")
                await experiment.group.drain(members[who])
                await drained(experiment, members[who])
            async with experiment.step(steps, set(names)):
                await experiment.group.undrain(members[who])
                await asyncio.sleep(UNDRAIN_S)
            turn += 1
    await experiment.throttle(names)


async def eager(experiment: Experiment, names: list[str]) -> None:
    """Scale out once more, with every copy counted as caught up, to see the cost of immediate reassignment."""
    await experiment.configure(standbys=0, policy=HandoverMode.EAGER)
    await experiment.rest(set(names))
    newcomer = name_of(experiment, 6)
    async with experiment.phase("scale-out-eager") as steps, experiment.step(steps, {*names, newcomer}):
        experiment.tell(f"{newcomer} is started, and every copy counts as caught up")
        await experiment.workers.start(newcomer)
    await experiment.configure(standbys=0)


def name_of(experiment: Experiment, number: int) -> str:
    return f"{experiment.job.group}-{number}"


def first_names(experiment: Experiment) -> list[str]:
    """Return the names of the workers that an experiment begins with."""
    return [name_of(experiment, number) for number in range(1, experiment.sizes.workers + 1)]
