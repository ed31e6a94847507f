"""Who may call, and as what: the tokens that a store keeps, and what a caller is once its token was found."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from batonpass.core.errors import ProtocolError

if TYPE_CHECKING:
    from batonpass.core.ids import GroupId
    from batonpass.runtime.history import Asked

SECRET_PREFIX: Final = "bpt_"  # noqa: S105 - the beginning of every secret, not one
"""How every secret begins, so that a scanner finds one that was committed somewhere by mistake."""

SECRET_BYTES: Final = 32


class AccessRole(StrEnum):
    """What a caller may do. ``ADMIN`` includes all; a ``WORKER`` speaks for the members of its own group only."""

    WORKER = "worker"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class Forbidden(ProtocolError):
    """The caller may not do this, or not to this group."""

    type = "forbidden"
    status = 403
    title = "Not allowed"


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller: the name that its deeds are recorded under, its role, and the one group that it is bound to, if any.

    ``expires_ms`` is the instant from which its token is worth nothing; None: never.
    """

    name: str
    role: AccessRole
    group: GroupId | None = None
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that is to be made. A worker's names its group."""

    name: str
    role: AccessRole
    group: GroupId | None = None
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token as it is kept: everything but its secret, of which nobody can tell more than the last four characters."""

    id: str
    name: str
    role: AccessRole
    group: GroupId | None
    last_four: str
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None


class Tokens(Protocol):
    """Where tokens are kept, as digests. Every call may raise ``StoreUnavailable``."""

    async def find(self, secret: str) -> Principal | None:
        """Return the caller that a secret belongs to; None for one that is unknown, revoked or expired."""
        ...

    async def create(self, wanted: NewToken, asked: Asked) -> tuple[StoredToken, str]:
        """Make a token and return it with its secret, which is not kept and cannot be asked for again."""
        ...

    async def list(self) -> Sequence[StoredToken]:
        """Return every token, revoked and expired ones too, oldest first."""
        ...

    async def revoke(self, token_id: str, asked: Asked) -> bool:
        """Make a token worth nothing from now on; say whether there is one of this id. Once more changes nothing."""
        ...


def new_secret() -> str:
    """Return a secret of 256 random bits."""
    return SECRET_PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def digest_of(secret: str) -> bytes:
    """Return what is kept of a secret: of 256 random bits one pass of SHA-256 is enough, unlike of a password."""
    return hashlib.sha256(secret.encode()).digest()
