"""Every client of HTTP has the same rule for proxies, and an environment that names an odd one gives no traceback."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import httpx2 as httpx
import pytest

from batonpass.cli.client_context import find
from batonpass.cli.exits import Exit, Failure
from batonpass.client import CoordinatorClient, Unreachable
from batonpass.http_clients import is_here, proxy_for
from batonpass.sockets import free_port
from batonpass.worker.client_credentials import ClientCredentials, NoToken
from batonpass.worker.http_calls import HttpCalls
from batonpass.worker.options import Options
from batonpass.worker.protocol import Request, RequestKind

SERVICE = Path(__file__).resolve().parent.parent / "service"
FAR, FAR_6 = "http://coordinator.example:8420", "http://[fd00::7]:8420"
PROXY = "http://proxy.example:3128"
HEARTBEAT = Request(
    kind=RequestKind.HEARTBEAT, member_id="m1", seq=1, first_sent_ms=0, sent_ms=0, timeout_ms=3_000, body={"seq": 1}
)


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


class Hop(NamedTuple):
    """A proxy that only notes what it is asked for."""

    url: str
    asked: list[str]


@pytest.fixture
async def hop() -> AsyncIterator[Hop]:
    """A proxy."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readline()).decode().split()[1])
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield Hop(f"http://127.0.0.1:{port}", asked)


async def test_a_proxy_that_stands_in_between_is_named_and_its_password_is_not(
    hop: Hop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says, or that it is not there, says nothing of the coordinator."""
    away = free_port()
    for port, what in ((away, "(Connection refused)"), (int(hop.url.rpartition(":")[2]), "answered 502")):
        monkeypatch.setenv("http_proxy", f"http://me:hush@127.0.0.1:{port}")
        async with CoordinatorClient(FAR, patience_s=0) as client:
            with pytest.raises(Unreachable) as failed:
                await client.get("/groups")
        said = str(failed.value)
        assert (f"{FAR} by the proxy at 127.0.0.1:{port}" in said, what in said, "hush" in said) == (True, True, False)


async def test_a_cookie_that_one_answer_sets_goes_with_no_other_call() -> None:
    """A proxy that keeps sessions in cookies would take a visitor of the dashboard for the one who called before."""
    asked: list[httpx.Headers] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers)
        return httpx.Response(200, json={}, headers={"set-cookie": "session=alice; Path=/"})

    async with CoordinatorClient("http://coordinator.example", transport=httpx.MockTransport(answer)) as client:
        for token in ("alice", "bob"):
            await client.get("/groups", token=token)
    assert [one["authorization"] for one in asked] == ["Bearer alice", "Bearer bob"]
    assert not any("cookie" in one for one in asked)


def test_clients_are_made_in_one_place() -> None:
    made = [path.name for path in SERVICE.rglob("*.py") if "httpx.AsyncClient(" in path.read_text()]
    assert made == ["http_clients.py"]


@pytest.mark.parametrize(
    ("environment", "url", "wanted"),
    [
        ({}, FAR, None),
        ({"http_proxy": PROXY}, FAR, PROXY),
        ({"HTTP_PROXY": "proxy.example:3128"}, FAR, PROXY),
        ({"https_proxy": PROXY}, FAR, None),
        ({"https_proxy": PROXY}, "https://coordinator.example", PROXY),
        ({"all_proxy": PROXY}, FAR, PROXY),
        # Of proxies of other kinds nothing is asked.
        ({"http_proxy": PROXY, "all_proxy": "socks5://127.0.0.1:9"}, FAR, PROXY),
        ({"https_proxy": "socks5://127.0.0.1:9"}, FAR, None),
        *(
            ({"http_proxy": PROXY, "no_proxy": names}, FAR, None)
            for names in ("*", "example", ".example", "a, EXAMPLE")
        ),
        ({"http_proxy": PROXY, "no_proxy": "coordinator.example:8420"}, FAR, None),
        ({"http_proxy": PROXY, "no_proxy": "coordinator.example:1"}, FAR, PROXY),
        ({"http_proxy": PROXY, "no_proxy": "ordinator.example, [::1], fd00::/8, [, /"}, FAR, PROXY),
        *(({"http_proxy": PROXY, "no_proxy": names}, FAR_6, None) for names in ("fd00::/8", "fd00::7", "[fd00::7]")),
        ({"http_proxy": PROXY, "no_proxy": "fd00::8, fe80::/10, 10.0.0.0/8"}, FAR_6, PROXY),
        ({"http_proxy": PROXY, "no_proxy": "10.0.0.0/8"}, "http://10.2.3.4:8420", None),
        ({"http_proxy": PROXY, "no_proxy": "10.0.0.0/8"}, "http://11.2.3.4:8420", PROXY),
    ],
)
def test_the_proxy_of_a_url_is_the_one_that_the_environment_names(
    environment: dict[str, str], url: str, wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == wanted


HERE = ("127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST", "up.localhost", "[::1]", "[::]", "0.0.0.0")  # noqa: S104 - names


@pytest.mark.parametrize("host", HERE)
def test_this_machine_has_no_proxy(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:9")
    assert proxy_for(f"http://{host}:8420") is None
    assert not is_here("localhost.example")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("socks5://u:hush@127.0.0.1:9", "the package socksio"),
        ("socks5h://127.0.0.1:9", "the package socksio"),
        ("socks4://127.0.0.1:9", "is not the http, https or socks5 URL"),
        ("http://u:hush@[::1", "is not the http, https or socks5 URL"),
        ("http://", "is not the http, https or socks5 URL"),
    ],
)
async def test_a_proxy_that_cannot_be_used_is_refused_in_words_by_every_client(
    value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("all_proxy", value)
    monkeypatch.setitem(__import__("sys").modules, "socksio", None)
    with pytest.raises(ValueError, match=words) as refused:
        CoordinatorClient(FAR)
    assert "hush" not in str(refused.value)
    with pytest.raises(ValueError, match=words):
        HttpCalls([FAR], "orders", Options())
    with pytest.raises(NoToken, match=words):
        await ClientCredentials(FAR, "id", "secret")()
    with pytest.raises(Failure, match=words) as failure:
        find(FAR, "token", None)
    assert failure.value.code is Exit.BAD_INPUT


async def test_the_worker_goes_by_the_proxy_to_far_coordinators_and_to_near_ones_directly(
    hop: Hop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", hop.url)
    calls = HttpCalls(["http://127.0.0.1:1", FAR], "orders", Options())
    reply = await calls.exchange(HEARTBEAT)
    await calls.close()
    assert reply is not None
    assert (reply.status, hop.asked) == (502, [f"{FAR}/v1/groups/orders/members/m1/heartbeat"])


async def test_commands_go_by_the_proxy_to_far_coordinators_alone(hop: Hop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", hop.url)
    async with CoordinatorClient(f"http://127.0.0.1:1,{FAR}", patience_s=0) as client:
        with pytest.raises(Exception, match="502"):
            await client.get("/groups")
    assert hop.asked == [f"{FAR}/v1/groups"]
