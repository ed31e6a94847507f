"""Heartbeats over a socket: in pieces, one behind the other, out of order, too many."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from unittest.mock import AsyncMock

import pytest
from tests.api.pairs import Pair
from tests.api.plain import Socket, ask, beat, epoch_of, one_member

from batonpass import connections

RUNNING = {"0_0": {"role": "active", "state": "running"}}


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """A coordinator with a group of one member."""
    async with one_member() as found:
        yield found


async def test_an_encoded_path_names_the_same_member(pair: Pair) -> None:
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    await wire.send(beat(1, epoch=epoch, tasks=RUNNING))
    plain = await wire.answer()
    await wire.send(beat(2, epoch=epoch, tasks=RUNNING).replace(b"/m1/", b"/m%31/"))
    encoded = await wire.answer()
    assert (plain[0], encoded[0]) == (200, 200)
    assert encoded[2] == plain[2] | {"seq": 2}
    assert encoded[1].keys() == plain[1].keys()


@pytest.mark.parametrize(
    "cut", [(60, -10), (-300,), (-1,), (-20, -3)], ids=["thrice", "in the head", "in the body", "at the body"]
)
async def test_a_heartbeat_in_pieces_is_answered(pair: Pair, cut: tuple[int, ...]) -> None:
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    for seq in (1, 2):
        whole = beat(seq, epoch=epoch)
        cuts = [0, *(at % len(whole) for at in cut), len(whole)]
        await wire.send(*(whole[begin:end] for begin, end in pairwise(cuts)))
        assert (await wire.answer())[2]["seq"] == seq


async def test_who_waits_for_leave_to_send_a_body_gets_it(pair: Pair) -> None:
    """`Expect: 100-continue` is answered before the body comes (RFC 9110, 10.1.1)."""
    whole = beat(1, epoch=await epoch_of(pair), headers={"Expect": "100-continue"})
    at = whole.index(b"\r\n\r\n") + 4
    wire = await Socket.open(pair)
    await wire.send(whole[:at])
    assert (await wire.answer())[0] == 100
    await wire.send(whole[at:])
    assert (await wire.answer())[2]["seq"] == 1


async def test_a_heartbeat_behind_a_long_poll_waits_for_its_answer(pair: Pair) -> None:
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    await wire.send(ask(epoch, wait_ms=300) + beat(1, epoch=epoch))
    assert (await wire.answer())[0] == 204
    assert (await wire.answer())[2]["seq"] == 1


async def test_heartbeats_in_one_piece_are_answered_one_after_the_other(pair: Pair) -> None:
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    await wire.send(beat(1, epoch=epoch) + beat(2, epoch=epoch) + beat(3, epoch=epoch))
    assert [(await wire.answer())[2]["seq"] for _ in range(3)] == [1, 2, 3]


async def test_a_heartbeat_that_writes_is_decided_once(pair: Pair) -> None:
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    await wire.send(beat(1, epoch=epoch, tasks={"0_0": {"role": "active", "state": "restoring", "lag": 5}}))
    assert (await wire.answer())[0] == 200
    before = pair.decided(0, "Heartbeat")
    await wire.send(beat(2, epoch=epoch, tasks=RUNNING))
    assert (await wire.answer())[0] == 200
    assert pair.decided(0, "Heartbeat") == before + 1


async def test_an_unknown_member_gets_its_problem(pair: Pair) -> None:
    wire = await Socket.open(pair)
    await wire.send(beat(1, member="nobody"))
    status, headers, body = await wire.answer()
    assert (status, body["type"], body["action"]) == (404, "unknown-member", "stop-and-rejoin")
    assert headers["content-type"] == "application/problem+json"


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
async def test_what_is_out_of_order_is_refused(pair: Pair, request_bytes: bytes, status: int) -> None:
    wire = await Socket.open(pair)
    await wire.send(request_bytes)
    assert (await wire.answer())[0] == status


async def test_a_body_that_is_too_large_is_refused(pair: Pair) -> None:
    wire = await Socket.open(pair)
    await wire.send(beat(1, note="x" * pair.processes[0].settings.body_bytes_max))
    assert (await wire.answer())[0] == 413


async def test_a_group_of_another_coordinator_is_answered_by_that(pair: Pair) -> None:
    await pair.declare("berries")
    joined = await pair.call("PUT", "/v1/groups/berries/members/m1", json={})
    assert joined.status_code == 201
    wire = await Socket.open(pair)
    await wire.send(beat(1, epoch=joined.json()["member_epoch"]).replace(b"/apples/", b"/berries/"))
    assert (await wire.answer())[2]["seq"] == 1
    assert (pair.decided(0, "Heartbeat"), pair.decided(1, "Heartbeat")) == (0, 1)


async def test_who_heartbeats_too_often_is_refused_and_so_is_a_token_that_is_revoked(pair: Pair) -> None:
    epoch = await epoch_of(pair)
    pair.processes[0].policy.limits.member.__init__(1.0, 1.0)  # type: ignore[misc]
    wire = await Socket.open(pair)
    statuses = []
    for seq in (1, 2, 3, 4):
        await wire.send(beat(seq, epoch=epoch, tasks=RUNNING))
        statuses.append((await wire.answer())[0])
    assert statuses == [200, 429, 429, 429]
    gate = pair.processes[0].policy.gate
    assert gate is not None
    gate._known.clear()
    gate._admin = None
    gate._tokens = AsyncMock(**{"find.return_value": None})
    await wire.send(beat(5, epoch=epoch))
    assert (await wire.answer())[0] == 401


async def test_a_connection_that_is_to_close_is_closed(pair: Pair) -> None:
    wire = await Socket.open(pair)
    await wire.send(beat(1, epoch=await epoch_of(pair), headers={"connection": "close"}))
    assert (await wire.answer())[1]["connection"] == "close"
    assert await wire.reader.read() == b""


async def test_a_caller_that_breaks_off_in_a_body_leaves_the_others_served(pair: Pair) -> None:
    wire = await Socket.open(pair)
    whole = beat(1, epoch=await epoch_of(pair))
    await wire.send(whole[:-5])
    wire.writer.close()
    other = await Socket.open(pair)
    await other.send(beat(1, epoch=await epoch_of(pair)))
    assert (await other.answer())[0] == 200


async def test_a_connection_stays_open_as_long_as_heartbeats_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of an idle connection counts from the last answer."""
    monkeypatch.setattr(connections, "KEEP_ALIVE_S", 1)
    async with one_member() as pair:
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
