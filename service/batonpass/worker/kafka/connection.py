"""How Kafka is reached: addresses, encryption, and who one is. The same for workers and coordinators."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from batonpass.worker.kafka.tokens import TokenProvider
from batonpass.worker.kafka_login import OAUTHBEARER, WITH_PASSWORD, Token, login_of


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
    (`batonpass.worker.tls_context` makes one); None: no encryption. ``sasl_mechanism`` is PLAIN, SCRAM-SHA-256 or
    SCRAM-SHA-512 with ``username`` and ``password``, or OAUTHBEARER with ``token``: an async function that returns a
    bearer token which has not expired. It is called for each connection that is made, so it should keep one while that
    is good; `batonpass.worker.client_credentials.ClientCredentials` is such a function. ``extra`` goes to every
    aiokafka client as it is, for mechanisms and limits that have no name here. ``client_id`` is what the cluster's
    quotas and logs go by.

    Raises:
        ValueError: when mechanism and credentials do not belong together.
    """

    bootstrap_servers: str
    client_id: str = "batonpass"
    tls: ssl.SSLContext | None = None
    sasl_mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: Token | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        if (self.sasl_mechanism in WITH_PASSWORD) != (self.username is not None and self.password is not None):
            raise ValueError(
                f"username and password go with sasl_mechanism {' or '.join(WITH_PASSWORD)}, and only there"
            )
        has_token = self.token is not None or "sasl_oauth_token_provider" in self.extra
        if (self.sasl_mechanism == OAUTHBEARER) != has_token:
            raise ValueError(f"token goes with sasl_mechanism {OAUTHBEARER}, and only there")

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] | None = None, *, token: Token | None = None
    ) -> KafkaConnection | None:
        """Return the connection that BATONPASS_KAFKA_* names; None without BATONPASS_KAFKA_BOOTSTRAP.

        Read are those that docs/settings.md has for logging in, by the same rules as a coordinator reads them. With
        OAUTHBEARER, ``token`` gives the tokens in place of an endpoint.

        Raises:
            ValueError: naming the variables that are wrong, and what to do.
        """
        named = {
            key.removeprefix("BATONPASS_KAFKA_").lower(): text
            for key, text in (os.environ if environment is None else environment).items()
            if key.startswith("BATONPASS_KAFKA_") and text
        }
        if "bootstrap" not in named:
            return None
        return cls(
            bootstrap_servers=named["bootstrap"],
            client_id=named.get("client_id", "batonpass"),
            **login_of(named, token=token),
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
        if self.username is not None:
            options |= {"sasl_plain_username": self.username, "sasl_plain_password": self.password}
        if self.token is not None:
            options["sasl_oauth_token_provider"] = TokenProvider(self.token)
        return options | dict(self.extra)
