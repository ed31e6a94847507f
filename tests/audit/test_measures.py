"""Measures count what they say they count, and what is out of the ordinary becomes a notice."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.audit.by_hand import BEGIN_MS, END_MS, GENERATION, Row
from tests.audit.planted import HOUR_MS, MIDNIGHT_MS, MINUTE_MS
from tests.audit.test_downtime import BOUNDS, DAY_MS, a_runs, day_of, given, measured, row, settings, taken

from batonpass.audit import measures, report
from batonpass.audit.entries import LAG, Entry
from batonpass.audit.facts import Probe
from batonpass.audit.findings import Finding, GroupDay, Severity
from batonpass.audit.fold import GroupFold
from batonpass.audit.ledger import Ledger
from batonpass.audit.plan import GroupPlan
from batonpass.audit_words import MEASURES
from batonpass.cli import audits as cli
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import Member, Target
from batonpass.core.state.policy import BalanceBy, GroupConfig
from batonpass.core.state.records import (
    ConfigChanged,
    ImbalanceNoted,
    LoadsMeasured,
    MemberJoined,
    MovedForLoad,
    Record,
    TargetPlaced,
)

ROOT = Path(__file__).parents[2]
MINUTE_S = 60
HOUR_S = 3_600


def found_in(rows: Sequence[Row], law: str, end_ms: int = MIDNIGHT_MS + DAY_MS) -> list[Row]:
    """Return the findings of a law."""
    return [
        {
            **{name: getattr(one, name) for name in ("task", "member", "detail")},
            "severity": one.severity.value,
            "sequences": list(one.sequences),
            "at": list(one.at),
        }
        for fold in measured(rows, end_ms).values()
        for one in fold.kept.first()
        if one.law == law
    ]


def days_of(rows: Sequence[Row]) -> dict[str, GroupDay]:
    """Return the measures of each group that lived."""
    return {group: fold.day for group, fold in measured(rows).items() if fold.day is not None}


def probe(seq: int, second: float, due_s: float | None, **columns: Any) -> Row:
    """Return that a look of the timer was set for some time, or for none."""
    return row(seq, second, "probe", until_ms=None if due_s is None else MIDNIGHT_MS + round(due_s * 1_000), **columns)


def looks_of(rows: Sequence[Row]) -> list[tuple[int, bool]]:
    """Return each look of the timer by its record, and whether it was futile."""
    bounds = next((one for one in rows if one["what"] == BOUNDS), day_of(1))
    ledger = Ledger(GroupPlan("g", 0, known=True, first=bounds["seq"], last=1_000, missing=0), BEGIN_MS)
    entries = [
        Entry(*(one[name] for name in Entry._fields))
        for one in rows
        if one["what"] != BOUNDS and one["group_id"] == "g"
    ]
    facts = [fact for one in sorted(entries) for fact in ledger.take(one)] + ledger.end()
    return [(fact.entry.seq, fact.futile) for fact in facts if isinstance(fact, Probe)]


def test_a_look_of_the_timer_is_futile_where_it_wrote_nothing_but_the_next_one() -> None:
    """A look that was set anew before it was due is none."""
    assert looks_of([probe(1, 0, 10), probe(2, 10, 20), probe(3, 15, 30), probe(4, 30.5, 40)]) == [(2, True), (4, True)]


def test_a_look_of_the_timer_that_wrote_something_else_or_ended_the_looking_is_not_futile() -> None:
    beside = row(2, 10, "placed", token=1, until_ms=1, word="1")
    rows = [probe(1, 0, 10), beside, probe(3, 10, 20), probe(4, 20, None)]
    assert looks_of(rows) == [(3, False), (4, False)]
    assert looks_of([*rows[:1], beside | {"at_ms": beside["at_ms"] + 1}, *rows[2:3]]) == [(3, True)]
    # Of another group, and a further row of the record itself.
    others = [beside | {"group_id": "other"}, row(3, 10, "suspected", place=1, member="a"), day_of(1)]
    assert looks_of([*rows[:1], *others, *rows[2:3]]) == [(3, True)]


def test_looks_of_yesterday_are_not_counted() -> None:
    """What was set yesterday may be due today."""
    rows = [probe(1, -20, -10), probe(2, -10, 5), probe(3, 5, 15), day_of(3)]
    assert days_of(rows)["g"].measures["probes"] == 1


def goes(seq: int, minute: float, member: str = "a.1", word: str | None = "expired", what: str = "gone") -> Row:
    """Return that a member went."""
    return row(seq, minute * MINUTE_S, what, member=member, word=word, until_ms=0)


def joins(count: int, instance: str | None = "a") -> list[Row]:
    """Return that the runs of an instance joined: a.1, a.2 and so on, before the first minute."""
    return [row(one, 0, "joined", member=f"a.{one}", word=instance) for one in range(1, count + 1)]


def test_a_member_that_went_four_times_within_an_hour_is_flapping() -> None:
    rows = [*joins(4), *(goes(10 + n, 20 * n, f"a.{n + 1}") for n in range(4))]
    (found,) = found_in(rows, "flapping-member")
    assert (found["severity"], found["member"], found["task"]) == ("notice", "a", None)
    assert found["detail"] == "went and came back 4 times within an hour, until 2026-11-18 01:00:00.000"
    assert found["sequences"] == [10, 11, 12, 13]
    assert found["at"] == [MIDNIGHT_MS + n * 20 * MINUTE_MS for n in range(4)]
    assert days_of(rows)["g"].measures["flapping_members"] == 1


def test_three_times_or_four_times_in_more_than_an_hour_are_not_flapping() -> None:
    assert found_in([*joins(3), *(goes(10 + n, n, f"a.{n + 1}") for n in range(3))], "flapping-member") == []
    spread = [goes(10 + n, 20 * n, f"a.{n + 1}") for n in range(3)] + [goes(13, 60.001, "a.4")]
    assert found_in([*joins(4), *spread], "flapping-member") == []
    assert found_in([*joins(4, None), *(goes(10 + n, n, f"a.{n + 1}") for n in range(4))], "flapping-member") == []


@pytest.mark.parametrize(
    ("what", "word", "count"),
    [
        *(("gone", word, 4) for word in ("expired", "fenced", "replaced", "taken-over")),
        *(("gone", word, 0) for word in ("left", "evicted", None)),
        ("away", None, 4),
        ("suspected", None, 4),
        ("cleared", None, 0),
    ],
)
def test_who_leaves_or_is_sent_away_does_not_flap(what: str, word: str | None, count: int) -> None:
    """What counts is to go without a word, and to restart."""
    rows = [*joins(1), *(goes(10 + n, n, "a.1", word, what) for n in range(4))]
    assert [one["sequences"] for one in found_in(rows, "flapping-member")] == ([[10, 11, 12, 13]] if count else [])


def test_members_whose_joining_is_not_in_the_log_are_not_taken_for_one() -> None:
    assert found_in([goes(10 + n, n, f"lost.{n}") for n in range(4)], "flapping-member") == []
    (found,) = found_in([goes(10 + n, n, "lost.1") for n in range(4)], "flapping-member")
    assert found["member"] == "lost.1"


def test_a_suspect_that_expires_has_gone_once() -> None:
    rows = joins(4)
    for n in range(3):
        rows += [goes(10 + 2 * n, n, f"a.{n + 1}", None, "suspected"), goes(11 + 2 * n, n + 0.5, f"a.{n + 1}")]
    assert found_in(rows, "flapping-member") == []
    (found,) = found_in([*rows, goes(30, 5, "a.4")], "flapping-member")
    assert found["sequences"] == [10, 12, 14, 30]


def test_what_was_before_the_day_does_not_count_as_flapping() -> None:
    """It was found on its own day; the names of those who joined then are known."""
    rows = [*joins(4), *(goes(10 + n, n, f"a.{n + 1}") for n in range(4))]
    assert len(found_in([*rows, day_of(10)], "flapping-member")) == 1
    assert found_in([*rows, day_of(11)], "flapping-member") == []


def test_the_notice_of_a_member_that_flaps_all_day_has_part_of_its_worst_hour() -> None:
    """One finding a member, with twenty proofs; of hours that are equally bad it is the last one."""
    calm = [goes(10 + n, 15 * n) for n in range(4)]
    wild = [goes(100 + n, 300 + n) for n in range(25)]
    (found,) = found_in([*joins(1), *calm, *wild], "flapping-member")
    assert found["detail"] == "went and came back 25 times within an hour, until 2026-11-18 05:24:00.000"
    assert found["sequences"] == list(range(100, 120))
    again = [goes(200 + n, 600 + 15 * n) for n in range(4)]
    (found,) = found_in([*joins(1), *calm, *again], "flapping-member")
    assert found["sequences"] == [200, 201, 202, 203]


def warmed(from_s: float, to_s: float | None = None, what: str = "standby") -> list[Row]:
    """Return a warmup of 0_0 on b.1: record 50, and how it ended, record 60."""
    began = row(50, from_s, "warmup", task="0_0", member="b.1", ready=False)
    return [began] if to_s is None else [began, row(60, to_s, what, task="0_0", member="b.1", ready=True)]


def lag(second: float, number: int | None, member: str = "b.1") -> Row:
    """Return how far a warmup had come at a sample."""
    return row(0, second, LAG, task="0_0", member=member, number=number)


def test_a_warmup_of_an_hour_that_nothing_is_known_of_is_stuck() -> None:
    (found,) = found_in(warmed(600, 600 + HOUR_S), "stuck-warmup")
    assert (found["task"], found["member"], found["severity"]) == ("0_0", "b.1", "notice")
    assert found["detail"] == "a warmup that began at 2026-11-18 00:10:00.000 made no progress in 1 h"
    assert (found["sequences"], found["at"]) == ([50, 60], [MIDNIGHT_MS + 600_000, MIDNIGHT_MS + 4_200_000])
    assert found_in(warmed(600, 599.999 + HOUR_S), "stuck-warmup") == []
    (still,) = found_in(warmed(600), "stuck-warmup", MIDNIGHT_MS + 3 * HOUR_MS)
    assert still["detail"].endswith("in 2 h 50 min, still so at the end of what was read")
    assert found_in(warmed(600), "stuck-warmup", MIDNIGHT_MS + HOUR_MS) == []


def test_the_size_of_a_warmup_is_taken_from_its_grant_else_from_its_first_sample() -> None:
    rows = [
        *warmed(600, 900),
        *(lag(599, 9_000), lag(600, 8_000), lag(650, 7_000), lag(901, 3)),
        *(row(70, 950, "warmup", task="0_1", member="b.1"), row(71, 990, "revoked", task="0_1", member="b.1")),
        *(row(0, 960, LAG, task="0_1", member="b.1"), row(0, 970, LAG, task="0_1", member="b.1", number=40)),
        row(72, 995, "warmup", task="0_2", member="b.1"),
    ]
    found = sorted(measured(rows)["g"].warmups)
    assert [(one.task, one.lag, one.outcome) for one in found] == [
        ("0_0", 8_000, "standby"),
        ("0_1", 40, "dropped"),
        ("0_2", None, "open"),
    ]


def test_a_warmup_that_ended_before_the_day_is_not_of_it() -> None:
    assert found_in(warmed(-3 * HOUR_S, -1), "stuck-warmup") == []
    assert len(found_in(warmed(-3 * HOUR_S, 0), "stuck-warmup")) == 1


@pytest.mark.parametrize(
    ("lags", "is_stuck"),
    [
        ([(700, 90), (4_000, 89)], False),
        ([(700, 90), (4_000, 90)], True),
        ([(700, 90), (2_000, 10), (4_000, 91)], True),
        ([(700, 90), (2_000, 95), (4_000, 10)], False),
        ([(700, 90), (2_000, 10), (4_000, None)], False),
        ([(700, None), (2_000, 90), (4_000, 10)], True),
        ([(700, 90)], True),
        ([(599, 900), (700, 90), (4_000, 90), (9_000, 1)], True),
        ([(599, 900), (9_000, 1)], True),
    ],
)
def test_a_warmup_is_stuck_unless_it_came_closer(lags: list[tuple[float, int | None]], *, is_stuck: bool) -> None:
    """From the first sample of its time to the last one that knows the lag; samples of other times say nothing."""
    rows = [*warmed(600, 8_000), *(lag(*one) for one in lags)]
    assert len(found_in(rows, "stuck-warmup")) == is_stuck


def test_samples_of_others_say_nothing_of_a_warmup() -> None:
    rows = [*warmed(600, 8_000), lag(700, 90, "c.1"), lag(4_000, 10, "c.1")]
    assert len(found_in(rows, "stuck-warmup")) == 1


def test_a_warmup_that_was_given_up_is_a_notice_on_its_day() -> None:
    stalled = row(20, 900, "stalled", task="0_0", member="b.1", until_ms=0)
    (found,) = found_in([stalled], "stuck-warmup")
    assert found["detail"] == "its warmup made no progress and was given up at 2026-11-18 00:15:00.000"
    assert (found["task"], found["member"], found["sequences"]) == ("0_0", "b.1", [20])
    assert found["at"] == [MIDNIGHT_MS + 900_000]
    assert found_in([stalled, day_of(21)], "stuck-warmup") == []


def test_a_task_without_an_owner_for_long_is_a_notice_with_its_last_owner() -> None:
    """A task that never had an owner is waiting for its first member."""
    rows = [*settings(), *a_runs(), *given(100), *taken(101 + 40 * MINUTE_S)]
    (found,) = found_in(rows, "stuck-task")
    assert (
        found["detail"] == "granted to nobody for 40 min from 2026-11-18 00:01:41.000 (why it had no owner: released)"
    )
    assert (found["task"], found["member"], found["sequences"]) == ("0_0", "a.1", [11])
    assert found["at"] == [MIDNIGHT_MS + 101_000, MIDNIGHT_MS + 101_000 + 40 * MINUTE_S * 1_000]
    (still,) = found_in(rows[:-2], "stuck-task")
    assert still["detail"].endswith(", still so at the end of what was read")
    assert still["at"] == [MIDNIGHT_MS + 101_000]
    assert found_in([*rows[:-2], *taken(101 + 10 * MINUTE_S)], "stuck-task") == []


def generation(number: int, second: float, score: float | None, members: int = 3, tasks: int = 6) -> Row:
    """Return the row of a generation, as the audit reads it."""
    return row(number, second, GENERATION, number=number, score=score, members=members, tasks=tasks)


def test_balance_is_weighted_by_how_long_each_target_stood() -> None:
    generations = [generation(2, 6 * HOUR_S, 1.0, tasks=4), generation(1, 0, 4.0, members=5)]
    day = days_of([*a_runs(), *generations])["g"].measures
    mean = (4.0 * 6 + 1.0 * 18) / 24
    assert [day[name] for name in BALANCE] == [pytest.approx(mean), 4.0, 5, 6]


BALANCE = ("balance_mean", "balance_worst", "members_max", "tasks_max")


def test_balance_is_unknown_where_no_target_stood() -> None:
    """A target of the day's last instant has no time to be weighed by."""
    day = days_of([*a_runs(), generation(1, 24 * HOUR_S, 4.0)])["g"].measures
    assert [day[name] for name in BALANCE[:2]] == [None, 4.0]


