"""The coordinator as all visitors with one token see it: a call that was made a moment ago is not repeated.

All visitors with the same token share one client, so a page open in ten browsers costs the coordinator what one costs.
"""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from batonpass.background import kept_going
from batonpass.client import UNREADABLE, ApiError, CoordinatorClient, Refused, path
from batonpass.dashboard import words
from batonpass.dashboard.words import Names

FRESH_S: Final = 0.7
"""An answer at most this old is as good as a new one."""

SEARCHED: Final = 500
"""How many of the newest events are searched, unless a page says otherwise: for names, for what began a warmup."""

ANSWERS_MAX: Final = 200
LISTENERS_MAX = 2_000
"""How many open pages of those who look with one token hear of events; one more only asks, every few seconds."""

OPENING: Final = "the stream of events is being opened"


class SharedClient:
    """The coordinator, called with one token."""

    def __init__(self, client: CoordinatorClient, token: str, *, bound_to: str | None = None) -> None:
        self.names = Names()
        self.events = EventListener(client, token, bound_to, self.names)
        self._client = client
        self._token = token
        self._looked_for: set[str] = set()
        self._answers: dict[str, tuple[float, asyncio.Task[Any]]] = {}
        self._ahead = timedelta()

    @property
    def now(self) -> datetime:
        """The time by the coordinators' clock, by which all is told that is asked of them.

        How far it is ahead of this machine's is known from the last answer that said how a group is; none until then.
        """
        return datetime.now(UTC) + self._ahead

    async def get(self, place: str, **query: Any) -> Any:
        """Return the answer to a GET below ``/v1``; callers that ask for the same at the same time share one call.

        Raises:
            Unreachable: when no coordinator answers.
            Refused: when the coordinator refuses.
        """
        key = json.dumps([place, query])
        known = self._answers.get(key)
        if known is None or time.monotonic() - known[0] > FRESH_S:
            asked = asyncio.create_task(self._client.get(place, token=self._token, **query))
            # The caller may be gone when the call fails, and asyncio logs an error that is never retrieved.
            asked.add_done_callback(self._note_time)
            known = (time.monotonic(), asked)
            if len(self._answers) >= ANSWERS_MAX:
                kept = self._answers.items()
                self._answers = {one: answer for one, answer in kept if known[0] - answer[0] <= FRESH_S}
            self._answers[key] = known
        return await asyncio.shield(known[1])

    def _note_time(self, done: asyncio.Task[Any]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        with suppress(*UNREADABLE):
            answer = done.result()
            at = datetime.fromisoformat((answer.get("groups") or [answer])[0]["health"]["at"])
            self._ahead = at - datetime.now(UTC)

    async def look(self, place: str, **query: Any) -> Any:
        """Return the answer to a POST that changes nothing."""
        return (await self._client.call("POST", place, token=self._token, body=query, is_repeatable=True)).body

    async def command(self, method: str, place: str, *, query: Mapping[str, Any], body: Any = None) -> Any:
        """Carry a command out. All earlier answers are forgotten."""
        try:
            return (await self._client.call(method, place, token=self._token, query=query, body=body)).body
        finally:
            self._answers.clear()

    async def pages(self, place: str, name: str) -> list[dict[str, Any]]:
        return await self._client.pages(place, name, get=self.get)

    async def members(self, group: str) -> list[dict[str, Any]]:
        """Return all members of a group, and learn their names."""
        found = await self.pages(path("groups", group, "members"), "members")
        for one in found:
            self.names.learn(one["member_id"], one["instance_id"])
        self._note_looked_for(one["member_id"] for one in found)
        return found

    async def newest_events(self, group: str, *, limit: int = SEARCHED, before: int | None = None) -> dict[str, Any]:
        """Return a page of a group's events, newest first, and learn what the members in it are called."""
        page = await self._events(group, limit, before)
        await self.know(
            group, (one for event in page["events"] for one in (event["member"], (event["body"] or {}).get("from")))
        )
        return page

    async def know(self, group: str, ids: Iterable[str | None]) -> None:
        """Learn what some members are called, from the members and from events of those that came or went.

        The answers are large, so they are asked for only if there is a member that was never looked for.
        """
        unknown = {one for one in ids if one and one not in self.names} - self._looked_for
        if unknown:
            await asyncio.gather(self.members(group), self._events(group, SEARCHED))
            self._note_looked_for(unknown)

    def _note_looked_for(self, ids: Iterable[str]) -> None:
        if len(self._looked_for) > words.NAMES_MAX:
            self._looked_for.clear()
        self._looked_for.update(ids)

    async def _events(self, group: str, limit: int, before: int | None = None) -> dict[str, Any]:
        page: dict[str, Any] = await self.get(
            path("groups", group, "events"), newest="true", limit=limit, before=before
        )
        for event in page["events"]:
            self.names.learn_from(event)
        return page


class EventListener:
    """Follows the events that a token may read, as long as there are listeners; a stream that breaks is resumed.

    ``latest`` is the newest position by group. ``lost_at`` is the time since which no events come, on the clock of this
    machine, and ``why`` is the reason; None and empty while the stream is open.
    """

    def __init__(self, client: CoordinatorClient, token: str, bound_to: str | None, names: Names) -> None:
        self.latest: dict[str, int] = {}
        self.lost_at: float | None = time.time()
        self.why = OPENING
        self._feed = client.follow(path("groups", bound_to, "events") if bound_to else "/events", token=token)
        self._names = names
        self._listeners: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_crowded(self) -> bool:
        return len(self._listeners) >= LISTENERS_MAX

    def listen(self) -> asyncio.Event:
        """Return an event that is set whenever there is news; the first listener opens the stream."""
        listener = asyncio.Event()
        self._listeners.add(listener)
        if self._task is None:
            self.why = OPENING
            self._task = asyncio.create_task(kept_going("event stream", self._follow))
        return listener

    def leave(self, listener: asyncio.Event) -> None:
        """Remove a listener; with the last one the stream is closed."""
        self._listeners.discard(listener)
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task = None
            self._lose("nobody listens")

    async def _follow(self) -> None:
        try:
            async for heard in self._feed:
                if isinstance(heard, ApiError):
                    refused = "the coordinator refuses the stream: " if isinstance(heard, Refused) else ""
                    self._lose(f"{refused}{heard}".rstrip("."))
                else:
                    self._take(heard)
        except Exception:
            self._lose("what came was not understood, and the dashboard's log says why; it is opened again")
            raise

    def _take(self, event: dict[str, Any] | None) -> None:
        was_lost = self.lost_at is not None
        self.lost_at, self.why = None, ""
        group = event.get("group") if event else None
        if event and group:
            self.latest[group] = event["position"]
            self._names.learn_from(event)
        elif event:
            # Some events are missing, so every page should ask again for what it shows.
            self.latest = dict.fromkeys(self.latest, int(self._feed.position or 0))
        if event or was_lost:
            self._wake()

    def _lose(self, why: str) -> None:
        if self.lost_at is None:
            self.lost_at = time.time()
        self.why = why
        self._wake()

    def _wake(self) -> None:
        for listener in self._listeners:
            listener.set()
