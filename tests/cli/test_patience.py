"""While no coordinator can answer, looks are repeated for a while and a watch goes on; nothing is ordered twice."""

import json
import time
from typing import Any

import pytest
from tests.cli.canned import Answer, Canned, canned
from tests.cli.test_operators import M1, MEMBERS, group
from tests.cli.test_watch import EVENT
from typer.testing import CliRunner

from batonpass.cli import app
from batonpass.cli.exits import Exit
from batonpass.client import AGAIN_S
from batonpass.sockets import free_port

NOT_NOW: tuple[int, dict[str, Any]] = (
    503,
    {
        "type": "coordinator-loading",
        "detail": "the coordinators do not agree yet on who owns group orders; try again",
        "action": "retry",
        "retry_after_ms": 60,
    },
)
PLACE = "/v1/groups/orders"


def unused_url() -> str:
    """Return a URL at which no server listens."""
    return f"http://127.0.0.1:{free_port()}"


def test_a_look_is_repeated_until_the_coordinators_agree(server: Canned) -> None:
    """A group that is being handed over has an owner again a moment later."""
    server.on("GET", PLACE, NOT_NOW, NOT_NOW, (502, b"<html>no backend"), (200, group()))
    found = server.run("groups", "show", "orders", "--json")
    assert (found.exit_code, json.loads(found.stdout)["group"], found.stderr) == (0, "orders", "")
    assert len(server.asked) == 4


