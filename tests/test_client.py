"""The client of the API: at several coordinators it goes on at the next one, has patience, and orders nothing twice."""

import asyncio
from typing import Any

import httpx2 as httpx
import pytest

from batonpass.client import AGAIN_S, ApiError, CoordinatorClient, Refused, Unreachable, path
from batonpass.group_words import worst_first

NOT_NOW = httpx.Response(503, json={"type": "coordinator-loading", "detail": "the coordinators do not agree yet"})
WELL = httpx.Response(200, json={"groups": []})
GONE = httpx.ConnectError("refused")
BROKEN = httpx.ReadError("reset")


class Hosts(httpx.AsyncBaseTransport):
    """Hosts that answer as the test says, one thing after the other, the last for ever; and whom was asked, and how."""

    def __init__(self, **hosts: httpx.Response | Exception | list[httpx.Response | Exception]) -> None:
        self.hosts = {name: answers if isinstance(answers, list) else [answers] for name, answers in hosts.items()}
        self.requests: list[httpx.Request] = []

    @property
    def asked(self) -> list[str]:
        """Return whom was asked."""
        return [one.url.host for one in self.requests]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer, or fail."""
        self.requests.append(request)
        answers = self.hosts[request.url.host]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)


def at(hosts: Hosts) -> CoordinatorClient:
    """Return two coordinators, the second of which stands under a path."""
    return CoordinatorClient("http://one:8420/, http://two/prefix", patience_s=0, transport=hosts)


def one(*answers: httpx.Response | Exception, patience_s: float | None = None) -> tuple[CoordinatorClient, Hosts]:
    """Return a client of one coordinator, and that one."""
    hosts = Hosts(one=list(answers))
    return CoordinatorClient("http://one", "secret", patience_s=patience_s, transport=hosts), hosts


def frames(text: str) -> httpx.Response:
    """Return a stream of events that ends."""
    return httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
async def test_a_number_that_no_json_has_is_refused_before_it_is_sent(number: float) -> None:
    """Python reads such a number from a file or an option, and TOML has it."""
    coordinator, hosts = one(WELL)
    with pytest.raises(Refused, match="NaN or infinite") as refused:
        await coordinator.declare("orders", {"config": {"load_imbalance": number}})
    assert (refused.value.status, refused.value.kind, hosts.requests) == (422, "invalid-request", [])


@pytest.mark.parametrize("first", [GONE, BROKEN, NOT_NOW, httpx.Response(502, text="<html>")])
async def test_a_look_goes_to_the_next_coordinator(first: Any) -> None:
    hosts = Hosts(one=first, two=WELL)
    coordinator = at(hosts)
    assert await coordinator.get("/groups") == {"groups": []}
    await coordinator.get("/groups")
    assert (hosts.asked, coordinator.url) == (["one", "two", "two"], "http://two/prefix")


@pytest.mark.parametrize(("first", "asked"), [(GONE, ["one", "two"]), (BROKEN, ["one"]), (NOT_NOW, ["one"])])
async def test_an_order_goes_on_only_where_nothing_was_sent(first: Any, asked: list[str]) -> None:
    """What may have been carried out is reported as it is; whoever gave the order looks before giving it again."""
    hosts = Hosts(one=first, two=WELL)
    coordinator = at(hosts)
    if len(asked) == 1:
        with pytest.raises((Refused, Unreachable)):
            await coordinator.call("POST", "/groups/g/pause")
    else:
        await coordinator.call("POST", "/groups/g/pause")
    assert hosts.asked == asked


async def test_where_none_can_answer_the_last_one_says_why() -> None:
    """A refusal that is no matter of time is raised at once."""
    hosts = Hosts(one=NOT_NOW, two=GONE)
    with pytest.raises(Unreachable, match="no coordinator answers at http://two/prefix"):
        await at(hosts).get("/groups")
    assert hosts.asked == ["one", "two"]
    forbidden = httpx.Response(403, json={"type": "forbidden", "detail": "no"})
    hosts = Hosts(one=forbidden, two=WELL)
    with pytest.raises(Refused, match="no"):
        await at(hosts).get("/groups")
    assert hosts.asked == ["one"]


@pytest.mark.parametrize(
    ("answers", "is_answered"),
    [
        ([BROKEN, GONE, GONE, WELL], True),
        ([NOT_NOW, httpx.Response(502, text="<html>"), WELL], True),
        ([GONE, WELL], False),
        ([httpx.Response(500, json={"detail": "broken"}), WELL], False),
        ([httpx.Response(200, text="<html>"), WELL], False),
    ],
)
async def test_a_coordinator_that_answered_a_moment_ago_is_waited_for(
    answers: list[Any], *, is_answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It breaks off and is then gone, as in a restart."""
    monkeypatch.setattr("batonpass.client.AGAIN_S", 0.01)
    client, hosts = one(*answers)
    if is_answered:
        assert await client.get("/groups") == {"groups": []}
        assert len(hosts.asked) == len(answers)
    else:
        with pytest.raises(ApiError):
            await client.get("/groups")
        assert len(hosts.asked) == 1


async def test_patience_ends() -> None:
    client, hosts = one(GONE, patience_s=1.4 * AGAIN_S)
    with pytest.raises(Unreachable) as raised:
        await client.get("/groups")
    assert len(hosts.asked) == 2
    assert AGAIN_S <= raised.value.asked_for_s < 3 * AGAIN_S


