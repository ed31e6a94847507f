"""Everything that a coordinator keeps in one database, and what runs for it in the background."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from batonpass.postgres.archive import PostgresArchive
from batonpass.postgres.audits import PostgresAudits
from batonpass.postgres.connect import Server, connect
from batonpass.postgres.fleet import LEASE_MS, RENEWAL_MS, Fleet, Registration
from batonpass.postgres.leases import Leases
from batonpass.postgres.outbox import PostgresOutbox
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.postgres.samples import PostgresSamples
from batonpass.postgres.sorting import keep_sorted
from batonpass.postgres.tokens import PostgresTokens
from batonpass.postgres.upkeep import DEFAULT_RETENTION, Retention, Upkeep
from batonpass.runtime.background import kept_going
from batonpass.runtime.clocks import DatabaseClock
from batonpass.runtime.ports import StoreUnavailable

LEASE_CONNECTIONS = 2
"""Connections that only leases use, so that however busy the others are, a lease is renewed in time."""

WRITING_CONNECTIONS = 2
"""Connections that only append: small commits on one, large ones on the other."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The database, and how this coordinator registers in it. ``alone``: no other one can be running on it."""

    database_url: str
    coordinator_url: str = ""
    code: str = ""
    connections_max: int = 10
    lease_ms: int = LEASE_MS
    renewal_ms: int = RENEWAL_MS
    alone: bool = False
    retention: Retention = DEFAULT_RETENTION


@dataclass(slots=True)
class _Background:
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def begin(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self.tasks.append(asyncio.create_task(kept_going(name, work), name=name))

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()


class PostgresStore:
    """The record log, the archive, samples, tokens, audits and the lease of one coordinator."""

    def __init__(self, options: StoreOptions) -> None:
        """Make everything; nothing is connected before it is used."""
        self._alone = options.alone
        url, server = options.database_url, Server()
        self._engine = connect(url, connections_max=options.connections_max, server=server)
        self._writing = connect(url, connections_max=WRITING_CONNECTIONS, keeps_plans=True, server=server)
        self._lease_engine = connect(url, connections_max=LEASE_CONNECTIONS, server=server)
        leases = Leases(self._lease_engine, lease_ms=options.lease_ms)
        registration = Registration(options.coordinator_url, options.code, options.lease_ms, options.renewal_ms)
        self.clock = DatabaseClock()
        self.ownership = Fleet(leases, registration, clock=self.clock)
        self.log = PostgresRecordLog(self._engine, tenure=self.ownership, writing=self._writing, server=server)
        self.archive = PostgresArchive(self._engine)
        self.samples = PostgresSamples(self._engine)
        self.tokens = PostgresTokens(self._engine)
        self.audits = PostgresAudits(self._engine)
        self.outbox = PostgresOutbox(self._engine, "kafka")
        self._upkeep = Upkeep(self._engine, options.retention)
        self._background = _Background()

    async def start(self, changed: Callable[[], Awaitable[None]] | None = None) -> None:
        """Take a lease and keep it. If the database cannot be reached, try again; no group is held until then.

        ``changed`` is called when groups went to other coordinators, came from them, or have no owner.
        """
        if changed is not None:
            self.ownership.changed = changed
        # If this fails, the first round of ``run`` that reaches the database takes the lease.
        with contextlib.suppress(StoreUnavailable):
            await self.ownership.start(alone=self._alone)
            await self.log.get_ready()
        self._background.begin("lease", self.ownership.run)
        self._background.begin("upkeep", self._upkeep.run)
        self._background.begin("sorting", partial(keep_sorted, self._engine))

    async def stop(self) -> None:
        """Give every group up, so that others need not wait for the end of the lease, and disconnect."""
        await self._background.end()
        # Without the database the lease runs out by itself.
        with contextlib.suppress(StoreUnavailable):
            await self.ownership.leave()
        await self._lease_engine.dispose()
        await self._writing.dispose()
        await self._engine.dispose()

    def not_ready(self) -> str:
        """Return why requests should go to another coordinator; "" if there is no reason."""
        if self.lease_left_s() > 0:
            return ""
        over = "this coordinator's lease is over, and the database has not renewed it"
        return f"{over}: {self.ownership.trouble}" if self.ownership.trouble else over

    def lease_left_s(self) -> float:
        """Return for how many seconds groups would be held if the database failed now; 0 when they are not."""
        return self.ownership.lease_left_s()
