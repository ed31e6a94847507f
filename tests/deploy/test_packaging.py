"""The images and the compose file: well formed, without root, without secrets, and in step with the rest."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from tests.deploy.queries import DEPLOY, ROOT

from batonpass.settings import Settings

BIN = Path(sys.executable).parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = ROOT / "docker-compose.yml"
PRODUCTION = DEPLOY / "compose" / "production.yml"
# Settings of programs other than the coordinator.
OTHERS = {
    "BATONPASS_URL",
    "BATONPASS_TOKEN",
    "BATONPASS_DASHBOARD_HOST",
    "BATONPASS_DASHBOARD_PORT",
    "BATONPASS_DASHBOARD_TOKEN",
    "BATONPASS_DASHBOARD_ALLOWED_HOSTS",
    "BATONPASS_DASHBOARD_BEHIND_TLS",
}
SETTINGS = {f"BATONPASS_{name.upper()}" for name in Settings.model_fields} | OTHERS


def services(file: Path = COMPOSE) -> dict[str, dict[str, Any]]:
    """Return the services of a compose file."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text())["services"]
    return found


def stages() -> dict[str, str]:
    """Return the text of each stage of the Dockerfile by its name."""
    found = re.split(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)
    return {name: f"FROM {base}{text}" for base, name, text in zip(*[iter(found[1:])] * 3, strict=True)}


def test_hadolint_finds_nothing() -> None:
    done = subprocess.run([BIN / "hadolint", "Dockerfile"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_compose_files_fit_their_schema() -> None:
    command = [str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(COMPOSE), str(PRODUCTION)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_shell_scripts_can_be_read() -> None:
    scripts = sorted(DEPLOY.rglob("*.sh"))
    assert scripts
    for script in scripts:
        assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
        assert "set -euo pipefail" in script.read_text()


def test_images_end_as_a_user_with_a_number_that_is_not_roots() -> None:
    made = stages()
    for target in ("service", "dashboard", "worker", "audit"):
        users: list[str] = []
        stage = target
        while stage in made:
            users = re.findall(r"^USER (\S+)$", made[stage], re.MULTILINE) + users
            stage = re.match(r"FROM (\S+)", made[stage])[1]  # type: ignore[index]
        assert users[-1] == "10001:10001"


def test_images_install_what_is_locked() -> None:
    """The coordinator's locks have no Spark, and the audit's no web server."""
    locks = set(re.findall(r"deploy/locks/(\w+)\.lock", DOCKERFILE))
    assert locks == {"bootstrap", "run", "audit", "sbom"}
    assert DOCKERFILE.count("--require-hashes") == len(locks)
    packages = {
        name: set(re.findall(r"^([a-z0-9-]+)==", (DEPLOY / "locks" / f"{name}.lock").read_text(), re.MULTILINE))
        for name in locks
    }
    # pandas comes with the solver of placement.
    assert packages["run"] & {"pyspark", "pyarrow"} == set()
    assert packages["audit"] & {"fastapi", "uvicorn", "starlette", "sqlalchemy"} == set()


def test_what_is_copied_is_sent_to_the_builder() -> None:
    let = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copies = re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+) \S+$", DOCKERFILE, re.MULTILINE)
    for path in " ".join(copies).split():
        assert (ROOT / path).exists(), path
        assert any(path == one or path.startswith(f"{one}/") for one in let), path


def test_compose_builds_targets_that_are_there() -> None:
    built = {one["image"]: one["build"]["target"] for one in services().values() if "build" in one}
    assert set(built.values()) <= set(stages())
    for one in services().values():
        if "build" in one:
            assert built[one["image"]] == one["build"]["target"]
        else:
            named = re.fullmatch(r"\$\{[A-Z]+_IMAGE:-[\w./-]+:v?\d[\w.]+\}", one["image"])
            assert named, "an image of others has a version, and can be named by its digest"


def test_every_root_is_read_only() -> None:
    added = {name: one for name, one in services(PRODUCTION).items() if name not in services()}
    assert set(added) == {"certificates"}
    assert [name for name, one in (services() | added).items() if one.get("read_only") is not True] == []


def test_in_production_each_client_of_postgres_and_kafka_knows_which_authority_to_believe() -> None:
    safe = services(PRODUCTION)
    for name, one in services().items():
        for variable, wanted in (
            ("BATONPASS_DATABASE_URL", "sslmode=verify-full"),
            ("BATONPASS_KAFKA_BOOTSTRAP", None),
        ):
            if variable in one.get("environment", {}):
                environment = safe[name]["environment"]
                assert wanted is None or wanted in environment[variable], name
                assert wanted is not None or "BATONPASS_KAFKA_CA_FILE" in environment, name


def test_images_are_pinned_by_what_lies_here(tmp_path: Path) -> None:
    """The script names every image of others with the digest that the engine tells."""
    engine = tmp_path / "engine"
    engine.write_text('#!/bin/sh\necho "example.com/${5%:*}@sha256:$(printf %064d 7)"\n')
    engine.chmod(0o755)
    script = DEPLOY / "compose" / "pin.sh"
    done = subprocess.run(
        [script], env={"DOCKER": str(engine), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    lines = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert set(lines) == {f"{name}_IMAGE" for name in ("GRAFANA", "KAFKA", "POSTGRES", "PROMETHEUS", "PYTHON")}
    assert all(re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:0{63}7", image) for image in lines.values())


def test_compose_has_no_secret_of_its_own() -> None:
    text = COMPOSE.read_text()
    given = re.findall(r"\$\{(\w*(?:PASSWORD|TOKEN|SECRET)\w*)([^}]*)\}", text)
    assert {name for name, _ in given} == {"POSTGRES_PASSWORD", "BATONPASS_ADMIN_TOKEN", "GRAFANA_PASSWORD"}
    assert all(rest.startswith(":?") for _, rest in given)
    for name, one in services().items():
        for variable, value in one.get("environment", {}).items():
            if re.search(r"PASSWORD|TOKEN(?!_FILE)|SECRET|DATABASE_URL", variable):
                assert ":?" in str(value), f"{name}: {variable}"
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", []))


def test_compose_sets_what_there_is() -> None:
    for name, one in services().items():
        ours = {variable for variable in one.get("environment", {}) if variable.startswith("BATONPASS_")}
        assert ours <= SETTINGS, name
        for mount in one.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (ROOT / source).is_dir(), source


def test_the_workers_can_be_scaled() -> None:
    worker = services()["worker"]
    assert "container_name" not in worker
    assert "ports" not in worker
    assert worker["stop_grace_period"] == "2m"


def test_every_night_is_audited_without_anybody_asking() -> None:
    """What the audit writes outlives its container."""
    one = services()["audit"]
    assert ("profiles" in one, one["restart"]) == (False, "unless-stopped")
    *arguments, out = one["command"]
    assert arguments == ["audit", "--nightly", "--out"]
    assert f"audits:{out}" in one["volumes"]
