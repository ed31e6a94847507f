"""How a process finds Kafka and logs in to it, by the ``BATONPASS_KAFKA_`` variables, and which of these go together.

The same rules hold for workers and coordinators. Nothing here needs Kafka's library, so variables that make no sense
together are refused before anything is started.
"""

import os
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, TypedDict

import httpx2 as httpx

from batonpass.http_clients import tls_context
from batonpass.worker.client_credentials import ClientCredentials

Token = Callable[[], Awaitable[str]]
"""Returns a bearer token that has not expired; it is called for each new connection."""

OAUTHBEARER: Final = "OAUTHBEARER"
WITH_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The mechanisms that send a user's name and password."""

_BROKER: Final = r"\s*([^\s:/,\[\]]+|\[[^\s/,\[\]]+\])(:\d{1,5})?\s*"
BROKERS: Final = re.compile(f"{_BROKER}(,{_BROKER})*")
"""Names or addresses with or without a port, separated by commas; an address of IPv6 in brackets."""

FILES: Final = ("ca_file", "cert_file", "key_file", "oauth_client_secret_file", "oauth_ca_file")


class Login(TypedDict):
    """The arguments of a `KafkaConnection` that concern the login."""

    tls: ssl.SSLContext | None
    sasl_mechanism: str | None
    username: str | None
    password: str | None
    token: Token | None


def login_of(named: Mapping[str, str], *, token: Token | None = None) -> Login:
    """Return how to log in, from variables by lower-case names without ``BATONPASS_KAFKA_``.

    ``token`` gives the tokens for OAUTHBEARER, instead of an endpoint that the variables name.

    Raises:
        ValueError: naming the variables that are wrong, and what to do.
    """
    if "bootstrap" in named and not BROKERS.fullmatch(named["bootstrap"]):
        raise ValueError(
            f"{_var('bootstrap')} names brokers as kafka-1:9092, separated by commas, an IPv6 address in brackets"
        )
    for name in FILES:
        if name in named and not (Path(named[name]).is_file() and os.access(named[name], os.R_OK)):
            raise ValueError(f"{_var(name)} names {named[name]}, which cannot be read")
    mechanism = named.get("sasl_mechanism")
    _check_mechanism(mechanism, named)
    if token is not None and (given := _oauth(named)):
        raise ValueError(f"{_vars(given)} with a token function: leave one of them out")
    if mechanism == OAUTHBEARER and token is None:
        token = _client_credentials(named)
    return Login(
        tls=_tls(named),
        sasl_mechanism=mechanism,
        username=named.get("username"),
        password=named.get("password"),
        token=token,
    )


def _var(name: str) -> str:
    return f"BATONPASS_KAFKA_{name.upper()}"


def _vars(names: list[str]) -> str:
    return " and ".join(map(_var, names))


def _oauth(named: Mapping[str, str]) -> list[str]:
    return [name for name in named if name.startswith("oauth_")]


def _check_mechanism(mechanism: str | None, named: Mapping[str, str]) -> None:
    if mechanism not in (None, OAUTHBEARER, *WITH_PASSWORD):
        known = ", ".join((*WITH_PASSWORD, OAUTHBEARER))
        raise ValueError(f"{_var('sasl_mechanism')} is {mechanism}, which is none of {known}")
    given = [name for name in ("username", "password") if name in named]
    if mechanism in WITH_PASSWORD and len(given) < 2:
        raise ValueError(f"{_var('sasl_mechanism')}={mechanism} needs {_vars(['username', 'password'])}")
    if mechanism not in WITH_PASSWORD and given:
        raise ValueError(
            f"{_vars(given)} without {_var('sasl_mechanism')}={' or '.join(WITH_PASSWORD)}: say which, or leave it out. "
            "Who shows a certificate or a token is known by that"
        )
    given = _oauth(named)
    if mechanism != OAUTHBEARER and given:
        raise ValueError(f"{_vars(given)} without {_var('sasl_mechanism')}={OAUTHBEARER}: set it, or leave it out")


def _tls(named: Mapping[str, str]) -> ssl.SSLContext | None:
    given = [name for name in ("key_file", "key_password") if name in named]
    if given and "cert_file" not in named:
        raise ValueError(f"{_vars(given)} without {_var('cert_file')}: name the certificate that the key is of")
    wanted = named.get("tls", "").lower() in {"1", "on", "true", "yes"}
    if not (wanted or {"ca_file", "cert_file"} & named.keys()):
        return None
    trusted = _with_authorities("ca_file", named)
    if "cert_file" not in named:
        return trusted
    where = " and ".join(_var(name) for name in ("cert_file", "key_file") if name in named)
    try:
        return tls_context(named.get("ca_file"), named["cert_file"], named.get("key_file"), named.get("key_password"))
    except ValueError as error:
        raise ValueError(f"{error}: set {_var('key_password')}") from None
    except ssl.SSLError as error:
        hint = "a certificate and its private key in PEM"
        if "key_file" not in named:
            hint += f" (a key of its own file is named by {_var('key_file')})"
        if "key_password" in named:
            hint += f", or {_var('key_password')} is wrong"
        raise ValueError(f"{where}: {error.reason or error}; not {hint}") from None


def _with_authorities(name: str, named: Mapping[str, str]) -> ssl.SSLContext:
    try:
        return tls_context(named.get(name))
    except ssl.SSLError as error:
        raise ValueError(f"{_var(name)} names {named[name]}, which holds no certificates in PEM: {error}") from None


def _client_credentials(named: Mapping[str, str]) -> ClientCredentials:
    missing = [name for name in ("oauth_token_url", "oauth_client_id") if name not in named]
    secrets = [name for name in ("oauth_client_secret", "oauth_client_secret_file") if name in named]
    if not secrets:
        missing.append("oauth_client_secret")
    if missing:
        raise ValueError(f"{_var('sasl_mechanism')}={OAUTHBEARER} needs {_vars(missing)}")
    if len(secrets) > 1:
        raise ValueError(f"{_vars(secrets)}: set one of them")
    url = named["oauth_token_url"]
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        parts = httpx.URL("")
    if parts.scheme not in {"http", "https"} or not parts.host:
        raise ValueError(f"{_var('oauth_token_url')} is {url}, which is not a URL such as https://login.example/token")
    # The secret is read each time, because such files are replaced while the process runs.
    return ClientCredentials(
        url,
        named["oauth_client_id"],
        named.get("oauth_client_secret") or (lambda: Path(named["oauth_client_secret_file"]).read_text().strip()),
        scope=named.get("oauth_scope"),
        tls=_with_authorities("oauth_ca_file", named),
    )
