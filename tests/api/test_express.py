"""Heartbeats that are answered as they arrive: what goes that way, what does not, and that no answer tells which."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any
from unittest.mock import AsyncMock

import pytest
from tests.api.pairs import BEARER, Pair
from tests.api.plain import Socket, beat, epoch_of, one_member

from batonpass import bootstrap
from batonpass.api import wire as wires
from batonpass.api.express import HEAD_BYTES_MAX, Express, Known


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    """A coordinator with a group of one member."""
    async with one_member(monkeypatch) as found:
        yield found


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of what the short way has found, in order; everything else went the long way."""
    found: list[str] = []
    answer = Express.answer

    def noted(self: Express, url: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> Any:
        result = answer(self, url, headers, body)
        found.append(type(result).__name__)
        return result

    monkeypatch.setattr(Express, "answer", noted)
    return found


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of what was found for heartbeats whose heads were recognised, in order."""
    found: list[str] = []
    answer = Express.answer_known

    def noted(self: Express, known: Known, body: bytes) -> Any:
        result = answer(self, known, body)
        found.append(type(result).__name__)
        return result

    monkeypatch.setattr(Express, "answer_known", noted)
    return found


async def test_the_short_way_answers_as_the_long_one_does(pair: Pair, short: list[str]) -> None:
    """A heartbeat to a plain path and to an encoded one get the same body and headers, but for the request's id."""
    epoch = (await pair.call("GET", "/v1/groups/apples/members/m1/assignment?after=0")).json()["member_epoch"]
    running = {"0_0": {"role": "active", "state": "running"}}
    wire = await Socket.open(pair)
    await wire.send(beat(1, epoch=epoch, tasks=running))
    first = await wire.answer()
    short.clear()
    await wire.send(beat(2, epoch=epoch, tasks=running, headers={"X-Request-Id": "one"}))
    quick = await wire.answer()
    assert short == ["bytes"]
    encoded = beat(3, epoch=epoch, tasks=running, headers={"X-Request-Id": "two"}).replace(b"/m1/", b"/m%31/")
    await wire.send(encoded)
    slow = await wire.answer()
    assert short == ["bytes", "NoneType"]
    assert (first[0], quick[0], slow[0]) == (200, 200, 200)
    assert quick[2] | {"seq": 0} == slow[2] | {"seq": 0}
    assert (quick[2]["seq"], slow[2]["seq"]) == (2, 3)
    assert (quick[1].pop("x-request-id"), slow[1].pop("x-request-id")) == ("one", "two")
    assert quick[1].keys() == slow[1].keys()


@pytest.mark.parametrize("cut", [(60, -10), (-300,), (-1,)], ids=["thrice", "in the head", "in the body"])
async def test_a_heartbeat_in_pieces_goes_the_short_way(pair: Pair, short: list[str], cut: tuple[int, ...]) -> None:
    """Head and body may come one after the other, and be cut anywhere."""
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    await wire.send(beat(1, epoch=epoch))
    assert (await wire.answer())[0] == 200
    short.clear()
    whole = beat(2, epoch=epoch)
    cuts = [0, *(at % len(whole) for at in cut), len(whole)]
    await wire.send(*(whole[begin:end] for begin, end in pairwise(cuts)))
    assert (await wire.answer())[2]["seq"] == 2
    assert short == ["bytes"]


async def test_a_long_body_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, pair: Pair, short: list[str]) -> None:
    """Behind a limit the long way takes the body as it comes."""
    monkeypatch.setattr(wires, "HELD_BYTES_MAX", 100)
    whole = beat(1, epoch=await epoch_of(pair), tasks={f"0_{place}": {"role": "standby"} for place in range(9)})
    at = whole.index(b"\r\n\r\n") + 120
    socket = await Socket.open(pair)
    await socket.send(whole[:at], whole[at:])
    assert (await socket.answer())[2]["seq"] == 1
    assert short == []


async def test_who_waits_for_leave_to_send_a_body_gets_it(pair: Pair, short: list[str]) -> None:
    """`Expect: 100-continue` is answered before the body comes (RFC 9110, 10.1.1)."""
    whole = beat(1, epoch=await epoch_of(pair), headers={"Expect": "100-continue"})
    at = whole.index(b"\r\n\r\n") + 4
    wire = await Socket.open(pair)
    await wire.send(whole[:at])
    assert (await wire.answer())[0] == 100
    await wire.send(whole[at:])
    assert (await wire.answer())[2]["seq"] == 1
    assert short == []


