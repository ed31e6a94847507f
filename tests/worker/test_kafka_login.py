"""Variables for logging in to Kafka: what goes together, and what is said of everything else before anything starts."""

import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka.errors import KafkaConnectionError
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from batonpass.worker.client_credentials import ClientCredentials
from batonpass.worker.kafka import KafkaConnection
from batonpass.worker.kafka_login import login_of

OAUTH = {
    "sasl_mechanism": "OAUTHBEARER",
    "oauth_token_url": "https://login.example/token",
    "oauth_client_id": "orders",
    "oauth_client_secret": "s3cret",
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """An authority, a certificate with its key, open, locked and of another certificate, and a secret, in files."""
    authority = trustme.CA()
    client, other = authority.issue_cert("orders"), authority.issue_cert("payments")
    locked = load_pem_private_key(client.private_key_pem.bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"of the key")
    )
    contents = {
        "ca": authority.cert_pem.bytes(),
        "cert": client.cert_chain_pems[0].bytes(),
        "both": client.private_key_and_cert_chain_pem.bytes(),
        "key": client.private_key_pem.bytes(),
        "locked": locked,
        "other": other.private_key_pem.bytes(),
        "secret": b"s3cret\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {name: str(tmp_path / name) for name in contents} | {"none": str(tmp_path / "none")}


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"sasl_mechanism": "GSSAPI"}, "SASL_MECHANISM is GSSAPI, which is none of PLAIN, SCRAM-SHA-256"),
        ({"sasl_mechanism": "PLAIN"}, "SASL_MECHANISM=PLAIN needs BATONPASS_KAFKA_USERNAME and BATONPASS_KAFKA_PASSWORD"),
        ({"sasl_mechanism": "PLAIN", "username": "u"}, "SASL_MECHANISM=PLAIN needs"),
        ({"username": "u", "password": "p"}, "USERNAME and BATONPASS_KAFKA_PASSWORD without BATONPASS_KAFKA_SASL_MECHANISM"),
        ({"tls": "true", "cert_file": "both", "username": "u"}, "BATONPASS_KAFKA_USERNAME without .* known by that"),
        (OAUTH | {"username": "u"}, "BATONPASS_KAFKA_USERNAME without .* known by that"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs BATONPASS_KAFKA_OAUTH_TOKEN_URL and BATONPASS_KAFKA_OAUTH_"),
        ({k: v for k, v in OAUTH.items() if k != "oauth_client_secret"}, "needs BATONPASS_KAFKA_OAUTH_CLIENT_SECRET$"),
        (OAUTH | {"oauth_client_secret_file": "secret"}, "SECRET and BATONPASS_KAFKA_OAUTH_CLIENT_SECRET_FILE: set one"),
        (OAUTH | {"oauth_token_url": "login.example"}, "OAUTH_TOKEN_URL is login.example, which is not a URL"),
        (OAUTH | {"oauth_token_url": "https://login.example:port"}, "which is not a URL"),
        (OAUTH | {"sasl_mechanism": ""}, "OAUTH_CLIENT_SECRET without BATONPASS_KAFKA_SASL_MECHANISM=OAUTHBEARER: set it"),
        (OAUTH | {"oauth_ca_file": "none"}, "OAUTH_CA_FILE names .*none, which cannot be read"),
        (OAUTH | {"oauth_ca_file": "secret"}, "OAUTH_CA_FILE names .*secret, which holds no certificates in PEM"),
        ({"ca_file": "."}, "KAFKA_CA_FILE names ., which cannot be read"),
        ({"ca_file": "none"}, "KAFKA_CA_FILE names .*none, which cannot be read"),
        ({"ca_file": "secret"}, "KAFKA_CA_FILE names .*secret, which holds no certificates in PEM"),
        ({"key_file": "key"}, "KEY_FILE without BATONPASS_KAFKA_CERT_FILE: name the certificate"),
        ({"key_password": "x"}, "KEY_PASSWORD without BATONPASS_KAFKA_CERT_FILE"),
        ({"cert_file": "cert"}, "CERT_FILE: .* private key in PEM .a key of its own file is named by BATONPASS_KAFKA_KEY_FILE"),
        ({"cert_file": "secret", "key_file": "key"}, "CERT_FILE and BATONPASS_KAFKA_KEY_FILE: .*; not a certificate"),
        ({"cert_file": "cert", "key_file": "other"}, "KEY_VALUES_MISMATCH"),
        ({"cert_file": "cert", "key_file": "locked"}, "locked is encrypted, and .*: set BATONPASS_KAFKA_KEY_PASSWORD"),
        ({"cert_file": "cert", "key_file": "locked", "key_password": "x"}, "or BATONPASS_KAFKA_KEY_PASSWORD is wrong"),
    ],
)  # fmt: skip
def test_variables_that_make_no_login_are_refused_by_name_and_without_their_secrets(
    named: dict[str, str], message: str, files: dict[str, str]
) -> None:
    found = {name: files.get(text, text) if name.endswith("_file") else text for name, text in named.items() if text}
    with pytest.raises(ValueError, match=message) as refused:
        login_of(found)
    assert "s3cret" not in str(refused.value)


