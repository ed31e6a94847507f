"""Callers and what they may do: the tokens that a store keeps, and the principal that each token stands for."""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import GroupId
from batonpass.runtime.history import Asked

SECRET_PREFIX: Final = "bpt_"  # noqa: S105 - the prefix of every secret, not a secret
"""How every secret begins, so that a scanner finds a secret that was committed by mistake."""

SECRET_BYTES: Final = 32


class AccessRole(StrEnum):
    """What a caller may do. An ``ADMIN`` may do everything; a ``WORKER`` acts only for members of its own group."""

    WORKER = "worker"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class Forbidden(ProtocolError, type="forbidden", status=403, title="Not allowed"):
    """The caller may not do this, or not to this group."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a token is for: its name in the audit trail, its role, and the one group that it is bound to, if any.

    The token of a worker names its group. ``expires_ms`` is the instant at which it expires; None: never.
    """

    name: str
    role: AccessRole
    group: GroupId | None = None
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A stored token. Of its secret it has only the last four characters."""

    id: str
    name: str
    role: AccessRole
    group: GroupId | None
    last_four: str
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None


class Tokens(Protocol):
    """Stores tokens, with digests of their secrets. Every call may raise ``StoreUnavailable``."""

    async def find(self, secret: str) -> Principal | None:
        """Return the caller that a secret belongs to; None for one that is unknown, revoked or expired."""

    async def create(self, wanted: Principal, asked: Asked) -> tuple[StoredToken, str]:
        """Make a token and return it with its secret, which is not kept and cannot be asked for again."""

    async def list(self) -> Sequence[StoredToken]:
        """Return every token, revoked and expired ones too, oldest first."""

    async def revoke(self, token_id: str, asked: Asked) -> bool:
        """Revoke a token; return whether there is one of this id. Revoking it again changes nothing."""


def new_secret() -> str:
    """Return a secret of 256 random bits."""
    return SECRET_PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def digest_of(secret: str) -> bytes:
    """Return the digest to store for a secret. 256 random bits, unlike a password, need only one pass of SHA-256."""
    return hashlib.sha256(secret.encode()).digest()
