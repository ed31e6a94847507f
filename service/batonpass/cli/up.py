"""`batonpass up`: run the whole of Batonpass on this machine: a database, a broker, a coordinator, and real workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import SecretStr

from batonpass.cli import beside
from batonpass.cli.client_context import failing_well, failure_of
from batonpass.cli.crew import Crew, Program, SimulatedCast, Worker, kill, start, stop, watch
from batonpass.cli.database import upgraded
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.folder import UpFolder, default_folder, folder_named
from batonpass.cli.greeting import Around, greeting
from batonpass.cli.jobcast import JobCast, NoKafka
from batonpass.cli.serve import busy, listen, settings_of
from batonpass.client import ApiError
from batonpass.postgres.binaries import EmbeddedPostgresError
from batonpass.postgres.embedded import EmbeddedPostgres
from batonpass.runtime.access import new_secret
from batonpass.settings import OPEN_PATHS, Settings
from batonpass.sockets import bind, free_port
from batonpass.terminal import aside, say

LOOK_EVERY_S = 1.0


def up(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            parser=folder_named,
            help="Where everything is kept (BATONPASS_DATA); made if it is not there.",
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="The port to listen on; 0 takes any free one.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    demo: Annotated[
        bool, typer.Option("--demo/--no-demo", help="A Kafka broker and a job under load, to have something to see.")
    ] = True,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Without a broker: workers that only pretend to have state.")
    ] = False,
    workers: Annotated[int, typer.Option(min=0, max=100, help="How many workers.")] = 3,
    dashboard: Annotated[bool, typer.Option("--dashboard/--no-dashboard", help="Pages to look at all of it.")] = True,
    audit: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Audit every day when it is over, where Spark and Java are.")
    ] = True,
    dashboard_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="The port of the dashboard; left out: 8421, or a free one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say in one line of JSON what runs.")] = False,
) -> None:
    """Run everything on this machine: a database and a broker of its own, a coordinator, a job, and a dashboard.

    Everything is kept in one folder; the next start finds it again. Ctrl-C stops all of it.
    """
    with failing_well(as_json=as_json):
        _die_in_order()
        named = os.environ.get("BATONPASS_DATA", "").strip()
        folder = UpFolder(data or (Path(named) if named else default_folder()))
        cast = None if simulated or not demo else JobCast(folder, workers, _tell)
        crew = Crew(folder, workers, cast or SimulatedCast()) if demo else None
        stay = _Stay(folder, crew=crew, job=cast, as_json=as_json)
        if dashboard:
            stay.dashboard_port = beside.dashboard_port(dashboard_port)
        stay.is_audited = audit
        try:
            stay.run(port=port, host=host)
        except EmbeddedPostgresError as error:
            raise Failure(Exit.REFUSED, str(error)) from None


class _Stay:
    """One run of `up`, from taking the folder to letting go of it."""

    def __init__(self, folder: UpFolder, *, crew: Crew | None, job: JobCast | None, as_json: bool) -> None:
        self._folder = folder
        self._crew = crew
        self._job = job
        self._as_json = as_json
        # The database is to have the same port when it is started again.
        self._postgres = EmbeddedPostgres(folder.postgres, port=free_port())
        self._token = ""
        self.dashboard_port: int | None = None
        self.is_audited = False
        self._beside: list[Worker] = []
        self._tasks: list[asyncio.Task[None]] = []

    def run(self, *, port: int | None, host: str | None) -> None:
        """Start everything, and stop it when told to."""
        settings = settings_of({"port": port, "host": host})
        self._folder.hold()
        try:
            with _bound(settings) as listener:
                self._token = self._folder.token(new_secret)
                if not self._as_json and not self._folder.postgres.exists():
                    say(f"Making a database in {self._folder.path}; that takes some seconds, once.")
                url, bootstrap = self._servers()
                secrets = {"admin_token": SecretStr(self._token), "database_url": SecretStr(url)}
                # What happens is shown by `watch` and `explain`; the terminal is for what is wrong.
                level = settings.log_level if "log_level" in settings.model_fields_set else "warning"
                # The documentation is for the browser of whoever sits here, and a browser brings no token.
                opened = settings.open_paths if "open_paths" in settings.model_fields_set else OPEN_PATHS
                own: dict[str, Any] = {
                    "advertised_url": None,
                    "log_level": level,
                    "open_paths": opened,
                    "sole_coordinator": True,
                }
                if bootstrap is not None:
                    own["kafka_bootstrap"] = bootstrap
                settings = settings.model_copy(update={**secrets, **own})
                listen(settings, listening=self._begin, stopping=self._end, listener=listener)
        except KeyboardInterrupt:
            # Before it listened; later the server takes note of the signal itself.
            pass
        finally:
            if self._crew is not None:
                self._crew.kill()
            kill(self._beside)
            if self._job is not None:
                self._job.stop()
            self._postgres.stop()
            self._folder.release()
        if not self._as_json:
            say(f"Stopped. Everything is kept in {self._folder.path}.")

    def _servers(self) -> tuple[str, str | None]:
        """Start the database, and the broker beside it; return where they are. None: there is no broker."""
        with ThreadPoolExecutor(1) as aside:
            broker = None if self._job is None else aside.submit(self._job.prepare)
            url = self._postgres.start()
            upgraded(url)
            self._folder.keep(self._folder.database_file, url)
            try:
                return url, None if broker is None else broker.result()
            except NoKafka as lacking:
                _tell(f"no real workers: {lacking} Until then, simulated ones are started.")
                self._job = None
                if self._crew is not None:
                    self._crew.cast = SimulatedCast()
                return url, None

    def _begin(self, url: str) -> None:
        """Go on within the server's loop, once it listens."""
        self._folder.announce(url)
        self._tasks = [
            asyncio.create_task(self._greet(url)),
            asyncio.create_task(self._keep_postgres()),
            asyncio.create_task(self._keep_broker()),
            asyncio.create_task(watch(self._children, _tell)),
        ]

    async def _greet(self, url: str) -> None:
        for name, program in self._programs(url):
            again = "the next `batonpass up` starts it again"
            self._beside.append(start(name, program, self._folder.workers / name, again))
        workers: list[tuple[str, int]] = []
        if self._crew is not None:
            try:
                await self._crew.start(url, self._token)
            except ApiError as error:
                failure_of(error).show(as_json=self._as_json)
            except Failure as failure:
                failure.show(as_json=self._as_json)
            except OSError as error:
                _tell(f"cannot start the workers: {error}")
            workers = [(one.name, one.process.pid) for one in self._crew.workers]
        group = None if self._crew is None else self._crew.cast.group
        if self._as_json:
            shown = {"url": url, "token": self._token, "data": str(self._folder.path), "pid": os.getpid()}
            kafka = None if self._job is None else self._job.job.bootstrap
            told = {"group": group, "workers": dict(workers), "kafka": kafka, "dashboard": self._dashboard_url()}
            say(json.dumps({**shown, **told}))
        else:
            words = "" if self._crew is None else self._crew.cast.words
            audits = self._audits if self.is_audited else None
            around = Around(url, self._token, self._folder, group or "", words, self._dashboard_url(), audits)
            greeting(around, workers)

    def _programs(self, url: str) -> list[tuple[str, Program]]:
        """Return what runs as a process of its own beside the coordinator, demonstration or not, by name."""
        if self.dashboard_port is not None and (package := beside.lacking()):
            _tell(f"no dashboard: it needs {package}; pip install 'batonpass[dashboard]'")
            self.dashboard_port = None
        if self.is_audited and (lacks := beside.audit_lacks()):
            _tell(f"no nightly audit: it needs {lacks}")
            self.is_audited = False
        pages = [] if self.dashboard_port is None else [beside.dashboard_program(url, self.dashboard_port)]
        return [*pages, beside.audit_program(self._postgres.url, self._audits)] if self.is_audited else pages

    @property
    def _audits(self) -> Path:
        return self._folder.path / "audits"

    def _dashboard_url(self) -> str | None:
        return None if self.dashboard_port is None else f"http://{beside.HOST}:{self.dashboard_port}"

    def _children(self) -> list[Worker]:
        return [*self._beside, *([] if self._crew is None else [*self._crew.workers, *self._crew.beside])]

    async def _keep_postgres(self) -> None:
        """Start the database again when it died."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if not self._postgres.is_running:
                _tell("The database has died; it is started again.")
                try:
                    await asyncio.to_thread(self._postgres.start)
                except EmbeddedPostgresError as error:
                    _tell(f"The database does not start: {error}")

    async def _keep_broker(self) -> None:
        """Start the broker again when it died."""
        while self._job is not None:
            await asyncio.sleep(LOOK_EVERY_S)
            if said := await asyncio.to_thread(self._job.keep_running):
                _tell(said)

    async def _end(self) -> None:
        """Stop what works with the coordinator while it still answers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await stop(self._beside)
        if self._crew is not None:
            await self._crew.stop()


def _bound(settings: Settings) -> socket.socket:
    try:
        return bind(settings.host, settings.port)
    except OSError as error:
        raise busy(settings, error) from None


def _die_in_order() -> None:
    """Let SIGTERM, and the end of the terminal, stop everything as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))


def _tell(sentence: str) -> None:
    aside(f"batonpass: {sentence}")
