"""Tokens for client credentials: fetched when they are needed, kept while they are good, and what is said of none."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.token_server import AS_SENT, CLIENT, SECRET, TokenServer

from batonpass.worker import tls_context
from batonpass.worker.client_credentials import ClientCredentials, NoToken


class Clock:
    """A clock that the test turns."""

    now_ms = 1_000_000

    def __call__(self) -> int:
        """Return the time."""
        return self.now_ms

    def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ms += int(seconds * 1_000)


@pytest.fixture
def server() -> Iterator[TokenServer]:
    """A token server that listens, and gives tokens for 100 s."""
    made = TokenServer(lifetime_s=100)
    with made.listening():
        yield made


@pytest.fixture
def clock() -> Clock:
    """A clock that stands."""
    return Clock()


@pytest.fixture
def credentials(server: TokenServer, clock: Clock) -> ClientCredentials:
    """Those of the client that the server knows."""
    return ClientCredentials(f"{server.url}/token", CLIENT, SECRET, scope="topics", clock=clock)


async def renewed(credentials: ClientCredentials) -> None:
    """Wait until nothing is being fetched."""
    if credentials._fetching is not None:
        await asyncio.wait([credentials._fetching])


async def test_all_wait_for_one_answer_and_no_secret_is_printed(
    server: TokenServer, credentials: ClientCredentials
) -> None:
    first, *others = await asyncio.gather(*(credentials() for _ in range(5)))
    assert others == [first] * 4
    assert server.asked == [
        {"grant_type": "client_credentials", "scope": "topics", "authorization": f"Basic {AS_SENT}"}
    ]
    assert SECRET not in repr(credentials)
    await ClientCredentials(server.url, CLIENT, SECRET)()
    assert "scope" not in server.asked[1]


async def test_a_token_is_kept_and_renewed_before_it_is_over(
    server: TokenServer, credentials: ClientCredentials, clock: Clock
) -> None:
    """After four fifths of its time the next one is fetched in the background."""
    first = await credentials()
    clock.pass_s(79)
    assert await credentials() == first
    assert len(server.asked) == 1
    clock.pass_s(2)
    assert await credentials() == first
    await renewed(credentials)
    second = await credentials()
    assert second != first
    # From when the second one was asked for.
    clock.pass_s(79)
    assert await credentials() == second
    assert len(server.asked) == 2
    # Nobody came meanwhile: there is none left that is good.
    clock.pass_s(17)
    assert await credentials() not in {first, second}


async def test_an_endpoint_that_is_away_is_not_felt_while_the_token_is_good(
    server: TokenServer, credentials: ClientCredentials, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The endpoint is asked once a second; the token is used to its end, and then it is an error."""
    first = await credentials()
    server.status = 503
    clock.pass_s(81)
    with caplog.at_level(logging.WARNING, logger="batonpass.worker"):
        for _ in range(3):
            assert await credentials() == first
            await renewed(credentials)
    assert len(server.asked) == 2
    assert "used for as long as it lasts" in caplog.text
    assert "it answered 503 (temporarily_unavailable)" in caplog.text
    clock.pass_s(15)
    for _ in range(3):
        with pytest.raises(NoToken, match="/token gave none: it answered 503"):
            await credentials()
    assert len(server.asked) == 3
    server.status = 200
    with pytest.raises(NoToken):
        await credentials()
    clock.pass_s(1)
    assert await credentials() != first


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ({"error": "none"}, "no access_token; check that it is a token endpoint"),
        ({"access_token": ""}, "no access_token"),
        ({"access_token": 7}, "no access_token"),
        ({"access_token": "t", "expires_in": 0}, "expired already"),
        ({"access_token": "t", "expires_in": "-5"}, "expired already"),
    ],
)
async def test_an_answer_without_a_good_token_is_an_error_that_says_why(
    says: dict[str, Any], message: str, server: TokenServer, credentials: ClientCredentials
) -> None:
    server.says = says
    with pytest.raises(NoToken, match=message):
        await credentials()


@pytest.mark.parametrize("given", [{}, {"expires_in": None}, {"expires_in": "soon"}])
async def test_a_token_of_unknown_lifetime_is_not_kept(
    given: dict[str, Any], server: TokenServer, credentials: ClientCredentials
) -> None:
    """When it is over cannot be known."""
    server.says = {"access_token": "t"} | given
    assert await credentials() == "t"
    assert await credentials() == "t"
    assert len(server.asked) == 2


async def test_a_refused_secret_is_read_again_for_the_next_try(
    server: TokenServer, clock: Clock, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text("old")
    credentials = ClientCredentials(server.url, CLIENT, file.read_text, clock=clock)
    message = "it answered 401 .invalid_client no client of that name and secret.; check the client's id and secret"
    with pytest.raises(NoToken, match=message):
        await credentials()
    file.write_text(SECRET)
    clock.pass_s(1)
    assert await credentials()
    file.unlink()
    clock.pass_s(100)
    with pytest.raises(NoToken, match="No such file"):
        await credentials()


async def test_an_endpoint_that_is_not_there_or_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoToken, match=r"http://127.0.0.1:1 gave none: All connection attempts failed"):
        await ClientCredentials("http://127.0.0.1:1", CLIENT, SECRET)()
    monkeypatch.setattr("batonpass.worker.client_credentials.TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NoToken, match="no answer within"):
            await ClientCredentials(url, CLIENT, SECRET)()


async def test_a_caller_that_gives_up_takes_nothing_from_the_others(
    server: TokenServer, credentials: ClientCredentials
) -> None:
    impatient, patient = asyncio.ensure_future(credentials()), asyncio.ensure_future(credentials())
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient
    assert len(server.asked) == 1


async def test_over_tls_the_endpoint_must_be_believed(tmp_path: Path) -> None:
    authority, server = trustme.CA(), TokenServer()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with server.listening(context):
        trusting = ClientCredentials(server.url, CLIENT, SECRET, tls=tls_context(tmp_path / "ca.pem"))
        assert await trusting()
        with pytest.raises(NoToken, match="CERTIFICATE_VERIFY_FAILED"):
            await ClientCredentials(server.url, CLIENT, SECRET)()
