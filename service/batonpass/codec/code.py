"""Which program decides: a digest over everything that a decision depends on."""

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable

from batonpass import __version__

DIGITS = 12
SOLVER = "ortools"


@cache
def code_version() -> str:
    """Return the version of this program and a digest of its core's sources, as in ``0.1.0+3f1c2ab94e07``.

    Two programs with the same code version decide the same on the same input (L10). The sources are read once.
    """
    # If several placements are equally good, another version of the solver may choose another one.
    digest = hashlib.sha256(f"{SOLVER}=={_version(SOLVER)}\0".encode())
    for name, text in sorted(_sources(files("batonpass.core"))):
        digest.update(name.encode() + b"\0" + text + b"\0")
    return f"{__version__}+{digest.hexdigest()[:DIGITS]}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _sources(folder: Traversable, within: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield the name and the text of every module below a folder, packages of the core included."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{within}{entry.name}/")
        elif entry.name.endswith(".py"):
            yield within + entry.name, entry.read_bytes()
