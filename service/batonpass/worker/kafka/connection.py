"""How Kafka is reached: addresses, encryption, credentials, and why a cluster refuses a login.

Workers and coordinators both use it.
"""

import asyncio
import base64
import json
import os
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import AIOKafkaConnection, OAuthAuthenticator, collect_hosts, create_conn
from aiokafka.consumer import consumer as consumers
from aiokafka.consumer import fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import (
    IllegalSaslStateError,
    InvalidTimestampError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
    for_code,
)
from aiokafka.producer import sender
from aiokafka.protocol.commit import OffsetFetchRequest

from batonpass.worker.kafka.header_names import Records
from batonpass.worker.kafka.metadata import PROTOCOL_TIMEOUT_MS, RECORD_BYTES_MAX, adopt
from batonpass.worker.kafka_login import OAUTHBEARER, WITH_PASSWORD, Token, login_of

ANSWER_TIMEOUT_S: Final = 15.0
"""How long a try waits for each thing that it asks the cluster for; then it begins anew, and says what is lacking."""

PATIENCE_S: Final = 5.0
"""How long a client that ends, or a caller that was cancelled, waits for a cluster that does not answer."""

STOP_S: Final = 1.0
"""How long a producer that stops waits for answers before it gives up a request that it waits for."""

KNOCK_S: Final = 5.0
LOGIN: Final = ("client_id", "security_protocol", "ssl_context")

