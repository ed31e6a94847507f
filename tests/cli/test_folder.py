"""A data folder belongs to Batonpass alone, to one `up` at a time, and its secrets to its owner."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest
import typer

from batonpass.child_environment import child_environment, is_nameless
from batonpass.cli import up
from batonpass.cli.client_context import DEFAULT_URL, find
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.folder import UpFolder, default_folder, folder_named, keep_from_others, running_here
from batonpass.kafka.broker_parts import BrokerUnavailable, cache_folder
from batonpass.postgres.binaries import EmbeddedPostgresError, server_user

HOLDER = """
import sys
from pathlib import Path
from typing import Self
from batonpass.cli.folder import UpFolder
folder = UpFolder(Path(sys.argv[1]))
folder.hold()
folder.token(lambda: "t_1")
folder.announce(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


def test_an_empty_name_is_no_folder() -> None:
    """It would mean the present folder."""
    with pytest.raises(typer.BadParameter, match="names no folder"):
        folder_named(" ")
    assert folder_named("a b") == Path("a b")


class Elsewhere:
    """Another process that holds a folder."""

    def __init__(self, folder: Path, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(folder), url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def take(path: Path) -> None:
    """Hold a folder and let go of it."""
    folder = UpFolder(path)
    folder.hold()
    folder.release()


def test_a_folder_is_made_and_kept(tmp_path: Path) -> None:
    folder = UpFolder(tmp_path / "with spaces" / "below")
    folder.hold()
    assert folder.token(lambda: "made-once") == "made-once"
    assert folder.token_file.stat().st_mode & 0o777 == 0o600
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.release()
    folder.hold()
    folder.token_file.chmod(0o644)
    assert folder.token(lambda: "made-twice") == "made-once"
    assert folder.token_file.stat().st_mode & 0o777 == 0o600
    folder.release()


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Set the umask until the end of the test."""
    before = os.umask(0)
    os.umask(before)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
@pytest.mark.parametrize("is_root", [True, False])
def test_nobody_else_may_write_what_is_made_or_hold_the_lock(
    tmp_path: Path,
    umask: Callable[[int], int],
    monkeypatch: pytest.MonkeyPatch,
    mask: int,
    is_root: bool,  # noqa: FBT001
) -> None:
    """Root's folder can be entered, because the database does not run as root."""
    monkeypatch.setattr("batonpass.cli.folder._is_root", lambda: is_root)
    umask(mask)
    folder = UpFolder(tmp_path / "above" / "data")
    folder.hold()
    folder.announce("http://127.0.0.1:1")
    folder.keep(folder.token_file, "t_1")
    keep_from_others()
    folder.workers.mkdir()
    (folder.workers / "log").write_text("")
    modes = {file.relative_to(tmp_path): file.stat().st_mode & 0o777 for file in tmp_path.rglob("*")}
    assert {file: oct(mode) for file, mode in modes.items() if mode & 0o022} == {}
    assert modes[Path("above/data/lock")] == modes[Path("above/data/token")] == 0o600
    folder.release()
    take(folder.path)


def test_up_begins_by_keeping_what_it_makes_from_others(
    tmp_path: Path, umask: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database, the workers and all else that it starts take that over."""
    found: list[int] = []

    def hold(_: UpFolder) -> None:
        found.append(umask(0))
        raise Failure(Exit.REFUSED, "far enough")

    monkeypatch.setattr(UpFolder, "hold", hold)
    monkeypatch.setattr(up, "end_in_order", lambda: None)
    umask(0o005)
    with pytest.raises(typer.Exit):
        up.up(data=tmp_path / "data", demo=False)
    assert found == [0o027]


@pytest.mark.parametrize("name", ["lock", "batonpass.json"])
def test_a_folder_that_others_may_have_written_in_is_refused(tmp_path: Path, name: str) -> None:
    """The token goes to the address that is written there."""
    path = tmp_path / "data"
    with Elsewhere(path, "http://127.0.0.1:19"):
        assert find(None, None, path) == ("http://127.0.0.1:19", "t_1")
        path.chmod(0o711)
        (path / name).chmod(0o666)
        if name == "lock":
            with pytest.raises(Failure, match="other users may write") as refused:
                find(None, None, path)
            assert refused.value.code is Exit.REFUSED
    with pytest.raises(Failure, match="other users may write"):
        take(path)
    path.chmod(0o700)
    take(path)
    assert (path / "lock").stat().st_mode & 0o777 == 0o600
    if os.geteuid() == 0:
        os.chown(path / name, 65_534, 65_534)
        with pytest.raises(Failure, match="another user"):
            take(path)


@pytest.mark.parametrize("token", [None, "t_of_mine"])
def test_no_token_goes_where_another_users_folder_says(tmp_path: Path, token: str | None) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to somebody")
    path = tmp_path / "data"
    with Elsewhere(path, "http://127.0.0.1:19"):
        for file in (path, path / "lock", path / "token"):
            os.chown(file, 65_534, 65_534)
        with pytest.raises(Failure, match="another user"):
            find(None, token, path)
        os.chown(path / "lock", 0, 0)
        with pytest.raises(Failure, match="another user"):
            find(None, token, path)


def test_root_begins_nothing_where_somebody_else_may_put_a_token(tmp_path: Path) -> None:
    """Whoever owns a folder may replace what is in it, at any time."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to somebody")
    path = tmp_path / "data"
    path.mkdir()
    os.chown(path, 65_534, 65_534)
    with pytest.raises(Failure, match="another user"):
        take(path)
    assert list(path.iterdir()) == []
    os.chown(path, 0, 0)
    folder = UpFolder(path)
    folder.hold()
    folder.token_file.write_text("bpt_theirs")
    os.chown(folder.token_file, 65_534, 65_534)
    with pytest.raises(Failure, match="token belongs to another user"):
        folder.token(lambda: "bpt_ours")
    folder.release()


def test_a_token_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    path, secret = tmp_path / "data", tmp_path / "secret"
    secret.write_text("of something else")
    with Elsewhere(path, "http://127.0.0.1:19"):
        (path / "token").unlink()
        (path / "token").symlink_to(secret)
        assert find(None, None, path) == ("http://127.0.0.1:19", None)
    with pytest.raises(Failure, match="cannot use"):
        UpFolder(path).token(lambda: "another")


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    """What a file system makes by itself does not count."""
    for name in ("photo.jpg", "thesis.tex"):
        (tmp_path / name).touch()
    with pytest.raises(Failure, match=r"holds other files \(photo\.jpg, thesis\.tex\)") as refused:
        UpFolder(tmp_path).hold()
    assert refused.value.code is Exit.REFUSED
    assert {one.name for one in tmp_path.iterdir()} == {"photo.jpg", "thesis.tex"}
    volume = tmp_path / "volume"
    (volume / "lost+found").mkdir(parents=True)
    take(volume)


def test_a_secret_that_is_no_text_is_named(tmp_path: Path) -> None:
    folder = UpFolder(tmp_path)
    folder.token_file.write_bytes(b"\xff\xfe")
    with pytest.raises(Failure, match="token is damaged, it is not text"):
        folder.token(lambda: "another")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        *((said, "is damaged") for said in ("{", "[]", '{"format": 1e999}', '{"format": NaN}', "[" * 100_000)),
        ('{"format": 2, "batonpass": "9.0"}', r"newer Batonpass \(9\.0\)"),
    ],
)
def test_a_folder_of_another_version_is_left_alone(tmp_path: Path, written: str, words: str) -> None:
    (tmp_path / "batonpass.json").write_text(written)
    with pytest.raises(Failure, match=words):
        UpFolder(tmp_path).hold()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("x" * 300)):
        with pytest.raises(Failure, match=r"cannot use .* for the data: (Not a directory|File name too long)"):
            UpFolder(path).hold()


