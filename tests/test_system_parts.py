"""`make test` finds the parts outside of Python by trying them, fetches them where it may, and else says what to do."""

import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.conftest import PARTS
from tests.programs import CHROMIUMS

SCRIPT = Path(__file__).resolve().parent.parent / ".ci" / "system.py"
GOOD_JAVA = "echo 'openjdk version \"17.0.15\"' >&2"
GOOD_JAVAC = "echo javac 17.0.15"


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load the script for a machine with nothing on its path, and a user who is not root."""
    spec = importlib.util.spec_from_file_location("system", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("path", "bin"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(module, "BIN", tmp_path / "bin")
    monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(module, "CHROMIUMS", ("chromium",))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("BATONPASS_TEST_WITHOUT", raising=False)
    return module


def program(folder: Path, name: str, script: str = "echo 1.0") -> None:
    """Put a program on the machine."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{script}" if "import" in script else f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def apt_get(tmp_path: Path) -> Path:
    """Put an apt-get on the machine that installs what it is asked for, and return the list of what it was asked."""
    calls = tmp_path / "asked"
    script = f"""
import pathlib, sys
arguments = [word for word in sys.argv[1:] if not word.startswith("-") and "::" not in word]
pathlib.Path({str(calls)!r}).open("a").write(" ".join(arguments) + "\\n")
path, java, javac = pathlib.Path({str(tmp_path / "path")!r}), {GOOD_JAVA!r}, {GOOD_JAVAC!r}
for package in arguments[1:]:
    if arguments[0] == "download":
        pathlib.Path(f"{{package}}_1.deb").touch()
    elif package in ("openjdk-17-jre-headless", "openjdk-17-jdk-headless"):
        sys.exit(100)
    else:
        name, says = ("java", java) if "jre" in package else ("javac", javac) if "jdk" in package else (package, "echo 1.0")
        name = "mvn" if name == "maven" else name
        (path / name).write_text(f"#!/bin/sh\\n{{says}}\\n")
        (path / name).chmod(0o755)
"""
    program(tmp_path / "path", "apt-get", script)
    unpack = """
import pathlib, sys
fetched = pathlib.Path(sys.argv[2]).name.partition("_")[0]
places = {"prometheus": ("bin/prometheus", "bin/promtool"), "pgbouncer": ("sbin/pgbouncer",)}
for name in places.get(fetched, ()):
    program = pathlib.Path(sys.argv[3]) / "usr" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/bin/sh\\necho 2.42, libraries in $LD_LIBRARY_PATH\\n")
    program.chmod(0o755)
"""
    program(tmp_path / "path", "dpkg-deb", unpack)
    return calls


def test_the_parts_are_those_that_a_run_may_leave_out(system: ModuleType) -> None:
    """The broker alone comes with Python packages."""
    assert {part.name for part in system.PARTS} == PARTS - {"kafka"}


def test_tests_look_for_the_same_browsers() -> None:
    listed = re.search(r"CHROMIUMS = \((.*?)\n\)", SCRIPT.read_text(), re.DOTALL)
    assert listed is not None
    assert tuple(re.findall(r'"([^"]+)"', listed[1])) == CHROMIUMS


def test_parts_that_work_are_not_installed_again(system: ModuleType, tmp_path: Path) -> None:
    calls = apt_get(tmp_path)
    program(tmp_path / "path", "java", GOOD_JAVA)
    program(tmp_path / "path", "javac", GOOD_JAVAC)
    for name in ("chromium", "mvn", "pgbouncer", "prometheus", "promtool"):
        program(tmp_path / "path", name)
    system.prepare()
    assert not calls.exists()


@pytest.mark.parametrize(
    ("script", "good"),
    [
        (GOOD_JAVA, True),
        ("echo 'openjdk version \"25\" 2025-09-16' >&2", True),
        ("echo 'openjdk version \"11.0.2\"' >&2", False),
        ("echo 'java version \"1.8.0_392\"' >&2", False),
        ("echo 'No Java runtime present' >&2; exit 1", False),
    ],
)
def test_java_is_tried_and_its_version_read(system: ModuleType, tmp_path: Path, script: str, *, good: bool) -> None:
    """A Java may be too old, or only pretend to be there, as on macOS."""
    program(tmp_path / "path", "java", script)
    assert system.has_java() is good