TOKEN_TIMEOUT_S: Final = 20.0
BEARER: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What a token may consist of (RFC 6750); a line break in it, for example, would end the login."""

Made = TypeVar("Made")


class TopicNames:
    """The protocol's topics. Coordinators of different fleets on one cluster need different prefixes.

    ``heartbeats`` has what members say, ``assignments`` what each may hold, ``acks`` which heartbeats were processed,
    and ``events`` what happened.
    """

    def __init__(self, prefix: str = "batonpass") -> None:
        self.prefix = prefix
        self.heartbeats = f"{prefix}.heartbeats"
        self.assignments = f"{prefix}.assignments"
        self.acks = f"{prefix}.acks"
        self.events = f"{prefix}.events"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConnection:
    """A cluster and the credentials for it.

    ``tls`` is a context with the authorities to trust and, for mutual TLS, this side's certificate
    (`batonpass.worker.tls_context` makes one); None: no encryption. ``sasl_mechanism`` is PLAIN, SCRAM-SHA-256 or
    SCRAM-SHA-512 with ``username`` and ``password``, or OAUTHBEARER with ``token``: an async function that returns a
    bearer token which has not expired. It is called for each new connection, so it should keep a token while that is
    good; `batonpass.worker.client_credentials.ClientCredentials` is such a function. ``extra`` goes to every aiokafka
    client as it is, for mechanisms and limits that have no name here. The cluster's quotas and logs go by
    ``client_id``.

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
        """Refuse arguments that do not go together."""
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
    ) -> "KafkaConnection | None":
        """Return the connection that BATONPASS_KAFKA_* names; None without BATONPASS_KAFKA_BOOTSTRAP.

        It reads the variables that docs/settings.md has for logging in, by the same rules as a coordinator. With
        OAUTHBEARER, ``token`` gives the tokens in place of an endpoint.

        Raises:
            ValueError: naming the variables that are wrong, and what to do.
        """
        named = {
            key.removeprefix("BATONPASS_KAFKA_").lower(): text.strip()
            for key, text in (os.environ if environment is None else environment).items()
            if key.startswith("BATONPASS_KAFKA_") and text.strip()
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
        protocol = "PLAINTEXT" if self.tls is None else "SSL"
        if self.tls is not None:
            options |= {"security_protocol": protocol, "ssl_context": self.tls}
        if self.sasl_mechanism is not None:
            options |= {"security_protocol": f"SASL_{protocol}", "sasl_mechanism": self.sasl_mechanism}
        if self.username is not None:
            options |= {"sasl_plain_username": self.username, "sasl_plain_password": self.password}
        if self.token is not None:
            options["sasl_oauth_token_provider"] = TokenProvider(self.token)
        return options | dict(self.extra)

    def consumer(self, options: Mapping[str, Any], *, group_id: str | None = None) -> AIOKafkaConsumer:
        """Make a consumer of committed records which commits nothing and looks for no position by itself.

        ``options`` are aiokafka's, on top of those of this connection. Asking about a topic does not make it.
        """
        consumer = AIOKafkaConsumer(
            **(self.client_options() | dict(options)),
            group_id=group_id,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="none",
        )
        adopt(consumer._client)  # noqa: SLF001 - aiokafka makes its client itself
        return consumer


@asynccontextmanager
async def producing(connection: KafkaConnection) -> AsyncIterator[AIOKafkaProducer]:
    """Yield a producer that writes every record once, and hang it up.

    Raises:
        KafkaError: when it cannot start.
    """
    producer = AIOKafkaProducer(**connection.client_options(), enable_idempotence=True)
    adopt(producer.client)
    try:
        await producer.start()
        yield producer
    finally:
        await hang_up(producer)


@asynccontextmanager
async def carrying(
    connection: KafkaConnection, topics: Collection[str]
) -> AsyncIterator[tuple[AIOKafkaConsumer, AIOKafkaProducer]]:
    """Yield what the protocol is carried with: a consumer of all that is written to these topics, and a producer.

    Raises:
        KafkaError: when they cannot connect.
    """
    options = connection.client_options() | {"request_timeout_ms": PROTOCOL_TIMEOUT_MS}
    consumer = AIOKafkaConsumer(**options, group_id=None, enable_auto_commit=False, fetch_max_wait_ms=100)
    producer = AIOKafkaProducer(**options, enable_idempotence=True, linger_ms=0, max_request_size=RECORD_BYTES_MAX)
    adopt(producer.client)
    adopt(consumer._client)  # noqa: SLF001 - a consumer does not show it
    try:
        await consumer.start()
        await producer.start()
        consumer.assign([TopicPartition(topic, n) for topic in topics for n in await producer.partitions_for(topic)])
        yield consumer, producer
    finally:
        await asyncio.gather(disconnect(consumer), hang_up(producer), return_exceptions=True)


async def to_its_end(starting: Coroutine[object, object, Made], *, patience_s: float = PATIENCE_S) -> Made:
    """Wait until a client has started, even when the caller is cancelled meanwhile, and return the result.

    aiokafka does not close a connection that it is just making: if that is cut short, it stays open until the process
    ends. The caller has to stop what was started, as if it had been cancelled a moment later.

    Raises:
        asyncio.CancelledError: when the caller was cancelled; what ``starting`` raised is then lost.
    """
    running = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        try:
            await asyncio.wait([running], timeout=patience_s)
        finally:
            running.cancel()
            running.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise


async def in_time(call: Awaitable[Made], lacking: str, limit_s: float | None = None) -> Made:
    """Await what is asked of the cluster for ``limit_s`` at most, or `ANSWER_TIMEOUT_S`.

    Raises:
        KafkaTimeoutError: saying what is lacking.
    """
    limit_s = ANSWER_TIMEOUT_S if limit_s is None else limit_s
    try:
        async with asyncio.timeout(limit_s):
            return await call
    except TimeoutError:
        raise KafkaTimeoutError(f"{lacking} within {limit_s:.0f} s") from None


async def disconnect(consumer: AIOKafkaConsumer) -> None:
    """Stop a consumer, even while its broker is away.

    aiokafka (0.14) cancels a read that waits to be tried again, and its `stop` then raises the read's CancelledError
    before it has disconnected.

    Raises:
        KafkaError: when the consumer did not stop in good order, or not in time; it is disconnected all the same.
    """
    stopping = asyncio.ensure_future(consumer.stop())
    try:
        done, _ = await asyncio.wait([stopping], timeout=PATIENCE_S)
    finally:
        stopping.cancel()
        await consumer._client.close()  # noqa: SLF001 - a second `stop` does nothing
    if not done:
        raise KafkaTimeoutError(f"a consumer did not stop within {PATIENCE_S:.0f} s")
    if not stopping.cancelled():
        stopping.result()


async def forget_lingering(producer: AIOKafkaProducer) -> None:
    """Have a producer stop without sending what lingers.

    While it knows a sender, aiokafka (0.14) waits until that is written: for ever if the broker stays away.
    """
    sender = producer._sender.sender_task  # noqa: SLF001 - nothing public ends it
    try:
        while sender is not None and not sender.done():
            sender.cancel()
            await asyncio.wait((sender,), timeout=STOP_S)
    finally:
        producer._sender._sender_task = None  # noqa: SLF001


async def hang_up(producer: AIOKafkaProducer) -> None:
    """Stop a producer at once, even while its broker is away. What lingers is not sent."""
    try:
        await forget_lingering(producer)
    finally:
        await producer.stop()


# --- why a cluster refuses a login ------------------------------------------------------------------------------------


async def in_words(error: Exception, connection: KafkaConnection) -> str:
    """Return what an error of the cluster says; if connecting failed, what a broker says to one more connection.

    The brokers are asked in the order of the bootstrap servers; the first that refuses the login counts.
    """
    said = str(error) or repr(error)
    if isinstance(error, InvalidTimestampError):
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return f"{said}: a broker refuses a record's time, most likely as this machine's clock is wrong: it says {now}"
    if not isinstance(error, KafkaConnectionError | NodeNotReadyError):
        return said
    options = connection.client_options()
    login = {name: value for name, value in options.items() if name in LOGIN or name.startswith("sasl_")}
    for host, port, _ in collect_hosts(options["bootstrap_servers"], randomize=False):
        why = await _knock(host, port, login)
        if why:
            return f"{host}:{port}: {why}"
    return said


async def _knock(host: str, port: int, login: dict[str, Any]) -> str:
    """Return why a broker does not let this side in; "" when it does."""
    try:
        async with asyncio.timeout(KNOCK_S):
            made = await create_conn(host, port, **login)
    except TimeoutError:
        return f"no answer within {KNOCK_S:.0f} s"
    except (KafkaError, OSError) as error:
        return _reason(error, login)
    made.close()
    return ""


def _reason(error: Exception, login: dict[str, Any]) -> str:
    cause = error.__cause__ or error
    match cause:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not believed ({cause.verify_message}); name the authority that it is from"
        case ssl.SSLError() if "ALERT" in str(cause):
            return f"it refused this side's certificate, or wants to see one ({cause})"
        case UnsupportedSaslMechanismError() | IllegalSaslStateError():
            return f"nobody logs in by {login['sasl_mechanism']} at this address"
        case OSError() | EOFError():
            # One side may speak TLS while the other does not.
            return f"{str(cause) or 'it closed the connection'} (over {login.get('security_protocol', 'PLAINTEXT')})"
        case _:
            return str(error.args[0]) if error.args else repr(error)


# --- tokens for OAUTHBEARER -------------------------------------------------------------------------------------------


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """Lets aiokafka ask a function for tokens.

    Whatever goes wrong there becomes an error of the connection being made, so that the client tries again. Any other
    error would end its work in the background for good.
    """

    def __init__(self, token: Token) -> None:
        self._token = token

    async def token(self) -> str:
        """Return a token.

        Raises:
            KafkaConnectionError: when there is none; the message says why.
        """
        try:
            async with asyncio.timeout(TOKEN_TIMEOUT_S):
                given: object = await self._token()
        except Exception as error:
            why = str(error) or ("it took too long" if isinstance(error, TimeoutError) else repr(error))
            raise KafkaConnectionError(f"there is no token to log in with: {why}") from error
        if not isinstance(given, str) or not BEARER.fullmatch(given):
            raise KafkaConnectionError("there is no token to log in with: what the function returned is none")
        return given


class _HearsRefusals(OAuthAuthenticator):  # type: ignore[misc]  # the same
    """Ends the login when the broker answers a token with any data: that is its refusal (RFC 7628, section 3.2.3)."""

    _sent = ""

    async def step(self, payload: bytes | None) -> Any:
        """Return the data to send next; None: nothing more.

        Raises:
            SaslAuthenticationFailed: when the broker refused the token.
        """
        if payload:
            said = payload.decode(errors="replace")
            raise SaslAuthenticationFailed(f"it refused the token{_late(self._sent)}: {said}")
        return await super().step(payload)

    def _build_oauth_client_request(self, token: str, token_extensions: str) -> str:
        self._sent = token
        request: str = super()._build_oauth_client_request(token, token_extensions)
        return request


def _late(token: str) -> str:
    """Return in words that a token has expired, if the token itself says so (a JWT); brokers do not."""
    try:
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        late_s = time.time() - claims["exp"]
    except (IndexError, KeyError, TypeError, ValueError):
        return ""
    return f" (which expired {late_s:.0f} s ago)" if late_s > 0 else ""


# aiokafka (0.14) takes the refusal for a success. The broker answers nothing to its next request, so aiokafka knows no
# broker from then on, and never tries again. There is no other way to change that (decision 0052).
AIOKafkaConnection.authenticator_oauth = lambda connection: _HearsRefusals(
    sasl_oauth_token_provider=connection._sasl_oauth_token_provider  # noqa: SLF001 - as it does
)

# It raises for a header's name that is no UTF-8, and its reader never gets beyond that record.
fetcher.MemoryRecords = Records


class _HearsErrors(GroupCoordinator):  # type: ignore[misc]  # the same
    """Raises what a broker says of a group as a whole when it is asked for committed offsets.

    Such an answer names no partition, so that aiokafka (0.14) takes it for that of a group without any offset: a broker
    that still loads the group, or is not its coordinator any more, would have a task begin its input anew.
    """

    async def _send_req(self, request: Any) -> Any:
        answer = await super()._send_req(request)
        if isinstance(request, OffsetFetchRequest) and (code := getattr(answer, "error_code", 0)):
            # It may be another broker by now.
            self.coordinator_dead()
            raise for_code(code)(self.group_id)
        return answer


consumers.GroupCoordinator = _HearsErrors


class _TakesNumbersBack(sender.SendProduceReqHandler):  # type: ignore[misc]  # the same
    """Gives the numbers of records that a broker has refused to those that come next.

    aiokafka (0.14) leaves a gap instead, after which brokers take nothing more of an idempotent producer.
    """

    def handle_response(self, response: Any) -> None:
        super().handle_response(response)
        numbers = self._sender._txn_manager  # noqa: SLF001 - nothing public has them
        for partition, batch in self._batches.items():
            error = batch.future.exception() if batch.future.done() and not batch.future.cancelled() else None
            # What was sent before this time, or failed for a moment alone, may be in the log.
            is_refused = batch.retry_count == 1 and isinstance(error, KafkaError) and not error.retriable
            if is_refused and numbers is not None and numbers.transactional_id is None:
                numbers.increment_sequence_number(partition, -batch.record_count)


sender.SendProduceReqHandler = _TakesNumbersBack