def test_each_way_to_log_in_needs_no_more_than_its_own_variables(files: dict[str, str]) -> None:
    assert login_of({}) == {
        "tls": None, "sasl_mechanism": None, "username": None, "password": None, "token": None
    }  # fmt: skip
    for key in ({"cert_file": "both"}, {"cert_file": "cert", "key_file": "key"},
                {"cert_file": "cert", "key_file": "locked", "key_password": "of the key"}):  # fmt: skip
        found = {name: files.get(text, text) for name, text in key.items()}
        assert isinstance(login_of(found)["tls"], ssl.SSLContext)
    login = login_of(OAUTH | {"oauth_scope": "a b", "oauth_ca_file": files["ca"]})
    assert isinstance(login["token"], ClientCredentials)
    assert login["tls"] is None
    from_file = {name: text for name, text in OAUTH.items() if name != "oauth_client_secret"}
    assert login_of(from_file | {"oauth_client_secret_file": files["secret"]})["token"] is not None


async def own_token() -> str:
    """Return a token of one's own."""
    return "t"


def test_a_token_function_takes_the_place_of_an_endpoint() -> None:
    named = {"BATONPASS_KAFKA_BOOTSTRAP": "k:1", "BATONPASS_KAFKA_SASL_MECHANISM": "OAUTHBEARER"}
    made = KafkaConnection.from_environment(named, token=own_token)
    assert made is not None
    assert made.token is own_token
    options = made.client_options()
    assert (options["security_protocol"], options["sasl_mechanism"]) == ("SASL_PLAINTEXT", "OAUTHBEARER")
    assert options.keys().isdisjoint({"sasl_plain_username", "sasl_plain_password"})
    with pytest.raises(ValueError, match="BATONPASS_KAFKA_OAUTH_CLIENT_ID with a token function"):
        KafkaConnection.from_environment(named | {"BATONPASS_KAFKA_OAUTH_CLIENT_ID": "orders"}, token=own_token)
    with pytest.raises(ValueError, match="needs BATONPASS_KAFKA_OAUTH_TOKEN_URL"):
        KafkaConnection.from_environment(named)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a\nb", "what the function returned is none"),
        (None, "what the function returned is none"),
        (LookupError("no such file"), "no such file"),
        (RuntimeError(), "RuntimeError"),
        (TimeoutError(), "it took too long"),
    ],
)
async def test_a_function_that_gives_no_token_is_a_connection_that_could_not_be_made(
    given: object, message: str
) -> None:
    async def token() -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    connection = KafkaConnection(bootstrap_servers="k:1", sasl_mechanism="OAUTHBEARER", token=token)
    with pytest.raises(KafkaConnectionError, match=message):
        await connection.client_options()["sasl_oauth_token_provider"].token()


def test_a_connection_that_contradicts_itself_is_refused() -> None:
    with_password: dict[str, Any] = {"username": "u", "password": "p"}
    wrong: dict[str, Any]
    for wrong in (
        {"sasl_mechanism": "PLAIN", "username": "u"},
        with_password,
        with_password | {"sasl_mechanism": "OAUTHBEARER", "token": own_token},
    ):
        with pytest.raises(ValueError, match="username and password go with"):
            KafkaConnection(bootstrap_servers="k:1", **wrong)
    for wrong in ({"sasl_mechanism": "OAUTHBEARER"}, {"token": own_token}):
        with pytest.raises(ValueError, match="token goes with"):
            KafkaConnection(bootstrap_servers="k:1", **wrong)
    other = KafkaConnection(bootstrap_servers="k:1", sasl_mechanism="GSSAPI", extra={"sasl_kerberos_service_name": "k"})
    assert "sasl_plain_username" not in other.client_options()
