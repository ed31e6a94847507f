"""The events of a group as they happen: server-sent events that are resumed where they broke off."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

import httpx

from batonpass.cli.exits import Exit, Failure
from batonpass.cli.rest import Away, OperatorClient, path

AGAIN_S = 1.0
AGAIN_MAX_S = 10.0
SILENCE_S = 45.0
"""A stream says at least every 15 s that it lives."""


class Stream:
    """Reads the events of one group, each once, from the moment it is opened on, in a thread of its own.

    ``hears`` says whether the stream was open when ``heard`` was last asked; while it is not, it is tried again without
    end.
    """

    def __init__(self, coordinator: OperatorClient, group: str) -> None:
        self.hears = False
        self._coordinator = coordinator
        self._path = path("groups", group, "events")
        # In the order in which they came: that the stream was opened (None), events, and that it broke.
        self._heard: queue.Queue[dict[str, Any] | Failure | None] = queue.Queue()
        self._next: Failure | None = None
        self._place = ""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        """Begin to read."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop to read; a read that is under way breaks when the coordinator's connections are closed."""
        self._closed.set()

    def heard(self, wait_s: float) -> list[dict[str, Any]]:
        """Return the events that came since the last call, waiting for the first one.

        Raises:
            Failure: when the stream broke; unless it was refused it is tried again, and no event is lost.
        """
        found: list[dict[str, Any]] = []
        is_news = False
        failure, self._next = self._next, None
        try:
            while failure is None:
                one = self._heard.get(timeout=0.0 if is_news else wait_s)
                if isinstance(one, Failure):
                    failure = one
                    continue
                is_news = self.hears = True
                if one is not None:
                    found.append(one)
        except queue.Empty:
            return found
        if is_news:
            # First what came before it.
            self._next = failure
            return found
        self.hears = False
        raise failure

    def _read(self) -> None:
        while not self._closed.is_set():
            wait_s = AGAIN_S
            try:
                for event in self._events():
                    self._heard.put(event)
                raise Away(f"the coordinator at {self._coordinator.url} ended the stream of events.", todo="")
            except Failure as failure:
                self._heard.put(failure)
                if failure.code is not Exit.UNREACHABLE:
                    return
                if isinstance(failure, Away):
                    wait_s = min(max(failure.again_s, AGAIN_S), AGAIN_MAX_S)
            except (httpx.StreamError, RuntimeError, OSError):
                # What a closed client raises; while it is open, none of these is expected.
                if not self._closed.is_set():
                    raise
            self._closed.wait(wait_s)

    def _events(self) -> Iterator[dict[str, Any]]:
        headers = {"accept": "text/event-stream"} | ({"last-event-id": self._place} if self._place else {})
        with self._coordinator.lines(self._path, headers=headers, silence_s=SILENCE_S) as lines:
            self._heard.put(None)
            for place, kind, text in frames(lines):
                self._place = place or self._place
                if text:
                    event = json.loads(text)
                    yield {"type": kind, "body": event} if kind else event


def frames(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the id, the kind and the content of each frame of an event stream; any of them may be empty."""
    place, kind = "", ""
    content: list[str] = []
    for line in lines:
        if not line:
            yield place, kind, "\n".join(content)
            place, kind, content = "", "", []
            continue
        name, _, text = line.partition(":")
        text = text.removeprefix(" ")
        match name:
            case "id":
                place = text
            case "event":
                kind = text
            case "data":
                content.append(text)
            case _:
                pass
