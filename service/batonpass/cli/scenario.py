"""`batonpass simulate --scenario FILE`: play a scenario from a file, and show the result."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.filesize import decimal

from batonpass.cli.exits import Exit, Failure
from batonpass.cli.tables import progress, table
from batonpass.core.state.durations import duration
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group
from batonpass.simulate.group import NeverAtRest
from batonpass.simulate.scenario.model import Scenario
from batonpass.simulate.scenario.play import LEAD_MS, Played, play
from batonpass.simulate.scenario.reading import UnreadableScenario, read_scenario
from batonpass.simulate.scenario.result import Result, bars_of, picture, result_of
from batonpass.simulate.scenario.tally import Tally
from batonpass.terminal import say, screen

HTML: Final = ".html"
IMAGES: Final = (".svg", ".png", ".pdf")


def read(path: Path) -> Scenario:
    """Return the scenario of a file.

    Raises:
        Failure: when it cannot be understood; every fault is named.
    """
    try:
        return read_scenario(path)
    except UnreadableScenario as error:
        faults = [{"path": place or "file", "reason": reason} for place, reason in error.faults]
        raise Failure(
            Exit.BAD_INPUT,
            f"{error.source} is not a scenario.",
            todo="docs/scenarios.md says what a scenario may contain.",
            problem={"errors": faults},
        ) from None


def show(path: Path, *, drawn: Path | None, as_json: bool) -> None:
    """Play a scenario and show the result; with ``drawn``, also draw it into that file.

    Raises:
        Failure: when the file, or the name of the picture, cannot be understood.
    """
    if drawn is not None and drawn.suffix not in (HTML, *IMAGES):
        raise Failure(Exit.BAD_INPUT, f"--picture {drawn}: name a file that ends in {', '.join((HTML, *IMAGES))}.")
    scenario = read(path)
    result, played = _played(scenario)
    if drawn is not None:
        _draw(drawn, result, played)
    if as_json:
        bars = [asdict(bar) for bar in bars_of(played)]
        say(json.dumps(asdict(result) | {"stints": bars}))
        return
    _show(result)


def _played(scenario: Scenario) -> tuple[Result, Played]:
    last = max((step.at_ms for step in scenario.steps), default=0)
    with progress("{task.description}", "{task.fields[at]}") as bar:
        line = bar.add_task(scenario.title or scenario.name, total=scenario.until_ms or last or None, at="")

        def passed(ms: int) -> None:
            bar.update(line, completed=ms, at=duration(ms))

        tally = Tally(Group(GroupId(scenario.group)), begin_ms=LEAD_MS)
        try:
            played = play(scenario, observer=tally, passed=passed)
        except NeverAtRest as error:
            raise Failure(
                Exit.BAD_INPUT,
                f"{scenario.title or scenario.name}: {error}.",
                todo="Check the limits of its members, and initial_rebalance_delay_ms.",
            ) from None
    return result_of(played, tally), played


def _draw(path: Path, result: Result, played: Played) -> None:
    figure = picture(bars_of(played), result)
    try:
        if path.suffix == HTML:
            figure.write_html(path, include_plotlyjs=True)
        else:
            figure.write_image(path)
    except OSError as error:
        raise Failure(Exit.BAD_INPUT, f"--picture {path}: {error.strerror or error}.") from None
    except (ValueError, RuntimeError) as error:
        raise Failure(
            Exit.BAD_INPUT,
            f"--picture {path}: images need kaleido and a browser ({str(error).splitlines()[0]}).",
            todo="A file that ends in .html needs neither.",
        ) from None


def _show(result: Result) -> None:
    rows = [
        ("lasted", duration(result.lasted_ms)),
        ("at rest after", duration(result.rest_ms, "never")),
        ("moves", str(result.moves)),
        ("handovers", str(result.handovers)),
        ("warmups", str(result.warmups)),
        ("generations", str(result.generations)),
        ("downtime, all tasks", duration(result.downtime_ms)),
        (f"tasks that stopped, of {result.tasks}", str(result.stopped)),
        ("downtime of a task, median", duration(result.downtime_p50_ms)),
        ("99 of 100 tasks below", duration(result.downtime_p99_ms)),
        ("longest", duration(result.downtime_max_ms)),
        ("restored", decimal(result.bytes_restored)),
    ]
    console = screen()
    console.say(result.title, style="bold")
    console.print(table("measure", "value", rows=rows))
    if result.worst:
        worst = ", ".join(f"{task} {duration(down)}" for task, down in result.worst[:5])
        console.say(f"longest downtime: {worst}")
    for missed in result.missed:
        console.say(f"could not happen: {missed}", style="yellow")
