"""The audit as it is submitted to a cluster: executors of their own, and the program in a zip."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from tests.audit import planted
from tests.waiting import wait_until

from batonpass import __main__
from batonpass.audit.session import packed

pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(1000)]

CLUSTER = "local-cluster[2,1,1024]"
"""A master, and two workers; each executor is a process of its own with its own folder, to which files are sent."""

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


STEPS = ("following every task", "drawing")
"""When executors work: each step behind them, as writing Parquet, reads what they hold in the same way as drawing."""


def test_a_cluster_that_loses_an_executor_at_each_step_finds_what_one_machine_finds(
    planted_url: str, tmp_path: Path
) -> None:
    """The executors run the program that was sent to them; the parts of one that is killed are computed again."""
    home = Path(pyspark.__file__).parent
    env = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    env["BATONPASS_DATABASE_URL"] = planted_url
    settings = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "700m", "spark.ui.enabled": "false"}
    # What runs for seconds is not worth compiling well.
    settings |= dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), QUICK)
    command = [str(home / "bin/spark-submit"), "--master", CLUSTER]
    command += [f"--conf={name}={value}" for name, value in settings.items()]
    command += ["--py-files", str(packed(tmp_path)), __main__.__file__]
    command += ["audit", "--day", str(planted.DAY), "--no-what-if", "--no-keep", "--out", str(tmp_path / "out")]
    said: list[str] = []
    killed = []
    with subprocess.Popen(
        command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as audit:
        assert audit.stdout is not None
        for line in audit.stdout:
            said.append(line)
            if any(step in line for step in STEPS):
                killed.append(kill_an_executor_of(audit.pid))
    out = "".join(said)
    assert len(killed) == len(set(killed)) == len(STEPS), out
    assert f"{planted.DAY}: L1, L2, L4, L7, L8, L9 and L10 were broken" in out
    assert "2 of them with another outcome." in out
    assert audit.returncode == 1
    assert pq.read_table(tmp_path / "out" / "gaps" / f"day={planted.DAY}").num_rows > 0


def kill_an_executor_of(driver: int) -> int:
    """Kill one of a driver's executors, as a machine that goes takes it along; return its process."""

    def executors() -> list[int]:
        found = subprocess.run(
            ["pgrep", "-P", str(driver), "-f", "CoarseGrainedExecutorBackend"], capture_output=True, check=False
        )
        return [int(one) for one in found.stdout.split()]

    wait_until(lambda: bool(executors()), within_s=120)
    one = executors()[0]
    os.kill(one, signal.SIGKILL)
    return one
