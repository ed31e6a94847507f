"""The health checks of the images tell whether the server in the container answers, however it is set up."""

import json
import os
import re
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from tests.deploy.answering import PROXIES, answering
from tests.deploy.queries import DEPLOY
from tests.deploy.test_packaging import stages

SERVERS = {"service": "BATONPASS", "dashboard": "BATONPASS_DASHBOARD"}


def checked(stage: str, variables: dict[str, str]) -> int:
    """Return the exit code of an image's health check, with proxies that nobody is behind."""
    found = re.search(r'^HEALTHCHECK .*\n +CMD \["python3", (.+)\]$', stages()[stage], re.MULTILINE)
    assert found is not None
    command = [word.replace("/opt/", f"{DEPLOY}/image/") for word in json.loads(f"[{found[1]}]")]
    around = {"PATH": os.environ["PATH"]} | PROXIES | variables
    return subprocess.run([sys.executable, *command], env=around, check=False, capture_output=True).returncode


@pytest.mark.parametrize("stage", SERVERS)
def test_a_server_is_asked_directly(stage: str) -> None:
    for status, code in ((200, 0), (503, 1)):
        with answering(b"ok", status=status) as port:
            assert checked(stage, {f"{SERVERS[stage]}_PORT": str(port)}) == code
    assert checked(stage, {f"{SERVERS[stage]}_PORT": "9"}) == 1, "nobody is there"


@pytest.mark.parametrize("host", ["::1", "127.0.0.2", "localhost"])
@pytest.mark.parametrize("stage", SERVERS)
def test_a_server_is_asked_where_it_listens(stage: str, host: str) -> None:
    with answering(b"ok", address=host) as port:
        assert checked(stage, {f"{SERVERS[stage]}_PORT": str(port), f"{SERVERS[stage]}_HOST": host}) == 0


@pytest.mark.parametrize("wanted", [ssl.CERT_NONE, ssl.CERT_REQUIRED])
@pytest.mark.parametrize("stage", SERVERS)
def test_a_server_with_tls_is_asked_over_tls(stage: str, wanted: ssl.VerifyMode, tmp_path: Path) -> None:
    authority, file = trustme.CA(), tmp_path / "server.pem"
    certificate = authority.issue_cert("coordinator.example.com")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = wanted
    with answering(b"ok", tls=context) as port:
        server = SERVERS[stage]
        assert checked(stage, {f"{server}_PORT": str(port), f"{server}_TLS_CERTFILE": f"{file} "}) == 0
