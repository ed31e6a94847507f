"""One `batonpass up` without workers, and one with them, for all tests that do not stop it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.running import Up, running

from batonpass.kafka.broker import BOOTSTRAP_VARIABLE
from batonpass.kafka.broker_parts import find_jars, find_java


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which commands look for what runs."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def kafka_here() -> dict[str, str]:
    """The variables by which a program that a test starts finds a broker, whatever its home is."""
    if given := os.environ.get(BOOTSTRAP_VARIABLE):
        return {BOOTSTRAP_VARIABLE: given}
    return {"BATONPASS_KAFKA_JARS": str(find_jars(find_java(), lambda _: None))}


@pytest.fixture(scope="package")
def up(open_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A coordinator without groups; tests name their groups after themselves."""
    with running(open_folder / "bare", "--no-demo", home=tmp_path_factory.mktemp("home")) as found:
        yield found
        found.stop()


@pytest.fixture(scope="package")
def demo(open_folder: Path, home: Path) -> Iterator[Up]:
    """A coordinator with three simulated workers, in a folder whose path has spaces and is too long for a socket."""
    folder = open_folder / "with workers" / ("long" * 15) / ("longer" * 10)
    with running(folder, home=home) as found:
        yield found
        found.stop()
