"""A request for a group that another coordinator owns is answered by that one, over one hop, as it comes."""

import asyncio
import contextlib
import gc
import json
import ssl
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any

import httpcore2
import httpx2 as httpx
import pytest
import trustme
import uvicorn
from tests.api.pairs import BEARER, Divided, Pair, listening, paired
from tests.waiting import until

from batonpass.api import events, forward
from batonpass.core.state.ids import GroupId
from batonpass.runtime.history import Asked
from batonpass.sockets import bind, url_of


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Run two coordinators that divide the groups between them."""
    async with paired() as found:
        yield found


async def test_a_group_is_served_by_its_owner_whoever_is_asked(pair: Pair) -> None:
    """Protocol 1.6."""
    await pair.declare("a-group")
    await pair.declare("b-group")
    assert await pair.log(0).group_ids() == ["a-group"]
    assert await pair.log(1).group_ids() == ["b-group"]
    joined = await pair.call("PUT", "/v1/groups/b-group/members/m1", json={})
    assert joined.status_code == 201
    beat = {"seq": 1, "member_epoch": joined.json()["member_epoch"]}
    answer = await pair.call("POST", "/v1/groups/b-group/members/m1/heartbeat", json=beat)
    assert (answer.status_code, answer.json()["seq"]) == (200, 1)
    assert (pair.decided(0, "Heartbeat"), pair.decided(1, "Heartbeat")) == (0, 1)
    shown = await pair.call("GET", "/v1/groups/b-group", headers={"x-request-id": "look-1"})
    assert (shown.json()["members"], shown.headers["x-request-id"]) == (1, "look-1")
    assert shown.headers.get_list("x-request-id") == ["look-1"]
    assert (await pair.call("HEAD", "/v1/groups/b-group")).headers["etag"] == shown.headers["etag"]
    refused = await pair.call("PUT", "/v1/groups/b-group/members/m2", json={"capacity": -1})
    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")


async def test_a_forwarded_call_carries_its_caller_and_its_request_id(pair: Pair) -> None:
    await pair.declare("b-group")
    await pair.call("POST", "/v1/groups/b-group/pause?reason=lunch", headers={"x-request-id": "ops-7"})
    (row, *_) = await pair.log(1).commands(GroupId("b-group"), before=None, limit=1)
    assert row.asked == Asked("admin", "lunch", "ops-7", "pause")


async def test_a_long_poll_waits_at_the_owner(pair: Pair) -> None:
    await pair.declare("b-group")
    epoch = (await pair.call("PUT", "/v1/groups/b-group/members/m1", json={})).json()["member_epoch"]
    path = f"/v1/groups/b-group/members/m1/assignment?after={epoch}"
    assert (await pair.call("GET", f"{path}&wait_ms=50")).status_code == 204
    polls = pair.processes[1].policy.limits.polls
    waiting = asyncio.create_task(pair.call("GET", f"{path}&wait_ms=20000"))
    await until(lambda: polls.taken == 1)
    await pair.call("POST", "/v1/groups/b-group/members/m1/evict?dead=true")
    answer = await asyncio.wait_for(waiting, 5)
    assert (answer.status_code, answer.json()["type"]) == (409, "fenced")
    assert pair.processes[0].policy.limits.polls.taken == 0


async def test_a_long_poll_that_breaks_here_breaks_at_the_owner(pair: Pair) -> None:
    """The owner sees at once that the caller is gone (protocol 6.3)."""
    await pair.declare("b-group")
    epoch = (await pair.call("PUT", "/v1/groups/b-group/members/m1", json={})).json()["member_epoch"]
    polls = pair.processes[1].policy.limits.polls
    path = f"/v1/groups/b-group/members/m1/assignment?after={epoch}&wait_ms=20000"
    waiting = asyncio.create_task(pair.call("GET", path))
    await until(lambda: polls.taken == 1)
    waiting.cancel()
    await until(lambda: pair.decided(1, "PollBroken") == 1, within_s=12)
    assert polls.taken == 0


async def test_a_coordinator_that_stops_ends_the_polls_that_wait_elsewhere(pair: Pair) -> None:
    await pair.declare("b-group")
    epoch = (await pair.call("PUT", "/v1/groups/b-group/members/m1", json={})).json()["member_epoch"]
    polls = pair.processes[1].policy.limits.polls
    path = f"/v1/groups/b-group/members/m1/assignment?after={epoch}&wait_ms=20000"
    waiting = asyncio.create_task(pair.call("GET", path))
    await until(lambda: polls.taken == 1)
    pair.processes[0].stop_waits()
    assert (await asyncio.wait_for(waiting, 5)).status_code == 204
    await until(lambda: polls.taken == 0, within_s=12)


async def test_a_caller_that_is_slow_keeps_no_group_from_the_others_when_a_coordinator_stops(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its body is still arriving, or it is gone without a word; for so long nobody would serve these groups."""
    await pair.declare("a-group")
    process, server, left = pair.processes[0], pair.servers[0], list[int]()

    async def leave() -> None:
        left.append(len(server.server_state.connections))

    monkeypatch.setattr(process.store, "leave", leave, raising=False)
    monkeypatch.setattr(server.config, "timeout_graceful_shutdown", 60)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(pair.urls[0].rpartition(":")[2]))
    head = "PUT /v1/groups/a-group/members/m1 HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n"
    writer.write(f"{head}authorization: {BEARER['authorization']}\r\n\r\n{{".encode())
    await until(lambda: server.server_state.tasks)
    server.should_exit = True
    await until(lambda: left)
    assert left == [1]
    writer.write(b"}")
    assert b" 503 " in await reader.readline()
    writer.close()


