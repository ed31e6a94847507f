"""Every way to log in reaches every client, on a broker that lets no client in without; a refused client learns why."""

import asyncio
import logging
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import trustme
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from tests.contracts.memory_store import MemoryStore
from tests.kafka.cluster import known_to_broker, topics_of_a_job
from tests.kafka.secured_broker import PASSWORD, SCRAM, USER, SecuredBroker
from tests.token_server import CLIENT, SECRET, TokenServer
from tests.waiting import until
from tests.worker.kafka.totals import Job, Owner, check_exactly_once, write

from batonpass.bootstrap import build
from batonpass.codec.answers import to_json
from batonpass.codec.requests import read_declaration
from batonpass.core.state.ids import GroupId
from batonpass.core.state.policy import IsolationLevel
from batonpass.kafka.topics import TopicReader
from batonpass.kafka.watch import ClusterWatch
from batonpass.settings import Settings
from batonpass.worker import tls_context
from batonpass.worker.kafka import KafkaConnection
from batonpass.worker.kafka.transport import KafkaTransport
from batonpass.worker.kafka_login import Token
from batonpass.worker.protocol import Role
from batonpass.worker.testing import LocalCoordinator

GROUP = GroupId("orders")
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "kafka.md"


@dataclass(frozen=True)
class Place:
    """The broker, the token server, and a folder with what a client needs of them."""

    broker: SecuredBroker
    server: TokenServer
    folder: Path

    def variables(self, login: str) -> dict[str, str]:
        """Return the variables that let a process in, without ``BATONPASS_KAFKA_``, by the name of the listener."""
        listener = {"BOOTSTRAP": self.broker.secured.get(login, ""), "CA_FILE": str(self.folder / "ca.pem")}
        match login:
            case "passwords":
                return listener | {"SASL_MECHANISM": "PLAIN", "USERNAME": USER, "PASSWORD": PASSWORD}
            case "scram":
                return self.variables("passwords") | {"SASL_MECHANISM": SCRAM}
            case "certificates":
                files = {"CERT_FILE": str(self.folder / "client.pem"), "KEY_FILE": str(self.folder / "client.key")}
                return listener | files | {"KEY_PASSWORD": "of the key"}
            case _:
                secret = {"OAUTH_CLIENT_SECRET_FILE": str(self.folder / "secret")}
                client = {"OAUTH_TOKEN_URL": f"{self.server.url}/token", "OAUTH_CLIENT_ID": CLIENT}
                return listener | client | secret | {"SASL_MECHANISM": "OAUTHBEARER", "OAUTH_SCOPE": "topics"}

    def connection(self, login: str, **other: str | None) -> KafkaConnection:
        """Return a connection to a listener, with other variables where they are named."""
        wanted = self.variables(login) | other
        made = KafkaConnection.from_environment(
            {f"BATONPASS_KAFKA_{name}": value for name, value in wanted.items() if value is not None}
        )
        assert made is not None
        return made

    def own_tokens(self, token: Token) -> KafkaConnection:
        """Return a connection by tokens of a test's own."""
        variables = {name: self.variables("tokens")[name] for name in ("BOOTSTRAP", "CA_FILE", "SASL_MECHANISM")}
        made = KafkaConnection.from_environment(
            {f"BATONPASS_KAFKA_{name}": value for name, value in variables.items()}, token=token
        )
        assert made is not None
        return made

    async def job(self, connection: KafkaConnection) -> Job:
        """Make the topics of a job, by the open listener."""
        names = [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("orders", "totals", "store")]
        admin = AIOKafkaAdminClient(bootstrap_servers=self.broker.bootstrap_servers)
        await admin.start()
        try:
            await admin.create_topics(topics_of_a_job(names))
            for name in names:
                await known_to_broker(admin, name, 1)
        finally:
            await admin.close()
        return Job(connection, f"group-{uuid.uuid4().hex[:8]}", *names)


