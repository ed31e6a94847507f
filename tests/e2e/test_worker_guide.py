"""Every program and command of the worker guide works as it stands; tests/worker/kafka has what needs a broker."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.test_handover_by_curl import Shell, commands_of

from batonpass.sockets import free_port
from batonpass.worker import Exit, OnLeaseLost

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "worker-guide.md"
DEFAULT = "http://127.0.0.1:8420"
LINES_PROMISED = 40


def programs() -> dict[str, str]:
    """Return the programs of the page by the file name in their first line."""
    blocks = re.findall(
        r"^```(?:python|bash)\n# (\S+\.(?:py|sh))\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return dict(blocks)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the programs of the page."""
    for name, text in programs().items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def shell(folder: Path) -> Iterator[Shell]:
    """Return a shell in that folder, whose ``python`` is the one that runs the tests; it leaves nothing running."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        ["/bin/bash"],
        cwd=folder,
        env=os.environ | {"PATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield Shell(process)
        finally:
            os.killpg(process.pid, 9)


def test_the_page_has_the_programs_that_it_speaks_of() -> None:
    """The first of them is as short as the page says."""
    found = programs()
    assert set(found) == {
        "totals.py", "worker.sh", "before.py", "after.py", "service.py", "blocking.py", "app.py", "test_totals.py",
    }  # fmt: skip
    lines = [line for line in found["totals.py"].splitlines() if line.strip()]
    assert len(lines) <= LINES_PROMISED


def test_every_command_of_the_page_does_what_the_page_shows(shell: Shell) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    commands = [one for one in commands_of(PAGE.read_text()) if not one.script.startswith("# ")]
    assert len([command for command in commands if command.shown_as]) == 5
    for command in commands:
        printed = shell.run(
            command.script.replace(DEFAULT, url).replace("--port 8420", f"--port {url.rpartition(':')[2]}")
        )
        where = f"line {command.line} of {PAGE.name} printed\n{printed}"
        assert printed.split() == command.shown.split(), where


def test_the_arguments_that_the_page_shows_are_those_of_a_member(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "token").write_text("secret")
    names: dict[str, object] = {}
    exec(compile(programs()["service.py"], "service.py", "exec"), names)  # noqa: S102 - the page's own program
    options = names["member"].options  # type: ignore[attr-defined]
    assert (options.instance_id, options.on_exit, options.on_lease_lost) == (
        "orders-0",
        Exit.RESTART,
        OnLeaseLost.CONTINUE,
    )
    assert options.token() == "secret"


def test_the_test_of_the_page_passes(folder: Path) -> None:
    """It can fail, too."""
    path = folder / "test_totals.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(path)]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    passed = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=alone, check=False)
    assert "1 passed" in passed.stdout, passed.stdout
    path.write_text(path.read_text().replace("sleep(11)", "sleep(1)"))
    failed = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=alone, check=False)
    assert "1 failed" in failed.stdout, failed.stdout


def test_the_threaded_worker_and_the_application_of_the_page_work(folder: Path, shell: Shell) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    topology = '{"topology": {"subtopologies": [{"id": "0", "partitions": 1, "changelog_topics": ["totals"]}]}}'
    shell.run(
        f"python -m batonpass.worker.testing --port {url.rpartition(':')[2]} > coordinator.log &\n"
        "until grep -q listens coordinator.log; do sleep 0.1; done\n"
        f"curl -s -o answer -X PUT {url}/v1/groups/orders -d '{topology}'\n"
    )
    printed = shell.run(
        f"python blocking.py {url} orders > blocking.log & WORKER=$!\n"
        "until grep -q 'working on 0_0' blocking.log; do sleep 0.1; done\n"
        "kill $WORKER; wait $WORKER; echo $?\n"
    )
    assert printed.split() == ["0"]
    (folder / "app.py").write_text(programs()["app.py"].replace(DEFAULT, url))
    # Asked for only now: while the coordinator's was not bound yet, it could have been the same.
    port = free_port()
    printed = shell.run(
        f"python -m uvicorn app:app --port {port} --log-level warning & APP=$!\n"
        f"for _ in $(seq 600); do curl -s {url}/v1/groups/orders | grep -q '\"members\":1' && break; sleep 0.1; done\n"
        "kill $APP; wait $APP\n"
        f"curl -s {url}/v1/groups/orders | grep -o '\"members\":0'\n"
    )
    assert printed.split() == ['"members":0']
