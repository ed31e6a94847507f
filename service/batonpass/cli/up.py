"""`batonpass up`: run the whole of Batonpass on this machine: a database, a broker, a coordinator, and real workers."""

import asyncio
import errno
import importlib.util
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import SecretStr
from rich.text import Text

from batonpass.background import Background
from batonpass.cli.client_context import failing_well, failure_of, trusted
from batonpass.cli.database import upgrade_schema
from batonpass.cli.demo_job import MEASURED, DemoJob, NoKafka, Program, SimulatedWorkers
from batonpass.cli.exits import Exit, Failure, failing_as
from batonpass.cli.folder import UpFolder, default_folder, folder_named, keep_from_others
from batonpass.cli.listening import bound, end_in_order, require_room
from batonpass.cli.serve import listen, settings_of
from batonpass.cli.worker_processes import Process, admit, declare, kill, start, stop, watch
from batonpass.client import ApiError, CoordinatorClient
from batonpass.dashboard.config import DEFAULT_HOST, DEFAULT_PORT
from batonpass.postgres.binaries import EmbeddedPostgresError
from batonpass.postgres.embedded import EmbeddedPostgres
from batonpass.runtime.access import new_secret
from batonpass.settings import OPEN_PATHS
from batonpass.sockets import free_port
from batonpass.terminal import say, say_on_stderr, screen
from batonpass.variables import variable

