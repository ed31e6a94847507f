"""The preStop hook of the example workers drains or restarts as its mode says, and never keeps a pod from stopping."""

import importlib.util
import ssl
import sys
from pathlib import Path
from types import ModuleType

import pytest
import trustme
from tests.deploy.answering import PROXIES, answering
from tests.deploy.manifests import KUBERNETES


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load the hook for a pod `orders-3`, with its log in a file and a `batonpass` that writes what it was asked."""
    spec = importlib.util.spec_from_file_location("prestop", KUBERNETES / "examples" / "hooks" / "prestop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    program = tmp_path / "batonpass"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\necho "no coordinator" >&2\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setattr(module, "LOG", tmp_path / "log")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HOSTNAME", "orders-3")
    return module


def arguments_of_program(folder: Path) -> str:
    """Return what the program was asked, nothing where it was not."""
    file = folder / "asked"
    return file.read_text().strip() if file.exists() else ""


def test_a_restart_does_nothing(hook: ModuleType, tmp_path: Path) -> None:
    """A pod that comes back keeps its place by itself."""
    assert hook.main(["restart", "orders", "--timeout", "9m"]) == 0
    assert arguments_of_program(tmp_path) == ""


def test_a_drain_waits_as_it_is_told(hook: ModuleType, tmp_path: Path) -> None:
    assert hook.main(["drain", "orders", "--timeout", "9m"]) == 0
    assert arguments_of_program(tmp_path) == "drain orders orders-3 --wait --reason preStop (drain) --timeout 9m"
    assert "no coordinator" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(("pods", "way"), [(3, "drain"), (4, "restart")])
def test_auto_asks_how_many_pods_there_are_to_be(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pods: int, way: str
) -> None:
    """The pod of number 3 is the fourth: with three it goes for good, with four it comes back."""
    monkeypatch.setattr(hook, "wanted_pods", lambda name: {"orders": pods}[name])
    assert hook.main(["auto", "orders"]) == 0
    assert bool(arguments_of_program(tmp_path)) is (way == "drain")


@pytest.mark.parametrize(
    ("address", "spec"),
    # Numbers of pods may begin with another than 0.
    [("127.0.0.1", b'{"replicas": 3}'), ("::1", b'{"replicas": 2, "ordinals": {"start": 1}}')],
)
def test_auto_asks_the_api_server_itself(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, spec: bytes
) -> None:
    """Without a proxy: NO_PROXY names the networks of the cluster, which Python does not know."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(address).configure_cert(context)
    for name in ("namespace", "token"):
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(hook, "ACCOUNT", tmp_path)
    for name, value in (PROXIES | {"no_proxy": "127.0.0.0/8", "NO_PROXY": "127.0.0.0/8"}).items():
        monkeypatch.setenv(name, value)
    with answering(b'{"spec": ' + spec + b"}", tls=context, address=address) as port:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", address)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        assert hook.wanted_pods("orders") == 3


def test_auto_without_an_answer_is_a_restart(hook: ModuleType, tmp_path: Path) -> None:
    """A restart is the more frequent."""
    assert hook.main(["auto", "orders"]) == 0
    assert arguments_of_program(tmp_path) == ""
    assert "taking this for a restart" in (tmp_path / "log").read_text()


def test_a_pod_without_the_program_is_stopped_all_the_same(hook: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "batonpass").unlink()
    assert hook.main(["drain", "orders"]) == 0
    assert "cannot be run" in (tmp_path / "log").read_text()


def test_the_hook_needs_nothing_but_python(hook: ModuleType) -> None:
    """So that it runs in any image that has Python."""
    assert {name for name, value in vars(hook).items() if isinstance(value, ModuleType)} <= set(sys.stdlib_module_names)
