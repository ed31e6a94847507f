"""How requests reach a coordinator, one of several, and what becomes of answers that are none."""

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import httpx2 as httpx
import pytest
from tests.waiting import until
from tests.worker.recording import Scene, on_virtual_time

from batonpass.worker import Callbacks, JoinRefused, Member, Options
from batonpass.worker.http_calls import HttpCalls
from batonpass.worker.protocol import Request, RequestKind
from batonpass.worker.testing import Line, LocalCoordinator, LocalTransport, VirtualClock

HEARTBEAT = Request(
    kind=RequestKind.HEARTBEAT, member_id="m1", seq=1, first_sent_ms=0, sent_ms=0, timeout_ms=3_000, body={"seq": 1}
)
URLS = ("http://one", "http://two/prefix/", "http://three")

Answer = Callable[[httpx.Request], Awaitable[httpx.Response]]


class Network(httpx.AsyncBaseTransport):
    """Three hosts that answer as the test says, and a list of whom was asked."""

    def __init__(self, **hosts: Any) -> None:
        self.hosts = hosts
        self.asked: list[str] = []
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer, or fail."""
        self.asked.append(request.url.host)
        self.requests.append(request)
        answer = self.hosts[request.url.host]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if callable(answer):
            answer = await answer(request)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else httpx.Response(answer, json={"status": answer})


def calls_into(network: Network, urls: tuple[str, ...] = URLS, **options: Any) -> HttpCalls:
    """Return the calls of a member into that network."""
    return HttpCalls(urls, "orders", Options(transport=network, **options))


async def test_the_next_coordinator_is_asked_where_one_is_away() -> None:
    network = Network(one=httpx.ConnectError("refused"), two=503, three=200)
    there = calls_into(network)
    reply = await there.exchange(HEARTBEAT)
    assert reply is not None
    assert (reply.status, network.asked) == (200, ["one", "two", "three"])
    await there.exchange(HEARTBEAT)
    assert network.asked[3:] == ["three"]
    assert str(network.requests[1].url) == "http://two/prefix/v1/groups/orders/members/m1/heartbeat"


@pytest.mark.parametrize(
    "first",
    [
        *(httpx.Response(status, text="the coordinator behind this proxy is away") for status in (500, 502, 504, 520)),
        httpx.Response(502, json={"message": "Bad Gateway"}),
        httpx.Response(200, text="<html>sign in</html>"),
        httpx.Response(302, headers={"location": "https://sign-in.example"}),
        httpx.Response(404, text="no such page"),
        ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]"),
    ],
    ids=repr,
)
async def test_the_next_coordinator_is_asked_where_what_answers_is_none(first: httpx.Response | Exception) -> None:
    network = Network(one=first, two=200)
    there = calls_into(network, ("http://one", "http://two"))
    assert await there.exchange(HEARTBEAT) == (200, {"status": 200})
    assert await there.exchange(HEARTBEAT) == (200, {"status": 200})
    assert network.asked[-2:] == ["two", "two"]


@pytest.mark.parametrize("status", [204, 400, 401, 403, 404, 409, 422, 429])
async def test_a_refusal_is_not_repeated_elsewhere(status: int) -> None:
    network = Network(one=httpx.Response(204) if status == 204 else status, two=200)
    reply = await calls_into(network, ("http://one", "http://two")).exchange(HEARTBEAT)
    assert reply is not None
    assert (reply.status, network.asked) == (status, ["one"])


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ({"detail": "no customer \ud800 here"}, {"detail": "no customer ? here"}),
        ({"detail": "Käse", "lag": Decimal}, {"detail": "Käse", "lag": None}),
    ],
)
async def test_what_json_cannot_have_ends_no_lease(said: dict[str, object], sent: dict[str, object]) -> None:
    network = Network(one=200)
    beat = replace(HEARTBEAT, body={"seq": 1, "tasks": {"0_0": said}})
    assert await calls_into(network, ("http://one",)).exchange(beat) == (200, {"status": 200})
    assert json.loads(network.requests[0].content) == {"seq": 1, "tasks": {"0_0": sent}}


@pytest.mark.parametrize(
    "urls", [("http://one,http://two/prefix/, http://three ,",), ("http://one, http://two/prefix/", "http://three")]
)
async def test_a_setting_names_several_coordinators(urls: tuple[str, ...]) -> None:
    network = Network(one=httpx.ConnectError("refused"), two=503, three=200)
    reply = await calls_into(network, urls).exchange(HEARTBEAT)
    assert reply is not None
    assert (reply.status, network.asked) == (200, ["one", "two", "three"])


@pytest.mark.parametrize("urls", ["", " , ", "http://one,two", "http://one http://two"])
def test_what_is_no_url_is_refused_when_the_member_is_made(urls: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        Member(urls, "orders")


async def test_a_503_of_all_is_an_answer_and_silence_of_all_is_none() -> None:
    """A 503 says that the heartbeat was received."""
    reply = await calls_into(Network(one=httpx.ConnectError("refused"), two=503, three=503)).exchange(HEARTBEAT)
    assert reply is not None
    assert reply.status == 503
    assert (
        await calls_into(Network(**dict.fromkeys(("one", "two", "three"), httpx.ConnectError("no")))).exchange(
            HEARTBEAT
        )
        is None
    )


async def test_a_connection_that_was_just_being_closed_is_tried_once_more() -> None:
    """A coordinator that closes an idle connection meets a heartbeat on it now and then."""
    broken = httpx.RemoteProtocolError("closed")
    network = Network(one=[broken, 200, broken, broken])
    there = calls_into(network, ("http://one",))
    assert (await there.exchange(HEARTBEAT)) is not None
    assert await there.exchange(HEARTBEAT) is None
    assert len(network.asked) == 4


@on_virtual_time
async def test_a_coordinator_that_hangs_is_left_though_its_answer_still_counts() -> None:
    async def slow(_request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(7)
        return httpx.Response(200, json={"late": True})

    async def dead(_request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    network = Network(one=slow, two=200, three=dead)
    there = calls_into(network)
    late = asyncio.ensure_future(there.exchange(HEARTBEAT))
    await asyncio.sleep(3.1)
    assert await there.exchange(HEARTBEAT) == (200, {"status": 200})
    assert network.asked == ["one", "two"]
    assert await late == (200, {"late": True})
    alone = calls_into(network, ("http://three",))
    began = asyncio.get_running_loop().time()
    assert await alone.exchange(HEARTBEAT) is None
    assert asyncio.get_running_loop().time() - began == pytest.approx(9)


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (httpx.Response(200, text="<html>"), None),
        (httpx.Response(200, json=[1]), None),
        (httpx.Response(200, text="[" * 100_000), None),
        (httpx.Response(204), None),
        (httpx.Response(502, text="bad gateway"), None),
        (
            httpx.Response(429, text="slow down", headers={"retry-after": "7"}),
            {"type": "limit-exceeded", "retry_after_ms": 7_000},
        ),
        (httpx.Response(503, headers={"retry-after": "2"}), {"retry_after_ms": 2_000}),
        (
            httpx.Response(429, json={"type": "limit-exceeded", "retry_after_ms": 250}, headers={"retry-after": "1"}),
            {"type": "limit-exceeded", "retry_after_ms": 250},
        ),
        (httpx.Response(503, headers={"retry-after": "9" * 5_000}), {"retry_after_ms": 999_999_999_000}),
        (httpx.Response(503, headers={"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}), None),
    ],
)
async def test_what_is_no_answer_of_a_coordinator_does_no_harm(answer: httpx.Response, body: object) -> None:
    """It may be a proxy's page; the time to wait in its header counts."""
    reply = await calls_into(Network(one=answer), ("http://one",)).exchange(HEARTBEAT)
    assert reply == (answer.status_code, body)