async def test_a_request_goes_one_hop_at_most(pair: Pair) -> None:
    """Each of the two takes the other for the owner."""
    for process, url in zip(pair.processes, reversed(pair.urls), strict=True):
        divided = process.store.ownership
        assert isinstance(divided, Divided)
        divided.owners = {"c": url}
    answer = await asyncio.wait_for(pair.call("GET", "/v1/groups/c-group"), 5)
    assert (answer.status_code, answer.json()["type"]) == (503, "coordinator-loading")
    assert answer.json()["retry_after_ms"]


async def test_an_owner_that_cannot_be_reached_is_503(pair: Pair) -> None:
    """Protocol 1.6."""
    with bind("127.0.0.1", 0) as silent:
        pair.owners["d"] = url_of(silent, is_tls=False)
        answer = await pair.call("GET", "/v1/groups/d-group")
    assert (answer.status_code, answer.json()["type"]) == (503, "coordinator-loading")
    assert answer.json()["retry_after_ms"]


async def test_who_asks_one_that_is_cut_off_from_the_owner_is_to_connect_anew(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network policy, or a wrong URL: behind a load balancer it would be refused on its connection for good."""
    await pair.declare("b-group")
    owner = pair.owners["b"]
    with bind("127.0.0.1", 0) as silent:
        pair.owners["b"] = url_of(silent, is_tls=False)
        refused = await pair.call("GET", "/v1/groups/b-group")
        assert (refused.status_code, refused.headers.get("connection")) == (503, None)
        monkeypatch.setattr(forward, "CUT_OFF_S", 0.0)
        refused = await pair.call("GET", "/v1/groups/b-group")
        assert (refused.status_code, refused.headers.get("connection")) == (503, "close")
        cut_off, pair.owners["b"] = pair.owners["b"], owner
    assert "connection" not in (await pair.call("GET", "/v1/groups/b-group")).headers
    forwarder = pair.processes[0].policy.forwarder
    assert [forwarder.is_cut_off(one) for one in (owner, cut_off)] == [False, True]
    forwarder.end_calls_beside([owner])
    assert not forwarder.is_cut_off(cut_off)


async def test_a_path_is_passed_on_as_it_was_asked(pair: Pair) -> None:
    """No part of it is left out or written otherwise, so no call becomes another one on the way."""
    await pair.declare("b-group")
    await pair.call("PUT", "/v1/groups/b-group/members/m1", json={})
    for method, name in product(("DELETE", "GET", "PUT"), ("..", ".", "%2e%2e", "%2E.", "m1/..", "m1/../..")):
        refused = await raw_call(pair, method, f"/v1/groups/b-group/members/{name}?force=true&reason=x")
        assert refused in {404, 405, 422}, (method, name)
    for name in ("a'b", "a^b", "a[b]", "a{b}", "a|b", 'a"b', "a%25b", "a%2525b", "a+b", "...", "a%3Fb", "a%23b"):
        assert await raw_call(pair, "PUT", f"/v1/groups/b-group/members/{name}", b"{}") == 201, name
    shown = (await pair.call("GET", "/v1/groups/b-group/members")).json()
    names = {"a'b", "a^b", "a[b]", "a{b}", "a|b", 'a"b', "a%b", "a%25b", "a+b", "...", "a?b", "a#b"}
    assert {member["member_id"] for member in shown["members"]} == names | {"m1"}


async def raw_call(pair: Pair, method: str, target: str, body: bytes = b"") -> int:
    """Make a call with a target that no client changes, and return the status."""
    host, port = pair.urls[0].removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = [f"{method} {target} HTTP/1.1", "Host: x", f"Authorization: {BEARER['authorization']}"]
    writer.write("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body)
    async with asyncio.timeout(10):
        status = (await reader.readuntil(b"\r\n")).split()[1]
    writer.close()
    return int(status)


async def test_an_owner_below_a_path_is_reached_there(pair: Pair, owner: "Owner") -> None:
    owner.go_on.set()
    pair.owners["o"] += "/below/"
    await pair.call("GET", "/v1/groups/o?x=%2e%2E")
    assert [seen["target"] for seen in owner.seen] == ["/below/v1/groups/o?x=%2e%2E"]


class Frozen:
    """An owner that takes every request and answers none, as one that was stopped or cut off."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read until the caller gives up."""
        self.asked += 1
        with contextlib.suppress(ConnectionError):
            while await reader.read(65_536):
                pass
        writer.close()


@pytest.fixture
async def frozen(pair: Pair) -> AsyncIterator[Frozen]:
    """Run a frozen owner of the groups that begin with ``f``."""
    found = Frozen()
    server = await asyncio.start_server(found, "127.0.0.1", 0)
    async with server:
        pair.owners["f"] = url_of(server.sockets[0], is_tls=False)
        yield found


CALLS_OF_ALL_KINDS = (
    ("GET", "/v1/groups/f"),
    ("POST", "/v1/groups/f/members/m/heartbeat"),
    ("GET", "/v1/groups/f/members/m/assignment?after=1"),
    ("POST", "/v1/groups/f/members/m/drain?wait_ms=300000"),
    ("POST", "/v1/groups/f/pause"),
)


async def test_calls_to_an_owner_end_when_its_lease_is_over(pair: Pair, frozen: Frozen) -> None:
    """Whether they wait for news or not."""
    calls = [asyncio.create_task(pair.call(*call)) for call in CALLS_OF_ALL_KINDS]
    await until(lambda: frozen.asked == len(calls))
    process = pair.processes[0]
    await process._ownership_changed()
    assert not any(call.done() for call in calls), "it is still among the living"
    assert process.policy.limits.polls.taken == 2, "they hold places here too"
    pair.owners["f"] = pair.urls[0]
    await process._ownership_changed()
    for answer in await asyncio.wait_for(asyncio.gather(*calls), 5):
        assert (answer.status_code, answer.json()["type"]) == (503, "coordinator-loading")
        assert answer.json()["retry_after_ms"]
        assert answer.headers["retry-after"]
    assert process.policy.limits.polls.taken == 0


@pytest.mark.parametrize(
    "place", ["f/members/m{}/assignment?wait_ms=30000", "a-none/members/m{}", "b-none/members/m{}"]
)
async def test_calls_that_end_with_an_error_leave_nothing_to_the_garbage_collector(
    pair: Pair, frozen: Frozen, place: str
) -> None:
    """It seldom looks at what was there for long, as a call is that waited, and all of an owner's end at once."""
    host, port = pair.urls[0].removeprefix("http://").split(":")
    head = f"Host: b\r\nAuthorization: {BEARER['authorization']}\r\nConnection: close\r\n\r\n"
    opened = [await asyncio.open_connection(host, int(port)) for _ in range(30)]
    gc.collect()
    gc.disable()
    try:
        for number, (_, writer) in enumerate(opened):
            writer.write(f"GET /v1/groups/{place.format(number)} HTTP/1.1\r\n{head}".encode())
        if place.startswith("f"):
            await until(lambda: frozen.asked == len(opened))
            pair.processes[0].policy.forwarder.end_calls_beside(())
        answers = [await asyncio.wait_for(reader.read(), 5) for reader, _ in opened]
        for _, writer in opened:
            writer.close()
        await asyncio.sleep(0.2)
        found = gc.collect()
    finally:
        gc.enable()
    assert {answer[9:12] for answer in answers} == {b"503" if place.startswith("f") else b"404"}
    assert found < 30 * len(opened)


async def test_an_owner_that_does_not_answer_in_time_is_503() -> None:
    """The time that a call itself asks to wait is not counted."""
    server = await asyncio.start_server(Frozen(), "127.0.0.1", 0)
    async with server, paired(forward_answer_s=1) as pair:
        pair.owners["f"] = url_of(server.sockets[0], is_tls=False)
        waiting = asyncio.create_task(pair.call("GET", "/v1/groups/f/members/m/assignment?wait_ms=300000"))
        soon = "/v1/groups/f/members/m/assignment?wait_ms=100"
        for call in (("GET", "/v1/groups/f"), ("POST", "/v1/groups/f/members/m/drain"), ("GET", soon)):
            answer = await asyncio.wait_for(pair.call(*call), 10)
            assert (answer.status_code, answer.json()["type"]) == (503, "coordinator-loading")
            assert answer.json()["retry_after_ms"]
        assert not waiting.done()
        waiting.cancel()


async def test_a_call_is_passed_on_without_a_look_at_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library looks at every connection of a pool for each call, and thousands may wait for news."""
    looked = 0
    is_idle = httpcore2.AsyncHTTPConnection.is_idle

    def counted(connection: httpcore2.AsyncHTTPConnection) -> bool:
        nonlocal looked
        looked += 1
        return is_idle(connection)

    monkeypatch.setattr(httpcore2.AsyncHTTPConnection, "is_idle", counted)
    frozen, per_call = Frozen(), {}
    server = await asyncio.start_server(frozen, "127.0.0.1", 0)
    async with server, paired() as pair:
        await pair.declare("b-group")
        pair.owners["f"] = url_of(server.sockets[0], is_tls=False)
        host, port = pair.urls[0].removeprefix("http://").split(":")
        head = f"Host: b\r\nAuthorization: {BEARER['authorization']}\r\n\r\n"
        opened = []
        for waiting in (0, 320):
            for number in range(waiting):
                _, writer = await asyncio.open_connection(host, int(port))
                target = f"/v1/groups/f/members/m{number}/assignment?wait_ms=300000"
                writer.write(f"GET {target} HTTP/1.1\r\n{head}".encode())
                opened.append(writer)
            await until(lambda: frozen.asked == len(opened))
            looked = 0
            assert (await pair.call("GET", "/v1/groups/b-group")).status_code == 200
            per_call[waiting] = looked
        for writer in opened:
            writer.transport.abort()
    assert per_call[320] < per_call[0] + 64


async def test_nobody_is_let_in_through_the_side_door(pair: Pair) -> None:
    answer = await pair.client.get(f"{pair.urls[0]}/v1/groups/b-group")
    assert answer.status_code == 401
    forged = await pair.client.get(f"{pair.urls[1]}/v1/groups/b-group", headers={"batonpass-forwarded-for": "10.0.0.1"})
    assert forged.status_code == 401
    seen = pair.processes[1].counts.registry.get_sample_value(
        "batonpass_requests_total", {"method": "GET", "path": "/v1/groups/{group}", "status": "401"}
    )
    assert seen == 1


async def test_what_the_store_knows_is_answered_by_whoever_is_asked(pair: Pair) -> None:
    """Protocol 1.11."""
    await pair.declare("b-group")
    assert (await pair.call("GET", "/v1/groups/b-group/generations")).status_code == 404, "stores apart in this test"
    assert pair.decided(0, "GroupDeclaration") == 0


async def test_the_list_of_groups_is_that_of_all_coordinators(pair: Pair) -> None:
    names = ["a-1", "a-2", "b-1", "b-2", "b-3"]
    for name in names:
        await pair.declare(name)
    for url in pair.urls:
        seen: list[str] = []
        after: str | None = ""
        while after is not None:
            answer = await pair.client.get(f"{url}/v1/groups?limit=2&after={after}", headers=BEARER)
            page = answer.json()
            assert len(page["groups"]) <= 2
            seen += [group["group"] for group in page["groups"]]
            after = page["next"]
        assert seen == names
    with bind("127.0.0.1", 0) as silent:
        pair.owners["d"] = url_of(silent, is_tls=False)
        answer = await pair.call("GET", "/v1/groups")
    assert (answer.status_code, answer.json()["type"]) == (503, "coordinator-loading")


async def test_coordinators_know_one_another_by_their_certificates(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    files = {name: tmp_path / f"{name}.pem" for name in ("certfile", "ca", "strange")}
    own = authority.issue_cert("127.0.0.1")
    own.private_key_and_cert_chain_pem.write_to_path(files["certfile"])
    authority.cert_pem.write_to_path(files["ca"])
    stranger.cert_pem.write_to_path(files["strange"])
    context = ssl.create_default_context(cafile=files["ca"])
    context.load_cert_chain(files["certfile"])
    tls = {"tls_certfile": files["certfile"], "tls_client_ca": files["ca"]}
    async with paired(context, **tls, tls_peer_ca=files["ca"]) as found:
        await found.declare("b-group")
        assert await found.log(1).group_ids() == ["b-group"]
    async with paired(context, **tls, tls_peer_ca=files["strange"]) as found:
        refused = await found.call("GET", "/v1/groups/b-group")
        assert (refused.status_code, refused.json()["type"]) == (503, "coordinator-loading")


class Owner:
    """An owner that tells what it was sent, piece by piece, and hears when it is left."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.left = asyncio.Event()
        self.seen: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer with what was asked; the end of it when it may."""
        if scope["type"] != "http":
            return
        body = (await receive())["body"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        raw = scope["raw_path"].decode() + "?" + scope["query_string"].decode()
        self.seen.append({"method": scope["method"], "target": raw, "headers": headers, "body": body.decode()})
        start = [(b"content-type", b"text/event-stream"), (b"keep-alive", b"timeout=1"), (b"x-own", b"1")]
        await send({"type": "http.response.start", "status": 203, "headers": start})
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        leaving = asyncio.create_task(self._leave(receive))
        going_on = asyncio.create_task(self.go_on.wait())
        await asyncio.wait((leaving, going_on), return_when=asyncio.FIRST_COMPLETED)
        if self.go_on.is_set():
            await send({"type": "http.response.body", "body": b"data: 2\n\n"})
        for one in (leaving, going_on):
            one.cancel()

    async def _leave(self, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()


@pytest.fixture
async def owner(pair: Pair) -> AsyncIterator[Owner]:
    """Run an owner of the groups that begin with ``o``."""
    found = Owner()
    listener = bind("127.0.0.1", 0)
    pair.owners["o"] = url_of(listener, is_tls=False)
    config = uvicorn.Config(found, log_config=None, access_log=False, lifespan="off")
    async with listening(uvicorn.Server(config), listener):
        yield found


async def test_an_answer_is_passed_on_as_it_comes(pair: Pair, owner: Owner) -> None:
    url = f"{pair.urls[0]}/v1/groups/o%20x/members?limit=3&after=%2Fb"
    async with pair.client.stream("GET", url, headers=BEARER | {"x-request-id": "c-1"}) as answer:
        pieces = answer.aiter_raw()
        assert await asyncio.wait_for(anext(pieces), 5) == b"data: 1\n\n"
        owner.go_on.set()
        assert b"".join([piece async for piece in pieces]) == b"data: 2\n\n"
        assert (answer.status_code, answer.headers["x-own"], answer.headers["x-request-id"]) == (203, "1", "c-1")
        assert "keep-alive" not in answer.headers
    (seen,) = owner.seen
    assert (seen["method"], seen["target"]) == ("GET", "/v1/groups/o%20x/members?limit=3&after=%2Fb")
    assert seen["headers"]["authorization"] == BEARER["authorization"]
    assert seen["headers"]["x-request-id"] == "c-1"
    assert seen["headers"]["batonpass-forwarded-for"] == "127.0.0.1"
    assert f"http://{seen['headers']['host']}" == pair.owners["o"]


async def test_a_body_is_passed_on_whole_and_within_the_limit(pair: Pair, owner: Owner) -> None:
    owner.go_on.set()
    body = json.dumps({"reason": "ü" * 1_000}).encode()
    await pair.call("POST", "/v1/groups/o/pause", content=body)
    assert owner.seen[0]["body"].encode() == body
    large = await pair.call("POST", "/v1/groups/o/pause", content=b"x" * (9 * 1_048_576))
    assert (large.status_code, len(owner.seen)) == (413, 1)


async def test_a_caller_that_leaves_takes_the_stream_along(pair: Pair, owner: Owner) -> None:
    async with pair.client.stream("GET", f"{pair.urls[0]}/v1/groups/o/members", headers=BEARER) as answer:
        await anext(answer.aiter_raw())
    await asyncio.wait_for(owner.left.wait(), 5)


async def test_an_owner_that_breaks_off_breaks_the_answer_off(pair: Pair) -> None:
    """A caller sees a broken answer, never a short one that looks whole."""

    async def breaking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(breaking, "127.0.0.1", 0)
    async with server:
        pair.owners["e"] = url_of(server.sockets[0], is_tls=False)
        with pytest.raises(httpx.TransportError):
            await pair.call("GET", "/v1/groups/e-group")


@pytest.fixture
async def cut_off() -> AsyncIterator[Pair]:
    """Two coordinators, the first of which has a member and then no lease any more."""
    async with paired() as found:
        await found.declare("apples")
        assert (await found.call("PUT", "/v1/groups/apples/members/m1", json={})).status_code == 201
        yield found


def end_lease(found: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the first coordinator be without a lease."""
    ownership = found.processes[0].store.ownership
    monkeypatch.setattr(ownership, "not_ready", lambda: "its lease is over")
    monkeypatch.setattr(ownership, "holds", lambda _group: False)
    monkeypatch.setattr(ownership, "owner_url", lambda _group: None)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/groups/apples/members/m1/heartbeat", {"seq": 1, "member_epoch": 1}),
        ("GET", "/v1/groups/apples/members/m1/assignment?after=1&wait_ms=0", None),
        ("GET", "/v1/groups/apples", None),
        ("GET", "/v1/groups", None),
    ],
)
async def test_a_coordinator_without_a_lease_ends_the_connections_of_its_callers(
    cut_off: Pair, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: Any
) -> None:
    """A load balancer leaves a connection where it is, and its caller would be refused until it gets another."""
    assert "connection" not in (await cut_off.call(method, path, json=body)).headers
    end_lease(cut_off, monkeypatch)
    refused = await cut_off.call(method, path, json=body)
    assert (refused.status_code, refused.headers["connection"]) == (503, "close")
    missing = await cut_off.call("GET", "/v1/nothing")
    assert (missing.status_code, missing.headers.get("connection")) == (404, None)


