"""Finds out who calls, by bearer token, and whether the caller's role may make the call.

Tokens are remembered for some seconds, so a heartbeat costs one digest and one lookup in a table. A revoked token is
refused once its entry is older than ``cache_s``. While the store cannot be asked, entries stay valid (L5).
"""

import asyncio
import contextlib
import hmac
import ipaddress
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from batonpass.api.calls import Call
from batonpass.core.state.errors import LimitExceeded, ProtocolError
from batonpass.runtime.access import AccessRole, Forbidden, Principal, Tokens, digest_of
from batonpass.runtime.ports import StoreUnavailable

T = TypeVar("T")

TOKENS_MAX: Final = 20_000
"""How many valid tokens are remembered at most, and how many invalid ones."""

LOOKUPS_MAX: Final = 8
"""How many tokens are looked up at once; a flood of made-up tokens waits, and cannot overload the store."""

LOOKUPS_WAITING_MAX: Final = 500
LOOKUPS_EACH_ADDRESS_MAX: Final = 32
"""How many lookups one address may wait for, unless a setting says otherwise."""

PATIENCE_S: Final = 3.0
"""How long a caller waits for its token to be looked up."""

STORE_REST_S: Final = 1.0
"""For how long a store that failed is not asked about tokens again."""

RETRY_AFTER_MS: Final = 1_000

_OF_NO_GROUP: Final = frozenset({"/livez", "/readyz", "/openapi.json", "/docs", "/docs/{file}"})
"""Calls that reveal nothing about any group. Metrics are not among them: they name all groups."""

ADMIN: Final = Principal("admin", AccessRole.ADMIN)
_BEARER: Final = b"bearer "


class Unauthenticated(ProtocolError, type="unauthenticated", status=401, title="No valid token"):
    """The call carries no token, or an invalid one."""


class _Known(NamedTuple):
    principal: Principal
    until: float


