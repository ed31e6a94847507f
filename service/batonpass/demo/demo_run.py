"""Runs a whole demonstration, and returns its results."""

import contextlib
from pathlib import Path

from batonpass.demo.experiment import Experiment
from batonpass.demo.figures import RunFigures
from batonpass.demo.infrastructure import Infrastructure
from batonpass.demo.job import Job
from batonpass.demo.phases import first_names, main_job, replaced_pod
from batonpass.demo.sizes import HandoverMode, Sizes
from batonpass.demo.view import View
from batonpass.worker import Exit


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
            await self._main()
            await self._replaced(stateful=False)
            await self._replaced(stateful=True)
        return self.figures

    async def _main(self) -> None:
        experiment = self._experiment(self._job("demo", self.sizes.tasks))
        standbys = 0 if self.sizes.with_extras else 1
        async with self.view.showing(experiment), experiment.begun(first_names(experiment), standbys=standbys):
            await main_job(experiment, self.figures.phases)
            self.figures.accounts.append(await experiment.settle())

    async def _replaced(self, *, stateful: bool) -> None:
        experiment = self._experiment(
            self._job("pods" if stateful else "twin", self.sizes.small_tasks, stateful=stateful)
        )
        begun = experiment.begun(first_names(experiment), standbys=int(stateful), on_exit=Exit.LEAVE)
        async with self.view.showing(experiment), begun:
            await replaced_pod(experiment, self.figures.phases)
            self.figures.accounts.append(await experiment.settle())

    def _experiment(self, job: Job) -> Experiment:
        experiment = Experiment(job, self.infrastructure, self.sizes, self.policy, tell=self.view.tell)
        experiment.done = self.view.phase_done
        self.experiments.append(experiment)
        return experiment

    def _job(self, group: str, tasks: int, *, stateful: bool = True) -> Job:
        return Job(
            bootstrap=self.infrastructure.bootstrap,
            group=group,
            tasks=tasks,
            customers=self.sizes.customers,
            rate=self.sizes.rate,
            stateful=stateful,
        )
