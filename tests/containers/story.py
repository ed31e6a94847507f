"""The images and the compose files, seen at work: `make containers`, as root, where Podman is or may be installed.

One story in the order of this file: every image is built, docker-compose.yml starts as it stands, workers come and one
dies, a coordinator is killed and comes back as the next version, the audit makes its report; then the same with TLS.
Images of others are stand-ins of the same names (`standins`), so that no registry is needed.
"""

import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from tests.containers.engine import CACHE, ROOT, Engine, Failed
from tests.waiting import wait_until

from batonpass.kafka.broker_parts import find_jars, find_java

pytestmark = pytest.mark.timeout(3_600)

PLAIN = ("docker-compose.yml",)
PRODUCTION = (*PLAIN, "deploy/compose/production.yml")
TARGETS = {
    "service": "batonpass",
    "dashboard": "batonpass-dashboard",
    "worker": "batonpass-worker",
    "audit": "batonpass-audit",
}
BEFORE, NOW = "batonpass:before", "batonpass:now"
STANDINS = {
    "postgres": "docker.io/library/postgres:18.0",
    "kafka": "docker.io/apache/kafka:4.1.0",
    "prometheus": "docker.io/prom/prometheus:v3.5.0",
    "grafana": "docker.io/grafana/grafana:12.2.0",
}
TASKS = 12
# Whoever does not answer yet, because it has only just started, is asked again.
eventually = partial(wait_until, within_s=300, every_s=2, despite=(Failed, httpx.HTTPError))
GET = """
import os, sys, urllib.request
asked = urllib.request.Request(sys.argv[1], headers={"authorization": "Bearer " + os.environ["BATONPASS_ADMIN_TOKEN"]})
print(urllib.request.urlopen(asked, timeout=30).read().decode())
"""
PLAIN_POSTGRES = """
import asyncio, os, asyncpg
asyncio.run(asyncpg.connect(os.environ["BATONPASS_DATABASE_URL"].partition("?")[0], ssl=False))
"""
PLAIN_KAFKA = """
import asyncio
from aiokafka.admin import AIOKafkaAdminClient
async def ask():
    await AIOKafkaAdminClient(bootstrap_servers="kafka:9092", request_timeout_ms=5000).start()
asyncio.run(ask())
"""
ENCRYPTED = """
select count(*) filter (where ssl), count(*)
from pg_stat_ssl join pg_stat_activity using (pid) where client_addr is not null
"""


class Stack:
    """What the compose files start, and questions to it."""

    def __init__(self, engine: Engine, commit: str) -> None:
        """Draw secrets of its own; nothing of a `.env` counts."""
        self.engine = engine
        self.commit = commit
        self.files: tuple[str, ...] = PLAIN
        names = ("POSTGRES_PASSWORD", "BATONPASS_ADMIN_TOKEN", "GRAFANA_PASSWORD")
        self.given: Mapping[str, str] = {name: secrets.token_hex(24) for name in names}

    def compose(self, *arguments: str) -> str:
        """Run a command of Docker Compose, which must end well; return what it says."""
        done = self.engine.compose("--env-file=/dev/null", *arguments, files=self.files, given=self.given)
        assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
        return done.stdout

    def up(self, *more: str) -> None:
        """Start what does not run as it should: everything, or what is named."""
        self.compose("up", "--detach", "--no-build", *more)

    def inspect(self, container: str) -> dict[str, Any]:
        """Return what Podman knows of a container."""
        found: dict[str, Any] = json.loads(self.engine.podman("container", "inspect", container))[0]
        return found

    def members(self, through: str = "coordinator-1") -> list[dict[str, Any]]:
        """Return the members of the demonstration's group, asked from inside a coordinator."""
        url = "http://127.0.0.1:8420/v1/groups/orders/members"
        output = self.engine.podman("exec", f"batonpass-{through}-1", "python3", "-c", GET, url)
        found: list[dict[str, Any]] = json.loads(output)["members"]
        return found

    def running(self, through: str = "coordinator-1") -> dict[str, str]:
        """Return which instance says that it runs each task that it is granted."""
        return {
            grant["task"]: member["instance_id"]
            for member in self.members(through)
            for grant in member["assignment"]["active"]
            if member["reports"].get(grant["task"], {}).get("state") == "running"
        }

    def workers(self) -> dict[str, str]:
        """Return the workers' containers by the instance ids that they have: their host names."""
        names = self.engine.podman("ps", "--format={{.Names}}").split()
        return {
            self.inspect(name)["Config"]["Hostname"]: name for name in names if name.startswith("batonpass-worker-")
        }


