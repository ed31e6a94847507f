"""Long-polls that are parked on their connections: what goes that way, and that nobody can tell by the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from tests.api.pairs import BEARER, Pair, until
from tests.api.plain import Socket, beat, epoch_of, one_member

from batonpass.api.parking import Stay
from batonpass.core.ids import GroupId, MemberId
from batonpass.runtime import watchers

RUNNING = {"0_0": {"role": "active", "state": "running"}}


def ask(after: int, *, wait_ms: int = 30_000, member: str = "m1", group: str = "apples", **headers: str) -> bytes:
    """Return the bytes of a long-poll."""
    lines = [f"GET /v1/groups/{group}/members/{member}/assignment?after={after}&wait_ms={wait_ms} HTTP/1.1", "Host: b"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in (BEARER | headers).items()]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    """A coordinator with a group of one member."""
    async with one_member(monkeypatch) as found:
        yield found


@pytest.fixture(autouse=True)
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Stay]:
    """The polls that have begun on the short way."""
    found: list[Stay] = []
    begin = Stay.begin

    def noted(self: Stay) -> None:
        found.append(self)
        begin(self)

    monkeypatch.setattr(Stay, "begin", noted)
    return found


def parked(pair: Pair) -> int:
    """Return how many polls the first coordinator says that it has."""
    return pair.processes[0].edge.limits.polls.taken


def waiting(pair: Pair) -> int:
    """Return how many wait for news of the group's members."""
    return len(pair.processes[0].coordinator._rooms[GroupId("apples")].watchers)


def answered(pair: Pair, status: int) -> float:
    """Return how many polls were answered with a status, as the metrics say."""
    found = 0.0
    for family in pair.processes[0].counts.registry.collect():
        for sample in family.samples:
            if sample.name == "batonpass_requests_total" and sample.labels["status"] == str(status):
                found += sample.value if sample.labels["path"].endswith("/assignment") else 0
    return found


async def test_news_comes_as_on_the_long_way(pair: Pair, begun: list[Stay]) -> None:
    """A parked poll gets the new picture: the same body and headers as one that goes the long way."""
    epoch = await epoch_of(pair)
    begun.clear()
    quick, slow = await Socket.open(pair), await Socket.open(pair)
    await quick.send(ask(epoch, x_request_id="one"))
    await slow.send(ask(epoch, x_request_id="two").replace(b"/m1/", b"/m%31/"))
    await until(lambda: parked(pair) == 2)
    assert len(begun) == 1
    assert (await pair.call("DELETE", "/v1/groups/apples?force=true")).is_success
    first, second = await quick.answer(), await slow.answer()
    assert (first[0], first[2]["type"]) == (404, "unknown-group")
    assert first[0] == second[0]
    assert first[2] == second[2]
    assert (first[1].pop("x-request-id"), second[1].pop("x-request-id")) == ("one", "two")
    assert first[1] == second[1]
    assert parked(pair) == 0


async def test_a_new_picture_wakes_the_poll(pair: Pair, begun: list[Stay]) -> None:
    """What another member's joining gives to this one's standby is told at once, and the next poll waits again."""
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    await wire.send(beat(1, epoch=epoch, tasks=RUNNING))
    await wire.answer()
    await wire.send(ask(epoch))
    await until(lambda: waiting(pair) == 1)
    assert (await pair.call("POST", "/v1/groups/apples/members/m1/drain?wait_ms=0")).is_success
    joined = await pair.call("PUT", "/v1/groups/apples/members/m2", json={})
    assert joined.status_code == 201
    newer = joined.json()["member_epoch"]
    warm = {"seq": 1, "member_epoch": newer, "tasks": {"0_0": {"role": "warmup", "lag": 0}}}
    await pair.call("POST", "/v1/groups/apples/members/m2/heartbeat", json=warm)
    status, _, body = await wire.answer()
    assert (status, body["assignment"]["active"]) == (200, [])
    assert begun
    begun.clear()
    await wire.send(ask(body["member_epoch"], wait_ms=100))
    assert (await wire.answer())[0] == 204
    assert len(begun) == 1


