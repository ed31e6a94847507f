"""The event stream as a client sees it: pages, and server-sent events that neither miss nor repeat anything."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import pytest
import uvicorn
from tests.api.conftest import Api, serving
from tests.api.test_gate import Access
from tests.api.test_views import begin_handover
from tests.schemas.validating import faults

from batonpass.api import events as api_events
from batonpass.runtime.history import NOBODY_ASKED
from batonpass.runtime.places import Places
from batonpass.runtime.ports import StoreUnavailable

SSE = {"Accept": "text/event-stream"}


class Listener:
    """A client of one stream, on the application itself."""

    def __init__(self, api: Api, path: str, headers: dict[str, str]) -> None:
        self._app = api.client._transport.app  # type: ignore[attr-defined]
        name, _, query = path.partition("?")
        given = [
            (key.lower().encode(), value.encode()) for key, value in ({"Host": "localhost"} | SSE | headers).items()
        ]
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": name,
            "raw_path": name.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": given,
            "client": ("127.0.0.1", 1),
            "server": ("batonpass", 80),
        }
        self._sent: asyncio.Queue[Any] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._asked = False
        self._rest = b""
        self.last_id: int | None = None
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.comments = 0
        self.ended = False
        self.serving = asyncio.create_task(self._app(self._scope, self._receive, self._sent.put))

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def begin(self) -> None:
        """Wait for the beginning of the answer."""
        start = await asyncio.wait_for(self._sent.get(), 2)
        self.status, self.headers = start["status"], dict(start["headers"])

    async def frame(self) -> dict[str, str] | None:
        """Return the fields of the next frame; None at the end. A frame without data only moves the id."""
        while b"\n\n" not in self._rest:
            message = await asyncio.wait_for(self._sent.get(), 2)
            self._rest += message["body"]
            if not message.get("more_body"):
                self.ended = True
                return None
        text, _, self._rest = self._rest.partition(b"\n\n")
        fields: dict[str, str] = {}
        for line in text.decode().split("\n"):
            name, _, value = line.partition(": ")
            fields[name] = value
            self.comments += line.startswith(":")
        if "id" in fields:
            self.last_id = int(fields["id"])
        return fields

    async def take(self, count: int) -> list[dict[str, Any]]:
        """Return the next events, each of which must be as described."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            fields = await self.frame()
            assert fields is not None
            if "data" in fields:
                event = json.loads(fields["data"])
                if "event" not in fields:
                    assert faults("event", event) == []
                    assert event["position"] == self.last_id
                found.append(event)
        return found

    async def leave(self) -> None:
        """Go away."""
        self._gone.set()
        await asyncio.wait_for(self.serving, 2)


@asynccontextmanager
async def listening(api: Api, path: str, **headers: str) -> AsyncIterator[Listener]:
    """Follow a stream."""
    listener = Listener(api, path, {name.replace("_", "-"): value for name, value in headers.items()})
    await listener.begin()
    try:
        yield listener
    finally:
        await listener.leave()


async def test_events_come_page_by_page(api: Api) -> None:
    await begin_handover(api)
    first = (await api.call("GET", "/orders/events?limit=4")).json()
    assert ([one["position"] for one in first["events"]], first["next"], first["more"]) == ([1, 2, 3, 4], 4, True)
    rest = (await api.call("GET", "/orders/events?after=4")).json()
    assert rest["more"] is False
    types = [one["type"] for one in first["events"] + rest["events"]]
    assert types[:3] == ["group-declared", "member-joined", "generation"]
    assert types[-1] == "warmup-started"
    end = (await api.call("GET", f"/orders/events?after={rest['next']}")).json()
    assert end == {"events": [], "next": rest["next"], "more": False}
    everywhere = (await api.client.get("/v1/events?limit=1000")).json()
    assert faults("events_get", everywhere) == []
    assert [one["type"] for one in everywhere["events"]] == types


async def test_events_can_be_read_backwards(api: Api) -> None:
    await begin_handover(api)
    forwards = (await api.call("GET", "/orders/events")).json()["events"]
    first = (await api.call("GET", "/orders/events?newest=true&limit=3")).json()
    assert (first["events"], first["more"]) == (forwards[:-4:-1], True)
    rest = (await api.call("GET", f"/orders/events?before={first['next']}")).json()
    assert (first["events"] + rest["events"], rest["more"]) == (forwards[::-1], False)
    assert (await api.call("GET", "/orders/events?before=1")).json() == {"events": [], "next": 0, "more": False}
    both = await api.call("GET", "/orders/events?before=4&after=1")
    assert (both.status_code, both.json()["errors"][0]["path"]) == (422, "query.after")