def test_a_day_counts_records_generations_and_moves_of_the_day_alone() -> None:
    """A record is one, however many rows it has; a target that changes nothing is no generation."""
    placed: dict[str, Any] = {"token": 2, "until_ms": 5, "word": "3"}
    rows = [
        row(1, -60, "placed", **placed),
        row(2, 60, "placed", **placed),
        row(2, 60, "target", place=1, task="0_0", member="a.1", until_ms=1_000),
        row(3, 70, "placed", token=0, until_ms=1, word="0"),
        row(4, 80, "other", word="declared"),
        day_of(2),
    ]
    day = days_of(rows)["g"].measures
    assert [day[name] for name in ("records", "generations", "moves", "lower_bound", "excess_moves")] == [3, 1, 6, 3, 3]


def test_a_day_counts_warmups_and_those_that_were_for_nothing() -> None:
    """What began before midnight counts if it was under way then."""
    rows = [*warmed(600, 900, "dropped"), row(70, 950, "warmup", task="0_1", member="b.1")]
    old = [
        row(1, -900, "warmup", task="0_2", member="b.1"),
        row(2, -600, "dropped", task="0_2", member="b.1"),
        row(3, -500, "warmup", task="0_3", member="b.1"),
        row(80, 990, "standby", task="0_3", member="b.1", ready=True),
    ]
    day = days_of([*rows, *old])["g"].measures
    assert (day["warmups"], day["wasted_warmups"]) == (3, 1)


