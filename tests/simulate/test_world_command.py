"""`batonpass simulate` says what it saw, replays a world by its seed, and fails with the way to see a failure again."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from batonpass.cli import simulate as command
from batonpass.cli.simulate import parse_only
from batonpass.core.handover import budget
from batonpass.invariants import Violation
from batonpass.simulate.plan import WorldPlan
from batonpass.simulate.run import Outcome, run_world
from batonpass.simulate.seeds import draw

RUN = CliRunner()


def run(*arguments: str) -> tuple[int, str]:
    """Run the command and return its exit code and what it printed."""
    done = RUN.invoke(command.app, list(arguments))
    return done.exit_code, done.stdout


def test_a_seed_without_steps_or_worlds_runs_its_own_world() -> None:
    code, shown = run("--seed", "3", "--json")
    report = json.loads(shown)
    outcome = run_world(draw(3))
    assert code == 0
    assert report["failed"] is None
    assert (report["worlds"], report["steps"]) == (1, outcome.steps)
    assert report["decisions"] == outcome.decisions


def test_a_seed_may_be_any_integer() -> None:
    code, shown = run("--seed", "99999999999999999999", "--worlds", "2", "--json")
    assert (code, json.loads(shown)["worlds"]) == (0, 2)


@pytest.mark.parametrize("option", ["--groups", "--events"])
def test_days_that_no_memory_holds_are_refused(option: str) -> None:
    assert run("--into-database", "postgresql://nobody@localhost:1/none", option, "99999999999999999999")[0] == 2


def test_worlds_follow_one_another_until_enough_was_seen() -> None:
    code, shown = run("--seed", "3", "--worlds", "2", "--steps", "1000000")
    assert code == 0
    assert shown.startswith("2 worlds, ")
    assert "every law held" in shown
    _, few = run("--seed", "3", "--steps", "1", "--json")
    assert json.loads(few)["worlds"] == 1


def test_a_trace_shows_everything() -> None:
    _, shown = run("--seed", "3", "--trace")
    assert "GroupDeclared" in shown
    assert "calm: faults stop" in shown


def test_a_failure_shows_its_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget.Slots, "why_not", lambda _self, _request: None)
    code, shown = run("--seed", "0", "--worlds", "60", "--json")
    failed = json.loads(shown)["failed"]
    assert code == 1
    arguments = failed["replay"].split()[2:-1]
    again, report = run(*arguments, "--json", "--no-shrink")
    assert again == 1
    assert json.loads(report)["failed"]["law"] == failed["law"]
    assert json.loads(report)["failed"]["detail"] == failed["detail"]


def test_people_are_told_of_a_failure_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(plan: WorldPlan, *, trace: object = None) -> Outcome:
        assert trace is None
        outcome = run_world(replace(plan, events=()), most_steps=50)
        return replace(outcome, violations=(Violation("L1", "planted"),), tail=("a line",))

    monkeypatch.setattr(command, "run_world", failing)
    code, shown = run("--seed", "4", "--no-shrink")
    assert code == 1
    assert "seed 4 breaks L1: planted" in shown
    assert shown.rstrip().endswith("batonpass simulate --seed 4 --trace")


@pytest.mark.parametrize(("text", "numbers"), [(None, None), ("none", ()), ("3", (3,)), ("3,7", (3, 7))])
def test_events_are_named_by_their_numbers(text: str | None, numbers: tuple[int, ...] | None) -> None:
    assert parse_only(text) == numbers


def test_a_list_of_events_that_is_none_is_refused() -> None:
    code, _ = run("--seed", "1", "--only", "restart")
    assert code == 2
