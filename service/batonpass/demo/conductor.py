"""Leads through a whole demonstration, and returns what it came to."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from batonpass.demo.figures import RunFigures
from batonpass.demo.form import Form, Policy
from batonpass.demo.job import Job
from batonpass.demo.phases import first_names, main_job, replaced_pod
from batonpass.demo.place import Place
from batonpass.demo.scene import Scene
from batonpass.worker import Exit

if TYPE_CHECKING:
    from batonpass.demo.view import View


class Conductor:
    """One run. ``scenes`` are there to be looked at while it goes on."""

    def __init__(self, form: Form, policy: Policy, *, folder: Path, logs: Path, view: View) -> None:
        """Name everything; nothing happens before ``run``."""
        self.form = form
        self.policy = policy
        self.view = view
        self.place = Place(folder, logs, say=view.tell)
        self.figures = RunFigures()
        self.scenes: list[Scene] = []

    async def run(self) -> RunFigures:
        """Do everything, and stop whatever was started, however it ends."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.place.stop)
            self.view.tell("a broker, a database and a coordinator are started")
            await self.place.start()
            await self._main()
            await self._replaced(stateful=False)
            await self._replaced(stateful=True)
        return self.figures

    async def _main(self) -> None:
        scene = self._scene(self._job("demo", self.form.tasks))
        standbys = 0 if self.form.with_extras else 1
        async with self.view.showing(scene), scene.begun(first_names(scene), standbys=standbys):
            await main_job(scene, self.figures.phases)
            self.figures.accounts.append(await scene.settle())

    async def _replaced(self, *, stateful: bool) -> None:
        scene = self._scene(self._job("pods" if stateful else "twin", self.form.small_tasks, stateful=stateful))
        begun = scene.begun(first_names(scene), standbys=int(stateful), on_exit=Exit.LEAVE)
        async with self.view.showing(scene), begun:
            await replaced_pod(scene, self.figures.phases)
            self.figures.accounts.append(await scene.settle())

    def _scene(self, job: Job) -> Scene:
        scene = Scene(job, self.place, self.form, self.policy, tell=self.view.tell)
        scene.done = self.view.phase_done
        self.scenes.append(scene)
        return scene

    def _job(self, group: str, tasks: int, *, stateful: bool = True) -> Job:
        return Job(
            bootstrap=self.place.bootstrap,
            group=group,
            tasks=tasks,
            customers=self.form.customers,
            rate=self.form.rate,
            stateful=stateful,
        )
