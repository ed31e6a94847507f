"""Requests that do not arrive: whoever begins none, or does not end one, is not waited for."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest
from tests.api.pairs import SECRET, Pair, paired

HEAD = f"Host: b\r\nAuthorization: Bearer {SECRET}\r\n".encode()
GET = b"GET /v1/groups/apples HTTP/1.1\r\n" + HEAD + b"\r\n"
POLL = b"GET /v1/groups/apples/members/m1/assignment?after=2&wait_ms=20000 HTTP/1.1\r\n" + HEAD + b"\r\n"
BEAT = b"POST /v1/groups/apples/members/m1/heartbeat HTTP/1.1\r\n" + HEAD + b"Content-Length: 28\r\n\r\n"
BODY = b'{"seq": 1, "member_epoch": 2}'[:28]
TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\n"


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    """A coordinator that waits one second for a request, with a group of one member."""
    async with paired(monkeypatch, request_arrival_s=1) as found:
        await found.declare("apples")
        assert (await found.call("PUT", "/v1/groups/apples/members/m1", json={})).status_code == 201
        yield found


async def said(pair: Pair, *pieces: bytes, every_s: float = 0.0) -> tuple[bytes, float]:
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
    """No request, empty lines, half a head, half a body, a body byte by byte, and half a head behind an answer: 408."""
    byte_by_byte = [BEAT, *[BODY[at : at + 1] for at in range(20)]]
    silent = await asyncio.gather(
        said(pair),
        said(pair, b"\r\n"),
        said(pair, GET[:40]),
        said(pair, BEAT),
        said(pair, BEAT + BODY[:20]),
        said(pair, *byte_by_byte, every_s=0.1),
        said(pair, GET, GET[:40], every_s=0.3),
    )
    for answer, took_s in silent:
        assert TOO_LATE in answer
        assert answer.endswith(b"The request did not arrive in time.\n")
        assert 0.9 < took_s < 5
    assert silent[-1][0].startswith(b"HTTP/1.1 200 OK\r\n")
    shown = (await pair.call("GET", "/v1/groups/apples/members/m1")).json()
    assert shown["member_epoch"] == 2


async def test_what_is_being_answered_is_not_late(pair: Pair) -> None:
    """A long-poll waits its time, and a connection that was answered may stay idle; requests in pieces are served."""
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
    """While a long-poll waits nothing can be said on its connection; it is closed all the same."""
    answer, took_s = await said(pair, POLL, GET[:40], every_s=0.1)
    assert answer == b""
    assert 0.9 < took_s < 5
