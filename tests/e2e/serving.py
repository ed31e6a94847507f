"""`batonpass serve` as processes of their own, on one database."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import httpx2 as httpx
from tests.e2e.running import PATIENCE_S
from tests.waiting import wait_until

SECRET = "an-admin-secret-of-enough-length"  # noqa: S105 - the token that these tests make
BEARER = {"authorization": f"Bearer {SECRET}"}
TOPOLOGY = {"subtopologies": [{"id": "0", "partitions": 2, "changelog_topics": ["s"]}]}
CONFIG = {"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0, "acceptable_recovery_lag": 10}


@dataclass
class Served:
    """One coordinator process."""

    process: subprocess.Popen[str]
    url: str
    errors: IO[str]

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Make a call under the admin's token."""
        headers = BEARER | options.pop("headers", {})
        return httpx.request(method, f"{self.url}{path}", headers=headers, timeout=30, **options)

    def lines(self) -> list[dict[str, Any]]:
        """Return what it wrote to standard error, a line each."""
        self.errors.seek(0)
        return [json.loads(line) for line in self.errors.read().splitlines()]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Have it end, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE_S)


@contextmanager
def serving(database_url: str, **settings: str) -> Iterator[Served]:
    """Run `batonpass serve`; yield when it is ready. What still runs at the end is killed."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("BATONPASS_")}
    named = {f"BATONPASS_{name.upper()}": text for name, text in settings.items()}
    around = kept | {"BATONPASS_DATABASE_URL": database_url, "BATONPASS_ADMIN_TOKEN": SECRET} | named
    command = [sys.executable, "-m", "batonpass", "serve", "--port", "0", "--json"]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=around) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                errors.seek(0)
                raise AssertionError(errors.read())
            found = Served(process, json.loads(line)["url"], errors)
            if found.url.startswith("http:"):
                wait_until(lambda: httpx.get(f"{found.url}/readyz").status_code == 200)
            yield found
        finally:
            if process.poll() is None:
                process.kill()


def declare(served: Served, group: str, **config: Any) -> None:
    """Declare a group with two tasks, and wait for nothing."""
    body = {"topology": TOPOLOGY, "config": CONFIG | config}
    answer = served.call("PUT", f"/v1/groups/{group}", json=body)
    assert answer.is_success, answer.text
