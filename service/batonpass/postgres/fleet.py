"""Divides the groups among live coordinators, and says for which groups this one may answer (L4).

Rendezvous hashing gives each group to one of the live coordinators: all agree without asking, and a coordinator that
comes or goes moves only its own share. That is a preference. What counts is the owner in the group's head, which
changes only after the last owner has released the group or has lost its row (``leases``).
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from sqlalchemy.exc import DBAPIError

from batonpass.background import kept_going
from batonpass.codec.groups import GROUP_VERSION
from batonpass.codec.records import VERSIONS
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import GroupId
from batonpass.postgres.coordinator_names import fresh_name, is_dead
from batonpass.postgres.leases import LONGEST_MS, Leases, LiveCoordinator, Reading
from batonpass.postgres.snapshots import KIND
from batonpass.runtime.clocks import UNCERTAIN_MAX_MS, DatabaseClock, boot_ms
from batonpass.runtime.ports import Ownership, StoreUnavailable
from batonpass.runtime.pulse import STALL_MS

LEASE_MS: Final = 5_000
RENEWAL_MS: Final = 1_500
RETRY_MS: Final = 500
SOONEST_MS: Final = 20

MARGIN: Final = 0.1
"""The part of a lease that its holder leaves unused: by so much its clock may run slower than the database's."""

WINNERS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Registration:
    """What a coordinator says of itself: its base URL, its version, and the newest record versions that it reads."""

    url: str = ""
    code: str = ""
    lease_ms: int = LEASE_MS
    renewal_ms: int = RENEWAL_MS
    reads: Mapping[str, int] = field(default_factory=lambda: {**VERSIONS, KIND: GROUP_VERSION})


NAMELESS: Final = Registration()