async def test_a_body_that_stops_half_way_is_given_up(monkeypatch: pytest.MonkeyPatch, known: list[str]) -> None:
    """Behind a known head as behind any other a body has its time, and no longer."""
    async with one_member(monkeypatch, request_arrival_s=1) as pair:
        epoch = await epoch_of(pair)
        socket = await Socket.open(pair)
        for seq in (1, 2, 3):
            await socket.send(beat(seq, epoch=epoch))
            assert (await socket.answer())[0] == 200
        await socket.send(beat(4, epoch=epoch)[:-3])
        status, headers, _ = await socket.answer()
        assert (status, headers["connection"]) == (408, "close")
    assert known == ["bytes"]


async def test_answers_come_in_the_order_of_the_requests(pair: Pair, short: list[str]) -> None:
    """Behind a request that waits, a heartbeat on the same connection waits too."""
    poll = f"GET /v1/groups/apples/members/m1/assignment?after={await epoch_of(pair)}&wait_ms=300 HTTP/1.1"
    lines = [poll, "Host: b", *(f"{name}: {value}" for name, value in BEARER.items()), "", ""]
    wire = await Socket.open(pair)
    await wire.send("\r\n".join(lines).encode() + beat(1, epoch=await epoch_of(pair)))
    assert (await wire.answer())[0] == 204
    assert (await wire.answer())[2]["seq"] == 1
    assert short == []


async def test_two_heartbeats_in_one_piece_are_answered_one_after_the_other(pair: Pair) -> None:
    """Pipelined heartbeats are each answered, in order."""
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    await wire.send(beat(1, epoch=epoch) + beat(2, epoch=epoch) + beat(3, epoch=epoch))
    assert [(await wire.answer())[2]["seq"] for _ in range(3)] == [1, 2, 3]


async def test_a_heartbeat_that_writes_is_decided_once(pair: Pair, short: list[str]) -> None:
    """What the short way has found out is taken up by the long one: one decision, one answer."""
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    await wire.send(beat(1, epoch=epoch, tasks={"0_0": {"role": "active", "state": "restoring", "lag": 5}}))
    assert (await wire.answer())[0] == 200
    before = pair.decided(0, "Heartbeat")
    await wire.send(beat(2, epoch=epoch, tasks={"0_0": {"role": "active", "state": "running"}}))
    assert (await wire.answer())[0] == 200
    assert short[-1] == "Ahead"
    assert pair.decided(0, "Heartbeat") == before + 1


async def test_a_refusal_found_on_the_short_way_is_told_as_ever(pair: Pair, short: list[str]) -> None:
    """An unknown member gets its problem object, and it is counted as refused."""
    wire = await Socket.open(pair)
    await wire.send(beat(1, member="nobody"))
    status, headers, body = await wire.answer()
    assert (status, body["type"], body["action"]) == (404, "unknown-member", "stop-and-rejoin")
    assert headers["content-type"] == "application/problem+json"
    assert short == ["Ahead"]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (beat(1, headers={"authorization": "Bearer wrong"}), 401),
        (beat(1).replace(b'"seq": 1', b'"seq": x'), 422),
        (beat(1).replace(b"POST", b"PUT", 1), 405),
        (beat(1).replace(b"/m1/", b"/m%20x/"), 422),
        (beat(1).replace(b"/apples/", b"/pears/"), 404),
    ],
    ids=["token", "malformed", "method", "name", "group"],
)
async def test_whatever_is_out_of_order_goes_the_long_way(pair: Pair, request_bytes: bytes, status: int) -> None:
    """Every refusal is the one that the long way gives."""
    wire = await Socket.open(pair)
    await wire.send(request_bytes)
    assert (await wire.answer())[0] == status


async def test_a_body_that_is_too_large_is_refused(pair: Pair) -> None:
    """The limit on bodies holds, in whatever pieces they come."""
    wire = await Socket.open(pair)
    await wire.send(beat(1, note="x" * pair.processes[0].settings.body_bytes_max))
    assert (await wire.answer())[0] == 413


async def test_a_group_of_another_coordinator_is_not_answered_here(pair: Pair, short: list[str]) -> None:
    """A heartbeat for a group that is served elsewhere is forwarded."""
    await pair.declare("berries")
    joined = await pair.call("PUT", "/v1/groups/berries/members/m1", json={})
    assert joined.status_code == 201
    wire = await Socket.open(pair)
    await wire.send(beat(1, epoch=joined.json()["member_epoch"]).replace(b"/apples/", b"/berries/"))
    assert (await wire.answer())[2]["seq"] == 1
    assert short[0] == "NoneType"


