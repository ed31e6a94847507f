"""Long-polls over a socket: what ends them, who hears of one that breaks, and limits."""

import asyncio
from collections.abc import AsyncIterator
from unittest.mock import Mock

import pytest
from tests.api.pairs import BEARER, Pair
from tests.api.plain import Socket, ask, beat, epoch_of, one_member
from tests.waiting import until

from batonpass.core.state.ids import GroupId, MemberId
from batonpass.runtime import watchers

RUNNING = {"0_0": {"role": "active", "state": "running"}}


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """A coordinator with a group of one member."""
    async with one_member() as found:
        yield found


def parked(pair: Pair) -> int:
    """Return how many polls the first coordinator says that it has."""
    return pair.processes[0].policy.limits.polls.taken


def waiting(pair: Pair) -> int:
    """Return how many wait for news of the group's members."""
    return len(pair.processes[0].coordinator._runtimes[GroupId("apples")].watchers)


def answered(pair: Pair, status: int) -> float:
    """Return how many polls were answered with a status, as the metrics say."""
    found = 0.0
    for family in pair.processes[0].counts.registry.collect():
        for sample in family.samples:
            if sample.name == "batonpass_requests_total" and sample.labels["status"] == str(status):
                found += sample.value if sample.labels["path"].endswith("/assignment") else 0
    return found


async def test_long_polls_are_answered_when_their_group_is_deleted(pair: Pair) -> None:
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    await wire.send(ask(epoch, x_request_id="one"))
    await until(lambda: parked(pair) == 1)
    assert (await pair.call("DELETE", "/v1/groups/apples?force=true")).is_success
    status, headers, body = await wire.answer()
    assert (status, body["type"], headers["x-request-id"]) == (404, "unknown-group", "one")
    assert parked(pair) == 0


async def test_a_new_assignment_wakes_the_poll(pair: Pair) -> None:
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
    await wire.send(ask(body["member_epoch"], wait_ms=100))
    assert (await wire.answer())[0] == 204


async def test_a_wait_that_is_over_is_204_and_the_connection_goes_on(pair: Pair) -> None:
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    for seq in (1, 2, 3):
        await wire.send(ask(epoch, wait_ms=60))
        status, headers, body = await wire.answer()
        assert (status, body) == (204, b"")
        assert "content-length" not in headers
        await wire.send(beat(seq, epoch=epoch, tasks=RUNNING))
        assert (await wire.answer())[2]["seq"] == seq
    assert (parked(pair), waiting(pair)) == (0, 0)
    assert answered(pair, 204) == 3


async def test_an_epoch_that_is_behind_is_answered_at_once(pair: Pair) -> None:
    wire = await Socket.open(pair)
    await wire.send(ask(0))
    assert (await wire.answer())[2]["assignment"]["active"]
    assert parked(pair) == 0


async def test_the_group_hears_of_a_parked_poll_whose_connection_breaks(pair: Pair) -> None:
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    await wire.send(ask(epoch))
    await until(lambda: waiting(pair) == 1)
    wire.writer.close()
    await until(lambda: pair.decided(0, "PollBroken") == 1, within_s=12)
    assert (parked(pair), waiting(pair)) == (0, 0)
    assert answered(pair, 499) == 1
    other = await Socket.open(pair)
    await other.send(ask(epoch))
    await until(lambda: pair.decided(0, "PollOpened") == 1)


async def test_a_poll_that_breaks_beside_another_says_nothing(pair: Pair) -> None:
    """While a member has another poll open, it lives."""
    epoch = await epoch_of(pair)
    wires = [await Socket.open(pair) for _ in range(2)]
    for wire in wires:
        await wire.send(ask(epoch))
    await until(lambda: waiting(pair) == 2)
    wires[0].writer.close()
    await until(lambda: parked(pair) == 1, within_s=12)
    await asyncio.sleep(0.05)
    assert pair.decided(0, "PollBroken") == 0


@pytest.mark.parametrize("is_one_piece", [True, False])
async def test_whoever_sends_on_is_answered_in_order(pair: Pair, *, is_one_piece: bool) -> None:
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    pieces = [ask(epoch, wait_ms=300), beat(1, epoch=epoch), ask(epoch, wait_ms=0)]
    await wire.send(*([b"".join(pieces)] if is_one_piece else pieces))
    assert (await wire.answer())[0] == 204
    assert (await wire.answer())[2]["seq"] == 1
    assert (await wire.answer())[0] == 204
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
    ],
    ids=["token", "malformed", "unknown", "name", "group", "member", "method"],
)
async def test_what_is_out_of_order_is_refused(pair: Pair, request_bytes: bytes, status: int) -> None:
    wire = await Socket.open(pair)
    await wire.send(request_bytes)
    assert (await wire.answer())[0] == status
    assert parked(pair) == 0


