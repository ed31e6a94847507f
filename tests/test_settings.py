"""Every setting has a range and a purpose, is documented, and is refused where it makes no sense."""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
import trustme
from pydantic import SecretStr, ValidationError
from tests.settings_documents import DOCUMENT, EXAMPLE, SCHEMA, bounds, document, example, sections, variable

import batonpass.variables
from batonpass.cli.exits import Failure
from batonpass.cli.serve import settings_of
from batonpass.core.state.policy import RANGES, GroupConfig
from batonpass.settings import Settings, unread
from batonpass.worker.kafka import KafkaConnection

SERVICE = Path(__file__).resolve().parent.parent / "service"

FREE = {
    "host",
    "advertised_url",
    "tls_certfile",
    "tls_keyfile",
    "tls_client_ca",
    "tls_peer_ca",
    "database_url",
    "admin_token",
    "open_paths",
    "kafka_bootstrap",
    "kafka_client_id",
    "kafka_topic_prefix",
    "kafka_ca_file",
    "kafka_cert_file",
    "kafka_key_file",
    "kafka_username",
    "kafka_password",
    "kafka_key_password",
    "kafka_oauth_token_url",
    "kafka_oauth_client_id",
    "kafka_oauth_client_secret",
    "kafka_oauth_client_secret_file",
    "kafka_oauth_scope",
    "kafka_oauth_ca_file",
}
"""Settings that are text; the others have a range or a choice."""


def test_the_documents_are_those_of_the_settings() -> None:
    """`python -m tests.settings_documents` writes them."""
    assert DOCUMENT.read_text() == document()
    assert EXAMPLE.read_text() == example()


def test_every_setting_of_a_group_is_listed_with_its_default() -> None:
    config = msgspec.json.decode(SCHEMA.read_bytes())["$defs"]["config"]["properties"]
    defaults = msgspec.json.decode(msgspec.json.encode(GroupConfig()))
    assert {name: known["default"] for name, known in config.items()} == defaults
    for name, known in config.items():
        assert f"| `{name}` |" in DOCUMENT.read_text()
        assert known["description"].endswith("."), name
        if name in RANGES and "minimum" in known:
            assert (known["minimum"], known["maximum"]) == RANGES[name], name


def test_every_setting_is_listed_with_what_it_is_for() -> None:
    names = [name for _, names in sections() for name in names]
    assert sorted(names) == sorted(Settings.model_fields)
    for name, field in Settings.model_fields.items():
        assert field.description is not None
        assert field.description.rstrip().endswith("."), name
        assert bool(bounds(field)) == (name not in FREE), name


