"""A job's clients reach its broker as the environment says, at the address that the job names."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest
import trustme

from batonpass.cli.demo_job import HOT, DemoJob
from batonpass.cli.folder import UpFolder
from batonpass.core.state.policy import BalanceBy, parse_config
from batonpass.demo.job import Job, connection


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


def test_the_first_task_of_a_hot_job_gets_so_many_times_as_much() -> None:
    plain = Job(bootstrap="kafka:9092", group="totals", tasks=3, customers=10, rate=20)
    assert plain.turns == [0, 1, 2]
    words = plain.words().replace('"hot":1', '"hot":5')
    assert Counter(msgspec.json.decode(words, type=Job).turns) == {0: 5, 1: 1, 2: 1}


@pytest.mark.parametrize("hot", [False, True])
def test_the_load_of_a_hot_job_is_measured_in_shadow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, hot: bool
) -> None:
    monkeypatch.setenv("BATONPASS_KAFKA_BOOTSTRAP", "kafka:9092")
    job = DemoJob(UpFolder(tmp_path), 3, lambda _: None, hot=hot)
    job.prepare()
    config = parse_config(job.declaration()["config"])
    assert (job.job.hot, config.balance_by) == ((HOT, BalanceBy.SHADOW) if hot else (1, BalanceBy.DECLARED))
