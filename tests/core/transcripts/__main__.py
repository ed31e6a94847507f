"""``python -m tests.core.transcripts [--write]``: say which transcripts come out otherwise, or write them anew."""

import sys

from tests.core.transcripts.player import play, transcripts


def main(arguments: list[str]) -> int:
    """Compare every transcript with what comes out now; with ``--write``, write that down."""
    changed = {path: found for path in transcripts() if (found := play(path.read_text())) != path.read_text()}
    for path, found in changed.items():
        if arguments == ["--write"]:
            path.write_text(found)
        sys.stdout.write(f"{path.name} comes out otherwise\n")
    return 0 if arguments == ["--write"] else len(changed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
