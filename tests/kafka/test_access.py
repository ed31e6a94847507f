"""TLS and SASL reach every client, on a broker that lets nobody in without both."""

from pathlib import Path

import pytest
import trustme
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from tests.kafka.cluster import known_to_broker
from tests.kafka.totals import Job, Owner, check_exactly_once, until, write

from batonpass.core.policy import IsolationLevel
from batonpass.kafka.broker import LocalBroker
from batonpass.kafka.topics import TopicReader
from batonpass.worker.kafka import KafkaConnection
from batonpass.worker.kafka.connection import client_tls
from batonpass.worker.protocol import Role

SECRET = "p4ss"  # noqa: S105 - of this test alone
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture
def authority() -> trustme.CA:
    """An authority that nobody knows."""
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    """Its certificate in a file."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return tmp_path / "ca.pem"


@pytest.fixture
def guarded(authority: trustme.CA, tmp_path: Path) -> LocalBroker:
    """A broker that listens with TLS and asks for a password, not started yet."""
    server = authority.issue_cert("127.0.0.1")
    store = tmp_path / "broker.pem"
    # Kafka reads keys in this form only.
    key = load_pem_private_key(server.private_key_pem.bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    store.write_bytes(key + b"".join(pem.bytes() for pem in server.cert_chain_pems))
    authority.cert_pem.write_to_path(str(tmp_path / "trusted.pem"))
    settings = {
        "inter.broker.listener.name": "SASL_SSL",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "trusted.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{LOGIN} username="broker" password="b" user_broker="b" user_batonpass="secret";'
        ),
    }
    return LocalBroker(tmp_path / "broker", settings=settings, heap_mb=256)


@pytest.mark.needs("kafka")
async def test_with_tls_and_a_password(guarded: LocalBroker, ca_file: Path, tmp_path: Path) -> None:
    """Coordinator and worker get through with the authority and the password, and nobody with less."""
    with guarded as broker:
        named = {
            "BATONPASS_KAFKA_BOOTSTRAP": broker.bootstrap_servers,
            "BATONPASS_KAFKA_CA_FILE": str(ca_file),
            "BATONPASS_KAFKA_SASL_MECHANISM": "PLAIN",
            "BATONPASS_KAFKA_USERNAME": "batonpass",
            "BATONPASS_KAFKA_PASSWORD": "secret",
        }
        connection = KafkaConnection.from_environment(named)
        assert connection is not None
        admin = AIOKafkaAdminClient(**connection.client_options())
        await admin.start()
        topics = ["orders", "totals", "store"]
        await admin.create_topics([NewTopic(topic, 1, 1) for topic in topics])
        for topic in topics:
            await known_to_broker(admin, topic, 1)
        await admin.close()
        reader = TopicReader(connection)
        assert await reader.partition_counts(topics) == dict.fromkeys(topics, 1)
        assert await reader.ends([("store", 0)], IsolationLevel.READ_COMMITTED) == {("store", 0): 0}
        await reader.close()
        job = Job(connection, "group", *topics)
        await write(job, 20)
        owner = Owner(job.runtime(tmp_path / "state", "a"))
        owner.hold("0_0", Role.ACTIVE)
        await until(lambda: len(owner.totals()) == 10)
        await owner.give_up("0_0")
        await check_exactly_once(job, 20)
        for lacking in ({"BATONPASS_KAFKA_PASSWORD": "wrong"}, {"BATONPASS_KAFKA_CA_FILE": ""}):
            less = KafkaConnection.from_environment(named | lacking)
            assert less is not None
            stranger = TopicReader(less)
            with pytest.raises(KafkaError):
                await stranger.partition_counts(topics)
            await stranger.close()


def test_what_the_environment_names(ca_file: Path) -> None:
    """Without a bootstrap server there is no connection, TLS is on when asked for, and no password is ever shown."""
    assert KafkaConnection.from_environment({"BATONPASS_KAFKA_USERNAME": "u"}) is None
    plain = KafkaConnection.from_environment({"BATONPASS_KAFKA_BOOTSTRAP": "k:1", "BATONPASS_KAFKA_TLS": "false"})
    assert plain is not None
    assert plain.client_options() == {"bootstrap_servers": "k:1", "client_id": "batonpass"}
    over_tls = KafkaConnection.from_environment({"BATONPASS_KAFKA_BOOTSTRAP": "k:1", "BATONPASS_KAFKA_TLS": "true"})
    assert over_tls is not None
    assert over_tls.client_options()["security_protocol"] == "SSL"
    secret = KafkaConnection(
        bootstrap_servers="k:1", tls=client_tls(ca_file), sasl_mechanism="PLAIN", username="u", password=SECRET,
        extra={"request_timeout_ms": 7},
    )  # fmt: skip
    options = secret.client_options()
    assert options["security_protocol"] == "SASL_SSL"
    assert (options["sasl_plain_username"], options["sasl_plain_password"], options["request_timeout_ms"]) == (
        "u",
        SECRET,
        7,
    )
    assert SECRET not in repr(secret)
    without_tls = KafkaConnection(
        bootstrap_servers="k:1", sasl_mechanism="SCRAM-SHA-512", username="u", password=SECRET
    )
    assert without_tls.client_options()["security_protocol"] == "SASL_PLAINTEXT"
