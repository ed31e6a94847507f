"""The clients in other languages, built once for a test run."""

import fcntl
import os
import subprocess

import pytest
from tests.clients.streams_job import MODULE
from tests.programs import program

from batonpass.kafka.broker_parts import find_java

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that ends before it would be faster for being optimised."""


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Build the module for Kafka Streams with its own tests, once in a run, and return the Java that runs its job."""
    base = tmp_path_factory.getbasetemp()
    # The processes of a parallel run have folders beside one another.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kafka-streams"
    folder.mkdir(exist_ok=True)
    with (folder / "build").open("a") as build:
        fcntl.flock(build, fcntl.LOCK_EX)
        failure_file = folder / "failure"
        if not failure_file.exists():
            command = [program("mvn"), "-q", "-B", f"-DargLine={SHORT_LIVED}", "verify"]
            around = {"MAVEN_OPTS": SHORT_LIVED} | os.environ
            done = subprocess.run(command, cwd=MODULE, env=around, capture_output=True, text=True, check=False)
            failure_file.write_text(done.stdout + done.stderr + "\nit failed" if done.returncode else "")
    if failure := failure_file.read_text():
        pytest.fail(failure)
    return find_java()
