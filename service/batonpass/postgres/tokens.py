"""Tokens in Postgres, by the digests of their secrets; making or revoking one adds a row to the audit trail."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.core.state.ids import GroupId
from batonpass.postgres.append import plain
from batonpass.postgres.connect import reaching
from batonpass.postgres.tables import ms_of
from batonpass.runtime.access import AccessRole, Principal, StoredToken, digest_of, new_secret
from batonpass.runtime.history import Asked

_FIND: Final = text(
    f"select digest, name, role, group_id, {ms_of('expires_at')} from tokens"  # noqa: S608 - constants
    " where digest = :digest and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())"
)
_KEPT: Final = (
    f"id, name, role, group_id, last_four, {ms_of('created_at')}, {ms_of('expires_at')}, {ms_of('revoked_at')}"
)
_ASKED: Final = (
    "insert into commands (group_id, at, command, who, asked, subject)"
    " select coalesce(group_id, ''), clock_timestamp(), :command, :who, cast(:asked as json),"
    " json_build_object('token', id, 'name', name, 'role', role)"
)
_CREATE: Final = text(
    "with made as (insert into tokens (id, digest, name, role, group_id, last_four, created_at, created_by, expires_at)"  # noqa: S608
    " values (:id, :digest, :name, :role, :of_group, :last_four, clock_timestamp(), :who,"
    f" timestamptz 'epoch' + cast(:expires_ms as bigint) * interval '1 millisecond') returning {_KEPT}),"
    f" logged as ({_ASKED} from made) select * from made"
)
_LIST: Final = text(f"select {_KEPT} from tokens order by created_at, id")  # noqa: S608 - constants
_REVOKE: Final = text(
    "with revoked as (update tokens set revoked_at = coalesce(revoked_at, clock_timestamp()) where id = :id"  # noqa: S608
    f" returning id, name, role, group_id), logged as ({_ASKED} from revoked) select id from revoked"
)


class PostgresTokens:
    """The tokens of all coordinators on one database. A token is valid, expired or revoked by the database's clock."""

    def __init__(self, engine: AsyncEngine) -> None:
        """Keep them in a database."""
        self._engine = engine

    async def find(self, secret: str) -> Principal | None:
        """Return the caller that a secret belongs to; None for one that is unknown, revoked or expired."""
        digest = digest_of(secret)
        async with reaching(self._engine) as connection:
            row = (await connection.execute(_FIND, {"digest": digest})).one_or_none()
        if row is None or not hmac.compare_digest(bytes(row[0]), digest):
            return None
        _, name, role, group_id, expires_ms = row
        return Principal(name, AccessRole(role), None if group_id is None else GroupId(group_id), expires_ms)

    async def create(self, wanted: Principal, asked: Asked) -> tuple[StoredToken, str]:
        """Make a token and return it with its secret, which is not kept and cannot be asked for again."""
        secret = new_secret()
        columns: dict[str, Any] = {
            "id": secrets.token_hex(8),
            "digest": digest_of(secret),
            "name": plain(wanted.name),
            "role": wanted.role.value,
            "of_group": wanted.group,
            "last_four": secret[-4:],
            "expires_ms": wanted.expires_ms,
        }
        async with reaching(self._engine) as connection:
            row = (await connection.execute(_CREATE, columns | _said(asked))).one()
        return _stored(tuple(row)), secret

    async def list(self) -> Sequence[StoredToken]:
        """Return every token, revoked and expired ones too, oldest first."""
        async with reaching(self._engine) as connection:
            return [_stored(tuple(row)) for row in await connection.execute(_LIST)]

    async def revoke(self, token_id: str, asked: Asked) -> bool:
        """Revoke a token; return whether there is one of this id. Revoking it again changes nothing."""
        async with reaching(self._engine) as connection:
            done = await connection.execute(_REVOKE, {"id": plain(token_id), **_said(asked)})
            return done.one_or_none() is not None


def _said(asked: Asked) -> dict[str, Any]:
    said = msgspec.json.encode(asked._asdict()).decode()
    return {"command": plain(asked.command), "who": plain(asked.who), "asked": said}


def _stored(row: tuple[Any, ...]) -> StoredToken:
    token_id, name, role, group_id, last_four, created_ms, expires_ms, revoked_ms = row
    group = None if group_id is None else GroupId(group_id)
    return StoredToken(token_id, name, AccessRole(role), group, last_four, created_ms, expires_ms, revoked_ms)
