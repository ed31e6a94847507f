"""What the composition root promises about the socket that it serves on."""

import socket

import pytest

from batonpass.bootstrap import bind


def test_small_answers_are_not_held_back() -> None:
    """Nagle's algorithm is off, and the event loop can tell that the socket is TCP."""
    with bind("127.0.0.1", 0) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        assert listener.proto == socket.IPPROTO_TCP


def test_an_address_is_bound_once() -> None:
    """A port that somebody listens on is refused, and the refused socket is closed."""
    with bind("127.0.0.1", 0) as listener:
        listener.listen()
        with pytest.raises(OSError, match="in use"):
            bind("127.0.0.1", listener.getsockname()[1])
