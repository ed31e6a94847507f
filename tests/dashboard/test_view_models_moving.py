"""Warmups, the ownership timeline, and gaps."""

from datetime import timedelta
from typing import Any

from tests.dashboard.fleet import NOW, at, event, member, warm

from batonpass.dashboard.view_models.gaps import gaps_of, summaries
from batonpass.dashboard.view_models.timeline import axis, axis_of, lane, look_of
from batonpass.dashboard.view_models.warmups import begun_of, warmups_of
from batonpass.dashboard.words import Names

NAMES = Names()


def run(
    name: str, granted: float | None, running: float | None, stopped: float | None = None, **more: Any
) -> dict[str, Any]:
    """Return a run of a member, its instants in seconds from the hour of the tests."""
    times = {"granted_at": granted, "running_at": running, "stopped_at": stopped}
    known = {key: None if value is None else at(value) for key, value in times.items()}
    ended = "revoked" if stopped is not None else None
    plain = {"member": name, "ended": ended, "why": "", "gap_ms": None, "gap_is_lower_bound": False}
    return plain | known | more


def test_a_warmup_knows_how_far_it_is_and_when_it_is_done() -> None:
    """Its share is one of time: 30 s gone and 10 s left are three quarters."""
    one = member("m1", [], [])
    warm(one, "t_0", 1_100, 100.0)
    (found,) = warmups_of([one], 100, {("t_0", "m1"): at(-30)}, NOW)
    assert (found.kind, found.lag, found.eta_ms, found.share) == ("warmup", 1_100, 10_000.0, 0.75)


def test_what_is_not_known_of_a_warmup_is_left_open() -> None:
    one = member("m1", [], [])
    warm(one, "t_0", 5_000, None)
    warm(one, "t_1", 40, None)
    found = warmups_of([one], 100, {}, NOW)
    assert [(w.task, w.eta_ms, w.share) for w in found] == [("t_1", 0.0, None), ("t_0", None, None)]


def test_copies_that_hold_up_processing_come_first() -> None:
    """A silent member's standbys are not being filled."""
    one, silent = member("m1", ["t_0"], ["t_1", "t_2"]), member("m2", [], ["t_3"], suspected=True, silent=True)
    one["reports"]["t_0"] |= {"state": "restoring", "lag": 10}
    one["reports"]["t_1"]["lag"] = 5_000
    silent["reports"]["t_3"]["lag"] = None
    warm(one, "t_4", 500)
    assert [(w.kind, w.task) for w in warmups_of([one, silent], 100, {}, NOW)] == [
        ("restore", "t_0"),
        ("warmup", "t_4"),
        ("standby", "t_1"),
    ]


def test_when_a_warmup_began_is_read_from_events() -> None:
    """The newest counts, and one event may speak of many tasks."""
    events = [
        event(9, "warmup-started", -5, member="m1", task="t_0"),
        event(3, "warmup-started", -50, member="m1", task="t_0"),
        event(4, "warmup-started", -40, member="m2", tasks=120, sample=["t_1", "t_2"]),
        event(5, "at-rest"),
    ]
    assert begun_of(events) == {("t_0", "m1"): at(-5), ("t_1", "m2"): at(-40), ("t_2", "m2"): at(-40)}


def test_a_lane_shows_who_ran_a_task_and_when_nobody_did() -> None:
    """The gap is as long as the coordinator says, and never too thin to be seen."""
    along = axis(NOW - timedelta(seconds=100), NOW)
    runs = [run("m2", -50, -49, gap_ms=500), run("m1", -90, -80, -49.5)]
    found = lane("t_0", runs, along, ["m1", "m2"], NAMES)
    assert [(bar.look, bar.x, bar.width) for bar in found.bars] == [
        ("start", 100.0, 100.0),
        ("own-0", 200.0, 305.0),
        ("gap", 505.0, 5.0),
        ("own-1", 510.0, 490.0),
    ]
    assert found.bars[2].title == "nobody ran it for 500 ms"


