"""The change that docs/first-hour.md makes is possible as it stands there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_rule_of_the_first_hour_fails_and_then_passes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "first-hour.md").read_text()
    (test,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (change,) = re.findall(r"```diff\n(.*?)```", page, re.DOTALL)
    for folder in ("service", "tests", "migrations"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "tests" / "core" / "test_budget.py").open("a") as tests:
        tests.write("\nfrom batonpass.core.state.inputs import ResumeRequest\n" + test)

    def outcome() -> str:
        command = [sys.executable, "-m", "pytest", "-q", "tests/core/test_budget.py", "-k", "heavier"]
        path = {"PYTHONPATH": str(tmp_path / "service")}
        return subprocess.run(command, check=False, cwd=tmp_path, env=path, capture_output=True, text=True).stdout

    assert "assert ['0_0'] == ['1_0']" in outcome()
    subprocess.run(["git", "apply"], cwd=tmp_path, input=change, text=True, check=True)
    assert "1 passed" in outcome()
