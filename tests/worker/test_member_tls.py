"""Members over TLS: whom they trust, and by which certificate they are known."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop
from tests.waiting import until
from tests.worker.recording import Ownership, Recorder

from batonpass.http_clients import http_client
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


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("by", ["HTTP", "a stream, as Kafka's clients do"])
def test_what_is_replaced_in_the_files_counts_from_the_next_connection_on(
    run: Callable[[Any], None], by: str, authority: trustme.CA, files: dict[str, Path], served: ssl.SSLContext
) -> None:
    """A process lives longer than its certificate, and than the authority of the others' certificates."""
    shown: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown.append(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        await reader.readline()
        writer.write(b"HTTP/1.1 204 \r\nConnection: close\r\n\r\n")
        writer.close()

    async def go() -> None:
        trusted = tls_context(ca_file=files["ca"], cert_file=files["cert"], key_file=files["key"])
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=served)
        port = server.sockets[0].getsockname()[1]

        async def call() -> None:
            if by == "HTTP":
                async with http_client(verify=trusted) as client:
                    await client.get(f"https://127.0.0.1:{port}/")
                return
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
            writer.write(b"GET / HTTP/1.1\r\n")
            await reader.read()
            writer.close()

        await call()
        made, following = authority.issue_cert("orders-0"), trustme.CA()
        following.issue_cert("127.0.0.1").configure_cert(served)
        following.cert_pem.write_to_path(str(files["ca"]))
        made.private_key_pem.write_to_path(str(files["key"]))
        # Half of it is there, so the last goes on, which does not know the following authority.
        with pytest.raises(Exception, match="certificate verify failed"):
            await call()
        made.cert_chain_pems[0].write_to_path(str(files["cert"]))
        await call()
        assert len(shown) == 2
        assert shown[0] != shown[1] == ssl.PEM_cert_to_DER_cert(made.cert_chain_pems[0].bytes().decode())
        server.close()

    run(go())
