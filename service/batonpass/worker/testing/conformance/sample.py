"""A client for the kit, made with the SDK: `python -m batonpass.worker.testing.conformance.sample`."""

import asyncio
import contextlib
import os

import httpx2 as httpx

from batonpass.http_clients import http_client
from batonpass.worker import Callbacks, Member, Revocation, Task

EVERY_S = 0.1


class Writer(Callbacks):
    """Writes to the sink while a task runs."""

    def __init__(self, sink: str) -> None:
        self._sink = sink
        self._client = http_client([sink], timeout=2)

    async def on_active(self, task: Task) -> None:
        task.running()
        task.load(0.1)
        while task.may_process and not task.stopping:
            with contextlib.suppress(httpx.HTTPError):
                await self._client.put(f"{self._sink}/{task.id}", json={"fencing_token": task.fencing_token})
            await asyncio.sleep(EVERY_S)

    async def on_standby(self, task: Task) -> None:
        task.report(lag=0)

    async def on_revoke(self, task: Task, revocation: Revocation) -> int | None:
        """Let the write under way end, if there is time for that."""
        if revocation.commit:
            await task.finished()
        return None


async def main() -> None:
    environment = os.environ
    member = Member(
        environment["BATONPASS_URL"],
        environment["BATONPASS_GROUP"],
        Writer(environment["BATONPASS_SINK"]),
        instance_id=environment["BATONPASS_INSTANCE"],
        request_timeout_ms=1_000,
    )
    member.start()
    await member.run()


if __name__ == "__main__":
    asyncio.run(main())
