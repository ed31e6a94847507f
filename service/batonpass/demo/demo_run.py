"""Runs a whole demonstration, and returns its results."""

import contextlib
from collections.abc import Awaitable, Callable
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
        experiment = Experiment(job, self.infrastructure, self.sizes, self.policy, self.figures, tell=self.view.tell)
        experiment.done = self.view.phase_done
        self.experiments.append(experiment)
        begun = experiment.begun(first_names(experiment), standbys=standbys, on_exit=on_exit)
        async with self.view.showing(experiment), begun:
            await phases(experiment)
            await experiment.settle()
