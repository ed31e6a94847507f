"""Every way to fail has its exit code, its sentence, and what to do about it."""

import json
import os
import ssl
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
import trustme
from asyncpg.exceptions import InvalidPasswordError  # type: ignore[import-untyped]
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from rich.text import Text
from tests.cli.canned import Canned, canned
from typer.testing import CliRunner

from batonpass import client
from batonpass.cli import app
from batonpass.cli import dashboard as dashboards
from batonpass.cli.client_context import ClientContext
from batonpass.cli.database import failing_on_database
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.watch import event_line
from batonpass.client import CoordinatorClient
from batonpass.dashboard.words import Names
from batonpass.runtime.ports import StoreUnavailable
from batonpass.sockets import free_port

REFUSED, BAD_INPUT, UNREACHABLE, NOT_ALLOWED, NOT_THERE = 1, 2, 3, 4, 5


WRONG: tuple[object, ...] = (5, "here", [5], {})


@pytest.mark.parametrize(
    "body", [{}, [], "here", None, *({"groups": said, "members": said, "tasks": said} for said in WRONG)]
)
@pytest.mark.parametrize(
    "command", [("groups",), ("members", "orders"), ("explain", "orders", "0_0"), ("watch", "orders")]
)
def test_what_answers_and_is_no_coordinator_is_said_to_be_none(
    server: Canned, command: tuple[str, ...], body: object
) -> None:
    """JSON alone says nothing: whatever listens there may answer that."""
    for place in ("", "/orders", "/orders/members", "/orders/tasks", "/orders/tasks/0_0", "/orders/tasks/0_0/explain"):
        server.on("GET", f"/v1/groups{place}", (200, body))
    found = server.run(*command)
    assert (found.exit_code, found.stdout) == (UNREACHABLE, "")
    assert "answered 200 in words that are not a coordinator's" in found.stderr


@pytest.mark.parametrize("command", [("groups",), ("members", "orders")])
def test_objects_without_a_coordinators_fields_are_none_of_a_coordinator(
    server: Canned, command: tuple[str, ...]
) -> None:
    for place in ("", "/orders/members"):
        server.on("GET", f"/v1/groups{place}", (200, {"groups": [{}], "members": [{}]}))
    found = server.run(*command)
    assert (found.exit_code, found.stdout) == (UNREACHABLE, "")
    assert "answered 200 in words that are not a coordinator's" in found.stderr


def test_a_proxy_whose_coordinator_is_away_is_waited_for(server: Canned) -> None:
    """Its URL is right, and another version of `batonpass` would not help."""
    server.on("GET", "/v1/groups", (503, b"<html>no backend"))
    found = server.run("groups", "--patience", "0s")
    assert found.exit_code == UNREACHABLE
    assert ("Check --url" in found.stderr, "--patience" in found.stderr) == (False, True)