def has_all(owner: Owner, count: int) -> bool:
    """Say whether the numbers below ``count`` are in the owner's totals."""
    return sum(map(int, owner.totals().values())) == sum(range(count))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One broker for all of them: it is what takes the time."""
    folder, authority, server = tmp_path_factory.mktemp("secured"), trustme.CA(), TokenServer()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    client = authority.issue_cert("orders-0")
    client.cert_chain_pems[0].write_to_path(str(folder / "client.pem"))
    key = load_pem_private_key(client.private_key_pem.bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"of the key"))
    (folder / "client.key").write_bytes(locked)
    stranger = trustme.CA().issue_cert("orders-0")
    stranger.private_key_and_cert_chain_pem.write_to_path(str(folder / "stranger.pem"))
    (folder / "secret").write_text(f"{SECRET}\n")
    with server.listening(), SecuredBroker(folder, authority, server) as broker:
        yield Place(broker, server, folder)


@pytest.mark.needs("kafka")
@pytest.mark.parametrize("login", ["passwords", "scram", "certificates", "tokens"])
async def test_a_coordinator_reads_by_each_login(login: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await place.job(place.connection(login))
    for name, value in place.variables(login).items():
        monkeypatch.setenv(f"BATONPASS_KAFKA_{name}", value)
    process = build(Settings(kafka_topic_prefix=job.group, kafka_interval_ms=100, auth="off"), MemoryStore())
    part = {"id": "0", "source_topics": [job.source], "changelog_topics": [job.changelog]}
    body = to_json({"topology": {"subtopologies": [part]}})
    async with process.running():
        await process.coordinator.ask(GROUP, read_declaration(GROUP, body, if_match=None)[0])

        async def known() -> bool:
            group, soft = await process.coordinator.look(GROUP)
            return len(group.tasks) == 1 and len(soft.end_offsets) == 1

        await until(known)


@pytest.mark.needs("kafka")
@pytest.mark.parametrize("login", ["passwords", "scram", "certificates", "tokens", "tokens of its own"])
async def test_a_worker_restores_and_processes_by_each_login(
    login: str, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if login == "tokens of its own":
        shown, _ = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
        file = tmp_path / "token"
        file.write_text(place.server.token() + "\n")
        for name in ("BOOTSTRAP", "CA_FILE", "SASL_MECHANISM"):
            monkeypatch.setenv(f"BATONPASS_KAFKA_{name}", place.variables("tokens")[name])
        made: dict[str, Any] = {}
        exec(shown.replace("/var/run/secrets/kafka/token", str(file)), made)  # noqa: S102 - as the document shows it
        connection = made["connection"]
    else:
        connection = place.connection(login)
    job = await place.job(connection)
    for name, first in (("a", 0), ("b", 20)):
        owner = Owner(job.runtime(tmp_path / name, name))
        owner.hold("0_0", Role.ACTIVE)
        await write(job, 20, first=first)
        await until(partial(has_all, owner, first + 20))
        await owner.give_up("0_0")
    assert await check_exactly_once(job, 40) == ["a"] * 20 + ["b"] * 20


@pytest.mark.needs("kafka")
async def test_connections_outlive_their_tokens(place: Place, tmp_path: Path) -> None:
    """The broker closes a connection whose token is over."""
    given = 0

    async def token() -> str:
        nonlocal given
        given += 1
        return place.server.token(3)

    connection = place.own_tokens(token)
    job = await place.job(connection)
    owner, reader = Owner(job.runtime(tmp_path / "state", "a")), TopicReader(connection)
    owner.hold("0_0", Role.ACTIVE)
    count = 0
    opened = KafkaConnection(bootstrap_servers=place.broker.bootstrap_servers)
    async with AIOKafkaProducer(**opened.client_options(), linger_ms=5) as producer:
        # About ten connections at first, each of which is closed every three seconds.
        while given < 20 or "running" not in owner.states:
            await producer.send_and_wait(job.source, b"%d" % count, key=b"k%d" % (count % 10), partition=0)
            count += 1
            assert await reader.partition_counts([job.source]) == {job.source: 1}
            await reader.ends([(job.changelog, 0)], IsolationLevel.READ_COMMITTED)
            await asyncio.sleep(0.05)
    await until(partial(has_all, owner, count))
    await owner.give_up("0_0")
    await reader.close()
    assert await check_exactly_once(job, count) == ["a"] * count
    assert set(owner.states) == {"running"}


REFUSED: list[tuple[str, Callable[[Place], dict[str, str | None]], str]] = [
    ("passwords", lambda _: {"PASSWORD": "wrong"}, "Invalid username or password"),
    ("scram", lambda _: {"PASSWORD": "wrong"}, "invalid credentials"),
    ("passwords", lambda _: {"CA_FILE": None, "TLS": "true"}, "its certificate is not believed"),
    ("passwords", lambda _: {"CA_FILE": None}, "over SASL_PLAINTEXT"),
    ("passwords", lambda place: {"BOOTSTRAP": place.broker.secured["tokens"]}, "nobody logs in by PLAIN"),
    ("certificates", lambda _: {"CERT_FILE": None, "KEY_FILE": None, "KEY_PASSWORD": None}, "wants to see one"),
    (
        "certificates",
        lambda place: {"CERT_FILE": str(place.folder / "stranger.pem"), "KEY_FILE": None, "KEY_PASSWORD": None},
        "it refused this side's certificate",
    ),
    (
        "tokens",
        lambda place: {"OAUTH_CLIENT_SECRET_FILE": str(place.folder / "ca.pem")},
        "answered 401 (invalid_client",
    ),
    ("tokens", lambda _: {"OAUTH_TOKEN_URL": "http://127.0.0.1:1/token"}, "http://127.0.0.1:1/token gave none"),
    ("tokens", lambda place: {"OAUTH_TOKEN_URL": f"{place.server.url}/over"}, "it refused the token (which expired"),
]


@pytest.mark.needs("kafka")
@pytest.mark.parametrize(("login", "other", "words"), REFUSED, ids=[words for _, _, words in REFUSED])
async def test_who_is_refused_is_told_why(
    login: str, other: Callable[[Place], dict[str, str | None]], words: str, place: Place
) -> None:
    """Once, though no group asks for anything yet."""
    reasons: list[str | None] = []
    async with LocalCoordinator() as local:
        reader = TopicReader(place.connection(login, **other(place)))
        watch = ClusterWatch(local.coordinator, reader, away=reasons.append)
        await watch.look()
        await watch.look()
        await reader.close()
    assert len(reasons) == 1
    assert words in str(reasons[0])
    assert watch.reachable() == 0


@pytest.mark.needs("kafka")
async def test_who_was_refused_gets_in_with_the_next_token(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    is_good = False

    async def token() -> str:
        return place.server.token(300 if is_good else -100)

    connection = place.own_tokens(token)
    job = await place.job(connection)
    owner, reasons = Owner(job.runtime(tmp_path / "state", "a")), list[str | None]()
    async with LocalCoordinator() as local:
        watch = ClusterWatch(local.coordinator, TopicReader(connection), away=reasons.append)
        with caplog.at_level(logging.WARNING, logger="batonpass.worker.kafka"):
            owner.hold("0_0", Role.ACTIVE)
            await watch.look()
            await until(lambda: "it refused the token (which expired" in caplog.text)
        async with httpx.AsyncClient(transport=KafkaTransport(connection)) as client:
            with pytest.raises(httpx.ConnectError, match="it refused the token"):
                await client.put("http://kafka/v1/groups/orders/members/m1", json={})
        is_good = True
        await until(lambda: "running" in owner.states)
        await watch.look()
        assert len(reasons) == 2
        assert reasons[1] is None
        await watch._reader.close()
    await owner.give_up("0_0")
    is_good = False
    with pytest.raises(KafkaConnectionError, match="it refused the token"):
        await job.runtime(tmp_path / "state", "b").on_disk()


@pytest.mark.needs("kafka")
def test_the_document_shows_each_login(place: Place) -> None:
    shown = re.findall(r"```env\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    names = [[line.partition("=")[0].removeprefix("BATONPASS_KAFKA_") for line in block.split()] for block in shown]
    used = [sorted(place.variables(login)) for login in ("passwords", "certificates", "tokens")]
    assert [sorted(block) for block in names] == used


def test_the_environment_alone_says_where_and_how_to_connect_and_shows_no_password(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    assert KafkaConnection.from_environment({"BATONPASS_KAFKA_USERNAME": "u"}) is None
    plain = KafkaConnection.from_environment({"BATONPASS_KAFKA_BOOTSTRAP": "k:1", "BATONPASS_KAFKA_TLS": "false"})
    assert plain is not None
    assert plain.client_options() == {"bootstrap_servers": "k:1", "client_id": "batonpass"}
    over_tls = KafkaConnection.from_environment({"BATONPASS_KAFKA_BOOTSTRAP": "k:1", "BATONPASS_KAFKA_TLS": "true"})
    assert over_tls is not None
    assert over_tls.client_options()["security_protocol"] == "SSL"
    secret = KafkaConnection(
        bootstrap_servers="k:1", tls=tls_context(tmp_path / "ca.pem"), sasl_mechanism="PLAIN", username="u",
        password=PASSWORD, extra={"request_timeout_ms": 7},
    )  # fmt: skip
    options = secret.client_options()
    assert options["security_protocol"] == "SASL_SSL"
    assert (options["sasl_plain_username"], options["sasl_plain_password"], options["request_timeout_ms"]) == (
        "u",
        PASSWORD,
        7,
    )
    assert PASSWORD not in repr(secret)
    without_tls = KafkaConnection(
        bootstrap_servers="k:1", sasl_mechanism="SCRAM-SHA-512", username="u", password=PASSWORD
    )
    assert without_tls.client_options()["security_protocol"] == "SASL_PLAINTEXT"
