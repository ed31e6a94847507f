"""Tokens in Postgres, by the digests of their secrets; making or revoking one adds a row to the audit trail."""

import hmac
import secrets
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.core.state.ids import GroupId
from batonpass.postgres.append import plain
from batonpass.postgres.connect import fetch_rows
from batonpass.postgres.tables import ms_of
from batonpass.runtime.access import AccessRole, Principal, StoredToken, Tokens, digest_of, new_secret
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


class PostgresTokens(Tokens):
    """The tokens of all coordinators on one database. A token is valid, expired or revoked by the database's clock."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def find(self, secret: str) -> Principal | None:
        digest = digest_of(secret)
        rows = await fetch_rows(self._engine, _FIND, digest=digest)
        if not rows or not hmac.compare_digest(bytes(rows[0][0]), digest):
            return None
        _, name, role, group_id, expires_ms = rows[0]
        return Principal(name, AccessRole(role), None if group_id is None else GroupId(group_id), expires_ms)

    async def create(self, wanted: Principal, asked: Asked) -> tuple[StoredToken, str]:
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
        (row,) = await fetch_rows(self._engine, _CREATE, **columns, **_said(asked))
        return _stored(row), secret

    async def list(self) -> Sequence[StoredToken]:
        return [_stored(row) for row in await fetch_rows(self._engine, _LIST)]

    async def revoke(self, token_id: str, asked: Asked) -> bool:
        return bool(await fetch_rows(self._engine, _REVOKE, id=plain(token_id), **_said(asked)))


def _said(asked: Asked) -> dict[str, Any]:
    said = msgspec.json.encode(asked._asdict()).decode()
    return {"command": plain(asked.command), "who": plain(asked.who), "asked": said}


def _stored(row: tuple[Any, ...]) -> StoredToken:
    token_id, name, role, *others = row
    return StoredToken(token_id, name, AccessRole(role), *others)
