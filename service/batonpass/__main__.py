"""The `batonpass` command: `batonpass ...` and `python -m batonpass ...` are the same."""

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
    try:
        app()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        extra = EXTRA_OF[package]
        say_on_stderr(f"batonpass: this needs {package}, of the extra `{extra}`: pip install 'batonpass[{extra}]'")
        sys.exit(Exit.UNREACHABLE)


if __name__ == "__main__":
    main()