async def test_a_stream_tells_what_happens_as_it_is_committed(api: Api) -> None:
    await api.declare()
    async with listening(api, "/v1/groups/orders/events") as listener:
        assert (listener.status, listener.headers[b"content-type"]) == (200, b"text/event-stream")
        assert listener.headers[b"cache-control"] == b"no-store"
        first = await listener.frame()
        assert first == {"retry": str(api_events.RECONNECT_MS), "id": "1"}
        await api.join("m1")
        assert [one["type"] for one in await listener.take(2)] == ["member-joined", "generation"]
        assert len(api.coordinator.feed) == 1
    assert len(api.coordinator.feed) == 0


async def test_a_broken_stream_is_resumed_where_it_broke(api: Api) -> None:
    """Protocol 12.2."""
    await api.declare()
    async with listening(api, "/v1/groups/orders/events") as listener:
        await api.join("m1")
        seen = await listener.take(1)
    await api.call("POST", "/orders/pause", {"reason": "deploy"})
    async with listening(api, "/v1/groups/orders/events", Last_Event_ID=str(seen[-1]["position"])) as listener:
        seen += await listener.take(2)
        await api.call("POST", "/orders/resume")
        seen += await listener.take(1)
    whole = (await api.call("GET", "/orders/events?after=1")).json()["events"]
    assert seen == whole[: len(seen)]
    assert [one["type"] for one in seen] == ["member-joined", "generation", "paused", "resumed"]


async def test_a_stream_may_begin_anywhere(api: Api) -> None:
    """`Last-Event-ID` goes before `after`."""
    await api.declare()
    await api.join("m1")
    async with listening(api, "/v1/events?after=0") as listener:
        assert [one["position"] for one in await listener.take(3)] == [1, 2, 3]
    async with listening(api, "/v1/events?after=0", Last_Event_ID="2") as listener:
        assert [one["position"] for one in await listener.take(1)] == [3]


async def test_a_position_that_the_store_does_not_have_is_answered_with_missed(api: Api) -> None:
    """A client with an id of a store that lost commits learns that something is missed, and goes on."""
    await api.declare()
    async with listening(api, "/v1/groups/orders/events", Last_Event_ID="900") as listener:
        assert await listener.take(1) == [{"after": 1, "upto": 900, "lost": True}]
        assert listener.last_id == 1
        await api.join("m1")
        assert (await listener.take(1))[0]["position"] == 2


async def test_a_group_is_heard_alone_and_all_groups_together(api: Api) -> None:
    await api.declare()
    topology = {"subtopologies": [{"id": "0", "partitions": 1}]}
    async with listening(api, "/v1/groups/orders/events") as one, listening(api, "/v1/events") as both:
        await api.call("PUT", "/other", {"topology": topology})
        await api.join("m1")
        assert [event["group"] for event in await both.take(3)] == ["other", "orders", "orders"]
        assert {event["group"] for event in await one.take(2)} == {"orders"}


async def test_a_silent_stream_says_that_it_lives(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_events, "KEEP_ALIVE_S", 0.02)
    await api.declare()
    async with listening(api, "/v1/groups/orders/events") as listener:
        await listener.frame()
        topology = {"subtopologies": [{"id": "0", "partitions": 1}]}
        await api.call("PUT", "/other", {"topology": topology})
        while listener.last_id != 2:
            await listener.frame()
        assert listener.comments


async def test_a_stream_outlives_a_store_that_is_away(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_events, "STORE_AGAIN_S", 0.01)
    await api.declare()
    events, away = api.log.events, [True]

    async def read(*args: Any, **options: Any) -> Any:
        if away[0]:
            raise StoreUnavailable("away")
        return await events(*args, **options)

    monkeypatch.setattr(api.log, "events", read)
    async with listening(api, "/v1/groups/orders/events?after=0") as listener:
        assert await listener.frame() == {"retry": str(api_events.RECONNECT_MS), "id": "0"}
        await asyncio.sleep(0.05)
        away[0] = False
        assert [one["position"] for one in await listener.take(1)] == [1]
    away[0] = True
    refused = await api.call("GET", "/orders/events")
    assert (refused.status_code, refused.json()["type"]) == (503, "store-unavailable")


