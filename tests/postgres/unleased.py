"""A record log for tests that need no lease: whatever it owns, any other log may take over."""

import secrets
from collections.abc import Mapping

from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.codec.records import VERSIONS
from batonpass.core.state.ids import GroupId
from batonpass.postgres.record_log import PostgresRecordLog


class Unleased:
    """A tenure without a lease."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(8)

    def taken(self, group_id: GroupId, identity: str) -> None:
        """Do nothing."""

    def writes_up_to(self) -> Mapping[str, int]:
        """Return the newest version of every kind."""
        return VERSIONS


def unleased_log(engine: AsyncEngine, *, writing: AsyncEngine | None = None) -> PostgresRecordLog:
    """Return a record log that owns groups without a lease."""
    return PostgresRecordLog(engine, tenure=Unleased(), writing=writing)
