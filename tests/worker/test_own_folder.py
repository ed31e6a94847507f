"""A folder has one process at a time, which knows the member id of the one before it."""

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from batonpass.worker.options import fresh_member_id
from batonpass.worker.own_folder import sole_user_of

HOLDER = """
import os, sys, time
from pathlib import Path
from batonpass.worker.own_folder import sole_user_of
with sole_user_of(Path(sys.argv[1])) as ids:
    ids.new()
    if not os.fork():
        # It has let go of the folder by now.
        print(ids.last, os.getpid(), flush=True)
    time.sleep(60)
"""


@contextmanager
def held(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """Have another process hold a folder: yields it, its member id, and a child that it has forked."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    member_id, child = holder.stdout.readline().split()
    try:
        yield holder, member_id, int(child)
    finally:
        holder.kill()
        holder.wait()
        subprocess.run(["kill", "-9", child], check=True)
        holder.stdout.close()


def test_a_folder_that_another_process_has_is_refused(tmp_path: Path) -> None:
    with held(tmp_path), pytest.raises(BlockingIOError, match="another worker works in"), sole_user_of(tmp_path):
        pass


def test_a_process_that_was_killed_is_known_to_be_dead_although_its_child_lives(tmp_path: Path) -> None:
    with held(tmp_path) as (holder, member_id, _):
        holder.kill()
        holder.wait()
        with sole_user_of(tmp_path) as ids:
            assert ids.last == member_id


@pytest.mark.parametrize(
    ("host", "begins"),
    [("worker-3.example", "worker-3.example-"), ("ada's mac/\n", "adasmac-"), ("h" * 300, "h" * 100 + "-")],
)
def test_the_id_of_a_run_begins_with_the_name_of_its_host(
    host: str, begins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    one, other = fresh_member_id(), fresh_member_id()
    assert one != other
    assert re.fullmatch(rf"{re.escape(begins)}[0-9a-f]{{16}}", one)


def test_each_run_has_an_id_of_its_own_and_the_last_is_kept(tmp_path: Path) -> None:
    with sole_user_of(tmp_path / "made") as ids:
        assert ids.last is None
        first, second = ids.new(), ids.new()
        assert first != second
    with sole_user_of(tmp_path / "made") as ids:
        assert ids.last == second


def test_a_copy_of_a_folder_had_no_run_and_one_that_was_moved_had(tmp_path: Path) -> None:
    """Whoever works in the folder that was copied is alive: joins in its place were refused for as long as it was."""
    with sole_user_of(tmp_path / "a") as ids:
        last = ids.new()
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        with sole_user_of(tmp_path / "b") as others:
            assert others.last is None
            assert others.new() != last
    (tmp_path / "a").rename(tmp_path / "c")
    with sole_user_of(tmp_path / "c") as ids:
        assert ids.last == last


def test_its_id_is_kept_there_wherever_the_program_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with sole_user_of(Path("made")) as ids:
        monkeypatch.chdir("/")
        last = ids.new()
    with sole_user_of(tmp_path / "made") as ids:
        assert ids.last == last


def test_what_an_earlier_version_kept_is_known(tmp_path: Path) -> None:
    (tmp_path / "member-id").write_text("worker-3-77\n")
    with sole_user_of(tmp_path) as ids:
        assert ids.last == "worker-3-77"


def test_a_folder_has_one_worker_also_within_a_process(tmp_path: Path) -> None:
    with sole_user_of(tmp_path):
        with pytest.raises(BlockingIOError, match="another worker works in"), sole_user_of(tmp_path):
            pass
        # Whoever reads the folder, as for a backup, opens the file too.
        assert (tmp_path / "lock").read_text() == ""
        tried = f"from pathlib import Path; from {sole_user_of.__module__} import sole_user_of as of\nwith of(Path('{tmp_path}')): pass"
        other = subprocess.run([sys.executable, "-c", tried], capture_output=True, text=True, check=False)
        assert "another worker works in" in other.stderr


@pytest.mark.parametrize("kept", [b"\n", b"\0" * 36, b"\xff\xfe" * 9, b"a/b", b"one\ntwo", b"m" * 300])
def test_what_cannot_be_an_id_counts_as_none(kept: bytes, tmp_path: Path) -> None:
    """A machine that goes down may leave a file cut short, or full of zeros; a coordinator would refuse such a name."""
    (tmp_path / "member-id").write_bytes(kept)
    with sole_user_of(tmp_path) as ids:
        assert ids.last is None


def test_a_worker_goes_on_where_its_id_cannot_be_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with sole_user_of(tmp_path) as ids:
        (tmp_path / "member-id.new").mkdir()
        assert ids.new()
    assert "the member id was not kept" in caplog.text
