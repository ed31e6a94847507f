"""`batonpass serve` at its edge: TLS and client certificates, and an end in good order."""

import asyncio
import signal
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx2 as httpx
import pytest
import trustme
from tests.e2e.serving import BEARER, declare, serving
from tests.waiting import wait_until

AUTHORITY = trustme.CA()
STRANGER = trustme.CA()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files with a certificate of the server, its key, and the authority that made it."""
    folder = tmp_path_factory.mktemp("certificates")
    made = AUTHORITY.issue_cert("127.0.0.1", "localhost")
    paths = {name: folder / f"{name}.pem" for name in ("certfile", "keyfile", "ca")}
    made.cert_chain_pems[0].write_to_path(paths["certfile"])
    made.private_key_pem.write_to_path(paths["keyfile"])
    AUTHORITY.cert_pem.write_to_path(paths["ca"])
    return {name: str(path) for name, path in paths.items()}


def trusting(certificate: Path | None = None) -> ssl.SSLContext:
    """Return a context that trusts the authority, and shows a certificate if one is given."""
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


@pytest.mark.timeout(120)
async def test_a_coordinator_serves_tls_and_lets_in_only_clients_with_a_certificate(
    own_url: str, certificates: dict[str, str], tmp_path: Path
) -> None:
    await asyncio.to_thread(serve_tls, own_url, certificates, tmp_path)


def serve_tls(database_url: str, certificates: dict[str, str], folder: Path) -> None:
    """Do what the test above says."""
    ours, theirs = folder / "ours.pem", folder / "theirs.pem"
    AUTHORITY.issue_cert("worker").private_key_and_cert_chain_pem.write_to_path(ours)
    STRANGER.issue_cert("worker").private_key_and_cert_chain_pem.write_to_path(theirs)
    tls = {"tls_certfile": certificates["certfile"], "tls_keyfile": certificates["keyfile"]}
    with serving(database_url, **tls, tls_client_ca=certificates["ca"]) as served:
        assert served.url.startswith("https://")
        answer = wait_until(lambda: reached(served.url, trusting(ours)), within_s=20)
        assert answer.status_code == 200
        groups = httpx.get(f"{served.url}/v1/groups", verify=trusting(ours))
        assert groups.status_code == 401, "a certificate does not replace a token"
        for context in (trusting(), trusting(theirs)):
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{served.url}/livez", verify=context)
        with pytest.raises(httpx.ConnectError, match="certificate"):
            httpx.get(f"{served.url}/livez")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{served.url.replace('https', 'http')}/livez")


def reached(url: str, context: ssl.SSLContext) -> httpx.Response | None:
    """Return the answer of a coordinator that is ready; None until then."""
    answer = httpx.get(f"{url}/readyz", verify=context)
    return answer if answer.status_code == 200 else None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_it_ends_in_good_order(own_url: str, number: signal.Signals) -> None:
    """Told to stop, it says so at /readyz while it still serves, and answers the polls that wait with 204."""
    await asyncio.to_thread(end, own_url, number)


def end(database_url: str, number: signal.Signals) -> None:
    """Do what the test above says."""
    with serving(database_url, shutdown_delay_s="2") as served:
        declare(served, "orders")
        epoch = served.call("PUT", "/v1/groups/orders/members/m1", json={}).json()["member_epoch"]
        poll = f"{served.url}/v1/groups/orders/members/m1/assignment?after={epoch}&wait_ms=60000"
        statuses: list[int] = []
        waiting = threading.Thread(
            target=lambda: statuses.append(httpx.get(poll, headers=BEARER, timeout=60).status_code)
        )
        waiting.start()
        wait_until(lambda: "batonpass_polls_parked 1.0" in httpx.get(f"{served.url}/metrics").text, within_s=20)
        began = time.monotonic()
        served.process.send_signal(number)
        wait_until(lambda: httpx.get(f"{served.url}/readyz").status_code == 503, within_s=1.9)
        reasons = httpx.get(f"{served.url}/readyz").json()["reasons"]
        assert reasons == ["the coordinator is stopping"]
        beat = {"seq": 1, "member_epoch": epoch}
        assert served.call("POST", "/v1/groups/orders/members/m1/heartbeat", json=beat).status_code == 200
        served.process.wait(timeout=30)
        waiting.join(timeout=10)
        assert statuses == [204]
        assert 1.9 < time.monotonic() - began < 12
        assert served.process.stdout is not None
        assert not [line for line in served.lines() if line["level"] == "error"]


@pytest.mark.timeout(120)
async def test_the_log_of_a_process_is_json_with_ids(own_url: str) -> None:
    await asyncio.to_thread(write, own_url)


def write(database_url: str) -> None:
    """Do what the test above says."""
    with serving(database_url) as served:
        declare(served, "orders")
        answer = served.call("POST", "/v1/groups/orders/pause?reason=lunch", headers={"x-request-id": "ops-7"})
        assert (answer.status_code, answer.headers["x-request-id"]) == (204, "ops-7")
        httpx.get(f"{served.url}/v1/groups")
        written = served.lines()
    assert {"event": "command", "command": "pause", "cause": "ops-7", "who": "admin"}.items() <= written[-2].items()
    assert {"event": "refused", "type": "unauthenticated", "call": "GET /v1/groups"}.items() <= written[-1].items()


def test_access_that_is_off_is_said_loudly() -> None:
    script = (
        "from batonpass.bootstrap import build; from batonpass.logs import configure;"
        "from batonpass.settings import Settings; from tests.contracts.memory_store import MemoryStore;"
        "configure('json'); build(Settings(auth='off'), MemoryStore())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "access-is-off" in done.stderr
