"""Podman with settings, images and volumes of its own, and Docker Compose that speaks to it.

It asks little of a machine: no systemd, no registry of images, no cgroups of version 2. What it keeps lies in
`.cache/containers`, so that a second run need not build everything again; `rm -rf` after `Engine.forget` takes it away.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx2 as httpx

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "containers"
LIMITS = ["nofile=1024:1024", "nproc=4096:4096"]
"""What Podman asks for by itself is more than every machine lets it have."""

LOOK_S = 1.0
NANOSECONDS = 1e9
NEVER = 1e18
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


class Failed(Exception):
    """A command of Podman did not end well. The message is what it said."""


class Engine:
    """One Podman service and what is run in it, until the block ends."""

    def __init__(self, cache: Path = CACHE) -> None:
        """Write down how containers are run here."""
        self._cache = cache
        self._cache.mkdir(parents=True, exist_ok=True)
        # Sockets and mounts: their paths must be short, and they end with the machine.
        self._run = Path(tempfile.mkdtemp(prefix="batonpass-", dir="/run"))
        self._socket = self._run / "podman.sock"
        (self._cache / "containers.conf").write_text(
            "[engine]\n"
            'runtime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
            f'tmp_dir = "{self._run}/libpod"\n'
            f'[network]\nnetwork_config_dir = "{self._cache}/networks"\n'
            f'[containers]\nlog_driver = "k8s-file"\ndefault_ulimits = {json.dumps(LIMITS)}\n'
        )
        # BATONPASS_CONTAINERS_STORAGE=vfs where the kernel has no overlayfs; that takes several times the room.
        driver = os.environ.get("BATONPASS_CONTAINERS_STORAGE", "overlay")
        (self._cache / "storage.conf").write_text(
            f'[storage]\ndriver = "{driver}"\ngraphroot = "{self._cache}/store"\nrunroot = "{self._run}/storage"\n'
        )
        self.environment = os.environ | {
            "CONTAINERS_CONF": str(self._cache / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self._cache / "storage.conf"),
            # There may be no systemd to check healths; `_check_healths` does it.
            "DISABLE_HC_SYSTEMD": "true",
            "DOCKER_HOST": f"unix://{self._socket}",
        }
        self._ended = threading.Event()
        self._checks = threading.Thread(target=self._check_healths)
        self._service: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start the service."""
        self._clear()
        command = ["podman", "system", "service", "--time=0", f"unix://{self._socket}"]
        with (self._cache / "podman.log").open("wb") as log:
            self._service = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        self._checks.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End all containers and the service."""
        self._ended.set()
        self._checks.join()
        assert self._service is not None
        try:
            self._clear()
        finally:
            self._service.terminate()
            self._service.wait()
        for store in (self._run / "storage" / "overlay", self._cache / "store" / "overlay"):
            subprocess.run(["umount", str(store)], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(self._run, ignore_errors=True)

    def _clear(self) -> None:
        """Remove all but images: also what a run left that was killed."""
        with contextlib.suppress(Failed):
            # One that ends at this very moment cannot be stopped; the second time it has ended.
            self.podman("rm", "--all", "--force", "--volumes", "--time=1")
        self.podman("rm", "--all", "--force", "--volumes", "--time=1")
        self.podman("volume", "rm", "--all", "--force")
        self.podman("network", "prune", "--force")

    def podman(self, *arguments: str | Path, stdin: Any = None) -> str:
        """Run a command of Podman and return what it says.

        Raises:
            Failed: when it does not end well.
        """
        done = subprocess.run(
            ["podman", *map(str, arguments)],
            env=self.environment,
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Failed(f"podman {' '.join(map(str, arguments))}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done.stdout

    def has(self, image: str) -> bool:
        """Tell whether there is an image of this name."""
        done = subprocess.run(["podman", "image", "exists", image], env=self.environment, check=False)
        return done.returncode == 0

    def build(self, folder: Path, target: str, image: str, file: str = "Dockerfile", **arguments: str) -> None:
        """Build a target of a folder's Dockerfile."""
        given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        self.podman(
            "build",
            "--format=docker",
            f"--file={folder / file}",
            f"--target={target}",
            f"--tag={image}",
            *given,
            folder,
        )

    def compose(
        self, *arguments: str, files: tuple[str, ...], given: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of Docker Compose on the files of the repository."""
        return subprocess.run(
            [*compose_command(), *(f"--file={ROOT / name}" for name in files), *arguments],
            cwd=ROOT,
            env=self.environment | dict(given),
            capture_output=True,
            text=True,
            check=False,
        )

    def make_base(self) -> None:
        """Make what stands in for python:3.11-slim-bookworm of Debian's own packages, unless it is there."""
        name = "docker.io/library/python:3.11-slim-bookworm"
        if self.has(name):
            return
        folder = self._cache / "bookworm"
        if not (folder / "usr/bin/python3").exists():
            shutil.rmtree(folder, ignore_errors=True)
            packages = "python3,python3-venv,ca-certificates"
            command = ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(folder)]
            subprocess.run(command, env=os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}, check=True)
            shutil.rmtree(folder / "var/lib/apt/lists")
            for package in (folder / "var/cache/apt/archives").glob("*.deb"):
                package.unlink()
        # Whoever builds behind a proxy has its authority among the machine's.
        shutil.copyfile(CERTIFICATES, folder / CERTIFICATES.lstrip("/"))
        changes = [f"--change=ENV SSL_CERT_FILE={CERTIFICATES}", '--change=CMD ["python3"]']
        with subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE) as packed:
            self.podman("import", *changes, "-", name, stdin=packed.stdout)

    def _check_healths(self) -> None:
        """Check the health of every container that says how, as often as it says: what systemd has Podman do."""
        due: dict[str, float] = {}
        transport = httpx.HTTPTransport(uds=str(self._socket))
        with httpx.Client(transport=transport, base_url="http://podman/v4.0.0/libpod", timeout=60) as ask:
            while not self._ended.wait(LOOK_S):
                # A container may be gone in between, and the service is not there at once.
                with contextlib.suppress(httpx.HTTPError, KeyError):
                    for one in ask.get("/containers/json").json() or []:
                        if due.get(one["Id"], 0) <= time.monotonic():
                            how = ask.get(f"/containers/{one['Id']}/json").json()["Config"].get("Healthcheck") or {}
                            if "Interval" in how:
                                ask.get(f"/containers/{one['Id']}/healthcheck")
                            due[one["Id"]] = time.monotonic() + how.get("Interval", NEVER) / NANOSECONDS


def compose_command() -> list[str]:
    """Return what runs Docker Compose here; `make containers` sees to it that there is one."""
    built = CACHE / "docker-compose"
    if built.exists():
        return [str(built)]
    return ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
