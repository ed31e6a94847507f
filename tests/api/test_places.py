"""A coordinator serves so many connections at once, and no more; those that ask for nothing make room for others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from tests.api.pairs import SECRET, Pair, paired
from tests.waiting import until

from batonpass.connections import FOR_PROBES

MOST = 10
PROBES = ("/livez", "/readyz", "/metrics")
POLL = (
    "GET /v1/groups/apples/members/m1/assignment?after=2&wait_ms=60000 HTTP/1.1\r\n"
    f"Host: b\r\nAuthorization: Bearer {SECRET}\r\n\r\n"
).encode()


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def opening(found: Pair) -> AsyncIterator[Callable[..., Awaitable[list[Connection]]]]:
    """Lend a function that opens a connection for each of its texts and sends it there; all are closed at the end."""
    host, port = found.urls[0].removeprefix("http://").split(":")
    made: list[Connection] = []

    async def opened(*said: bytes) -> list[Connection]:
        for text in said:
            made.append(await asyncio.open_connection(host, int(port)))
            made[-1][1].write(text)
        return made[-len(said) :]

    try:
        yield opened
    finally:
        for _, writer in made:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def ended(connections: Sequence[Connection]) -> int:
    """Return how many of them the other side has closed."""
    return sum(reader.at_eof() or reader.exception() is not None for reader, _ in connections)


async def test_who_sends_nothing_keeps_nobody_out() -> None:
    async with paired(connections_max=MOST) as found, opening(found) as opened:
        server = found.servers[0].server_state
        silent = await opened(b"", *[b"GET /livez HTTP/1.1\r\nHost:"] * (MOST - 1))
        await until(lambda: len(server.connections) == MOST)
        for path in ("/v1/groups", *PROBES):
            assert (await found.call("GET", path)).status_code == 200
        assert (ended(silent[:1]), ended(silent)) == (1, 1)
        await opened(*[b""] * 3 * MOST)
        await until(lambda: ended(silent) == MOST)
        await until(lambda: len(server.connections) <= MOST)
        assert (await found.call("GET", "/v1/groups")).status_code == 200
        shown = (await found.call("GET", "/metrics")).text
        assert 'batonpass_connections_cut_total{reason="too-many"}' in shown


async def test_while_all_connections_are_busy_a_coordinator_answers_probes_alone() -> None:
    async with paired(connections_max=MOST) as found, opening(found) as opened:
        server, polls = found.servers[0].server_state, found.processes[0].policy.limits.polls
        await found.declare("apples")
        assert (await found.call("PUT", "/v1/groups/apples/members/m1", json={})).status_code == 201
        busy = await opened(*[POLL] * MOST)
        await until(lambda: polls.taken == MOST)
        for path in PROBES:
            assert (await found.call("GET", path)).status_code == 200
        refused = await found.call("GET", "/v1/groups")
        assert (refused.status_code, refused.headers["connection"]) == (503, "close")
        assert (refused.json()["type"], refused.json()["action"]) == ("coordinator-loading", "retry")
        shown = (await found.call("GET", "/metrics")).text
        assert 'batonpass_requests_refused_total{reason="coordinator-loading"} 1.0' in shown
        idle = await opened(*[b""] * (FOR_PROBES + 5))
        await until(lambda: ended(idle) >= 5)
        assert len(server.connections) <= MOST + FOR_PROBES
        assert (polls.taken, ended(busy)) == (MOST, 0)
        busy[0][1].close()
        await until(lambda: polls.taken < MOST)
        assert (await found.call("GET", "/v1/groups")).status_code == 200
