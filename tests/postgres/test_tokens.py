"""Tokens are kept as digests, are worth what they were made for, and nothing once they are revoked or over."""

import asyncio
import time

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.core.state.ids import GroupId
from batonpass.postgres.archive import PostgresArchive
from batonpass.postgres.connect import connect
from batonpass.postgres.tokens import PostgresTokens
from batonpass.runtime.access import AccessRole, Principal
from batonpass.runtime.history import Asked
from batonpass.runtime.ports import StoreUnavailable

ANN = Asked("ann", "new worker", "c-1", "create-token")
WORKER = Principal("orders workers", AccessRole.WORKER, GroupId("orders"))


@pytest.fixture
def tokens(engine: AsyncEngine) -> PostgresTokens:
    """Return an empty store of tokens."""
    return PostgresTokens(engine)


async def test_a_secret_finds_its_caller(tokens: PostgresTokens) -> None:
    made, secret = await tokens.create(WORKER, ANN)
    assert await tokens.find(secret) == Principal("orders workers", AccessRole.WORKER, GroupId("orders"))
    for other in ("", secret[:-1], f"{secret}x", secret.swapcase(), "a\0b"):
        assert await tokens.find(other) is None
    assert [made.name, made.role, made.group, made.last_four] == [WORKER.name, WORKER.role, WORKER.group, secret[-4:]]


async def test_a_secret_is_not_kept(tokens: PostgresTokens, engine: AsyncEngine) -> None:
    _, secret = await tokens.create(WORKER, ANN)
    async with engine.connect() as connection:
        row = (await connection.execute(text("select * from tokens"))).one()
    kept = " ".join(str(value) for value in row)
    assert secret[:-4] not in kept
    assert secret[4:-4] not in kept


async def test_a_revoked_token_is_worth_nothing(tokens: PostgresTokens) -> None:
    first, secret = await tokens.create(WORKER, ANN)
    second, other = await tokens.create(Principal("ops", AccessRole.OPERATOR), ANN)
    assert await tokens.revoke(first.id, ANN)
    revoked = (await tokens.list())[0].revoked_ms
    assert revoked is not None
    assert abs(revoked - time.time() * 1_000) < 60_000
    assert await tokens.revoke(first.id, ANN)
    assert (await tokens.list())[0].revoked_ms == revoked
    assert await tokens.find(secret) is None
    assert await tokens.find(other) == Principal("ops", AccessRole.OPERATOR)
    assert [one.id for one in await tokens.list()] == [first.id, second.id]
    assert not await tokens.revoke("no such token \0", ANN)


async def test_a_token_expires(tokens: PostgresTokens) -> None:
    soon_ms = int(time.time() * 1_000) + 700
    made, secret = await tokens.create(Principal("short", AccessRole.VIEWER, expires_ms=soon_ms), ANN)
    assert made.expires_ms == soon_ms
    assert await tokens.find(secret) == Principal("short", AccessRole.VIEWER, None, soon_ms)
    await asyncio.sleep(1)
    assert await tokens.find(secret) is None
    assert len(await tokens.list()) == 1


async def test_making_and_revoking_leave_rows_in_the_audit_trail(tokens: PostgresTokens, engine: AsyncEngine) -> None:
    made, _ = await tokens.create(WORKER, ANN)
    bob = Asked("bob \0", "leaked", "c-2", "revoke-token")
    await tokens.revoke(made.id, bob)
    await tokens.revoke("unknown", bob)
    found = await PostgresArchive(engine).commands(None, before=None, limit=9)
    assert [(one.asked, one.group) for one in found] == [(bob, "orders"), (ANN, "orders")]
    assert found[0].subject == {"token": made.id, "name": "orders workers", "role": "worker"}


async def test_tokens_of_a_database_that_is_away_are_not_known() -> None:
    """A lookup that cannot be made is no refusal."""
    nowhere = connect("postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(StoreUnavailable):
        await PostgresTokens(nowhere).find("x")
    await nowhere.dispose()
