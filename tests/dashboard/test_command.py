"""`batonpass dashboard` as a command."""

import socket
import ssl
from pathlib import Path

import httpx2 as httpx
import pytest
import trustme
from tests.cli.canned import canned
from tests.dashboard.browsing import dashboard
from typer.testing import CliRunner

from batonpass.cli import app, up
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.up import audit_lacks, dashboard_lacks, dashboard_program, port_for_dashboard
from batonpass.sockets import free_port


def refused(*options: str) -> tuple[int, str]:
    """Return the exit code of a command that does not start, and what it says."""
    done = CliRunner().invoke(app, ["dashboard", *options])
    return done.exit_code, done.stderr


def test_it_starts_without_a_coordinator_and_stops_in_good_order(tmp_path: Path) -> None:
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    own.private_key_pem.write_to_path(tmp_path / "key.pem")
    with dashboard("http://127.0.0.1:9", "--root-path", "ops") as url:
        assert url.endswith("/ops")
        answer = httpx.post(f"{url}/login", data={"token": "x"})
        assert (
            answer.status_code,
            "No coordinator answers at http://127.0.0.1:9 (Connection refused)." in answer.text,
        ) == (503, True)
    files = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
    trusted = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    with dashboard("http://127.0.0.1:9", *files, trusted=trusted) as url:
        answer = httpx.get(f"{url}/login", verify=trusted)
        assert (url.split(":")[0], answer.status_code) == ("https", 200)


def test_a_variable_that_nothing_reads_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATONPASS_DASHBOARD_BEHIND_TSL", "1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        _, output = refused("--server", "http://127.0.0.1:9", "--port", str(taken.getsockname()[1]))
    assert "nothing reads BATONPASS_DASHBOARD_BEHIND_TSL; is it misspelled?" in output


def test_a_certificate_that_is_not_trusted_is_said_to_be_that() -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    with canned(context) as server, dashboard(server.url) as url:
        shown = httpx.post(f"{url}/login", data={"token": "x"}).text
    assert "is not trusted (certificate verify failed" in shown
    assert ("BATONPASS_CA_FILE" in shown, "Start a coordinator" in shown) == (True, False)


def test_a_head_without_end_is_cut_at_the_limit() -> None:
    with dashboard("http://127.0.0.1:9") as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as caller:
            caller.sendall(b"GET /livez HTTP/1.1\r\nHost: b\r\n" + b"X-One: more\r\n" * 3_000)
            assert caller.recv(1_000).startswith(b"HTTP/1.1 431 ")


def test_what_any_caller_can_send_is_not_logged(capfd: pytest.CaptureFixture[str]) -> None:
    """One who does so over and over would fill the disk."""
    with dashboard("http://127.0.0.1:9") as url:
        host, port = url.removeprefix("http://").split(":")
        for _ in range(3):
            with socket.create_connection((host, int(port)), timeout=5) as caller:
                caller.sendall(b"nonsense\r\n\r\n")
                assert caller.recv(1_000).startswith(b"HTTP/1.1 400 ")
    assert capfd.readouterr().err == ""


def test_a_taken_port_a_wrong_url_and_half_a_certificate_are_refused_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, output = refused("--server", "http://127.0.0.1:9", "--port", port)
        assert (code, "Choose another port" in output) == (Exit.REFUSED, True)
    code, output = refused("--server", "nonsense")
    assert (code, "is not the URL of a coordinator" in output) == (Exit.BAD_INPUT, True)
    code, output = refused("--server", "http://127.0.0.1:9", "--tls-cert", "x")
    assert (code, "go together" in output) == (Exit.BAD_INPUT, True)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://logs.example.com/{pod}", "{pod} stands for nothing"),
        ("https://logs.example.com/{", "{ stands for nothing"),
        ("javascript:alert(1)", "is no address of the web"),
    ],
)
def test_an_address_of_logs_that_leads_nowhere_is_refused_with_an_example(url: str, words: str) -> None:
    code, output = refused("--server", "http://127.0.0.1:9", "--log-url", url)
    assert (code, words in output, "{instance}" in output) == (Exit.BAD_INPUT, True, True)


def test_the_usual_port_is_taken_while_it_is_free() -> None:
    """Two of `up` on one machine have a dashboard each."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        assert free_port(port) != port
    assert free_port(port) == port
    assert port_for_dashboard(port) == port
    assert port_for_dashboard(0) > 0
    assert port_for_dashboard(None) > 0
    _, program = dashboard_program("http://127.0.0.1:8420", 8_421)
    assert [program.module, *program.arguments][:4] == ["batonpass", "dashboard", "--server", "http://127.0.0.1:8420"]


def test_a_port_that_is_asked_for_and_taken_is_refused() -> None:
    """Else the greeting would name a stranger's address, and say to sign in there with the token."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        with pytest.raises(Failure, match=f"cannot listen on 127.0.0.1:{port}: Address already in use") as refused:
            port_for_dashboard(port)
    assert "--dashboard-port" in refused.value.todo


def test_up_names_the_package_that_a_dashboard_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dashboard_lacks() is None
    monkeypatch.setattr(up, "DASHBOARD_NEEDS", ("jinja2", "no_such_package"))
    assert dashboard_lacks() == "no_such_package"


def test_what_an_audit_lacks_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert audit_lacks() is None
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert str(audit_lacks()).startswith("Java 17: openjdk-17-jre-headless")
    monkeypatch.setattr(up, "AUDIT_NEEDS", ("pyarrow", "no_such_package"))
    assert audit_lacks() == "no_such_package: `make audit` in a clone, or pip install 'batonpass[audit]'"
