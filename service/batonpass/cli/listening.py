"""What servers have in common as commands: the address that they listen on, room for connections, and their end."""

import errno
import os
import signal
import socket

from batonpass.cli.exits import Exit, Failure, failing_as
from batonpass.sockets import TooFewFiles, bind_all, room_for


def bound(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of the host; port 0 is any free one.

    Raises:
        Failure: when the address is not available.
    """
    try:
        return bind_all(host, port)
    except OSError as error:
        is_of_port = error.errno in {errno.EADDRINUSE, errno.EACCES, errno.EPERM}
        raise Failure(
            Exit.REFUSED,
            f"cannot listen on {host}:{port}: {error.strerror or error}.",
            todo="Choose another port with --port N, or any free one with --port 0."
            if is_of_port
            else "Choose another address with --host; :: is every address of this machine.",
        ) from None


def end_in_order() -> None:
    """Let SIGTERM, and the end of the terminal, stop a server as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))


def require_room(connections: int) -> None:
    """Check that the system's limit on open files leaves room for connections, before anything is started.

    Raises:
        Failure: when it does not.
    """
    with failing_as(Exit.REFUSED, TooFewFiles):
        room_for(connections)
