"""BATONPASS_TEST_WITHOUT leaves out what it names, says so, and refuses what it does not know."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import LANE_OF

CONFTEST = Path(__file__).resolve().parent / "conftest.py"
SUITE = """
import pytest

@pytest.mark.needs("kafka")
def test_with_a_broker():
    raise RuntimeError("no broker here")

def test_without():
    pass
"""


def suite(folder: Path, without: str) -> subprocess.CompletedProcess[str]:
    """Run two tests, one of which needs a broker that is not there."""
    shutil.copy(CONFTEST, folder / "conftest.py")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = needs(*parts): parts\n")
    (folder / "test_suite.py").write_text(SUITE)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=folder,
        env=os.environ | {"BATONPASS_TEST_WITHOUT": without},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_missing_part_fails_unless_left_out(tmp_path: Path) -> None:
    done = suite(tmp_path, "")
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    done = suite(tmp_path, "kafka, spark")
    assert done.returncode == 0
    assert "left out by BATONPASS_TEST_WITHOUT: kafka, spark" in done.stdout
    assert "1 passed, 1 deselected" in done.stdout


def test_an_unknown_part_is_refused(tmp_path: Path) -> None:
    """A misspelt part would leave out nothing while seeming to."""
    done = suite(tmp_path, "kafak")
    assert done.returncode == 4
    assert "kafak" in done.stderr


def test_lanes_name_files_that_are_there() -> None:
    """A file that was renamed would leave its lane without a word."""
    assert [file for file in LANE_OF if not (CONFTEST.parent.parent / file).is_file()] == []
