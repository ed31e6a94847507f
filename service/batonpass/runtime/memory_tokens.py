"""Tokens that are forgotten with their process: for tests, and for a coordinator that keeps everything in memory."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from batonpass.runtime.access import Principal, StoredToken, TokenWish, digest_of, new_secret

if TYPE_CHECKING:
    from batonpass.runtime.history import Asked


class MemoryTokens:
    """Tokens by the digest of their secret."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._stored: dict[bytes, StoredToken] = {}

    async def find(self, secret: str) -> Principal | None:
        """Return the caller that a secret belongs to; None for one that is unknown, revoked or expired."""
        token = self._stored.get(digest_of(secret))
        if token is None or token.revoked_ms is not None:
            return None
        if token.expires_ms is not None and token.expires_ms <= self._now_ms():
            return None
        return Principal(token.name, token.role, token.group, token.expires_ms)

    async def create(self, wish: TokenWish, asked: Asked) -> tuple[StoredToken, str]:  # noqa: ARG002 - no trail is kept
        """Make a token and return it with its secret, which is not kept."""
        secret = new_secret()
        made = StoredToken(
            id=secrets.token_hex(8),
            name=wish.name,
            role=wish.role,
            group=wish.group,
            last_four=secret[-4:],
            created_ms=self._now_ms(),
            expires_ms=wish.expires_ms,
        )
        self._stored[digest_of(secret)] = made
        return made, secret

    async def list(self) -> Sequence[StoredToken]:
        """Return every token, oldest first."""
        return tuple(self._stored.values())

    async def revoke(self, token_id: str, asked: Asked) -> bool:  # noqa: ARG002 - no trail is kept
        """Make a token worth nothing from now on; say whether there is one of this id."""
        for digest, token in self._stored.items():
            if token.id == token_id:
                if token.revoked_ms is None:
                    self._stored[digest] = replace(token, revoked_ms=self._now_ms())
                return True
        return False