@pytest.mark.parametrize("by", ["option", "environment"])
def test_patience_has_a_limit_that_can_be_set(server: Canned, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server.on("GET", PLACE, NOT_NOW)
    if by == "environment":
        monkeypatch.setenv("BATONPASS_PATIENCE", "700ms")
    began = time.monotonic()
    found = server.run("groups", "show", "orders", *(["--patience", "700ms"] if by == "option" else []))
    assert 0.5 < time.monotonic() - began < 5
    assert found.exit_code == Exit.UNREACHABLE
    assert found.stderr.startswith(
        "batonpass: the coordinators do not agree yet on who owns group orders; try again.\n"
    )
    assert "--patience" in found.stderr
    assert len(server.asked) > 5


def test_without_patience_it_is_said_at_once(server: Canned) -> None:
    server.on("GET", PLACE, NOT_NOW)
    assert server.run("groups", "show", "orders", "--patience", "0").exit_code == Exit.UNREACHABLE
    assert len(server.asked) == 1


@pytest.mark.parametrize("text", ["soon", "-1s"])
def test_what_is_no_span_is_refused_wherever_it_stands(
    server: Canned, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATONPASS_PATIENCE", text)
    found = server.run("groups")
    assert found.exit_code == Exit.BAD_INPUT
    assert "BATONPASS_PATIENCE" in found.stderr
    assert server.run("groups", f"--patience={text}").exit_code == Exit.BAD_INPUT
    assert server.asked == []


def test_nothing_is_ordered_twice(server: Canned) -> None:
    """A 503 to a command may mean that it was carried out: whoever gave it decides what to do."""
    server.on("POST", f"{PLACE}/pause", NOT_NOW)
    assert server.run("pause", "orders", "--reason", "lunch").exit_code == Exit.UNREACHABLE
    assert len(server.asked) == 1


def test_a_plan_and_the_wait_for_a_drain_are_asked_again_whatever_their_method(server: Canned) -> None:
    plan = {"moves": 0, "lower_bound": 0, "at_rest": True, "target": {}, "assignment": {}, "held_back": []}
    server.on("POST", f"{PLACE}/plan", NOT_NOW, (200, plan | {"reasons": [], "balance": None}))
    assert server.run("plan", "orders", "--json").exit_code == 0
    server.on("GET", f"{PLACE}/members", (200, {"members": MEMBERS, "next": None}))
    drained = {"drained": True, "remaining": [], "blocked": []}
    under_way = (202, {"drained": False, "remaining": ["0_0"], "blocked": []})
    server.on("POST", f"{PLACE}/members/{M1}/drain", under_way, NOT_NOW, (200, drained))
    assert server.run("drain", "orders", M1, "--wait", "--json").exit_code == 0


def test_a_coordinator_that_is_not_there_is_waited_for_only_with_patience(server: Canned) -> None:
    url = unused_url()
    began = time.monotonic()
    assert CliRunner().invoke(app, ["groups", "--url", url]).exit_code == Exit.UNREACHABLE
    at_once_s, began = time.monotonic() - began, time.monotonic()
    assert CliRunner().invoke(app, ["groups", "--url", url, "--patience", "1.2s"]).exit_code == Exit.UNREACHABLE
    # The time that a watch lasts begins with the first look: without one it would end in silence, as if all were well.
    watch = ["watch", "orders", "--for", "0.3s", "--url", url, "--patience", "0.6s"]
    assert CliRunner().invoke(app, watch).exit_code == Exit.UNREACHABLE
    assert time.monotonic() - began > at_once_s + AGAIN_S


def test_several_coordinators_are_asked_in_turn(server: Canned) -> None:
    """For orders too, as nothing of them was sent."""
    urls = f"{unused_url()}, {server.url}/ ,"
    server.on("GET", "/v1/groups", (200, {"groups": [], "next": None}))
    assert CliRunner().invoke(app, ["groups", "--url", urls]).exit_code == 0
    server.on("POST", f"{PLACE}/probe", (204, None))
    assert CliRunner().invoke(app, ["probe", "orders"], env={"BATONPASS_URL": urls}).exit_code == 0
    with canned() as other:
        other.on("GET", "/v1/groups", NOT_NOW)
        assert CliRunner().invoke(app, ["groups", "--url", f"{other.url},{server.url}"]).exit_code == 0
        assert len(other.asked) == 1


@pytest.mark.parametrize(
    ("text", "which"), [("http://a:1,orders", "number 2 of what was given"), ("http://a http://b", "what was given")]
)
def test_each_of_several_urls_is_checked(text: str, which: str) -> None:
    found = CliRunner().invoke(app, ["groups", "--url", text])
    assert found.exit_code == Exit.BAD_INPUT
    assert f"{which} is not the URL of a coordinator" in found.stderr


def stream(*positions: int) -> tuple[int, bytes]:
    """Return a stream of events that ends."""
    frames = [f"id: {one}\ndata: {json.dumps(EVENT | {'position': one})}\n\n" for one in positions]
    return 200, b"retry: 2000\nid: 8\n\n" + "".join(frames).encode()


@pytest.mark.parametrize("words", [["--json"], []])
def test_a_watch_goes_on_through_an_outage(server: Canned, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.client.REOPEN_AFTER_S", (0.05,))
    server.on("GET", f"{PLACE}/members", NOT_NOW, (200, {"members": MEMBERS, "next": None}))
    server.on("GET", PLACE, (200, group()))
    gone = (404, {"type": "unknown-group", "detail": "deleted"})
    names: Answer = (200, {"events": []})
    server.on("GET", f"{PLACE}/events", names, stream(9), NOT_NOW, (502, b"<html>"), stream(10, 11), gone)
    found = server.run("watch", "orders", "--for", "20s", *words)
    assert found.exit_code == Exit.NOT_THERE
    if words:
        assert [json.loads(line)["position"] for line in found.stdout.splitlines()] == [9, 10, 11]
        notices = [json.loads(line) for line in found.stderr.splitlines()]
        assert [one["type"] for one in notices[:3]] == ["watching", "coordinator-lost", "coordinator-back"]
        assert notices[2]["away_ms"] >= 0
    else:
        assert found.stdout.count("handover-done") == 3
        assert "ended the stream of events" in found.stderr
        assert "trying again" in found.stderr
        assert found.stderr.count("A coordinator answers again, after") == 1
