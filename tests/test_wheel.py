"""The wheel is whole: installed by itself it has the command, the types and the schema."""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from batonpass import __version__

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command and return what it printed; its error output is shown if it fails."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this tree, built without any network."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (built,) = folder.glob("batonpass-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a fresh environment with the wheel in it, which borrows the wheel's dependencies from this one."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    uv = Path(sys.executable).parent / "uv"
    run(uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, wheel, cwd=folder)
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    (Path(packages) / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin"


def test_the_wheel_carries_migrations_runbooks_the_mark_of_a_typed_package_and_the_licence(wheel: Path) -> None:
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "migrations", cwd=ROOT).split()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert listed
    assert {f"batonpass/{name}" for name in listed if (ROOT / name).is_file()} <= names
    runbooks = {f"batonpass/runbooks/{file.name}" for file in (ROOT / "docs" / "runbooks").glob("*.md")}
    assert runbooks
    assert runbooks <= names
    assert {"batonpass/py.typed", f"batonpass-{__version__}.dist-info/licenses/LICENSE"} <= names
    assert [name for name in names if not name.startswith(("batonpass/", "batonpass-"))] == []


def test_the_installed_command_runs(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "batonpass", "--version", cwd=tmp_path) == f"batonpass {__version__}\n"
    assert "Usage" in run(installed / "batonpass", "--help", cwd=tmp_path)
    where = run(installed / "python", "-c", "import batonpass; print(batonpass.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)


def test_the_installed_schema_is_found(installed: Path, tmp_path: Path) -> None:
    code = "from importlib.resources import files; print((files('batonpass') / 'migrations' / 'README.md').is_file())"
    assert run(installed / "python", "-c", code, cwd=tmp_path) == "True\n"