def test_a_certificate_that_is_not_trusted_is_not_waited_for() -> None:
    """`up` with one of its own waited for a minute, without a word."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    with canned(context) as server:
        found = server.run("groups", "--patience", "2s")
    assert found.exit_code == UNREACHABLE
    assert "is not trusted (certificate verify failed" in found.stderr
    assert ("BATONPASS_CA_FILE" in found.stderr, "It was asked for" in found.stderr) == (True, False)


def test_a_time_to_wait_without_end_is_no_defect(server: Canned) -> None:
    server.on("GET", "/v1/groups", (503, {"detail": "full", "retry_after_ms": 10**400}))
    found = server.run("groups", "--patience", "0s")
    assert (found.exit_code, "full." in found.stderr) == (UNREACHABLE, True)


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full", "2>&- >&-"])
def test_the_exit_code_is_the_same_where_nothing_can_be_said(server: Canned, redirected: str) -> None:
    server.on("GET", "/v1/groups/nope/members", (404, {"type": "unknown-group", "detail": "there is none"}))
    asked = f"{sys.executable} -m batonpass members nope --url {server.url} {redirected}"
    assert subprocess.run(asked, shell=True, timeout=60, check=False).returncode == NOT_THERE  # noqa: S602 - the test's own words


def test_a_folder_within_one_that_is_gone_is_named_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    found = CliRunner().invoke(app, ["groups", "--data", "x"])
    assert found.exit_code == BAD_INPUT
    assert "the present folder, in which x would be, is gone" in found.stderr


@pytest.mark.parametrize(
    ("status", "kind", "code", "todo"),
    [
        (409, "group-not-empty", REFUSED, "--force"),
        (412, "precondition-failed", REFUSED, "ask again"),
        (422, "invalid-config", BAD_INPUT, ""),
        (405, "method-not-allowed", BAD_INPUT, ""),
        (413, "limit-exceeded", BAD_INPUT, ""),
        (429, "limit-exceeded", UNREACHABLE, "wait 1.5 s"),
        (503, "store-unavailable", UNREACHABLE, "docs/runbooks/store-errors.md"),
        (500, "internal-error", UNREACHABLE, ""),
        (401, "unauthenticated", NOT_ALLOWED, "BATONPASS_TOKEN"),
        (403, "forbidden", NOT_ALLOWED, "role"),
        (404, "unknown-group", NOT_THERE, "batonpass groups"),
    ],
)
def test_each_problem_has_its_code_and_its_remedy(server: Canned, status: int, kind: str, code: int, todo: str) -> None:
    wait = {"retry_after_ms": 1_500} if status == 429 else {}
    server.on("DELETE", "/v1/groups/orders", (status, {"type": kind, "detail": "it is so", "action": "fix", **wait}))
    found = server.run("groups", "delete", "orders")
    assert (found.exit_code, found.stdout) == (code, "")
    assert found.stderr.startswith("batonpass: it is so.\n")
    assert todo in found.stderr
    as_json = server.run("groups", "delete", "orders", "--json")
    assert (as_json.exit_code, as_json.stdout) == (code, "")
    error = json.loads(as_json.stderr)
    assert (error["type"], error["detail"], error["exit_code"]) == (kind, "it is so", code)


def test_every_fault_of_a_bad_request_is_named(server: Canned) -> None:
    faults = [{"path": "config.colour", "reason": "no such setting"}, {"path": "topology", "reason": "is needed"}]
    server.on("PUT", "/v1/groups/orders", (422, {"type": "invalid-config", "detail": "2 faults", "errors": faults}))
    found = server.run("groups", "declare", "orders", "-", stdin="{}")
    assert found.exit_code == BAD_INPUT
    assert "config.colour: no such setting\n" in found.stderr
    assert "topology: is needed\n" in found.stderr


def test_a_port_without_a_listener_is_told_from_a_refusal() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    found = CliRunner().invoke(app, ["groups", "--url", url])
    assert found.exit_code == UNREACHABLE
    assert f"no coordinator answers at {url} (Connection refused)" in found.stderr
    assert "batonpass up" in found.stderr


@pytest.mark.parametrize("url", ["orders", "ftp://somewhere", "http://", "http://x:port"])
def test_what_is_no_url_is_bad_input(url: str) -> None:
    found = CliRunner().invoke(app, ["groups", "--url", url])
    assert found.exit_code == BAD_INPUT
    assert "is not the URL of a coordinator" in found.stderr


@pytest.mark.parametrize(
    ("status", "content"), [(200, b"<html>"), (502, b"Bad gateway"), (404, b"{}"), (500, b"[1]"), (403, b"no")]
)
def test_whatever_else_answers_is_told_from_a_coordinator(
    server: Canned, status: int, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy's page, or another program on the port."""
    monkeypatch.setattr(client, "PATIENCE_S", 1.0)
    server.on("GET", "/v1/groups/orders", (status, content))
    found = server.run("groups", "show", "orders")
    assert found.exit_code == UNREACHABLE
    assert f"answered {status}" in found.stderr
    assert "URL" in found.stderr


