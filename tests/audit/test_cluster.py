"""The audit as it is submitted to a cluster: executors of their own, and the program in a zip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from tests.audit import planted

from batonpass.audit import job
from batonpass.audit.session import packed

pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(1000)]

CLUSTER = "local-cluster[1,2,1024]"
"""A master, and a worker whose executor is a process of its own with its own folder, to which files are sent."""

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def test_a_cluster_finds_what_one_machine_finds(planted_url: str, tmp_path: Path) -> None:
    """The executors run the program that was sent to them."""
    home = Path(pyspark.__file__).parent
    env = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    settings = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "700m", "spark.ui.enabled": "false"}
    # What runs for seconds is not worth compiling well.
    settings |= dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), QUICK)
    command = [str(home / "bin/spark-submit"), "--master", CLUSTER]
    command += [f"--conf={name}={value}" for name, value in settings.items()]
    command += ["--py-files", str(packed(tmp_path)), job.__file__, "--day", str(planted.DAY)]
    command += ["--no-what-if", "--no-keep"]
    env["BATONPASS_DATABASE_URL"] = planted_url
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert f"{planted.DAY}: L1, L2, L4, L7, L8, L9 and L10 were broken" in done.stdout, done.stderr[-3_000:]
    assert "2 of them with another outcome." in done.stdout
    assert done.returncode == 1
