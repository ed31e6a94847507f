"""Watching: events are lines, or a picture that says what is so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rich.console import Console
from tests.cli.canned import Canned
from tests.cli.test_operators import M1, M3, MEMBERS, group

from batonpass.cli.exits import Exit
from batonpass.cli.watch import EVENTS_SHOWN, Seen, event_line, picture

EVENT: dict[str, Any] = {
    "position": 9,
    "group": "orders",
    "type": "handover-done",
    "at": "2026-05-04T12:00:00.000Z",
    "generation": 3,
    "member": M1,
    "task": "0_1",
    "body": {"from": M3, "warm": True, "gap_ms": 84, "stopped_at": "2026-05-04T12:00:00.000Z", "cause": ""},
}


def test_events_are_lines_without_a_terminal(server: Canned) -> None:
    frame = b"id: 9\ndata: " + json.dumps(EVENT).encode() + b"\n\n"
    for words, shown in (
        (["--json"], json.dumps(EVENT, separators=(",", ":"))),
        ([], "handover-done 0_1 orders-1 from="),
    ):
        server.on("GET", "/v1/groups/orders", (200, group(group="orders")))
        server.on("GET", "/v1/groups/orders/members", (200, {"members": MEMBERS, "next": None}))
        server.on(
            "GET",
            "/v1/groups/orders/events",
            (200, {"events": []}),
            (200, frame),
            (404, {"type": "unknown-group", "detail": "deleted"}),
        )
        found = server.run("watch", "orders", "--for", "20s", *words)
        assert found.exit_code == Exit.NOT_THERE
        assert shown in found.stdout
        assert "Group orders: " in found.stderr
        assert "Its events follow, a line each." in found.stderr


def test_an_event_is_one_line() -> None:
    line = event_line(EVENT, {M1: "orders-1", M3: "orders-3"}).plain
    assert line.endswith("handover-done 0_1 orders-1 from=orders-3 warm=True gap_ms=84")
    assert event_line({"type": "missed", "body": {"lost": 3}}).plain.endswith("missed lost=3")


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({"role": "active", "state": "running"}, "0_0"),
        (
            {"role": "active", "state": "restoring", "lag": 400, "records_per_second": 100},
            "0_0 restoring (lag 400, 4 s)",
        ),
        ({"role": "active", "state": "failed"}, "0_0 failed"),
        ({}, "0_0 starting"),
    ],
)
def test_a_picture_shows_who_has_what(report: dict[str, Any], words: str) -> None:
    one = MEMBERS[0] | {"reports": {"0_0": report}, "revoking": ["0_2"]}
    console = Console(width=200)
    with console.capture() as captured:
        console.print(picture(Seen(group(), [one], more=True), [EVENT] * EVENTS_SHOWN))
    shown = captured.get()
    for part in (f"{words} (gives up 0_2)", "0_1 (lag ?)", "held back by warmup-budget: 0_3", "more than these"):
        assert part in shown
    assert shown.count("handover-done") == EVENTS_SHOWN