LOOK_EVERY_S = 1.0
DECLARE_PATIENCE_S: Final = 60.0
DASHBOARD_NEEDS: Final = ("jinja2", "markdown_it", "starlette", "uvicorn")
AUDIT_NEEDS: Final = ("pyspark", "pyarrow", "adbc_driver_postgresql", "jinja2", "plotly")


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
    hot: Annotated[
        bool, typer.Option("--hot", help="One task of the job is hot, and load is measured: first in shadow.")
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
        end_in_order()
        keep_from_others()
        named = variable("BATONPASS_DATA")
        folder = UpFolder(data or (Path(named) if named else default_folder()))
        kind: DemoJob | SimulatedWorkers | None = None
        if demo:
            kind = SimulatedWorkers() if simulated else DemoJob(folder, workers, _tell, hot=hot)
        up_run = _UpRun(folder, kind, workers, dashboard, dashboard_port, audit, as_json)
        with failing_as(Exit.REFUSED, EmbeddedPostgresError, form="{}"):
            up_run.run(port=port, host=host)


@dataclass
class _UpRun:
    """One run of `up`, from taking the folder to releasing it; ``kind`` is what its ``count`` workers do."""

    folder: UpFolder
    kind: DemoJob | SimulatedWorkers | None
    count: int
    has_dashboard: bool
    dashboard_port: int | None
    is_audited: bool
    as_json: bool
    token: str = ""
    workers: list[Process] = field(default_factory=list)
    companions: list[Process] = field(default_factory=list)
    greeting: asyncio.Task[None] | None = None
    background: Background = field(default_factory=Background)

    def __post_init__(self) -> None:
        try:
            # The database gets the same port when it is started again.
            self.postgres = EmbeddedPostgres(self.folder.postgres, port=free_port())
        except OSError as error:
            todo = "`up` needs this address, also where all else is IPv6: ip addr add 127.0.0.1/8 dev lo."
            raise Failure(Exit.REFUSED, f"{error.strerror or error}.", todo=todo) from None

    def run(self, *, port: int | None, host: str | None) -> None:
        """Start everything, and stop it when asked to."""
        settings = settings_of({"port": port, "host": host})
        require_room(settings.connections_max)
        self.folder.hold()
        try:
            with ExitStack() as listening:
                listeners = [listening.enter_context(one) for one in bound(settings.host, settings.port)]
                self.dashboard_port = port_for_dashboard(self.dashboard_port) if self.has_dashboard else None
                self.token = self.folder.token(new_secret)
                if not self.as_json and not self.folder.postgres.exists():
                    say(f"Making a database in {self.folder.path}; that takes some seconds, once.")
                url, bootstrap = self._servers()
                secrets = {"admin_token": SecretStr(self.token), "database_url": SecretStr(url)}
                # `watch` and `explain` show what happens; the terminal is for problems.
                level = settings.log_level if "log_level" in settings.model_fields_set else "warning"
                # The documentation is opened in a browser on this machine, and a browser sends no token.
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
                listen(settings, listening=self._begin, stopping=self._end, listeners=listeners)
        except KeyboardInterrupt:
            # The signal came before the server listened; later the server handles the signal itself.
            pass
        finally:
            kill(self._children())
            if self._job is not None:
                self._job.stop()
            self.postgres.stop()
            self.folder.release()
        if not self.as_json:
            say(f"Stopped. Everything is kept in {self.folder.path}.")

    def _servers(self) -> tuple[str, str | None]:
        """Start the database, and the broker at the same time; return their addresses. None: there is no broker."""
        with ThreadPoolExecutor(1) as executor:
            broker = None if self._job is None else executor.submit(self._job.prepare)
            url = self.postgres.start()
            upgrade_schema(url)
            self.folder.keep(self.folder.database_file, url)
            try:
                return url, None if broker is None else broker.result()
            except NoKafka as lacking:
                _tell(f"no real workers: {lacking} Until then, simulated ones are started.")
                self.kind = SimulatedWorkers()
                return url, None

    def _begin(self, url: str) -> None:
        """Go on within the server's loop, once it listens."""
        self.folder.announce(url)
        self.greeting = asyncio.create_task(self._greet(url))
        self.background.begin("servers", self._keep_servers)
        self.background.begin("children", partial(watch, self._children, _tell))

    async def _greet(self, url: str) -> None:
        self._accompany(self._programs(url))
        try:
            await self._start_workers(url)
        except ApiError as error:
            failure_of(error).show(as_json=self.as_json)
        except Failure as failure:
            failure.show(as_json=self.as_json)
        except OSError as error:
            _tell(f"cannot start the workers: {error}")
        workers = [(one.name, one.process.pid) for one in self.workers]
        if self.as_json:
            shown = {"url": url, "token": self.token, "data": str(self.folder.path), "pid": os.getpid()}
            kafka = None if self._job is None else self._job.job.bootstrap
            group = None if self.kind is None else self.kind.group
            job = {"group": group, "workers": dict(workers), "kafka": kafka, "dashboard": self._dashboard_url()}
            say(json.dumps({**shown, **job}))
        else:
            self._print_greeting(url, workers)

    def _accompany(self, programs: Iterable[tuple[str, Program]]) -> None:
        for name, program in programs:
            again = "the next `batonpass up` starts it again"
            self.companions.append(start(name, program, self.folder.workers / name, again))

    async def _start_workers(self, url: str) -> None:
        """Declare the group unless it exists, and start its workers, and what runs beside them.

        Raises:
            ApiError: when the group cannot be declared.
            Failure: when something that the workers need is not available.
        """
        if self.kind is None:
            return
        if self._job is not None:
            await self._job.ready()
        async with CoordinatorClient(url, self.token, patience_s=DECLARE_PATIENCE_S, trusted=trusted()) as client:
            await declare(client, self.kind)
            await admit(client, self.folder, self.kind.group)
        for number in range(1, self.count + 1):
            name = f"{self.kind.group}-{number}"
            place = self.folder.workers / name
            program = self.kind.worker(name, url, place, self.folder.workers_token_file)
            self.workers.append(start(name, program, place, f"`batonpass worker --instance {name}` starts it again"))
        if self._job is not None:
            self._accompany([self._job.load()])

    def _print_greeting(self, url: str, workers: list[tuple[str, int]]) -> None:
        """Print where everything is, and what to try next."""
        group, words = ("", "") if self.kind is None else (self.kind.group, self.kind.words)
        screen().say(Text.assemble(("Batonpass", "bold"), f" listens on {url}"))
        # On its own line with this beginning, for programs that read it.
        say(f"token: {self.token}", "")
        if dashboard := self._dashboard_url():
            say(f"  Dashboard   {dashboard} (sign in with the token above)")
        say(f"  API         {url}/docs")
        say(f"  Readiness   {url}/readyz")
        say(f"  Metrics     {url}/metrics")
        say(f"  Process     {os.getpid()} (the coordinator; what it has started here ends with it)")
        say(f"  Data        {self.folder.path} (the database, the token, the workers' state and logs)")
        if self.is_audited:
            say(f"  Audits      {self._audits} (every day is audited when it is over, in UTC)")
        if workers:
            listed = ", ".join(f"{name} (process {pid})" for name, pid in workers)
            say(f"  Group       {group}: {words}")
            say(f"  Workers     {listed}")
        say("", "Try next, in another terminal:", "")
        tries = _tries(_called(), group, workers, is_hot=self._job is not None and bool(self._job.change))
        width = max(len(command) for command, _ in tries)
        for command, what in tries:
            say(f"  {command:<{width}}   {what}")
        say("", "Ctrl-C stops all of it; the next start finds everything again.")

    def _programs(self, url: str) -> list[tuple[str, Program]]:
        """Return the programs that run beside the coordinator, demonstration or not, by name."""
        if self.dashboard_port is not None and (package := dashboard_lacks()):
            _tell(f"no dashboard: it needs {package}; pip install 'batonpass[dashboard]'")
            self.dashboard_port = None
        if self.is_audited and (lacks := audit_lacks()):
            _tell(f"no nightly audit: it needs {lacks}")
            self.is_audited = False
        pages = [] if self.dashboard_port is None else [dashboard_program(url, self.dashboard_port)]
        if not self.is_audited:
            return pages
        audit = ["audit", "--nightly", "--out", str(self._audits)]
        return [*pages, ("audit", Program("batonpass", audit, {"BATONPASS_DATABASE_URL": self.postgres.url}))]

    @property
    def _audits(self) -> Path:
        return self.folder.path / "audits"

    def _dashboard_url(self) -> str | None:
        return None if self.dashboard_port is None else f"http://{DEFAULT_HOST}:{self.dashboard_port}"

    @property
    def _job(self) -> DemoJob | None:
        """The job on Kafka, if that is what the workers do."""
        return self.kind if isinstance(self.kind, DemoJob) else None

    def _children(self) -> list[Process]:
        return [*self.companions, *self.workers]

    async def _keep_servers(self) -> None:
        """Start the database, and the broker if there is one, again if it died."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if not self.postgres.is_running:
                _tell("The database has died; it is started again.")
                try:
                    await asyncio.to_thread(self.postgres.start)
                except EmbeddedPostgresError as error:
                    _tell(f"The database does not start: {error}")
            if self._job is not None and (said := await asyncio.to_thread(self._job.keep_running)):
                _tell(said)

    async def _end(self) -> None:
        """Stop the programs that use the coordinator while it still answers."""
        if self.greeting is not None:
            self.greeting.cancel()
        await self.background.end()
        await stop(self.companions)
        await stop(self.workers)


def _tell(sentence: str) -> None:
    say_on_stderr(f"batonpass: {sentence}")


def port_for_dashboard(wanted: int | None) -> int:
    """Return the port for the dashboard: the wanted one, else the usual one, or any free one if that is taken.

    Raises:
        Failure: when the wanted one is taken.
    """
    port = free_port(DEFAULT_PORT if wanted is None else wanted)
    if wanted and port != wanted:
        said = f"cannot listen on {DEFAULT_HOST}:{wanted}: {os.strerror(errno.EADDRINUSE)}."
        todo = "Choose another port with --dashboard-port N, or leave that out."
        raise Failure(Exit.REFUSED, said, todo=todo)
    if wanted is None and port != DEFAULT_PORT:
        _tell(f"port {DEFAULT_PORT} is taken; the dashboard is on port {port}")
    return port


def dashboard_program(url: str, port: int) -> tuple[str, Program]:
    """Return the dashboard of a coordinator as a program, with its name."""
    return "dashboard", Program(
        "batonpass", ["dashboard", "--server", url, "--host", DEFAULT_HOST, "--port", str(port)]
    )


def dashboard_lacks() -> str | None:
    """Return the package that is missing for a dashboard; None if none is."""
    return next((name for name in DASHBOARD_NEEDS if importlib.util.find_spec(name) is None), None)


def audit_lacks() -> str | None:
    """Return what has to be installed before a day can be audited here, and how; None if nothing."""
    if lacking := [name for name in AUDIT_NEEDS if importlib.util.find_spec(name) is None]:
        return f"{lacking[0]}: `make audit` in a clone, or pip install 'batonpass[audit]'"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        return "Java 17: openjdk-17-jre-headless on Debian, or set JAVA_HOME"
    return None


def _called() -> str:
    """Return how the reader calls this program, so that printed lines can be pasted unchanged."""
    called = Path(sys.argv[0])
    if called.name != "batonpass":
        return f"{shlex.quote(Path(sys.executable).name)} -m batonpass"
    found = shutil.which("batonpass")
    if found and called.exists() and called.samefile(found):
        return "batonpass"
    shown = os.path.relpath(called)
    return shlex.quote(str(called) if shown.startswith("..") else shown)


def _tries(own: str, group: str, workers: list[tuple[str, int]], *, is_hot: bool) -> list[tuple[str, str]]:
    of_load = [
        (f"{own} explain {group}", "after some ten seconds: which task is hot"),
        (f"{own} plan {group}", "after half a minute: what would move for it"),
        (f"echo '{MEASURED}' | {own} groups declare {group} -", "let it move"),
    ]
    shown = of_load if is_hot else []
    if not workers:
        return [
            *shown,
            (f"{own} groups declare orders FILE", "declare a group; docs/first-handover.md goes on from there"),
            (f"{own} groups", "list the groups"),
        ]
    _, last = workers[-1]
    first, _ = workers[0]
    return [
        *shown,
        (f"{own} watch {group}", "watch it live"),
        (f"{own} worker", "add a worker: it warms up before it gets anything to run"),
        (f"kill -9 {last}", "kill one: its warm standbys take over"),
        (f"{own} drain {group} {first} --wait", "drain one: it hands over, and goes on until it has"),
        (f"{own} explain {group}", "ask why everything is where it is"),
    ]