class Gate:
    """Finds out by its token who calls, and remembers that for some seconds."""

    def __init__(
        self,
        tokens: Tokens,
        *,
        cache_s: float,
        now_ms: Callable[[], int],
        admin_secret: str | None = None,
        lookups_each_address: int = LOOKUPS_EACH_ADDRESS_MAX,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Admit by ``tokens``, and by one secret of an admin that is in no store: from a setting."""
        self._tokens = tokens
        self._admin = None if admin_secret is None else digest_of(admin_secret)
        self._cache_s = cache_s
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._known: dict[bytes, _Known] = {}
        # Apart from the valid ones, which made-up tokens could push out otherwise.
        self._unknown_until: dict[bytes, float] = {}
        self._lookups_each_address = lookups_each_address
        self._waiting: Counter[str] = Counter()
        self._asking: dict[bytes, asyncio.Task[Principal | None]] = {}
        self._lookups = asyncio.Semaphore(LOOKUPS_MAX)
        self._rest_until = 0.0

    def remembered(self, authorization: bytes | None) -> Principal | None:
        """Return the caller, if its token was valid within the last seconds; None: it has to be looked up."""
        if authorization is None or authorization[: len(_BEARER)].lower() != _BEARER:
            return None
        known = self._known.get(digest_of(_after_scheme(authorization)))
        if known is None or known.until < self._monotonic():
            return None
        return known.principal if self._lasts(known.principal) else None

    async def find(self, authorization: bytes | None, address: str) -> Principal:
        """Return the caller that a header names.

        Raises:
            Unauthenticated: when it names none (401).
            LimitExceeded: when too many tokens from ``address`` are being looked up (429).
            StoreUnavailable: when the token is not known yet and the store cannot be asked.
        """
        secret = _secret(authorization)
        digest = digest_of(secret)
        if self._admin is not None and hmac.compare_digest(digest, self._admin):
            return ADMIN
        now = self._monotonic()
        known = self._known.get(digest)
        found: Principal | None = None
        if known is not None and now <= known.until:
            found = known.principal
        elif now > self._unknown_until.get(digest, -math.inf):
            found = await self._ask(secret, digest, address)
        if found is None or not self._lasts(found):
            raise Unauthenticated("the token is unknown, revoked or expired; ask an admin for another one")
        return found

    async def still_admits(self, authorization: bytes | None, address: str) -> bool:
        """Return whether the token of a long call is still valid; True while that cannot be found out."""
        with contextlib.suppress(StoreUnavailable, LimitExceeded):
            try:
                await self.find(authorization, address)
            except Unauthenticated:
                return False
        return True

    def _lasts(self, principal: Principal) -> bool:
        return principal.expires_ms is None or self._now_ms() < principal.expires_ms

    async def _ask(self, secret: str, digest: bytes, address: str) -> Principal | None:
        """Ask the store. If it is unavailable or takes too long, a token that was valid before stays valid."""
        error: ProtocolError
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asyncio.shield(self._asked(secret, digest, address))
        except TimeoutError:
            error = StoreUnavailable("it takes too long to look the token up", retry_after_ms=RETRY_AFTER_MS)
        except (StoreUnavailable, LimitExceeded) as refused:
            error = refused
        known = self._known.get(digest)
        if known is None:
            raise error
        return known.principal

    def _asked(self, secret: str, digest: bytes, address: str) -> asyncio.Task[Principal | None]:
        """Return the one lookup that all callers with the same token wait for."""
        asking = self._asking.get(digest)
        if asking is not None:
            return asking
        # These limits do not hold for a token that was valid before. Otherwise made-up tokens could keep its revocation
        # from being seen.
        is_known = digest in self._known
        if not is_known and self._waiting[address] >= self._lookups_each_address:
            detail = f"{self._lookups_each_address} tokens from {address or 'this address'} are being looked up already"
            raise LimitExceeded(detail, retry_after_ms=RETRY_AFTER_MS)
        is_full = not is_known and len(self._asking) >= LOOKUPS_WAITING_MAX
        if is_full or self._monotonic() < self._rest_until:
            raise StoreUnavailable("tokens cannot be looked up now", retry_after_ms=RETRY_AFTER_MS)
        self._waiting[address] += 1
        asking = self._asking[digest] = asyncio.create_task(self._look_up(secret, digest, address))
        # The callers may be gone when the lookup fails, and asyncio reports an exception that is never retrieved.
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return asking

    async def _look_up(self, secret: str, digest: bytes, address: str) -> Principal | None:
        try:
            async with self._lookups, asyncio.timeout(PATIENCE_S):
                found = await self._tokens.find(secret)
        except (StoreUnavailable, TimeoutError) as error:
            self._rest_until = self._monotonic() + STORE_REST_S
            raise StoreUnavailable(str(error) or "the store hangs", retry_after_ms=RETRY_AFTER_MS) from error
        finally:
            del self._asking[digest]
            self._waiting -= Counter([address])
        self._remember(digest, found)
        return found

    def _remember(self, digest: bytes, found: Principal | None) -> None:
        until = self._monotonic() + self._cache_s
        self._known.pop(digest, None)
        self._unknown_until.pop(digest, None)
        if found is None:
            _add(self._unknown_until, digest, until)
        else:
            _add(self._known, digest, _Known(found, until))


def _add(table: dict[bytes, T], digest: bytes, value: T) -> None:
    """Add an entry; a full table drops its oldest."""
    if len(table) >= TOKENS_MAX:
        del table[next(iter(table))]
    table[digest] = value


def check(principal: Principal, call: Call, group: str | None) -> None:
    """Let a caller pass whose role may make the call. A call that is not served passes too: it is refused later.

    Raises:
        Forbidden: when the caller may not make the call, or not on this group (403).
    """
    if call.roles is None:
        return
    if principal.role not in call.roles:
        wanted = " or ".join(sorted(call.roles))
        raise Forbidden(f"{principal.name} has the role {principal.role}; this call needs {wanted}")
    if principal.group is not None and group != principal.group and call.path not in _OF_NO_GROUP:
        raise Forbidden(f"{principal.name} may make this call on group {principal.group} only")


def check_local(headers: Mapping[bytes, bytes], peer: str) -> None:
    """Admit a request from this machine, when tokens are off; ``peer`` is the other end of its connection.

    Any web page can make a visitor's browser send requests here. Such a request carries the page's site as Origin, or,
    with DNS rebinding, as Host.

    Raises:
        Forbidden: when peer, host or origin is somewhere else (403).
    """
    if not _is_local_address(peer):
        raise Forbidden(f"without tokens (BATONPASS_AUTH=off) only this machine is served; this came from {peer!r}")
    named = {"Host": b"//" + headers.get(b"host", b""), "Origin": headers.get(b"origin", b"//localhost")}
    for name, value in named.items():
        if not _is_local(value.decode("latin-1")):
            said = headers.get(name.lower().encode(), b"").decode("latin-1")[:100]
            detail = f"without tokens (BATONPASS_AUTH=off) only this machine is served; {name} is {said!r}"
            raise Forbidden(detail)


def _is_local(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return host == "localhost" or _is_local_address(host)


def _is_local_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _secret(authorization: bytes | None) -> str:
    if authorization is None:
        raise Unauthenticated("this call needs a token: Authorization: Bearer ...")
    if authorization[: len(_BEARER)].lower() != _BEARER:
        raise Unauthenticated("the Authorization header is not of the form: Bearer ...")
    return _after_scheme(authorization)


def _after_scheme(authorization: bytes) -> str:
    return authorization[len(_BEARER) :].strip().decode("latin-1")