def test_a_day_sums_up_its_gaps() -> None:
    """Availability is what is left of the time in which tasks were to be run."""
    day = days_of([*settings(), *a_runs(), *given(100), *taken(101)])["g"]
    assert (day.measures["downtime_ms"], day.measures["longest_unowned_ms"]) == (13_000, 0)
    assert [day.measures[name] for name in ("cold_starts", "handovers", "failovers")] == [1, 1, 0]
    assert day.measures["availability"] == pytest.approx(1 - 13_000 / DAY_MS)
    assert day.measures["tasks_max"] == 1
    assert day.downtime_by_cause["warm-handover"] == {
        "count": 1.0,
        "p50_ms": 3_000.0,
        "p99_ms": 3_000.0,
        "max_ms": 3_000.0,
        "total_ms": 3_000.0,
    }
    assert set(day.downtime_by_cause) == {"warm-handover", "cold-start"}


NOT_SHOWN: dict[str, set[str]] = {
    "docs/audit.md": set(),
    # It shows both of the numbers that this is the difference of.
    "report": {"excess_moves"},
    "dashboard": set(),
    # A terminal has room for the most important ones.
    "batonpass audits": {
        *("records", "generations", "excess_moves", "wasted_warmups", "probes", "futile_probes", "flapping_members"),
        *("balance_mean", "balance_worst", "members_max", "tasks_max", "load_imbalance", "hot_ms", "load_moves"),
    },
}


