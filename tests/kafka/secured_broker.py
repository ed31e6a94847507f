"""A broker whose listeners ask who is there, each in its own way.

One listener is open, as that of any test. The others speak TLS, and let in who knows a password (PLAIN or SCRAM), who
shows a certificate of the right authority (mutual TLS), or who has a token that a token server signed (OAUTHBEARER),
for as long as that lasts.
"""

import subprocess
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from tests.token_server import AUDIENCE, TokenServer

from batonpass.child_server import ServerCommand
from batonpass.kafka.broker import LocalBroker
from batonpass.kafka.broker_parts import find_jars, find_java
from batonpass.sockets import free_port

OAUTH = "org.apache.kafka.common.security.oauthbearer"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "SCRAM-SHA-512"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
USER, PASSWORD = "batonpass", "secret"


class SecuredBroker(LocalBroker):
    """A broker with four listeners. The addresses of those that are not open stand in ``secured``, by their names."""

    def __init__(self, folder: Path, authority: trustme.CA, server: TokenServer) -> None:
        """Name everything; the token server listens already."""
        folder.mkdir(parents=True, exist_ok=True)
        shown = authority.issue_cert("127.0.0.1")
        # Kafka reads keys in this form only.
        key = load_pem_private_key(shown.private_key_pem.bytes(), None)
        kept = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        store, trusted = folder / "broker.pem", folder / "trusted.pem"
        store.write_bytes(kept + b"".join(pem.bytes() for pem in shown.cert_chain_pems))
        authority.cert_pem.write_to_path(str(trusted))
        self.secured: dict[str, str] = {}
        self._url = server.url
        named = "listener.name.tokens"
        settings = {
            "listener.security.protocol.map": "PASSWORDS:SASL_SSL,CERTIFICATES:SSL,TOKENS:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trusted),
            "listener.name.passwords.sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
            "listener.name.passwords.plain.sasl.jaas.config": f'{PLAIN} required user_{USER}="{PASSWORD}";',
            f"listener.name.passwords.{SCRAM.lower()}.sasl.jaas.config": f"{SCRAM_LOGIN} required;",
            "listener.name.certificates.ssl.client.auth": "required",
            f"{named}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{named}.oauthbearer.sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
            f"{named}.oauthbearer.sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
            # A connection lasts no longer than the token that it came in with.
            f"{named}.oauthbearer.connections.max.reauth.ms": "3600000",
            "sasl.oauthbearer.jwks.endpoint.url": f"{server.url}/keys",
            "sasl.oauthbearer.expected.issuer": server.url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }
        super().__init__(folder / "broker", settings=settings, heap_mb=256)

    def _order(self, java: tuple[str, ...], port: int) -> ServerCommand:
        # Kafka asks nobody for keys who is not named here.
        return super()._order((*java, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._url}/keys"), port)

    def start(self) -> str:
        """Start the broker, and have it store the password for SCRAM, which no setting of a broker can hold."""
        found = super().start()
        java = find_java()
        tool = (*java, "-cp", f"{find_jars(java, print)}/*", "kafka.admin.ConfigCommand", "--bootstrap-server", found)
        user = ("--alter", "--entity-type", "users", "--entity-name", USER)
        subprocess.run([*tool, *user, "--add-config", f"{SCRAM}=[password={PASSWORD}]"], check=True)
        return found

    def _write_properties(self, port: int, controller_port: int) -> Path:
        written = super()._write_properties(port, controller_port)
        self.secured = {name: f"127.0.0.1:{free_port()}" for name in ("passwords", "certificates", "tokens")}
        open_ones = ",".join(
            f"{name.upper()}://{at}" for name, at in {"plaintext": f"127.0.0.1:{port}", **self.secured}.items()
        )
        with written.open("a") as file:
            # Of a line that is there twice, the last one counts.
            file.write(f"listeners={open_ones},CONTROLLER://127.0.0.1:{controller_port}\n")
            file.write(f"advertised.listeners={open_ones}\n")
        return written
