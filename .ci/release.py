"""Make what is handed out, of the last commit, in `dist/`; then install it and run it: `make release`.

It makes the wheel, the source distribution, the jar for Kafka Streams, the context of the images, a bill of materials
for Python and one for Java (CycloneDX), and `SHA256SUMS` of all of these. Changes that are not committed are not in it.

Then, for each Python of `PYTHONS` that this machine has, the wheel goes into a fresh environment, with nothing but the
package index beside it: first alone, as a worker needs it, then with every extra. Each module is imported, and
`batonpass up` runs with a worker until that worker runs a task. A Python that is not here is named and left out: no
Python is downloaded. The source distribution has to make the very wheel again, byte for byte.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
BIN = Path(sys.executable).parent
SUMS = "SHA256SUMS"
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
BUILD_LIMIT_S: Final = 600
"""For each step that builds or installs."""

RUN_LIMIT_S: Final = 120
"""For `batonpass up` to have a task running, and for every short command."""

STOP_LIMIT_S: Final = 60
IMAGES = ("Dockerfile", ".dockerignore", "docker-compose.yml", "pyproject.toml", "README.md", "LICENSE")
IMAGES_FOLDERS = ("service", "migrations", "deploy")
IMPORTS = """
import importlib, pkgutil, batonpass
names = [found.name for found in pkgutil.walk_packages(batonpass.__path__, "batonpass.")]
names = [name for name in names if not name.endswith("__main__") and ".migrations" not in name]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


class Refused(Exception):
    """What was made is not fit to be handed out. The message says why."""


def say(words: str) -> None:
    """Tell what happens, at once."""
    print(f"batonpass: {words}", flush=True)


def run(*command: str | Path, cwd: Path = ROOT, limit_s: float = BUILD_LIMIT_S, **environment: str) -> str:
    """Run a command and return what it printed.

    Raises:
        Refused: with all that it said, when it failed or took longer than its limit.
    """
    given = [str(part) for part in command]
    try:
        done = subprocess.run(
            given, cwd=cwd, env=clean() | environment, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise Refused(f"took longer than {limit_s:g} s: {' '.join(given)}") from late
    if done.returncode:
        raise Refused(f"failed: {' '.join(given)}\n{done.stdout}{done.stderr}")
    return done.stdout


def clean() -> dict[str, str]:
    """Return the environment without what would reach into the environments that are made here."""
    ours = ("BATONPASS_", "PYTHON", "VIRTUAL_ENV", "UV_PYTHON")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def build(commit: str, tree: Path, dist: Path) -> None:
    """Make everything that is handed out, but the sums, of a commit, whose files are in ``tree``."""
    when = time_of(commit)
    say("building the wheel and the source distribution")
    run(BIN / "python", "-m", "hatchling", "build", "-d", dist, cwd=tree, SOURCE_DATE_EPOCH=when)
    version = version_of(only(dist, "*.whl"))
    say("building the jar, with its tests")
    maven = ("mvn", "-q", "-B", "-f", tree / "clients" / "kafka-streams" / "pom.xml")
    run(*maven, "clean", "verify", "org.cyclonedx:cyclonedx-maven-plugin:makeBom")
    target = tree / "clients" / "kafka-streams" / "target"
    shutil.copy(only(target, "batonpass-kafka-streams-*[0-9].jar"), dist)
    shutil.copy(target / "bom.json", dist / f"batonpass-kafka-streams-{version}.sbom.cdx.json")
    say("packing the context of the images")
    context = dist / f"batonpass-{version}-images.tar.gz"
    run("git", "archive", "--prefix", f"batonpass-{version}/", "-o", context, commit, *IMAGES, *IMAGES_FOLDERS)
    say("listing what the coordinator's image installs")
    bill = dist / f"batonpass-{version}.sbom.cdx.json"
    run(
        *(BIN / "cyclonedx-py", "requirements", tree / "deploy" / "locks" / "run.lock", "--output-reproducible"),
        *("--pyproject", tree / "pyproject.toml", "--output-file", bill),
        SOURCE_DATE_EPOCH=when,
    )
    listed = json.loads(bill.read_text())
    # It cannot know: the version stands in the package.
    listed["metadata"]["component"]["version"] = version
    bill.write_text(json.dumps(listed, indent=1) + "\n")


def time_of(commit: str) -> str:
    """Return when a commit was made, in seconds since 1970: what is made of it is dated so."""
    return run("git", "log", "-1", "--format=%ct", commit).strip()


def only(folder: Path, pattern: str) -> Path:
    """Return the one file of a folder that fits.

    Raises:
        Refused: when there is none, or another one beside it.
    """
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise Refused(f"expected one {pattern} in {folder}, found {[one.name for one in found]}")
    return found[0]


def version_of(wheel: Path) -> str:
    """Return the version in a wheel's name."""
    return wheel.name.split("-")[1]


def digests(dist: Path) -> str:
    """Return the SHA-256 of each file, in the form of ``sha256sum``."""
    files = sorted(path for path in dist.iterdir() if path.name != SUMS)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def check_names(tree: Path, dist: Path) -> None:
    """See that all is there, of one version, which the changelog has."""
    version = version_of(only(dist, "*.whl"))
    wanted = {
        f"batonpass-{version}-images.tar.gz",
        f"batonpass-{version}-py3-none-any.whl",
        f"batonpass-{version}.sbom.cdx.json",
        f"batonpass-{version}.tar.gz",
        f"batonpass-kafka-streams-{version}.jar",
        f"batonpass-kafka-streams-{version}.sbom.cdx.json",
    }
    if (found := {path.name for path in dist.iterdir()} - {SUMS}) != wanted:
        raise Refused(f"expected {sorted(wanted)}, found {sorted(found)}")
    if f"\n## [{version}]" not in (tree / "CHANGELOG.md").read_text():
        raise Refused(f"CHANGELOG.md says nothing of {version}")
    for bill in dist.glob("*.cdx.json"):
        if not json.loads(bill.read_text())["components"]:
            raise Refused(f"{bill.name} lists nothing")


def check_images(tree: Path, dist: Path) -> None:
    """See that the context has each file that the Dockerfile copies."""
    with tarfile.open(only(dist, "*-images.tar.gz")) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    copied = re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+) \S+$", (tree / "Dockerfile").read_text(), re.MULTILINE)
    if missing := set(" ".join(copied).split()) - names:
        raise Refused(f"the context of the images lacks {sorted(missing)}")


