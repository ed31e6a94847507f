"""Make `.venv` fit for a purpose, from nothing: `run`, `dev`, `test`, `kafka` or `audit`; or write the locks: `lock`.

What is installed comes from the locks in `deploy/locks`, hash by hash. Purposes add to one another and never take
anything away, so `make run` leaves a developer's environment whole. A stamp for each purpose makes the second call
free; a file lock makes two calls at once wait for each other instead of writing over each other.

A Java runtime is added for the purposes that start a Kafka broker, only where the machine has no Java that will do; and
Ivy, which fetches the broker, where there is neither Maven nor Ivy.
`test` is `dev` with the parts outside of Python, which `system` sees to.

It runs on any Python 3.11 or later and imports the standard library only.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import containers
import system
from system import say

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCKS = ROOT / "deploy" / "locks"
PURPOSES = {
    "run": "what the service needs",
    "dev": "what the service, the audit, the checks and the tests need (with Spark; about 1 GB)",
    "audit": "what the nightly audit needs (with Spark, about 500 MB)",
    "broker": "a Java runtime for the Kafka broker, since there is no Java 17 or later (35 MB)",
    "sbom": "what lists the parts of a release",
}
# What these purposes install into .venv; what they need beside it, `main` adds.
SYNONYMS = {"demo": "run", "kafka": "run", "streams": "run", "test": "dev", "containers": "dev", "release": "dev"}
SERVICE = ("pyproject.toml", "--extra", "server", "--extra", "kafka", "--extra", "dashboard")
# In this order: `dev` is the widest and is resolved first, the others are held to its versions.
RESOLUTIONS = {
    "dev": (*SERVICE, "--extra", "audit", "--group", "build", "--group", "lint", "--group", "test"),
    "run": (*SERVICE, "--constraint", "deploy/locks/dev.lock"),
    "bootstrap": ("--group", "pyproject.toml:build", "--constraint", "deploy/locks/dev.lock"),
    "audit": ("pyproject.toml", "--extra", "audit", "--constraint", "deploy/locks/dev.lock"),
    "broker": ("pyproject.toml", "--extra", "broker", "--constraint", "deploy/locks/dev.lock"),
    "sbom": ("--group", "pyproject.toml:sbom", "--constraint", "deploy/locks/dev.lock"),
}


ELSEWHERE = {
    *("PYTHONHOME", "PYTHONPATH", "PYTHONUSERBASE", "VIRTUAL_ENV", "CONDA_PREFIX", "__PYVENV_LAUNCHER__"),
    *("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_DRY_RUN", "PIP_IGNORE_INSTALLED"),
    *("UV_TARGET", "UV_PREFIX", "UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_BREAK_SYSTEM_PACKAGES", "UV_PROJECT_ENVIRONMENT"),
}
"""Variables that would have packages installed elsewhere, or found elsewhere."""


def run(*command: str | Path) -> None:
    """Run a command in the repository's root; raise if it fails."""
    subprocess.run([str(part) for part in command], cwd=ROOT, env=clean(os.environ), check=True)


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which what is installed goes into .venv, whatever a user has set for other places.

    Where packages come from is left to the user. What is set here goes before pip's own files of settings.
    """
    kept = {name: said for name, said in environment.items() if name not in ELSEWHERE}
    return kept | {"PIP_USER": "0"}


@contextmanager
def alone() -> Iterator[None]:
    """Hold the environment's lock, waiting for whoever has it."""
    cache = ROOT / ".cache"
    try:
        cache.mkdir(exist_ok=True)
        lock = (cache / "environment.lock").open("w")
    except OSError as error:
        raise SystemExit(
            f"batonpass: cannot write to {ROOT}: {error.strerror}. make keeps .venv there: use a clone of your own, or "
            "run .venv/bin/batonpass if somebody has prepared this one."
        ) from error
    with lock as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another make that is preparing .venv")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def digest(*paths: Path) -> str:
    """Return what a stamp holds: a digest of the files that decide what is installed."""
    total = hashlib.sha256()
    for path in paths:
        total.update(path.read_bytes())
    return total.hexdigest()


