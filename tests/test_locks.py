"""The locks are in step with pyproject.toml, whole, and agree with one another."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "deploy" / "locks"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
GROUPS = PROJECT["dependency-groups"]
BASE = PROJECT["project"]["dependencies"]
SERVICE = [*BASE, *EXTRAS["server"], *EXTRAS["kafka"], *EXTRAS["dashboard"]]
WANTED = {
    "bootstrap": GROUPS["build"],
    "run": SERVICE,
    "dev": [*SERVICE, *EXTRAS["audit"], *GROUPS["build"], *GROUPS["lint"], *GROUPS["test"]],
    "audit": [*BASE, *EXTRAS["audit"]],
    "broker": [*BASE, *EXTRAS["broker"]],
    "sbom": GROUPS["sbom"],
}


def pins(name: str) -> dict[str, set[str]]:
    """Return each package of a lock with its versions: one, or one for each kind of machine."""
    found: dict[str, set[str]] = {}
    for package, version in re.findall(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==(\S+)", lock_text(name), re.MULTILINE):
        found.setdefault(package, set()).add(version)
    return found


def lock_text(name: str) -> str:
    """Return a lock as it stands."""
    return (LOCKS / f"{name}.lock").read_text()


def package_of(requirement: str) -> str:
    """Return the package that a requirement names, as a lock spells it."""
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0].lower().replace("_", "-").replace(".", "-")


def test_there_is_a_lock_for_each_purpose() -> None:
    assert {path.stem for path in LOCKS.glob("*.lock")} == set(WANTED)


@pytest.mark.parametrize("name", sorted(WANTED))
def test_every_direct_dependency_is_pinned(name: str) -> None:
    """Otherwise `make lock` was forgotten."""
    assert {package_of(requirement) for requirement in WANTED[name]} - set(pins(name)) == set()


@pytest.mark.parametrize("name", sorted(WANTED))
def test_every_pin_has_a_hash(name: str) -> None:
    requirements = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", lock_text(name), flags=re.MULTILINE).strip())
    assert len(requirements) == sum(len(versions) for versions in pins(name).values())
    assert [line for line in requirements if not re.match(r"\S+==\S+.*\\\n +--hash=sha256:[0-9a-f]{64}", line)] == []


@pytest.mark.parametrize("name", sorted(set(WANTED) - {"dev"}))
def test_locks_agree_on_versions(name: str) -> None:
    """So that one environment can serve every purpose."""
    developer = pins("dev")
    assert {
        package: v for package, v in pins(name).items() if package in developer and not v <= developer[package]
    } == {}
