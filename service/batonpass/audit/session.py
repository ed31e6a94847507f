"""The Spark session: local unless told otherwise, with this interpreter on the executors, in UTC."""

import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

import batonpass
from batonpass.audit.runs import beating
from batonpass.audit_words import amount
from batonpass.child_environment import child_environment
from batonpass.core.state.durations import duration

if TYPE_CHECKING:
    from pyspark.status import SparkStageInfo

PACKAGE: Final = "batonpass"

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.app.name": "batonpass-audit",
    "spark.sql.session.timeZone": "UTC",
    # A payload may be a megabyte: what is handed to Python at once is bounded by bytes as well as by rows.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    # The work is done by Python workers, and few rows pass Java: compiling for them takes longer than it saves.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Looking at sizes between steps makes each step a job, and loses the partitioning of what is kept.
    "spark.sql.adaptive.enabled": "false",
}


@contextmanager
def opened(settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Yield a session, and end it if it was made here.

    One that is already there (``spark-submit``, a test) is used as it is. ``settings`` are Spark's own,
    ``spark.master`` among them, and win over the defaults; so does what ``spark-submit`` was told.

    Raises:
        UnfitSpark: when this Spark, or the way to it, cannot carry out an audit.
    """
    _refuse_unfit(settings or {})
    there = SparkSession.getActiveSession()
    session, stops = there or _made(settings or {}), there is None
    prepare(session)
    try:
        yield session
    except (KeyboardInterrupt, SystemExit):
        # Asking Spark to stop would wait for its present work; its processes end when this one has ended.
        stops = False
        raise
    finally:
        # If the session's JVM is gone already, there is nothing to stop.
        with contextlib.suppress(Exception):
            if stops:
                session.stop()


class UnfitSpark(Exception):
    """This Spark, or the way to it, cannot carry out an audit; ``todo`` says what to do."""

    def __init__(self, said: str, todo: str) -> None:
        super().__init__(said)
        self.todo = todo


SPARK_LEAST: Final = 4


def _refuse_unfit(settings: Mapping[str, str]) -> None:
    if int(pyspark.__version__.partition(".")[0]) < SPARK_LEAST:
        said = f"the audit needs Spark {SPARK_LEAST}.0 or later, and this is {pyspark.__version__}"
        raise UnfitSpark(said, "Install 'batonpass[audit]', on the cluster too.")
    remote = settings.get("spark.remote") or os.environ.get("SPARK_REMOTE", "")
    if remote or settings.get("spark.master", "").startswith("sc://"):
        said = "the audit does not run over Spark Connect: it sends its own program to the executors"
        raise UnfitSpark(said, "Leave out SPARK_REMOTE, spark.remote and sc://, and name a master.")


GRACE_S: Final = 3.0
"""How long Spark's own process may take to remove its files when it is told to end."""


def end_now(session: SparkSession) -> None:
    """End the process of a session that was made here, and with it everything that waits for its results.

    PySpark waits for the end of the present work even while an exception passes it.
    """
    process = getattr(session.sparkContext._gateway, "proc", None)  # noqa: SLF001 - there is no other way to it
    if process is not None:
        process.terminate()
        last = threading.Timer(GRACE_S, process.kill)
        last.daemon = True
        last.start()


@contextmanager
def _environment_kept() -> Iterator[None]:
    """Have the environment of this process as it was, once Spark's own has begun with what was set for it."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@_environment_kept()
def _made(settings: Mapping[str, str]) -> SparkSession:
    options = dict(DEFAULTS)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else `spark-submit` has said where it runs
        # The JVM finds files by names that are outside ASCII too, whatever the locale of this process.
        os.environ.update(child_environment())
        options["spark.master"] = settings.get("spark.master", "local[*]")
        if options["spark.master"].startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            # Another Spark of this machine, and the Python that goes with that, lack our packages.
            os.environ.pop("SPARK_HOME", None)
            os.environ["PYSPARK_PYTHON"] = sys.executable
            options |= LOCAL
    else:
        # What it was told stands in its JVM.
        SparkContext._ensure_initialized()  # noqa: SLF001 - only so does a configuration have it
    # Without this workers run whatever `python3` is on the path, which may lack the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf = SparkConf().setAll(list(settings.items()))
    for name, value in options.items():
        conf.setIfMissing(name, value)
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def prepare(session: SparkSession) -> None:
    """Let executors on other machines import this program, and set what results depend on."""
    session.conf.set("spark.sql.session.timeZone", "UTC")
    context = session.sparkContext
    # What was submitted with the program (``--py-files``) must not be sent twice: Spark refuses that.
    sent = str(context.getConf().get("spark.submit.pyFiles", "") or "").split(",")
    if not str(context.master).startswith("local") and f"{PACKAGE}.zip" not in {Path(one).name for one in sent}:
        context.addPyFile(str(packed(Path(tempfile.mkdtemp(prefix="batonpass-")))))


def packed(folder: Path) -> Path:
    """Return this program as one zip in ``folder``: executors import it, and ``spark-submit --py-files`` takes it."""
    parent = Path(batonpass.__file__).parents[1]
    return Path(shutil.make_archive(str(folder / PACKAGE), "zip", parent, PACKAGE))


EVERY_S: Final = 5.0
SLOW_S: Final = 30.0
"""A part that takes so long is named, and again whenever as much time has passed."""


@contextmanager
def followed(
    session: SparkSession, tell: Callable[[str], None], names: Sequence[str], *, every_s: float = EVERY_S
) -> Iterator[None]:
    """Tell every few seconds how many parts are done, if that has changed, and which ones take long, by their names.

    Nothing more is told once Spark is gone. The caller that waits for Spark's results reports that Spark is gone.
    """
    tracker = session.sparkContext.statusTracker()
    last = [0]
    told: Counter[int] = Counter()
    gone = threading.Event()

    def look() -> None:
        if gone.is_set():
            return
        try:
            count()
        # The bridge to a killed JVM raises many kinds of errors: of the bridge, of sockets, of Python.
        except Exception:  # noqa: BLE001
            gone.set()

    def count() -> None:
        stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
        done = sum(one.numCompletedTasks for one in stages if one is not None)
        whole = sum(one.numTasks for one in stages if one is not None)
        # Between two stages there is nothing to count.
        if done not in {last[0], 0}:
            last[0] = done
            tell(f"{done:,} of {amount(whole, 'part')}")
        # Parts may share a name, as trials of one group do.
        lines: dict[str, None] = {}
        for stage in stages:
            for part, took_ms in _under_way(session, stage) if stage and stage.numTasks == len(names) else ():
                slow = int(took_ms / 1_000 / SLOW_S)
                if slow > told[part]:
                    told[part] = slow
                    lines[f"{names[part]}: under way for {duration(slow * SLOW_S * 1_000)}"] = None
        for line in lines:
            tell(line)

    with beating(look, every_s):
        yield


def _under_way(session: SparkSession, stage: "SparkStageInfo") -> Iterator[tuple[int, int]]:
    """Yield the number of each part of a stage that is under way, and for how many milliseconds."""
    # Spark tells Python only how many there are.
    store = session.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - there is no other way to it
    tasks = store.taskList(stage.stageId, stage.currentAttemptId, stage.numTasks)
    for place in range(tasks.size()):
        task = tasks.apply(place)
        if task.status() == "RUNNING":
            yield task.index(), int(time.time() * 1_000) - task.launchTime().getTime()
