"""The coordinators' REST interface, asked on behalf of whoever looks at a page.

Of several coordinators one is asked, and the next one where that is not there; for what only looks, also where that is
not ready.
"""

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
NOT_NOW: Final = frozenset({502, 503, 504})
"""What a coordinator, or what stands in front of it, answers while it cannot answer."""


class Unreachable(Exception):
    """No coordinator answers, or it broke off, or what answers is none. ``is_absent``: nothing was sent to it."""

    def __init__(self, said: str, *, is_absent: bool = False) -> None:
        super().__init__(said)
        self.is_absent = is_absent


class Refused(Exception):
    """The coordinator answered with a problem (RFC 9457)."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = problem
        detail = str(problem.get("detail") or problem.get("title") or "refused").strip()
        super().__init__(detail if detail[-1:] in ".!?" else f"{detail}.")


class DashboardClient:
    """The coordinators under their base URLs. Whose token is shown to them is said with each call."""

    def __init__(self, config: Config, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """Connect on first use."""
        self.urls = [one for part in config.server.split(",") if (one := part.strip().rstrip("/"))]
        self._at = 0
        self._clients = [
            httpx.AsyncClient(
                base_url=url,
                headers={"user-agent": f"batonpass-dashboard/{__version__}"},
                transport=transport,
                verify=config.trusted,
                # What runs on this very machine is never behind a proxy, whatever the environment says of others.
                trust_env=httpx.URL(url).host not in HERE,
                timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            )
            for url in self.urls
        ]

    @property
    def url(self) -> str:
        """The coordinator that is asked next."""
        return self.urls[self._at]

    async def close(self) -> None:
        """Close its connections."""
        for client in self._clients:
            await client.aclose()

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
        left = len(self.urls)
        while True:
            left -= 1
            at = self._at
            try:
                answer = await self._clients[at].request(method, f"/v1{path}", params=given, json=body, headers=headers)
                return self._read(answer)
            except httpx.HTTPError as error:
                gone = self._unreachable(self.urls[at], error)
                failed: Refused | Unreachable = gone
                may_go_on = method == "GET" or gone.is_absent
            except Refused as refused:
                if refused.status not in NOT_NOW:
                    raise
                failed, may_go_on = refused, method == "GET"
            except Unreachable as foreign:
                failed, may_go_on = foreign, method == "GET"
            self._leave(at)
            if not left or not may_go_on:
                raise failed from None

    @asynccontextmanager
    async def stream(self, path: str, *, token: str, after: str) -> AsyncIterator[AsyncIterator[str]]:
        """Lend the lines of a stream of events, from ``after`` on where that is not empty.

        Raises:
            Unreachable: when nobody answers, or it breaks.
            Refused: when it is refused.
        """
        headers = {"accept": "text/event-stream"} | _shown(token) | ({"last-event-id": after} if after else {})
        timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_TIMEOUT_S)
        at = self._at
        try:
            async with self._clients[at].stream("GET", f"/v1{path}", headers=headers, timeout=timeout) as answer:
                if not answer.is_success:
                    await answer.aread()
                    self._read(answer)
                yield answer.aiter_lines()
        except httpx.HTTPError as error:
            self._leave(at)
            raise self._unreachable(self.urls[at], error) from None
        except Refused as refused:
            if refused.status in NOT_NOW:
                self._leave(at)
            raise

    def _leave(self, at: int) -> None:
        """Ask the next coordinator from now on, unless that was done already."""
        if self._at == at:
            self._at = (at + 1) % len(self.urls)

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

    @staticmethod
    def _unreachable(url: str, error: httpx.HTTPError) -> Unreachable:
        match error:
            case httpx.ConnectError() | httpx.ConnectTimeout():
                return Unreachable(f"No coordinator answers at {url}.", is_absent=True)
            case httpx.TimeoutException():
                return Unreachable(f"The coordinator at {url} did not answer in time.")
            case _:
                return Unreachable(f"The coordinator at {url} broke off.")


def path(*names: str) -> str:
    """Return a path whose parts are names, quoted as paths need it."""
    # A name of nothing but dots is taken for a step in the path where it is not quoted as well.
    return "".join(f"/{quote(name, safe='') if name.strip('.') else name.replace('.', '%2E')}" for name in names)


def _shown(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}
