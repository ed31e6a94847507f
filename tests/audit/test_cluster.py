"""The audit as it is submitted to a cluster: executors of their own, and the program in a zip."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from tests.audit import planted
from tests.audit.conftest import Audited
from tests.often import ALL
from tests.waiting import wait_until

from batonpass import __main__
from batonpass.audit.session import packed

pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(1000)]

CLUSTER = "local-cluster[2,1,1024]"
"""A master, and two workers; each executor is a process of its own with its own folder, to which files are sent."""

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


STEPS = ("following every task", "drawing", "writing Parquet", "trying other settings")
"""When executors work."""
LOST_AT = STEPS if ALL else STEPS[:1]
"""When one is killed; `make soak` does it at each step."""
COMPUTED = (STEPS[0], STEPS[-1])
"""The steps in which Python works on executors; the others read what executors hold."""

NAME = "the nightly audit"
"""What a person calls this run, so that Spark's pages do."""


def test_a_cluster_that_loses_executors_finds_what_one_machine_finds(audited: Audited, tmp_path: Path) -> None:
    """The executors run the program that was sent to them; the parts of one that is killed are computed again."""
    home, events = Path(pyspark.__file__).parent, tmp_path / "events"
    events.mkdir()
    env = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    env["BATONPASS_DATABASE_URL"] = audited.url
    settings = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "700m", "spark.ui.enabled": "false"}
    settings |= {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(events),
        "spark.eventLog.compress": "false",
    }
    # What runs for seconds is not worth compiling well.
    settings |= dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), QUICK)
    command = [str(home / "bin/spark-submit"), "--master", CLUSTER, "--name", NAME]
    command += [f"--conf={name}={value}" for name, value in settings.items()]
    command += ["--py-files", str(packed(tmp_path)), __main__.__file__]
    command += ["audit", "--day", str(planted.DAY), "--no-keep", "--objective", "0.995", "--what-if-seconds", "1"]
    command += ["--out", str(tmp_path / "out")]
    said: list[str] = []
    killed: list[int] = []
    with subprocess.Popen(
        command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as audit:
        assert audit.stdout is not None
        for line in audit.stdout:
            said.append(line)
            step = next((one for one in LOST_AT[len(killed) :] if one in line), None)
            if step is not None:
                killed.append(kill_an_executor_of(audit.pid, at_work=step in COMPUTED))
    out = "".join(said)
    assert len(killed) == len(set(killed)) == len(LOST_AT), out
    worst = "Two members may have run a task at once (L1)"
    assert f"{planted.DAY}: {worst}; 6 more laws broken (L2, L4, L10, L7, L8, L9), in" in out
    assert "2 of them with another outcome." in out
    assert "other settings were not tried: Py4J" not in out
    assert audit.returncode == 1
    for table in ("intervals", "gaps", "warmups", "measures", "downtime", "findings"):
        alone, here = (rows_of(folder / table) for folder in (audited.out, tmp_path / "out"))
        assert here == alone != [], table
    told = [json.loads(line) for one in sorted(events.rglob("events_*")) for line in one.read_text().splitlines()]
    assert {one["App Name"] for one in told if one["Event"] == "SparkListenerApplicationStart"} == {NAME}
    described = {
        one["Properties"].get("spark.job.description", "?") for one in told if one["Event"] == "SparkListenerJobStart"
    }
    assert {one for one in STEPS if any(said.startswith(one) for said in described)} == set(STEPS), described
    assert "?" not in described


def rows_of(folder: Path) -> list[dict[str, object]]:
    """Return the rows of a table of the day, but for what a trial of other settings adds."""
    rows = pq.read_table(folder / f"day={planted.DAY}").to_pylist()
    return [one for one in rows if one.get("law") != "what-if-incomplete"]


def children(process: int, of: str) -> list[int]:
    """Return the processes that a process has started, by what is in their command lines."""
    found = subprocess.run(["pgrep", "-P", str(process), "-f", of], capture_output=True, check=False)
    return [int(one) for one in found.stdout.split()]


def kill_an_executor_of(driver: int, *, at_work: bool) -> int:
    """Kill one of a driver's executors, as a machine that goes takes it along; return its process.

    ``at_work``: one whose Python worker has a part under way.
    """

    def is_at_work(executor: int) -> bool:
        workers = [one for daemon in children(executor, "pyspark.daemon") for one in children(daemon, "pyspark")]
        states = [
            subprocess.run(["ps", "-o", "stat=", "-p", str(one)], capture_output=True, text=True, check=False)
            for one in workers
        ]
        return any(one.stdout.startswith("R") for one in states)

    def executors() -> list[int]:
        return [one for one in children(driver, "CoarseGrainedExecutorBackend") if not at_work or is_at_work(one)]

    found: list[int] = wait_until(executors, within_s=120)
    os.kill(found[0], signal.SIGKILL)
    return found[0]
