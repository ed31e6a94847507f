"""`batonpass serve` and `batonpass db` on a Postgres of one's own: nothing runs on a schema that does not fit."""

import asyncio
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from sqlalchemy import make_url
from tests.e2e.running import PROGRAM, environment
from tests.postgres.databases import run_sql
from tests.waiting import wait_until
from typer.testing import CliRunner

from batonpass.cli import app
from batonpass.sockets import free_port

TOKEN = "an-admin-token-of-this-test-alone"  # noqa: S105
TOPOLOGY = {"subtopologies": [{"id": "0", "partitions": 2, "changelog_topics": ["store"]}]}


class Program:
    """The program with a database's URL in its environment. Only what goes on for long is a process of its own."""

    def __init__(self, home: Path, url: str) -> None:
        self.around = environment(home) | {"BATONPASS_DATABASE_URL": url, "BATONPASS_ADMIN_TOKEN": TOKEN}
        self.secret = str(make_url(url).password)

    def run(self, *words: str) -> tuple[int, str]:
        """Run a command; return its exit code and all that it wrote, in which there must be no password."""
        handled = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            done = CliRunner().invoke(app, list(words), env=self.around)
        finally:
            for number, what in handled.items():
                signal.signal(number, what)
        assert isinstance(done.exception, SystemExit | None), done.exc_info
        written = done.stdout + done.stderr
        assert self.secret not in written
        return done.exit_code, written

    @contextmanager
    def serving(self, *words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
        """Serve on a free port; yield the URL. It must end well when it is terminated."""
        command = [*PROGRAM, "serve", "--port", "0", "--json", *words]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=self.around
        ) as process:
            try:
                assert process.stdout is not None
                yield json.loads(process.stdout.readline())["url"], process
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
            finally:
                process.kill()


@pytest.fixture
def program(bare_url: str, tmp_path: Path) -> Program:
    """The program on an empty database."""
    return Program(tmp_path, bare_url)


def test_it_ends_while_it_waits_for_the_database(program: Program) -> None:
    """By a handler of its own: the first process of a container gets no signal that it does not handle."""
    around = program.around | {"BATONPASS_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"}
    command = [*PROGRAM, "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=around) as process:
        assert process.stderr is not None
        assert "waiting up to 60 s" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_each_step_from_an_empty_database_to_lost_commits_says_what_to_run_next(
    program: Program, bare_url: str
) -> None:
    code, output = program.run("serve", "--port", "0")
    assert (code, "Run `batonpass db upgrade`" in output) == (1, True)
    code, output = program.run("db", "status")
    assert (code, "has no schema yet" in output) == (1, True)
    code, output = program.run("db", "upgrade")
    assert (code, "Upgraded from nothing to" in output) == (0, True)
    code, output = program.run("db", "upgrade", "--json")
    assert (code, json.loads(output)["fit"]) == (0, "current")
    with program.serving() as (url, _), httpx.Client(headers={"authorization": f"Bearer {TOKEN}"}) as client:
        assert client.put(f"{url}/v1/groups/orders", json={"topology": TOPOLOGY}).status_code == 201
        code, output = program.run("db", "status", "--json")
        assert [one["url"] for one in json.loads(output)["coordinators"]] == [url]
        assert json.loads(output)["owners"] == {"orders": json.loads(output)["coordinators"][0]["id"]}
        assert re.search(rf"orders +{url}", program.run("db", "status")[1])
        code, output = program.run("db", "recovered")
        assert code == 0
        assert re.search(r"1 groups are marked: commits were lost; 1 coordinators lost their leases", output)
        wait_until(lambda: client.get(f"{url}/v1/groups/orders").is_success)
        wait_until(lambda: url in program.run("db", "status")[1])
    asyncio.run(run_sql(bare_url, "update alembic_version set version_num = '9999'"))
    assert program.run("serve", "--port", "0", "--host", "192.0.2.1")[0] == 1
    code, output = program.run("db", "status", "--json")
    assert (code, json.loads(output)["fit"]) == (0, "newer")
    asyncio.run(run_sql(bare_url, "comment on table alembic_version is '9998'"))
    for words in (["serve", "--port", "0"], ["db", "upgrade"], ["db", "status"], ["db", "recovered"]):
        code, output = program.run(*words)
        assert (code, "or a later one" in output) == (1, True), words


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("postgresql://u:verysecret@127.0.0.1:1/db", 3, "is not available"),
        ("mysql://u:verysecret@127.0.0.1/db", 2, "no URL of Postgres"),
        (
            "postgresql:///db?host=127.0.0.1&port=1&user=u&password=verysecret",
            3,
            "://u:***@127.0.0.1:1/db is not available",
        ),
        ("postgresql://u:verysecret@127.0.0.1:x/db", 2, "BATONPASS_DATABASE_URL: its port is not a number"),
        ("postgresql://u:verysecret@127.0.0.1:1/db?channel_binding=require", 2, "channel_binding in it may be disable"),
        ("postgresql://u:verysecret@127.0.0.1:1/db?keepalives=1", 2, "keepalives in it is not understood"),
        (" \n", 2, "BATONPASS_DATABASE_URL is not set"),
        ("verysecret", 2, "this is no URL"),
        ("", 2, "BATONPASS_DATABASE_URL is not set"),
    ],
)
def test_a_database_that_cannot_be_had_is_said_plainly(tmp_path: Path, url: str, code: int, words: str) -> None:
    program = Program(tmp_path, "postgresql://u:verysecret@127.0.0.1/db")
    program.around |= {"BATONPASS_DATABASE_URL": url, "BATONPASS_DATABASE_WAIT_S": "0"}
    for command in (["serve", "--port", "0"], ["db", "status"]):
        found, output = program.run(*command)
        assert (found, words in output) == (code, True), output


