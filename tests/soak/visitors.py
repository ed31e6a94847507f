"""Callers that come and go during a soak: operators, followers, strangers, groups for a while, broken connections."""

import asyncio
import os
import random
import re
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import httpx2 as httpx
from tests.proof.groups import GROUP, TASKS
from tests.soak.place import Place

from batonpass.client import CoordinatorClient
from batonpass.runtime.access import new_secret

FREEZE_S: Final = 7.0
"""Longer than a coordinator's lease: the other one takes its groups over."""

PASSING: Final = 20
"""How many names there are for groups that come and go."""

SMALL: Final[dict[str, Any]] = {
    "topology": {"subtopologies": [{"id": "0", "partitions": 4, "changelog_topics": ["passing"]}]},
    "config": {"initial_rebalance_delay_ms": 0},
}
LOOKS: Final = (
    *("", "/members", "/explain", "/assignment", "/snapshot", "/generations", "/commands", "/events"),
    *("/tasks/0_1", "/tasks/0_2/explain", "/tasks/0_3/route"),
)
GHOSTLY: Final = (
    ("GET", ""),
    ("GET", "/members"),
    ("GET", "/explain"),
    ("GET", "/members/m1/assignment?after=0&wait_ms=1000"),
    ("POST", "/probe"),
    ("DELETE", ""),
    ("PUT", ""),
)
BROKEN: Final = (
    b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\nx-half: ",
    b"no request at all\r\n\r\n",
    b"POST /v1/groups/orders/plan HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 900\r\n\r\n{",
    b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 8,
    b"",
)