@pytest.mark.parametrize(
    ("script", "good"),
    [(GOOD_JAVAC, True), ("echo javac 21", True), ("echo javac 1.8.0_392 >&2", False), ("exit 127", False)],
)
def test_maven_needs_a_compiler(system: ModuleType, tmp_path: Path, script: str, *, good: bool) -> None:
    """A Java that runs programs may compile none, or only old ones."""
    program(tmp_path / "path", "javac", script)
    assert not system.has_maven()
    program(tmp_path / "path", "mvn")
    assert system.has_maven() is good


def test_java_home_is_looked_at(system: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "path", "java", "echo 'openjdk version \"11.0.2\"' >&2")
    home = tmp_path / "jdk" / "bin"
    home.mkdir(parents=True)
    program(home, "java", GOOD_JAVA)
    monkeypatch.setenv("JAVA_HOME", str(home.parent))
    assert system.has_java()


def test_a_chromium_without_any_font_is_none(system: ModuleType, tmp_path: Path) -> None:
    """A browser that would draw no letter does not count, nor one that does not start."""
    program(tmp_path / "path", "chromium")
    assert system.has_chromium()
    program(tmp_path / "path", "fc-list", "true")
    assert not system.has_chromium()
    program(tmp_path / "path", "fc-list", "echo DejaVu Sans")
    assert system.has_chromium()
    program(tmp_path / "path", "chromium", "echo cannot open shared object file >&2; exit 127")
    assert not system.has_chromium()


def test_root_gets_what_is_missing(
    system: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Servers are only unpacked, with their libraries; where a Java is not to be had the next one is tried."""
    calls = apt_get(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    system.prepare()
    assert calls.read_text().splitlines() == [
        "update",
        "install openjdk-17-jre-headless",
        "install openjdk-21-jre-headless",
        "install maven openjdk-17-jdk-headless",
        "install maven openjdk-21-jdk-headless",
        "install chromium fonts-dejavu-core",
        "download prometheus",
        "download pgbouncer libc-ares2 libevent-2.1-7",
    ]
    assert system.answers("promtool").startswith("2.42")
    assert str(tmp_path / "cache" / "pgbouncer" / "usr" / "lib") in system.answers("pgbouncer")
    output = capfd.readouterr().out
    assert "installing chromium and fonts-dejavu-core with apt-get" in output
    assert "nothing is installed or started" in output


def test_who_is_not_root_is_told_what_to_install(system: ModuleType, tmp_path: Path) -> None:
    calls = apt_get(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        system.prepare()
    assert calls.read_text().splitlines() == ["download prometheus", "download pgbouncer libc-ares2 libevent-2.1-7"]
    words = str(stopped.value)
    assert "apt-get install openjdk-17-jre-headless" in words
    assert "BATONPASS_TEST_WITHOUT=chromium" in words
    assert "promtool" not in words


def test_where_there_is_no_apt_get(system: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as stopped:
        system.prepare()
    words = str(stopped.value)
    assert all(words.count(f"  {name}") == 5 for name in ("Debian, Ubuntu:", "Fedora:", "macOS:"))


def test_what_is_left_out_is_not_looked_for(system: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATONPASS_TEST_WITHOUT", "spark, chromium,pgbouncer,promtool,maven")
    system.prepare()


def test_ivys_jar_is_unpacked_where_there_is_neither_maven_nor_ivy_nor_jars(
    system: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "ROOT", tmp_path)
    monkeypatch.setattr(system, "SYSTEM_IVY", ())
    monkeypatch.setattr(system, "IVY", tmp_path / "venv" / "ivy.jar")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("BATONPASS_KAFKA_JARS", raising=False)
    assert not system.can_fetch_broker()
    system.fetch_ivy()
    assert not system.can_fetch_broker()
    calls = apt_get(tmp_path)
    program(
        tmp_path / "path",
        "dpkg-deb",
        "import pathlib, sys; to = pathlib.Path(sys.argv[3]) / 'usr/share/java'; to.mkdir(parents=True); "
        "(to / 'ivy.jar').write_text('jar')",
    )
    system.fetch_ivy()
    assert calls.read_text() == "download ivy\n"
    assert (tmp_path / "venv" / "ivy.jar").read_text() == "jar"
    assert system.can_fetch_broker()
    (tmp_path / "venv" / "ivy.jar").unlink()
    (tmp_path / "xdg" / "batonpass" / "kafka-4.3.1").mkdir(parents=True)
    assert system.can_fetch_broker()
    (tmp_path / "xdg" / "batonpass" / "kafka-4.3.1").rmdir()
    program(tmp_path / "path", "mvn")
    assert system.can_fetch_broker()
