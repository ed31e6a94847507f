"""The command line finds its subcommands, imports only the one that is called, and names a missing extra."""

import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from batonpass import __main__, __version__, cli
from batonpass.cli.exits import Exit

PYPROJECT = Path(__file__).resolve().parent.parent.parent / "pyproject.toml"


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run a few lines in a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_version_is_the_packages() -> None:
    done = subprocess.run([sys.executable, "-m", "batonpass", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"batonpass {__version__}\n"


def test_help_lists_every_subcommand_that_there_is() -> None:
    there = {name for name in cli.COMMANDS if importlib.util.find_spec(cli.module_of(name))}
    assert {command.name for command in cli.app.registered_commands} == there
    shown = python("import sys; sys.argv = ['batonpass', '--help']; from batonpass.__main__ import main; main()").stdout
    for name in there:
        assert f" {name} " in shown


def test_help_imports_no_subcommand() -> None:
    """So it works with the base install alone."""
    done = python(
        "import sys; sys.argv = ['batonpass', '--help']\n"
        "from batonpass import cli\n"
        "try: cli.app()\n"
        "except SystemExit: pass\n"
        "print('loaded', [m for m in sys.modules if m.startswith('batonpass.cli.')])"
    )
    assert done.stdout.endswith("loaded []\n")


def test_an_unknown_subcommand_is_a_usage_error() -> None:
    done = subprocess.run([sys.executable, "-m", "batonpass", "fly"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "fly" in done.stderr


def test_a_missing_extra_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wants_fastapi() -> None:
        raise ModuleNotFoundError(name="fastapi.routing")

    monkeypatch.setattr(__main__, "app", wants_fastapi)
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == Exit.UNREACHABLE
    assert "pip install 'batonpass[server]'" in capsys.readouterr().err


def test_a_defect_is_not_taken_for_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is missing from Batonpass itself comes with no extra."""

    def wants_own_module() -> None:
        raise ModuleNotFoundError(name="batonpass.nowhere")

    monkeypatch.setattr(__main__, "app", wants_own_module)
    with pytest.raises(ModuleNotFoundError):
        __main__.main()


SERVES = """
from batonpass import __main__

def app():
    from prometheus_client import CollectorRegistry, Counter
    from batonpass.connections import BoundedServer, ConnectionLimits, bounded

    Counter("ours", "ours", registry=CollectorRegistry()).inc()
    BoundedServer(app, bounded(ConnectionLimits()), app, stop_s=1)

__main__.app = app
__main__.main()
"""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PROMETHEUS_MULTIPROC_DIR", "/nowhere"),
        ("prometheus_multiproc_dir", "/nowhere"),
        ("WEB_CONCURRENCY", "auto"),
    ],
)
def test_what_the_environment_says_to_other_servers_is_not_read(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert python(SERVES).stderr == ""


def test_every_package_of_an_extra_is_known() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    packages: dict[str, set[str]] = {}
    for extra, requirements in extras.items():
        for requirement in requirements:
            name = requirement.partition("[")[0].partition(">")[0].replace("-", "_").removesuffix("_py")
            packages.setdefault(name, set()).add(extra)
    assert set(cli.EXTRA_OF) == set(packages)
    assert all(extra in packages[name] for name, extra in cli.EXTRA_OF.items())