def test_two_do_not_share_a_folder(tmp_path: Path) -> None:
    with Elsewhere(tmp_path, "http://127.0.0.1:1234") as other:
        with pytest.raises(Failure, match=rf"process {other.process.pid}, which listens on http://127\.0\.0\.1:1234"):
            UpFolder(tmp_path).hold()
        assert UpFolder(tmp_path).running() == (other.process.pid, "http://127.0.0.1:1234", tmp_path)
    assert UpFolder(tmp_path).running() is None
    take(tmp_path)


def test_commands_find_the_one_that_runs(tmp_path: Path) -> None:
    """A pointer to a dead one is passed over."""
    assert find(None, None, None) == (DEFAULT_URL, None)
    with Elsewhere(tmp_path / "a", "http://127.0.0.1:1234"):
        token = (tmp_path / "a" / "token").read_text().strip()
        assert find(None, None, None) == ("http://127.0.0.1:1234", token)
        assert find(None, "mine", None) == ("http://127.0.0.1:1234", "mine")
        assert find("http://127.0.0.1:1234/", None, None) == ("http://127.0.0.1:1234/", token)
    assert running_here() == []
    assert find(None, None, None) == (DEFAULT_URL, None)


@pytest.mark.parametrize("left", [b"\0" * 40, b"\xff\xfe", b"/a/\0", b"~nobody/data", b""])
def test_a_damaged_pointer_keeps_no_command_from_the_others(tmp_path: Path, left: bytes) -> None:
    """A machine that goes down may leave a file full of zeros."""
    with Elsewhere(tmp_path, "http://127.0.0.1:1234") as other:
        (pointer,) = (file for file in Path(os.environ["XDG_STATE_HOME"]).rglob("*") if file.name.isdecimal())
        pointer.with_name("1").write_bytes(left)
        pointer.with_name("2").mkdir()
        assert [one.pid for one in running_here()] == [other.process.pid]


