"""A group in one glance: the level, the headline, and when it is over."""

from __future__ import annotations

from typing import Any

import pytest
from tests.dashboard.fleet import Fleet, at

from batonpass.dashboard.view_models.health import (
    Level,
    group_line,
    health,
    health_of_line,
    lease_over,
    stuck_tasks,
    worst_first,
)
from batonpass.dashboard.words import Names

QUIET: dict[str, Any] = {"members": [], "held_back_by_reason": {}, "sentences": [], "waiting": []}


def explained(**more: Any) -> dict[str, Any]:
    """Return the explanation of a group of twelve tasks that is at rest, but for what is said otherwise."""
    return (
        Fleet.of(4, 12).explain()
        | QUIET
        | {
            "state": "at-rest",
            "at_rest": True,
            "tasks": {"running": 12},
            "moves_pending": 0,
            "eta_ms": None,
            "budgets": {"warmups": {"used": 0, "limit": 2}},
        }
        | more
    )


def look(**more: Any) -> tuple[Level, str, str]:
    """Return level, headline and end of a group of three members."""
    found = health(explained(**more), Names(), members=3, tasks=12)
    return found.level, found.headline, found.over


def test_a_group_at_rest_is_green() -> None:
    assert look() == (Level.REST, "All 12 tasks run where they belong.", "")


REFUSED: dict[str, Any] = {"why": "too large", "since": at(-60), "last_at": at(-5), "times": 3}