async def test_who_has_no_other_coordinator_to_go_to_keeps_its_connection(
    cut_off: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_lease(cut_off, monkeypatch)
    monkeypatch.setattr(cut_off.processes[0].store.ownership, "others", list)
    refused = await cut_off.call("GET", "/v1/groups/apples")
    assert (refused.status_code, refused.headers.get("connection")) == (503, None)


async def test_a_coordinator_without_a_lease_ends_streams_of_events(
    cut_off: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be silent while another coordinator tells what happens."""
    monkeypatch.setattr(events, "KEEP_ALIVE_S", 0.05)
    accept = BEARER | {"accept": "text/event-stream"}
    async with cut_off.client.stream("GET", f"{cut_off.urls[0]}/v1/events", headers=accept) as answer:
        lines = answer.aiter_lines()
        async with asyncio.timeout(10):
            while "keep-alive" not in await anext(lines):
                pass
            end_lease(cut_off, monkeypatch)
            assert "member" not in "".join([line async for line in lines])


async def test_after_a_time_without_a_lease_members_are_judged_as_after_a_start(cut_off: Pair) -> None:
    """Nobody may have been able to reach this coordinator, and over Kafka nobody was heard (L5)."""
    process, beat = cut_off.processes[0], {"seq": 1, "member_epoch": 1}
    _, before = await process.coordinator.look(GroupId("apples"))
    process.store.ownership.lapses += 1
    assert (await cut_off.call("POST", "/v1/groups/apples/members/m1/heartbeat", json=beat)).status_code == 200
    _, after = await process.coordinator.look(GroupId("apples"))
    assert after.judge_from_ms > before.judge_from_ms