def is_whole() -> bool:
    """Tell whether .venv is an environment of this very folder whose Python still starts."""
    python = VENV / "bin" / "python"
    if not python.exists():
        return False
    command = [str(python), "-c", "import sys; print(sys.prefix)"]
    asked = subprocess.run(command, env=clean(os.environ), capture_output=True, text=True, check=False)
    return asked.returncode == 0 and Path(asked.stdout.strip()).resolve() == VENV.resolve()


def bootstrap() -> None:
    """Make the environment itself, with uv and the build backend in it."""
    if not is_whole():
        say(f"making .venv with Python {sys.version.split()[0]}")
        try:
            run(sys.executable, "-m", "venv", "--clear", VENV)
        except subprocess.CalledProcessError as error:
            message = "this Python cannot make a virtual environment; on Debian: apt-get install python3-venv"
            raise SystemExit(message) from error
    lock = LOCKS / "bootstrap.lock"
    stamp = VENV / ".made-bootstrap"
    if not stamp.exists() or stamp.read_text() != digest(lock):
        say("installing uv and the build backend into .venv")
        pip = (VENV / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, "--require-hashes", "--requirement", lock)
        stamp.write_text(digest(lock))


def prepare(purpose: str) -> None:
    """Install what a purpose needs, unless its stamp says that this has been done."""
    bootstrap()
    lock = LOCKS / f"{purpose}.lock"
    wanted = digest(lock, ROOT / "pyproject.toml")
    stamp = VENV / f".made-{purpose}"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    say(f"installing into .venv {PURPOSES[purpose]}, from deploy/locks/{purpose}.lock")
    uv = (VENV / "bin" / "uv", "pip", "install", "--quiet", "--python", VENV / "bin" / "python")
    run(*uv, "--require-hashes", "--requirement", lock)
    run(*uv, "--no-deps", "--no-build-isolation", "--editable", ".")
    stamp.write_text(wanted)


def wants_broker(purpose: str) -> bool:
    """Tell whether a purpose includes a broker of this machine's own."""
    return purpose in {"demo", "kafka", "streams", "containers"} or (
        purpose in {"dev", "test"} and "kafka" not in system.left_out()
    )


def write_locks(*options: str) -> None:
    """Resolve every lock from pyproject.toml, for all platforms; `--upgrade` moves the versions, else they stay."""
    bootstrap()
    shape = ("--universal", "--python-version", "3.11", "--generate-hashes", "--no-emit-index-url", "--no-annotate")
    for name, wanted in RESOLUTIONS.items():
        say(f"resolving deploy/locks/{name}.lock")
        output = ("--quiet", "--custom-compile-command", "make lock", "--output-file", f"deploy/locks/{name}.lock")
        run(VENV / "bin" / "uv", "pip", "compile", *wanted, *shape, *output, *options)


def main() -> None:
    """Do what the first argument names."""
    purpose, *options = sys.argv[1:] or [""]
    with alone():
        if purpose == "lock":
            write_locks(*options)
        elif purpose in {*PURPOSES, *SYNONYMS} and not options:
            prepare(SYNONYMS.get(purpose, purpose))
            if purpose == "test":
                system.prepare()
            if purpose == "release":
                prepare("sbom")
            if purpose in {"streams", "release"}:
                system.have(tuple(part for part in system.PARTS if part.name == "maven"))
            if purpose == "containers":
                containers.prepare()
            if wants_broker(purpose) and not os.environ.get("BATONPASS_KAFKA_BOOTSTRAP"):
                if not system.has_java():
                    prepare("broker")
                if not system.can_fetch_broker():
                    system.fetch_ivy()
        else:
            raise SystemExit(f"usage: {sys.argv[0]} {{{','.join([*PURPOSES, *SYNONYMS])}}} | lock [--upgrade]")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failed:
        raise SystemExit(f"batonpass: failed: {' '.join(failed.cmd)}") from failed
