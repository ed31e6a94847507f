"""Workers made of the SDK's own members: each restores in steps, tells the witness what it runs, and comes and goes."""

import asyncio
import random
from contextlib import suppress

from tests.proof.witness import Witness

from batonpass.worker import Callbacks, Exit, Member, Role, Task
from batonpass.worker.tasks import Revocation

STATE = 1_000
"""How many records the state of a task has."""


class Worker(Callbacks):
    """Restores a task's state in a few steps, then processes until it is told to stop."""

    def __init__(self, name: str, witness: Witness, chance: random.Random) -> None:
        self.name = name
        self._witness = witness
        self._random = chance
        self._position: dict[str, int] = {}

    async def on_active(self, task: Task) -> None:
        """Restore what is missing, then process for as long as that is allowed."""
        await self._restore(task)
        assert task.fencing_token is not None
        while not task.stopping and not task.may_begin:
            await asyncio.sleep(0.02)
        if task.stopping:
            return
        self._witness.begins(task.id, self.name, task.fencing_token)
        try:
            task.running()
            while task.may_process and not task.stopping:
                await asyncio.sleep(0.01)
        finally:
            self._witness.ends(task.id, self.name)

    async def on_standby(self, task: Task) -> None:
        """Restore, and go on saying that nothing is missing."""
        await self._restore(task)
        await task.stop_requested()

    async def on_revoke(self, task: Task, revocation: Revocation) -> None:
        """Wait until it has ceased; lose the state now and then, so that some moves are cold."""
        if task.role is Role.ACTIVE and revocation.commit:
            await task.finished()
        if revocation.becomes is None and self._random.random() < 0.5:
            self._position.pop(task.id, None)

    async def _restore(self, task: Task) -> None:
        position = self._position.setdefault(task.id, 0)
        while position < STATE and not task.stopping:
            position = min(STATE, position + self._random.choice((100, 300, 1_000)))
            self._position[task.id] = position
            task.report(position, STATE)
            await asyncio.sleep(0.02)
        # Its state may be gone by now: it is told to stop while it restores.
        task.report(position, STATE)


class Workers:
    """Members that come and go. ``left`` has the ids of those that went; a goodbye may have been lost on its way."""

    def __init__(
        self, url: str | list[str], group: str, witness: Witness, *, seed: int, token: str | None = None
    ) -> None:
        self._url = url
        self._token = token
        self._group = group
        self._witness = witness
        self._random = random.Random(seed)
        self._count = 0
        self._leaving: list[asyncio.Task[None]] = []
        self.members: dict[str, Member] = {}
        self.left: set[str] = set()

    async def join(self, *, instance: bool = False) -> str:
        """Let one more member join; it goes on trying for as long as that takes."""
        self._count += 1
        name = f"w{self._count}"
        member = Member(
            self._url,
            self._group,
            Worker(name, self._witness, random.Random(self._random.random())),
            instance_id=name if instance else None,
            token=self._token,
            on_exit=Exit.LEAVE,
            poll_wait_ms=2_000,
            request_timeout_ms=2_000,
            stop_deadline_ms=2_000,
            exit_timeout_ms=20_000,
        )
        self.members[name] = member
        member.start()
        return name

    async def joined(self) -> str:
        """Let one more member join; return when it is one."""
        name = await self.join()
        await self.members[name].joined()
        return name

    async def leave(self, name: str) -> None:
        """Let a member go in good order."""
        member = self.members.pop(name)
        self.left.add(str(member.member_id))
        await member.exit()

    async def crash(self) -> None:
        """Let one that is not needed stop without a word: its lease runs out."""
        if len(self.members) > 4:
            await self.members.pop(self._random.choice(sorted(self.members))).close()

    async def churn(self) -> None:
        """Let one thing happen: a join, a leave, or nothing."""
        chance = self._random.random()
        if chance < 0.3 and len(self.members) < 10:
            await self.join(instance=self._random.random() < 0.3)
        elif chance < 0.5 and len(self.members) > 4:
            name = self._random.choice(sorted(self.members))
            leaving = asyncio.create_task(self.leave(name))
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(leaving), 3)
            self._leaving.append(leaving)

    async def leave_all(self) -> None:
        """Let everybody leave."""
        await asyncio.gather(*self._leaving, *(self.leave(name) for name in sorted(self.members)))