def application(refused: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what is known of a Kafka Streams application that was heard a while ago."""
    return {"last_heard_at": at(-300), "silent": True, "refused": refused}


def test_an_application_is_said_to_have_rested_when_it_was_last_heard() -> None:
    sentence = (
        "At the application's last rebalance, 5 min ago, every task was where it belongs, and every copy caught up."
    )
    assert look(application=application(), sentences=[sentence]) == (Level.REST, sentence, "")
    listed = Fleet.of(4, 12).summary() | {"state": "at-rest", "application": application()}
    assert health_of_line(listed).headline.startswith(
        "All 12 tasks run where they belong. Its application was last heard "
    )
    unheard = listed | {"application": application() | {"last_heard_at": None}}
    assert health_of_line(unheard).headline.endswith(" Its application was not heard lately.")


def test_another_application_that_is_refused_is_no_trouble_of_the_first_one() -> None:
    known = application(REFUSED | {"is_another": True})
    sentences = ["At the application's last rebalance, 5 min ago, all was well.", "Another application asks."]
    assert look(application=known, sentences=sentences) == (Level.REST, sentences[0], "")
    listed = Fleet.of(4, 12).summary() | {"state": "at-rest", "application": known}
    assert health_of_line(listed).level is Level.REST


def test_an_application_that_is_refused_is_trouble() -> None:
    sentence = "Rebalances are refused: too large (3 refusals in 1 min, the last 5 s ago)."
    found = look(state="balancing", at_rest=False, application=application(REFUSED), sentences=[sentence])
    assert found == (Level.TROUBLE, sentence, "")
    listed = Fleet.of(4, 12).summary() | {"application": application(REFUSED)}
    assert (health_of_line(listed).level, health_of_line(listed).headline) == (
        Level.TROUBLE,
        "Rebalances are refused: too large.",
    )


def test_a_move_under_way_says_when_it_is_over() -> None:
    level, headline, over = look(
        state="balancing",
        at_rest=False,
        tasks={"running": 10, "warming": 2},
        moves_pending=3,
        eta_ms=9_300,
        held_back_by_reason={"warmup-budget": 1},
    )
    assert level is Level.MOVING
    assert headline == "3 tasks still to move, 2 warming up; the old owners go on until then."
    assert over == "in about 9 s, then 1 move that waits now"


def test_an_end_that_nobody_knows_is_not_made_up() -> None:
    budgets = {"warmups": {"used": 1, "limit": 2}}
    found = look(state="balancing", at_rest=False, tasks={"running": 12}, budgets=budgets)
    assert found == (
        Level.MOVING,
        "Every task runs; copies are still catching up.",
        "not known yet: no rate has been seen",
    )


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("failed", "failed"),
        ("lost", "lost its state"),
        ("parked", "parked after failures"),
        ("waiting", "without an owner"),
    ],
)
def test_a_task_that_stands_still_is_trouble(state: str, words: str) -> None:
    level, headline, over = look(state="balancing", at_rest=False, tasks={"running": 11, state: 1}, eta_ms=9_000)
    assert (level, headline) == (Level.TROUBLE, f"1 of 12 tasks is not processed: 1 {words}.")
    assert (over == "in about 9 s") is (state == "waiting")


def test_a_cold_restore_asks_for_attention() -> None:
    """A task that is being restored by its only owner is not processed meanwhile."""
    level, headline, _ = look(state="balancing", at_rest=False, tasks={"running": 10, "restoring": 2})
    assert (level, headline) == (Level.ATTENTION, "2 of 12 tasks are not processed: 2 restoring.")


def test_a_silent_member_is_named_with_whether_work_goes_on() -> None:
    """At three in the morning it counts whether its tasks run elsewhere, and when the waiting ends."""
    member = {"member": "m3", "what": "suspected", "tasks": 4, "since": at(), "until": None, "detail": ""}
    body = explained(state="balancing", at_rest=False, members=[member])
    found = health(body, Names({"m3": "demo-3"}), members=3, tasks=12, lease_over_at="2020-01-01T00:00:00Z")
    assert (found.level, found.headline) == (Level.ATTENTION, "Member demo-3 has fallen silent. All 12 tasks run.")
    assert found.over.startswith("when it speaks again, or its lease is over, ")


def test_a_blocked_drain_asks_for_attention() -> None:
    """An operator waits for it."""
    member = {"member": "m3", "what": "drain-blocked", "tasks": 4, "since": at(), "until": None, "detail": ""}
    _, headline, _ = look(at_rest=False, tasks={"running": 11, "starting": 1}, members=[member, member])
    assert headline == "Member m3 cannot hand everything over (and 1 more). 1 starting; the others run."


def test_a_pause_says_who_holds_what_until_when() -> None:
    """So that a pause that was forgotten is found on the first page."""
    pause = {"scope": "all", "reason": "upgrade", "since": "2020-01-01T00:00:00Z", "expires_at": None}
    level, headline, over = look(state="paused", pause=pause)
    assert level is Level.ATTENTION
    assert headline.startswith("An operator holds all moves, recovery too, since ")
    assert headline.endswith("ago: upgrade. All 12 tasks run.")
    assert over == "on Resume"


def test_a_storm_is_trouble() -> None:
    """Nothing moves until an operator looks."""
    level, headline, _ = look(state="balancing", at_rest=False, storm_since="2020-01-01T00:00:00Z")
    assert level is Level.TROUBLE
    assert headline.startswith("Too many members vanished at once")


def test_a_group_without_members_runs_nothing() -> None:
    found = health(explained(state="empty"), Names(), members=0, tasks=12)
    assert (found.level, found.headline) == (Level.ATTENTION, "It has no members: nobody runs its 12 tasks.")


def test_a_group_that_is_not_ready_says_what_it_waits_for() -> None:
    """Partition counts come from Kafka, or from whoever declares the group."""
    assert look(state="not-ready", detail="waits for topic x")[:2] == (Level.ATTENTION, "waits for topic x")


def test_sentences_that_say_the_same_twice_are_left_out() -> None:
    """The headline, the clock beside it and the list of members say some of them already."""
    member = {"member": "m3", "what": "draining", "tasks": 4, "since": at(), "until": at(9), "detail": ""}
    sentences = [
        "1 task has still to move.",
        "Whatever members report is acted upon.",
        "m3 is draining.",
        "1 is held back.",
    ]
    body = explained(state="balancing", at_rest=False, sentences=sentences, members=[member])
    assert health(body, Names(), members=3, tasks=12).reasons == ("1 is held back.",)


def test_the_list_of_groups_begins_with_trouble() -> None:
    quiet = Fleet.of(4, 12).summary() | {"group": "a", "state": "at-rest", "at_rest": True}
    paused, loud, empty = (
        quiet | {"group": "b", "state": "paused"},
        quiet | {"group": "c"},
        quiet | {"group": "d", "members": 0},
    )
    moving, unready = quiet | {"group": "e", "state": "balancing"}, quiet | {"group": "f", "state": "not-ready"}
    trouble = explained(state="balancing", at_rest=False, tasks={"failed": 1})
    lines = [
        group_line(one, trouble if one is loud else None, Names())
        for one in (quiet, paused, loud, empty, moving, unready)
    ]
    assert [line.group for line in worst_first(lines)] == ["c", "b", "d", "f", "e", "a"]
    assert health_of_line(moving).headline == "3 tasks still to move, 2 warming up."


def test_tasks_that_are_not_processed_say_what_they_wait_for() -> None:
    fleet = Fleet.of(8, 40)
    found = stuck_tasks(fleet.explain(), Names({"worker-3": "w3"}))
    assert [(one.task, one.state) for one in found] == [
        (fleet.failed, "failed"),
        (fleet.waiting[0], "without an owner"),
    ]
    assert found[0].waits == ("w3: it failed there",)


def test_the_lease_of_the_longest_silent_member_counts() -> None:
    """It is known from when the member was heard last, and how long a session lasts."""
    members = [{"suspected": True, "last_heard_at": at(-5)}, {"suspected": True, "last_heard_at": at(-9)}]
    assert lease_over(members, {"session_timeout_ms": 10_000}) == "2026-11-20T03:04:06+00:00"
    assert lease_over([{"suspected": False, "last_heard_at": at()}], {"session_timeout_ms": 1}) is None
