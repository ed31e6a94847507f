"""A job's clients reach its broker as the environment says, at the address that the job names."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from batonpass.demo.job import connection


def test_the_environment_says_how_the_broker_is_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a word of TLS it is spoken to in the clear."""
    monkeypatch.setenv("BATONPASS_KAFKA_BOOTSTRAP", "elsewhere:9092")
    plain = connection("kafka:9092", "load").client_options()
    assert plain == {"bootstrap_servers": "kafka:9092", "client_id": "load"}
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("BATONPASS_KAFKA_CA_FILE", str(tmp_path / "ca.pem"))
    safe = connection("kafka:9092", "load").client_options()
    assert safe.pop("ssl_context") is not None
    assert safe == plain | {"security_protocol": "SSL"}
