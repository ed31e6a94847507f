"""Sockets to listen on: bound as our servers need them, and the URL that they are reached under."""

import contextlib
import errno
import random
import resource
import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

UNREAD_S: Final = 60.0

AHEAD_BYTES: Final = 16_384
"""How much of an answer a connection may hold that is not sent yet, in the kernel and in the process, uncounted."""

SPARE_FILES: Final = 256
"""How many files and sockets a server may need beside its connections: of the database, of Kafka, of libraries."""

CONNECTIONS_MIN: Final = 10
"""The fewest connections with which a coordinator is of use, and the least that its setting may be."""

EVERY_ADDRESS: Final = "::"
PORT_ATTEMPTS: Final = 5
_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
SERVER_PORTS: Final = range(20_000, 32_000)
"""Below the ports of outgoing connections: those begin at 32,768 on Linux, and at 49,152 elsewhere."""


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address; port 0 is any free one.

    ``::`` is every address, those of IPv4 too, also where there is no IPv6.

    Raises:
        OSError: when the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if host == EVERY_ADDRESS and not _has_ipv6():
        host, family = "0.0.0.0", socket.AF_INET  # noqa: S104 - that is what was asked for
    # Without the protocol's name the event loop does not know the socket for TCP and leaves Nagle's algorithm on, which
    # holds the body of every small answer back for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == EVERY_ADDRESS:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def bind_all(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address that a name stands for, IPv4 first, all on one port; port 0 is any free one.

    An address that this machine does not have is left out, such as that of IPv6 where it is turned off.

    Raises:
        OSError: when one of the others cannot be bound, or there is none.
    """
    found = sorted(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), key=lambda one: one[0] != socket.AF_INET)
    addresses = dict.fromkeys(str(place[0]) for *_, place in found)
    attempts = PORT_ATTEMPTS
    while True:
        attempts -= 1
        try:
            return _bind_each(addresses, port)
        except OSError as error:
            # A port that is free of one address may be taken of another.
            if port or error.errno != errno.EADDRINUSE or not attempts:
                raise


def _bind_each(addresses: Iterable[str], port: int) -> list[socket.socket]:
    listeners: list[socket.socket] = []
    not_here = OSError("it stands for no address")
    with contextlib.ExitStack() as unless_all:
        for address in addresses:
            try:
                listener = bind(address, listeners[0].getsockname()[1] if listeners else port)
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                not_here = error
            else:
                listeners.append(unless_all.enter_context(listener))
        if not listeners:
            raise not_here
        unless_all.pop_all()
    return listeners


def _has_ipv6() -> bool:
    """Whether this machine speaks IPv6, which can be turned off in its kernel."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


class TooFewFiles(OSError):
    """The system lets this process open so few files that it could not work; the message says what to do."""


def room_for(connections: int) -> int:
    """Return how many of these connections fit in the system's limit on this process's open files.

    The soft limit on open files is raised for them, as far as the hard one allows. A server that accepts more than fit
    cannot even say that it is full.

    Raises:
        TooFewFiles: when fewer than ``CONNECTIONS_MIN`` fit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # Some systems have a lower limit than the one that they report.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if soft == resource.RLIM_INFINITY:
        return connections
    if soft - SPARE_FILES < CONNECTIONS_MIN:
        least = SPARE_FILES + CONNECTIONS_MIN
        raise TooFewFiles(
            f"this process may open {soft} files, and needs {least} at least: raise the limit (ulimit -Hn, LimitNOFILE)"
        )
    return min(connections, soft - SPARE_FILES)


def bound_unread(listener: socket.socket, after_s: float) -> None:
    """Have connections of a listening socket end if the client reads nothing of an answer for ``after_s`` seconds.

    The kernel does it (TCP_USER_TIMEOUT). Where there is no such option, as on macOS, it does not happen. A client
    whose buffer is smaller than a packet may be (64 kB) has to read the whole answer in that time.
    Nor does the kernel take much more of an answer than the client reads, which would be megabytes for each connection.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(after_s * 1_000))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, AHEAD_BYTES)


def url_of(listener: socket.socket, *, is_tls: bool) -> str:
    """Return the base URL that a bound socket is reached under, from this machine at least."""
    return _url(*listener.getsockname()[:2], is_tls=is_tls)


def advertised_url_of(listener: socket.socket, *, is_tls: bool) -> str:
    """Return the base URL that other machines most likely reach a bound socket under.

    For a socket that listens on every address (0.0.0.0, ::), that is the address of this machine's name, as in a
    container, or the name itself if its address is a loopback address or unknown.
    """
    host, port = listener.getsockname()[:2]
    if ip_address(host).is_unspecified:
        name = socket.gethostname()
        family = listener.family if host != EVERY_ADDRESS else socket.AF_UNSPEC
        try:
            found = str(socket.getaddrinfo(name, port, family, socket.SOCK_STREAM)[0][4][0])
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
    raise OSError(errno.EADDRNOTAVAIL, "no port of 127.0.0.1 can be had")
