"""What `make run` starts works wherever a user starts it: in any folder, locale, umask, and behind any proxy.

`make test` tries all oddities at once, `make soak` one by one: BATONPASS_ENVIRONMENTS names some, with commas between
them, or `*`.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.running import PATIENCE_S, PROGRAM, environment
from tests.waiting import wait_until

pytestmark = pytest.mark.needs("kafka")

TURKISH = "tr_TR.UTF-8"
DEAD = "http://127.0.0.1:9"


@dataclass(frozen=True)
class Odd:
    """An environment: the name of the data folder, variables, the mask of new files, how many may be open."""

    folder: str = "data"
    variables: Mapping[str, str] = field(default_factory=dict)
    umask: int = 0o022
    files: int | None = None
    locale: str | None = None
    """A locale that is made for the test, where the system can make it."""


ENVIRONMENTS = {
    "all at once": Odd(
        'dätä, "räume" 100% \\n日本',
        {
            "LC_ALL": "POSIX",
            "LANG": "xx_XX.UTF-8",
            "PYTHONIOENCODING": "ascii",
            "http_proxy": DEAD,
            "all_proxy": "socks5://127.0.0.1:9",
            "no_proxy": "[::1],fd00::/8",
            "SPARK_HOME": "/nowhere",
            "BATONPASS_PATIENCE": " 20s\n",
        },
        umask=0o077,
    ),
    "a folder outside ASCII": Odd("dätä"),
    "a comma": Odd("a,b"),
    "blanks and quotes": Odd("a 'b' \"c\" $d %e"),
    "a folder with a backslash": Odd("a\\nb"),
    "LC_ALL=C": Odd("dätä", {"LC_ALL": "C"}),
    "a locale that is not there": Odd("dätä", {"LANG": "xx_XX.UTF-8"}),
    "no UTF-8 at all": Odd("data", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "Turkish": Odd("dätä", {"LANG": TURKISH}, locale=TURKISH),
    "umask 077": Odd(umask=0o077),
    "umask 027": Odd(umask=0o027),
    "a dead proxy": Odd(variables={"http_proxy": DEAD, "https_proxy": DEAD, "all_proxy": DEAD}),
    "a SOCKS proxy": Odd(variables={"all_proxy": "socks5://127.0.0.1:9", "no_proxy": "[::1]"}),
    "no home": Odd(variables={"HOME": ""}),
    "few files": Odd(files=1_024),
    "Python's own settings": Odd(
        variables={"PYTHONOPTIMIZE": "2", "PYTHONWARNINGS": "error", "PYTHONIOENCODING": "ascii", "PIP_USER": "1"}
    ),
    "another zone of time": Odd(variables={"TZ": "America/New_York", "TERM": "dumb", "COLUMNS": "10"}),
}
WANTED = os.environ.get("BATONPASS_ENVIRONMENTS", "all at once").split(",")


@pytest.mark.parametrize("name", [*ENVIRONMENTS] if WANTED == ["*"] else WANTED)
def test_everything_runs_there(name: str, open_folder: Path, tmp_path: Path, kafka_here: dict[str, str]) -> None:
    odd = ENVIRONMENTS[name]
    around = environment(tmp_path) | kafka_here | dict(odd.variables)
    if odd.locale is not None:
        around["LOCPATH"] = str(made(odd.locale, tmp_path / "locales"))
    parent = open_folder / name.replace(" ", "-")
    # Its copy of the database's programs, where there is one, is made as its umask has it.
    parent.mkdir()
    folder = parent / odd.folder
    command = [*PROGRAM, "up", "--json", "--data", str(folder), "--port", "0", "--workers", "1", "--no-audit"]
    errors = tmp_path / "errors"
    with (
        errors.open("wb") as written,
        subprocess.Popen(
            [*command, "--dashboard-port", "0"],
            stdout=subprocess.PIPE,
            stderr=written,
            env=around,
            umask=odd.umask,
            preexec_fn=with_files(odd.files),  # noqa: PLW1509 - it only sets a limit
        ) as up,
    ):
        try:
            assert up.stdout is not None
            line = up.stdout.readline()
            assert line, errors.read_text(errors="replace")
            said = json.loads(line)
            assert said["kafka"], errors.read_text(errors="replace")
            asked = [*PROGRAM, "members", "totals", "--json", "--data", str(folder)]
            wait_until(lambda: running_tasks(asked, around) == 12, within_s=PATIENCE_S)
            up.send_signal(signal.SIGINT)
            up.wait(PATIENCE_S)
        finally:
            up.kill()
    written_there = errors.read_text(errors="replace")
    assert (up.returncode, "batonpass:" in written_there, "Traceback" in written_there) == (0, False, False), (
        written_there
    )
    assert [path.name for path in parent.iterdir()] == [odd.folder]


def running_tasks(command: list[str], around: Mapping[str, str]) -> int:
    """Return how many tasks run, by the word of a command in the same environment."""
    done = subprocess.run(command, env=around, capture_output=True, text=True, check=True)
    members: list[dict[str, Any]] = json.loads(done.stdout)["members"]
    return sum(report.get("state") == "running" for one in members for report in one["reports"].values())


def with_files(most: int | None) -> Callable[[], None]:
    """Return what a child runs first, to have a limit on its open files."""
    return lambda: None if most is None else resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def made(locale: str, folder: Path) -> Path:
    """Return a folder with a locale that this machine need not have."""
    localedef = shutil.which("localedef")
    if localedef is None:
        pytest.skip("this machine can make no locale")
    folder.mkdir()
    name, _, charset = locale.partition(".")
    command = [localedef, "--no-archive", "-i", name, "-f", charset, str(folder / locale)]
    subprocess.run(command, capture_output=True, check=True)
    return folder
