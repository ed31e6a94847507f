"""What `make` prepares goes into .venv, whatever a user has set; and where it cannot, it says so in a sentence."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".ci"
INSTALL = (
    "import environment; environment.run(environment.VENV / 'bin' / 'python', '-m', 'pip', 'install', '--no-index',"
    " '--disable-pip-version-check', 'pip')"
)


@pytest.mark.parametrize("setting", [{"PIP_USER": "1"}, {"PIP_TARGET": "elsewhere"}, {"PIP_PREFIX": "elsewhere"}, {}])
def test_packages_go_into_the_environment(setting: dict[str, str], tmp_path: Path) -> None:
    own = tmp_path / "pip.conf"
    own.write_text("[install]\nuser = true\n")
    done = subprocess.run(
        [sys.executable, "-c", INSTALL],
        cwd=FOLDER,
        env=os.environ
        | {name: said.replace("elsewhere", str(tmp_path)) for name, said in setting.items()}
        | {"PIP_CONFIG_FILE": str(own)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"already satisfied: pip in {ROOT}" in done.stdout.replace("./", f"{ROOT}/")
    assert [path.name for path in tmp_path.iterdir()] == ["pip.conf"]


def test_a_clone_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / ".ci", ignore=shutil.ignore_patterns("__pycache__"))
    # In the way of the folder, for whoever may write everywhere.
    (tmp_path / ".cache").write_text("")
    command = [sys.executable, str(tmp_path / ".ci" / "environment.py"), "run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"cannot write to {tmp_path}" in done.stderr
    assert "Traceback" not in done.stderr
