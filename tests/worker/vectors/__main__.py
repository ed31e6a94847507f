"""``python -m tests.worker.vectors [--write]``: say which vectors come out otherwise, or write them anew."""

import sys

from tests.worker.vectors.making import changed


def main(arguments: list[str]) -> int:
    """Compare every vector with what its scene comes to now; with ``--write``, write that down."""
    found = changed()
    for path, text in found.items():
        if arguments == ["--write"]:
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
        sys.stdout.write(f"{path.name} {'has no scene' if text is None else 'comes out otherwise'}\n")
    return 0 if arguments == ["--write"] else len(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
