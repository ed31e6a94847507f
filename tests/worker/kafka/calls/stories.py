"""The life of one task on three workers, from its first start to its last owner's end.

It is told towards facts (what was processed, who owns the task, which copy has everything), so that after a fault it
goes on in whatever way the workers do.
"""

import time
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaProducer
from tests.waiting import until
from tests.worker.kafka.calls.ledger import KEYS, Ledger
from tests.worker.kafka.calls.workers import TASK, Worker, World

from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import GroupDeclaration, PinRequest
from batonpass.worker.protocol import Role

LIMIT_S = 60.0
"""How long a phase may take; without a fault it takes a second or two. The longest documented wait after one call is
for an answer to the fence (15 s), then for what is given up to close (10 s); busy machines need more."""

PHASES = (
    "first-start",
    "standby",
    "tail",
    "handover",
    "demoted",
    "wipe",
    "away",
    "restart",
    "takeover",
    "end",
    "cold-start",
    "shutdown",
)


class Story:
    """A life of a task, and what is known of it."""

    def __init__(self, world: World, ledger: Ledger, producer: AIOKafkaProducer) -> None:
        self.world = world
        self.ledger = ledger
        self.workers = self.a, self.b, self.c = [Worker(name, world) for name in "abc"]
        self.count = 0
        """How many input records were written."""
        self.known_ends: list[tuple[float, int]] = []
        """Where the changelog was seen to end, and when."""
        self.took_s: dict[str, float] = {}
        self._producer = producer
        self._ends_at = 0.0

    async def tell(self) -> None:
        """Tell it, phase by phase.

        Raises:
            AssertionError: when one takes too long.
        """
        for phase in PHASES:
            began = time.monotonic()
            self._ends_at = began + LIMIT_S
            self.world.calls.begin(phase)
            await self._tell(phase)
            self.took_s[phase] = time.monotonic() - began

    async def _tell(self, phase: str) -> None:
        a, b, c = self.a, self.b, self.c
        # After a fault they may have changed places: a comment names those of a story without one.
        owner, copy = (a, b) if a.runs else (b, a)
        match phase:
            case "first-start":
                await self._write(20)
                a.start()
                await self._rests(a)
            case "standby":
                b.start()
                await self._rests(a, b)
            case "tail" | "demoted":
                await self._write(10)
                await self._rests(a, b)
            case "handover":
                # The copy b is promoted in place, and its former owner a demoted in place.
                await self._move(b)
                await self._rests(a, b)
            case "wipe":
                # The copy a has become too old.
                before = copy.times_begun_anew
                copy.hours += 25
                await self._until(lambda: copy.times_begun_anew > before, f"copy of {copy.name} begun anew")
                await self._rests(a, b)
            case "away":
                # The copy a is closed for a while, in a process that goes on.
                await self._keep_standbys(0)
                await self._until(lambda: copy.role is Role.NONE, f"end of the copy of {copy.name}")
                await self._write(10)
                await self._keep_standbys(1)
                await self._rests(a, b)
            case "restart":
                # The copy a goes on from its disk.
                await self._stop(copy)
                await self._write(10)
                copy.start()
                await self._rests(a, b)
            case "takeover":
                # The owner b ends, and the copy a is promoted.
                await self._stop(owner)
                await self._write(10)
                await self._rests(copy)
            case "end":
                await self._stop(owner)
            case "cold-start":
                # An owner restores everything before it processes.
                await self._write(10)
                c.start()
                await self._rests(c)
            case _:
                await self._stop(c)

    # --- steps ------------------------------------------------------------------------------------------------------

    async def _until(self, fact: Callable[[], Any], what: str) -> None:
        """Wait for a fact, for as long as the phase may take."""
        left_s = max(0.0, self._ends_at - time.monotonic())
        await until(fact, within_s=left_s, every_s=0.03, seen=lambda: f"no {what}")

    async def _write(self, count: int) -> None:
        """Write so many more input records."""
        for number in range(self.count, self.count + count):
            key = f"k{number % KEYS}".encode()
            await self._producer.send(self.world.job.source, str(number).encode(), key=key, partition=0)
        await self._producer.flush()
        self.count += count

    async def _rests(self, *workers: Worker) -> None:
        """Wait until everything was processed, one of the workers owns the task, and the others have it all."""

        async def is_at_rest() -> bool:
            end = self.ledger.end
            self.known_ends.append((time.monotonic(), end))
            owners = [one for one in workers if one.runs and one.position >= end]
            is_told = (
                self.ledger.has(self.count)
                and len(owners) == 1
                and all(one in owners or one.is_level(end) for one in workers)
            )
            return is_told and bool((await self.world.coordinator.describe(self.world.job.group))["at_rest"])

        await self._until(is_at_rest, f"rest of {' and '.join(one.name for one in workers)}")

    async def _stop(self, worker: Worker) -> None:
        worker.leave()
        await self._until(lambda: worker.has_ended, f"exit of {worker.name}")

    async def _move(self, to: Worker) -> None:
        """Have an operator move the task to a worker; if it fails there, it need not stay."""
        pinned: str | None = None

        async def is_there() -> bool:
            nonlocal pinned
            if to.member_id is not None and to.member_id != pinned:
                pinned = to.member_id
                await self._pin(pinned)
            return to.runs or to.has_failed

        await self._until(is_there, f"handover to {to.name}")
        await self._pin(None)

    async def _pin(self, member: str | None) -> None:
        request = PinRequest(TaskId(TASK), None if member is None else MemberId(member))
        await self.world.coordinator.coordinator.ask(GroupId(self.world.job.group), request)

    async def _keep_standbys(self, count: int) -> None:
        """Have an operator set how many standbys the task has."""
        coordinator, group_id = self.world.coordinator.coordinator, GroupId(self.world.job.group)
        group, _ = await coordinator.look(group_id)
        config = {"num_standby_replicas": count}
        await coordinator.ask(group_id, GroupDeclaration(group_id, None, config, group.revision))