async def test_a_wait_that_is_over_is_204_and_the_connection_goes_on(pair: Pair, begun: list[Stay]) -> None:
    """Polls and heartbeats follow each other on one connection."""
    epoch = await epoch_of(pair)
    begun.clear()
    wire = await Socket.open(pair)
    for seq in (1, 2, 3):
        await wire.send(ask(epoch, wait_ms=60))
        status, headers, body = await wire.answer()
        assert (status, body) == (204, b"")
        assert "content-length" not in headers
        await wire.send(beat(seq, epoch=epoch, tasks=RUNNING))
        assert (await wire.answer())[2]["seq"] == seq
    assert len(begun) == 3
    assert (parked(pair), waiting(pair)) == (0, 0)
    assert answered(pair, 204) == 3


async def test_an_epoch_that_is_behind_is_answered_at_once(pair: Pair, begun: list[Stay]) -> None:
    """What there is to say already is not waited for."""
    wire = await Socket.open(pair)
    await wire.send(ask(0))
    assert (await wire.answer())[2]["assignment"]["active"]
    assert len(begun) == 1
    assert parked(pair) == 0


async def test_a_broken_connection_is_the_word_of_it(pair: Pair) -> None:
    """A parked poll whose connection breaks is told to the group, counted as broken off, and gives its place back."""
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    await wire.send(ask(epoch))
    await until(lambda: waiting(pair) == 1)
    wire.writer.close()
    await until(lambda: pair.decided(0, "PollBroken") == 1)
    assert (parked(pair), waiting(pair)) == (0, 0)
    assert answered(pair, 499) == 1
    other = await Socket.open(pair)
    await other.send(ask(epoch))
    await until(lambda: pair.decided(0, "PollOpened") == 1)


async def test_a_poll_that_breaks_beside_another_says_nothing(pair: Pair) -> None:
    """While a member has another poll open, on either way, it lives."""
    epoch = await epoch_of(pair)
    wires = [await Socket.open(pair) for _ in range(2)]
    for wire in wires:
        await wire.send(ask(epoch))
    await until(lambda: waiting(pair) == 2)
    wires[0].writer.close()
    await until(lambda: parked(pair) == 1)
    await asyncio.sleep(0.05)
    assert pair.decided(0, "PollBroken") == 0


@pytest.mark.parametrize("is_one_piece", [True, False])
async def test_whoever_sends_on_is_answered_in_order(pair: Pair, begun: list[Stay], *, is_one_piece: bool) -> None:
    """A request behind a parked poll waits for its answer, however many there are."""
    epoch = await epoch_of(pair)
    begun.clear()
    wire = await Socket.open(pair)
    pieces = [ask(epoch, wait_ms=300), beat(1, epoch=epoch), ask(epoch, wait_ms=0)]
    await wire.send(*([b"".join(pieces)] if is_one_piece else pieces))
    assert (await wire.answer())[0] == 204
    assert (await wire.answer())[2]["seq"] == 1
    assert (await wire.answer())[0] == 204
    assert len(begun) == 1
    assert (parked(pair), waiting(pair)) == (0, 0)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (ask(0, authorization="Bearer wrong"), 401),
        (ask(0).replace(b"after=0", b"after=x"), 422),
        (ask(0).replace(b"after=0", b"later=0"), 422),
        (ask(0).replace(b"/m1/", b"/m%20x/"), 422),
        (ask(0, group="pears"), 404),
        (ask(0, member="nobody"), 404),
        (ask(0).replace(b"GET", b"POST", 1), 405),
        (ask(10_000, wait_ms=0), 409),
    ],
    ids=["token", "malformed", "unknown", "name", "group", "member", "method", "epoch"],
)
async def test_refusals_are_the_same(pair: Pair, request_bytes: bytes, status: int) -> None:
    """Whatever is out of order is told as on the long way, in the same words."""
    answers: list[tuple[int, dict[str, str], Any]] = []
    for one in (request_bytes, request_bytes.replace(b"/members/", b"/%6dembers/")):
        wire = await Socket.open(pair)
        await wire.send(one)
        answers.append(await wire.answer())
    for _, headers, _ in answers:
        headers.pop("x-request-id")
        headers.pop("date")
    assert answers[0] == answers[1]
    assert answers[0][0] in {status, 200}


