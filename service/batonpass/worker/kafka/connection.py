"""How Kafka is reached: addresses, encryption, and who one is. The same for workers and coordinators."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

File = str | os.PathLike[str] | None


def client_tls(ca_file: File = None, cert_file: File = None, key_file: File = None) -> ssl.SSLContext:
    """Return a context that trusts ``ca_file`` (this machine's authorities without one) and shows ``cert_file``.

    Raises:
        OSError: when a file cannot be read.
        ssl.SSLError: when one does not hold what it should.
    """
    context = ssl.create_default_context(cafile=ca_file)
    if cert_file is not None:
        context.load_cert_chain(cert_file, key_file)
    return context


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The protocol's topics. Coordinators of different fleets on one cluster need different prefixes."""

    prefix: str = "batonpass"

    @property
    def heartbeats(self) -> str:
        """What members say."""
        return f"{self.prefix}.heartbeats"

    @property
    def assignments(self) -> str:
        """What each member may hold."""
        return f"{self.prefix}.assignments"

    @property
    def acks(self) -> str:
        """Which heartbeats were processed."""
        return f"{self.prefix}.acks"

    @property
    def events(self) -> str:
        """What happened."""
        return f"{self.prefix}.events"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConnection:
    """A cluster and the credentials for it.

    ``tls`` is a context with the authorities to trust and, for mutual TLS, this side's certificate
    (`batonpass.worker.options.tls_context` makes one); None: no encryption. ``sasl_mechanism`` is PLAIN,
    SCRAM-SHA-256 or SCRAM-SHA-512 with ``username`` and ``password``. ``extra`` goes to every aiokafka client as it
    is, for mechanisms and limits that have no name here. ``client_id`` is what the cluster's quotas and logs go by.
    """

    bootstrap_servers: str
    client_id: str = "batonpass"
    tls: ssl.SSLContext | None = None
    sasl_mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> KafkaConnection | None:
        """Return the connection that BATONPASS_KAFKA_* names; None without BATONPASS_KAFKA_BOOTSTRAP.

        Read are _BOOTSTRAP, _CLIENT_ID, _CA_FILE, _CERT_FILE, _KEY_FILE, _SASL_MECHANISM, _USERNAME and _PASSWORD.
        Naming _CA_FILE or _CERT_FILE, or setting _TLS to true, turns TLS on.

        Raises:
            OSError: when a file cannot be read.
        """
        named = {
            key.removeprefix("BATONPASS_KAFKA_").lower(): text
            for key, text in (os.environ if environment is None else environment).items()
            if key.startswith("BATONPASS_KAFKA_") and text
        }
        if "bootstrap" not in named:
            return None
        is_tls = named.get("tls", "").lower() in {"1", "on", "true", "yes"} or bool(
            {"ca_file", "cert_file"} & named.keys()
        )
        files = (named.get("ca_file"), named.get("cert_file"), named.get("key_file"))
        return cls(
            bootstrap_servers=named["bootstrap"],
            client_id=named.get("client_id", "batonpass"),
            tls=client_tls(*files) if is_tls else None,
            sasl_mechanism=named.get("sasl_mechanism"),
            username=named.get("username"),
            password=named.get("password"),
        )

    def client_options(self) -> dict[str, Any]:
        """Return the keyword arguments that every aiokafka client of this connection begins with."""
        options: dict[str, Any] = {"bootstrap_servers": self.bootstrap_servers, "client_id": self.client_id}
        match self.tls is not None, self.sasl_mechanism is not None:
            case True, True:
                options["security_protocol"] = "SASL_SSL"
            case True, False:
                options["security_protocol"] = "SSL"
            case False, True:
                options["security_protocol"] = "SASL_PLAINTEXT"
            case _:
                pass
        if self.tls is not None:
            options["ssl_context"] = self.tls
        if self.sasl_mechanism is not None:
            options["sasl_mechanism"] = self.sasl_mechanism
            options["sasl_plain_username"] = self.username
            options["sasl_plain_password"] = self.password
        return options | dict(self.extra)
