"""A coordinator serves so many connections at once, and no more."""

from __future__ import annotations

import asyncio

import pytest
from tests.api.pairs import paired
from tests.waiting import until

MOST = 10
PROBES = ("/livez", "/readyz", "/metrics")


async def test_beyond_its_connections_a_coordinator_answers_probes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with paired(monkeypatch, connections_max=MOST) as found:
        server = found.servers[0].server_state
        port = int(found.urls[0].rpartition(":")[2])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST)]
        await until(lambda: len(server.connections) == MOST)
        for path in PROBES:
            assert (await found.call("GET", path)).status_code == 200
        refused = await found.call("GET", "/v1/groups")
        assert (refused.status_code, refused.headers["connection"]) == (503, "close")
        assert (refused.json()["type"], refused.json()["action"]) == ("coordinator-loading", "retry")
        shown = (await found.call("GET", "/metrics")).text
        assert 'batonpass_requests_refused_total{reason="coordinator-loading"} 1.0' in shown
        idle.pop()[1].close()
        await until(lambda: len(server.connections) <= MOST, within_s=5)
        assert (await found.call("GET", "/v1/groups")).status_code == 200
        for _, writer in idle:
            writer.close()
