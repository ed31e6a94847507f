"""Heads of requests that two readers may understand in two ways, and bodies that are announced to be too large."""

import json
from collections.abc import AsyncIterator

import pytest
from tests.api.pairs import BEARER, Pair
from tests.api.plain import Socket, one_member

PATH = "/v1/groups/apples"
TOKEN = f"Authorization: {BEARER['authorization']}"


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """A coordinator with a group of one member."""
    async with one_member() as found:
        yield found


async def answer_to(pair: Pair, first: str, *headers: str) -> tuple[int, str]:
    """Return the status and the detail of what is answered to a head."""
    wire = await Socket.open(pair)
    await wire.send("\r\n".join([first, *headers, "", ""]).encode())
    status, _, body = await wire.answer()
    return status, body.get("detail", "") if isinstance(body, dict) else ""


@pytest.mark.parametrize(
    ("first", "headers", "named"),
    [
        (f"GET {PATH} HTTP/1.1", ["Host: localhost", "Authorization: Bearer other", TOKEN], "Authorization"),
        (f"GET {PATH} HTTP/1.1", ["Host: localhost", TOKEN, TOKEN], "Authorization"),
        (f"GET {PATH} HTTP/1.1", [TOKEN], "Host"),
        (f"GET {PATH} HTTP/1.1", ["Host: localhost", "Host: elsewhere", TOKEN], "Host"),
        (f"GET {PATH} HTTP/1.1", ["Host: localhost", "Expect: the-best", TOKEN], "Expect"),
        (f"GET {PATH} HTTP/2.0", ["Host: localhost", TOKEN], "HTTP/2.0"),
        (f"GET {PATH} HTTP/0.9", ["Host: localhost", TOKEN], "HTTP/0.9"),
    ],
)
async def test_a_head_that_can_be_read_in_two_ways_is_refused(
    pair: Pair, first: str, headers: list[str], named: str
) -> None:
    status, detail = await answer_to(pair, first, *headers)
    assert status == 400
    assert named in detail


async def test_a_trailer_is_no_header(pair: Pair) -> None:
    """RFC 9110, 6.5.1: whoever looked at the head, a proxy say, has not seen it."""
    chunked = ["Host: localhost", "Transfer-Encoding: chunked"]
    for trailer, headers, status in (
        (TOKEN, chunked, 401),
        ("Batonpass-Forwarded-For: 10.0.0.1", [*chunked, TOKEN], 200),
        ("Host: elsewhere", [*chunked, TOKEN], 200),
    ):
        pair.owners["a"] = pair.urls[1] if "Forwarded" in trailer else pair.urls[0]
        head = "\r\n".join([f"GET {PATH} HTTP/1.1", *headers, "", ""])
        body = f"0\r\n{trailer}\r\n\r\n"
        for pieces in ([head + body], [head, body], [head + body[:3], body[3:]]):
            wire = await Socket.open(pair)
            await wire.send(*(piece.encode() for piece in pieces))
            found = (await wire.answer())[0]
            assert found == (404 if "Forwarded" in trailer else status), (trailer, pieces)
            await wire.send(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\n{TOKEN}\r\n\r\n".encode())
            assert (await wire.answer())[0] == (404 if "Forwarded" in trailer else 200), "the next head counts again"


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
async def test_what_follows_a_request_for_another_protocol_is_its_body(
    pair: Pair, *, is_chunked: bool, at_once: bool
) -> None:
    """A proxy sends one caller's request behind another's: no body may be taken for the next head.

    Java's client asks for h2c so with the first request on a connection, body or not.
    """
    planted = f"POST {PATH}/pause HTTP/1.1\r\nX: "
    said = f"{len(planted):x}\r\n{planted}\r\n0\r\n\r\n" if is_chunked else planted
    length = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(planted)}"
    asks = ["Host: localhost", TOKEN, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AA"]
    head = "\r\n".join([f"POST {PATH}/plan HTTP/1.1", *asks, length, "", ""])
    without = "\r\n".join([f"GET {PATH} HTTP/1.1", *asks, "", ""])
    get = f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\n{TOKEN}\r\n\r\n"
    beat = json.dumps({"seq": 1, "member_epoch": 2})
    last = "\r\n".join([f"POST {PATH}/members/m1/heartbeat HTTP/1.1", *asks, f"Content-Length: {len(beat)}", "", beat])
    pieces = [head, said, get, without, last]
    wire = await Socket.open(pair)
    await wire.send(*(piece.encode() for piece in (["".join(pieces)] if at_once else pieces)))
    answers = [await wire.answer() for _ in range(4)]
    assert [status for status, _, _ in answers] == [422, 200, 200, 200]
    assert "JSON is malformed" in answers[0][2]["detail"]
    assert not answers[1][2]["paused"]


async def test_a_plain_head_is_served(pair: Pair) -> None:
    assert (await answer_to(pair, f"GET {PATH} HTTP/1.1", "Host: localhost", TOKEN))[0] == 200
    assert (await answer_to(pair, f"GET {PATH} HTTP/1.0", TOKEN))[0] == 200
    assert (await answer_to(pair, f"GET {PATH} HTTP/1.1", "Host: localhost", "Expect: 100-continue", TOKEN))[0] == 200


async def test_a_body_that_is_announced_to_be_too_large_is_not_waited_for(pair: Pair) -> None:
    limit = pair.processes[0].settings.body_bytes_max
    status, detail = await answer_to(
        pair, f"PUT {PATH} HTTP/1.1", "Host: localhost", TOKEN, f"Content-Length: {limit + 1}", "Expect: 100-continue"
    )
    assert (status, str(limit) in detail) == (413, True)
