"""Gaps have the cause that they had, and are as long as nobody ran the task: who was killed did not hand over."""

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest
from tests.audit.by_hand import Row, folded
from tests.audit.planted import DAY, HOUR_MS, MIDNIGHT_MS, MINUTE_MS, STEPS, scenario

from batonpass.audit import downtime
from batonpass.audit.entries import Entry, read_entries
from batonpass.audit.fold import GroupFold
from batonpass.audit.plan import GroupPlan
from batonpass.codec.records import StoredRecord
from batonpass.core.state.model import Subtopology, Topology
from batonpass.core.state.policy import GroupConfig
from batonpass.days.generate import rows_of
from batonpass.days.rows import EPOCH

KILLED_MS = 60 * MINUTE_MS
HEARTBEAT_MS = 3_000
DAY_MS = 24 * HOUR_MS
SESSION_S, SUSPECT_S = 45, 6

BOUNDS = "bounds"
"""The ``what`` of a row that says with which record the day of a group begins."""


def row(seq: int, second: float, what: str, *, place: int = 0, **columns: Any) -> Row:
    """Return an entry of group g, that became so at a second of the day."""
    at_ms = MIDNIGHT_MS + round(second * 1_000)
    known = {"group_id": "g", "seq": seq, "place": place, "at_ms": at_ms, "coordinator_epoch": 1}
    return {**dict.fromkeys(Entry._fields), **known, "what": what, "ms": at_ms, **columns}


def day_of(first: int, group: str = "g") -> Row:
    """Return the row that says with which record the day of a group begins."""
    return row(first, 0, BOUNDS, group_id=group)


def settings(suspect_s: int = SUSPECT_S, *, seq: int = 1) -> list[Row]:
    """Return the settings and the parts of a group: 0 has state, 1 has none."""
    config = GroupConfig(session_timeout_ms=SESSION_S * 1_000, suspect_timeout_ms=suspect_s * 1_000)
    topology = Topology(subtopologies=(Subtopology("0", 2), Subtopology("1", 2, stateful=False)))
    return [row(seq, 0, "config", whole=config), row(seq, 0, "topology", place=1, whole=topology)]


def measured(rows: Sequence[Row], end_ms: int = MIDNIGHT_MS + DAY_MS) -> dict[str, GroupFold]:
    """Return the day of each group; one that nobody bounds begins with record 1."""
    bounds = [one for one in rows if one["what"] == BOUNDS] or [day_of(1)]
    entries = [one for one in rows if one["what"] != BOUNDS]
    plans = [GroupPlan(one["group_id"], 0, known=True, first=one["seq"], last=1_000, missing=0) for one in bounds]
    return {one.group: folded(entries, one, MIDNIGHT_MS, end_ms) for one in plans}


def gaps_of(rows: Sequence[Row], end_ms: int = MIDNIGHT_MS + DAY_MS) -> list[Row]:
    """Return the gaps of some rows, in order, with times as seconds of the day."""
    days = measured(rows, end_ms)
    gaps = [{"group_id": group, **one._asdict()} for group, fold in days.items() for one in fold.gaps]
    found = sorted(gaps, key=itemgetter("task", "from_ms"))
    return [
        {**one, "from": (one["from_ms"] - MIDNIGHT_MS) / 1_000, "to": (one["to_ms"] - MIDNIGHT_MS) / 1_000}
        for one in found
    ]


def a_runs(task: str = "0_0", up_s: float = 10) -> list[Row]:
    """Return how a comes to run a task: records 2 to 5, granted at the beginning of the day."""
    return [
        *(row(2, 0, "joined", member="a.1", word="a"), row(3, 0, "joined", member="b.1", word="b")),
        row(4, 0, "active", task=task, member="a.1", token=1, ready=True),
        row(5, up_s, "reported", task=task, member="a.1", word="running"),
    ]


def taken(
    second: float, member: str = "b.1", *, task: str = "0_0", ready: bool | None = True, up_s: float = 3
) -> list[Row]:
    """Return how somebody takes a task over: granted in record 20, and running in record 21, some seconds later."""
    return [
        row(20, second, "active", task=task, member=member, token=2, ready=ready),
        row(21, second + up_s, "reported", task=task, member=member, word="running"),
    ]


def given(second: float, task: str = "0_0") -> list[Row]:
    """Return how a is told to give a task up, and confirms a second later: records 10 and 11."""
    return [
        row(10, second, "revoked", task=task, member="a.1"),
        row(11, second + 1, "released", task=task, member="a.1"),
    ]


