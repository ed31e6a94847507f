"""Which database the audit reads: the one that is named, else that of the one `up` that runs here."""

from pathlib import Path

import pytest

from batonpass.cli import audit, client_context
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.folder import Running, UpFolder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Running]:
    """The `up`s that run on this machine, as the audit sees them; none is named by the environment."""
    running: list[Running] = []
    monkeypatch.delenv("BATONPASS_DATABASE_URL", raising=False)
    monkeypatch.delenv("BATONPASS_DATA", raising=False)
    monkeypatch.setattr(client_context, "running_here", lambda: running)
    return running


def started(folder: Path, url: str) -> Running:
    """Return an `up` that has noted where its database is."""
    folder.mkdir()
    kept = UpFolder(folder)
    kept.keep(kept.database_file, url)
    return Running(1, "http://127.0.0.1:1", folder)


def test_the_running_up_is_found(here: list[Running], tmp_path: Path) -> None:
    here.append(started(tmp_path / "one", "postgresql://here/one"))
    assert audit._url(None) == "postgresql://here/one"
    assert audit._url("postgresql://named/two") == "postgresql://named/two"


def test_without_exactly_one_running_up_a_database_has_to_be_named(here: list[Running], tmp_path: Path) -> None:
    for number in range(3):
        if number != 1:
            with pytest.raises(Failure, match="no database is named") as caught:
                audit._url(None)
            assert caught.value.code is Exit.BAD_INPUT
        here.append(started(tmp_path / str(number), "postgresql://here/one"))


def test_a_folder_that_is_named_counts_and_no_other_up(
    here: list[Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here += [started(tmp_path / "one", "postgresql://here/one"), started(tmp_path / "two", "postgresql://here/two")]
    monkeypatch.setattr(
        UpFolder, "running", lambda folder: next((one for one in here if one.folder == folder.path), None)
    )
    monkeypatch.setenv("BATONPASS_DATA", str(tmp_path / "two"))
    assert audit._url(None) == "postgresql://here/two"
    del here[1]
    with pytest.raises(Failure, match=f"no `batonpass up` runs on {tmp_path}/two"):
        audit._url(None)


def test_executors_need_none_of_the_variables_that_a_url_is_completed_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "secret\n")
    assert audit._url("postgresql://u@named/two") == "postgresql://u:secret@named/two"
