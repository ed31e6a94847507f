"""Bearer tokens by OAuth 2.0's client credentials (RFC 6749, section 4.4): a client gives its id and secret for one."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import httpx2 as httpx

from batonpass.http_clients import http_client, json_object, tls_context
from batonpass.worker.clock import Clock, system_clock

log = logging.getLogger("batonpass.worker")

TIMEOUT_S: Final = 10.0
RENEW_AT: Final = 0.8
"""The share of its lifetime after which a token is renewed in the background; meanwhile it stays in use."""

OVER_AT: Final = 0.95
"""The share of its lifetime after which a token is not used any more: a connection made with it is to last a while."""

AGAIN_MS: Final = 1_000
"""How long an endpoint that gave no token is not asked again."""

SAID_MAX: Final = 200


class NoToken(Exception):
    """There is no token; the message says why."""


class ClientCredentials:
    """Fetches tokens from an endpoint, and keeps each until shortly before it expires.

        token = await ClientCredentials("https://login.example/token", "orders", "secret")()

    It is called for each new connection. Calls at the same time share one request, and no call waits while a token is
    good. While the endpoint is away, the last token is used for as long as it lasts. A token without a lifetime
    (``expires_in``) is not kept.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        secret: str | Callable[[], str],
        *,
        scope: str | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Name the endpoint and the client; nothing is asked yet.

        ``secret`` may be a function, called each time, for a secret that is replaced now and then. ``tls`` has the
        authorities to trust for the endpoint (without it, this machine's).
        """
        self._url = url
        self._client_id = client_id
        self._secret = secret
        self._scope = scope
        self._tls = tls or tls_context()
        self._clock = clock or system_clock()
        self._fetching: asyncio.Task[None] | None = None
        self._token: str | NoToken = NoToken("none was asked for")
        self._fetch_at_ms = self._over_at_ms = 0

    def __repr__(self) -> str:
        return f"ClientCredentials({self._url!r}, {self._client_id!r})"

    async def __call__(self) -> str:
        """Return a token that has not expired.

        Raises:
            NoToken: when there is none.
        """
        now_ms = self._clock()
        if self._fetching is None and now_ms >= self._fetch_at_ms:
            # Begun later, whatever the loop's factory does: it forgets itself when it ends.
            self._fetching = asyncio.Task(self._fetch(), name="batonpass client credentials")
        if self._fetching is not None and now_ms >= self._over_at_ms:
            await asyncio.shield(self._fetching)
        if isinstance(self._token, NoToken):
            raise NoToken(*self._token.args)
        return self._token

    async def _fetch(self) -> None:
        now_ms = self._clock()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                token, lasts_ms = await self._ask()
        except (NoToken, httpx.HTTPError, OSError, ValueError) as error:
            # A time-out is an OSError without a message.
            why = NoToken(f"{self._url} gave none: {str(error) or f'no answer within {TIMEOUT_S:.0f} s'}")
            self._fetch_at_ms = self._clock() + AGAIN_MS
            if self._clock() >= self._over_at_ms:
                self._token = why
            else:
                log.warning("a token could not be renewed, and is used for as long as it lasts: %s", why)
        else:
            self._token = token
            self._fetch_at_ms, self._over_at_ms = now_ms + int(lasts_ms * RENEW_AT), now_ms + int(lasts_ms * OVER_AT)
        finally:
            self._fetching = None

    async def _ask(self) -> tuple[str, float]:
        """Return a token, and for how many milliseconds it is good from the time of the request."""
        secret = self._secret() if callable(self._secret) else self._secret
        # Both are encoded before they become a header (RFC 6749, section 2.3.1).
        login = httpx.BasicAuth(quote(self._client_id, safe=""), quote(secret, safe=""))
        form = {"grant_type": "client_credentials"} | ({"scope": self._scope} if self._scope else {})
        # The caller limits the time of the whole call.
        async with http_client([self._url], verify=self._tls, timeout=None) as client:
            answer = await client.post(self._url, data=form, auth=login, headers={"accept": "application/json"})
        said = json_object(answer)
        if answer.status_code != httpx.codes.OK:
            words = " ".join(str(said[name]) for name in ("error", "error_description") if name in said)[:SAID_MAX]
            advice = "; check the client's id and secret" if answer.status_code in {400, 401, 403} else ""
            raise NoToken(f"it answered {answer.status_code}{f' ({words})' if words else ''}{advice}")
        token = said.get("access_token")
        if not isinstance(token, str) or not token:
            raise NoToken("its answer has no access_token; check that it is a token endpoint")
        try:
            lasts_s = float(said["expires_in"])
        except (KeyError, TypeError, ValueError):
            return token, 0
        if lasts_s <= 0:
            raise NoToken(f"its token has expired already (expires_in is {said['expires_in']})")
        return token, lasts_s * 1_000
