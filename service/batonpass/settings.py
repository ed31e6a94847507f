"""The settings of one coordinator process, from environment variables that begin with ``BATONPASS_``.

Every one has a range and says what it is for; docs/settings.md and .env.example are written from here.
"""

import os
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AnyHttpUrl, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from batonpass.client import sendable, urls_in
from batonpass.database_url import DatabaseUrl
from batonpass.http_clients import tls_context
from batonpass.sockets import CONNECTIONS_MIN
from batonpass.worker.kafka_login import Login, login_of

MIB: Final = 1_048_576
OPEN_PATHS: Final = ("livez", "readyz", "metrics", "openapi", "docs")
"""What may be left open to callers without a token."""

OTHERS: Final = frozenset(
    {f"DASHBOARD_{name}" for name in ("HOST", "PORT", "TOKEN", "TLS_CERTFILE", "TLS_KEYFILE", "BEHIND_TLS", "LOG_URL")}
    | {"DASHBOARD_ALLOWED_HOSTS", "DASHBOARD_ROOT_PATH", "CA_FILE", "CERT_FILE", "KEY_FILE", "URL", "TOKEN", "DATA"}
    | {"PATIENCE", "ZONE", "GROUP", "INSTANCE", "STATE", "SINK", "FENCED", "METRICS_PORT", "WORKER_LOG", "KAFKA_JARS"}
)
"""The variables of commands, dashboard and workers, which may stand in one file with the settings of a coordinator."""