def gone(second: float, word: str | None, number: int | None = None) -> Row:
    """Return that a went, and its lease with it: record 12. ``number``: when it was last heard."""
    until_ms = MIDNIGHT_MS + round(second * 1_000)
    return row(12, second, "gone", member="a.1", word=word, until_ms=until_ms, number=number)


def second_gap(*rows: Row, suspect_s: int = SUSPECT_S, task: str = "0_0", up_s: float = 10) -> Row:
    """Return the gap after a's run; the first one is there always."""
    first, then = gaps_of([*settings(suspect_s), *a_runs(task, up_s), *rows])
    assert (first["cause"], first["from"], first["to"]) == ("cold-start", 0, up_s)
    assert (first["runner"], first["next_runner"], first["next_up_seq"]) == (None, "a.1", 5)
    return then


def test_a_handover_is_warm_where_a_copy_that_was_caught_up_goes_on() -> None:
    found = second_gap(*given(100), *taken(101.5))
    assert (found["cause"], found["from"], found["to"], found["gap_ms"]) == ("warm-handover", 101, 104.5, 3_500)
    assert (found["unowned_ms"], found["why"]) == (500, "released")
    assert (found["runner"], found["next_runner"], found["down_seq"], found["next_up_seq"]) == ("a.1", "b.1", 11, 21)


@pytest.mark.parametrize("ready", [False, None])
def test_who_was_not_caught_up_starts_cold(ready: bool | None) -> None:  # noqa: FBT001 - parametrized
    assert second_gap(*given(100), *taken(101, ready=ready))["cause"] == "cold-start"


def test_a_task_without_state_never_starts_cold_but_for_the_first_time() -> None:
    found = second_gap(*given(100, "1_0"), *taken(101, task="1_0", ready=False), task="1_0")
    assert found["cause"] == "warm-handover"


def test_an_owner_that_failed_before_it_was_asked_is_a_failover() -> None:
    failed = row(9, 90, "reported", task="0_0", member="a.1", word="failed")
    found = second_gap(failed, *given(100), *taken(101))
    assert (found["cause"], found["from"], found["why"]) == ("failover", 90, "failed")


def test_an_owner_that_fails_after_it_was_asked_has_handed_over() -> None:
    """It was to stop anyway."""
    failed = row(11, 100.5, "reported", task="0_0", member="a.1", word="lost")
    found = second_gap(given(100)[0], failed, row(12, 101, "released", task="0_0", member="a.1"), *taken(101))
    assert (found["cause"], found["from"]) == ("warm-handover", 100.5)


@pytest.mark.parametrize("word", downtime.DEATHS)
def test_who_was_taken_to_be_dead_did_not_hand_over(word: str) -> None:
    """A member that is taken to be dead is asked to give its tasks up as well, in case it lives after all."""
    found = second_gap(given(100)[0], gone(105, word), *taken(105))
    assert (found["cause"], found["why"]) == ("failover", word)


@pytest.mark.parametrize("word", ["left", None])
def test_who_went_by_itself_after_it_was_asked_has_handed_over(word: str | None) -> None:
    found = second_gap(given(100)[0], gone(105, word), *taken(105))
    assert (found["cause"], found["why"], found["from"]) == ("warm-handover", word or "gone", 105)


def test_the_same_member_and_the_same_instance_are_a_restart() -> None:
    """An instance is known by its name, a member without one by its own."""
    again = row(15, 120, "joined", member="a.2", word="a")
    found = second_gap(gone(110, "left"), again, *taken(120, "a.2", ready=False))
    assert (found["cause"], found["runner"], found["next_runner"]) == ("restart", "a.1", "a.2")
    assert second_gap(*given(100), *taken(105, "a.1", ready=False))["cause"] == "restart"
    nameless = [row(15, 120, "joined", member="a.2"), row(16, 120, "joined", member="a.3")]
    assert second_gap(gone(110, "left"), *nameless, *taken(120, "a.2"))["cause"] == "failover"


def test_members_that_nobody_saw_join_are_not_the_same() -> None:
    """That neither has a name does not make them one."""
    rows = [one for one in a_runs() if one["what"] != "joined"]
    found = gaps_of([*settings(), *rows, *given(100), *taken(101, ready=False)])
    assert [one["cause"] for one in found] == ["cold-start", "cold-start"]


