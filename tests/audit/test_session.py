"""Spark's progress is reported for as long as there is a Spark to ask."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from batonpass.audit.session import followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Tracker:
    """Has one stage of three parts, one more of them done at each look, until the JVM is gone."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.asked = 0
        self.is_refused = threading.Event()

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 - Spark's name
        """Say which stages there are."""
        self.asked += 1
        if self.asked > self.looks:
            self.is_refused.set()
            raise ConnectionRefusedError(111, "Connection refused")
        return [1]

    def getStageInfo(self, stage: int) -> Any:  # noqa: N802 - Spark's name
        """Say how far it is."""
        assert stage == 1
        return SimpleNamespace(numCompletedTasks=self.asked, numTasks=3)


def test_a_jvm_that_died_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller says that Spark went; the thread that only looks on prints no traceback, and looks no more."""
    raised: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    tracker = Tracker(looks=2)
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    lines: list[str] = []
    later = threading.Event()
    with followed(session, lines.append, (), every_s=0.01):
        assert tracker.is_refused.wait(30)
        # Long enough for it to ask again, if it did.
        later.wait(0.2)
    assert lines == ["1 of 3 parts", "2 of 3 parts"]
    assert tracker.asked == 3
    assert raised == []


@pytest.mark.needs("spark")
def test_progress_is_reported_while_parts_are_done(spark: "SparkSession") -> None:
    from batonpass.audit.session import followed  # noqa: PLC0415 - needs Spark

    def slow(batches: Any) -> Any:
        for batch in batches:
            time.sleep(0.4)
            yield batch

    lines: list[str] = []
    with followed(spark, lines.append, (), every_s=0.05):
        assert len(spark.range(0, 6, 1, 6).mapInArrow(slow, "id long").collect()) == 6
    assert any(line.endswith("of 6 parts") for line in lines)
    assert len(lines) == len(set(lines))
    before = len(lines)
    spark.range(0, 6, 1, 6).mapInArrow(slow, "id long").collect()
    assert len(lines) == before


@pytest.mark.needs("spark")
def test_a_part_that_takes_long_is_named_while_it_does(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from batonpass.audit import session  # noqa: PLC0415 - needs Spark

    monkeypatch.setattr(session, "SLOW_S", 1.0)
    is_told, lines = tmp_path / "told", list[str]()

    def work(batches: Any) -> Any:
        for batch in batches:
            # The first part goes on until it was named twice.
            while batch.column(0)[0].as_py() == 0 and not is_told.exists():
                time.sleep(0.05)
            yield batch

    def tell(line: str) -> None:
        lines.append(line)
        if sum("group large" in one for one in lines) == 2:
            is_told.touch()

    with session.followed(spark, tell, ["group large", "group b", "group c"], every_s=0.05):
        spark.range(0, 3, 1, 3).mapInArrow(work, "id long").collect()
    named = [one for one in lines if "under way" in one]
    assert [one.rpartition(" ")[0] for one in named] == ["group large: under way for 1", "group large: under way for 2"]


@pytest.mark.needs("spark")
@pytest.mark.usefixtures("spark")
def test_what_was_set_for_spark_is_not_left_to_this_process() -> None:
    """Programs that this process starts later would have it too: they would import nothing from their folder."""
    assert "PYTHONSAFEPATH" not in os.environ


IMPORTED = """
import sys
import batonpass.audit.spread, batonpass.audit.whatif
print(*{name.partition(".")[0] for name in sys.modules})
"""


def test_executors_need_no_other_packages_than_are_named() -> None:
    page = (Path(__file__).parents[2] / "docs" / "audit-run.md").read_text(encoding="utf-8")
    _, _, named = page.partition("The Python of the executors needs")
    packages = {one.replace("-", "_") for one in re.findall(r"`([a-z-]+)`", named.partition(", which")[0])}
    found = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True).stdout.split()
    ours = {one for one in found if not one.startswith("_") and one not in sys.stdlib_module_names}
    of_these = {"batonpass", "pyspark", "py4j", "adbc_driver_manager", "cython_runtime", "typing_extensions"}
    assert packages >= {"ortools", "msgspec"}
    assert ours - packages - of_these == set()


@pytest.mark.needs("spark")
def test_a_spark_that_cannot_carry_out_an_audit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark  # noqa: PLC0415 - needs Spark

    from batonpass.audit import session  # noqa: PLC0415 - the same

    there = "sc://there:15002"
    for settings, remote in (({"spark.master": there}, ""), ({"spark.remote": there}, ""), ({}, there)):
        monkeypatch.setenv("SPARK_REMOTE", remote)
        with pytest.raises(session.UnfitSpark, match="Spark Connect"), session.opened(settings):
            pass
    monkeypatch.delenv("SPARK_REMOTE")
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    with pytest.raises(session.UnfitSpark, match=r"4\.0 or later, and this is 3\.5\.9"), session.opened():
        pass


BUSY = """
import sys, time
from functools import partial
from batonpass.audit.runs import stoppable
from batonpass.audit.session import end_now, opened

def slowly(batches):
    for batch in batches:
        print("at work", file=sys.stderr, flush=True)
        time.sleep(300)
        yield batch

with opened({"spark.master": "local[1]"}) as session, stoppable(partial(end_now, session)):
    session.range(0, 1, 1, 1).mapInArrow(slowly, "id long").toArrow()
"""


@pytest.mark.needs("spark")
@pytest.mark.timeout(240)
def test_a_signal_ends_an_audit_while_a_part_is_at_work() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert any("at work" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGTERM
    finally:
        process.kill()
