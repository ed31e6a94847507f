"""What runbooks say to run can be run as it stands."""

import re
import shlex
from pathlib import Path
from string import Template
from urllib.parse import quote

import httpx2 as httpx
import pytest
import typer
from tests.e2e.running import Up
from typer.testing import CliRunner

from batonpass.cli import app
from batonpass.postgres.embedded import DATABASE, USER

RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"
PAGES = sorted(path for path in RUNBOOKS.glob("*.md") if path.stem != "README")
EXAMPLE = {"GROUP": "demo", "TASK": "orders_5", "MEMBER": "demo-2"}


def looks() -> list[str]:
    """Return the commands under *Look* of all runbooks, each once."""
    blocks = [re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL) for page in PAGES]
    return sorted({line for found in blocks for block in found for line in block.splitlines()})


def mentioned() -> list[str]:
    """Return every other command of the program that a runbook names with arguments, indented or in the text."""
    text = "\n".join(page.read_text() for page in PAGES)
    found = re.findall(r"^ {4,}(batonpass .+)$|`(batonpass [^`]+ [^`]+)`", text, re.MULTILINE)
    return sorted({one.partition(" > ")[0] for pair in found for one in pair if one} - set(looks()))


def database(folder: Path) -> str:
    """Return the URL of the database of a running `up`."""
    password = (folder / "postgres" / "password").read_text().strip()
    port = (folder / "postgres" / "cluster" / "postmaster.pid").read_text().splitlines()[3]
    return f"postgresql://{USER}:{quote(password, safe='')}@127.0.0.1:{port}/{DATABASE}"


def test_every_runbook_has_its_parts() -> None:
    for page in PAGES:
        assert re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE) == ["What it means", "Look", "Do"], page


def test_each_command_under_look_succeeds_on_a_coordinator_with_workers(fleet: Up) -> None:
    around = {
        "BATONPASS_URL": fleet.url,
        "BATONPASS_TOKEN": fleet.token,
        "BATONPASS_DATABASE_URL": database(fleet.folder),
    }
    for line in looks():
        filled = Template(line).substitute(EXAMPLE | {"BATONPASS_URL": fleet.url})
        program, *arguments = shlex.split(filled)
        if program == "curl":
            assert httpx.get(arguments[-1]).status_code == 200, filled
            continue
        assert program == "batonpass", line
        done = CliRunner().invoke(app, arguments, env=around)
        assert done.exit_code == 0, f"{filled}: {done.output}"


@pytest.mark.parametrize("line", mentioned())
def test_every_other_command_of_a_runbook_is_one_that_the_program_accepts(line: str) -> None:
    arguments = shlex.split(Template(line).substitute(EXAMPLE))[1:]
    command = typer.main.get_command(app)
    context = typer.Context(command)
    while isinstance(command, typer.core.TyperGroup):
        _, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        command = found
    command.make_context(line, [*arguments], parent=context)