class Visitors:
    """Calls of all kinds, each for ever at a pace of its own. ``faults`` are answers that nobody should get."""

    def __init__(self, place: Place, client: httpx.AsyncClient, *, seed: int, freeze_every_s: float) -> None:
        """Call as an admin, where nobody else is played; freeze a coordinator every ``freeze_every_s``."""
        self._place = place
        self._client = client
        self._fate = random.Random(seed)
        self._admin = {"authorization": f"Bearer {place.token}"}
        self._freeze_every_s = freeze_every_s
        self._count = 0
        self.calls: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    def begin(self) -> list[asyncio.Task[None]]:
        """Let all of them come."""
        paces: list[tuple[Callable[[], Awaitable[None]], float]] = [
            (self.looks, 0.5),
            (self.asks_for_ghosts, 1),
            (self.makes_tokens_up, 1),
            (self.breaks_a_connection, 2),
            (self.drops_a_poll, 2),
            (self.commands, 10),
            (self.releases, 10),
            (self.follows_events, 5),
            (self.opens_the_dashboard, 10),
            (self.lets_a_group_pass, 15),
            (self.lends_a_token, 15),
            (self.freezes_a_coordinator, self._freeze_every_s),
        ]
        return [asyncio.create_task(self._forever(act, pace)) for act, pace in paces]

    async def _forever(self, act: Callable[[], Awaitable[None]], pace_s: float) -> None:
        while True:
            await asyncio.sleep(self._fate.uniform(0.5, 1.5) * pace_s)
            # A coordinator that is frozen answers nobody.
            with suppress(httpx.HTTPError, OSError):
                await act()
            self.calls[act.__name__] += 1

    async def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Call either coordinator; take note of an answer that speaks of a defect."""
        more.setdefault("headers", self._admin)
        answer = await self._client.request(method, self._fate.choice(self._place.coordinators) + path, **more)
        if answer.status_code >= 500 and answer.status_code != 503:
            self.faults[f"{method} {path}: {answer.status_code} {answer.text[:200]}"] += 1
        return answer

    def _groups(self) -> tuple[str, str]:
        return GROUP, self._place.job.group

    def _new(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"

    async def _members(self) -> list[str]:
        answer = await self.call("GET", f"/v1/groups/{GROUP}/members")
        return [one["member_id"] for one in answer.json()["members"]] if answer.status_code == 200 else []

    # --- who knows what they do -------------------------------------------------------------------------------------

    async def looks(self) -> None:
        """Read something, as an operator or a script does."""
        await self.call("GET", f"/v1/groups/{self._fate.choice(self._groups())}{self._fate.choice(LOOKS)}")

    async def commands(self) -> None:
        """Pause and resume, drain and take it back, pin and unpin, ask what would be."""
        member = self._fate.choice(await self._members() or ["nobody"])
        task = f"0_{self._fate.randrange(TASKS)}"
        do, undo = self._fate.choice(
            (
                (("POST", "/pause?reason=soak"), ("POST", "/resume")),
                (("POST", f"/members/{member}/drain?reason=soak"), ("DELETE", f"/members/{member}/drain")),
                (("PUT", f"/tasks/{task}/pin"), ("DELETE", f"/tasks/{task}/pin")),
                (("POST", "/plan"), ("POST", "/probe")),
            )
        )
        body = {"/plan": {"drain": [member]}}.get(do[1], {"member": member} if do[0] == "PUT" else None)
        await self.call(do[0], f"/v1/groups/{GROUP}{do[1]}", json=body)
        await asyncio.sleep(self._fate.uniform(1, 5))
        await self.call(undo[0], f"/v1/groups/{GROUP}{undo[1]}")

    async def releases(self) -> None:
        """Release the tasks that are parked: members vanish so often that within minutes all would be, for good."""
        for group in self._groups():
            shown = await self.call("GET", f"/v1/groups/{group}")
            for held in shown.json().get("held_back", ()) if shown.is_success else ():
                if held["reason"] == "parked":
                    await self.call("POST", f"/v1/groups/{group}/tasks/{held['task']}/release")

    async def follows_events(self) -> None:
        """Follow the events of a group, or of all, for a while, and go without a word."""
        path = self._fate.choice((f"/groups/{GROUP}/events", "/events"))
        async with CoordinatorClient(self._fate.choice(self._place.coordinators), self._place.token) as client:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._fate.uniform(3, 20)):
                    async for _ in client.follow(path):
                        pass

    async def opens_the_dashboard(self) -> None:
        """Sign in, look at the pages, keep one open for a while, and sign out or forget to."""
        async with httpx.AsyncClient(base_url=self._place.dashboard, timeout=20, follow_redirects=True) as browser:
            await browser.post("/login", data={"token": self._place.token})
            for page in ("/", f"/groups/{GROUP}", f"/groups/{GROUP}/members", f"/groups/{GROUP}/tasks"):
                answer = await browser.get(page)
                if answer.status_code >= 500 and answer.status_code not in {502, 503}:
                    self.faults[f"dashboard {page}: {answer.status_code}"] += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(self._fate.uniform(1, 15)):
                    async with browser.stream("GET", f"/live?group={GROUP}") as answer:
                        async for _ in answer.aiter_lines():
                            pass
            if self._fate.random() < 0.5:
                stamp = re.search(r'name="stamp" value="([^"]+)"', (await browser.get(f"/groups/{GROUP}")).text)
                await browser.post("/logout", data={"stamp": stamp[1]} if stamp else {})

    async def lets_a_group_pass(self) -> None:
        """Declare a group, let two members join and say a word, and delete it."""
        # The name of a group that is deleted is kept for ever, with its epochs: in an hour it is made again often.
        group = f"/v1/groups/passing-{self._fate.randrange(PASSING)}"
        await self.call("PUT", group, json=SMALL)
        for member in ("m1", "m2"):
            await self.call("PUT", f"{group}/members/{member}", json={})
            beat = {"seq": 1, "member_epoch": 0, "tasks": {}}
            await self.call("POST", f"{group}/members/{member}/heartbeat", json=beat)
        await asyncio.sleep(2)
        await self.call("DELETE", f"{group}?force=true")

    async def lends_a_token(self) -> None:
        """Make a token, look with it, and revoke it."""
        made = await self.call("POST", "/v1/tokens", json={"name": self._new("guest"), "role": "viewer"})
        if made.status_code == 201:
            lent = made.json()
            await self.call("GET", "/v1/groups", headers={"authorization": f"Bearer {lent['secret']}"})
            await self.call("DELETE", f"/v1/tokens/{lent['id']}")

    # --- who does not -----------------------------------------------------------------------------------------------

    async def asks_for_ghosts(self) -> None:
        """Ask for a group that never was, or change one as if it were there, which is refused."""
        method, path = self._fate.choice(GHOSTLY)
        body, headers = (SMALL, self._admin | {"if-match": '"7"'}) if method == "PUT" else (None, self._admin)
        answer = await self.call(method, f"/v1/groups/{self._new('ghost')}{path}", json=body, headers=headers)
        if answer.is_success:
            self.faults[f"{method} of a group that never was: {answer.status_code}"] += 1

    async def makes_tokens_up(self) -> None:
        """Call with tokens that nobody made, several at once."""
        strangers = [{"authorization": f"Bearer {new_secret()}"} for _ in range(4)]
        await asyncio.gather(*(self.call("GET", "/v1/groups", headers=headers) for headers in strangers))

    async def breaks_a_connection(self) -> None:
        """Begin a request that is none, or not whole, wait, and go."""
        at = httpx.URL(self._fate.choice([*self._place.coordinators, self._place.dashboard]))
        _, writer = await asyncio.open_connection(at.host, at.port)
        try:
            writer.write(self._fate.choice(BROKEN))
            await asyncio.sleep(self._fate.uniform(0, 5))
        finally:
            writer.transport.abort()

    async def drops_a_poll(self) -> None:
        """Ask a member's long-poll, and be gone before it is answered."""
        members = await self._members()
        if members:
            path = f"/v1/groups/{GROUP}/members/{self._fate.choice(members)}/assignment?after=999999&wait_ms=20000"
            with suppress(TimeoutError):
                async with asyncio.timeout(self._fate.uniform(0.1, 5)):
                    await self.call("GET", path)

    async def freezes_a_coordinator(self) -> None:
        """Stop a coordinator for longer than its lease lasts."""
        frozen = self._place.running[f"coordinator {self._fate.choice((1, 2))}"]
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(FREEZE_S)
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