async def test_the_limit_holds_on_the_short_way(pair: Pair, short: list[str]) -> None:
    """Who heartbeats too often is refused there too, and the limit counts both ways together."""
    epoch = await epoch_of(pair)
    pair.processes[0].edge.limits.member.__init__(1.0, 3.0)  # type: ignore[misc]
    wire = await Socket.open(pair)
    statuses = []
    for seq in range(1, 7):
        await wire.send(beat(seq, epoch=epoch))
        statuses.append((await wire.answer())[0])
    assert statuses[-1] == 429
    assert statuses.count(200) in {3, 4}
    assert "bytes" in short


async def test_a_connection_that_is_to_close_is_closed(pair: Pair, short: list[str]) -> None:
    """`Connection: close` is honoured."""
    wire = await Socket.open(pair)
    await wire.send(beat(1, epoch=await epoch_of(pair), headers={"connection": "close"}))
    assert (await wire.answer())[1]["connection"] == "close"
    assert await wire.reader.read() == b""
    assert short == []


async def test_a_body_that_never_comes_takes_nothing_along(pair: Pair) -> None:
    """A caller that breaks off in the middle of a body leaves the others served."""
    wire = await Socket.open(pair)
    whole = beat(1, epoch=await epoch_of(pair))
    await wire.send(whole[:-5])
    wire.writer.close()
    other = await Socket.open(pair)
    await other.send(beat(1, epoch=await epoch_of(pair)))
    assert (await other.answer())[0] == 200


async def test_a_head_that_was_parsed_before_is_not_parsed_again(
    pair: Pair, short: list[str], known: list[str]
) -> None:
    """Heartbeats with the same head, on this connection or another, are answered as if it had been parsed."""
    epoch = await epoch_of(pair)
    wire, other = await Socket.open(pair), await Socket.open(pair)
    # The very first writes, and the first on a connection is parsed: nothing was answered on it before.
    answers = []
    for seq, each in ((1, wire), (2, wire), (3, other)):
        await each.send(beat(seq, epoch=epoch))
        answers.append(await each.answer())
    first = answers[-1]
    del short[:], known[:]
    for seq, each in ((4, wire), (5, other), (6, wire)):
        await each.send(beat(seq, epoch=epoch))
        quick = await each.answer()
        assert quick[2] == first[2] | {"seq": seq}
        assert quick[1].keys() == first[1].keys()
        assert quick[1]["x-request-id"] != first[1]["x-request-id"]
    assert (short, known) == ([], ["bytes"] * 3)


async def test_a_known_head_with_another_length_behind_it_is_parsed(pair: Pair, known: list[str]) -> None:
    """Two heartbeats in one piece are answered as ever; a body that comes later, or in pieces, is waited for."""
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    for seq in (0, 1):
        await wire.send(beat(seq, epoch=epoch))
        assert (await wire.answer())[2]["seq"] == seq
    await wire.send(beat(2, epoch=epoch) + beat(3, epoch=epoch))
    assert [(await wire.answer())[2]["seq"] for _ in range(2)] == [2, 3]
    whole = beat(4, epoch=epoch)
    body_at = whole.index(b"\r\n\r\n") + 4
    await wire.send(whole[:body_at], whole[body_at:])
    assert (await wire.answer())[2]["seq"] == 4
    assert known == ["bytes"]
    whole = beat(5, epoch=epoch)
    await wire.send(whole[:-3], whole[-3:])
    assert (await wire.answer())[2]["seq"] == 5
    whole = beat(6, epoch=epoch)
    await wire.send(whole[:-3], whole[-3:] + beat(7, epoch=epoch))
    assert [(await wire.answer())[2]["seq"] for _ in range(2)] == [6, 7]
    assert known == ["bytes"] * 2
    await wire.send(beat(8, epoch=epoch))
    assert (await wire.answer())[2]["seq"] == 8
    assert known == ["bytes"] * 3


