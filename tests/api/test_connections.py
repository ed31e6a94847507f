"""What a connection may take: bytes of a head, requests sent ahead, time to send, and time to read."""

import asyncio
import contextlib
import gc
import select
import socket
import ssl
import struct
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop
from tests.api.pairs import SECRET, Pair, listening, paired
from tests.waiting import until

from batonpass import connections
from batonpass.connections import (
    FOR_PROBES,
    PIECE_BYTES,
    BoundedConnection,
    BoundedServer,
    ConnectionLimits,
    bounded,
)
from batonpass.http_clients import tls_context
from batonpass.sockets import CONNECTIONS_MIN, bind, room_for

HEAD = f"Host: b\r\nAuthorization: Bearer {SECRET}\r\n".encode()
GET = b"GET /v1/groups/apples HTTP/1.1\r\n" + HEAD + b"\r\n"
POLL = b"GET /v1/groups/apples/members/m1/assignment?after=2&wait_ms=20000 HTTP/1.1\r\n" + HEAD + b"\r\n"
BEAT = b"POST /v1/groups/apples/members/m1/heartbeat HTTP/1.1\r\n" + HEAD + b"Content-Length: 28\r\n\r\n"
BODY = b'{"seq": 1, "member_epoch": 2}'[:28]
TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\n"
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
HEAD_MAX, AHEAD_MAX = 8_192, 4


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """A coordinator with tight limits, and a group of one member."""
    async with paired(
        request_arrival_s=1,
        request_head_bytes_max=HEAD_MAX,
        requests_ahead_max=AHEAD_MAX,
        answer_unread_s=1,
    ) as found:
        await found.declare("apples")
        assert (await found.call("PUT", "/v1/groups/apples/members/m1", json={})).status_code == 201
        yield found


