"""Sockets to listen on: bound as our servers need them, and the URL that they are reached under."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
from ipaddress import ip_address
from typing import Final

UNREAD_S: Final = 60.0

SPARE_FILES: Final = 256
"""How many files and sockets a server may need beside its connections: of the database, of Kafka, of libraries."""


SERVER_PORTS: Final = range(20_000, 32_000)
"""Below the ports of outgoing connections: those begin at 32,768 on Linux, and at 49,152 elsewhere."""


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address; port 0 is any free one.

    Raises:
        OSError: when the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without the protocol's name the event loop does not know the socket for TCP and leaves Nagle's algorithm on, which
    # holds the body of every small answer back for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def room_for(connections: int) -> int:
    """Return how many of these connections fit in the system's limit on this process's open files, at least one.

    The soft limit on open files is raised for them, as far as the hard one allows. A server that accepts more than fit
    cannot even say that it is full.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # Some systems have a lower limit than the one that they report.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    return connections if soft == resource.RLIM_INFINITY else max(1, min(connections, soft - SPARE_FILES))


def end_unread(listener: socket.socket, after_s: float) -> None:
    """Have connections of a listening socket end if the client reads nothing of an answer for ``after_s`` seconds.

    The kernel does it (TCP_USER_TIMEOUT). Where there is no such option, as on macOS, it does not happen.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(after_s * 1_000))


def url_of(listener: socket.socket, *, is_tls: bool) -> str:
    """Return the base URL that a bound socket is reached under, from this machine at least."""
    host, port = listener.getsockname()[:2]
    return _url(host, port, is_tls=is_tls)


def advertised_url_of(listener: socket.socket, *, is_tls: bool) -> str:
    """Return the base URL that other machines most likely reach a bound socket under.

    For a socket that listens on every address (0.0.0.0, ::), that is the address of this machine's name, as in a
    container, or the name itself if its address is a loopback address or unknown.
    """
    host, port = listener.getsockname()[:2]
    if ip_address(host).is_unspecified:
        name = socket.gethostname()
        try:
            found = str(socket.getaddrinfo(name, port, listener.family, socket.SOCK_STREAM)[0][4][0])
        except OSError:
            found = name
        host = name if found == name or ip_address(found).is_loopback else found
    return _url(host, port, is_tls=is_tls)


def _url(host: str, port: int, *, is_tls: bool) -> str:
    scheme = "https" if is_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def free_port(wanted: int = 0) -> int:
    """Return a port of this machine that no process listens on now: the wanted one if it is free, else any.

    It is not among the ports of outgoing connections: a client that connects while the server is down could get the
    server's own port, connect to itself, and keep the server from coming back.
    """
    for port in filter(None, (wanted, *random.SystemRandom().sample(SERVER_PORTS, 20))):
        with socket.socket() as probe:
            # As servers do: connections to the last server on the port that have not quite ended do not matter.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return int(probe.getsockname()[1])
    raise OSError("no port of this machine is free")
