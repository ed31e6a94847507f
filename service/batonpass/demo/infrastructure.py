"""Where a demonstration takes place: a broker, a database and a coordinator of its own, in one folder."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from batonpass.demo.processes import Child
from batonpass.demo.topics import BROKER_SETTINGS
from batonpass.kafka.broker import BOOTSTRAP_VARIABLE, LocalBroker
from batonpass.postgres.embedded import EmbeddedPostgres
from batonpass.postgres.schema import upgrade
from batonpass.private_files import write_private
from batonpass.runtime.access import new_secret
from batonpass.variables import variable

START_PATIENCE_S = 60.0


class CoordinatorNotStarted(Exception):
    """The coordinator did not start. The message says where its log is."""


class Infrastructure:
    """The broker, the database and the coordinator of a demonstration."""

    def __init__(self, folder: Path, logs: Path, *, say: Callable[[str], None]) -> None:
        """Name the folders; nothing happens before ``start``. ``say`` is called before each step that takes time."""
        self.folder = folder
        self.logs = logs
        self.token_file = folder / "token"
        self.token = new_secret()
        self.bootstrap = variable(BOOTSTRAP_VARIABLE) or ""
        self.url = ""
        is_given = bool(self.bootstrap)
        self._broker = None if is_given else LocalBroker(folder / "kafka", settings=BROKER_SETTINGS, say=say)
        self._postgres = EmbeddedPostgres(folder / "postgres")
        self._coordinator: Child | None = None

    async def start(self) -> None:
        """Start everything, the broker and the database at the same time.

        Raises:
            BrokerUnavailable: when no broker is available; the message says what to do.
            EmbeddedPostgresError: when no database is available; the same.
            CoordinatorNotStarted: when the coordinator does not start.
        """
        # The database's own user has to get through this folder.
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o711)
        write_private(self.token_file, self.token)
        outcomes = await asyncio.gather(
            asyncio.to_thread(self._start_broker), self._start_postgres(), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        self.bootstrap, database_url = (str(outcome) for outcome in outcomes)
        self.url = await self._start_coordinator(database_url)

    def _start_broker(self) -> str:
        return self.bootstrap if self._broker is None else self._broker.start()

    async def _start_postgres(self) -> str:
        url = await asyncio.to_thread(self._postgres.start)
        await upgrade(url)
        return url

    async def _start_coordinator(self, database_url: str) -> str:
        listens: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def hear(event: Mapping[str, Any]) -> None:
            if "url" in event and not listens.done():
                listens.set_result(str(event["url"]))

        log = self.logs / "coordinator.log"
        self._coordinator = await Child.start(
            "batonpass",
            ["serve", "--port", "0", "--json"],
            log=log,
            hear=hear,
            BATONPASS_DATABASE_URL=database_url,
            BATONPASS_ADMIN_TOKEN=self.token,
            BATONPASS_SOLE_COORDINATOR="true",
            BATONPASS_KAFKA_BOOTSTRAP=self.bootstrap,
            # With an end offset a second old, a copy seems closer to the end by as many records as come in a second.
            BATONPASS_KAFKA_INTERVAL_MS="200",
            BATONPASS_LOG_LEVEL="warning",
        )
        try:
            async with asyncio.timeout(START_PATIENCE_S):
                return await listens
        except TimeoutError:
            raise CoordinatorNotStarted(f"the coordinator did not start; {log} has what it said") from None

    async def stop(self) -> None:
        if self._coordinator is not None:
            await self._coordinator.stop()
        stops = [asyncio.to_thread(self._postgres.stop)]
        if self._broker is not None:
            stops.append(asyncio.to_thread(self._broker.stop))
        await asyncio.gather(*stops, return_exceptions=True)

    @property
    def broker_log(self) -> Path | None:
        """The broker's log; None for a cluster that was given."""
        return None if self._broker is None else self._broker.log