def test_a_task_that_nobody_is_granted_for_more_than_ten_minutes_is_stuck() -> None:
    limit_s = downtime.STUCK_MS / 1_000
    assert second_gap(*given(100), *taken(101 + limit_s))["cause"] == "warm-handover"
    for member in ("a.1", "b.1"):
        found = second_gap(*given(100), *taken(101 + limit_s + 0.001, member))
        assert (found["cause"], found["unowned_ms"]) == ("stuck", downtime.STUCK_MS + 1)
    # Granted early, it may take its time: that is a long gap, and nobody's who had nothing.
    slow = second_gap(*given(100), *taken(101, up_s=3_600))
    assert (slow["cause"], slow["gap_ms"], slow["unowned_ms"]) == ("warm-handover", HOUR_MS, 0)


def test_an_expired_member_is_down_since_it_fell_silent() -> None:
    """Nothing had been heard of it for a session timeout; at the earliest it is down since it ran."""
    found = second_gap(gone(200, "expired"), *taken(200))
    assert (found["from"], found["to"], found["cause"]) == (200 - SESSION_S, 203, "failover")
    assert second_gap(gone(200, "expired"), *taken(200), up_s=180)["from"] == 180
    assert second_gap(gone(200, "fenced"), *taken(200))["from"] == 200


@pytest.mark.parametrize("word", ["expired", "fenced", "evicted", "replaced", "taken-over"])
def test_who_was_given_up_is_down_since_it_was_last_heard(word: str) -> None:
    """Not before it ran, and not after it said that it stopped."""
    last = MIDNIGHT_MS + 170_000
    assert second_gap(gone(200, word, number=last), *taken(200))["from"] == 170
    assert second_gap(gone(200, word, number=last), *taken(200), up_s=180)["from"] == 180
    assert second_gap(*given(160), gone(200, word, number=last), *taken(200))["from"] == 161


def test_a_suspect_is_down_since_it_was_last_heard() -> None:
    last = MIDNIGHT_MS + 170_000
    waived = [row(10, 199, "revoked", task="0_0", member="a.1"), row(11, 200, "waived", task="0_0", member="a.1")]
    found = second_gap(waived[0], waived[1] | {"number": last}, *taken(200))
    assert (found["from"], found["cause"], found["why"]) == (170, "failover", "suspected")


@pytest.mark.parametrize(("suspect_s", "from_s"), [(SUSPECT_S, 200 - SUSPECT_S), (0, 200)])
def test_a_suspect_is_down_since_it_fell_silent(suspect_s: int, from_s: int) -> None:
    waived = [row(10, 199, "revoked", task="0_0", member="a.1"), row(11, 200, "waived", task="0_0", member="a.1")]
    found = second_gap(*waived, *taken(200), suspect_s=suspect_s)
    assert (found["from"], found["cause"], found["why"]) == (from_s, "failover", "suspected")


def test_the_longest_timeouts_of_the_day_count() -> None:
    """Settings that were lowered meanwhile do not make a silence shorter."""
    lowered = row(7, 50, "config", whole=GroupConfig(session_timeout_ms=1_000, suspect_timeout_ms=1_000))
    assert second_gap(lowered, gone(200, "expired"), *taken(200))["from"] == 200 - SESSION_S
    waived = row(11, 200, "waived", task="0_0", member="a.1")
    assert second_gap(lowered, given(199)[0], waived, *taken(200))["from"] == 200 - SUSPECT_S


def test_a_parked_task_has_no_gap() -> None:
    """It has no owner on purpose."""
    rows = [*settings(), *a_runs(), *given(100)]
    assert len(gaps_of([*rows, *taken(5_000)])) == 2
    assert len(gaps_of([*rows, row(12, 102, "parked", task="0_0"), *taken(5_000)])) == 1


def test_a_task_is_not_down_while_an_owner_runs_it_who_was_told_nothing() -> None:
    """Of two at once (L1) one stops, and a third begins. If the first is told to stop, nobody is sure to run it."""
    two = [
        row(6, 50, "active", task="0_0", member="b.1", token=2, ready=True),
        row(7, 53, "reported", task="0_0", member="b.1", word="running"),
        row(8, 100, "revoked", task="0_0", member="b.1"),
        row(9, 101, "released", task="0_0", member="b.1"),
    ]
    assert len(gaps_of([*settings(), *a_runs(), *two, *taken(131, "c.1", ready=False)])) == 1
    assert second_gap(*two, given(101)[0], *taken(131, "c.1"))["from"] == 101
    restoring = row(5, 10, "reported", task="0_0", member="a.1", word="restoring")
    *_, gap = gaps_of([*settings(), *a_runs()[:3], restoring, *two, *taken(131, "c.1")])
    assert (gap["runner"], gap["from"], gap["to"]) == ("b.1", 101, 134)


