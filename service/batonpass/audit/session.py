"""The Spark session: local unless told otherwise, with this interpreter on the executors, in UTC."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from batonpass.audit.classes import Classes
from batonpass.audit.quiet import without_usual_lines

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

FAST_START: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For a session of a minute or two: the simple compiler and collector start in half the time. The work is done by
workers: on a day of two million records the optimizing compiler took more than it gained."""

INTERPRETED: Final[Mapping[str, str]] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Where workers read, few rows pass Spark: to compile a program for each step takes longer than to take the step."""

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

SIMPLER: Final = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"

STOPS_S: Final = 0.05
"""Spark's own end is waited for so long, until it has begun. What takes up to a second more is a listener of PySpark's
that looks once a second whether it is over: another session of this process waits for it, the end of the process does
not."""
_STOPS: Final[list[threading.Thread]] = []

PACKAGE: Final = "batonpass"
ZIPPED: Final = (".py", ".json", ".pyi", ".typed", ".html", ".j2")

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.app.name": "batonpass-audit",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A payload may be a megabyte: what is handed to Python at once is bounded by bytes as well as by rows.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.adaptive.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Workers are told this by their surroundings, and are used again only by what has the same.
    SIMPLER: "false",
}
LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.python.daemon.module": "batonpass.audit.daemon",
    # What jars bring along for each session are functions of machine learning: a second for their types alone. Named
    # ones (spark.sql.extensions) are loaded as ever.
    "spark.sql.extensions.test.loadFromCp": "false",
    # To look at sizes between steps makes a job of each of them, and forgets how what is kept is cut.
    "spark.sql.adaptive.enabled": "false",
}


@contextmanager
def opened(
    *,
    meanwhile: Callable[[], int | None] = lambda: None,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[SparkSession]:
    """Yield a session, and end it if it was made here.

    One that is already there (``spark-submit``, a test) is used as it is. ``meanwhile`` is done while Java starts:
    it returns about how much there is to read, where that is known; what it raises ends the start. ``settings`` are
    Spark's own and win over the defaults. ``tell`` hears what is done after the end.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - importing this module must not need Spark

    while _STOPS:
        _STOPS.pop().join()
    there = SparkSession.getActiveSession()
    if there is not None:
        meanwhile()
        prepare(there)
        yield there
        return
    classes = Classes()
    try:
        session = _made(meanwhile, master, dict(settings or {}), classes)
    except BaseException:
        classes.let_go()
        raise
    waits = True
    try:
        prepare(session)
        yield session
    except (KeyboardInterrupt, SystemExit):
        # To ask Spark to stop would wait for what it is at; its processes go when this one has gone.
        waits = False
        raise
    finally:
        if waits:
            stop = threading.Thread(target=_stopped, args=(session,), name="audit-stop", daemon=True)
            _STOPS.append(stop)
            stop.start()
            stop.join(None if classes.is_made else STOPS_S)
            classes.keep(tell)
        classes.let_go()


def _stopped(session: SparkSession) -> None:
    """Stop a session; of one whose JVM is gone already nothing is left to stop."""
    with contextlib.suppress(Exception):
        session.stop()


