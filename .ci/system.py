"""See to what `make test` needs outside of Python: Java, Maven, a Chromium, Prometheus with promtool, and pgbouncer.

And to what fetches a Kafka broker, for whatever starts one. Each is looked for by trying it, wherever it came from. On
Debian and Ubuntu what is missing is fetched with apt-get, said before it is done: packages are installed where the user
is root; Prometheus and pgbouncer are only unpacked into `.cache` and started from `.venv/bin`, by anybody, because
installing their packages would start a server on the machine. Elsewhere the run stops and says what to install, unless
BATONPASS_TEST_WITHOUT names the part.

It runs on any Python 3.11 or later and imports the standard library only.
"""

import getpass
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
BIN = ROOT / ".venv" / "bin"
IVY = ROOT / ".venv" / "share" / "java" / "ivy.jar"
SYSTEM_IVY = (Path("/usr/share/java/ivy.jar"), Path("/usr/share/ivy/ivy.jar"))
JAVA_MIN = 17
CHROMIUMS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
LOCK_WAIT_S = 300


class Part(NamedTuple):
    """Something outside of Python, by the name that BATONPASS_TEST_WITHOUT knows it by.

    `packages` are Debian's: sets of them, of which the first that there is will do.
    """

    name: str
    what: str
    works: Callable[[], bool]
    packages: tuple[tuple[str, ...], ...]
    fedora: str
    macos: str
    unpacked: bool = False


def answers(program: str | Path, *arguments: str) -> str | None:
    """Return what a program says, on either channel, or None where there is none that runs."""
    found = shutil.which(program, path=os.pathsep.join([str(BIN), os.environ.get("PATH", "")]))
    if found is None:
        return None
    try:
        done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None


def has_java() -> bool:
    """Tell whether there is a Java that Spark and a Kafka broker run on, in JAVA_HOME or on the path."""
    return has_of_java("java", r'version "(?:1\.)?(\d+)')


def has_of_java(program: str, says: str) -> bool:
    """Tell whether a program of Java's is there, in JAVA_HOME or on the path, that says a version new enough."""
    home = os.environ.get("JAVA_HOME")
    for each in ([f"{home}/bin/{program}"] if home else []) + [program]:
        version = re.search(says, answers(each, "-version") or "")
        if version and int(version.group(1)) >= JAVA_MIN:
            return True
    return False


def has_maven() -> bool:
    """Tell whether there is a Maven, and a compiler of Java for it."""
    return answers("mvn", "--version") is not None and has_of_java("javac", r"javac (?:1\.)?(\d+)")


def has_chromium() -> bool:
    """Tell whether there is a Chromium or Chrome that starts, and a font to draw with where fonts can be listed."""
    fonts = answers("fc-list")
    return (fonts is None or bool(fonts.strip())) and any(answers(name, "--version") for name in CHROMIUMS)


def has_prometheus() -> bool:
    """Tell whether there are promtool and the server that it belongs to."""
    return answers("promtool", "--version") is not None and answers("prometheus", "--version") is not None


def has_pgbouncer() -> bool:
    """Tell whether there is a pgbouncer that finds its libraries."""
    return answers("pgbouncer", "--version") is not None


PARTS = (
    Part(
        name="spark",
        what="Java 17 or later, for Spark",
        works=has_java,
        packages=(("openjdk-17-jre-headless",), ("openjdk-21-jre-headless",)),
        fedora="dnf install java-latest-openjdk-headless",
        macos="brew install openjdk@17, then export JAVA_HOME=$(brew --prefix openjdk@17)",
    ),
    Part(
        name="maven",
        what="Maven with a compiler for Java 17 or later, for the plug-in for Kafka Streams",
        works=has_maven,
        packages=(("maven", "openjdk-17-jdk-headless"), ("maven", "openjdk-21-jdk-headless")),
        fedora="dnf install maven java-latest-openjdk-devel",
        macos="brew install maven",
    ),
    Part(
        name="chromium",
        what="Chromium with a font, for the tests of the dashboard",
        works=has_chromium,
        packages=(("chromium", "fonts-dejavu-core"),),
        fedora="dnf install chromium dejavu-sans-fonts",
        macos="brew install --cask chromium",
    ),
    Part(
        name="promtool",
        what="Prometheus with promtool, for the tests of the alert rules",
        works=has_prometheus,
        packages=(("prometheus",),),
        fedora="dnf install golang-github-prometheus",
        macos="brew install prometheus",
        unpacked=True,
    ),
    Part(
        name="pgbouncer",
        what="pgbouncer, for the tests with a pooler in front of Postgres",
        works=has_pgbouncer,
        packages=(("pgbouncer", "libc-ares2", "libevent-2.1-7"), ("pgbouncer", "libcares2", "libevent-2.1-7t64")),
        fedora="dnf install pgbouncer",
        macos="brew install pgbouncer",
        unpacked=True,
    ),
)


