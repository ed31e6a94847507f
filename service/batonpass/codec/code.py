"""Which program decides: a digest over everything that a decision depends on."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from batonpass import __version__

DIGITS = 12


@cache
def code_version() -> str:
    """Return the version of this program and a digest of its core's sources, as in ``0.1.0+3f1c2ab94e07``.

    Two programs of one code version decide the same on the same input (L10). It reads the sources once.
    """
    digest = hashlib.sha256()
    for source in sorted(files("batonpass.core").iterdir(), key=lambda one: one.name):
        if source.name.endswith(".py"):
            digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return f"{__version__}+{digest.hexdigest()[:DIGITS]}"