async def test_a_group_is_declared_whether_it_is_there_or_not() -> None:
    """One that is there is changed as it stands: what was changed in between is not overridden."""
    needed = httpx.Response(428, json={"type": "precondition-required", "detail": "it is there"})
    client, hosts = one(needed, httpx.Response(200, json={}, headers={"etag": '"7"'}), httpx.Response(200, json={}))
    assert (await client.declare("orders", {})).status == 200
    assert [(request.method, request.headers.get("if-match")) for request in hosts.requests] == [
        ("PUT", None),
        ("GET", None),
        ("PUT", '"7"'),
    ]


async def test_a_call_may_show_another_token_than_the_clients_or_none() -> None:
    client, hosts = one(WELL)
    await client.get("/groups")
    await client.get("/groups", token="another")  # noqa: S106
    await client.get("/groups", token="")
    shown = [request.headers.get("authorization") for request in hosts.requests]
    assert shown == ["Bearer secret", "Bearer another", None]


async def test_a_feed_goes_on_at_the_next_coordinator_where_it_broke_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request names the last event that was heard."""
    monkeypatch.setattr("batonpass.client.REOPEN_AFTER_S", (0.01,))
    monkeypatch.setattr("batonpass.client.AGAIN_S", 0.01)
    first = frames('retry: 2000\nid: 8\n\n: still here\n\nid: 9\ndata: {\ndata: "position": 9}\n\n')
    missed = 'event: missed\nid: 12\ndata: {"lost": 3}\nhue: red\n\n'
    hosts = Hosts(one=[first, BROKEN], two=[NOT_NOW, frames(missed)])
    client = at(hosts)
    events: list[dict[str, Any]] = []
    errors: list[str] = []
    feed = client.follow("/events")
    async for found in feed:
        if isinstance(found, dict):
            events.append(found)
        elif found is not None:
            errors.append(str(found))
        if len(events) == 2:
            break
    # Lines within an event are one text; a kind of its own is an event; comments and what is not known are nothing.
    assert events == [{"position": 9}, {"type": "missed", "body": {"lost": 3}}]
    assert feed.position == "12"
    assert [request.headers.get("last-event-id") for request in hosts.requests] == [None, "9", "9", "9", "9"][
        : len(hosts.asked)
    ]
    assert all(request.headers["accept"] == "text/event-stream" for request in hosts.requests)
    assert errors[0] == "the coordinator at http://one:8420 ended the stream of events."
    assert {"one", "two"} == set(hosts.asked)


@pytest.mark.parametrize("status", [301, 404, 500, 502])
async def test_a_feed_goes_on_at_the_next_coordinator_where_what_answers_is_none(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr("batonpass.client.REOPEN_AFTER_S", (0.01,))
    monkeypatch.setattr("batonpass.client.AGAIN_S", 0.01)
    hosts = Hosts(one=httpx.Response(status, text="<html>"), two=frames('id: 9\ndata: {"position": 9}\n\n'))
    async for found in at(hosts).follow("/events"):
        if isinstance(found, dict) or len(hosts.asked) > 3:
            break
    assert hosts.asked == ["one", "two"]


async def test_an_answer_that_is_no_stream_of_events_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = one(httpx.Response(200, text="<html>", headers={"content-type": "text/html"}))
    async for found in client.follow("/events"):
        if found is not None:
            assert isinstance(found, Unreachable)
            assert "text/event-stream" in str(found)
            break


def test_a_name_of_dots_is_no_step_in_a_path() -> None:
    """A member may be called `..`."""
    asked = [
        httpx.URL("http://c").join(path("v1", "groups", "g", "members", name)) for name in (".", "..", "a..b", "a/b")
    ]
    assert [one.raw_path.decode().rpartition("/members")[2] for one in asked] == ["/%2E", "/%2E%2E", "/a..b", "/a%2Fb"]


def test_a_level_that_only_a_newer_coordinator_knows_is_attention() -> None:
    groups = [
        {"group": name, "health": {"level": level, "since": None, "tasks": {}}}
        for name, level in (("a", "at-rest"), ("b", "on-fire"))
    ]
    found = [(one["group"], one["health"]["level"]) for one in worst_first(groups)]
    assert found == [("b", "attention"), ("a", "at-rest")]


def test_of_groups_of_one_level_the_one_with_most_that_is_not_processed_is_first_then_the_oldest() -> None:
    def one(name: str, since: str | None, **tasks: int) -> dict[str, Any]:
        return {"group": name, "health": {"level": "trouble", "since": since, "tasks": tasks}}

    late, early = "2026-05-04T12:00:00.000Z", "2026-05-04T11:00:00.000Z"
    groups = [
        *(one("a", None, running=9), one("b", late, failed=1, running=8), one("c", early, parked=1)),
        *(one("d", late, failed=1, waiting=4), one("e", None, failed=1)),
    ]
    assert [found["group"] for found in worst_first(groups)] == ["d", "c", "b", "e", "a"]


async def test_where_a_redirect_leads_is_said_and_not_followed() -> None:
    """An ingress that wants HTTPS answers so; what was to be ordered would get lost, and the token go elsewhere."""
    coordinator, hosts = one(httpx.Response(308, headers={"location": "https://one/v1/groups?token=x"}))
    with pytest.raises(Unreachable, match=r"answered 308 .*: it leads to https://one/v1/groups\.$"):
        await coordinator.get("/groups")
    assert hosts.asked == ["one"]


async def test_a_coordinator_that_wants_tls_or_a_certificate_does_not_look_like_one_that_broke_off() -> None:
    """Neither says so: it ends the connection."""

    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(end, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        coordinator = CoordinatorClient(f"http://127.0.0.1:{port}", patience_s=0)
        with pytest.raises(Unreachable, match=r"One that wants HTTPS, or a certificate of its callers"):
            await coordinator.get("/groups")
        await coordinator.close()