def say(words: str) -> None:
    """Tell what is about to happen, at once."""
    print(f"batonpass: {words}", flush=True)


def left_out() -> set[str]:
    """Return the parts that BATONPASS_TEST_WITHOUT names."""
    return {part.strip() for part in os.environ.get("BATONPASS_TEST_WITHOUT", "").split(",")}


def apt_get(*arguments: str, cwd: Path = ROOT) -> bool:
    """Run apt-get without questions, waiting for whoever else runs it; tell whether it did what was asked."""
    options = ("-o", f"DPkg::Lock::Timeout={LOCK_WAIT_S}", "-o", f"APT::Sandbox::User={getpass.getuser()}")
    command = ["apt-get", "-qq", *options, *arguments]
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, cwd=cwd, env=quiet, stdout=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def unpack(name: str, packages: tuple[str, ...]) -> bool:
    """Unpack Debian packages into .cache, with starters of their programs in .venv/bin; tell whether that went well."""
    folder = CACHE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # Fetched as the user who asks: apt's own could not write into the folder, and apt-get would warn of it.
    if not apt_get("download", *packages, cwd=folder):
        return False
    for fetched in folder.glob("*.deb"):
        extract = [str(shutil.which("dpkg-deb")), "--extract", str(fetched), str(folder)]
        if subprocess.run(extract, check=False).returncode:
            return False
        fetched.unlink()
    libraries = os.pathsep.join(map(str, [folder / "usr" / "lib", *sorted(folder.glob("usr/lib/*-linux-*"))]))
    for program in (*folder.glob("usr/bin/*"), *folder.glob("usr/sbin/*")):
        starter = BIN / program.name
        starter.unlink(missing_ok=True)
        lines = [f"export LD_LIBRARY_PATH={shlex.quote(libraries)}", f'exec {shlex.quote(str(program))} "$@"']
        starter.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        starter.chmod(0o755)
    return True


def fetch(parts: list[Part]) -> None:
    """Fetch parts with apt-get as far as it is there and the user may; whether that helped is looked at afterwards."""
    root = os.geteuid() == 0
    wanted = [part for part in parts if root or part.unpacked]
    if not wanted or shutil.which("apt-get") is None:
        return
    if root and not apt_get("update"):
        say("apt-get could not refresh its lists; going on with those that are there")
    for part in wanted:
        for packages in part.packages:
            names = " and ".join(packages)
            if part.unpacked:
                say(f"unpacking {names} into .cache with apt-get: {part.what} (nothing is installed or started)")
                done = unpack(part.name, packages)
            else:
                say(f"installing {names} with apt-get: {part.what}")
                done = apt_get("install", "-y", "--no-install-recommends", *packages)
            if done:
                break


def can_fetch_broker() -> bool:
    """Tell whether the jars of a Kafka broker are there, or something that can fetch them."""
    if os.environ.get("BATONPASS_KAFKA_JARS") or answers("mvn", "--version"):
        return True
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batonpass"
    inside = (ROOT / ".venv").glob("lib/python*/site-packages/pyspark/jars/ivy-*.jar")
    return any(path.exists() for path in (IVY, *SYSTEM_IVY, *inside, *cache.glob("kafka-*")))


def fetch_ivy() -> None:
    """Unpack Ivy's jar out of its Debian package, where there is one; else the broker says later what is missing."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return
    say("unpacking ivy into .venv with apt-get: it fetches the Kafka broker (nothing is installed on the machine)")
    folder = CACHE / "ivy"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    got = apt_get("download", "ivy", cwd=folder)
    if not got and os.geteuid() == 0:
        got = apt_get("update") and apt_get("download", "ivy", cwd=folder)
    for fetched in folder.glob("*.deb") if got else ():
        subprocess.run([str(shutil.which("dpkg-deb")), "--extract", str(fetched), str(folder)], check=False)
    for jar in folder.glob("usr/share/java/ivy.jar"):
        IVY.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(jar, IVY)


def advice(part: Part) -> str:
    """Return what to do about a part that is not there."""
    instead = f", or leave its tests out: BATONPASS_TEST_WITHOUT={part.name}" if part in PARTS else ":"
    return "\n".join(
        [
            f"There is no {part.what}. Install it{instead}",
            f"  Debian, Ubuntu:  apt-get install {' '.join(part.packages[0])}",
            f"  Fedora:          {part.fedora}",
            f"  macOS:           {part.macos}",
        ]
    )


def prepare() -> None:
    """Have every part that this run does not leave out, or stop with what to do about those that are missing."""
    without = left_out()
    have(tuple(part for part in PARTS if part.name not in without))


def have(wanted: tuple[Part, ...]) -> None:
    """Have these parts, or stop with what to do about those that are missing."""
    missing = [part for part in wanted if not part.works()]
    fetch(missing)
    if missing := [part for part in missing if not part.works()]:
        raise SystemExit("\n".join(advice(part) for part in missing))