def test_the_token_of_the_option_goes_before_that_of_the_environment(server: Canned) -> None:
    server.on("GET", "/v1/groups", (200, {"groups": [], "next": None}))
    assert server.run("groups", token="secret-1").exit_code == 0  # noqa: S106
    assert server.run("groups", "--token", "secret-2", token="secret-1").exit_code == 0  # noqa: S106
    assert server.run("groups").exit_code == 0
    shown = [{name.lower(): text for name, text in one.headers.items()}.get("authorization") for one in server.asked]
    assert shown == ["Bearer secret-1", "Bearer secret-2", None]


def test_names_are_quoted_in_paths(server: Canned) -> None:
    """What a name holds must not become part of the path."""
    server.on("GET", "/v1/groups/a%2Fb%3Fc", (404, {"type": "unknown-group", "detail": "unknown group"}))
    assert server.run("groups", "show", "a/b?c").exit_code == NOT_THERE
    assert server.asked[0].path == "/v1/groups/a%2Fb%3Fc"


def test_options_before_a_subcommand_are_not_lost_in_silence(server: Canned) -> None:
    """`groups --json list` would print a table."""
    found = server.run("groups", "--json", "list")
    assert found.exit_code == BAD_INPUT
    assert "groups list" in found.stderr


def test_this_machine_is_reached_without_the_proxy_of_the_environment(
    server: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    server.on("GET", "/v1/groups", (200, {"groups": [], "next": None}))
    assert server.run("groups").exit_code == 0


def test_certificates_are_checked_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE_S", 1.0)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("operator").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(tls)
    authority.configure_trust(tls)
    tls.verify_mode = ssl.CERT_REQUIRED
    with canned(tls) as server:
        server.on("GET", "/v1/groups", (200, {"groups": [], "next": None}))
        refused = server.run("groups")
        assert (refused.exit_code, "certificate" in refused.stderr.lower()) == (UNREACHABLE, True)
        monkeypatch.setenv("BATONPASS_CA_FILE", str(tmp_path / "ca.pem"))
        assert server.run("groups").exit_code == UNREACHABLE
        monkeypatch.setenv("BATONPASS_CERT_FILE", str(tmp_path / "own.pem"))
        assert server.run("groups").exit_code == 0
        monkeypatch.setenv("BATONPASS_CA_FILE", str(tmp_path / "nowhere.pem"))
        assert server.run("groups").exit_code == BAD_INPUT


def test_a_command_says_what_to_type_and_not_what_to_send(server: Canned) -> None:
    detail = "no group 'x' is declared; declare it with PUT /v1/groups/x"
    server.on("GET", "/v1/groups/x", (404, {"type": "unknown-group", "title": "unknown group", "detail": detail}))
    found = server.run("groups", "show", "x")
    assert found.exit_code == Exit.NOT_THERE
    assert "no group 'x' is declared.\n" in found.stderr
    assert "`batonpass groups declare` makes one." in found.stderr
    assert "PUT" not in found.stderr


STEERS = "\x1b]0;PWNED\x07\x1b[31m\x9b2J\u202eadmin\nforged"
SEEN = "\u241b]0;PWNED\u2407\u241b[31m\ufffd2J\ufffdadmin\u240aforged"


def test_what_would_steer_a_terminal_is_shown_as_visible_characters(capsys: pytest.CaptureFixture[str]) -> None:
    context = ClientContext(lambda: cast("CoordinatorClient", None), as_json=False)
    context.say(STEERS)
    context.note("note", STEERS)
    context.table("reason", "styled", rows=[[STEERS, Text(STEERS, style="red")], [{"zone": STEERS}, None]])
    context.console.say(
        event_line(
            {"type": "task-failed", "group": "g", "task": "0_0", "member": STEERS, "body": {"detail": STEERS}}, Names()
        )
    )
    problem = {"errors": [{"path": STEERS, "reason": STEERS}]}
    Failure(Exit.REFUSED, STEERS, todo=STEERS, problem=problem).show(as_json=False)
    out, err = capsys.readouterr()
    assert (out.replace("\u2407", "").count(SEEN.replace("\u2407", "")), err.count(SEEN)) == (
        6,
        5,
    )  # rich drops some itself
    assert not set("\x1b\x07\x9b\u202e") & set(out + err)


SECRET = "Zq7Secret"  # noqa: S105 - what must not be told


@pytest.mark.parametrize("command", [["groups"], ["groups", "--json"], ["dashboard", "--port", "0"]])
@pytest.mark.parametrize(
    "url",
    [
        f"http://u:{SECRET}@127.0.0.1:1",
        f"http://{SECRET}@127.0.0.1:1",
        f"ftp://u:{SECRET}@127.0.0.1:1",
        f"http://127.0.0.1:1?token={SECRET}",
        f"http://127.0.0.1:1/#{SECRET}",
        f"http://127.0.0.1:1,http://u:{SECRET}@127.0.0.1:99999",
        SECRET,
    ],
)
def test_a_url_with_a_secret_in_it_is_refused_untold(command: list[str], url: str) -> None:
    found = CliRunner().invoke(app, [*command, "--url", url], env={"BATONPASS_TOKEN": "token"})
    assert found.exit_code == BAD_INPUT
    assert "is not the URL of a coordinator" in found.stderr
    assert SECRET not in found.output


@pytest.mark.parametrize("name", ["BATONPASS_TOKEN", "BATONPASS_DASHBOARD_TOKEN"])
@pytest.mark.parametrize("token", [f"{SECRET}\nx", f"{SECRET}é", f"{SECRET}\r\nhost: x", f"{SECRET}\x7f"])
def test_a_token_that_no_header_takes_is_refused_untold(server: Canned, name: str, token: str) -> None:
    command = ["dashboard", "--port", "0"] if "DASHBOARD" in name else ["groups"]
    found = CliRunner().invoke(app, [*command, "--url", server.url], env={name: token})
    assert (found.exit_code, SECRET in found.output) == (BAD_INPUT, False)
    assert "no header takes" in found.stderr
    assert not server.asked


@pytest.mark.parametrize(
    "url", ["http://x:65536", "http://a..b:1", "http://%00:1", "http://x:٢", f"http://{'a' * 70}.x"]
)
def test_a_url_that_nothing_can_be_reached_by_is_bad_input(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = CliRunner().invoke(app, ["groups", "--url", url])
    assert (found.exit_code, "is not the URL of a coordinator" in found.stderr) == (BAD_INPUT, True)
    monkeypatch.setenv("http_proxy", url)
    found = CliRunner().invoke(app, ["groups", "--url", "http://far.example:8420"])
    assert (found.exit_code, "http_proxy" in found.stderr) == (BAD_INPUT, True)


@pytest.mark.parametrize("command", [["groups", "show", "\udcff"], ["probe", "orders", "--reason", "\udcff"]])
def test_what_is_not_utf_8_is_bad_input(server: Canned, command: list[str]) -> None:
    found = server.run(*command)
    assert (found.exit_code, "not UTF-8" in found.stderr) == (BAD_INPUT, True)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["BATONPASS_CA_FILE", "BATONPASS_CERT_FILE", "SSL_CERT_FILE"])
def test_authorities_that_are_a_pipe_are_refused_and_not_waited_for(
    name: str, server: Canned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setenv(name, str(pipe))
    found = CliRunner().invoke(app, ["groups", "--url", server.url])
    assert (found.exit_code, name in found.stderr, "not a file" in found.stderr) == (BAD_INPUT, True, True)


@pytest.mark.parametrize("command", [["groups", "--token", SECRET], ["groups"], ["dashboard", "--port", "0"]])
def test_a_token_is_not_shown_to_whoever_listens_at_the_usual_address(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a token a command looks there. To a dashboard others give theirs."""
    if command == ["groups"]:
        monkeypatch.setenv("BATONPASS_TOKEN", SECRET)
    monkeypatch.setattr(dashboards, "bound", lambda *_: pytest.fail("it is served"))
    found = CliRunner().invoke(app, command)
    assert (found.exit_code, SECRET in found.output, "BATONPASS_URL" in found.stderr) == (BAD_INPUT, False, True)


@pytest.mark.parametrize("name", ["ü" * 200, "a/b", ".."])
def test_a_worker_is_refused_a_name_that_no_folder_can_have(
    name: str, server: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("it was started"))
    server.on("GET", "/v1/groups/orders/members", (200, {"members": []}))
    found = server.run("worker", "orders", "--instance", name)
    assert (found.exit_code, name in found.stderr) == (BAD_INPUT, True)


@pytest.mark.parametrize("command", [["groups"], ["dashboard", "--port", "0"]])
@pytest.mark.parametrize("content", [None, "root:x:0:0"])
def test_authorities_that_cannot_be_used_are_named(
    command: list[str], content: str | None, server: Canned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "authorities.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    found = CliRunner().invoke(app, [*command, "--url", server.url])
    assert (found.exit_code, f"SSL_CERT_FILE={file}" in found.stderr) == (BAD_INPUT, True)


def test_an_output_that_cannot_be_written_is_said(server: Canned) -> None:
    server.on("GET", "/v1/groups", (200, {"groups": [], "next": None}))
    command = [sys.executable, "-m", "batonpass", "groups", "--url", server.url]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (
        UNREACHABLE,
        "batonpass: the output cannot be written: No space left on device.\n",
    )


@pytest.mark.parametrize(
    ("cause", "todo"),
    [(InvalidPasswordError("no"), "Check the user, the password"), (OSError("no"), "Check that it runs")],
)
def test_what_to_check_of_a_database_is_what_it_refused(cause: Exception, todo: str) -> None:
    with pytest.raises(Failure) as failed, failing_on_database("postgresql://u:pw@h/d"):
        raise StoreUnavailable("no") from cause
    assert failed.value.todo.startswith(todo)


def test_a_url_of_a_database_is_told_by_the_option_that_has_it() -> None:
    found = CliRunner().invoke(app, ["db", "status", "--database-url", "mysql://h/d"])
    assert (found.exit_code, "--database-url" in found.stderr) == (BAD_INPUT, True)


@pytest.mark.parametrize("command", [["groups"], ["dashboard", "--port", "0"]])
def test_nobody_is_asked_for_the_password_of_a_key(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    made = trustme.CA().issue_cert("127.0.0.1")
    made.cert_chain_pems[0].write_to_path(str(chain))
    plain = load_pem_private_key(made.private_key_pem.bytes(), None)
    key.write_bytes(plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")))
    if command == ["groups"]:
        monkeypatch.setenv("BATONPASS_CERT_FILE", str(chain))
        monkeypatch.setenv("BATONPASS_KEY_FILE", str(key))
    else:
        command = [*command, "--tls-cert", str(chain), "--tls-key", str(key)]
    found = CliRunner().invoke(app, [*command, "--url", "http://127.0.0.1:1"])
    assert (found.exit_code, f"the key in {key} is encrypted" in found.stderr) == (BAD_INPUT, True)


def test_up_says_that_it_needs_the_address_of_ipv4_where_there_is_none(tmp_path: Path) -> None:
    program = """if True:
        import errno, socket
        from batonpass.cli import app
        def bind(self, address):
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        socket.socket.bind = bind
        app(["up", "--data", "here"])
    """
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == REFUSED
    assert ended.stderr.splitlines() == [
        "batonpass: no port of 127.0.0.1 can be had.",
        "  `up` needs this address, also where all else is IPv6: ip addr add 127.0.0.1/8 dev lo.",
    ]