def test_each_measure_is_shown_where_measures_are_or_is_named_as_left_out() -> None:
    made = set(days_of([*a_runs(), day_of(1)])["g"].measures)
    page = (ROOT / "docs" / "audit.md").read_text()
    shown = {
        "docs/audit.md": {name for name in made if f"`{name}`" in page},
        "report": {*report.COSTS, *report.WORK},
        "dashboard": set(MEASURES),
        "batonpass audits": set(cli.MEASURES),
    }
    assert {place: made - names for place, names in shown.items()} == NOT_SHOWN
    assert not set().union(*shown.values()) - made


def test_only_groups_that_lived_have_a_day() -> None:
    others = [one | {"group_id": "quiet"} for one in [*settings(), *a_runs(up_s=-60)]]
    days = days_of([*settings(seq=5), day_of(5), day_of(1, "deleted"), *others, day_of(100, "quiet")])
    assert set(days) == {"g", "quiet"}
    assert [days[name].measures["records"] for name in ("g", "quiet")] == [1, 0]
    assert [days["quiet"].measures[name] for name in ("availability", "tasks_max")] == [1, 1]
    assert [days["g"].measures[name] for name in ("availability", "tasks_max")] == [None, None]
    assert {days["g"].measures[name] for name in ZERO_WHERE_UNSEEN} == {0, 1}