def test_gaps_are_cut_at_the_ends_of_the_day() -> None:
    yesterday = [*settings(), *a_runs(up_s=-7_200), *given(-60)]
    (found,) = gaps_of([*yesterday, *taken(5)])
    assert (found["from"], found["to"], found["unowned_ms"], found["cause"]) == (0, 8, 5_000, "warm-handover")
    (still,) = gaps_of(yesterday, MIDNIGHT_MS + HOUR_MS)
    assert (still["from"], still["to"], still["unowned_ms"], still["next_up_seq"]) == (0, 3_600, HOUR_MS, None)
    assert gaps_of([*yesterday, *taken(-3)]) == []
    assert gaps_of([*settings(), *a_runs(up_s=-7_200), *given(86_399), *taken(86_400)]) == []
    (late,) = gaps_of([*settings(), *a_runs(up_s=-7_200), *given(86_398), *taken(86_398, up_s=60)])
    assert (late["from"], late["to"], late["gap_ms"]) == (86_399, 86_400, 1_000)


def test_no_gap_is_shorter_than_nothing() -> None:
    """Records say when things were so by other clocks than the one that orders them."""
    late = row(11, 101, "released", task="0_0", member="a.1", ms=MIDNIGHT_MS + 105_000)
    found = second_gap(given(100)[0], late, *taken(101))
    assert (found["from"], found["to"], found["gap_ms"], found["unowned_ms"]) == (105, 104, 0, 0)


def test_who_turns_out_to_run_a_task_was_granted_it_when_it_ran() -> None:
    """After lost commits no record says when; the task had its owner by then at the latest."""
    found = second_gap(*given(100), row(20, 110, "adopted", task="0_0", member="b.1", token=2, ready=True))
    assert (found["from"], found["to"], found["unowned_ms"], found["next_runner"]) == (101, 110, 9_000, "b.1")


def test_groups_in_one_part_do_not_mix() -> None:
    rows = [*settings(), *a_runs(), gone(200, "expired"), *taken(200)]
    others = [one | {"group_id": "h"} for one in [*settings(60, seq=1), *a_runs(), *given(100), *taken(101, "a.1")]]
    found = gaps_of([*rows, *others, day_of(1), day_of(1, "h")])
    alone = [(one["cause"], one["from"], one["to"]) for one in gaps_of(rows)]
    assert [(one["cause"], one["from"], one["to"]) for one in found if one["group_id"] == "g"] == alone
    assert [one["cause"] for one in found if one["group_id"] == "h"] == ["cold-start", "restart"]


@pytest.mark.parametrize(
    ("gaps", "p50", "p99"), [(1, 1, 1), (2, 1, 2), (3, 2, 3), (100, 50, 99), (101, 51, 100), (1_000, 500, 990)]
)
def test_percentiles_are_gaps_that_there_were(gaps: int, p50: int, p99: int) -> None:
    """The least of which half, or 99 of a hundred, are no longer."""
    found = downtime.distributions({"failover": [1_000 * one for one in range(gaps, 0, -1)], "stuck": [7]})
    total_s = gaps * (gaps + 1) // 2
    assert {cause: tuple(one.values()) for cause, one in found.items()} == {
        "failover": (gaps, 1_000 * p50, 1_000 * p99, 1_000 * gaps, 1_000 * total_s),
        "stuck": (1, 7, 7, 7, 7),
    }


def lifetimes_of(rows: Sequence[Row]) -> tuple[int, int]:
    """Return how many tasks were seen, and for how long they should have run."""
    tasks = measured(rows)["g"].ledger.tasks.values()
    return sum(one.seen for one in tasks), downtime.lifetime_ms(tasks, MIDNIGHT_MS, MIDNIGHT_MS + DAY_MS)


