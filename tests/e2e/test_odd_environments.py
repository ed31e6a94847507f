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

import httpx2 as httpx
import pytest
from tests.e2e.running import PATIENCE_S, PROGRAM, environment
from tests.e2e.test_up import descendants
from tests.programs import is_alive
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
            "PROMETHEUS_MULTIPROC_DIR": "/nowhere",
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
    "Prometheus for several processes": Odd(variables={"PROMETHEUS_MULTIPROC_DIR": "/nowhere"}),
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
            authorization = {"authorization": f"Bearer {said['token']}"}
            with httpx.Client(base_url=f"{said['url']}/v1/groups/totals", headers=authorization, timeout=30) as totals:
                wait_until(lambda: running_tasks(totals) == {"totals-1": 12}, within_s=PATIENCE_S)
                joins = [*PROGRAM, "worker", "--data", str(folder)]
                with subprocess.Popen(joins, stdout=subprocess.PIPE, env=around, umask=odd.umask) as worker:
                    assert worker.stdout is not None
                    assert worker.stdout.readline().startswith(b"Worker totals-2 joins group totals")
                    wait_until(lambda: running_tasks(totals) == {"totals-1": 6, "totals-2": 6})
                    worker.send_signal(signal.SIGTERM)
                    assert worker.wait(30) == 0
                before = totalled(totals)
                wait_until(lambda: totalled(totals) > before > 0)
            asked = [*PROGRAM, "members", "totals", "--json", "--data", str(folder)]
            done = subprocess.run(asked, env=around, capture_output=True, text=True, check=True)
            assert "totals-1" in {one["instance_id"] for one in json.loads(done.stdout)["members"]}
            started = descendants(up.pid)
            up.send_signal(signal.SIGINT)
            up.wait(PATIENCE_S)
            assert not [pid for pid in started if is_alive(pid)]
        finally:
            up.kill()
    written_there = errors.read_text(errors="replace")
    assert (up.returncode, "batonpass:" in written_there, "Traceback" in written_there) == (0, False, False), (
        written_there
    )
    assert [path.name for path in parent.iterdir()] == [odd.folder]
    assert not (folder / "job.json").exists()


def running_tasks(totals: httpx.Client) -> dict[str, int]:
    """Return how many tasks run on each worker, by its own word."""
    members = totals.get("/members").json()["members"]
    states = {one["instance_id"]: [report.get("state") for report in one["reports"].values()] for one in members}
    return {name: found.count("running") for name, found in states.items() if found.count("running")}


def totalled(totals: httpx.Client) -> int:
    """Return how many amounts the totals of ten customers hold, by the word of the task's owner."""
    active = totals.get("/tasks/0_1/route").json()["active"]
    answers = [httpx.get(f"{active['endpoint']}/0_1/{number}") for number in range(10)]
    return sum(answer.json()["count"] for answer in answers)


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