async def test_an_answer_without_an_end_is_not_kept() -> None:
    parts = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal parts
        while True:
            parts += 1
            yield b" " * 1_000

    network = Network(one=httpx.Response(200, content=endless()), two=200)
    there = calls_into(network, ("http://one", "http://two"), answer_bytes_max=10_000)
    assert await there.exchange(HEARTBEAT) == (200, {"status": 200})
    assert parts <= 25
    packed = httpx.Response(200, content=gzip.compress(b" " * 1_000_000), headers={"content-encoding": "gzip"})
    assert await calls_into(Network(one=packed), ("http://one",), answer_bytes_max=10_000).exchange(HEARTBEAT) is None


async def test_the_token_goes_with_every_request_and_may_change() -> None:
    tokens = iter(["first", "second", ""])
    network = Network(one=200)
    there = calls_into(network, ("http://one",), token=lambda: next(tokens), headers={"x-pod": "orders-0"})
    for _ in range(3):
        await there.exchange(HEARTBEAT)
    sent = [request.headers.get("authorization") for request in network.requests]
    assert sent == ["Bearer first", "Bearer second", None]
    assert network.requests[0].headers["x-pod"] == "orders-0"
    # As a file has it that was written by `echo`.
    await calls_into(network, ("http://one",), token="fixed\n").exchange(HEARTBEAT)  # noqa: S106 - of a test
    assert network.requests[-1].headers["authorization"] == "Bearer fixed"