ZERO_WHERE_UNSEEN = (
    *measures.COUNTED,
    *("flapping_members", "downtime_ms", "handovers", "failovers", "cold_starts", "longest_unowned_ms"),
)


def a_day(**values: Any) -> GroupDay:
    """Return a day with nothing out of the ordinary but what is said."""
    names = (*ZERO_WHERE_UNSEEN, "balance_mean", "balance_worst", "hot_ms", "load_moves")
    return GroupDay("g", {**dict.fromkeys(names, 0), "availability": 1.0, "load_imbalance": None, **values})


def test_measures_that_are_out_of_the_ordinary_are_notices() -> None:
    days = {
        "z": a_day(availability=0.5, downtime_ms=7_000),
        "b": a_day(wasted_warmups=8, warmups=15, futile_probes=120, probes=130, balance_mean=2.5, balance_worst=4.0),
        "hot": a_day(load_imbalance=0.4, hot_ms=2 * HOUR_S * 1_000, balance_mean=9.0),
        "calm": a_day(),
    }
    notices = measures.notices(days, 0.9)
    assert [(one.group, one.law) for one in notices] == [
        *(("b", "wasted-warmup"), ("b", "futile-probes"), ("b", "unbalanced"), ("hot", "too-hot")),
        ("z", "downtime-objective"),
    ]
    assert notices[3].detail == (
        "a member was too hot for 2 h: on average over the day the hottest had 40% more load than the average; "
        "balanced, the same members would carry 1.40 times as much"
    )
    detail = "tasks were run 50.0 % of the time; the objective is 90.0 % (7 s of downtime)"
    assert notices[-1] == Finding("z", "downtime-objective", Severity.NOTICE, None, None, detail)
    others = {"wasted-warmup", "futile-probes", "unbalanced", "too-hot"}
    assert {one.law for one in measures.notices(days, None)} == others


