"""Under which URL a socket is reached, by this machine and by others."""

from __future__ import annotations

import socket
from unittest.mock import Mock

import pytest

from batonpass.sockets import advertised_url_of, bind, url_of


def resolving(monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    """Let the machine be called `pod-1`, and that name stand for an address, or for none."""

    def found(_host: str, port: int, *_more: object) -> list[object]:
        if address is None:
            raise socket.gaierror("unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "gethostname", lambda: "pod-1")
    monkeypatch.setattr(socket, "getaddrinfo", found)


@pytest.mark.parametrize(
    ("host", "address", "reached"),
    [
        ("127.0.0.1", "10.1.2.3", "http://127.0.0.1:{}"),
        ("0.0.0.0", "10.1.2.3", "http://10.1.2.3:{}"),  # noqa: S104 - what is tested
        ("0.0.0.0", "127.0.1.1", "http://pod-1:{}"),  # noqa: S104
        ("0.0.0.0", None, "http://pod-1:{}"),  # noqa: S104
        ("::", "fd00::7", "http://[fd00::7]:{}"),
    ],
)
def test_who_listens_everywhere_is_reached_under_one_address(
    monkeypatch: pytest.MonkeyPatch, host: str, address: str | None, reached: str
) -> None:
    """0.0.0.0 is no address that anybody else could connect to."""
    # Not every machine that runs this has IPv6.
    listener = Mock(spec=socket.socket, family=socket.AF_INET, **{"getsockname.return_value": (host, 8420)})
    resolving(monkeypatch, address)
    assert advertised_url_of(listener, is_tls=False) == reached.format(8420)
    assert advertised_url_of(listener, is_tls=True) == reached.format(8420).replace("http:", "https:")


def test_a_bound_socket_says_where_it_is() -> None:
    """Port 0 is any free one, and the URL has that."""
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert url_of(listener, is_tls=True) == advertised_url_of(listener, is_tls=True) == f"https://127.0.0.1:{port}"
