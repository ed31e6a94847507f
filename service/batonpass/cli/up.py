"""`batonpass up`: run the whole of Batonpass on this machine."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console

from batonpass.bootstrap import serve
from batonpass.settings import Settings

EXIT_ADDRESS = 1
EXIT_USAGE = 2


def up(
    port: Annotated[int | None, typer.Option(help="The port to listen on; 0 takes any free one.")] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
) -> None:
    """Run a coordinator on this machine. This version keeps everything in memory."""
    console = Console(highlight=False, soft_wrap=True)
    given = {name: value for name, value in (("port", port), ("host", host)) if value is not None}
    try:
        settings = Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        for fault in error.errors():
            print(f"batonpass: {'.'.join(map(str, fault['loc']))}: {fault['msg']}", file=sys.stderr)
        raise typer.Exit(EXIT_USAGE) from None
    # The server ends in good order when it is interrupted or terminated, and raises the signal again when it has.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        serve(settings, listening=lambda url: _greet(console, url))
    except OSError as error:
        print(f"batonpass: cannot listen on {settings.host}:{settings.port}: {error.strerror}.", file=sys.stderr)
        print("batonpass: choose another port with --port N, or any free one with --port 0.", file=sys.stderr)
        raise typer.Exit(EXIT_ADDRESS) from None
    except KeyboardInterrupt:
        pass
    console.print("Stopped. What was in memory is gone.")


def _greet(console: Console, url: str) -> None:
    console.print(f"[bold]Batonpass[/bold] listens on {url}")
    console.print("This version keeps everything in memory: when it stops, groups and members are forgotten.\n")
    console.print(f"  API         {url}/docs")
    console.print(f"  Readiness   {url}/readyz\n")
    console.print("Try next (docs/first-handover.md goes on from here to a warm handover):\n")
    console.print(f"  curl -X PUT {url}/v1/groups/orders \\", markup=False)
    console.print(
        """    -d '{"topology": {"subtopologies": [{"id": "0", "partitions": 4, "changelog_topics": ["store"]}]}}'""",
        markup=False,
    )
    console.print(f"  curl -X PUT {url}/v1/groups/orders/members/m1", markup=False)
    console.print(f"  curl {url}/v1/groups/orders\n", markup=False)
    console.print("Ctrl-C stops it.")