OPTIONS = (
    "application_name=batonpass",
    "connect_timeout=10&channel_binding=prefer&sslmode=prefer",
    "options=-csearch_path%3Dpublic&client_encoding=utf8",
    "target_session_attrs=read-write&gssencmode=disable&load_balance_hosts=disable",
    "passfile=/dev/null&krbsrvname=x&sslmode=disable",
)


@pytest.mark.parametrize("options", OPTIONS)
def test_what_a_url_asks_for_in_libpq_s_words_is_carried_out(program: Program, bare_url: str, options: str) -> None:
    program.around["BATONPASS_DATABASE_URL"] = f"{bare_url}?{options}"
    code, output = program.run("db", "status")
    assert (code, "has no schema yet" in output) == (1, True), output


def test_several_hosts_are_tried_in_their_order(program: Program, bare_url: str) -> None:
    url = make_url(bare_url)
    for hosts in (f"127.0.0.1:1,{url.host}:{url.port}", f"{url.host}:{url.port},127.0.0.1:1"):
        names, ports = (",".join(parts) for parts in zip(*(one.split(":") for one in hosts.split(",")), strict=True))
        login = f"user={url.username}&password={url.password}"
        for spelling in (
            f"postgresql://{url.username}:{url.password}@{hosts}/{url.database}?target_session_attrs=read-write",
            f"postgresql:///{url.database}?{login}&host={names}&port={ports}",
        ):
            program.around["BATONPASS_DATABASE_URL"] = spelling
            code, output = program.run("db", "status")
            assert (code, "has no schema yet" in output) == (1, True), output


def test_line_breaks_at_the_end_of_variables_do_not_count(program: Program, bare_url: str) -> None:
    """A secret that was made from a file has one, and nobody sees it."""
    program.around |= {"BATONPASS_DATABASE_URL": f"{bare_url}\r\n", "BATONPASS_ADMIN_TOKEN": f"{TOKEN}\n"}
    program.around |= {"BATONPASS_LOG_LEVEL": "info\n", "BATONPASS_KAFKA_BOOTSTRAP": " \n"}
    assert program.run("db", "upgrade")[0] == 0
    with program.serving() as (url, _):
        program.around |= {"BATONPASS_URL": f"{url}\n", "BATONPASS_TOKEN": f"{TOKEN}\n"}
        assert program.run("groups", "--patience", "30s")[0] == 0
        assert httpx.get(f"{url}/readyz").status_code == 200


def test_a_wrong_password_is_said_plainly(program: Program, bare_url: str) -> None:
    wrong = make_url(bare_url).set(password="other").render_as_string(hide_password=False)  # noqa: S106
    program.around["BATONPASS_DATABASE_URL"] = wrong
    for command in (["serve", "--port", "0"], ["db", "status"]):
        code, output = program.run(*command)
        assert (code, "password authentication failed" in output) == (3, True)


def test_a_start_waits_for_a_database_that_is_away_and_says_so(program: Program) -> None:
    port = free_port()
    program.around |= {
        "BATONPASS_DATABASE_URL": f"postgresql://u@127.0.0.1:{port}/db",
        "BATONPASS_DATABASE_WAIT_S": "3",
    }
    begun = time.monotonic()
    code, output = program.run("serve", "--port", "0")
    assert time.monotonic() - begun >= 3
    assert (code, output.count("waiting up to 3 s for"), "is not available" in output) == (3, 1, True), output


def test_bad_settings_are_named_by_their_variables(tmp_path: Path) -> None:
    """All of them at once."""
    program = Program(tmp_path, "postgresql://u:verysecret@127.0.0.1/db")
    program.around |= {"BATONPASS_GROUPS_MAX": "0", "BATONPASS_LEASE_MS": "soon"}
    code, output = program.run("serve")
    assert code == 2
    assert "BATONPASS_GROUPS_MAX: " in output
    assert "BATONPASS_LEASE_MS: " in output
    program.around |= {"BATONPASS_GROUPS_MAX": "5", "BATONPASS_LEASE_MS": "5000", "BATONPASS_LEASE_RENEWAL_MS": "9000"}
    code, output = program.run("serve")
    assert code == 2
    assert "BATONPASS_LEASE_MS, BATONPASS_LEASE_RENEWAL_MS: lease_renewal_ms must leave room" in output
    del program.around["BATONPASS_LEASE_RENEWAL_MS"]
    program.around |= {"BATONPASS_KAFKA_SASL_MECHANISM": "OAUTHBEARER", "BATONPASS_KAFKA_OAUTH_CLIENT_ID": "orders"}
    program.around |= {"BATONPASS_KAFKA_OAUTH_CLIENT_SECRET": "alsosecret"}
    code, output = program.run("serve")
    assert code == 2
    assert "BATONPASS_KAFKA_SASL_MECHANISM, BATONPASS_KAFKA_OAUTH_TOKEN_URL: " in output
    assert "secret" not in output


def test_an_output_that_is_full_is_said_to_be(program: Program) -> None:
    """And not taken for an address that cannot be listened on."""
    if not Path("/dev/full").exists():
        pytest.skip("nothing here is always full")
    assert program.run("db", "upgrade")[0] == 0
    command = [*PROGRAM, "serve", "--port", "0"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=program.around, check=False)
    assert (done.returncode, "cannot listen" in done.stderr) == (3, False)
    assert "batonpass: the output cannot be written: No space left on device." in done.stderr