def check_source(commit: str, dist: Path, scratch: Path) -> None:
    """See that the source distribution makes the same wheel, byte for byte."""
    wheel = only(dist, "*.whl")
    say("making the wheel again from the source distribution")
    run("tar", "-xf", only(dist, f"batonpass-{version_of(wheel)}.tar.gz"), "-C", scratch)
    again = scratch / "again"
    build_again = (BIN / "python", "-m", "hatchling", "build", "-t", "wheel", "-d", again)
    run(*build_again, cwd=only(scratch, "batonpass-*"), SOURCE_DATE_EPOCH=time_of(commit))
    if only(again, "*.whl").read_bytes() != wheel.read_bytes():
        raise Refused("the source distribution makes another wheel")


def python_of(minor: str) -> str | None:
    """Return a Python of this machine of a version such as ``3.12``; None if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    tried = [shutil.which(f"python{minor}"), *sorted(map(str, pyenv.glob(f"{minor}.*/bin/python{minor}")))]
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    for python in filter(None, tried):
        asked = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        if asked.returncode == 0 and asked.stdout.strip() == minor:
            return python
    return None


def check_installed(wheel: Path, python: str, folder: Path) -> str:
    """Install the wheel in an empty folder with a Python, run it, and return how long that took."""
    begun = time.monotonic()
    # `python` is the environment's own from here on.
    run(BIN / "uv", "venv", "--quiet", "--no-python-downloads", "--python", python, folder / "venv", cwd=folder)
    bin_folder = folder / "venv" / "bin"
    install = (BIN / "uv", "pip", "install", "--quiet", "--python", bin_folder / "python")
    run(*install, wheel, cwd=folder)
    said = run(bin_folder / "batonpass", "--version", cwd=folder, limit_s=RUN_LIMIT_S).strip()
    if said != f"batonpass {version_of(wheel)}":
        raise Refused(f"the wheel says that it is {said}")
    run(bin_folder / "python", "-c", "import batonpass.worker", cwd=folder, limit_s=RUN_LIMIT_S)
    alone_s = time.monotonic() - begun
    extras = ",".join(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    run(*install, f"batonpass[{extras}] @ {wheel.as_uri()}", cwd=folder)
    modules = run(bin_folder / "python", "-c", IMPORTS, cwd=folder, limit_s=RUN_LIMIT_S).strip()
    all_s = time.monotonic() - begun
    with up(bin_folder / "batonpass", folder) as said_of_it:
        running = wait_for_a_task(said_of_it)
        url = f"{said_of_it['dashboard']}/livez"
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - it is this machine's
            answer.read()
    return (
        f"alone in {alone_s:.0f} s, with {extras} in {all_s:.0f} s, {modules} modules imported, "
        f"{running} tasks running after {time.monotonic() - begun:.0f} s"
    )


@contextmanager
def up(program: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """Run `batonpass up` with one worker, yield what it says of itself, and stop it as Ctrl-C does."""
    options = ("--simulated", "--workers", "1", "--no-audit", "--port", "0", "--dashboard-port", "0", "--json")
    log = folder / "up.log"
    with log.open("w") as written:
        process = subprocess.Popen(
            [program, "up", "--data", folder / "data", *options],
            cwd=folder, env=clean(), stdout=written, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield announced(process, log)
        process.send_signal(signal.SIGINT)
        if process.wait(STOP_LIMIT_S):
            raise Refused(f"`batonpass up` ended with {process.returncode}:\n{log.read_text()}")
    except subprocess.TimeoutExpired as late:
        raise Refused(f"`batonpass up` did not stop within {STOP_LIMIT_S} s:\n{log.read_text()}") from late
    finally:
        if process.poll() is None:
            # What it started ends with it.
            process.kill()
            process.wait()


def announced(process: subprocess.Popen[bytes], log: Path) -> dict[str, Any]:
    """Return the line of JSON in which `up` says where it is."""
    end = time.monotonic() + RUN_LIMIT_S
    while time.monotonic() < end and process.poll() is None:
        for line in log.read_text().splitlines():
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        time.sleep(0.2)
    raise Refused(f"`batonpass up` did not come up:\n{log.read_text()}")


def wait_for_a_task(said_of_it: dict[str, Any]) -> int:
    """Return how many tasks run, once any does."""
    url = f"{said_of_it['url']}/v1/groups/{said_of_it['group']}/explain"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {said_of_it['token']}"})  # noqa: S310 - it is this machine's
    end = time.monotonic() + RUN_LIMIT_S
    shown: dict[str, Any] = {}
    while time.monotonic() < end:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - the same
            shown = json.load(answer)
        if running := int(shown["tasks"].get("running", 0)):
            return running
        time.sleep(0.2)
    raise Refused(f"no task runs after {RUN_LIMIT_S} s: {shown}")


def check_pythons(dist: Path, scratch: Path) -> list[str]:
    """Install and run the wheel on each Python that is here; return a line on each of `PYTHONS`."""
    lines = []
    for minor in PYTHONS:
        python = python_of(minor)
        if python is None:
            lines.append(f"Python {minor}: not on this machine, not checked")
            continue
        say(f"installing and running the wheel on Python {minor}")
        folder = scratch / minor
        folder.mkdir()
        lines.append(f"Python {minor}: {check_installed(only(dist, '*.whl'), python, folder)}")
        shutil.rmtree(folder)
    if not any("running" in line for line in lines):
        raise Refused(f"none of {', '.join(PYTHONS)} is on this machine")
    return lines


def release() -> None:
    """Make and check everything, then put it in the place of what was in `dist/`."""
    commit = run("git", "rev-parse", "HEAD").strip()
    if changed := run("git", "status", "--porcelain").splitlines():
        say(f"{len(changed)} changes are not committed, and not in what is made")
    with tempfile.TemporaryDirectory(prefix="batonpass-release-") as made:
        scratch = Path(made)
        # Where root runs this, the database of `up` runs as nobody, who has to get in.
        scratch.chmod(0o755)
        tree, dist, source = (scratch / name for name in ("tree", "dist", "source"))
        for folder in (tree, dist, source):
            folder.mkdir()
        run("git", "archive", "-o", scratch / "tree.tar", commit)
        run("tar", "-xf", scratch / "tree.tar", "-C", tree)
        build(commit, tree, dist)
        sums = digests(dist)
        (dist / SUMS).write_text(sums)
        check_names(tree, dist)
        check_images(tree, dist)
        check_source(commit, dist, source)
        lines = check_pythons(dist, scratch)
        if digests(dist) != sums:
            raise Refused(f"the files are not those of {SUMS} any more")
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(dist, DIST)
    print(f"\n--- make release: commit {commit[:8]}, in dist/")
    print(sums, end="")
    print("\n".join(lines), flush=True)


if __name__ == "__main__":
    try:
        release()
    except Refused as refused:
        raise SystemExit(f"batonpass: {refused}") from refused
