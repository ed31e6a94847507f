"""`batonpass simulate compare`: tables for people, lines of JSON for scripts, and errors that say what to do."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from batonpass.cli import compare as command
from batonpass.cli.simulate import app
from batonpass.simulate.compare import SCENARIOS, Scenario

SMALL = replace(SCENARIOS["10-to-11-s1"], members=3, tasks=9)


def run(*arguments: str) -> Result:
    """Call `batonpass simulate compare` with these arguments."""
    return CliRunner().invoke(app, ["compare", *arguments])


@pytest.fixture(autouse=True)
def small_scenarios(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Scenario]:
    """Two scenarios of nine tasks, so that all of them take a second."""
    scenarios = {
        "join": replace(SMALL, name="join"),
        "crash": replace(SCENARIOS["crash-s1"], name="crash", members=4, tasks=8),
    }
    monkeypatch.setattr(command, "SCENARIOS", scenarios)
    return scenarios


def test_the_scenarios_are_listed() -> None:
    assert [line.split()[0] for line in run("--list").stdout.splitlines()] == ["join", "crash"]
    listed = [json.loads(line) for line in run("--list", "--json").stdout.splitlines()]
    assert [entry["scenario"] for entry in listed] == ["join", "crash"]
    assert all(entry["title"] for entry in listed)


def test_people_get_a_table_and_a_line_to_read_it_by() -> None:
    shown = run("join")
    assert shown.exit_code == 0
    for arm in ("Batonpass", "Kafka defaults", "Kafka tuned", "eager"):
        assert sum(line.lstrip().startswith(f"{arm} ") for line in shown.stdout.splitlines()) >= 1
    assert "Batonpass moves 2 tasks where 2 must move, in 2 handovers" in " ".join(shown.stdout.split())


def test_scripts_get_a_line_of_json_for_each_scenario() -> None:
    found = [json.loads(line) for line in run("all", "--json").stdout.splitlines()]
    assert [entry["scenario"] for entry in found] == ["join", "crash"]
    assert found[0]["world"]["record_bytes"] == 500
    first = found[0]["arms"][0]
    assert (first["arm"], first["needed"], first["moved"], first["handovers"]) == ("Batonpass", 2, 2, 2)
    assert {"rest_ms", "downtime_p50_ms", "downtime_p99_ms", "downtime_max_ms", "bytes_restored"} < first.keys()
    assert [arm["arm"] for arm in found[1]["arms"]][:2] == ["Batonpass", "Batonpass fenced"]


def test_other_ids_can_be_drawn() -> None:
    assert json.loads(run("join", "--json", "--seed", "77").stdout)["seed"] == 77


def test_a_chart_is_drawn_of_one_scenario(tmp_path: Path) -> None:
    target = tmp_path / "join.svg"
    assert run("join", "--chart", str(target)).exit_code == 0
    assert target.read_text().startswith("<svg ")
    refused = run("all", "--chart", str(target))
    assert refused.exit_code == 2
    assert "name just one" in " ".join(refused.output.split())


@pytest.mark.parametrize(("arguments", "what"), [(["nothing"], "'nothing'"), ([], "name a scenario")])
def test_a_name_that_there_is_not_is_refused_with_those_that_there_are(arguments: list[str], what: str) -> None:
    refused = run(*arguments)
    assert refused.exit_code == 2
    assert what in refused.output
    assert "crash" in refused.output
