"""Members over TLS: whom they trust, and by which certificate they are known."""

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme
from tests.waiting import until
from tests.worker.recording import Ownership, Recorder

from batonpass.worker import Member, tls_context
from batonpass.worker.testing import HttpServer, LocalCoordinator


@pytest.fixture
def authority() -> trustme.CA:
    """Return an authority that no client trusts."""
    return trustme.CA()


@pytest.fixture
def files(authority: trustme.CA, tmp_path: Path) -> dict[str, Path]:
    """Return the authority's certificate and a client's, in files."""
    paths = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    authority.cert_pem.write_to_path(str(paths["ca"]))
    client = authority.issue_cert("orders-0")
    client.cert_chain_pems[0].write_to_path(str(paths["cert"]))
    client.private_key_pem.write_to_path(str(paths["key"]))
    return paths


@pytest.fixture
def served(authority: trustme.CA) -> ssl.SSLContext:
    """Return the side of a server that wants to see a certificate of its clients."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_a_member_works_over_tls_with_a_certificate_of_its_own(
    files: dict[str, Path], served: ssl.SSLContext
) -> None:
    async with LocalCoordinator() as coordinator, HttpServer(coordinator.answer, tls=served) as server:
        await coordinator.declare("orders")
        worker = Recorder("a", Ownership(), restore_s=0.05)
        trusted = tls_context(ca_file=files["ca"], cert_file=files["cert"], key_file=files["key"])
        async with Member(server.url, "orders", worker, tls=trusted):
            await until(lambda: worker.ownership.count("a") == 1)
        for stranger in (True, tls_context(ca_file=files["ca"])):
            member = Member(server.url, "orders", worker, tls=stranger, exit_timeout_ms=500)
            member.start()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(member.joined(), 1.5)
            await member.close()
        assert (await coordinator.describe("orders"))["members"] == 0
