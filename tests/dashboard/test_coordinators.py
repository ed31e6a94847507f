"""A dashboard that knows several coordinators goes on at the next one, and orders nothing twice."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from batonpass.dashboard.config import Config
from batonpass.dashboard.rest import DashboardClient, Refused, Unreachable, path

NOT_NOW = httpx.Response(503, json={"type": "coordinator-loading", "detail": "the coordinators do not agree yet"})
WELL = httpx.Response(200, json={"groups": []})
GONE = httpx.ConnectError("refused")
BROKEN = httpx.ReadError("reset")


class Hosts(httpx.AsyncBaseTransport):
    """Hosts that answer as the test says, and a list of whom was asked."""

    def __init__(self, **hosts: httpx.Response | Exception) -> None:
        self.hosts = hosts
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer, or fail."""
        self.asked.append(request.url.host)
        answer = self.hosts[request.url.host]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)


def at(hosts: Hosts) -> DashboardClient:
    """Return two coordinators, the second of which stands under a path."""
    return DashboardClient(Config("http://one:8420/, http://two/prefix"), transport=hosts)


@pytest.mark.parametrize("first", [GONE, BROKEN, NOT_NOW, httpx.Response(502, text="<html>")])
async def test_a_look_goes_to_the_next_coordinator(first: Any) -> None:
    """Where one is away, breaks off or is not ready, another one is asked, and that one first from then on."""
    hosts = Hosts(one=first, two=WELL)
    coordinator = at(hosts)
    assert await coordinator.call("GET", "/groups", token="") == {"groups": []}
    await coordinator.call("GET", "/groups", token="")
    assert (hosts.asked, coordinator.url) == (["one", "two", "two"], "http://two/prefix")


@pytest.mark.parametrize(("first", "asked"), [(GONE, ["one", "two"]), (BROKEN, ["one"]), (NOT_NOW, ["one"])])
async def test_an_order_goes_on_only_where_nothing_was_sent(first: Any, asked: list[str]) -> None:
    """What may have been carried out is told as it is; whoever gave the order looks before giving it again."""
    hosts = Hosts(one=first, two=WELL)
    coordinator = at(hosts)
    if len(asked) == 1:
        with pytest.raises((Refused, Unreachable)):
            await coordinator.call("POST", "/groups/g/pause", token="")
    else:
        await coordinator.call("POST", "/groups/g/pause", token="")
    assert hosts.asked == asked


async def test_where_none_can_answer_the_last_one_says_why() -> None:
    """Each is asked once; a refusal that is no matter of time is told at once."""
    hosts = Hosts(one=NOT_NOW, two=GONE)
    with pytest.raises(Unreachable, match="No coordinator answers at http://two/prefix"):
        await at(hosts).call("GET", "/groups", token="")
    assert hosts.asked == ["one", "two"]
    forbidden = httpx.Response(403, json={"type": "forbidden", "detail": "no"})
    hosts = Hosts(one=forbidden, two=WELL)
    with pytest.raises(Refused, match="no"):
        await at(hosts).call("GET", "/groups", token="")
    assert hosts.asked == ["one"]


async def test_a_stream_is_opened_at_the_next_one_after_it_broke() -> None:
    """It resumes where it was, wherever it is."""
    hosts = Hosts(one=NOT_NOW, two=httpx.Response(200, text=f"data: {json.dumps(1)}\n\n"))
    coordinator = at(hosts)
    with pytest.raises(Refused):
        async with coordinator.stream("/events", token="", after="7"):
            pass
    async with coordinator.stream("/events", token="", after="7") as lines:
        assert [line async for line in lines] == ["data: 1", ""]
    assert hosts.asked == ["one", "two"]


def test_a_name_of_dots_is_no_step_in_a_path() -> None:
    """A member may be called `..`: the coordinator is asked for that one, and not for what lies above."""
    asked = [
        httpx.URL("http://c").join(path("v1", "groups", "g", "members", name)) for name in (".", "..", "a..b", "a/b")
    ]
    assert [one.raw_path.decode().rpartition("/members")[2] for one in asked] == ["/%2E", "/%2E%2E", "/a..b", "/a%2Fb"]
