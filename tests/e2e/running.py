"""`batonpass up` as a process of its own, and what a test wants to know of it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx2 as httpx
from typer.testing import CliRunner, Result

from batonpass.cli import app

PROGRAM = [sys.executable, "-m", "batonpass"]
STARTED = "Ctrl-C stops all of it"
PATIENCE_S = 90.0
"""Machines that are busy with other things start slowly."""


@dataclass
class Up:
    """One run of `up`."""

    process: subprocess.Popen[str]
    folder: Path
    url: str
    token: str
    greeting: str
    environment: Mapping[str, str]
    """For a command that is a process of its own. It names the folder: root's commands find the `up` on root's default
    folder from any home, and do not choose between two."""

    def client(self, **options: Any) -> httpx.Client:
        """Return a client of its REST interface, with its token."""
        headers = {"authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=f"{self.url}/v1", headers=headers, timeout=30, **options)

    def run(self, *arguments: str) -> Result:
        """Run a command of its user, in this process: it finds the coordinator and the token by itself."""
        hidden: dict[str, str | None] = dict.fromkeys(name for name in os.environ if name.startswith("BATONPASS_"))
        # Root's default folder is the machine's, and whoever runs the tests may have an `up` on it; others' is in HOME.
        around = {**hidden, **self.environment, "BATONPASS_DATA": None}
        # A command has an event loop of its own, and the test that asks may have one in this thread.
        with patch("batonpass.cli.folder._is_root", return_value=False), ThreadPoolExecutor(1) as thread:
            return thread.submit(CliRunner().invoke, app, list(arguments), env=around).result()

    def ask(self, *arguments: str) -> Any:
        """Run a command with --json and return what it says; it must succeed."""
        done = self.run(*arguments, "--json")
        assert done.exit_code == 0, (arguments, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def workers(self) -> dict[str, int]:
        """Return the process ids of the workers that it named."""
        return {name: int(pid) for name, pid in re.findall(r"(\w+-\d+) \(process (\d+)\)", self.greeting)}

    def stop(self, number: signal.Signals = signal.SIGINT) -> tuple[str, str]:
        """Have it end; return what it wrote since the greeting."""
        self.process.send_signal(number)
        return self.process.communicate(timeout=PATIENCE_S)


def environment(home: Path) -> dict[str, str]:
    """Return an environment in which nothing of whoever runs the tests shows."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("BATONPASS_")}
    return kept | {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "XDG_DATA_HOME": str(home / "share")}


@contextmanager
def running(
    folder: Path, *options: str, home: Path, port: int = 0, broker: Mapping[str, str] | None = None
) -> Iterator[Up]:
    """Run `batonpass up` on a folder; yield when it has said its greeting. What still runs at the end is killed.

    ``broker`` are the variables by which it finds a broker; None: it starts simulated workers, and no broker.
    """
    command = [*PROGRAM, "up", "--data", str(folder), "--port", str(port), *options]
    command += ["--simulated"] if broker is None else []
    # Two processes less in each of many tests; those that look at them ask for them.
    command += [] if "--dashboard-port" in options else ["--no-dashboard"]
    command += [] if "--audit" in options else ["--no-audit"]
    around = environment(home) | dict(broker or {})
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=around) as process:
        try:
            assert process.stdout is not None
            greeting = ""
            while STARTED not in greeting:
                line = process.stdout.readline()
                assert line, greeting + (process.stderr.read() if process.stderr else "")
                greeting += line
            url = re.search(r"listens on (http://\S+)", greeting)
            token = re.search(r"^token: (\S+)$", greeting, re.MULTILINE)
            assert url is not None, greeting
            assert token is not None, greeting
            yield Up(process, folder, url[1], token[1], greeting, around | {"BATONPASS_DATA": str(folder)})
        finally:
            if process.poll() is None:
                process.kill()
