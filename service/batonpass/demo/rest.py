"""The coordinator's REST interface as the demonstration uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self

import httpx

from batonpass.demo.job import Job

TIMEOUT_S = 10.0
RETRY_S = 0.2
PATIENCE_S = 30.0


class Refused(Exception):
    """The coordinator refused a call. The message has its words."""


class DemoClient:
    """One group at one coordinator."""

    def __init__(self, url: str, token: str, group: str) -> None:
        self._group = f"/v1/groups/{group}"
        headers = {"authorization": f"Bearer {token}"}
        self._client = httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_S, trust_env=False)
        self._seen_event = 0

    async def __aenter__(self) -> Self:
        """Nothing is asked before the first call."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def declare(self, job: Job, config: Mapping[str, Any]) -> None:
        """Declare the job's group, or give it other settings.

        Raises:
            Refused: when the coordinator does not agree.
        """
        found = await self._client.get(self._group)
        headers = {"if-match": found.headers["etag"]} if found.status_code == 200 else {}
        body = {"topology": job.topology(), "config": dict(config), "reason": "the demonstration"}
        await self._call("PUT", "", json=body, headers=headers)

    async def state(self) -> dict[str, Any]:
        """Return the group as it stands."""
        return await self._call("GET", "")

    async def members(self) -> list[dict[str, Any]]:
        """Return the members, each with what it holds and says."""
        return list((await self._call("GET", "/members"))["members"])

    async def route(self, task: str) -> dict[str, Any]:
        """Return who serves a task and who could."""
        return await self._call("GET", f"/tasks/{task}/route")

    async def drain(self, member: str) -> None:
        """Have a member hand everything over."""
        await self._call("POST", f"/members/{member}/drain", params={"reason": "the demonstration"})

    async def undrain(self, member: str) -> None:
        """Let a draining member stay."""
        await self._call("DELETE", f"/members/{member}/drain", params={"reason": "the demonstration"})

    async def new_events(self) -> list[dict[str, Any]]:
        """Return what happened since this was called last."""
        found: list[dict[str, Any]] = []
        while True:
            page = await self._call("GET", "/events", params={"after": self._seen_event, "limit": 500})
            found += page["events"]
            self._seen_event = page["next"]
            if not page["more"]:
                return found

    async def _call(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """Call, again as long as the coordinator cannot answer yet."""
        ends_at = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            try:
                answer = await self._client.request(method, self._group + path, **more)
            except httpx.TransportError as error:
                if asyncio.get_running_loop().time() > ends_at:
                    raise Refused(f"{method} {path}: {error!r}") from None
                await asyncio.sleep(RETRY_S)
                continue
            if answer.status_code == 503 and asyncio.get_running_loop().time() < ends_at:
                await asyncio.sleep(RETRY_S)
                continue
            if answer.status_code >= 400:
                raise Refused(f"{method} {self._group}{path}: {answer.status_code} {answer.text}")
            return dict(answer.json()) if answer.content else {}
