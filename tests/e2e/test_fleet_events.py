"""The event stream and the archive of groups that another coordinator owns, with two processes on one database."""

import asyncio
import contextlib
import json
import threading
import time
from functools import partial
from typing import Any

import httpx2 as httpx
import pytest
from tests.e2e.serving import BEARER, Served, serving
from tests.e2e.test_fleet import GROUPS, QUICK, is_declared, owned, shared
from tests.waiting import wait_until


class Listener(threading.Thread):
    """Follows the stream of a group at one coordinator."""

    def __init__(self, served: Served, path: str, last: int | None = None) -> None:
        super().__init__(daemon=True)
        self._url = f"{served.url}{path}"
        self._headers = dict(BEARER)
        if last is not None:
            self._headers["last-event-id"] = str(last)
        self.events: list[dict[str, Any]] = []
        self.ended_cleanly = False
        self.open = threading.Event()

    def run(self) -> None:
        """Note every event until the stream ends."""
        # At the end of the test its coordinator is killed, which is not a clean end, and no error either.
        with contextlib.suppress(httpx.RemoteProtocolError):
            with (
                httpx.Client(timeout=60) as client,
                client.stream("GET", self._url, headers=self._headers | {"accept": "text/event-stream"}) as answer,
            ):
                for frame in httpx.EventSource(answer):
                    self.open.set()
                    if frame.data:
                        self.events.append(json.loads(frame.data))
            self.ended_cleanly = True


@pytest.mark.timeout(180)
async def test_either_coordinator_tells_of_every_group(own_url: str) -> None:
    """Within seconds, once, in order, and across the end of the one that committed."""
    await asyncio.to_thread(follow, own_url)


def follow(database_url: str) -> None:
    """Do what the test above says."""
    with serving(database_url, **QUICK) as first:
        with serving(database_url, **QUICK) as second:
            for group in GROUPS:
                wait_until(partial(is_declared, first, group), within_s=20)
            wait_until(lambda: shared(first, second), within_s=20)
            theirs = min(owned(second))
            here = Listener(first, f"/v1/groups/{theirs}/events")
            there = Listener(second, "/v1/events")
            for listener in (here, there):
                listener.start()
                assert listener.open.wait(20)
            began = time.monotonic()
            assert first.call("POST", f"/v1/groups/{theirs}/pause", json={"reason": "deploy"}).status_code == 204
            wait_until(lambda: [one["type"] for one in here.events] == ["paused"], within_s=10)
            assert time.monotonic() - began < 5
            assert second.call("POST", f"/v1/groups/{theirs}/resume").status_code == 204
            wait_until(lambda: [one["type"] for one in here.events][:2] == ["paused", "resumed"], within_s=10)
            wait_until(lambda: there.events[:2] == here.events[:2], within_s=10)
            for path in (f"/v1/groups/{theirs}/commands", f"/v1/groups/{theirs}/generations", "/v1/events?limit=1000"):
                one, other = first.call("GET", path), second.call("GET", path)
                assert (one.status_code, one.json()) == (200, other.json()), path
            assert first.call("GET", f"/v1/groups/{theirs}/explain").json()["group"] == theirs
            last = there.events[-1]["position"]
            second.stop()
            there.join(20)
            assert there.ended_cleanly
        again = Listener(first, "/v1/events", last)
        again.start()
        assert again.open.wait(20)
        wait_until(partial(is_resumed, first, theirs), within_s=20)
        wait_until(
            lambda: [one["type"] for one in again.events if one["group"] == theirs][-1:] == ["paused"], within_s=10
        )
        positions = [one["position"] for one in again.events]
        assert positions == list(range(last + 1, last + 1 + len(positions)))


def is_resumed(served: Served, group: str) -> bool:
    """Pause a group at the coordinator that takes it over, once it has."""
    return served.call("POST", f"/v1/groups/{group}/pause").status_code == 204
