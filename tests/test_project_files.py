"""What a host of the repository reads is well formed and in step with the rest; and a version stands once."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from batonpass import __version__

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
SCHEMAS = {
    "vendor.dependabot": [GITHUB / "dependabot.yml"],
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.github-issue-forms": [GITHUB / "ISSUE_TEMPLATE" / name for name in ("change.yml", "defect.yml")],
    "vendor.github-workflows": WORKFLOWS,
}
VERSION_IN = {
    "clients/kafka-streams/pom.xml": r"<artifactId>batonpass-kafka-streams</artifactId>\s*<version>([^<]+)<",
    "clients/kafka-streams/src/main/java/io/batonpass/streams/BatonpassTaskAssignor.java": r'VERSION = "([^"]+)"',
    "deploy/kubernetes/overlays/production/kustomization.yaml": r"newTag: (\S+)\}",
    "docs/audit.md": r"batonpass-([\d.]+)-py3-none-any\.whl",
    "docs/dashboard.md": r"batonpass-([\d.]+)-py3-none-any\.whl",
    "docs/kafka-streams.md": r"batonpass-kafka-streams[:-](\d+\.\d+\.\d+)",
    "docs/worker-guide.md": r"batonpass-([\d.]+)-py3-none-any\.whl",
    "README.md": r"batonpass-([\d.]+)-py3-none-any\.whl",
}
"""Where the version stands besides the package itself."""


@pytest.mark.parametrize("file", VERSION_IN)
def test_a_version_that_is_named_is_this_one(file: str) -> None:
    assert set(re.findall(VERSION_IN[file], (ROOT / file).read_text())) == {__version__}


def test_the_changelog_begins_with_this_version() -> None:
    heads = re.findall(r"^## \[(.+)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heads[0][0] == __version__
    assert all(re.fullmatch(r"unreleased|never released|\d{4}-\d\d-\d\d", when) for _, when in heads)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_forms_and_workflows_fit_their_schemas(schema: str) -> None:
    command = [str(BIN / "check-jsonschema"), "--builtin-schema", schema, *map(str, SCHEMAS[schema])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: str(path.name))
def test_actions_are_pinned_by_commit_with_the_version_beside_it(workflow: str) -> None:
    used = re.findall(r"uses: (.+)", Path(workflow).read_text())
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)] == []


def test_an_action_has_one_commit_in_all_workflows() -> None:
    pins = {tuple(found) for path in WORKFLOWS for found in re.findall(r"uses: (\S+)@(\S+)", path.read_text())}
    assert len(pins) == len({name for name, _ in pins})


def test_each_commit_runs_what_make_check_runs() -> None:
    code = "import json, steps; print(json.dumps([[one.name, *one.command] for one in steps.CHECK]))"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT / ".ci", capture_output=True, text=True, check=True)
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks: list[dict[str, Any]] = local["hooks"]
    assert [[hook["name"], *hook["entry"].removeprefix(".venv/bin/").split()] for hook in hooks] == json.loads(
        said.stdout
    )
    assert not any(hook["pass_filenames"] for hook in hooks)


def test_the_dev_container_can_be_read() -> None:
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text()
    found = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    assert found["forwardPorts"] == [8420, 8421]


def test_readme_fits_two_screens() -> None:
    """Of some 45 lines each; a table's row and a paragraph are a line here."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90