@pytest.mark.parametrize(
    "token", ["\N{ZERO WIDTH NO-BREAK SPACE}secret", "geheim\N{LATIN SMALL LETTER U WITH DIAERESIS}"]
)
async def test_a_token_that_no_header_takes_is_said_without_showing_it(
    token: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An editor may put a mark of its own before the first letter of a file."""
    assert await calls_into(Network(one=200), ("http://one",), token=token).exchange(HEARTBEAT) is None
    assert "nothing can be sent to http://one: is the token one word, and no more?" in caplog.text
    assert token not in caplog.text


class Routes(httpx.AsyncBaseTransport):
    """A way to each of two coordinators, or to one by two ways."""

    def __init__(self, **ways: LocalTransport) -> None:
        self.ways = ways

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Go the way of the host."""
        return await self.ways[request.url.host].handle_async_request(request)


@on_virtual_time
async def test_a_member_fails_over_within_its_lease_and_nothing_stops() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(heartbeat_interval_ms=1_000, session_timeout_ms=6_000)
        lines = {"one": Line(), "two": Line()}
        routes = Routes(**{host: coordinator.transport(line) for host, line in lines.items()})
        worker = scene.worker("a")
        urls = ["http://one", "http://two"]
        async with Member(urls, "orders", worker, transport=routes, clock=VirtualClock()) as member:
            await scene.rest()
            for away, left in (("one", "two"), ("two", "one"), ("one", "two")):
                lines[away].cut()
                await asyncio.sleep(10)
                assert not lines[left].is_cut
                lines[away].mend()
            lines["one"].refuses_with = 503
            await asyncio.sleep(10)
            assert worker.of("revoke") == []
            assert member.may_process("0_0")


@on_virtual_time
async def test_a_token_that_cannot_be_read_is_a_request_that_was_not_sent() -> None:
    """A secret that is being replaced is missing for a moment."""
    state = {"there": False}

    def read() -> str:
        if not state["there"]:
            raise FileNotFoundError("token")
        return "secret"

    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare()
        member = scene.member(scene.worker("a"), token=read)
        member.start()
        await asyncio.sleep(5)
        assert member.phase.value == "joining"
        state["there"] = True
        await until(lambda: member.phase.value == "joined")
        await member.exit()


@on_virtual_time
async def test_a_request_whose_wire_was_cancelled_is_sent_again() -> None:
    """The member was not cancelled; the long-poll would be missing for as long as it may take."""

    class Cancelled(httpx.AsyncBaseTransport):
        polls = 0

        def __init__(self, inner: LocalTransport) -> None:
            self.inner = inner

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            self.polls += request.url.path.endswith("/assignment")
            if self.polls == 1:
                raise asyncio.CancelledError
            return await self.inner.handle_async_request(request)

    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare()
        wire = Cancelled(coordinator.transport())
        async with Member("http://one", "orders", scene.worker("a"), transport=wire, clock=VirtualClock()):
            await asyncio.sleep(10)
            assert wire.polls == 2


async def test_a_refusal_of_something_else_than_a_coordinator_says_that() -> None:
    member = Member("http://one", "orders", transport=Network(one=httpx.Response(403, text="<html>No way</html>")))
    with pytest.raises(JoinRefused, match="403: that was no coordinator"):
        await member.__aenter__()


def test_functions_of_a_member_that_are_not_awaited_are_refused_if_they_are_async() -> None:
    async def token() -> str:
        return "secret"

    class Awaited(Callbacks):
        async def on_status(self, statuses: object) -> None:  # type: ignore[override]
            """Do nothing."""

    wrong: Any = token
    with pytest.raises(TypeError, match="token is called, and not awaited"):
        Member("http://one", "orders", token=wrong)
    with pytest.raises(TypeError, match="on_status is called, and not awaited"):
        Member("http://one", "orders", Awaited())
