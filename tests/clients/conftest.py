"""The clients in other languages, built once for a test run, and the Kafka and Postgres that they run on."""

from __future__ import annotations

import fcntl
import os
import subprocess

import pytest
from tests.clients.streams_job import MODULE
from tests.programs import program

from batonpass.kafka.broker_parts import find_java

PLUGINS = ("tests.kafka.cluster", "tests.postgres.server")


def pytest_configure(config: pytest.Config) -> None:
    """Register the fixtures of the run's Kafka and Postgres once, whichever folders are run."""
    for plugin in PLUGINS:
        if not config.pluginmanager.has_plugin(plugin):
            config.pluginmanager.import_plugin(plugin)


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Build the module for Kafka Streams with its own tests, once in a run, and return the Java that runs its job."""
    base = tmp_path_factory.getbasetemp()
    # The processes of a parallel run have folders beside one another.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kafka-streams"
    folder.mkdir(exist_ok=True)
    with (folder / "build").open("a") as build:
        fcntl.flock(build, fcntl.LOCK_EX)
        said = folder / "said"
        if not said.exists():
            done = subprocess.run(
                [program("mvn"), "-q", "-B", "verify"], cwd=MODULE, capture_output=True, text=True, check=False
            )
            said.write_text(done.stdout + done.stderr + "\nit failed" if done.returncode else "")
    if failure := said.read_text():
        pytest.fail(failure)
    return find_java()