def test_a_folder_is_found_whatever_bytes_are_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"d\xe4ta")
    with Elsewhere(folder, "http://127.0.0.1:1234"):
        assert [one.folder for one in running_here()] == [folder]


def test_a_coordinator_under_another_url_does_not_get_the_token(tmp_path: Path) -> None:
    with Elsewhere(tmp_path, "http://127.0.0.1:1234"):
        assert find("http://elsewhere:8420", None, None) == ("http://elsewhere:8420", None)
        assert find("http://elsewhere:8420", None, tmp_path) == ("http://elsewhere:8420", None)


def test_of_several_one_must_be_chosen(tmp_path: Path) -> None:
    with Elsewhere(tmp_path / "a", "http://127.0.0.1:1"), Elsewhere(tmp_path / "b", "http://127.0.0.1:2"):
        with pytest.raises(
            Failure, match=r"several coordinators run on this machine: http://127\.0\.0\.1:1"
        ) as refused:
            find(None, None, None)
        assert refused.value.code is Exit.BAD_INPUT
        token = (tmp_path / "b" / "token").read_text().strip()
        assert find(None, None, tmp_path / "b") == ("http://127.0.0.1:2", token)


def test_a_folder_where_nothing_runs_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATONPASS_DATA", str(tmp_path))
    with pytest.raises(Failure, match="no `batonpass up` runs on") as refused:
        find(None, None, None)
    assert refused.value.code is Exit.UNREACHABLE


def test_the_default_folder_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the user's data; for root where the database, which does not run as root, can reach it."""
    assert default_folder() == Path(os.environ["XDG_DATA_HOME"]) / "batonpass"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_folder() == Path.home() / ".local" / "share" / "batonpass"
    monkeypatch.setattr("batonpass.cli.folder._is_root", lambda: True)
    assert default_folder() == Path("/var/lib/batonpass")


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a name and a home, as OpenShift gives to a container."""

    def unknown(_: int) -> None:
        raise KeyError("uid not found")

    for name in ("HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("batonpass.child_environment.pwd.getpwuid", unknown)
    monkeypatch.setattr("batonpass.cli.folder._is_root", lambda: False)


@pytest.mark.usefixtures("homeless")
def test_who_has_no_home_names_the_folder(tmp_path: Path) -> None:
    """Everything else goes on without one."""
    with pytest.raises(Failure, match="no home folder") as refused:
        default_folder()
    assert (refused.value.code, "--data" in refused.value.todo) == (Exit.BAD_INPUT, True)
    assert running_here() == []
    assert find(None, None, None) == (DEFAULT_URL, None)
    folder = UpFolder(tmp_path / "named")
    folder.hold()
    folder.announce("http://127.0.0.1:1")
    assert find(None, "token", tmp_path / "named") == ("http://127.0.0.1:1", "token")
    folder.release()
    assert is_nameless()
    assert "HOME" not in child_environment()
    with pytest.raises(BrokerUnavailable, match="Set HOME or XDG_CACHE_HOME"):
        cache_folder()


@pytest.mark.usefixtures("homeless")
def test_a_database_is_not_begun_for_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.child_environment.os.geteuid", lambda: 1_000_680_000)
    with pytest.raises(EmbeddedPostgresError, match=r"1000680000 is none\. Start this as another user"):
        server_user()


def test_the_mark_says_whose_the_folder_is(tmp_path: Path) -> None:
    take(tmp_path / "new")
    assert json.loads((tmp_path / "new" / "batonpass.json").read_text())["format"] == 1