async def test_a_poll_without_a_place_is_refused() -> None:
    async with one_member(polls_max=1) as pair:
        epoch = await epoch_of(pair)
        wires = [await Socket.open(pair) for _ in range(2)]
        await wires[0].send(ask(epoch))
        await until(lambda: parked(pair) == 1)
        await wires[1].send(ask(epoch))
        status, headers, body = await wires[1].answer()
        assert (status, body["type"], headers["retry-after"]) == (429, "limit-exceeded", "2")


async def test_one_poll_too_many_of_a_member_is_refused() -> None:
    async with one_member(member_requests_per_s=0.1, member_requests_burst=2) as pair:
        epoch = await epoch_of(pair)
        wire = await Socket.open(pair)
        for status in (204, 429):
            await wire.send(ask(epoch, wait_ms=0))
            assert (await wire.answer())[0] == status


async def test_a_stopping_coordinator_answers_what_waits(pair: Pair) -> None:
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    await wire.send(ask(epoch))
    await until(lambda: parked(pair) == 1)
    await pair.stop(0)
    assert (await wire.answer())[0] == 204
    assert await asyncio.wait_for(wire.reader.read(), 5) == b""
    assert pair.decided(0, "PollBroken") == 0


async def test_a_group_that_must_be_read_first_is_read(pair: Pair) -> None:
    """A parked poll outlives that its group was let go and is read anew."""
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    await wire.send(ask(epoch, wait_ms=400))
    await until(lambda: parked(pair) == 1)
    pair.processes[0].coordinator._runtimes[GroupId("apples")].engine.let_go()
    assert (await wire.answer())[0] == 204
    assert pair.processes[0].coordinator._runtimes[GroupId("apples")].engine.is_loaded


async def test_a_group_of_another_coordinator_is_forwarded(pair: Pair) -> None:
    await pair.declare("berries")
    assert (await pair.call("PUT", "/v1/groups/berries/members/m1", json={})).status_code == 201
    wire = await Socket.open(pair)
    await wire.send(ask(0, group="berries"))
    assert (await wire.answer())[2]["assignment"]["active"]


async def test_many_are_woken_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchers, "WOKEN_AT_ONCE", 3)
    room, woken, turns = watchers.Watchers(), list[int](), list[int]()

    async def wait(number: int) -> None:
        assert await room.wait(MemberId("m1"), 5)
        woken.append(number)

    waits = [asyncio.create_task(wait(number)) for number in range(10)]
    await until(lambda: len(room) == 10)
    room.wake_all()
    room.wake_all()
    while len(woken) < 10:
        turns.append(len(woken))
        await asyncio.sleep(0)
    await asyncio.gather(*waits)
    assert sorted(woken) == list(range(10))
    assert [one for one in dict.fromkeys(turns) if one] == [3, 6, 9]
    assert len(room) == 0


async def test_a_failure_of_the_program_is_told_and_the_next_poll_is_served(
    monkeypatch: pytest.MonkeyPatch, pair: Pair
) -> None:
    epoch = await epoch_of(pair)
    wire = await Socket.open(pair)
    await wire.send(ask(epoch))
    await until(lambda: waiting(pair) == 1)
    coordinator = pair.processes[0].coordinator
    look_for = coordinator._look_for
    monkeypatch.setattr(coordinator, "_look_for", Mock(side_effect=KeyError("m1")))
    coordinator._runtimes[GroupId("apples")].watchers.wake_all()
    status, _, body = await wire.answer()
    assert (status, body["type"]) == (500, "internal-error")
    monkeypatch.setattr(coordinator, "_look_for", look_for)
    await wire.send(ask(epoch, wait_ms=0))
    assert (await wire.answer())[0] == 204
    assert (parked(pair), waiting(pair)) == (0, 0)


@pytest.mark.parametrize("group", ["apples", "b-group"])
async def test_a_drain_whose_caller_hangs_up_gives_its_place_back(pair: Pair, group: str) -> None:
    """On the coordinator that was asked, and on the owner to which it was forwarded."""
    if group != "apples":
        await pair.declare(group)
        assert (await pair.call("PUT", f"/v1/groups/{group}/members/m1", json={})).status_code == 201
    places = [process.policy.limits.polls for process in pair.processes]
    wire = await Socket.open(pair)
    lines = [f"POST /v1/groups/{group}/members/m1/drain?wait_ms=300000 HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in BEARER.items()]
    await wire.send("\r\n".join([*lines, "Content-Length: 0", "", ""]).encode())
    owner = pair.processes[0 if group == "apples" else 1].coordinator._runtimes[GroupId(group)]
    await until(lambda: len(owner.watchers) == 1)
    assert any(place.taken for place in places)
    wire.writer.close()
    await until(lambda: not any(place.taken for place in places))
    assert not owner.watchers
