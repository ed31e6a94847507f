"""See to what `make containers` needs: Podman, debootstrap, and Docker Compose.

On Debian and Ubuntu, where the user is root, what is missing is installed with apt-get, said before it is done. Debian
12 has no Docker Compose 2: it is built with Go, from its module's sources, once, into `.cache`.
"""

import json
import os
import shutil
import subprocess

import system
from system import Part, answers, say

CACHE = system.ROOT / ".cache" / "containers"
COMPOSE = CACHE / "docker-compose"
COMPOSE_MODULE = "github.com/docker/compose/v2@v2.39.4"


def has_podman() -> bool:
    """Tell whether there is a Podman, with the runtime that needs the least of a machine, and what networks need."""
    return all(
        answers(*command) for command in (("podman", "--version"), ("runc", "--version"), ("iptables", "--version"))
    )


def has_compose() -> bool:
    """Tell whether there is a Docker Compose 2 or later, installed or built here."""
    return COMPOSE.exists() or any(
        "v2" in (answers(*one) or "") for one in (("docker-compose", "version"), ("docker", "compose", "version"))
    )


def build_compose() -> None:
    """Build Docker Compose with Go, where there is one."""
    go = shutil.which("go")
    if go is None:
        return
    say(f"building Docker Compose with Go, once (some minutes): {COMPOSE_MODULE}")
    done = subprocess.run([go, "mod", "download", "-json", COMPOSE_MODULE], capture_output=True, text=True, check=True)
    sources = CACHE / "compose-sources"
    shutil.rmtree(sources, ignore_errors=True)
    # What Go keeps cannot be written to, and its module is only whole where it is the main one.
    shutil.copytree(json.loads(done.stdout)["Dir"], sources, copy_function=shutil.copyfile)
    for folder in [sources, *(one for one in sources.rglob("*") if one.is_dir())]:
        folder.chmod(0o755)
    subprocess.run([go, "build", "-trimpath", "-o", str(COMPOSE), "./cmd"], cwd=sources, check=True)
    shutil.rmtree(sources)


PARTS = (
    Part(
        name="podman",
        what="Podman with runc",
        works=has_podman,
        packages=(("podman", "runc", "netavark", "aardvark-dns", "iptables"),),
        fedora="dnf install podman runc iptables",
        macos="there is none that runs containers without a virtual machine: use a Linux machine",
    ),
    Part(
        name="debootstrap",
        what="debootstrap, which makes the base of the images",
        works=lambda: shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin") is not None,
        packages=(("debootstrap",),),
        fedora="dnf install debootstrap",
        macos="use a Linux machine",
    ),
)


def prepare() -> None:
    """Have every part, or stop with what to do about those that are missing."""
    if os.geteuid() != 0:
        raise SystemExit("make containers: run it as root: it makes a base of Debian's packages, and networks")
    CACHE.mkdir(parents=True, exist_ok=True)
    system.have(PARTS)
    if not has_compose():
        build_compose()
    if not has_compose():
        raise SystemExit(
            "There is no Docker Compose 2: install docker-compose-v2, or Go 1.23 or later to build it here."
        )