def test_the_defaults_are_valid_and_the_example_sets_nothing() -> None:
    found = Settings()
    assert (found.auth, found.admin_token, found.database_url) == ("on", None, None)
    assert [line for line in EXAMPLE.read_text().splitlines() if line and not line.startswith("#")] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, bound)
        for name, field in Settings.model_fields.items()
        for bound in field.metadata
        if hasattr(bound, "ge")
    ],
)
def test_a_value_below_its_range_is_refused(name: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    least = getattr(value, "ge", 0)
    monkeypatch.setenv(variable(name), str(least - 1))
    with pytest.raises(ValidationError, match=name):
        Settings()


NO_BROKERS = ("[::1", "::1:9092", "[::1]:x", "h:", "h:9092,", " , ", "http://h:9092", "a b:1", "[h]]:1", "h:999999")


@pytest.mark.parametrize("text", ["h", "h:9092", "h1:1, h2:2", "[::1]:9092", "[fe80::1%eth0]", "127.0.0.1:1,[::1]:2"])
def test_brokers_have_names_or_addresses(text: str) -> None:
    assert Settings(kafka_bootstrap=text).kafka_bootstrap == text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"auth": "perhaps"}, "auth"),
        ({"admin_token": "short"}, "24 characters"),
        ({"admin_token": "\ufeff" + "x" * 24}, "another character in it that no header takes"),
        ({"admin_token": "x" * 12 + "\t" + "x" * 12}, "another character in it that no header takes"),
        ({"admin_token": "é" * 24}, "another character in it that no header takes"),
        ({"admin_token": '"' + "x" * 24 + '"'}, "quotes around it"),
        ({"advertised_url": "http://a,http://b"}, "is not the URL of a coordinator"),
        ({"open_paths": "livez,everything"}, "everything"),
        ({"tls_keyfile": "key.pem"}, "cannot be read"),
        ({"lease_ms": "2000", "lease_renewal_ms": "1500"}, "lease_renewal_ms"),
        ({"advertised_url": "not a url"}, "advertised_url"),
        ({"log_level": "loud"}, "log_level"),
        ({"kafka_sasl_mechanism": "PLAIN"}, "BATONPASS_KAFKA_SASL_MECHANISM=PLAIN needs BATONPASS_KAFKA_USERNAME"),
        ({"kafka_username": "batonpass"}, "BATONPASS_KAFKA_USERNAME without BATONPASS_KAFKA_SASL_MECHANISM"),
        ({"kafka_sasl_mechanism": "GSSAPI"}, "kafka_sasl_mechanism"),
        ({"kafka_sasl_mechanism": "OAUTHBEARER"}, "needs BATONPASS_KAFKA_OAUTH_TOKEN_URL"),
        ({"kafka_key_password": "of the key"}, "BATONPASS_KAFKA_KEY_PASSWORD without BATONPASS_KAFKA_CERT_FILE"),
        ({"kafka_ca_file": "none.pem"}, "cannot be read"),
        *(({"kafka_bootstrap": wrong}, "BATONPASS_KAFKA_BOOTSTRAP names brokers") for wrong in NO_BROKERS),
    ],
)
def test_settings_that_make_no_sense_stop_the_start(
    given: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(variable(name), value)
    with pytest.raises(ValidationError, match=message):
        Settings()


@pytest.fixture
def certificates(tmp_path: Path) -> dict[str, Path]:
    """Return files with a certificate, its key, and the authority that made it."""
    authority = trustme.CA()
    made = authority.issue_cert("localhost")
    paths = {name: tmp_path / f"{name}.pem" for name in ("certfile", "keyfile", "ca")}
    made.cert_chain_pems[0].write_to_path(paths["certfile"])
    made.private_key_pem.write_to_path(paths["keyfile"])
    authority.cert_pem.write_to_path(paths["ca"])
    return paths


def test_a_tls_key_or_client_authority_needs_a_certificate(certificates: Mapping[str, Path]) -> None:
    for name, file in (("tls_keyfile", "keyfile"), ("tls_client_ca", "ca")):
        with pytest.raises(ValidationError, match="tls_certfile"):
            Settings.model_validate({name: certificates[file]})
    assert Settings(tls_certfile=certificates["certfile"], tls_keyfile=certificates["keyfile"]).is_tls
    assert not Settings().is_tls


@pytest.mark.parametrize("name", ["tls_certfile", "tls_keyfile", "tls_client_ca", "tls_peer_ca"])
def test_a_file_without_what_it_is_to_hold_is_named(
    name: str, certificates: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file.pem"
    file.write_text("x")
    files = {"tls_certfile": certificates["certfile"], "tls_keyfile": certificates["keyfile"], name: file}
    for one, value in files.items():
        monkeypatch.setenv(variable(one), str(value))
    with pytest.raises(Failure) as found:
        settings_of({})
    (fault,) = found.value.problem["errors"]
    assert variable(name) in fault["path"]
    assert "PEM" in fault["reason"]


def test_authorities_of_the_environment_that_cannot_be_used_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "authorities.pem"
    file.write_text("root:x:0:0")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(Failure, match="SSL_CERT_FILE"):
        settings_of({})


def test_a_file_of_keys_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The authorities are not to blame."""
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "nowhere" / "keys"))
    with pytest.raises(
        Failure, match=r"^SSLKEYLOGFILE=.*/nowhere/keys in the environment cannot be used: No such file"
    ):
        settings_of({})


def test_a_variable_that_nothing_reads_is_named() -> None:
    """A misspelled setting leaves what it was to set as it is by default: with this one, everybody is let in."""
    assert unread(["BATONPASS_TLS_CLIENT_CA_FILE", "batonpass_port", "BATONPASS_URL", "PATH", "NOT_BATONPASS_X"]) == [
        "BATONPASS_TLS_CLIENT_CA_FILE"
    ]


def test_every_variable_that_something_reads_is_known() -> None:
    """Commands, dashboard and workers have some of their own, which may stand in the coordinator's environment, too."""
    texts = "".join(one.read_text() for one in SERVICE.rglob("*.py"))
    named = set(re.findall(r"BATONPASS_[A-Z_]*[A-Z]\b", texts))
    named |= {f"BATONPASS_DASHBOARD_{name}" for name in re.findall(r"\{ENV\}([A-Z_]+)", texts)}
    assert len(named) > 30
    assert unread(named - {"BATONPASS_DASHBOARD"}) == []


def test_secrets_do_not_show() -> None:
    found = Settings(admin_token=SecretStr("x" * 24), database_url=SecretStr("postgresql://u:pw@h/db"))
    assert "x" * 24 not in repr(found)
    assert "pw@h" not in str(found)


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compose file leaves variables empty that its user does not need."""
    for name in ("kafka_username", "kafka_password", "kafka_oauth_client_secret", "kafka_oauth_scope"):
        monkeypatch.setenv(variable(name), "")
    assert Settings().kafka_login()["username"] is None


@pytest.mark.parametrize("end", ["\n", "\r\n", " ", "\t\n\n"])
def test_blanks_around_a_value_do_not_count(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret that was made from a file ends with a line break, in whatever variable it is."""
    given = {"database_url": "postgresql://u:pw@h/d", "admin_token": "x" * 24, "kafka_bootstrap": "k:9092", "port": "7"}
    for name, value in given.items():
        monkeypatch.setenv(variable(name), f"{end}{value}{end}")
    monkeypatch.setenv("BATONPASS_KAFKA_CLIENT_ID", end)
    found = Settings()
    assert found.database_url is not None
    assert found.admin_token is not None
    assert found.database_url.get_secret_value() == "postgresql://u:pw@h/d"
    assert found.admin_token.get_secret_value() == "x" * 24
    assert (found.kafka_bootstrap, found.port, found.kafka_client_id) == ("k:9092", 7, "batonpass")
    assert KafkaConnection.from_environment() == KafkaConnection(bootstrap_servers="k:9092", client_id="batonpass")
    assert batonpass.variables.variable("BATONPASS_DATABASE_URL") == "postgresql://u:pw@h/d"
    assert batonpass.variables.variable("BATONPASS_KAFKA_CLIENT_ID") is None


def test_variables_are_read_in_one_place() -> None:
    """What the conformance kit gives to a client under test is its own."""
    readers = [
        path.name
        for path in SERVICE.rglob("*.py")
        if re.search(r"""environ(?:\.get\(|\[)f?["']BATONPASS_""", path.read_text())
    ]
    assert readers == []


def test_open_paths_are_a_list_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing at all closes everything."""
    monkeypatch.setenv("BATONPASS_OPEN_PATHS", " livez , docs ")
    assert Settings().open_paths == ("livez", "docs")
    monkeypatch.setenv("BATONPASS_OPEN_PATHS", "")
    assert Settings().open_paths == ()


@pytest.mark.parametrize("more", ["?a=1", "#b", "/base?", "/base/#"])
def test_paths_of_calls_can_stand_behind_an_advertised_url(more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATONPASS_ADVERTISED_URL", f"http://coordinator.example:8420{more}")
    with pytest.raises(Failure) as refused:
        settings_of({})
    assert "has a ? or # in it" in refused.value.problem["errors"][0]["reason"]


@pytest.mark.parametrize("login", ["u:Zq7Secret@", "Zq7Secret@", ":Zq7Secret@"])
def test_an_advertised_url_has_no_secret_in_it(login: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATONPASS_ADVERTISED_URL", f"http://{login}coordinator.example:8420")
    with pytest.raises(Failure) as refused:
        settings_of({})
    faults = refused.value.problem["errors"]
    assert [one["path"] for one in faults] == ["BATONPASS_ADVERTISED_URL"]
    assert "a user or a password" in faults[0]["reason"]
    assert "Zq7Secret" not in str(faults)
