"""The demonstration's job in containers: `prepare` once, then `load`, and as many `worker` as one likes.

Everything comes from the environment: where the coordinator and the broker are, and how large the job is. A worker is
known by its host name, which is a container's id, or a pod's name.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from batonpass.client import ApiError, CoordinatorClient, Refused, path
from batonpass.demo.job import Job
from batonpass.demo.topics import make_topics, preload
from batonpass.demo.worker import Order
from batonpass.private_files import write_private

PATIENCE_S = 60.0
CONFIG: dict[str, Any] = {
    "num_standby_replicas": 1,
    "acceptable_recovery_lag": 200,
    "heartbeat_interval_ms": 1_000,
    "session_timeout_ms": 10_000,
    "initial_rebalance_delay_ms": 2_000,
    "probing_rebalance_interval_ms": 30_000,
}


def setting(name: str, default: str = "") -> str:
    """Return a setting, or stop with its name where there is none."""
    found = os.environ.get(name, default)
    if not found:
        sys.exit(f"demo: {name} is not set")
    return found


def job() -> Job:
    """Return the job that all parts share."""
    return Job(
        bootstrap=setting("BATONPASS_KAFKA_BOOTSTRAP"),
        group=setting("DEMO_GROUP", "orders"),
        tasks=int(setting("DEMO_TASKS", "12")),
        customers=int(setting("DEMO_CUSTOMERS", "5000")),
        rate=int(setting("DEMO_RATE", "20")),
    )


def token_file() -> Path:
    """Return where `prepare` leaves the workers' token for the workers."""
    return Path(setting("DEMO_TOKEN_FILE", "/run/demo/token"))


def prepare() -> None:
    """Make topics with old state in them, declare the group, and make a token that opens this group alone."""
    told, url = job(), setting("BATONPASS_URL")
    if asyncio.run(make_topics(told)):
        print(f"demo: wrote {asyncio.run(preload(told))} records of state", flush=True)
    try:
        asyncio.run(declare(told, url))
    except ApiError as error:
        sys.exit(f"demo: {error}")
    print(f"demo: group {told.group} is declared at {url}", flush=True)


async def declare(told: Job, url: str) -> None:
    """Declare the group, and make the workers' token; either stays as it is where an earlier run made it."""
    async with CoordinatorClient(url, setting("BATONPASS_TOKEN")) as client:
        group = {"topology": told.topology(), "config": CONFIG}
        try:
            await client.call("PUT", path("groups", told.group), body=group, is_repeatable=True)
        except Refused as refused:
            if refused.kind != "precondition-required":
                raise
        if not token_file().exists():
            wish = {"name": f"{told.group}-workers", "role": "worker", "group": told.group}
            secret = (await client.call("POST", "/tokens", body=wish)).body["secret"]
            # Workers wait for the file: it must be complete when it appears.
            beside = token_file().with_suffix(".new")
            write_private(beside, secret)
            beside.replace(token_file())


def worker() -> None:
    """Become a worker that hands its tasks over before it goes: a container that is scaled away does not come back."""
    ends_at = time.monotonic() + PATIENCE_S
    while not token_file().exists():
        if time.monotonic() > ends_at:
            sys.exit(f"demo: there is no {token_file()}; has `prepare` run?")
        time.sleep(0.5)
    folder = Path(setting("DEMO_FOLDER", "/var/lib/batonpass/worker"))
    order = Order(
        job=job(),
        url=setting("BATONPASS_URL"),
        name=socket.gethostname(),
        folder=str(folder),
        token_file=str(token_file()),
        on_exit=setting("DEMO_ON_EXIT", "drain"),
    )
    become("batonpass.demo.worker", order.words())


def load() -> None:
    """Become the load."""
    become("batonpass.demo.load", job().words())


def become(module: str, *arguments: str) -> None:
    """Replace this process by another program of ours, so that signals reach it."""
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


if __name__ == "__main__":
    # Process 1 of a container has to handle it, or the kernel drops it.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    PARTS = {"prepare": prepare, "worker": worker, "load": load}
    if sys.argv[1:] not in [[name] for name in PARTS]:
        sys.exit(f"usage: demo.py {'|'.join(PARTS)}")
    PARTS[sys.argv[1]]()
