"""What a coordinator for tests answers to a call, whatever carries it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple


class Reply(NamedTuple):
    """A status and a body; refusals are problem objects."""

    status: int
    body: bytes = b""

    @property
    def content_type(self) -> str:
        """What the body is."""
        return "application/json" if self.status < 400 else "application/problem+json"


Answerer = Callable[[str, str, bytes], Awaitable[Reply | None]]
"""Answers a method, a target and a body; None breaks the connection off. It is cancelled when its caller goes away."""
