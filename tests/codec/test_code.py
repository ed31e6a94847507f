"""What the version of the deciding code depends on."""

from pathlib import Path

import pytest

from batonpass import core
from batonpass.codec import code
from batonpass.codec.code import code_version

CORE = Path(core.__file__).parent


@pytest.fixture
def core_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a small core, with a package in it, that the version is taken of."""
    (tmp_path / "placement").mkdir()
    (tmp_path / "decide.py").write_text("one = 1\n")
    (tmp_path / "placement" / "flow.py").write_text("two = 2\n")
    monkeypatch.setattr(code, "files", lambda _package: tmp_path)
    return tmp_path


def version() -> str:
    return code_version.__wrapped__()


def test_a_change_anywhere_in_the_core_is_another_version(core_at: Path) -> None:
    before = version()
    (core_at / "placement" / "flow.py").write_text("two = 3\n")
    changed = version()
    (core_at / "placement" / "flow.py").rename(core_at / "placement" / "network.py")
    assert len({before, changed, version()}) == 3


def test_another_solver_is_another_version(core_at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is no solver, as beside a worker that decides nothing."""
    versions = {version()}
    monkeypatch.setattr(code, "SOLVER", "pytest")
    versions.add(version())
    monkeypatch.setattr(code, "SOLVER", "no-such-solver")
    assert len(versions | {version()}) == 3


def test_what_is_no_source_makes_no_other_version(core_at: Path) -> None:
    before = version()
    (core_at / "placement" / "notes.txt").write_text("three\n")
    assert version() == before