class Fleet(Ownership):
    """This coordinator among the others: its lease, and the groups that it owns."""

    def __init__(self, leases: Leases, registration: Registration, *, boot: Callable[[], float] = boot_ms) -> None:
        """Hold nothing before ``start``. ``changed`` is called when groups went to others or have no owner.

        ``noted`` is called with an event of a lease or a group, and its fields, for the log. ``clock`` is read with
        every renewal. ``boot`` is what this machine counts by.
        """
        self.changed: Callable[[], Awaitable[None]] = partial(asyncio.sleep, 0)
        self.noted: Callable[[str, Mapping[str, object]], None] = lambda _event, _more: None
        self._leases = leases
        self._registration = registration
        self.clock = DatabaseClock(boot=boot)
        self._boot_ms = boot
        self.id = fresh_name()
        """The name under which groups are owned now; a new one after the lease was lost."""
        self._valid_until = float("-inf")
        self._steady_since = float("inf")
        self.living: Sequence[LiveCoordinator] = ()
        """The live coordinators, as far as they are known."""
        self._winners: dict[str, LiveCoordinator | None] = {}
        self._up_to = registration.reads
        self._held: set[GroupId] = set()
        self._lost: set[GroupId] = set()
        self._to_release: set[GroupId] = set()
        self._locked: set[str] = set()
        self._woken = asyncio.Event()
        self._news = asyncio.Event()
        self.trouble = ""
        """Why the lease could not be renewed last; "" if it was."""
        self._moved_told_ms: int | None = None

    def knows(self, coordinator: str) -> bool:
        return coordinator == self.id or any(one.id == coordinator for one in self.living)

    def holds(self, group_id: GroupId) -> bool:
        """Whether the lease is valid now, this coordinator owns the group, and memory has no stale state of it."""
        if self._boot_ms() >= self._valid_until or group_id in self._lost or group_id in self._to_release:
            return False
        return self._falls_here(group_id)

    def lease_left_s(self) -> float:
        return max(self._valid_until - self._boot_ms(), 0.0) / 1_000

    def not_ready(self) -> str:
        if self.lease_left_s() > 0:
            return ""
        over = "this coordinator's lease is over, and the database has not renewed it"
        return f"{over}: {self.trouble}" if self.trouble else over

    def owner_url(self, group_id: GroupId) -> str | None:
        winner = self._winner(group_id)
        return None if winner is None or winner.id == self.id else winner.url or None

    def others(self) -> Sequence[str]:
        return [one.url for one in self.living if one.id != self.id and one.url]

    def to_forget(self) -> Sequence[GroupId]:
        return sorted(self._lost)

    def forgotten(self, group_id: GroupId) -> None:
        """Called when nothing of a group is in memory any more. It is released; then any coordinator may take it."""
        self._held.discard(group_id)
        if group_id in self._lost:
            self._lost.discard(group_id)
            self._to_release.add(group_id)
            self._woken.set()

    def taken(self, group_id: GroupId, identity: str) -> None:
        """Called when a group was taken over under a name of this coordinator."""
        self._held.add(group_id)
        self._to_release.discard(group_id)
        self.noted("group-taken-over", {"group": group_id, "coordinator": identity})
        if identity != self.id:
            self._lose([group_id])

    def writes_up_to(self) -> Mapping[str, int]:
        """Return, for each kind of record, the newest version that every live coordinator reads."""
        return self._up_to

    async def start(self, *, alone: bool = False) -> None:
        """Take a lease and read the live coordinators. ``alone``: the caller knows that no other one can be running.

        Raises:
            StoreUnavailable: when the database cannot be reached; the caller has to call again.
        """
        await self._begin(alone=alone)
        self._look(await self._leases.coordinators())

    async def run(self) -> None:
        """Renew the lease and watch the others, until cancelled."""
        telling = asyncio.create_task(kept_going("fleet news", self._tell), name="fleet news")
        try:
            while True:
                self._woken.clear()
                try:
                    pause_ms = await self.renew_and_look()
                except (StoreUnavailable, DBAPIError) as error:
                    self._in_trouble(error.detail if isinstance(error, StoreUnavailable) else str(error))
                    self._steady_since = float("inf")
                    await asyncio.sleep(RETRY_MS / 1_000)
                    continue
                try:
                    async with asyncio.timeout(pause_ms / 1_000):
                        await self._woken.wait()
                except TimeoutError:
                    continue
        finally:
            telling.cancel()

    async def renew_and_look(self) -> float:
        """Renew, remove expired coordinators, read the live ones, release forgotten groups; return the ms to the next.

        Raises:
            StoreUnavailable: when the database cannot be reached.
        """
        if not await self._renew():
            # Another coordinator found the lease over and removed the row. All held groups may have other owners now.
            if self._valid_until > float("-inf"):
                self.noted("lease-lost", {"coordinator": self.id, "groups": len(self._held)})
            self._lose(self._held)
            await self._begin()
        if self._to_release:
            releasing = sorted(self._to_release)
            locked = await self._leases.release(self.id, releasing)
            self._to_release.difference_update(one for one in releasing if one not in locked)
            for group_id in releasing:
                if group_id not in locked:
                    self.noted("group-released", {"group": group_id, "coordinator": self.id})
                elif group_id not in self._locked:
                    self.noted("group-locked", {"group": group_id, "coordinator": self.id})
            self._locked = locked
        # After an outage of the database, all leases are over. Each coordinator gets the time to renew its own.
        steady = self._boot_ms() - self._steady_since >= 2 * self._registration.renewal_ms
        living = await self._registered()
        if steady and any(one.left_ms < 0 for one in living) and await self._leases.remove_expired(self.id):
            living = await self._leases.coordinators()
        if (twin := self._twin(living)) is not None and twin.id < self.id:
            await self.leave()  # Both began in the same moment, and each found nobody at its URL.
            raise _one_url(twin)
        self._look(living)
        if any(self.holds(GroupId(group)) for group in await self._leases.orphans()):
            self._news.set()
        # Look again when the next lease ends, so that a dead coordinator is found at once.
        others = [max(one.left_ms, RETRY_MS if one.left_ms < 0 else SOONEST_MS) for one in living if one.id != self.id]
        return min([*others, RETRY_MS if self._to_release else self._registration.renewal_ms])

    async def leave(self) -> None:
        """Give every group up, so that others take them over at once. Nothing is held from now on.

        Raises:
            StoreUnavailable: when the database cannot be reached; the lease then runs out by itself.
        """
        self._valid_until = float("-inf")
        await self._leases.remove(self.id)

    async def _begin(self, *, alone: bool = False) -> None:
        self._valid_until = float("-inf")
        self.id = fresh_name()
        registration = self._registration
        others = await self._registered()
        gone = [other for other in others if alone or self._was_here(other)]
        if not alone and (twin := self._twin(others)) is not None:
            raise _one_url(twin)
        await self._leases.register(self.id, url=registration.url, code=registration.code, reads=registration.reads)
        self._to_release.clear()
        for other in gone:
            await self._leases.remove(other.id)
            self.noted("lease-taken-away", {"of": other.id, "url": other.url, "coordinator": self.id})
        # Renewed at once, because the time to connect would make the reading of the clock uncertain.
        await self._renew()

    async def _registered(self) -> Sequence[LiveCoordinator]:
        """Return all that have a row; none of them is waited for longer than a lease may last."""
        found = await self._leases.coordinators()
        if any(one.left_ms > LONGEST_MS for one in found):
            await self._leases.shorten()
        return found

    async def _renew(self) -> bool:
        """Return whether this coordinator has a row."""
        sent, moved_ms = self._boot_ms(), self.clock.moved_ms
        reading = await self._leases.renew(
            self.id, is_first=not self.clock.is_read(), has_moved=moved_ms != self._moved_told_ms
        )
        if reading is None:
            return False  # That the clock has moved is told with the first renewal of the next row.
        self._moved_told_ms = moved_ms
        self._hold_from(sent, reading)
        if self.clock.moved_ms != self._moved_told_ms:
            return await self._renew()  # At once, so that a coordinator that starts now knows of it, too.
        return True

    def _twin(self, living: Sequence[LiveCoordinator]) -> LiveCoordinator | None:
        """Return another coordinator that runs at the URL of this one, as far as is known."""
        return next((one for one in living if self._is_here(one) and not self._was_here(one)), None)

    def _is_here(self, other: LiveCoordinator) -> bool:
        return bool(other.url) and other.url == self._registration.url and other.id != self.id

    def _was_here(self, other: LiveCoordinator) -> bool:
        """Return whether this coordinator replaces the other one at its URL, whose lease is over or process dead."""
        return self._is_here(other) and (other.left_ms < 0 or is_dead(other.id))

    def _hold_from(self, sent_ms: float, reading: Reading) -> None:
        moved_ms, is_first = self.clock.moved_ms, not self.clock.is_read()
        self.clock.read(reading.at_ms, sent_ms=sent_ms)
        if self.clock.moved_ms != moved_ms:
            self.noted("database-clock-moved", {"ahead_of_this_machine_ms": round(self.clock.ahead_ms())})
        if is_first and reading.moved_ms is not None:
            self.clock.moved_before(reading.moved_ms, from_ms=reading.from_ms or 0)
            self._moved_told_ms = reading.moved_ms
        if not self.clock.is_known():
            off = f"{self.clock.uncertain_ms():.0f} ms, which is more than {UNCERTAIN_MAX_MS:.0f}"
            self._in_trouble(f"its answers take so long that its clock is known to within {off}")
            return
        if sent_ms < self._valid_until < self._boot_ms():
            self._in_trouble(
                "its answers take so long that the lease ends meanwhile (BATONPASS_LEASE_MS is too short for it)"
            )
        else:
            self.trouble = ""
        if self._boot_ms() - self._valid_until > STALL_MS:
            self.lapses += 1
        # From before the request was sent: the database began to count later.
        self._valid_until = sent_ms + self._registration.lease_ms * (1 - MARGIN)
        self._steady_since = min(self._steady_since, sent_ms)

    def _in_trouble(self, why: str) -> None:
        if why != self.trouble:
            self.noted("lease-not-renewed", {"coordinator": self.id, "reason": why})
        self.trouble = why

    def _look(self, living: Sequence[LiveCoordinator]) -> None:
        if [one.id for one in living] != [one.id for one in self.living]:
            self._winners.clear()
            self._news.set()
            urls = [one.url or one.id for one in living]
            self.noted("coordinators", {"living": urls, "coordinator": self.id})
        self.living = tuple(living)
        self._up_to = {
            kind: min(version, *(one.reads.get(kind, 0) for one in living)) if living else version
            for kind, version in self._registration.reads.items()
        }
        self._lose([group_id for group_id in self._held if not self._falls_here(group_id)])

    def _falls_here(self, group_id: GroupId) -> bool:
        winner = self._winner(group_id)
        return winner is not None and winner.id == self.id

    def _lose(self, groups: Sequence[GroupId] | set[GroupId]) -> None:
        if not self._lost.issuperset(groups):
            self._lost.update(groups)
            self._news.set()

    def _winner(self, group_id: GroupId) -> LiveCoordinator | None:
        if group_id not in self._winners:
            if len(self._winners) >= WINNERS_MAX:
                self._winners.clear()
            self._winners[group_id] = max(self.living, key=lambda one: rank(one.id, group_id), default=None)
        return self._winners[group_id]

    async def _tell(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self.changed()
            except ProtocolError:
                self._news.set()
                await asyncio.sleep(RETRY_MS / 1_000)


def rank(coordinator: str, group_id: str) -> bytes:
    """Return the rendezvous-hashing weight; the coordinator with the highest owns the group."""
    return hashlib.blake2b(f"{coordinator}\0{group_id}".encode(), digest_size=16).digest()


def _one_url(twin: LiveCoordinator) -> StoreUnavailable:
    """Return the error of a coordinator at whose URL others reach another one: calls would be passed on to either."""
    return StoreUnavailable(
        f"another coordinator, {twin.id}, has the URL {twin.url} too; if it is not the run before, which is over within a"
        " lease, give each an address of its own (BATONPASS_ADVERTISED_URL)"
    )