async def test_streams_end_when_the_coordinator_stops(api: Api) -> None:
    """It ends as any answer, so that the client comes back by itself, to the coordinator that serves then."""
    await api.declare()
    async with listening(api, "/v1/groups/orders/events") as listener:
        await listener.frame()
        api.coordinator.end_waits()
        assert await listener.frame() is None
        assert listener.ended


async def test_no_more_streams_are_open_than_may_be() -> None:
    async with serving() as api:
        api.coordinator.feed._places = Places(1, "event streams", each=1)
        await api.declare()
        async with listening(api, "/v1/groups/orders/events"):
            refused = await api.call("GET", "/orders/events", headers=SSE)
            assert (refused.status_code, refused.json()["type"]) == (429, "limit-exceeded")
            assert refused.json()["retry_after_ms"] > 0
            assert (await api.call("GET", "/orders/events")).status_code == 200
        async with listening(api, "/v1/groups/orders/events") as listener:
            assert listener.status == 200


async def test_a_stream_ends_when_its_token_is_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_events, "KEEP_ALIVE_S", 0.02)
    access = Access(cache_s=10.0)
    header = (await access.token("viewer")).decode()
    async with serving(gate=access.gate, tokens=access.store) as api:
        async with listening(api, "/v1/events", Authorization=header) as listener:
            assert listener.status == 200
            await listener.frame()
            access.store.away, access.at_s = True, 11.0
            await listener.frame()
            await listener.frame()
            access.store.away, access.at_s = False, 22.0
            await access.store.revoke(access.made.id, NOBODY_ASKED)
            while await listener.frame() is not None:
                pass
            assert listener.ended
        async with listening(api, "/v1/events", Authorization=header) as listener:
            assert listener.status == 401


@pytest.mark.parametrize("last_id", ["x", "-1", "1.5", "9" * 19, "9" * 30])
async def test_an_id_that_is_none_is_refused(api: Api, last_id: str) -> None:
    await api.declare()
    answer = await api.call("GET", "/orders/events", headers=SSE | {"Last-Event-ID": last_id})
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "header.Last-Event-ID")


@pytest.mark.parametrize(
    ("accept", "is_stream"),
    [
        ("text/event-stream", True),
        ("application/json;q=0.5, Text/Event-Stream;q=0.9", True),
        ("text/event-stream;q=0", False),
        ("*/*", False),
        ("application/json", False),
        ("text/*", False),
    ],
)
async def test_a_stream_is_what_is_asked_for_by_name(api: Api, accept: str, is_stream: bool) -> None:  # noqa: FBT001
    """A wildcard in Accept is answered with a page."""
    await api.declare()
    async with listening(api, "/v1/groups/orders/events", Accept=accept) as listener:
        kind = listener.headers[b"content-type"]
        assert kind == (b"text/event-stream" if is_stream else b"application/json")


async def test_the_head_of_a_stream_has_no_body(api: Api) -> None:
    await api.declare()
    answer = await asyncio.wait_for(api.call("HEAD", "/orders/events", headers=SSE), 2)
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, "text/event-stream", b"")
    assert len(api.coordinator.feed) == 0


@asynccontextmanager
async def on_a_socket(api: Api) -> AsyncIterator[tuple[httpx.AsyncClient, uvicorn.Server]]:
    """Serve the application on a real socket."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(api.client._transport.app, lifespan="off", log_level="error", timeout_graceful_shutdown=3)  # type: ignore[attr-defined]
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with httpx.AsyncClient(base_url=url, timeout=5) as client:
            yield client, server
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, 5)


async def test_over_a_socket_a_client_that_goes_away_is_noticed(api: Api) -> None:
    """Its place is free at once, without an event that would have to be sent."""
    await api.declare()
    async with on_a_socket(api) as (client, _):
        async with client.stream("GET", "/v1/groups/orders/events", headers=SSE) as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == f"retry: {api_events.RECONNECT_MS}"
            await api.join("m1")
            while not (line := await anext(lines)).startswith("data: "):
                pass
            assert json.loads(line.removeprefix("data: "))["type"] == "member-joined"
            assert len(api.coordinator.feed) == 1
        for _ in range(100):
            if not len(api.coordinator.feed):
                break
            await asyncio.sleep(0.02)
        assert len(api.coordinator.feed) == 0


async def test_over_a_socket_a_stop_ends_streams_cleanly(api: Api) -> None:
    await api.declare()
    async with on_a_socket(api) as (client, _), client.stream("GET", "/v1/events", headers=SSE) as answer:
        lines = answer.aiter_lines()
        await anext(lines)
        api.coordinator.end_waits()
        assert [line async for line in lines if line.startswith("data")] == []