class Settings(BaseSettings):
    """What may be set for a process; for a group it is the group's config. Every value has a range."""

    model_config = SettingsConfigDict(env_prefix="BATONPASS_", frozen=True, extra="ignore")

    # Where it listens
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="The address to listen on, or a name for some; :: is every address, of IPv4 too.",
    )
    port: int = Field(default=8420, ge=0, le=65_535, description="The port to listen on; 0 takes any free one.")
    advertised_url: AnyHttpUrl | None = Field(
        default=None,
        description="The base URL under which other coordinators reach this one. Left out: from host and port, or from "
        "the name of the machine where host stands for all addresses.",
    )
    tls_certfile: Path | None = Field(
        default=None, description="A PEM file with the certificate chain to serve HTTPS with."
    )
    tls_keyfile: Path | None = Field(
        default=None, description="The PEM file of its private key, unless certfile holds both."
    )
    tls_client_ca: Path | None = Field(
        default=None,
        description="A PEM file of authorities: only clients with a certificate of one of them are let in (mTLS).",
    )
    tls_peer_ca: Path | None = Field(
        default=None, description="A PEM file of authorities that other coordinators' certificates are checked against."
    )

    # Postgres and the fleet
    database_url: SecretStr | None = Field(
        default=None,
        description="postgresql://user:password@host:port/database, and options of libpq (docs/postgres.md).",
    )
    database_connections_max: int = Field(
        default=10,
        ge=2,
        le=200,
        description="How many connections are held at most, beside two for the lease and two that only append.",
    )
    database_wait_s: float = Field(
        default=60,
        ge=0,
        le=3_600,
        description="How long a start waits for a database that is away; a role or database that is refused ends it.",
    )
    sole_coordinator: bool = Field(
        default=False,
        description="Whether no other coordinator can be running on the database: after a crash it does not wait for "
        "its own old lease. Never true where there may be two.",
    )
    lease_ms: int = Field(
        default=5_000, ge=1_000, le=60_000, description="How long a coordinator's lease lasts unrenewed."
    )
    lease_renewal_ms: int = Field(default=1_500, ge=100, le=20_000, description="How often it is renewed.")

    forward_answer_s: float = Field(
        default=30,
        ge=1,
        le=600,
        description="How long another coordinator may take to answer a call that is passed on to it, beside the time that "
        "the call itself asks to wait; then the caller gets 503.",
    )

    # How long history is kept
    keep_changes_days: int = Field(
        default=30,
        ge=2,
        le=3_650,
        description="Who held which task when: the histories of tasks as they are shown. An audit reads the records, and"
        " only holds these against them.",
    )
    keep_traces_days: int = Field(
        default=14,
        ge=2,
        le=3_650,
        description="What each decision was made of. An audit makes a day's decisions again for so long; of older days"
        " it looks at the records alone.",
    )
    keep_samples_days: int = Field(
        default=30,
        ge=2,
        le=3_650,
        description="Lags and rates, a sample a minute for each group; the audit's what-if reads them.",
    )
    keep_records_days: int = Field(
        default=30,
        ge=2,
        le=3_650,
        description="Records that a snapshot as old makes needless, and snapshots: what an audit reads, so that a day can"
        " be audited for so long.",
    )
    keep_generations_days: int = Field(
        default=90,
        ge=2,
        le=3_650,
        description="Generations, and what each moved. No shorter than the records: an audit would call missing what is gone.",
    )
    keep_events_days: int = Field(
        default=7, ge=1, le=3_650, description="The event stream; for a publisher that is behind, as long again."
    )
    keep_commands_days: int = Field(
        default=400,
        ge=2,
        le=36_500,
        description="The audit trail of mutating calls, and tokens since they were revoked or expired.",
    )
    keep_audits_days: int = Field(default=400, ge=2, le=36_500, description="Results of the nightly audits.")
    keep_unexported_days: int = Field(
        default=0,
        ge=0,
        le=3_650,
        description="For how many days more changes, traces, samples, records and generations of a day are kept that no "
        "audit has exported yet. Then the day goes all the same, so that the disk does not fill up when no audit runs; "
        "0 waits for none.",
    )

    # Kafka
    kafka_bootstrap: str | None = Field(
        default=None,
        min_length=1,
        description="host:port of one or more brokers, separated by commas. With it ends of changelogs and partition "
        "counts of sources are read, and events are passed on; without it workers report ends, and groups name their "
        "partitions.",
    )
    kafka_heartbeats: bool = Field(
        default=False,
        description="Whether members may speak over Kafka, in groups whose config has kafka_heartbeats too. Whoever may "
        "write to the topic of heartbeats then speaks for every such group, without a token.",
    )
    kafka_client_id: str = Field(
        default="batonpass", min_length=1, description="What the brokers' logs and quotas know this process by."
    )
    kafka_topic_prefix: str = Field(
        default="batonpass",
        pattern=r"^[A-Za-z0-9._-]{1,200}$",
        description="What the names of the protocol's topics begin with; different fleets on one cluster need different "
        "ones.",
    )
    kafka_tls: bool = Field(default=False, description="Whether the brokers are reached over TLS.")
    kafka_ca_file: Path | None = Field(
        default=None,
        description="A PEM file of authorities for the brokers' certificates, if not the system's. Turns TLS on.",
    )
    kafka_cert_file: Path | None = Field(
        default=None, description="A PEM file with a certificate to show to the brokers (mTLS). Turns TLS on."
    )
    kafka_key_file: Path | None = Field(
        default=None, description="The PEM file of its private key, unless cert_file holds both."
    )
    kafka_key_password: SecretStr | None = Field(
        default=None, description="What the private key is encrypted with, where it is."
    )
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = Field(
        default=None,
        description="How this process logs in to the brokers: by name and password, or by a token that it gets from "
        "an endpoint (OAUTHBEARER). Left out: by its certificate, or not at all.",
    )
    kafka_username: str | None = Field(default=None, description="The name to log in under.")
    kafka_password: SecretStr | None = Field(default=None, description="Its password.")
    kafka_oauth_token_url: str | None = Field(
        default=None,
        description="The endpoint that gives tokens for client credentials, for OAUTHBEARER. With http:// the client's "
        "secret goes there unencrypted.",
    )
    kafka_oauth_client_id: str | None = Field(default=None, description="The client's id there.")
    kafka_oauth_client_secret: SecretStr | None = Field(default=None, description="The client's secret.")
    kafka_oauth_client_secret_file: Path | None = Field(
        default=None,
        description="A file with the client's secret, in place of it; read for each token, so that it may be replaced.",
    )
    kafka_oauth_scope: str | None = Field(
        default=None, description="What is asked for, separated by blanks, where the endpoint wants to know."
    )
    kafka_oauth_ca_file: Path | None = Field(
        default=None,
        description="A PEM file of authorities for the endpoint's certificate, if not the system's.",
    )
    kafka_interval_ms: int = Field(
        default=1_000,
        ge=100,
        le=60_000,
        description="How often ends and partition counts are read. Of many partitions they are read less often: for each "
        "partition a tenth of a millisecond lies between two looks at the ends, and a millisecond between two counts.",
    )

    # Who may call
    auth: Literal["on", "off"] = Field(
        default="on",
        description="off lets everybody on this machine do everything without a token: for a laptop, never for a network.",
    )
    admin_token: SecretStr | None = Field(
        default=None,
        description="A token of role admin that is not kept in the database: to make the first real ones with.",
    )
    token_cache_s: float = Field(
        default=10,
        ge=0,
        le=300,
        description="For how long a token's role is remembered: a revocation takes effect within it.",
    )
    token_lookups_each_address: int = Field(
        default=32,
        ge=1,
        le=500,
        description="How many tokens from one address are looked up at once; one more is refused (429).",
    )
    open_paths: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("livez", "readyz", "metrics"),
        description=f"What is answered without a token, separated by commas, out of {', '.join(OPEN_PATHS)}.",
    )

    # Limits
    body_bytes_max: int = Field(
        default=8 * MIB,
        ge=1_024,
        le=256 * MIB,
        description="The largest body of a request, in bytes. One of nothing but names holds everybody up while it is read, "
        "for 35 ms for each MiB.",
    )
    bodies_bytes_max: int = Field(
        default=64 * MIB,
        ge=MIB,
        le=16_384 * MIB,
        description="Bytes of all bodies together that are arriving, or whose requests are being answered; one more is answered "
        "429. No less than the largest body.",
    )
    bodies_bytes_each_max: int = Field(
        default=32 * MIB, ge=MIB, le=16_384 * MIB, description="How many of them under one token."
    )
    groups_max: int = Field(default=1_000, ge=1, le=100_000, description="Groups of one coordinator.")
    members_max: int = Field(default=10_000, ge=1, le=100_000, description="Members of one group.")
    tasks_max: int = Field(default=200_000, ge=1, le=10_000_000, description="Tasks of one group.")
    tasks_total_max: int = Field(
        default=300_000,
        ge=1,
        le=100_000_000,
        description="Tasks of all groups of one coordinator together, with those of earlier topologies until members have "
        "given them up: they take some 2.5 kB of memory each. Beyond it no group is declared with more tasks than it "
        "has; groups of a coordinator that is gone are taken over all the same.",
    )
    tasks_per_heartbeat_max: int = Field(
        default=20_000, ge=1, le=1_000_000, description="Tasks that one heartbeat reports."
    )
    unnamed_changelogs_max: int = Field(
        default=16,
        ge=1,
        le=1_000,
        description="Changelogs that a report may name of a task of which the topology names none; of any other task it "
        "may name those of the topology.",
    )
    unassigned_reported_max: int = Field(
        default=200_000,
        ge=1_000,
        le=100_000_000,
        description="What is kept of reports on tasks that the reporting member does not have (state on its disk), of one group "
        "together: each report counts one, and one for each offset in it. 200,000 take some 45 MB. The rest is ignored, and "
        "the answer says so.",
    )
    connections_max: int = Field(
        default=30_000,
        ge=CONNECTIONS_MIN,
        le=1_000_000,
        description="Connections that are open at once. For one more the one is closed that is idle for the longest; while all "
        "are busy, all but probes and scrapes are answered 503. Fewer, "
        "where the system's limit on open files has no room for so many; the log says so at the start. Where it has room for "
        "fewer than 10, nothing starts.",
    )
    request_arrival_s: float = Field(
        default=60,
        ge=1,
        le=3_600,
        description="How long a request may take to arrive, head and body, and a new connection to begin one; after it "
        "the connection is closed (408).",
    )
    request_head_bytes_max: int = Field(
        default=32_768,
        ge=4_096,
        le=MIB,
        description="Bytes of the request line and all headers; a connection that sends more is closed (431).",
    )
    requests_ahead_max: int = Field(
        default=16,
        ge=1,
        le=1_000,
        description="Requests that may be sent ahead on one connection while an earlier one is being answered; with more "
        "the connection is closed.",
    )
    answer_unread_s: float = Field(
        default=60,
        ge=1,
        le=3_600,
        description="How long a caller may take nothing of an answer before its connection is closed (on Linux).",
    )
    polls_max: int = Field(
        default=20_000,
        ge=1,
        le=1_000_000,
        description="Calls that wait for news at once: long-polls, and drains that wait. Those that are passed on count here "
        "too.",
    )
    polls_each_max: int = Field(default=10_000, ge=1, le=1_000_000, description="How many of them under one token.")
    streams_max: int = Field(default=1_000, ge=1, le=100_000, description="Event streams that are open at once.")
    streams_each_max: int = Field(default=200, ge=1, le=100_000, description="How many of them under one token.")
    reads_max: int = Field(
        default=200,
        ge=1,
        le=100_000,
        description="Reads of large groups that wait at once, and as many dry runs; one of each is done at a time, the "
        "callers in turn. As many reads of the history.",
    )
    reads_each_max: int = Field(default=50, ge=1, le=100_000, description="How many of each under one token.")
    requests_waiting_max: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Requests that wait for one group."
    )
    member_requests_per_s: float = Field(
        default=10,
        ge=0.1,
        le=10_000,
        description="Heartbeats a second of one member, and as many long-polls, on average.",
    )
    member_requests_burst: int = Field(default=40, ge=1, le=100_000, description="How many of them may come at once.")
    urgent_heartbeats_per_s: float = Field(
        default=20,
        ge=1,
        le=10_000,
        description="Heartbeats with news that pass a second although the limit is reached.",
    )
    operator_requests_per_s: float = Field(
        default=100, ge=0.1, le=100_000, description="All other calls a second under one token, on average."
    )
    operator_requests_burst: int = Field(
        default=400, ge=1, le=1_000_000, description="How many of them may come at once."
    )

    # Operation
    check_laws: bool = Field(default=True, description="Whether every decision is checked against the laws first.")
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto: for people where standard error is a terminal, JSON lines elsewhere."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least level written."
    )
    metrics_members_max: int = Field(
        default=100, ge=0, le=10_000, description="Up to how many members a group has metrics for each single member."
    )
    loop_age_max_ms: int = Field(
        default=10_000,
        ge=1_000,
        le=600_000,
        description="From what age of the event loop's last turn on /livez answers 503.",
    )
    shutdown_delay_s: float = Field(
        default=0,
        ge=0,
        le=300,
        description="How long /readyz says 503 before requests are refused: for a load balancer to see.",
    )
    shutdown_s: float = Field(
        default=10,
        ge=1,
        le=300,
        description="How long requests under way, and then what was accepted, may take to end.",
    )

    @model_validator(mode="before")
    @classmethod
    def _trimmed(cls, given: Any) -> Any:
        """Take values by the rule of ``batonpass.variables``; no open path at all is a value too."""
        if not isinstance(given, Mapping):
            return given
        trimmed = {name: value.strip() if isinstance(value, str) else value for name, value in given.items()}
        return {name: value for name, value in trimmed.items() if value != "" or name == "open_paths"}

    @field_validator("database_url")
    @classmethod
    def _understood(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None:
            DatabaseUrl.read(given.get_secret_value())
        return given

    @field_validator("advertised_url")
    @classmethod
    def _base_alone(cls, given: AnyHttpUrl | None) -> AnyHttpUrl | None:
        if given is not None:
            urls_in(str(given))
        return given

    @field_validator("open_paths", mode="before")
    @classmethod
    def _split(cls, given: Any) -> Any:
        return tuple(one.strip() for one in given.split(",") if one.strip()) if isinstance(given, str) else given

    @field_validator("open_paths")
    @classmethod
    def _known(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := sorted(set(given) - set(OPEN_PATHS)):
            raise ValueError(f"{', '.join(unknown)}: not among {', '.join(OPEN_PATHS)}")
        return given

    @field_validator("admin_token")
    @classmethod
    def _hard_to_guess(cls, given: SecretStr | None) -> SecretStr | None:
        if given is None:
            return None
        secret = sendable(given.get_secret_value())
        if len(secret) < 24:
            raise ValueError("too short to be safe; 24 characters at least, for example from `openssl rand -base64 32`")
        if secret[0] == secret[-1] and secret[0] in "'\"":
            raise ValueError("it has quotes around it, which only a shell takes away: leave them out")
        return given

    @field_validator("tls_certfile", "tls_keyfile", "tls_client_ca", "tls_peer_ca")
    @classmethod
    def _readable(cls, given: Path | None) -> Path | None:
        if given is not None and not os.access(given, os.R_OK):
            raise ValueError(f"{given} cannot be read")
        return given

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.tls_certfile is None and (self.tls_keyfile or self.tls_client_ca):
            raise ValueError("tls_keyfile and tls_client_ca need tls_certfile")
        if self.kafka_heartbeats and self.kafka_bootstrap is None:
            raise ValueError("kafka_heartbeats needs kafka_bootstrap")
        self.tls_to_others()
        self.kafka_login()
        if 2 * self.lease_renewal_ms > self.lease_ms:
            raise ValueError("lease_renewal_ms must leave room for a second try: at most half of lease_ms")
        if self.tasks_total_max < self.tasks_max:
            raise ValueError("tasks_total_max, of all groups, is less than tasks_max, of one")
        return self

    @property
    def is_tls(self) -> bool:
        return self.tls_certfile is not None

    def tls_to_others(self) -> ssl.SSLContext:
        """Return how this coordinator reaches others: whom it trusts, and the certificate that it shows.

        Raises:
            ValueError: naming the variables whose files cannot be used; settings that were made raise it no more.
        """
        for name in ("tls_client_ca", "tls_peer_ca"):
            try:
                tls_context(getattr(self, name))
            except OSError as error:
                raise ValueError(f"{name} names {getattr(self, name)}, which holds no certificates in PEM") from error
        try:
            return tls_context(self.tls_peer_ca, self.tls_certfile, self.tls_keyfile)
        except (OSError, ValueError) as error:
            both = " and ".join(name for name in ("tls_certfile", "tls_keyfile") if getattr(self, name))
            raise ValueError(f"{both}: not a certificate and its private key, in PEM and without password") from error

    def kafka_login(self) -> Login:
        """Return how this process logs in to Kafka.

        Raises:
            ValueError: naming the variables that are wrong; settings that were made raise it no more.
        """
        given = {name: getattr(self, name) for name in type(self).model_fields if name.startswith("kafka_")}
        texts = {
            name.removeprefix("kafka_"): value.get_secret_value() if isinstance(value, SecretStr) else str(value)
            for name, value in given.items()
            if value is not None
        }
        return login_of({name: text for name, text in texts.items() if text})


def unread(names: Iterable[str]) -> list[str]:
    """Return which variables begin as ours do, and are read by nothing: misspelled ones, or what Kubernetes sets."""
    known = {f"BATONPASS_{name}".upper() for name in (*OTHERS, *Settings.model_fields)}
    return sorted(name for name in names if name.upper().startswith("BATONPASS_") and name.upper() not in known)
