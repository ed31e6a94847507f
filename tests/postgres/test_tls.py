"""TLS to Postgres is asked for in the words of libpq, which other tools print and understand."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import trustme
from sqlalchemy import make_url, text

from batonpass.postgres.connect import connect, reaching
from batonpass.postgres.embedded import EmbeddedPostgres
from batonpass.runtime.ports import StoreUnavailable

REQUEST_BYTES = 8
CHUNK = 65_536


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(CHUNK):
        sink.write(data)
    sink.close()


@pytest_asyncio.fixture
async def front(server: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of the server behind a front that speaks TLS alone: the embedded one is built without it.

    Its authority is in `ours.pem`, and another one in `other.pem`.
    """
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ours.pem"))
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    url = make_url(server.url)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # A client that wants TLS asks for it first, and gets the answer that it may begin.
            await reader.readexactly(REQUEST_BYTES)
            writer.write(b"S")
            await writer.start_tls(context)
            behind = await asyncio.open_connection(url.host, url.port)
            await asyncio.gather(_pass_on(reader, behind[1]), _pass_on(behind[0], writer))
        except OSError:
            # Who does not believe the certificate hangs up.
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield url.set(port=port).render_as_string(hide_password=False)


def trusting(url: str, authority: Path) -> str:
    """Return a URL with the authority that is to vouch for the server."""
    words = {"sslmode": "verify-full", "sslrootcert": str(authority)}
    return make_url(url).update_query_dict(words).render_as_string(hide_password=False)


async def test_with_the_right_authority_a_connection_is_made_over_tls_and_with_another_none(
    front: str, tmp_path: Path
) -> None:
    engine = connect(trusting(front, tmp_path / "ours.pem"))
    async with reaching(engine) as connection:
        assert (await connection.execute(text("select 1"))).scalar_one() == 1
    await engine.dispose()
    engine = connect(trusting(front, tmp_path / "other.pem"))
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        async with reaching(engine):
            pass
    await engine.dispose()
