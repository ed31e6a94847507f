"""One group at the coordinator: calls of the demonstration to declare, change and read it."""

from collections.abc import Mapping
from typing import Any, Final

from batonpass.client import CoordinatorClient, path
from batonpass.demo.job import Job

PATIENCE_S: Final = 30.0
"""How long a call is repeated while the coordinator cannot answer."""

WHY: Final = {"reason": "the demonstration"}
EVENTS_PAGE: Final = 500


class DemoGroup:
    """The group of a job."""

    def __init__(self, url: str, token: str, group: str) -> None:
        self.client = CoordinatorClient(url, token, patience_s=PATIENCE_S)
        self._group = group

    async def declare(self, job: Job, config: Mapping[str, Any]) -> None:
        """Declare the group, or give it other settings.

        Raises:
            ApiError: when the coordinator refuses.
        """
        body = {"topology": job.topology(), "config": dict(config)} | WHY
        await self.client.declare(self._group, body, is_repeatable=True)

    async def state(self) -> dict[str, Any]:
        return dict(await self.client.get(self._at()))

    async def members(self) -> list[dict[str, Any]]:
        return await self.client.pages(self._at("members"), "members")

    async def route(self, task: str) -> dict[str, Any]:
        return dict(await self.client.get(self._at("tasks", task, "route")))

    async def drain(self, member: str) -> None:
        """Drain a member: it hands over all its tasks."""
        await self.client.call("POST", self._at("members", member, "drain"), query=WHY, is_repeatable=True)

    async def undrain(self, member: str) -> None:
        await self.client.call("DELETE", self._at("members", member, "drain"), query=WHY, is_repeatable=True)

    async def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = 0
        while True:
            page = await self.client.get(self._at("events"), after=after, limit=EVENTS_PAGE)
            found += page["events"]
            after = page["next"]
            if not page["more"]:
                return found

    def _at(self, *names: str) -> str:
        return path("groups", self._group, *names)
