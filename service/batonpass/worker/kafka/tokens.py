"""Tokens for OAUTHBEARER, as aiokafka asks for them, and what it does not hear: that a broker refuses one."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from typing import Any, Final

from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import AIOKafkaConnection, OAuthAuthenticator
from aiokafka.errors import KafkaConnectionError, SaslAuthenticationFailed

from batonpass.worker.kafka_login import Token

TIMEOUT_S: Final = 20.0
BEARER: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What a token may consist of (RFC 6750); with a line's end in it, say, it would end the login."""


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """Has aiokafka ask a function for tokens.

    Whatever goes wrong there is an error of the connection that was to be made, so that the client tries again.
    Anything else would end its work in the background for good.
    """

    def __init__(self, token: Token) -> None:
        self._token = token

    async def token(self) -> str:
        """Return a token.

        Raises:
            KafkaConnectionError: when there is none; the message says why.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S):
                given: object = await self._token()
        except Exception as error:
            why = str(error) or ("it took too long" if isinstance(error, TimeoutError) else repr(error))
            raise KafkaConnectionError(f"there is no token to log in with: {why}") from error
        if not isinstance(given, str) or not BEARER.fullmatch(given):
            raise KafkaConnectionError("there is no token to log in with: what the function returned is none")
        return given


class _HearsRefusals(OAuthAuthenticator):  # type: ignore[misc]  # the same
    """Ends the login when the broker answers a token with anything: that is its refusal (RFC 7628, section 3.2.3)."""

    _sent = ""

    async def step(self, payload: bytes | None) -> Any:
        """Return what is to be sent next; None: nothing more.

        Raises:
            SaslAuthenticationFailed: when the broker refused the token.
        """
        if payload:
            said = payload.decode(errors="replace")
            raise SaslAuthenticationFailed(f"it refused the token{_late(self._sent)}: {said}")
        return await super().step(payload)

    def _build_oauth_client_request(self, token: str, token_extensions: str) -> str:
        self._sent = token
        request: str = super()._build_oauth_client_request(token, token_extensions)
        return request


def _late(token: str) -> str:
    """Return in words that a token has expired, where it is one that says so (a JWT); brokers do not tell."""
    try:
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        late_s = time.time() - claims["exp"]
    except (IndexError, KeyError, TypeError, ValueError):
        return ""
    return f" (which expired {late_s:.0f} s ago)" if late_s > 0 else ""


def _authenticator(connection: AIOKafkaConnection) -> OAuthAuthenticator:
    return _HearsRefusals(sasl_oauth_token_provider=connection._sasl_oauth_token_provider)  # noqa: SLF001 - as it does


# aiokafka (0.14) takes the refusal for a success. What it asks next is answered with nothing, so that it knows of no
# broker from then on, and never tries again. It has no other way to be told (decision 0052).
AIOKafkaConnection.authenticator_oauth = _authenticator
