"""A coordinator serves so many connections at once, and no more."""

from __future__ import annotations

import asyncio

import pytest
from tests.api.pairs import paired


async def test_connections_have_a_number_of_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every place taken, idle or not, a request is 503; when one is free again, it is answered."""
    async with paired(monkeypatch, connections_max=10) as found:
        port = int(found.urls[0].rpartition(":")[2])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        await asyncio.sleep(0.05)
        assert (await found.call("GET", "/livez")).status_code == 503
        for _, writer in idle:
            writer.close()
        await asyncio.sleep(0.05)
        assert (await found.call("GET", "/livez")).status_code == 200