@pytest.mark.parametrize(
    "values",
    [
        *({"wasted_warmups": 8, "warmups": 16}, {"wasted_warmups": 7, "warmups": 7}),
        *({"futile_probes": 119, "probes": 119}, {"futile_probes": 180, "probes": 200}),
        *(
            {"balance_mean": 2.0},
            {"load_imbalance": 0.1, "hot_ms": HOUR_S * 1_000},
            {"availability": None},
            {"availability": 0.9},
        ),
    ],
)
def test_measures_at_their_limits_are_no_notices(values: dict[str, float | None]) -> None:
    assert measures.notices({"g": a_day(**values)}, 0.9) == []


def test_groups_do_not_mix() -> None:
    rows = [*settings(), *joins(4), *(goes(10 + n, n, f"a.{n + 1}") for n in range(4)), *warmed(600, 8_000)]
    alone = days_of(rows)["g"].measures
    others = [one | {"group_id": "h"} for one in rows]
    both = days_of([*rows, *others, day_of(1), day_of(1, "h")])
    assert both["g"].measures == both["h"].measures == alone


def test_a_group_without_anything_comes_to_nothing() -> None:
    assert days_of([day_of(1)]) == {}


A, B = MemberId("a.1"), MemberId("b.1")


def heated(*records: Record | None) -> dict[str, float | int | None]:
    """Return what a day comes to on which these records follow each other an hour apart; None cannot be read."""
    fold = GroupFold(GroupPlan(group="g", base=0, known=True, first=1, last=2, missing=0), BEGIN_MS, END_MS)
    fold.take(Entry(1, 0, BEGIN_MS, 1, "other"))
    shadow = ConfigChanged(GroupConfig(balance_by=BalanceBy.SHADOW))
    joined = [MemberJoined(Member(member_id, joined_ms=0)) for member_id in (A, B)]
    placed = TargetPlaced(1, 1, BEGIN_MS, {TaskId("0_0"): Target(A), TaskId("0_1"): Target(B)})
    for record in (shadow, *joined, placed):
        fold.follow(record, BEGIN_MS)
    for hour, known in enumerate(records):
        fold.follow(known, BEGIN_MS + hour * 3_600_000)
    fold.end()
    assert fold.day is not None
    return {name: fold.day.measures[name] for name in ("load_imbalance", "hot_ms", "load_moves")}


def test_a_day_tells_how_hot_its_hottest_member_was_by_what_was_measured() -> None:
    measured = LoadsMeasured({TaskId("0_0"): 3.0, TaskId("0_1"): 1.0})
    evened = LoadsMeasured({TaskId("0_1"): 3.0})
    calm = ImbalanceNoted(None)
    hot, moved = ImbalanceNoted(BEGIN_MS), MovedForLoad((TaskId("0_0"),), BEGIN_MS)
    found = heated(measured, hot, moved, evened, calm)
    assert found == {"load_imbalance": pytest.approx(0.5 * 3 / 24), "hot_ms": 3 * 3_600_000, "load_moves": 1}


def test_of_a_day_without_measured_load_or_with_a_record_that_cannot_be_read_nothing_is_said_of_heat() -> None:
    nothing = {"load_imbalance": None, "hot_ms": None, "load_moves": None}
    damaged = LoadsMeasured({TaskId("0_0"): "much"})  # type: ignore[dict-item]
    measured = LoadsMeasured({TaskId("0_0"): 3.0})
    assert heated() == nothing
    assert heated(measured, None) == nothing
    assert heated(measured, damaged) == nothing
    assert heated(measured, damaged, measured) == nothing
