"""What the composition root promises: the socket that it serves on, its settings, and what it writes down."""

import socket

import pytest
from pydantic import ValidationError

from batonpass.settings import Settings
from batonpass.sockets import bind


def test_small_answers_are_not_held_back() -> None:
    """Nagle's algorithm is off, and the event loop can tell that the socket is TCP."""
    with bind("127.0.0.1", 0) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        assert listener.proto == socket.IPPROTO_TCP


def test_an_address_is_bound_once() -> None:
    with bind("127.0.0.1", 0) as listener:
        listener.listen()
        with pytest.raises(OSError, match="in use"):
            bind("127.0.0.1", listener.getsockname()[1])


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATONPASS_PORT", "9000")
    assert (Settings().port, Settings(port=1).port, Settings().host) == (9000, 1, "127.0.0.1")


@pytest.mark.parametrize(("name", "value"), [("PORT", "65536"), ("BODY_BYTES_MAX", "10"), ("CHECK_LAWS", "perhaps")])
def test_a_setting_out_of_its_range_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"BATONPASS_{name}", value)
    with pytest.raises(ValidationError, match=name.lower()):
        Settings()
