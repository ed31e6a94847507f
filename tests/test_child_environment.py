"""What programs find that this one starts."""

import subprocess
import sys
from pathlib import Path

from batonpass.child_environment import child_environment


def test_a_child_imports_nothing_from_the_folder_in_which_it_is_started(tmp_path: Path) -> None:
    """There may be anything, written by anybody: `batonpass worker` and `audit` are started in any folder."""
    (tmp_path / "random.py").write_text("raise SystemExit('a program of somebody else')")
    command = [sys.executable, "-m", "batonpass", "--version"]
    done = subprocess.run(command, cwd=tmp_path, env=child_environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:9]) == (0, "batonpass"), done.stderr
