"""The `batonpass` command: `batonpass ...` and `python -m batonpass ...` are the same."""

import errno
import os
import signal
import sys

from batonpass.cli import EXTRA_OF, app
from batonpass.cli.exits import Exit
from batonpass.terminal import get_ready, say_on_stderr


def main() -> None:
    """Run the command line on this process's arguments and exit.

    A package that is missing because its extra was not installed is named together with the line that installs it,
    exit code 3. Any other missing module is a defect and raises.
    """
    get_ready()
    if os.getpid() == 1:
        # The kernel drops a signal for the first process of a container, unless it has a handler.
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    # Libraries read these, for a server of several processes. Each of ours is by itself, and may not have the folder.
    for name in ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir", "WEB_CONCURRENCY"):
        os.environ.pop(name, None)
    try:
        app()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        extra = EXTRA_OF[package]
        say_on_stderr(f"batonpass: this needs {package}, of the extra `{extra}`: pip install 'batonpass[{extra}]'")
        sys.exit(Exit.UNREACHABLE)
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        say_on_stderr(f"batonpass: the output cannot be written: {error.strerror}.")
        # What is left of the output would be tried again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(Exit.UNREACHABLE)


if __name__ == "__main__":
    main()
