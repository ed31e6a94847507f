"""The audit as it is submitted to a cluster: executors of their own, and the program in a zip."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.audit import planted

if TYPE_CHECKING:
    from tests.audit.conftest import Audited

pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(400)]


@contextmanager
def running(log: Path, *role: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon of Spark's own cluster, on this machine, and end it."""
    import pyspark  # noqa: PLC0415 - the other tests run without it

    home = Path(pyspark.__file__).parent
    env = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as told:
        one = subprocess.Popen([str(home / "bin/spark-class"), *role], env=env, stdout=told, stderr=subprocess.STDOUT)
    try:
        yield one
    finally:
        one.terminate()
        one.wait(30)


def heard(log: Path, pattern: str, daemon: subprocess.Popen[bytes]) -> str:
    """Wait until a daemon has said something, and return what stands at its first group."""
    until = time.monotonic() + 120
    while time.monotonic() < until and daemon.poll() is None:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found[1]
        time.sleep(0.2)
    raise AssertionError(f"{log.stem} did not say {pattern!r}: {log.read_text(errors='replace')[-2_000:]}")


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Run a master and one worker, and lend the master's URL."""
    package = "org.apache.spark.deploy"
    at_home = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with running(folder / "master.log", f"{package}.master.Master", *at_home) as master:
        url = heard(folder / "master.log", r"Starting Spark master at (spark://\S+)", master)
        small = ("--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work"))
        with running(folder / "worker.log", f"{package}.worker.Worker", *at_home, *small, url) as worker:
            heard(folder / "worker.log", r"Successfully registered with master (\S+)", worker)
            yield url


def test_a_cluster_finds_what_one_machine_finds(audited: Audited, tmp_path: Path) -> None:
    """Executors read, follow and decide again with the program that was sent to them; the verdict is the same."""
    import pyspark  # noqa: PLC0415 - see above

    from batonpass.audit import job  # noqa: PLC0415 - see above
    from batonpass.audit.findings import summary  # noqa: PLC0415 - see above
    from batonpass.audit.session import packed  # noqa: PLC0415 - see above

    env = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    settings = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "700m", "spark.ui.enabled": "false"}
    with cluster(tmp_path) as url:
        asked = [str(Path(pyspark.__file__).parent / "bin/spark-submit"), "--master", url]
        asked += [f"--conf={name}={value}" for name, value in settings.items()]
        asked += ["--py-files", str(packed(tmp_path)), job.__file__, "--day", str(planted.DAY)]
        asked += ["--database-url", audited.url, "--no-what-if", "--no-keep", "--objective", "0.995"]
        done = subprocess.run(asked, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert f"{planted.DAY}: {summary(audited.result)}\n" in done.stdout, done.stderr[-3_000:]
    assert done.returncode == 1
