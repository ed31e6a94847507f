"""The coordinator's REST interface, asked on behalf of whoever looks at a page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote

import httpx

from batonpass import __version__
from batonpass.dashboard.config import Config

CONNECT_TIMEOUT_S: Final = 3.0
ANSWER_TIMEOUT_S: Final = 20.0
SILENCE_S: Final = 45.0
"""A stream of events says at least every 15 s that it lives."""

HERE: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class Unreachable(Exception):
    """No coordinator answers, or it broke off, or what answers is none."""


class Refused(Exception):
    """The coordinator answered with a problem (RFC 9457)."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = problem
        detail = str(problem.get("detail") or problem.get("title") or "refused").strip()
        super().__init__(detail if detail[-1:] in ".!?" else f"{detail}.")


class Coordinator:
    """A coordinator under its base URL. Whose token is shown to it is said with each call."""

    def __init__(self, config: Config, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """Connect on first use."""
        self.url = config.server.rstrip("/")
        # What runs on this very machine is never behind a proxy, whatever the environment says of others.
        is_here = httpx.URL(self.url).host in HERE
        self._client = httpx.AsyncClient(
            base_url=self.url,
            headers={"user-agent": f"batonpass-dashboard/{__version__}"},
            transport=transport,
            verify=config.trusted,
            trust_env=not is_here,
            timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        token: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> Any:
        """Ask for something below ``/v1`` and return the body of the answer, None where it has none.

        Raises:
            Unreachable: when nobody answers.
            Refused: when what is asked is refused.
        """
        given = {name: value for name, value in (query or {}).items() if value is not None}
        headers = {"accept": "application/json"} | _shown(token)
        try:
            answer = await self._client.request(method, f"/v1{path}", params=given, json=body, headers=headers)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        return self._read(answer)

    @asynccontextmanager
    async def stream(self, path: str, *, token: str, after: str) -> AsyncIterator[AsyncIterator[str]]:
        """Lend the lines of a stream of events, from ``after`` on where that is not empty.

        Raises:
            Unreachable: when nobody answers, or it breaks.
            Refused: when it is refused.
        """
        headers = {"accept": "text/event-stream"} | _shown(token) | ({"last-event-id": after} if after else {})
        timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_TIMEOUT_S)
        try:
            async with self._client.stream("GET", f"/v1{path}", headers=headers, timeout=timeout) as answer:
                if not answer.is_success:
                    await answer.aread()
                    self._read(answer)
                yield answer.aiter_lines()
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    def _read(self, answer: httpx.Response) -> Any:
        try:
            body = answer.json() if answer.content else None
        except ValueError:
            raise self._foreign(answer) from None
        if answer.is_success:
            return body
        if not isinstance(body, dict) or "detail" not in body:
            raise self._foreign(answer)
        raise Refused(answer.status_code, body)

    def _foreign(self, answer: httpx.Response) -> Unreachable:
        return Unreachable(f"What answers at {self.url} ({answer.status_code}) does not speak like a coordinator.")

    def _unreachable(self, error: httpx.HTTPError) -> Unreachable:
        match error:
            case httpx.ConnectError() | httpx.ConnectTimeout():
                return Unreachable(f"No coordinator answers at {self.url}.")
            case httpx.TimeoutException():
                return Unreachable(f"The coordinator at {self.url} did not answer in time.")
            case _:
                return Unreachable(f"The coordinator at {self.url} broke off.")


def path(*names: str) -> str:
    """Return a path whose parts are names, quoted as paths need it."""
    return "".join(f"/{quote(name, safe='')}" for name in names)


def _shown(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}