def _made(
    meanwhile: Callable[[], int | None], master: str | None, settings: Mapping[str, str], classes: Classes
) -> SparkSession:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - see above
    from pyspark.sql import SparkSession  # noqa: PLC0415 - see above

    # Without this workers run whatever `python3` is on the path, which need not have anything installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    options = dict(DEFAULTS)
    if not submitted:
        wanted = master or settings.get("spark.master") or "local[*]"
        options["spark.master"] = wanted
        if wanted.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            options |= LOCAL
            if JAVA_OPTIONS not in settings:
                options[JAVA_OPTIONS] = f"{FAST_START} {classes.options()}"
    options |= settings
    launch = None if submitted else Launch(SparkConf().setAll(list(options.items())))
    try:
        is_known = meanwhile() is not None
        with contextlib.suppress(ImportError):
            # PySpark does so at the first call into the JVM, and imports pandas for it, a third of a second.
            import pyspark.testing.utils  # noqa: F401, PLC0415
        gateway = launch.gateway() if launch is not None else None
    except BaseException:
        if launch is not None:
            launch.abandon()
        raise
    if is_known and options.get("spark.master", "").startswith("local"):
        options = {**INTERPRETED, **options}
    conf = SparkConf().setAll(list(options.items()))
    context = SparkContext.getOrCreate(conf) if gateway is None else SparkContext(conf=conf, gateway=gateway)
    context.setLogLevel("ERROR")
    if str(context.master).startswith("local"):
        threading.Thread(target=rouse, args=(context,), name="audit-rouse", daemon=True).start()
    return SparkSession.builder.getOrCreate()


class Launch:
    """A JVM for Spark that starts while its caller does something else."""

    def __init__(self, conf: SparkConf) -> None:
        """Begin to start it, unless one was left by an earlier session of this process, which is used again then."""
        from pyspark import SparkContext  # noqa: PLC0415 - see above

        self._gateway: Any = None
        self._process: Any = None
        self._is_abandoned = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        if SparkContext._gateway is None:  # noqa: SLF001 - nothing public says so
            self._thread = threading.Thread(target=self._run, args=(conf,), name="audit-launch", daemon=True)
            self._thread.start()

    def gateway(self) -> Any:
        """Wait for it, and return the way to it; None where an earlier one is used.

        Raises:
            Exception: when it does not start, as PySpark says so.
        """
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._gateway

    def abandon(self) -> None:
        """End it at once, wherever it is."""
        self._is_abandoned = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _run(self, conf: SparkConf) -> None:
        from pyspark import java_gateway  # noqa: PLC0415 - see above

        module: Any = java_gateway
        start = module.Popen

        def noted(*arguments: Any, **more: Any) -> Any:
            # PySpark hands out what it has started when that answers; it may be wanted no more before.
            self._process = start(*arguments, **more)
            if self._is_abandoned:
                self._process.kill()
            return self._process

        module.Popen = noted
        try:
            with without_usual_lines() as errors:
                self._gateway = module.launch_gateway(conf, {"stderr": errors})
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            self._error = error
        finally:
            module.Popen = start


def rouse(context: SparkContext) -> None:
    """Have each core's worker start and import this program, which takes as long as the driver needs to plan.

    Nothing is raised: whatever is wrong is said of the first step that is wanted.
    """
    cores = context.defaultParallelism
    with contextlib.suppress(Exception):
        context.parallelize(range(cores), cores).foreachPartition(_imported)


def _imported(_numbers: Iterable[int]) -> None:
    from batonpass.audit import spread  # noqa: F401, PLC0415 - what a worker needs


def prepare(session: SparkSession) -> None:
    """Let executors elsewhere import this program, and read with the settings that results depend on."""
    session.conf.set("spark.sql.session.timeZone", "UTC")
    context = session.sparkContext
    # What was submitted with the program (``--py-files``) must not be sent twice: Spark refuses that.
    sent = str(context.getConf().get("spark.submit.pyFiles", "") or "").split(",")
    if not str(context.master).startswith("local") and f"{PACKAGE}.zip" not in {Path(one).name for one in sent}:
        context.addPyFile(str(packed(Path(tempfile.mkdtemp(prefix="batonpass-")))))


def packed(folder: Path) -> Path:
    """Return this program as one zip in ``folder``: executors import it, and ``spark-submit --py-files`` takes it."""
    made = folder / f"{PACKAGE}.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in _sources(files(PACKAGE), PACKAGE):
            archive.writestr(name, source.read_bytes())
    return made


def _sources(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    for one in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = f"{name}/{one.name}"
        if one.is_dir() and one.name != "__pycache__":
            yield from _sources(one, path)
        elif one.name.endswith(ZIPPED):
            yield path, one