def test_a_gap_after_an_owner_that_fell_silent_is_the_least_that_it_can_be() -> None:
    runs = [run("m2", -50, -49, gap_ms=500, gap_is_lower_bound=True), run("m1", -90, -80, -49.5)]
    found = lane("t_0", runs, axis(NOW - timedelta(seconds=100), NOW), ["m1", "m2"], NAMES)
    assert found.bars[2].title == "nobody ran it for at least 500 ms"
    runs[0]["gap_at_most_ms"] = 900
    assert (
        lane("t_0", runs, axis(NOW - timedelta(seconds=100), NOW), ["m1", "m2"], NAMES)
        .bars[2]
        .title.endswith("up to 900 ms")
    )


def test_a_task_that_nobody_runs_ends_in_a_gap() -> None:
    along = axis(NOW - timedelta(seconds=100), NOW)
    found = lane("t_0", [run("m1", -90, -80, -20)], along, ["m1"], NAMES)
    assert (found.bars[-1].look, found.bars[-1].title) == ("gap", "nobody runs it")


def test_bars_are_cut_at_the_axis() -> None:
    along = axis(NOW - timedelta(seconds=10), NOW)
    found = lane("t_0", [run("m1", -90, -80, -50), run("m2", None, -40, gap_ms=None)], along, ["m1", "m2"], NAMES)
    assert [(bar.look, bar.x, bar.width) for bar in found.bars] == [("own-1", 0.0, 1000.0)]


def test_an_axis_has_marks_at_round_times() -> None:
    """About six of them."""
    minutes = axis(NOW - timedelta(minutes=5), NOW)
    assert [label for _, label in minutes.ticks] == ["03:00", "03:01", "03:02", "03:03", "03:04"]
    assert len(axis(NOW - timedelta(days=14), NOW).ticks) <= 6
    assert axis(NOW - timedelta(seconds=4), NOW).ticks[0][1] == "03:04:01"
    assert axis_of([], NOW).end == NOW
    assert axis_of([run("m1", -100, -90)], NOW).begin == NOW - timedelta(seconds=103)


def test_a_member_has_the_same_colour_everywhere() -> None:
    assert (look_of("b", ["a", "b"]), look_of("z", ["a", "b"])) == ("own-1", "own-x")
    many = [f"m{number}" for number in range(16)]
    assert len({look_of(one, many) for one in many}) == 16
    assert look_of("m9", many) == "own-1 thin"


def test_gaps_are_summed_up_by_kind() -> None:
    events = [
        event(1, "handover-done", -9, member="m2", task="t_0", gap_ms=38, cause="revoked", warm=True, **{"from": "m1"}),
        event(
            2,
            "takeover-done",
            -8,
            member="m2",
            task="t_1",
            gap_ms=20,
            gap_is_lower_bound=True,
            gap_at_most_ms=200,
            cause="suspected",
            warm=True,
            **{"from": "m1"},
        ),
        event(
            3,
            "takeover-done",
            -7,
            member="m2",
            tasks=120,
            gap_ms=9_000,
            gap_is_lower_bound=True,
            cause="expired",
            warm=False,
            **{"from": "m1"},
        ),
        event(4, "task-recovered", -6, member="m2", task="t_2", gap_ms=None, cause="failed"),
        event(5, "at-rest", -5),
        event(
            6, "handover-done", -4, member="m2", task="t_3", gap_ms=7_000, cause="revoked", warm=False, **{"from": "m1"}
        ),
    ]
    found = gaps_of(events)
    assert [(gap.kind, gap.tasks, gap.gap_ms, gap.cause) for gap in found] == [
        ("cold", 1, 7_000, "its owner was asked to give it up"),
        ("recovered", 1, None, "its owner failed it"),
        ("cold", 120, 9_000, "its owner is gone: its lease ran out"),
        ("failover", 1, 200, "its owner fell silent"),
        ("handover", 1, 38, "its owner was asked to give it up"),
    ]
    assert [gap.bound for gap in found] == ["", "", "at least ", "up to ", ""]
    found_summaries = {one.kind: (one.tasks, one.median_ms, one.longest_ms, one.bound) for one in summaries(found)}
    assert found_summaries == {
        "handover": (1, 38, 38, ""),
        "failover": (1, 200, 200, "up to "),
        "cold": (121, 9_000, 9_000, "at least "),
        "recovered": (1, None, None, ""),
    }
    unlike = [found[2]._replace(bound=bound) for bound in ("", "at least ", "up to ")]
    assert [one.bound for one in summaries(unlike)] == ["about "]
