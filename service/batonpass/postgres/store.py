"""Everything that a coordinator keeps in one database, and what runs for it in the background."""

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

from batonpass.background import Background
from batonpass.postgres.archive import PostgresArchive
from batonpass.postgres.audits import PostgresAudits
from batonpass.postgres.connect import STATEMENT_TIMEOUT_S, Server, connect
from batonpass.postgres.fleet import NAMELESS, Fleet, Registration
from batonpass.postgres.leases import Leases
from batonpass.postgres.outbox import PostgresOutbox
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.postgres.sorting import keep_sorted
from batonpass.postgres.tokens import PostgresTokens
from batonpass.postgres.upkeep import DEFAULT_RETENTION, Retention, Upkeep
from batonpass.runtime.clocks import DatabaseClock
from batonpass.runtime.ports import Store, StoreUnavailable

LEASE_CONNECTIONS = 2
"""Connections that only leases use, so that however busy the others are, a lease is renewed in time."""

WRITING_CONNECTIONS = 2
"""Connections that only append: small commits on one, large ones on the other."""


class PostgresStore(Store):
    """The record log, the archive, tokens, audits and the lease of one coordinator."""

    clock: DatabaseClock
    log: PostgresRecordLog
    ownership: Fleet

    def __init__(
        self,
        url: str,
        registration: Registration = NAMELESS,
        *,
        connections_max: int = 10,
        alone: bool = False,
        retention: Retention = DEFAULT_RETENTION,
    ) -> None:
        """Make everything; nothing is connected before it is used. ``alone``: no other coordinator can be running."""
        self._alone = alone
        server = self._server = Server()
        # However many read the history at once, nothing else waits for that: no token, no group, no upkeep.
        self._reading = connect(url, connections_max=connections_max // 2, server=server)
        self._engine = connect(url, connections_max=connections_max - connections_max // 2, server=server)
        self._writing = connect(url, connections_max=WRITING_CONNECTIONS, keeps_plans=True, server=server)
        # An answer that takes longer than a lease renews none.
        small_s = min(registration.lease_ms / 1_000, STATEMENT_TIMEOUT_S)
        self._lease_engine = connect(url, connections_max=LEASE_CONNECTIONS, server=server, small_s=small_s)
        leases = Leases(self._lease_engine, lease_ms=registration.lease_ms)
        self.ownership = Fleet(leases, registration)
        self.clock = self.ownership.clock
        self.log = PostgresRecordLog(self._engine, tenure=self.ownership, writing=self._writing, server=server)
        self.archive = PostgresArchive(self._reading)
        self.tokens = PostgresTokens(self._engine)
        self.audits = PostgresAudits(self._reading)
        self.outbox = PostgresOutbox(self._engine, "kafka")
        self._upkeep = Upkeep(self._engine, retention)
        self._background = Background()
        self._has_left = False

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

    async def leave(self) -> None:
        self._has_left = True
        await self._background.end()
        try:
            await self.ownership.leave()
        except StoreUnavailable:
            # The lease runs out by itself.
            self._server.abandon()

    async def stop(self) -> None:
        if not self._has_left:
            await self.leave()
        await self._lease_engine.dispose()
        await self._writing.dispose()
        await self._reading.dispose()
        await self._engine.dispose()
