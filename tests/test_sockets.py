"""Under which URL a socket is reached, by this machine and by others."""

import errno
import os
import resource
import socket
import subprocess
import sys
from unittest.mock import Mock

import pytest

from batonpass.sockets import (
    CONNECTIONS_MIN,
    SPARE_FILES,
    _has_ipv6,
    advertised_url_of,
    bind,
    bind_all,
    room_for,
    url_of,
)


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
        ("::", "10.1.2.3", "http://10.1.2.3:{}"),
    ],
)
def test_who_listens_everywhere_is_reached_under_one_address(
    monkeypatch: pytest.MonkeyPatch, host: str, address: str | None, reached: str
) -> None:
    """0.0.0.0 is no address that another machine could connect to."""
    # Not every machine that runs this has IPv6.
    listener = Mock(spec=socket.socket, family=socket.AF_INET, **{"getsockname.return_value": (host, 8420)})
    resolving(monkeypatch, address)
    assert advertised_url_of(listener, is_tls=False) == reached.format(8420)
    assert advertised_url_of(listener, is_tls=True) == reached.format(8420).replace("http:", "https:")


def test_a_bound_socket_says_where_it_is() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert url_of(listener, is_tls=True) == advertised_url_of(listener, is_tls=True) == f"https://127.0.0.1:{port}"


def test_a_server_has_no_more_connections_than_the_system_lets_it_open() -> None:
    """The soft limit is raised up to the hard one; where that is too low there are fewer connections."""
    program = (
        "import resource, sys; from batonpass.sockets import room_for; soft, hard = map(int, sys.argv[1:3]);"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard));"
        "print(room_for(int(sys.argv[3])), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    for soft, hard, wanted, fit, after in (
        (300, 2_000, 1_000, 1_000, 1_000 + SPARE_FILES),
        (300, 600, 1_000, 600 - SPARE_FILES, 600),
        (1_500, 2_000, 1_000, 1_000, 1_500),
        (266, 266, 1_000, 10, 266),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, str(soft), str(hard), str(wanted)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [str(fit), str(after)]


@pytest.mark.parametrize("files", [64, 200, SPARE_FILES, SPARE_FILES + CONNECTIONS_MIN - 1])
def test_with_too_few_files_nothing_starts(files: int) -> None:
    """One connection, or none, would look like a coordinator that is up and answers nobody."""
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}));"
    program = "import sys; sys.argv = ['batonpass', *sys.argv[1:]]; from batonpass.__main__ import main; main()"
    for command in (["up", "--no-demo", "--data", "/nowhere/at/all"], ["serve"]):
        done = subprocess.run(
            [sys.executable, "-c", limited + program, *command],
            env=os.environ | {"BATONPASS_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert f"may open {files} files, and needs {SPARE_FILES + CONNECTIONS_MIN} at least" in done.stderr
        assert "Traceback" not in done.stderr


def test_every_address_is_of_both_families(monkeypatch: pytest.MonkeyPatch) -> None:
    with bind("::", 0) as listener:
        port = listener.getsockname()[1]
        listener.listen()
        socket.create_connection(("127.0.0.1", port)).close()
    # A kernel may have no IPv6.
    monkeypatch.setattr("batonpass.sockets._has_ipv6", lambda: False)
    with bind("::", 0) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"  # noqa: S104 - what is tested
        listener.listen()
        socket.create_connection(("127.0.0.1", listener.getsockname()[1])).close()


def test_a_system_that_refuses_a_higher_limit_is_taken_at_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without a limit grants what is asked for."""
    monkeypatch.setattr(resource, "setrlimit", Mock(side_effect=ValueError))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_000, resource.RLIM_INFINITY))
    assert room_for(5_000) == 1_000 - SPARE_FILES
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert room_for(5_000) == 5_000


def test_a_name_is_listened_on_at_every_address_that_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """All on one port; an address that this machine does not have is left out, unless there is no other one."""
    stands_for = ["192.0.2.1", "127.0.0.2", "127.0.0.1"]

    def found(host: str, port: int, **_: object) -> list[object]:
        assert host == "coordinator"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in stands_for]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    first, second = bind_all("coordinator", 0)
    with first, second:
        places = [one.getsockname() for one in (first, second)]
        assert places == [("127.0.0.2", places[0][1]), ("127.0.0.1", places[0][1])]
        first.listen()
        second.listen()
        with pytest.raises(OSError, match="in use"):
            bind_all("coordinator", places[0][1])
    stands_for[1:] = []
    with pytest.raises(OSError, match="assign"):
        bind_all("coordinator", 0)


def test_a_port_that_is_free_of_one_address_and_taken_of_another_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = [OSError(errno.EADDRINUSE, "taken")]

    def bind_once_taken(address: str, port: int) -> socket.socket:
        if port and taken:
            raise taken.pop()
        return bind(address, port)

    monkeypatch.setattr("batonpass.sockets.bind", bind_once_taken)
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 0)) for one in ("127.0.0.1", "127.0.0.2")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
    first, second = bind_all("coordinator", 0)
    with first, second:
        assert first.getsockname()[1] == second.getsockname()[1]
    assert not taken


def test_a_name_of_both_families_is_listened_on_by_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPv4 comes first, and with it the URL that is shown; a machine without IPv6 has no other."""
    both = {socket.AF_INET6: "::1", socket.AF_INET: "127.0.0.1"}
    found = [(family, socket.SOCK_STREAM, 6, "", (address, 0)) for family, address in both.items()]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    listeners = bind_all("coordinator", 0)
    families = [socket.AF_INET, socket.AF_INET6] if _has_ipv6() else [socket.AF_INET]
    assert [one.family for one in listeners] == families
    assert len({one.getsockname()[1] for one in listeners}) == 1
    for one in listeners:
        one.close()
