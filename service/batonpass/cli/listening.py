"""What servers have in common as commands: the address that they listen on, room for connections, and their end."""

import errno
import os
import signal
import socket
from typing import Final

from batonpass.cli.exits import Exit, Failure, failing_as
from batonpass.sockets import TooFewFiles, bind_all, room_for

PORT_ADVICE: Final = "Choose another port with --port N, or any free one with --port 0."
HOST_ADVICE: Final = "Choose another address with --host; :: is every address of this machine."


def bound(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of the host; port 0 is any free one.

    Raises:
        Failure: when the address is not available.
    """
    try:
        return bind_all(host, port)
    except OSError as error:
        raise busy(host, port, error) from None


def end_in_order() -> None:
    """Let SIGTERM, and the end of the terminal, stop a server as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))


def busy(host: str, port: int, error: OSError, todo: str = PORT_ADVICE) -> Failure:
    """Return the failure for an address that is not available. ``todo`` is what to do where its port is taken."""
    is_of_port = error.errno in {errno.EADDRINUSE, errno.EACCES, errno.EPERM}
    return Failure(
        Exit.REFUSED,
        f"cannot listen on {host}:{port}: {error.strerror or error}.",
        todo=todo if is_of_port else HOST_ADVICE,
    )


def require_room(connections: int) -> None:
    """Check that the system's limit on open files leaves room for connections, before anything is started.

    Raises:
        Failure: when it does not.
    """
    with failing_as(Exit.REFUSED, TooFewFiles):
        room_for(connections)
