"""Watching: events are lines, or a picture that says what is so."""

import json
import re
from typing import Any

import pytest
from rich.console import Console
from tests.cli.canned import Canned
from tests.cli.test_operators import M1, M3, MEMBERS, group

from batonpass.cli.exits import Exit
from batonpass.cli.watch import EVENTS_SHOWN, HELD, Seen, event_line, picture
from batonpass.dashboard.view_models.members import COLUMNS, filled
from batonpass.dashboard.words import Names
from batonpass.zones import zone_named

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
        ([], "handover-done 0_1 went from "),
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
        assert "Its events follow, a line each; times are UTC." in found.stderr


def test_an_event_is_one_line() -> None:
    line = event_line(EVENT, Names({M1: "orders-1", M3: "orders-3"})).plain
    assert line.endswith("handover-done 0_1 went from orders-3 to orders-1; nobody ran it for 84 ms.")
    missed = event_line({"type": "missed", "body": {"lost": 3}}, Names()).plain
    assert missed.endswith("missed 3 events are missing: they are no longer stored.")


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({"role": "active", "state": "running"}, "0_0,"),
        ({"role": "active", "state": "restoring", "lag": 400}, "0_0 (R 400)"),
        ({"role": "active", "state": "failed"}, "0_0 (!)"),
        ({}, "0_0 (…)"),
    ],
)
def test_a_picture_shows_who_has_what(report: dict[str, Any], words: str) -> None:
    one = MEMBERS[0] | {"reports": {"0_0": report} if report else {}, "revoking": ["0_2"]}
    shown = drawn(Seen(group(), [one], None), [EVENT] * EVENTS_SHOWN, height=60)
    for part in (words, "0_2 (…)", "0_1 (?)", "Held back: 1 by warmup-budget."):
        assert part in shown
    assert shown.count("handover-done") == EVENTS_SHOWN


def test_a_picture_has_every_column_of_a_list_of_members() -> None:
    members = [MEMBERS[0] | {"capacity": 2.0}, MEMBERS[1]]
    shown = drawn(Seen(group(), members, None), [], height=60)
    (heads,) = [line.split() for line in shown.splitlines() if line.startswith("member ")]
    more = [title for title in filled(COLUMNS, members) if title not in HELD]
    assert {"capacity", "load", "disk"} <= set(more)
    assert " ".join(heads) == " ".join(["member", "state", *HELD, *more, "heard"])


def drawn(seen: Seen, events: list[dict[str, Any]], *, width: int = 200, height: int = 24) -> str:
    """Return what is drawn in a window of this size."""
    console = Console(width=width, height=height)
    with console.capture() as captured:
        console.print(picture(seen, events, Names({M1: "orders-1"})))
    return captured.get()


def test_a_large_group_shows_counts_and_exceptions_and_keeps_its_events_in_view() -> None:
    """In a window of 80 by 24, however much there is to say, and what does not fit is counted."""
    waiting = [{"task": f"0_{number}", "state": "waiting"} for number in range(8)]
    explained = {
        "tasks": {"running": 1_990, "handing-over": 2, "waiting": 2_000},
        "members": [{"member": M1, "what": "suspected"}],
        "waiting": waiting,
        "waiting_total": 2_000,
    }
    seen = Seen(group(members=100, tasks=4_000), [], explained)
    shown = drawn(seen, [EVENT] * EVENTS_SHOWN, width=80, height=60)
    assert "Tasks: 1,990 running, 2 handing over, 2,000 waiting." in shown
    assert "member orders-1: suspected" in shown
    assert "task 0_7: waiting" in shown
    assert "and 1,992 more tasks" in shown
    lines = drawn(seen, [EVENT] * EVENTS_SHOWN, width=80, height=18).splitlines()
    assert len(lines) <= 18
    assert "handover-done" in lines[-2] + lines[-1]
    assert any("more lines: in a taller window" in line for line in lines)
    assert "Events (UTC):" in [line.strip() for line in lines]


def test_times_have_the_readers_zone_and_a_date_unless_it_is_today(server: Canned) -> None:
    assert re.match("04 May (2026 )?21:00:00 handover-done", event_line(EVENT, Names(), zone_named("Asia/Tokyo")).plain)
    found = server.run("watch", "orders", "--zone", "Vienna")
    assert found.exit_code == Exit.BAD_INPUT
    assert "there is no time zone 'Vienna' on this machine; write UTC, or for example Europe/Vienna" in found.stderr