async def test_limits_hold(pair: Pair, begun: list[Stay]) -> None:
    """A poll that finds no place is refused, and one too many of a member."""
    epoch = await epoch_of(pair)
    limits = pair.processes[0].edge.limits
    limits.polls._most = 1
    wires = [await Socket.open(pair) for _ in range(2)]
    await wires[0].send(ask(epoch))
    await until(lambda: parked(pair) == 1)
    begun.clear()
    await wires[1].send(ask(epoch))
    status, headers, body = await wires[1].answer()
    assert (status, body["type"], headers["retry-after"]) == (429, "limit-exceeded", "2")
    limits.polls._most = 5
    limits.member.__init__(1.0, 1.0)  # type: ignore[misc]
    await wires[1].send(ask(epoch, wait_ms=0))
    assert (await wires[1].answer())[0] == 204
    await wires[1].send(ask(epoch, wait_ms=0))
    assert (await wires[1].answer())[0] == 429
    assert len(begun) == 1


async def test_a_stopping_coordinator_answers_what_waits(pair: Pair) -> None:
    """Every parked poll ends as if its time were over, and its connection is closed."""
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    await wire.send(ask(epoch))
    await until(lambda: parked(pair) == 1)
    await pair.stop(0)
    assert (await wire.answer())[0] == 204
    assert await asyncio.wait_for(wire.reader.read(), 5) == b""
    assert pair.decided(0, "PollBroken") == 0


async def test_a_group_that_must_be_read_first_is_read(pair: Pair, begun: list[Stay]) -> None:
    """A parked poll outlives that its group was let go and is read anew."""
    epoch = await epoch_of(pair)
    begun.clear()
    wire = await Socket.open(pair)
    await wire.send(ask(epoch, wait_ms=400))
    await until(lambda: parked(pair) == 1)
    pair.processes[0].coordinator._rooms[GroupId("apples")].engine.let_go()
    assert (await wire.answer())[0] == 204
    assert len(begun) == 1
    assert pair.processes[0].coordinator._rooms[GroupId("apples")].engine.is_loaded


async def test_a_group_of_another_coordinator_is_forwarded(pair: Pair, begun: list[Stay]) -> None:
    """A poll for a group that is served elsewhere goes there."""
    await pair.declare("berries")
    assert (await pair.call("PUT", "/v1/groups/berries/members/m1", json={})).status_code == 201
    begun.clear()
    wire = await Socket.open(pair)
    await wire.send(ask(0, group="berries"))
    assert (await wire.answer())[2]["assignment"]["active"]
    # The owner takes it as forwarded, which is the long way too.
    assert begun == []


def _told(told: list[int], number: int, _news: bool) -> None:  # noqa: FBT001 - as waits are told
    told.append(number)


async def test_many_are_told_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that concerns more than are told at once reaches all, and lets others have their turns between."""
    monkeypatch.setattr(watchers, "TOLD_AT_ONCE", 3)
    room, told, turns = watchers.Watchers(), list[int](), list[int]()

    async def turn() -> None:
        while len(told) < 10:
            turns.append(len(told))
            await asyncio.sleep(0)

    for number in range(10):
        room.add(MemberId("m1"), 5, partial(_told, told, number))
    room.wake_all()
    room.wake_all()
    await turn()
    assert sorted(told) == list(range(10))
    assert turns[:4] == [0, 3, 6, 9]
    assert len(room) == 0


async def test_a_failure_of_one_that_is_told_leaves_the_others_told() -> None:
    """Who cannot be told does not keep the news from the rest."""
    room, told = watchers.Watchers(), list[str]()
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))

    def fail(_news: bool) -> None:  # noqa: FBT001 - as waits are told
        raise RuntimeError("no line")

    room.add(MemberId("m1"), 5, fail)
    room.add(MemberId("m1"), 5, lambda _news: told.append("m1"))
    room.wake_all()
    await asyncio.sleep(0.01)
    assert told == ["m1"]
    assert len(failures) == 1


async def test_a_failure_of_the_program_is_told_and_the_next_poll_is_served(
    monkeypatch: pytest.MonkeyPatch, pair: Pair
) -> None:
    """Whoever waits is answered 500, as on the long way, and keeps its connection."""
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    await wire.send(ask(epoch))
    await until(lambda: waiting(pair) == 1)
    coordinator = pair.processes[0].coordinator
    look_for = coordinator.look_for
    monkeypatch.setattr(coordinator, "look_for", Mock(side_effect=KeyError("m1")))
    coordinator._rooms[GroupId("apples")].watchers.wake_all()
    status, _, body = await wire.answer()
    assert (status, body["type"]) == (500, "internal-error")
    monkeypatch.setattr(coordinator, "look_for", look_for)
    await wire.send(ask(epoch, wait_ms=0))
    assert (await wire.answer())[0] == 204
    assert (parked(pair), waiting(pair)) == (0, 0)
