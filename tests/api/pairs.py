"""Two coordinators in this process that divide the groups between them, each behind a socket of its own."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx
import uvicorn
from pydantic import SecretStr
from tests.contracts.memory_store import MemoryLog, MemoryStore

from batonpass.bootstrap import Process, Server, build
from batonpass.core.state.ids import GroupId
from batonpass.runtime.ports import Ownership
from batonpass.settings import Settings
from batonpass.sockets import bind, url_of

SECRET = "an-admin-secret-of-enough-length"  # noqa: S105 - the token that these tests make
BEARER = {"authorization": f"Bearer {SECRET}"}


class Divided(Ownership):
    """Gives groups to coordinators by the first letter of their names."""

    def __init__(self, owners: dict[str, str]) -> None:
        self.owners = owners
        self.own = ""

    def holds(self, group_id: GroupId) -> bool:
        """Say whether the group is this coordinator's own."""
        return self.owners.get(group_id[:1], self.own) == self.own

    def others(self) -> list[str]:
        """Return the URLs of the other coordinators."""
        return sorted(set(self.owners.values()) - {self.own})

    def owner_url(self, group_id: GroupId) -> str | None:
        """Return the URL of the other coordinator whose it is."""
        return None if self.holds(group_id) else self.owners[group_id[:1]]


@asynccontextmanager
async def listening(server: uvicorn.Server, listener: Any) -> AsyncIterator[None]:
    """Run a server on a socket, without its handling of signals."""
    running = asyncio.create_task(server._serve([listener]))
    while not server.started:
        assert not running.done(), running
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.wait_for(running, 20)


@dataclass
class Pair:
    """Two coordinators, and a client of the first. Groups with an ``a`` are the first's, with a ``b`` the other's."""

    client: httpx.AsyncClient
    processes: list[Process] = field(default_factory=list)
    servers: list[Server] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Make a call to the first coordinator."""
        headers = BEARER | options.pop("headers", {})
        return await self.client.request(method, f"{self.urls[0]}{path}", headers=headers, **options)

    async def declare(self, group: str) -> None:
        """Declare a group with one task through the first coordinator."""
        topology = {"subtopologies": [{"id": "0", "partitions": 1, "changelog_topics": ["s"]}]}
        config = {"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0}
        assert (await self.call("PUT", f"/v1/groups/{group}", json={"topology": topology, "config": config})).is_success

    async def stop(self, number: int) -> None:
        """Stop a coordinator in good order, and wait until nobody listens under its URL."""
        self.servers[number].should_exit = True
        async with asyncio.timeout(10):
            while True:
                try:
                    await self.client.get(f"{self.urls[number]}/livez")
                except httpx.TransportError:
                    return
                await asyncio.sleep(0.02)

    def log(self, number: int) -> MemoryLog:
        """Return what a coordinator has committed."""
        log = self.processes[number].store.log
        assert isinstance(log, MemoryLog)
        return log

    def decided(self, number: int, item: str) -> float:
        """Return how often a coordinator decided on an input of a kind."""
        found = 0.0
        for family in self.processes[number].counts.registry.collect():
            for sample in family.samples:
                if sample.name == "batonpass_decisions_total" and sample.labels["input"] == item:
                    found += sample.value
        return found


@asynccontextmanager
async def paired(context: ssl.SSLContext | None = None, **more: Any) -> AsyncIterator[Pair]:
    """Run two coordinators that divide the groups between them."""

    def divided(url: str) -> MemoryStore:
        store = MemoryStore()
        store.ownership = Divided(owners)
        store.ownership.own = url
        return store

    owners: dict[str, str] = {}
    settings = Settings(admin_token=SecretStr(SECRET), shutdown_s=2, **more)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=20, verify=context or True))
        found = Pair(client, owners=owners)
        for letter in ("a", "b"):
            listener = bind("127.0.0.1", 0)
            url = url_of(listener, is_tls=settings.is_tls)
            owners[letter] = url
            process = build(settings, divided(url))
            server = Server(process, listening=lambda: None)
            await stack.enter_async_context(listening(server, listener))
            found.urls.append(url)
            found.processes.append(process)
            found.servers.append(server)
        yield found
