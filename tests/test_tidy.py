"""The house style as far as a machine can see it: what the core may import, and what must not be left behind."""

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# The core, and the packages beside it that are as pure.
OWN = ("batonpass.core.", "batonpass.dry_run.", "batonpass.explain.", "batonpass.invariants.", "batonpass.placement.")
PURE = tuple(
    ROOT / "service" / "batonpass" / name for name in ("core", "dry_run", "explain", "invariants", "placement")
)
TOP_LEVEL = {
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "Dockerfile",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "clients",
    "deploy",
    "docker-compose.yml",
    "docs",
    "migrations",
    "pyproject.toml",
    "service",
    "tests",
}
PACKAGES = {"batonpass.core", *(f"batonpass.core.{name}" for name in ("arrivals", "handover", "state", "target"))}
# Values and ways to order them. Nothing here can tell the time, draw a number, wait, or reach outside the process.
CORE_MAY_IMPORT = {
    "abc",
    "bisect",
    "collections",
    "copy",
    "dataclasses",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "itertools",
    "math",
    "operator",
    "re",
    "shlex",
    "types",
    "typing",
}
# A letter in brackets keeps these patterns from finding themselves.
MARKERS = re.compile(
    r"F[I]XME|X[X]X|T[O]DO|N[o]tImplementedError|pytest\.mark\.(s[k]ip|x[f]ail)|assert T[r]ue\b|pragma: n[o] cover"
)
MACHINE_PATHS = re.compile(r"(?<![\w.*])/(w[o]rk|f[a]rm|r[o]ot|t[m]p)/|\.l[i]brary\b")
REGISTRIES = re.compile(
    r"p[y]pi\.org|p[y]thonhosted\.|regis[t]ry\.npm|d[e]b\.debian|rep[o]1?\.maven|p[r]oxy\.golang|c[r]ates\.io"
)


def kept_files() -> list[Path]:
    """Return the files that are tracked, or would be by the next `git add`."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(path for name in set(listed.stdout.split("\0")) if name and (path := ROOT / name).is_file())


FILES = kept_files()


@functools.cache
def core_modules() -> dict[Path, ast.Module]:
    """Return the modules of the core, and of the packages beside it that are as pure."""
    is_pure = [path for path in FILES if path.suffix == ".py" and any(folder in path.parents for folder in PURE)]
    return {path: ast.parse(path.read_text()) for path in is_pure}


def where(path: Path, line: int = 0) -> str:
    """Return a place as `path:line`, from the root."""
    return f"{path.relative_to(ROOT)}:{line}" if line else str(path.relative_to(ROOT))


def imported(tree: ast.Module) -> set[str]:
    """Return the modules that a module imports, wherever in it."""
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            # `from batonpass.core.handover import lag, probing` imports two modules.
            package = node.module in PACKAGES
            names |= {f"{node.module}.{alias.name}" for alias in node.names} if package else {node.module or "."}
    return names


def text_lines() -> Iterator[tuple[Path, int, str]]:
    """Yield every line of every text file that is kept."""
    for path in FILES:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        yield from ((path, number, line) for number, line in enumerate(text.splitlines(), 1))


def test_the_top_level_holds_only_what_is_listed() -> None:
    """Whatever is new belongs into one of the folders."""
    top = {path.relative_to(ROOT).parts[0] for path in FILES}
    assert {name for name in top if not name.startswith(".")} <= TOP_LEVEL


def may_import(path: Path) -> set[str]:
    """Return what a module of the core may import: placement has a solver, which is as pure as the rest."""
    return CORE_MAY_IMPORT | ({"numpy", "ortools"} if path.parent.name == "placement" else set())


def test_the_core_imports_values_only() -> None:
    """Placement may import its solver too."""
    foreign = {
        where(path): sorted(
            name
            for name in imported(tree)
            if not name.startswith(OWN) and name.partition(".")[0] not in may_import(path)
        )
        for path, tree in core_modules().items()
    }
    assert core_modules()
    assert {name: modules for name, modules in foreign.items() if modules} == {}


def test_the_core_has_no_any() -> None:
    found = [
        where(path, node.lineno)
        for path, tree in core_modules().items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id == "Any") or (isinstance(node, ast.Attribute) and node.attr == "Any")
    ]
    assert found == []


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (MARKERS, "a marker of something unfinished or left out"),
        (MACHINE_PATHS, "a path of somebody's machine"),
        (REGISTRIES, "the host name of a package registry"),
    ],
)
def test_nothing_is_left_behind(pattern: re.Pattern[str], why: str) -> None:
    found = [f"{where(path, number)}: {why}" for path, number, line in text_lines() if pattern.search(line)]
    assert found == []


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (MARKERS, "# FIX" + "ME later"),
        (MARKERS, "@pytest.mark.x" + "fail"),
        (MACHINE_PATHS, "open('/" + "root/x')"),
        (REGISTRIES, "https://py" + "pi.org/simple"),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern: re.Pattern[str], line: str) -> None:
    """So that finding nothing means something."""
    assert pattern.search(line)