def test_a_task_counts_from_its_first_grant_on() -> None:
    granted = [row(6, 43_200, "active", task="0_1", member="b.1", token=1, ready=True)]
    assert lifetimes_of([*settings(), *a_runs(), *granted]) == (2, DAY_MS + DAY_MS // 2)
    targeted = [row(7, 50, "target", task="0_1", member="b.1")]
    assert lifetimes_of([*settings(), *a_runs(up_s=-60), *targeted]) == (2, DAY_MS)


def parts(seq: int, second: float, *names: str) -> Row:
    """Return that a group has these subtopologies, and no others, from a second of the day on."""
    return row(seq, second, "topology", whole=Topology(subtopologies=tuple(Subtopology(name, 2) for name in names)))


def day_with(*rows: Row) -> tuple[list[tuple[float, float]], int]:
    """Return the gaps after the first start, as seconds of the day, and for how many seconds tasks should have run."""
    whole = [*settings(), *a_runs(), *rows]
    first, *then = gaps_of(whole)
    assert (first["from"], first["to"]) == (0, 10)
    return [(one["from"], one["to"]) for one in then], lifetimes_of(whole)[1] // 1_000


def test_a_task_is_down_no_longer_than_its_group_exists() -> None:
    deleted, after_gone = row(15, 160, "deleted"), [row(15, 160, "deleted"), row(16, 200, "other")]
    assert day_with(*given(100), deleted) == ([(101, 160)], 160)
    assert day_with(deleted) == ([], 160)
    assert day_with(gone(100, "expired", MIDNIGHT_MS + 90_000), *after_gone) == ([(90, 160)], 160)


def test_a_task_is_down_no_longer_than_its_subtopology_exists() -> None:
    removed = parts(6, 50, "1")
    assert day_with(removed, *given(100)) == ([], 50)
    assert day_with(removed, row(7, 60, "reported", task="0_0", member="a.1", word="running"), *given(100)) == ([], 50)
    assert day_with(*given(30), parts(12, 50, "1")) == ([(31, 50)], 50)
    assert day_with(*given(30), parts(12, 50, "1", "0")) == ([(31, DAY_MS // 1_000)], DAY_MS // 1_000)


def test_a_task_whose_subtopology_is_there_again_begins_anew() -> None:
    again = [parts(6, 50, "1"), *given(60), parts(12, 100, "0"), *taken(200)]
    assert day_with(*again) == ([(200, 203)], 50 + DAY_MS // 1_000 - 200)
    assert day_with(*again, row(22, 300, "deleted")) == ([(200, 203)], 50 + 100)


def test_what_was_left_out_before_the_day_is_not_down() -> None:
    stopped = row(1, -90, "stopped", place=-1, task="0_0", member="a.1", word="revoked")
    began = [stopped, day_of(2), row(2, 1, "other")]
    assert [one["from"] for one in gaps_of([parts(1, -60, "0") | {"place": -2}, *began])] == [0]
    assert gaps_of([parts(1, -60, "1") | {"place": -2}, *began]) == []


def test_a_task_that_was_stuck_when_its_group_was_deleted_is_not_stuck_still() -> None:
    stuck = [*settings(), *a_runs(), *given(100)]
    for rows, still in ((stuck, True), ([*stuck, row(15, 1_000, "deleted")], False)):
        (found,) = (one for one in measured(rows)["g"].kept.first() if one.law == "stuck-task")
        assert ("still so" in found.detail) == still


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fenced", [True, False])
def test_a_killed_member_is_a_failover_and_down_since_it_fell_silent(*, fenced: bool) -> None:
    config = GroupConfig()
    day = scenario("killed", STEPS[1:2])
    day = replace(day, workers=tuple(replace(one, fenced=fenced) for one in day.workers))
    records = [
        (group, seq, round((at - EPOCH).total_seconds() * 1_000), epoch, kind, version, payload)
        for group, seq, epoch, at, kind, version, payload in rows_of(day, DAY, sample_every=0).tables["record_log"]
    ]
    rows = [
        {"group_id": group, **one._asdict()}
        for group, seq, at_ms, epoch, kind, version, payload in records
        for one in read_entries(seq, at_ms, epoch, StoredRecord(kind, version, payload.encode()))[0]
    ]
    found = gaps_of([*rows, day_of(1, "killed")])
    after = [one for one in found if one["from_ms"] >= MIDNIGHT_MS and one["task"].startswith("0_")]
    suspended = [one for one in after if one["why"] in {"suspected", "expired"}]
    assert suspended
    assert {one["why"] for one in suspended} == ({"suspected"} if fenced else {"expired"})
    assert {one["cause"] for one in suspended} == {"failover"}
    # It takes the survivors a moment to run what they have; the rest is waiting for somebody silent.
    silence_ms = config.suspect_timeout_ms if fenced else config.session_timeout_ms
    assert all(silence_ms <= one["gap_ms"] < silence_ms + 5_000 for one in suspended)
    assert all(one["from_ms"] >= MIDNIGHT_MS + KILLED_MS - HEARTBEAT_MS for one in suspended)
