"""Binding the address that a server listens on."""

from __future__ import annotations

import socket

from batonpass.cli.exits import Exit, Failure
from batonpass.sockets import bind


def bound(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address; port 0 is any free one.

    Raises:
        Failure: when the address is not available.
    """
    try:
        return bind(host, port)
    except OSError as error:
        raise busy(host, port, error) from None


def busy(host: str, port: int, error: OSError) -> Failure:
    """Return the failure for an address that is not available."""
    return Failure(
        Exit.REFUSED,
        f"cannot listen on {host}:{port}: {error.strerror or error}.",
        todo="Choose another port with --port N, or any free one with --port 0.",
    )