def git(*arguments: str) -> str:
    """Return what git says."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """Build every image, or take what of it is there, and lend what is started of them."""
    with Engine() as engine:
        engine.make_base()
        build_standins(engine)
        # The version before: the newest commit but one that changed what an image of the service holds.
        before = git("rev-list", "--max-count=2", "HEAD", "--", "service", "migrations").split()[-1]
        folder = CACHE / "before"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        with subprocess.Popen(["git", "archive", before], cwd=ROOT, stdout=subprocess.PIPE) as packed:
            subprocess.run(["tar", "-x", "-C", folder], stdin=packed.stdout, check=True)
        engine.build(folder, "service", BEFORE, COMMIT=before)
        commit = git("rev-parse", "HEAD")
        for target, image in (TARGETS | {"service": NOW}).items():
            engine.build(ROOT, target, image, COMMIT=commit)
        engine.podman("tag", BEFORE, "batonpass")
        yield Stack(engine, commit)


def build_standins(engine: Engine) -> None:
    """Build what stands in for the images of others."""
    folder = CACHE / "standins"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(Path(__file__).parent / "standins", folder)
    shutil.copytree(find_jars(find_java(), print), folder / "jars")
    for target, image in STANDINS.items():
        engine.build(folder, target, image, "Containerfile")


def test_every_image_starts_and_says_what_it_was_built_from(stack: Stack) -> None:
    """The list of what an image holds is its own, and its commit is this one."""
    confined = ("--rm", "--network=none", "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges")
    spark = {}
    for target, image in (TARGETS | {"service": NOW}).items():
        program = ["--entrypoint=batonpass", image, "--help"] if target == "worker" else [image, "--help"]
        assert "batonpass" in stack.engine.podman("run", *confined, *program)
        read = ["run", *confined, "--entrypoint=cat", image]
        assert json.loads(stack.engine.podman(*read, "/opt/batonpass/provenance.json"))["commit"] == stack.commit
        listed = json.loads(stack.engine.podman(*read, "/opt/batonpass/sbom.cdx.json"))["components"]
        assert "batonpass" in {one["name"] for one in listed}
        spark[target] = "pyspark" in {one["name"] for one in listed}
    assert spark == {"service": False, "dashboard": False, "worker": False, "audit": True}


def test_compose_starts_everything(stack: Stack) -> None:
    stack.up()
    eventually(lambda: len(stack.running()) == TASKS and len(set(stack.running().values())) == 3)
    found = httpx.get("http://127.0.0.1:9090/api/v1/rules").json()["data"]["groups"]
    assert sum(len(group["rules"]) for group in found) > 10
    targets = "http://127.0.0.1:9090/api/v1/targets"
    eventually(lambda: [one["health"] for one in httpx.get(targets).json()["data"]["activeTargets"]] == ["up", "up"])
    assert httpx.get("http://127.0.0.1:8421/livez").status_code == 200
    assert httpx.get("http://127.0.0.1:8420/readyz").status_code == 200
    assert "provisioning" in httpx.get("http://127.0.0.1:3000/").text


def test_no_root_can_be_written_to(stack: Stack) -> None:
    names = stack.engine.podman("ps", "--all", "--format={{.Names}}").split()
    assert len(names) > 10
    assert [name for name in names if not stack.inspect(name)["HostConfig"]["ReadonlyRootfs"]] == []


def test_a_fourth_worker_gets_three_of_the_twelve_tasks(stack: Stack) -> None:
    had = set(stack.workers())
    stack.up("--no-recreate", "--scale=worker=4", "worker")
    (new,) = set(stack.workers()) - had
    eventually(lambda: list(stack.running().values()).count(new) == 3)


def test_what_a_killed_worker_ran_runs_elsewhere(stack: Stack) -> None:
    killed, container = next(iter(stack.workers().items()))
    assert killed in stack.running().values()
    stack.engine.podman("kill", container)
    eventually(lambda: len(stack.running()) == TASKS and killed not in stack.running().values())


def test_a_coordinator_is_killed_and_the_next_version_takes_over(stack: Stack) -> None:
    stack.compose("kill", "coordinator-1")
    eventually(lambda: len(stack.running("coordinator-2")) == TASKS)
    stack.engine.podman("tag", NOW, "batonpass")
    stack.compose("run", "--rm", "--no-deps", "migrate")
    stack.up("--no-deps", "coordinator-1")
    eventually(lambda: len(stack.running()) == TASKS)
    stack.up("--no-deps", "coordinator-2")
    eventually(lambda: len(stack.running("coordinator-2")) == TASKS)
    now = json.loads(stack.engine.podman("image", "inspect", NOW))[0]["Id"]
    for name in ("coordinator-1", "coordinator-2"):
        assert stack.inspect(f"batonpass-{name}-1")["Image"] == now


def test_the_audit_reports(stack: Stack) -> None:
    """It ends with nothing fatal, for the day so far."""
    # It ends with 1 when a law was broken.
    stack.compose("run", "--rm", "--no-deps", "audit", "audit", "--day", "today", "--out", "/var/lib/batonpass")
    look = ("run", "--rm", "--volume=batonpass_audits:/audits:ro", "--entrypoint=sh", NOW, "-c", "ls /audits")
    assert "report-" in stack.engine.podman(*look)


def test_everything_speaks_tls(stack: Stack) -> None:
    """With the production file Postgres and Kafka answer no client without TLS, and the job runs as before."""
    stack.compose("down", "--volumes", "--timeout=5")
    stack.files = PRODUCTION
    stack.compose("--profile=demo", "up", "--detach", "--no-build")
    eventually(lambda: len(stack.running()) == TASKS)
    psql = ("psql", "--no-align", "--tuples-only", "--username=batonpass", f"--command={ENCRYPTED}")
    safe, every = (int(number) for number in stack.engine.podman("exec", "batonpass-postgres-1", *psql).split("|"))
    assert safe == every > 4
    assert "no encryption" in refused(stack, PLAIN_POSTGRES)
    assert "KafkaConnectionError" in refused(stack, PLAIN_KAFKA)
    assert "certificates" not in stack.engine.podman("ps", "--format={{.Names}}")


def refused(stack: Stack, program: str) -> str:
    """Return what a program says that fails, as it must, in a coordinator's container."""
    command = ["podman", "exec", "batonpass-coordinator-1-1", "python3", "-c", program]
    done = subprocess.run(command, env=stack.engine.environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stderr
