"""The processes that are measured: a coordinator on an embedded Postgres, and the bare yardstick."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.serving.wire import Wire, request

from batonpass.postgres.embedded import EmbeddedPostgres
from batonpass.postgres.schema import upgrade
from batonpass.sockets import free_port

TOKEN = "bpt_" + "b" * 43
SERVER_CORE, LOAD_CORE = 0, 1
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Server:
    """A process that serves HTTP on a port of this machine."""

    port: int
    pid: int
    headers: dict[str, str]

    def cpu_s(self) -> float:
        """Return how much processor time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_bytes(self) -> int:
        """Return how much memory it occupies."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
        """Return a request that this server lets in."""
        return request(method, path, body, self.headers | headers)


def pin(core: int) -> None:
    """Keep this process on one core, where that can be said and there is more than one."""
    if hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) > core:
        os.sched_setaffinity(0, {core})


@contextmanager
def _process(command: list[str], port: int, environment: dict[str, str], **headers: str) -> Iterator[Server]:
    with tempfile.TemporaryFile() as output:
        started = subprocess.Popen(
            [sys.executable, *command],
            env=os.environ | environment,
            stdout=output,
            stderr=output,
            preexec_fn=lambda: pin(SERVER_CORE),  # noqa: PLW1509 - it runs no thread that holds a lock
        )
        try:
            yield Server(port, started.pid, dict(headers))
        except BaseException:
            output.seek(0)
            sys.stderr.write(output.read().decode(errors="replace")[-4_000:])
            raise
        finally:
            started.terminate()
            try:
                started.wait(20)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


async def _answering(server: Server, path: str, *, wait_s: float = 60) -> None:
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        try:
            wire = await Wire.open(server.port)
            answer = await wire.ask(server.request("GET", path))
            wire.close()
            if answer.status == 200:
                return
        except OSError:
            pass
        await asyncio.sleep(0.05)
    raise TimeoutError(f"nothing answers on port {server.port}")


@asynccontextmanager
async def bare() -> AsyncIterator[Server]:
    """Run the yardstick."""
    port = free_port()
    with _process(["-m", "tests.benchmarks.serving.bare", str(port)], port, {}) as server:
        await _answering(server, "/")
        yield server


@asynccontextmanager
async def coordinator(database_url: str, *module: str) -> AsyncIterator[Server]:
    """Run a coordinator with authentication, validation, laws and metrics on; as ``module``, with its arguments."""
    port = free_port()
    environment = {
        "BATONPASS_DATABASE_URL": database_url,
        "BATONPASS_PORT": str(port),
        "BATONPASS_ADMIN_TOKEN": TOKEN,
        "BATONPASS_LOG_LEVEL": "warning",
        # One caller stands for all members here, and hurries more than they do.
        "BATONPASS_MEMBER_REQUESTS_PER_S": "10000",
        "BATONPASS_MEMBER_REQUESTS_BURST": "100000",
        "BATONPASS_OPERATOR_REQUESTS_PER_S": "100000",
        "BATONPASS_OPERATOR_REQUESTS_BURST": "1000000",
    }
    with _process(
        ["-m", *(module or ("batonpass", "serve"))], port, environment, authorization=f"Bearer {TOKEN}"
    ) as server:
        await _answering(server, "/readyz")
        yield server


@contextmanager
def postgres() -> Iterator[EmbeddedPostgres]:
    """Run a server that waits for the disk at each commit."""
    with tempfile.TemporaryDirectory(prefix="batonpass-bench-") as folder:
        Path(folder).chmod(0o711)
        with EmbeddedPostgres(Path(folder) / "postgres") as running:
            yield running


async def migrated(server: EmbeddedPostgres) -> str:
    """Return the URL of the server's database, with all tables."""
    await upgrade(server.url)
    return server.url
