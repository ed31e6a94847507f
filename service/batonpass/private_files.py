"""Files with a secret in them, which only their owner can read."""

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, from its first byte on; one that was there is removed before.

    Raises:
        OSError: when that is not possible.
    """
    path.unlink(missing_ok=True)
    # A file that another process makes in between is not written to.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
