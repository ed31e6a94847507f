"""The reader: it asks the owner first and its standbys next, looks them up anew, and admits what nobody answers."""

import asyncio
from typing import Any

import httpx2 as httpx
import pytest

from batonpass.demo import reader as reading
from batonpass.demo.job import Job
from batonpass.demo.reader import Reader

JOB = Job(bootstrap="", group="demo", tasks=1, customers=1, rate=1)
OWNER, STANDBY, LATE = "http://owner", "http://standby", "http://late"


class Route:
    """A coordinator that knows one task's route."""

    def __init__(self, owner: str | None, *standbys: str) -> None:
        self.active = {"endpoint": owner} if owner else None
        self.standbys = [
            {"endpoint": one, "caught_up": one != LATE, "lag": 5 if one == LATE else 0} for one in standbys
        ]
        self.asked = 0

    async def route(self, _task: str) -> dict[str, Any]:
        """Return the route."""
        self.asked += 1
        return {"active": self.active, "standbys": self.standbys}


async def read(route: Route, alive: set[str], monkeypatch: pytest.MonkeyPatch) -> Reader:
    """Return a reader after one read, with only some endpoints alive."""
    monkeypatch.setattr(reading, "ANSWER_S", 0.2)

    def answer(request: httpx.Request) -> httpx.Response:
        if f"http://{request.url.host}" not in alive:
            raise httpx.ConnectError("gone")
        return httpx.Response(200, json={"count": 1, "total": 1, "role": "active"})

    found = Reader(JOB, route)  # type: ignore[arg-type]
    await found._client.aclose()
    found._client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    await found._read()
    await found._client.aclose()
    return found


@pytest.mark.parametrize(
    ("route", "alive", "by_copies", "unanswered"),
    [
        (Route(OWNER, STANDBY), {OWNER, STANDBY}, 0, 0),
        (Route(OWNER, STANDBY), {STANDBY}, 1, 0),
        (Route(OWNER, LATE, STANDBY), {LATE}, 1, 0),
        (Route(OWNER), set(), 0, 1),
        (Route(None), set(), 0, 1),
    ],
)
async def test_a_read_is_answered_by_whoever_can(
    route: Route, alive: set[str], by_copies: int, unanswered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the owner, else by a standby; where there is neither within its time, it counts as unanswered."""
    reads = (await read(route, alive, monkeypatch)).reads
    assert (reads.asked, reads.by_copies, reads.unanswered) == (1, by_copies, unanswered)
    assert (route.asked > 1) == bool(unanswered)


async def test_reads_go_on_while_one_of_them_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PERIOD_S", 0.01)
    found = Reader(JOB, Route(None))  # type: ignore[arg-type]
    running = asyncio.ensure_future(found.run())
    await asyncio.sleep(0.3)
    running.cancel()
    await asyncio.wait((running,))
    assert found.reads.asked > 10
    assert found.reads.unanswered == 0
