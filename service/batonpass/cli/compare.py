"""`batonpass simulate compare`: Batonpass, Kafka's assignor and eager reassignment side by side in the same world."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.text import Text

from batonpass.cli.tables import progress, table
from batonpass.core.state.durations import duration
from batonpass.simulate.compare import (
    RECORD_BYTES,
    SCENARIOS,
    WORLD,
    Comparison,
    Scenario,
    arms_of,
    play,
    reading,
)
from batonpass.simulate.compare_chart import chart
from batonpass.terminal import say, screen

ALL = "all"


def compare(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="SCENARIO...", help="What happens to the group; `all` for everything.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the scenarios, and run none.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, one for each.")] = False,
    seed: Annotated[
        int | None, typer.Option(help="Draw other ids for the processes; Kafka's result hangs on them.")
    ] = None,
    svg: Annotated[Path | None, typer.Option("--chart", metavar="FILE", help="Draw the results as SVG, too.")] = None,
) -> None:
    """Play a scenario with Batonpass, Kafka's assignor (defaults and tuned) and eager reassignment, in one world."""
    if listing:
        _list(json_output=json_output)
        return
    chosen = _chosen(names or [])
    if svg is not None and len(chosen) > 1:
        raise typer.BadParameter("a chart shows one scenario; name just one", param_hint="--chart")
    if seed is not None:
        chosen = [replace(scenario, seed=seed) for scenario in chosen]
    for comparison in _run(chosen):
        if json_output:
            say(json.dumps(as_json(comparison)))
        else:
            _show(comparison)
        if svg is not None:
            svg.write_text(chart(comparison), encoding="utf-8")


def _chosen(names: list[str]) -> list[Scenario]:
    """Return the scenarios that were named.

    Raises:
        typer.BadParameter: when no scenario is named, or a name is unknown.
    """
    if ALL in names:
        return list(SCENARIOS.values())
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown or not names:
        problem = f"there is no scenario {unknown[0]!r}" if unknown else "name a scenario"
        raise typer.BadParameter(f"{problem}; there are {', '.join(SCENARIOS)}, and all", param_hint="SCENARIO")
    return [SCENARIOS[name] for name in names]


def _run(chosen: list[Scenario]) -> list[Comparison]:
    arms = {scenario.name: arms_of(scenario) for scenario in chosen}
    comparisons = []
    with progress("{task.fields[doing]}", "{task.completed}/{task.total}") as bar:
        line = bar.add_task("compare", total=sum(map(len, arms.values())), doing="")
        for scenario in chosen:
            results = []
            for arm, make in arms[scenario.name].items():
                bar.update(line, doing=f"{scenario.name}: {arm}")
                results.append(play(arm, make(), scenario))
                bar.advance(line)
            comparisons.append(Comparison(scenario, tuple(results)))
    return comparisons


def as_json(comparison: Comparison) -> dict[str, object]:
    """Return the comparison as `--json` prints it. Times are milliseconds; without a time to rest it is null."""
    scenario = comparison.scenario
    return {
        "scenario": scenario.name,
        "title": scenario.title,
        "seed": scenario.seed,
        "members": scenario.members,
        "tasks": scenario.tasks,
        "standbys": scenario.standbys,
        "world": asdict(WORLD) | {"record_bytes": RECORD_BYTES},
        "arms": [asdict(result) for result in comparison.results],
        "reading": reading(comparison),
    }


def _list(*, json_output: bool) -> None:
    if json_output:
        for scenario in SCENARIOS.values():
            say(json.dumps({"scenario": scenario.name, "title": scenario.title}))
        return
    width = max(map(len, SCENARIOS))
    for scenario in SCENARIOS.values():
        say(f"{scenario.name:{width}}  {scenario.title}")


def _show(comparison: Comparison) -> None:
    needed = comparison.results[0].needed
    columns = ("arm", f"moved of {needed}", "handovers", "time to rest", "down p50", "p99", "max", "restored")
    rows = [
        [
            Text(result.arm, style="bold green" if place == 0 else ""),
            result.moved,
            result.handovers,
            duration(result.rest_ms, "never"),
            *map(duration, (result.downtime_p50_ms, result.downtime_p99_ms, result.downtime_max_ms)),
            decimal(result.bytes_restored),
        ]
        for place, result in enumerate(comparison.results)
    ]
    console = screen()
    console.say(comparison.scenario.title, style="bold")
    console.print(table(*columns, rows=rows))
    console.print(f"{reading(comparison)}\n")
