"""Reads the Kubernetes manifests: by following the kustomizations, and as a kustomize of this machine renders them."""

import functools
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml
from tests.deploy.queries import DEPLOY

KUBERNETES = DEPLOY / "kubernetes"
CUSTOM = yaml.safe_load((Path(__file__).parent / "custom_resources.yaml").read_text())
VERSION = "1.34.0"
Document = dict[str, Any]


def roots() -> list[Path]:
    """Return the folders that are there to be applied."""
    return [
        one.parent
        for one in sorted(KUBERNETES.rglob("kustomization.yaml"))
        if kustomization(one.parent)["kind"] != "Component"
    ]


@functools.cache
def kustomization(folder: Path) -> Document:
    """Return what a folder's kustomization says."""
    found: Document = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return found


def files(folder: Path) -> Iterator[Path]:
    """Yield every file of resources that a folder brings, with those of the folders that it names.

    Raises:
        FileNotFoundError: when one is named that is not there.
    """
    content = kustomization(folder)
    for name in [*content.get("resources", []), *content.get("components", [])]:
        path = (folder / name).resolve()
        if path.is_dir():
            yield from files(path)
        elif path.exists():
            yield path
        else:
            raise FileNotFoundError(path)


def documents(path: Path) -> list[Document]:
    """Return the documents of a file."""
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def resolved(folder: Path) -> list[Document]:
    """Return the documents of a folder before any patch."""
    return [one for path in files(folder) for one in documents(path)]


def renderer() -> list[str] | None:
    """Return the command that renders a folder; None where this machine has none."""
    for command in (["kustomize", "build"], ["kubectl", "kustomize"]):
        if shutil.which(command[0]):
            return command
    return None


@functools.cache
def _rendered(folder: Path) -> str:
    command = renderer()
    if command is None:
        return yaml.safe_dump_all(resolved(folder))
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(folder: Path) -> list[Document]:
    """Return the documents of a folder as they are applied; where nothing here can render, before any patch."""
    return [one for one in yaml.safe_load_all(_rendered(folder)) if one]


def fault(document: Document) -> str | None:
    """Return what is wrong with a document, by the strict schemas of Kubernetes or of the custom resources."""
    return _fault(json.dumps(document, sort_keys=True, default=str))


@functools.cache
def _fault(text: str) -> str | None:
    document = json.loads(text)
    kind = document["kind"]
    if kind in CUSTOM:
        schema = {
            "type": "object",
            "additionalProperties": False,
            "required": ["apiVersion", "kind", "metadata", "spec"],
            "properties": {
                "apiVersion": {"const": CUSTOM[kind]["apiVersion"]},
                "kind": {"const": kind},
                "metadata": {"type": "object", "required": ["name"]},
                "spec": CUSTOM[kind]["spec"],
            },
        }
        errors = sorted(jsonschema.Draft202012Validator(schema).iter_errors(document), key=str)
        return "; ".join(f"{error.json_path}: {error.message}" for error in errors) or None
    try:
        kubernetes_validate.validate(document, VERSION, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return f"{error.message}" if isinstance(error, kubernetes_validate.ValidationError) else f"no schema: {error}"
    return None


def pod(document: Document) -> Document | None:
    """Return the pod's specification in a document that makes pods."""
    spec = document.get("spec", {})
    if document["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    if document["kind"] in {"Deployment", "StatefulSet", "Job", "CronJob"}:
        found: Document = spec["template"]["spec"]
        return found
    return None


def named(found: list[Document], kind: str, name: str) -> Document:
    """Return the one document of a kind and a name."""
    (one,) = [one for one in found if one["kind"] == kind and one["metadata"]["name"] == name]
    return one
