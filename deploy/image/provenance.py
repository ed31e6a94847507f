"""Write down what an image was built from: `provenance.py LOCK WHEEL`, during the build, to standard output.

It is what the build says of itself, and nobody signs it: where builds are to be proven, your builder does that.
"""

import hashlib
import json
import os
import platform
import sys
import time
from pathlib import Path


def hashed(path: Path) -> dict[str, str]:
    """Return a file's name and what it hashes to."""
    return {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def main() -> None:
    """Print one object of JSON."""
    lock, wheel = (Path(name) for name in sys.argv[1:])
    image, _, digest = os.environ["PYTHON"].partition("@")
    said = {
        "commit": os.environ["COMMIT"] or None,
        "built_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "base": {"image": image, "digest": digest or None},
        "system": platform.freedesktop_os_release()["PRETTY_NAME"],
        "python": platform.python_version(),
        "lock": hashed(lock),
        "wheel": hashed(wheel),
    }
    print(json.dumps(said, indent=2))


if __name__ == "__main__":
    main()
