"""A coordinator of canned answers, for groups that are too large to be made in a test."""

import asyncio
import json
import queue
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx2 as httpx
from tests.dashboard.fleet import Fleet

ADMIN: Final = "an-operator-of-everything"
VIEWER: Final = "somebody-who-looks"
COMMANDS: Final = frozenset({"PUT", "DELETE", "POST"})


class Canned:
    """Answers as a coordinator would; ``asked`` are the calls that it was made, ``is_away`` whether nobody answers."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.asked: list[tuple[str, str, str]] = []
        self.is_away = False
        self.audits: list[dict[str, Any]] = []
        self.news: list[_Stream] = []

    def transport(self) -> httpx.MockTransport:
        """Return the way to it."""
        return httpx.MockTransport(self._answer)

    def tell(self, event: dict[str, Any]) -> None:
        """Send an event to all who follow, from any thread."""
        self.fleet.events.append(event)
        for stream in list(self.news):
            stream.take(f"id: {event['position']}\ndata: {json.dumps(event)}\n\n".encode())

    def calls(self, method: str) -> list[tuple[str, str]]:
        """Return path and query of the calls by one method."""
        return [(path, query) for one, path, query in self.asked if one == method]

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        if self.is_away:
            message = "connection refused"
            raise httpx.ConnectError(message)
        path = request.url.path.removeprefix("/v1")
        self.asked.append((request.method, path, request.url.query.decode()))
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if bearer not in {ADMIN, VIEWER}:
            return _problem(401, "unauthenticated", "the token is unknown, revoked or expired")
        if bearer == VIEWER and (path.endswith("/commands") or (request.method in COMMANDS and "/plan" not in path)):
            return _problem(403, "forbidden", "ann has the role viewer; this call needs admin or operator")
        if request.headers.get("accept") == "text/event-stream":
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=_Stream(self))
        if request.method in COMMANDS and not path.endswith("/plan"):
            return httpx.Response(204)
        found = self._body(path.strip("/").split("/"), request.url.params)
        return (
            httpx.Response(200, json=found) if found is not None else _problem(404, "not-found", f"nothing at {path}")
        )

    def _body(self, parts: list[str], query: httpx.QueryParams) -> Any:
        fleet = self.fleet
        match parts:
            case ["groups"]:
                return {"groups": [fleet.summary()], "next": None}
            case ["commands"] | ["groups", _, "commands" | "lags"]:
                return {parts[-1]: [], "next": None}
            case ["audits"]:
                return {"audits": self.audits, "next": None}
            case ["audits", day]:
                return next((one for one in self.audits if one["day"] == day), None)
            case ["groups", name, *_] if name != fleet.group:
                return None
            case ["groups", _]:
                return fleet.group_get()
            case ["groups", _, "explain"]:
                return fleet.explain()
            case ["groups", _, "assignment"]:
                return fleet.assignment()
            case ["groups", _, "events"]:
                return {"events": fleet.events[::-1], "next": 1, "more": False}
            case ["groups", _, "generations"]:
                listed = {name: value for name, value in fleet.generation().items() if name != "diff"}
                return {"generations": [listed], "next": None}
            case ["groups", _, "generations", "3"]:
                return fleet.generation()
            case ["groups", _, "plan"]:
                return fleet.plan()
            case ["groups", _, "tasks", task] if task in fleet.tasks:
                return fleet.task(task)
            case ["groups", _, "members", *one]:
                return self._members(one, query)
            case _:
                return None

    def _members(self, parts: list[str], query: httpx.QueryParams) -> Any:
        known = sorted(self.fleet.members, key=lambda one: str(one["member_id"]))
        if parts:
            found = next((one for one in known if one["member_id"] == parts[0]), None)
            is_safe = len(parts) == 2
            return {"member_id": parts[0], "safe_to_stop": True} if found and is_safe else found
        limit = int(query.get("limit", 100))
        left = [one for one in known if one["member_id"] > query.get("after", "")]
        return {"members": left[:limit], "next": left[limit - 1]["member_id"] if len(left) > limit else None}


class _Stream(httpx.AsyncByteStream):
    """A stream of events without an end."""

    def __init__(self, canned: Canned) -> None:
        self._canned = canned
        self._told: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def take(self, frame: bytes) -> None:
        """Send a frame."""
        self._told.put(frame)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._canned.news.append(self)
        try:
            yield b"retry: 2000\nid: 5\n\n"
            while not self._canned.is_away:
                await asyncio.sleep(0.05)
                while not self._told.empty():
                    yield self._told.get()
        finally:
            self._canned.news.remove(self)


def _problem(status: int, kind: str, detail: str) -> httpx.Response:
    return httpx.Response(
        status, json={"type": kind, "title": kind, "status": status, "detail": detail, "action": "fix"}
    )