async def test_a_known_head_waits_behind_a_request_that_is_under_way(pair: Pair, known: list[str]) -> None:
    """Answers come in the order of the requests, though the later one could be answered at once."""
    epoch = await epoch_of(pair)
    poll = f"GET /v1/groups/apples/members/m1/assignment?after={epoch}&wait_ms=300 HTTP/1.1"
    lines = [poll, "Host: b", *(f"{name}: {value}" for name, value in BEARER.items()), "", ""]
    wire = await Socket.open(pair)
    for seq in (0, 1):
        await wire.send(beat(seq, epoch=epoch))
        assert (await wire.answer())[0] == 200
    await wire.send("\r\n".join(lines).encode(), beat(2, epoch=epoch))
    assert (await wire.answer())[0] == 204
    assert (await wire.answer())[2]["seq"] == 2
    assert known == []


async def test_what_cannot_be_answered_behind_a_known_head_is_told_as_ever(
    pair: Pair, known: list[str], short: list[str]
) -> None:
    """A body that is malformed or an epoch that is behind gets its problem; what writes is decided once."""
    epoch = await epoch_of(pair)
    restoring = {"0_0": {"role": "active", "state": "restoring"}}
    wire = await Socket.open(pair)
    for seq in (1, 2):
        await wire.send(beat(seq, epoch=epoch, tasks=restoring))
        assert (await wire.answer())[0] == 200
    bad = beat(3, epoch=epoch, tasks=restoring).replace(b'"seq": 3', b'"seq": x')
    await wire.send(bad)
    assert (await wire.answer())[0] == 422
    before = pair.decided(0, "Heartbeat")
    same = beat(3, epoch=epoch, tasks={"0_0": {"role": "active", "state": "running", "lag": 1}})
    del known[:], short[:]
    for one in (same, same.replace(b'"seq": 3', b'"seq": 4'), same.replace(b'"seq": 3', b'"seq": 5')):
        await wire.send(one)
        assert (await wire.answer())[0] == 200
    assert pair.decided(0, "Heartbeat") == before + 3
    # As long as the one before, so that the head is the same.
    await wire.send(same.replace(b'"seq": 3', b'"seq": 6').replace(b'"running", "lag": 1', b'"failed",  "lag": 1'))
    assert (await wire.answer())[0] == 200
    assert known[-1] == "Ahead"
    assert pair.decided(0, "Heartbeat") == before + 4


async def test_a_token_and_a_limit_hold_for_known_heads(pair: Pair, known: list[str]) -> None:
    """Whose token is worth nothing any more, or who calls too often, is refused however often the head was seen."""
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    for seq in (1, 2):
        await wire.send(beat(seq, epoch=epoch))
        assert (await wire.answer())[0] == 200
    pair.processes[0].edge.limits.member.__init__(1.0, 1.0)  # type: ignore[misc]
    statuses = []
    for seq in (3, 4, 5):
        await wire.send(beat(seq, epoch=epoch))
        statuses.append((await wire.answer())[0])
    assert statuses == [200, 429, 429]
    gate = pair.processes[0].edge.gate
    assert gate is not None
    gate._known.clear()
    gate._tokens = AsyncMock(**{"find.return_value": None})
    await wire.send(beat(6, epoch=epoch))
    assert (await wire.answer())[0] == 401
    assert known == ["bytes", "NoneType", "NoneType", "NoneType"]


async def test_heads_that_hardly_come_again_are_not_remembered(pair: Pair, known: list[str]) -> None:
    """A head with an id of its own, or longer than the limit, is parsed every time."""
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    for headers in ({"X-Request-Id": "one"}, {"X-Long": "x" * HEAD_BYTES_MAX}):
        for seq in (1, 2, 3):
            await wire.send(beat(seq, epoch=epoch, headers=headers))
            assert (await wire.answer())[0] == 200
    assert known == []


async def test_a_connection_stays_open_as_long_as_heartbeats_come(
    monkeypatch: pytest.MonkeyPatch, known: list[str]
) -> None:
    """The time of an idle connection counts from the last answer, also from one whose head was known."""
    monkeypatch.setattr(bootstrap, "KEEP_ALIVE_S", 1)
    async with one_member(monkeypatch) as pair:
        epoch = await epoch_of(pair)
        wire = await Socket.open(pair)
        loop = asyncio.get_running_loop()
        begun = last = loop.time()
        for seq in range(1, 8):
            await wire.send(beat(seq, epoch=epoch))
            assert (await wire.answer())[0] == 200
            last = loop.time()
            await asyncio.sleep(0.3)
        assert last - begun > 1.5
        assert await asyncio.wait_for(wire.reader.read(), 5) == b""
        assert loop.time() - last > 0.8
    # The very first writes, and the second is parsed.
    assert known == ["bytes"] * 5
