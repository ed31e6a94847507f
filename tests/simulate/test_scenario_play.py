"""Scenarios are played over the real core: the same comes to the same, and what is skipped changes nothing."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from batonpass.audit.cost import Cost, Counted
from batonpass.cli.simulate import app
from batonpass.core.state.durations import duration
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group
from batonpass.simulate.group import BatonpassGroup
from batonpass.simulate.scenario.model import Act, Scenario, SimulatedSubtopology, Step, Worker
from batonpass.simulate.scenario.play import LEAD_MS, Played, ScenarioRates, play
from batonpass.simulate.scenario.reading import read_scenario
from batonpass.simulate.scenario.result import bars_of, result_of
from batonpass.simulate.scenario.tally import Tally

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "scenarios").glob("*.yaml"))
MINUTE = 60_000
NAMES = ("a", "b", "c")
QUIET = Scenario(
    name="quiet",
    subtopologies=(SimulatedSubtopology((100_000,) * 9, (10.0,) * 9),),
    workers=tuple(Worker(name) for name in (*NAMES, "d")),
    present=NAMES,
    config={"num_standby_replicas": 1},
    until_ms=60 * MINUTE,
)
CRASH = replace(QUIET, steps=(Step(10 * MINUTE, Act.CRASH, "a"), Step(20 * MINUTE, Act.RETURN, "a")))
DIES_AGAIN = replace(
    QUIET,
    steps=tuple(
        Step((minute + later) * MINUTE, act, "a")
        for minute in (10, 13, 16, 19)
        for later, act in enumerate((Act.CRASH, Act.RETURN))
    ),
)
"""The host of the worker that dies is given nothing new for a while, which ends when nothing else happens."""


def played(scenario: Scenario) -> tuple[Played, Counted]:
    """Play a scenario, and count it by its records, as the audit does."""
    cost = Cost(Group(GroupId(scenario.group)), begin_ms=LEAD_MS, end_ms=LEAD_MS + (scenario.until_ms or 0))
    return play(scenario, observer=cost), cost.counted()


def tallied(scenario: Scenario) -> tuple[Played, Tally]:
    """Play a scenario, and count what its result says by records."""
    tally = Tally(Group(GroupId(scenario.group)), begin_ms=LEAD_MS)
    return play(scenario, observer=tally), tally


def run(*arguments: str) -> Result:
    """Call `batonpass simulate`."""
    return CliRunner().invoke(app, list(arguments))


def complaint(*arguments: str) -> str:
    """Return what a call complains of, without the frame that is drawn around it."""
    return " ".join(run(*arguments).stderr.replace("│", " ").split())


@pytest.mark.parametrize(("column", "wait_ms"), [(1, 0), (2, 600_000)])
def test_an_hour_of_an_autoscaler_costs_what_the_page_says(column: int, wait_ms: int) -> None:
    """New members wait only once it has happened twice; what the copies of the first two times cost is left."""
    scenario = read_scenario(next(path for path in EXAMPLES if path.stem == "autoscaler"))
    result = result_of(*tallied(replace(scenario, config={**scenario.config, "newcomer_wait_ms": wait_ms})))
    page = (EXAMPLES[0].parents[1] / "scenarios.md").read_text().partition("| in that hour |")[2]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()[2:5]]
    assert [row[column] for row in rows] == [
        str(result.handovers),
        f"{result.bytes_restored / 1e9:.1f} GB",
        duration(result.downtime_ms),
    ]


def test_nothing_happens_in_a_quiet_hour() -> None:
    found, counted = played(QUIET)
    assert counted == Counted(0, 0)
    _, tally = tallied(QUIET)
    assert (tally.moves, tally.warmups, tally.generations) == (0, 0, 0)
    assert found.outcome.restored_records == 0
    assert found.end_ms - found.start_ms == 60 * MINUTE
    assert not found.missed


@pytest.mark.parametrize("scenario", [CRASH, DIES_AGAIN], ids=["crash", "dies-again"])
def test_skipping_idle_time_changes_no_result(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    skipped, counted = played(scenario)
    monkeypatch.setattr(BatonpassGroup, "skip_rest", lambda _self, _to_ms: None)
    whole, in_full = played(scenario)
    assert whole.decisions > 3 * skipped.decisions
    assert (in_full.moves, whole.outcome.handovers) == (counted.moves, skipped.outcome.handovers)
    assert whole.outcome.rest_ms == pytest.approx(skipped.outcome.rest_ms, abs=2 * 3_000)
    # When the last heartbeat before the crash was sent depends on where a skip began, by an interval at most.
    for task, down_ms in whole.outcome.downtime_ms.items():
        assert abs(down_ms - skipped.outcome.downtime_ms[task]) <= 2 * 3_000


def test_waiting_and_silence_are_counted() -> None:
    """Until the session of the dead is over, once for each of its tasks; for a joiner until it is warm."""
    _, crashed = played(replace(QUIET, steps=(Step(10 * MINUTE, Act.CRASH, "a"),)))
    assert crashed.silence_ms == 3 * 45_000
    assert crashed.silence_ms < crashed.downtime_ms < crashed.silence_ms + 10_000
    _, joined = played(replace(QUIET, steps=(Step(10 * MINUTE, Act.JOIN, "d"),)))
    # Two tasks of a hundred thousand records at twenty thousand a second, and some heartbeats.
    assert 5_000 < joined.waiting_ms < 60_000
    assert joined.silence_ms == 0


def test_a_suspect_is_waited_for_no_longer_after_a_long_rest() -> None:
    """Rest that is skipped must not look like an absence of the coordinator."""
    fenced = tuple(Worker(name, fenced=True) for name in NAMES)
    for quiet in (MINUTE, 30 * MINUTE):
        crash = replace(QUIET, workers=fenced, steps=(Step(quiet, Act.CRASH, "a"),))
        _, counted = played(crash)
        # Counted from the last heartbeat, which was sent within an interval before the crash.
        assert 3 * 2_000 <= counted.silence_ms <= 3 * (2_000 + 3_000)
        assert counted.silence_ms < counted.downtime_ms < counted.silence_ms + 3 * 1_000


def test_the_same_scenario_comes_to_the_same() -> None:
    assert played(CRASH) == played(CRASH)


def test_a_crash_with_standbys_lasts_as_long_as_the_lease() -> None:
    found, counted = played(CRASH)
    down = [one for one in found.outcome.downtime_ms.values() if one > 1_500]
    assert len(down) == 3
    assert all(40_000 < one < 48_000 for one in down)
    # The records know of the crash only what was not heard; they agree to within two heartbeats for each task.
    assert abs(counted.downtime_ms - sum(found.outcome.downtime_ms.values())) < 3 * 6_000 + 6 * 1_000


def test_a_join_moves_the_least() -> None:
    joins = replace(QUIET, steps=(Step(5 * MINUTE, Act.JOIN, "d"),))
    found, counted = played(joins)
    assert counted.moves == 2
    _, tally = tallied(joins)
    assert (tally.moves, tally.warmups, tally.generations) == (2, 4, 1)
    assert max(found.outcome.downtime_ms.values()) < 1_500
    assert found.outcome.restored_records > 100_000


def test_a_drained_member_goes() -> None:
    steps = (Step(5 * MINUTE, Act.DRAIN, "b"), Step(30 * MINUTE, Act.RETURN, "b"))
    found, counted = played(replace(QUIET, steps=steps))
    assert not found.missed
    assert {stint.client for stint in found.stints if stint.to_ms is None} == set(NAMES)
    assert counted.downtime_ms < 9 * 1_500


def test_a_step_that_cannot_happen_is_listed_as_missed() -> None:
    found, tally = tallied(replace(QUIET, steps=(Step(MINUTE, Act.CRASH, "a"), Step(2 * MINUTE, Act.LEAVE, "a"))))
    assert [step.act for step in found.missed] == [Act.LEAVE]
    assert result_of(found, tally).missed == ("leave a at 120s",)


def test_a_restart_of_the_coordinator_stops_nothing() -> None:
    found, counted = played(replace(QUIET, steps=(Step(5 * MINUTE, Act.COORDINATOR),)))
    assert counted.downtime_ms == 0
    assert max(found.outcome.downtime_ms.values()) == 0


def test_without_a_disk_everything_is_restored() -> None:
    kept, _ = played(CRASH)
    lost, _ = played(replace(CRASH, steps=(CRASH.steps[0], replace(CRASH.steps[1], keeps_disk=False))))
    assert lost.outcome.restored_records > kept.outcome.restored_records + 300_000


def test_load_lets_changelogs_grow() -> None:
    steps = (Step(10_000, Act.LOAD, factor=3.0, subtopology=0), Step(20_000, Act.LOAD, factor=0.0))
    world = ScenarioRates(
        replace(QUIET, subtopologies=(*QUIET.subtopologies, *QUIET.subtopologies), steps=steps), start_ms=1_000
    )
    assert [world.end_offset((0, 0), 1_000 + at) - 100_000 for at in (0, 10_000, 20_000, 30_000)] == [0, 100, 400, 400]
    assert world.end_offset((1, 0), 31_000) - 100_000 == 200


def test_who_ran_what_when_has_no_overlaps() -> None:
    found, _ = played(CRASH)
    bars = bars_of(found)
    for one, following in pairwise(bars):
        assert one.task != following.task or one.to_ms <= following.from_ms
    assert sum(bar.to_ms == 60 * MINUTE and bar.state == "running" for bar in bars) == 9
    assert {bar.member for bar in bars} == set(NAMES)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path) -> None:
    shown = run("--scenario", str(path), "--json")
    assert shown.exit_code == 0
    found = json.loads(shown.stdout)
    assert found["missed"] == []
    assert found["rest_ms"] is not None
    assert found["handovers"]
    assert found["stints"]


def test_people_get_a_table_and_a_picture(tmp_path: Path) -> None:
    path, drawn = tmp_path / "small.yaml", tmp_path / "small.html"
    path.write_text(
        "scenario: 1\ntitle: Small & short\ntasks: [{partitions: 3, records: 1000}]\nmembers: [{name: w, count: 2}]\n"
        "timeline: [{at: 1m, crash: w-1}]\n",
        encoding="utf-8",
    )
    shown = run("--scenario", str(path), "--picture", str(drawn))
    assert shown.exit_code == 0
    assert "Small & short" in shown.stdout
    assert "downtime of a task, median" in shown.stdout
    page = drawn.read_text(encoding="utf-8")
    assert '"text":"Small' in page
    assert "hatched: restores it" in page
    assert "w-2" in page
    assert "<script src=" not in page


def test_a_file_that_is_wrong_exits_with_2(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("scenario: 1\ntasks: [{partitions: 3}]\nmembers: [{name: w}]\ntimeline: [{at: 1m, crash: x}]\n")
    shown = run("--scenario", str(path))
    assert shown.exit_code == 2
    assert "wrong.yaml is not a scenario" in shown.stderr
    assert "timeline[0].crash: there is no member 'x'" in shown.stderr
    error = json.loads(run("--scenario", str(path), "--json").stderr)
    assert error["errors"][0]["path"] == "timeline[0].crash"


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    assert run("--picture", "x.html").exit_code == 2
    assert "needs --into-database" in complaint("--events", "5")
    assert "not for --scenario" in complaint("--scenario", str(EXAMPLES[0]), "--steps", "5")


def test_a_group_that_never_comes_to_rest_is_refused(tmp_path: Path) -> None:
    """What befalls a group is counted from rest on."""
    path = tmp_path / "slow.yaml"
    slow = "config:\n  initial_rebalance_delay_ms: 3600000\n"
    path.write_text(EXAMPLES[0].read_text().replace("config:\n", slow))
    shown = run("--scenario", str(path))
    assert shown.exit_code == 2
    assert "does not come to rest within ten minutes" in shown.stderr
    assert "initial_rebalance_delay_ms" in shown.stderr
    assert "always the same" in complaint("--scenario", str(EXAMPLES[0]), "--seed", "5")
    into = ("--scenario", str(EXAMPLES[0]), "--into-database", "postgresql://nowhere")
    assert "has its own events and its own group name" in complaint(*into, "--prefix", "mine")
    assert "is only for days without --scenario" in run(*into, "--plant", "stuck-warmup").stderr
    refused = run("--scenario", str(EXAMPLES[0]), "--picture", str(tmp_path / "x.txt"))
    assert refused.exit_code == 2
    assert ".html" in refused.stderr


def test_what_shares_a_member_with_a_task_that_becomes_hot_leaves_it() -> None:
    scenario = read_scenario(EXAMPLES[0].with_name("hot-partition.yaml"))
    found, _ = played(scenario)
    owner = {stint.task: stint.client for stint in sorted(found.stints, key=lambda one: one.from_ms)}
    assert [task for task in owner if owner[task] == owner[1, 0]] == [(1, 0)]
    assert found.outcome.handovers == 3


def test_where_workers_say_no_load_nothing_moves_for_it() -> None:
    scenario = read_scenario(EXAMPLES[0].with_name("hot-partition.yaml"))
    silent = tuple(replace(subtopology, load=()) for subtopology in scenario.subtopologies)
    found, _ = played(replace(scenario, subtopologies=silent))
    assert found.outcome.handovers == 0
