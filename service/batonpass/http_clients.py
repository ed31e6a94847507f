"""The one place where clients of HTTP are made, so that all of them have one rule for proxies.

What is on this machine is reached directly. Everything else is reached as the environment says: HTTP_PROXY, HTTPS_PROXY
and ALL_PROXY, in either case of letters, except the hosts of NO_PROXY: names with all that is below them, addresses
(IPv6 with brackets or without), networks (10.0.0.0/8), host:port, and * for all.
"""

import contextlib
import errno
import logging
import os
import re
import ssl
import threading
from collections.abc import Callable, Sequence
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final, cast
from urllib.request import getproxies, proxy_bypass

import httpx2 as httpx

log = logging.getLogger("batonpass.tls")
LOG: Final = logging.getLogger("httpx2")
PORT_MAX: Final = 65_535
SCHEMES: Final = frozenset({"http", "https", "socks5", "socks5h"})


def http_client(
    urls: Sequence[str] = (),
    *,
    verify: ssl.SSLContext | bool = True,
    transport: httpx.AsyncBaseTransport | None = None,
    limits: httpx.Limits | None = None,
    **more: Any,
) -> httpx.AsyncClient:
    """Return a client for these base URLs; every other URL it reaches without a proxy.

    ``transport`` takes the place of the network. ``more`` are options of the library's.

    Raises:
        ValueError: when the environment names a proxy for one of them, or authorities, that cannot be used.
    """
    if LOG.level == logging.NOTSET and not LOG.isEnabledFor(logging.DEBUG):
        # The library writes a line for each request at INFO, and a worker sends one for each heartbeat.
        LOG.setLevel(logging.WARNING)
    bounds = limits or httpx.Limits(max_connections=100, max_keepalive_connections=20)
    # Callers with different tokens share a client: what a proxy has one of them show is not another's to show.
    more |= {"limits": bounds, "trust_env": False, "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=()))}
    if transport is not None:
        return httpx.AsyncClient(transport=transport, **more)
    # Without the environment's proxies, the library would leave out its authorities too (SSL_CERT_FILE).
    trusted = authorities() if verify is True else verify
    proxies = {url: proxy for url in urls if (proxy := proxy_for(url))}
    mounts = {
        _place(url): httpx.AsyncHTTPTransport(proxy=proxy, verify=trusted, limits=bounds)
        for url, proxy in proxies.items()
    }
    return httpx.AsyncClient(verify=trusted, mounts=mounts, **more)


def json_object(answer: httpx.Response) -> dict[str, Any]:
    """Return the JSON object in an answer; empty where there is none."""
    try:
        said = answer.json()
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def authorities() -> ssl.SSLContext:
    """Return the authorities to trust: the environment's (SSL_CERT_FILE, SSL_CERT_DIR), else the system's.

    Raises:
        ValueError: naming the variable and the file, when they, or SSLKEYLOGFILE, cannot be used.
    """
    try:
        _check_files(os.environ.get("SSL_CERT_FILE"))
        return httpx.create_ssl_context()
    except OSError as error:  # ssl.SSLError is one.
        # A context of TLS also opens the file to which it is to write its keys.
        is_of_keys = error.filename is not None and error.filename == os.environ.get("SSLKEYLOGFILE")
        names = ["SSLKEYLOGFILE"] if is_of_keys else ["SSL_CERT_FILE", "SSL_CERT_DIR"]
        named = [f"{name}={os.environ[name]}" for name in names if os.environ.get(name)]
        where = " and ".join(named) or "the system's authorities"
        why = "it holds no certificates" if isinstance(error, ssl.SSLError) else error.strerror or error
        raise ValueError(f"{where} in the environment cannot be used: {why}") from None


def _check_files(*files: str | os.PathLike[str] | None) -> None:
    for file in files:
        if file and Path(file).exists() and not Path(file).is_file():
            raise OSError(errno.EINVAL, "it is not a file", str(file))


class RenewedContext(ssl.SSLContext):
    """A context of TLS that takes what its files hold again, before a connection, once one of them was replaced.

    Certificates last for days, and processes longer. What cannot be used leaves the last in place. Authorities are only
    added: one that is taken out of its file is trusted until the process ends.
    """

    _files: Sequence[Path]
    _take: Callable[[ssl.SSLContext], None]
    _taken: Sequence[tuple[int, int] | None]
    _alone: threading.Lock

    def keep(self, files: Sequence[Path], take: Callable[[ssl.SSLContext], None]) -> None:
        """Have a context take what is in the files by ``take``, now and whenever they were replaced."""
        self._files, self._take, self._taken, self._alone = files, take, [*map(_stamp, files)], threading.Lock()
        take(self)

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        # What every library calls for a new connection: some in the event loop, others in a thread.
        with self._alone:
            if (found := [*map(_stamp, self._files)]) != self._taken:
                self._taken = found
                try:
                    self._take(ssl.SSLContext(self.protocol))  # A key of another certificate would spoil this one.
                    self._take(self)
                except (OSError, ValueError) as error:
                    log.warning("%s cannot be used, the last is kept: %s", ", ".join(map(str, self._files)), error)
            return super().wrap_bio(*given, **named)


def _stamp(file: Path) -> tuple[int, int] | None:
    """Return what differs once a file was replaced; None if it is not there."""
    with contextlib.suppress(OSError):
        at = file.stat()
        return at.st_ino, at.st_mtime_ns
    return None


def tls_context(
    ca_file: str | os.PathLike[str] | None = None,
    cert_file: str | os.PathLike[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
    key_password: str | None = None,
    *,
    of_server: bool = False,
) -> ssl.SSLContext:
    """Return a context that trusts the authorities of ``ca_file`` (this machine's own without one).

    With ``cert_file`` this side shows that certificate. ``key_file`` has its key, if that is in another file, and
    ``key_password`` decrypts the key, if it is encrypted. Files that are replaced count from the next connection on. A
    server wants clients to show a certificate of these authorities; without ``ca_file``, none.

    Raises:
        OSError: when a file cannot be read, or is none: a pipe would be waited for without an end.
        ssl.SSLError: when one does not hold what it should, or the password is wrong.
        ValueError: when the key is encrypted and there is no password.
    """

    def password() -> str:
        # Without this the library would ask for a password at the terminal.
        if key_password is None:
            raise ValueError(f"the key in {key_file or cert_file} is encrypted, and there is no password for it")
        return key_password

    def take(context: ssl.SSLContext) -> None:
        _check_files(ca_file, cert_file, key_file)
        if ca_file is not None:
            context.load_verify_locations(ca_file)
        if cert_file is not None:
            context.load_cert_chain(cert_file, key_file, password)

    _check_files(ca_file)
    context = ssl.create_default_context(*([ssl.Purpose.CLIENT_AUTH] if of_server else []), cafile=ca_file)
    if ca_file is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    context.__class__ = RenewedContext
    cast("RenewedContext", context).keep([Path(one) for one in (ca_file, cert_file, key_file) if one is not None], take)
    return context


def url_of(text: str) -> httpx.URL | None:
    """Return the URL that a text is; None if it is none, or no connection can be made to its host and port."""
    try:
        url = httpx.URL(text)
        url.host.encode("idna")  # As the resolver does: no part of a name is empty, or longer than 63 characters.
    except (httpx.InvalidURL, ValueError):
        return None
    is_name = bool(url.host) and ("%" not in url.host or ":" in url.host) and not re.search(r"\s", text)
    # The library takes the digits of every script for those of a port.
    port = text.partition("://")[2].partition("/")[0].rpartition("@")[2].rpartition("]")[2].rpartition(":")[2]
    is_port = url.port is None or (0 <= url.port <= PORT_MAX and port.isascii())
    return url if is_name and is_port else None


def proxy_for(url: str) -> str | None:
    """Return the URL of the proxy by which a URL is reached; None: by none.

    Raises:
        ValueError: naming the variable, when this proxy cannot be used.
    """
    parsed, named = httpx.URL(url), getproxies()
    kind = next((one for one in (parsed.scheme, "all") if named.get(one)), None)
    if kind is None or is_here(parsed.host) or _is_left_out(parsed, named.get("no", "")):
        return None
    proxy = named[kind] if "://" in named[kind] else f"http://{named[kind]}"
    parts = url_of(proxy)
    # Its value is not told: it may have a password in it.
    if parts is None or parts.scheme not in SCHEMES:
        raise ValueError(f"{kind}_proxy in the environment is not the http, https or socks5 URL of a proxy")
    if parts.scheme.startswith("socks"):
        try:
            import socksio  # type: ignore[import-not-found] # noqa: F401, PLC0415 - few need it
        except ImportError:
            raise ValueError(
                f"{kind}_proxy in the environment names a SOCKS proxy, which needs the package socksio: install it, or "
                f"name {parsed.host} in NO_PROXY"
            ) from None
    return proxy


def by_proxy(url: str) -> str:
    """Return the words that name the proxy by which a URL is reached, without its password; empty without one."""
    proxy = proxy_for(url)
    return "" if proxy is None else f" by the proxy at {httpx.URL(proxy).netloc.decode()}"


def is_here(host: str) -> bool:
    """Whether a host of a URL is this machine."""
    with contextlib.suppress(ValueError):
        address = ip_address(host)
        return address.is_loopback or address.is_unspecified
    return host.lower() == "localhost" or host.lower().endswith(".localhost")


def _is_left_out(url: httpx.URL, no_proxy: str) -> bool:
    """Whether NO_PROXY has the host of a URL. Python has the rule for names; it knows no networks."""
    if proxy_bypass(url.netloc.decode()):
        return True
    with contextlib.suppress(ValueError):
        address = ip_address(url.host)
        for one in no_proxy.split(","):
            with contextlib.suppress(ValueError):
                if address in ip_network(one.strip().strip("[]"), strict=False):
                    return True
    return False


def _place(url: str) -> str:
    parsed = httpx.URL(url)
    return f"{parsed.scheme}://{parsed.netloc.decode()}"