async def send(pair: Pair, *pieces: bytes, every_s: float = 0.0) -> tuple[bytes, float]:
    """Send pieces; return all that came back until the other side closed, and how long that took."""
    host, port = pair.urls[0].removeprefix("http://").split(":")
    began = time.monotonic()
    reader, writer = await asyncio.open_connection(host, int(port))
    reading = asyncio.ensure_future(reader.read())
    with contextlib.suppress(ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(every_s)
    answer = await asyncio.wait_for(reading, 10)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return answer, time.monotonic() - began


async def test_what_does_not_arrive_is_not_waited_for(pair: Pair) -> None:
    byte_by_byte = [BEAT, *[BODY[at : at + 1] for at in range(20)]]
    silent = await asyncio.gather(
        send(pair),
        send(pair, b"\r\n"),
        send(pair, GET[:40]),
        send(pair, BEAT),
        send(pair, BEAT + BODY[:20]),
        send(pair, *byte_by_byte, every_s=0.1),
        send(pair, GET, GET[:40], every_s=0.3),
    )
    for answer, took_s in silent:
        assert TOO_LATE in answer
        assert answer.endswith(b"The request did not arrive in time.\n")
        assert 0.9 < took_s < 15
    assert silent[-1][0].startswith(b"HTTP/1.1 200 OK\r\n")
    shown = (await pair.call("GET", "/v1/groups/apples/members/m1")).json()
    assert shown["member_epoch"] == 2


async def test_connections_are_counted(pair: Pair) -> None:
    host, port = pair.urls[0].removeprefix("http://").split(":")
    idle = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
    await send(pair, b"GET / HTTP/1.1\r\n" + b"X-One: more\r\n" * HEAD_MAX)
    await send(pair, POLL + GET * (AHEAD_MAX + 1))
    shown = (await pair.call("GET", "/metrics")).text
    series = dict(line.rsplit(" ", 1) for line in shown.splitlines() if line.startswith("batonpass_connections"))
    assert float(series["batonpass_connections_open"]) >= len(idle)
    assert float(series["batonpass_connections_max"]) == room_for(pair.processes[0].settings.connections_max)
    for reason in ("head-too-large", "too-many-ahead"):
        assert float(series[f'batonpass_connections_cut_total{{reason="{reason}"}}']) == 1
    for _, writer in idle:
        writer.close()


async def test_what_is_being_answered_is_not_late(pair: Pair) -> None:
    poll = asyncio.ensure_future(pair.call("GET", "/v1/groups/apples/members/m1/assignment?after=2&wait_ms=1500"))
    host, port = pair.urls[0].removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for piece in (GET[:40], GET[40:]):
        writer.write(piece)
        await asyncio.sleep(0.4)
    assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
    await asyncio.sleep(1.3)
    assert not reader.at_eof()
    assert (await poll).status_code == 204
    writer.close()


async def test_half_a_request_behind_one_under_way_ends_both_without_a_word(pair: Pair) -> None:
    """Nothing can be said on the connection of a long-poll that waits; it is closed all the same."""
    answer, took_s = await send(pair, POLL, GET[:40], every_s=0.1)
    assert answer == b""
    assert 0.9 < took_s < 15


ENDLESS = {
    "headers": (GET[:-2], b"X-One: more\r\n"),
    "one header": (GET[:-2] + b"X-One: ", b"more"),
    "path": (b"GET /", b"more"),
    "empty lines": (b"", b"\r\n"),
    "trailers": (GET[:-2] + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-One: more\r\n"),
    "chunk extension": (GET[:-2] + b"Transfer-Encoding: chunked\r\n\r\n1;", b"more"),
}


@pytest.mark.parametrize("endless", ENDLESS.values(), ids=ENDLESS.keys())
async def test_a_head_without_end_is_cut_at_its_limit(pair: Pair, endless: tuple[bytes, bytes]) -> None:
    begin, more = endless
    enough = begin + more * ((HEAD_MAX + PIECE_BYTES) // len(more))
    answer, took_s = await send(pair, enough)
    assert TOO_LARGE in answer
    assert took_s < 0.9


async def test_a_head_below_its_limit_is_served(pair: Pair) -> None:
    answer, _ = await send(pair, GET[:-2] + b"X-Long: " + b"x" * (HEAD_MAX - 500) + b"\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_body_counts_for_no_head(pair: Pair) -> None:
    tasks = b'{"seq": 1, "member_epoch": 2, "tasks": {}}' + b" " * 4 * HEAD_MAX
    plain = BEAT.replace(b"Content-Length: 28", b"Connection: close\r\nContent-Length: %d" % len(tasks))
    parts = b"".join(
        b"%x\r\n%b\r\n" % (len(part), part) for part in (tasks[at : at + 64] for at in range(0, len(tasks), 64))
    )
    chunked = BEAT.replace(b"Content-Length: 28", b"Connection: close\r\nTransfer-Encoding: chunked")
    for request in (plain + tasks, chunked + parts + b"0\r\n\r\n"):
        answer, _ = await send(pair, request)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_so_many_requests_may_be_sent_ahead_and_no_more(pair: Pair) -> None:
    last = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    short = POLL.replace(b"wait_ms=20000", b"wait_ms=200")
    answer, _ = await send(pair, short + GET * (AHEAD_MAX - 1) + last)
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == AHEAD_MAX
    answer, took_s = await send(pair, POLL + GET * (AHEAD_MAX + 1))
    assert (answer, took_s < 0.9) == (b"", True)
    await until(lambda: pair.decided(0, "PollBroken") == 1, within_s=12)


async def test_a_caller_that_takes_nothing_of_an_answer_is_cut_off(pair: Pair) -> None:
    """What was still to be sent on its connection goes with it (on Linux)."""
    connections = pair.servers[0].server_state.connections
    before = len(connections)
    host, port = pair.urls[0].removeprefix("http://").split(":")
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        caller.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(caller, (host, int(port)))
        await loop.sock_sendall(caller, GET.replace(b"/v1/groups/apples", b"/openapi.json"))
        await until(lambda: len(connections) == before + 1)
        await until(lambda: len(connections) == before, within_s=12)


async def test_answers_that_nobody_reads_take_so_much_together(pair: Pair) -> None:
    """For more, the connection is closed whose caller is behind for the longest; whoever reads gets all of it."""
    served = pair.servers[0]._connections
    served.limits = replace(served.limits, unread_bytes=600_000)
    host, port = pair.urls[0].removeprefix("http://").split(":")
    asked = GET.replace(b"/v1/groups/apples", b"/openapi.json")
    loop, opened = asyncio.get_running_loop(), contextlib.ExitStack()

    async def ask() -> socket.socket:
        caller = opened.enter_context(socket.socket())
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        caller.setblocking(False)
        await loop.sock_connect(caller, (host, int(port)))
        await loop.sock_sendall(caller, asked)
        await until(lambda: caller in select.select([caller], [], [], 0)[0], within_s=12)
        return caller

    async def read(caller: socket.socket) -> int:
        taken = 0
        with contextlib.suppress(ConnectionError):
            while part := await asyncio.wait_for(loop.sock_recv(caller, 65_536), 0.5):
                taken += len(part)
        return taken

    with opened:
        whole = len((await pair.call("GET", "/openapi.json")).content)
        assert whole > 100_000
        callers = [await ask() for _ in range(12)]
        waiting = sum(served.unread.values())
        assert 0 < waiting <= 600_000
        assert len(served.unread) < len(callers)
        assert await read(callers[0]) < whole
        answer, _ = await send(pair, asked.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert len(answer) > whole
    shown = (await pair.call("GET", "/metrics")).text
    assert 'batonpass_connections_cut_total{reason="too-much-unread"}' in shown
    await until(lambda: not served.unread, within_s=12)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_answers_under_tls_that_nobody_reads_count_whole(run: Callable[[Any], None], tmp_path: Path) -> None:
    """The layer below takes all of an answer from TLS, as soon as its caller has read a little."""
    authority, file = trustme.CA(), tmp_path / "both.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    whole = b"x" * 1_000_000
    cut: list[str] = []
    served = bounded(ConnectionLimits(unread_bytes=3_000_000), cut.append)

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"%d" % len(whole))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": whole})

    async def ask(place: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        caller = socket.socket()
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        caller.setblocking(False)
        await asyncio.get_running_loop().sock_connect(caller, place)
        made = await asyncio.open_connection(sock=caller, ssl=context, server_hostname="127.0.0.1")
        made[1].write(b"GET / HTTP/1.1\r\nHost: b\r\n\r\n")
        assert (await made[0].readline()).startswith(b"HTTP/1.1 200")
        return made

    async def go() -> None:
        listener = bind("127.0.0.1", 0)
        server = BoundedServer(answer, served, lambda: None, stop_s=1, tls=tls_context(cert_file=file, of_server=True))
        async with listening(server, listener):
            callers = [await ask(listener.getsockname()) for _ in range(8)]
            await until(lambda: len(cut) >= 3, within_s=12)
            assert 0 < sum(served.unread.values()) <= 3_000_000
            await until(lambda: len(server.server_state.connections) == len(callers) - len(cut), within_s=12)
            await callers[-1][0].readuntil(b"\r\n\r\n")
            assert await callers[-1][0].readexactly(len(whole)) == whole
            for _, writer in callers:
                writer.transport.abort()
            await until(lambda: not served.unread, within_s=12)
        assert set(cut) == {"too-much-unread"}

    run(go())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(
    "sent", [b"no request\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * HEAD_MAX], ids=["400", "431"]
)
def test_what_a_refused_caller_sends_on_takes_nothing(run: Callable[[Any], None], sent: bytes, tmp_path: Path) -> None:
    """Under TLS a connection that ends goes on reading as long as an answer before the refusal waits for its caller."""
    authority, file = trustme.CA(), tmp_path / "both.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    whole = b"x" * 1_000_000

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"%d" % len(whole))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": whole})

    async def go() -> None:
        listener = bind("127.0.0.1", 0)
        served = bounded(ConnectionLimits(head_bytes=HEAD_MAX))
        server = BoundedServer(answer, served, lambda: None, stop_s=1, tls=tls_context(cert_file=file, of_server=True))
        async with listening(server, listener):
            caller = socket.socket()
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            caller.setblocking(False)
            await asyncio.get_running_loop().sock_connect(caller, listener.getsockname())
            _, writer = await asyncio.open_connection(sock=caller, ssl=context, server_hostname="127.0.0.1", limit=1)
            writer.write(b"GET / HTTP/1.1\r\nHost: b\r\n\r\n")
            await until(lambda: served.unread, within_s=12)
            (connection,) = served.unread
            await until(lambda: connection.transport.get_write_buffer_size() > len(whole) // 2, within_s=12)
            writer.write(sent)
            await until(connection.transport.is_closing, within_s=12)
            taken = [connection.transport.get_write_buffer_size() + len(connection.headers)]
            for _ in range(20):
                writer.write(b"A: b\r\n")
                await asyncio.sleep(0.01)
                taken.append(connection.transport.get_write_buffer_size() + len(connection.headers))
            writer.transport.abort()
        assert taken == sorted(taken, reverse=True)

    run(go())


def serving(
    whole: bytes, go: Callable[[socket.socket], Awaitable[None]], *, unread_s: float, served: type[BoundedConnection]
) -> Any:
    """Let a caller connect to a server that answers everything with ``whole``."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(whole))]})
        await send({"type": "http.response.body", "body": whole})

    async def ask() -> None:
        listener, caller = bind("127.0.0.1", 0), socket.socket()
        server = BoundedServer(answer, served, lambda: None, stop_s=1, unread_s=unread_s)
        async with listening(server, listener):
            with caller:
                caller.setblocking(False)
                await asyncio.get_running_loop().sock_connect(caller, listener.getsockname())
                await asyncio.get_running_loop().sock_sendall(caller, b"GET / HTTP/1.1\r\nHost: b\r\n\r\n")
                await go(caller)

    return ask()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_caller_that_reads_slowly_gets_its_answer(run: Callable[[Any], None]) -> None:
    """The time begins anew with each part that the caller takes."""

    async def read(caller: socket.socket) -> None:
        for _ in range(30):
            assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(caller, 64_000), 5)
            await asyncio.sleep(0.1)

    run(serving(b"x" * 10_000_000, read, unread_s=1, served=bounded(ConnectionLimits())))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("end", ["closed", "reset"])
def test_a_connection_that_has_ended_is_freed_at_once(run: Callable[[Any], None], version: str, end: str) -> None:
    """With its last request, and without the garbage collector, which seldom looks at what was there for long."""
    made: list[weakref.ref[Any]] = []

    class Watched(bounded(ConnectionLimits())):  # type: ignore[misc] # a class made at run time
        def on_message_complete(self) -> None:
            made.extend([weakref.ref(self), weakref.ref(self.cycle)])
            super().on_message_complete()

    async def read(caller: socket.socket) -> None:
        head = f"GET / HTTP/{version}\r\nHost: b\r\nConnection: keep-alive\r\n\r\n".encode()
        loop, (_, port) = asyncio.get_running_loop(), caller.getpeername()
        asked = socket.create_connection(("127.0.0.1", port))
        asked.setblocking(False)
        await loop.sock_sendall(asked, head)
        assert b"whole" in await loop.sock_recv(asked, 4_096)
        if end == "reset":
            asked.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        asked.close()
        await until(lambda: all(one() is None for one in made[-2:]), within_s=12)

    gc.disable()
    try:
        run(serving(b"whole", read, unread_s=60, served=Watched))
    finally:
        gc.enable()
    assert len(made) == 4


def test_a_connection_without_a_handshake_is_freed_at_once(tmp_path: Path) -> None:
    """A stranger could make more of them than the garbage collector looks at; asyncio's own loop leaves it some."""
    file, made = tmp_path / "server.pem", list[weakref.ref[Any]]()
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))

    class Watched(bounded(ConnectionLimits())):  # type: ignore[misc] # a class made at run time
        def __init__(self, **more: Any) -> None:
            super().__init__(**more)
            made.append(weakref.ref(self))

    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        """Nobody gets so far."""

    async def go() -> None:
        listener, tls = bind("127.0.0.1", 0), tls_context(cert_file=file, of_server=True)
        server = BoundedServer(nothing, Watched, lambda: None, stop_s=1, tls=tls)
        async with listening(server, listener):
            for sent in (b"", b"GET / HTTP/1.1\r\n\r\n"):
                with socket.create_connection(listener.getsockname()) as stranger:
                    stranger.sendall(sent)
                    count = len(made)
                    await until(lambda count=count: len(made) > count, within_s=12)  # type: ignore[misc] # of the loop
            await until(lambda: all(one() is None for one in made), within_s=12)

    gc.disable()
    try:
        uvloop.run(go())
    finally:
        gc.enable()


class Recorded:
    """A transport that keeps what is written."""

    def __init__(self, transport: asyncio.Transport, writes: list[bytes]) -> None:
        self._transport, self._writes = transport, writes

    def write(self, data: bytes) -> None:
        self._writes.append(bytes(data))
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_an_answer_is_written_at_once(run: Callable[[Any], None]) -> None:
    """Its head and its body each for itself would be two packets, and a call of the system more at either end."""
    writes: list[bytes] = []

    class Watched(bounded(ConnectionLimits())):  # type: ignore[misc] # a class that is made
        def connection_made(self, transport: Any) -> None:
            super().connection_made(Recorded(transport, writes))

    async def read(caller: socket.socket) -> None:
        first = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(caller, 64_000), 5)
        assert first.endswith(b"\r\n\r\nwhole")
        assert writes == [first]

    run(serving(b"whole", read, unread_s=60, served=Watched))


@pytest.mark.parametrize("path", ["/v1/events", "/v1/groups/apples/events"])
async def test_an_answer_without_a_length_has_no_chunks_for_http_1_0(pair: Pair, path: str) -> None:
    """It ends with the connection: whoever speaks 1.0 takes everything else for the answer itself."""
    host, port = pair.urls[0].removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.0\r\nAccept: text/event-stream\r\n".encode() + HEAD + b"\r\n")
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"connection: close" in head
    assert b"chunked" not in head
    assert (await pair.call("PUT", "/v1/groups/apples/members/m2", json={})).status_code == 201
    first = await asyncio.wait_for(reader.readuntil(b"\n"), 10)
    assert first.startswith((b":", b"id:", b"event:", b"data:", b"retry:")), first
    writer.close()


async def test_an_answer_with_a_length_is_the_same_for_http_1_0(pair: Pair) -> None:
    for path in ("/livez", "/v1/groups/apples", "/v1/groups/none", "/metrics"):
        answer, _ = await send(pair, f"GET {path} HTTP/1.0\r\n".encode() + HEAD + b"\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert f"content-length: {len(body)}\r\n".encode() in head.lower() + b"\r\n", path
        assert b"connection: close" in head


def test_who_connects_does_not_wait_for_a_turn_of_the_loop_for_each_before_him() -> None:
    """uvloop, which serves, accepts one connection in each; a turn may take long, where callers have much to do."""

    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        pass

    async def turns(callers: int) -> int:
        listener = bind("127.0.0.1", 0)
        server = BoundedServer(nothing, bounded(ConnectionLimits()), lambda: None, stop_s=1)
        async with listening(server, listener):
            with contextlib.ExitStack() as opened:
                for _ in range(callers):
                    opened.enter_context(socket.create_connection(listener.getsockname()))
                taken = 0
                while len(server.server_state.connections) < callers:
                    await asyncio.sleep(0)
                    taken += 1
        return taken

    assert uvloop.run(turns(50)) < 25


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01"], ids=["nothing", "half a greeting"])
async def test_handshakes_that_do_not_end_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, begun: bytes
) -> None:
    """They count as connections from their first moment, and have their time."""
    authority, file = trustme.CA(), tmp_path / "both.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    most = CONNECTIONS_MIN + FOR_PROBES
    loop = asyncio.get_running_loop()
    async with paired(context, tls_certfile=file, connections_max=CONNECTIONS_MIN) as found:
        host, port = found.urls[0].removeprefix("https://").split(":")
        opened = contextlib.ExitStack()

        async def begin() -> socket.socket:
            made = opened.enter_context(socket.socket())
            made.setblocking(False)
            await loop.sock_connect(made, (host, int(port)))
            await loop.sock_sendall(made, begun)
            return made

        with opened:
            silent = [await begin() for _ in range(2 * most)]
            async with asyncio.timeout(10):
                assert {await loop.sock_recv(one, 1) for one in silent[:most]} == {b""}
            assert (await found.call("GET", "/livez")).status_code == 200
            for one in silent[-CONNECTIONS_MIN:]:
                with pytest.raises(BlockingIOError):
                    one.recv(1)
            monkeypatch.setattr(connections, "HANDSHAKE_S", 0.2)
            async with asyncio.timeout(5):
                assert await loop.sock_recv(await begin(), 1) == b""


async def test_a_certificate_that_is_replaced_in_its_files_is_shown_from_then_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To clients and to other coordinators; one that cannot be used leaves the last one in place."""
    authority, chain, key = trustme.CA(), tmp_path / "chain.pem", tmp_path / "key.pem"

    def replace(*, wrong_key: bool = False) -> bytes:
        made, other = (authority.issue_cert("127.0.0.1") for _ in range(2))
        (other if wrong_key else made).private_key_pem.write_to_path(str(key))
        (tmp_path / "new").write_bytes(b"".join(one.bytes() for one in made.cert_chain_pems))
        (tmp_path / "new").replace(chain)
        return ssl.PEM_cert_to_DER_cert(made.cert_chain_pems[0].bytes().decode())

    context = ssl.create_default_context()
    authority.configure_trust(context)
    first = replace()
    files = {"tls_certfile": chain, "tls_keyfile": key}
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with paired(context, **files, tls_peer_ca=tmp_path / "ca.pem") as found:

        def shown() -> bytes | None:
            _, host, port = found.urls[0].split(":")
            with (
                socket.create_connection((host.removeprefix("//"), int(port)), 5) as raw,
                context.wrap_socket(raw, server_hostname="127.0.0.1") as wrapped,
            ):
                return wrapped.getpeercert(binary_form=True)

        assert await asyncio.to_thread(shown) == first
        second = replace()
        assert await asyncio.to_thread(shown) == second
        replace(wrong_key=True)
        assert await asyncio.to_thread(shown) == second
        assert "cannot be used, the last is kept" in caplog.text
        await found.declare("bananas")
        # The other coordinator answers with a certificate of the same authority.
        assert (await found.call("GET", "/v1/groups/bananas")).status_code == 200
