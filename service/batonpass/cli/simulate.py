"""`batonpass simulate`: run seeded worlds on the real core, until one breaks a law or a limit is reached."""

import itertools
import json
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from batonpass.cli.client_context import failing_well
from batonpass.cli.compare import compare
from batonpass.cli.spans import day_named
from batonpass.cli.tables import progress
from batonpass.simulate.run import Outcome, run_world
from batonpass.simulate.shrink import Narrowing, replay_command, shrink
from batonpass.terminal import say

app = typer.Typer(add_completion=False)
app.command()(compare)

DEFAULT_STEPS = 100_000


def parse_only(text: str | None) -> tuple[int, ...] | None:
    """Read the numbers of the events that may happen: `3,7`, or `none`.

    Raises:
        typer.BadParameter: for anything else.
    """
    if text is None:
        return None
    if text == "none":
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        message = f"{text!r} is not a list of event numbers; write for example 3,7 or none"
        raise typer.BadParameter(message) from None


Seed = Annotated[
    int | None,
    typer.Option(
        help="The seed of the first world (without --steps and --worlds the only world), or of the days to write."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Only = Annotated[str | None, typer.Option(help="Allow only the events with these numbers, as in 3,7, or none.")]
ScenarioPath = Annotated[
    Path | None, typer.Option("--scenario", metavar="FILE", help="Play the scenario in this YAML file.")
]
Drawn = Annotated[
    Path | None,
    typer.Option(
        "--picture",
        metavar="FILE",
        help="With --scenario: draw into this file which member ran which task when (.html, .svg, .png, .pdf).",
    ),
]
Into = Annotated[
    str | None,
    typer.Option(
        "--into-database", metavar="URL", help="Write a simulated day of one or more groups into this database."
    ),
]
Plant = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FAULT", help="Plant this fault in the first group that is written; may be given several times."
    ),
]

_OF_WORLDS = ("steps", "worlds", "trace", "shrinking", "only", "members", "partitions", "whole_wire")
_OF_DAYS = ("day", "events", "groups", "prefix", "plant", "sample_every")


@app.callback(invoke_without_command=True)
def simulate(
    context: typer.Context,
    seed: Seed = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Stop after the world in which the total of steps reaches this.")
    ] = None,
    worlds: Annotated[int | None, typer.Option(min=1, help="Stop after this many worlds.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print everything that happens.")] = False,
    json_output: AsJson = False,
    shrinking: Annotated[
        bool, typer.Option("--shrink/--no-shrink", help="Reduce a failing world to a smaller one.")
    ] = True,
    only: Only = None,
    members: Annotated[int | None, typer.Option(min=1, help="Run only this many of the world's workers.")] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Limit each subtopology to this many partitions.")
    ] = None,
    whole_wire: Annotated[bool, typer.Option("--whole-wire", help="Lose, duplicate and delay no message.")] = False,
    scenario: ScenarioPath = None,
    drawn: Drawn = None,
    into: Into = None,
    day: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="The UTC day to write, as in 2026-11-20, or today. Default: yesterday."),
    ] = None,
    events: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000_000, help="About how many changes of assignments to write in all."),
    ] = None,
    groups: Annotated[int | None, typer.Option(min=1, max=100_000, help="How many groups to write.")] = None,
    prefix: Annotated[str, typer.Option(help="How the names of the written groups begin.")] = "simulated",
    plant: Plant = None,
    sample_every: Annotated[
        int, typer.Option(min=0, help="Minutes between two samples of the lags; 0: no samples.")
    ] = 1,
) -> None:
    """Run seeded worlds and check the laws after every step; or play a scenario; or write days into a database.

    Each world has faults first and then none, and must come to rest without them. The first world that breaks a law is
    reduced to a smaller one and printed with the command that replays it; the exit code is then 1.
    """
    if context.invoked_subcommand is not None:
        return
    _refuse_mixed(context, is_scenario=scenario is not None, is_days=into is not None)
    if into is not None:
        wanted = {"seed": seed or 0, "groups": groups, "prefix": prefix, "sample_every": sample_every}
        with failing_well(as_json=json_output):
            _fill(into, scenario, wanted, day=day, events=events, plant=plant or [], as_json=json_output)
        return
    if scenario is not None:
        from batonpass.cli.scenario import show  # noqa: PLC0415 - the worlds need nothing of it

        with failing_well(as_json=json_output):
            show(scenario, drawn=drawn, as_json=json_output)
        return
    narrowing = Narrowing(parse_only(only), members, partitions, whole_wire)
    if steps is None and worlds is None:
        steps, worlds = (DEFAULT_STEPS, None) if seed is None else (None, 1)
    tally, started = Counter[str](), time.monotonic()
    failed = _run(seed or 0, tally, narrowing, steps=steps, worlds=worlds, trace=trace)
    report: dict[str, object] = {**tally, "seconds": round(time.monotonic() - started, 1), "failed": None}
    if failed is not None:
        report["failed"] = _failure(failed, narrowing, shrinking=shrinking and narrowing == Narrowing())
    _show(report, json_output=json_output)
    raise typer.Exit(1 if failed is not None else 0)


def _refuse_mixed(context: typer.Context, *, is_scenario: bool, is_days: bool) -> None:
    """Refuse options that would have no effect beside the others.

    Raises:
        typer.BadParameter: naming the first such option.
    """
    worlds = not is_scenario and not is_days
    rules = (
        (_OF_WORLDS, worlds, "is for seeded worlds, not for --scenario or --into-database"),
        (_OF_DAYS, is_days, "needs --into-database"),
        (
            ("events", "prefix"),
            not is_scenario,
            "is not for --scenario; a scenario has its own events and its own group name",
        ),
        (
            ("drawn",),
            is_scenario and not is_days,
            "draws a scenario: give it with --scenario, and without --into-database",
        ),
        (
            ("seed",),
            worlds or (is_days and not is_scenario),
            "is for random worlds and days; a scenario is always the same",
        ),
    )
    flags = {one.name: one.opts[0] for one in context.command.params}
    for names, fits, reason in rules:
        for name in names:
            # Compared by name, because typer may bring its own copy of click.
            given = context.get_parameter_source(name)
            if not fits and given is not None and given.name == "COMMANDLINE":
                raise typer.BadParameter(reason, param_hint=flags[name])


def _fill(
    url: str,
    path: Path | None,
    wanted: dict[str, Any],
    *,
    day: str | None,
    events: int | None,
    plant: list[str],
    as_json: bool,
) -> None:
    """Write days into a database."""
    # Only this needs the database's libraries.
    from batonpass.cli import days  # noqa: PLC0415
    from batonpass.cli.scenario import read  # noqa: PLC0415

    events = events or days.EVENTS_OF_A_DAY * (wanted["groups"] or 1)
    faults = days.parse_faults(plant, is_drawn=path is None)
    played = None if path is None else read(path)
    wish = days.Wish(day=day_named(day), events=events, faults=faults, scenario=played, **wanted)
    days.fill(url, wish, as_json=as_json)


def _run(
    first: int, tally: Counter[str], narrowing: Narrowing, *, steps: int | None, worlds: int | None, trace: bool
) -> Outcome | None:
    """Run world after world and count what is seen; return the first that breaks a law, if one does."""
    with progress("{task.completed:,} steps", "seed {task.fields[seed]}", wanted=not trace) as bar:
        line = bar.add_task("worlds", total=steps, seed=first)
        for seed in itertools.count(first):
            outcome = run_world(narrowing.of(seed), trace=say if trace else None)
            tally.update(
                worlds=1,
                steps=outcome.steps,
                decisions=outcome.decisions,
                moves=outcome.moves,
                handovers=outcome.handovers,
                simulated_ms=outcome.lived_ms,
            )
            bar.update(line, completed=tally["steps"], seed=seed)
            if outcome.failed:
                return outcome
            if (steps is not None and tally["steps"] >= steps) or (worlds is not None and tally["worlds"] >= worlds):
                break
    return None


def _failure(outcome: Outcome, narrowing: Narrowing, *, shrinking: bool) -> dict[str, object]:
    seed = outcome.plan.seed
    smaller, shown = shrink(outcome) if shrinking else (narrowing, outcome)
    first = shown.violations[0]
    return {
        "seed": seed,
        "law": first.law,
        "detail": first.detail,
        "task": first.task,
        "member": first.member,
        "steps": shown.steps,
        "events": [event.kind for event in shown.plan.events],
        "replay": replay_command(seed, smaller),
        "tail": list(shown.tail[-12:]),
    }


def _show(report: dict[str, object], *, json_output: bool) -> None:
    if json_output:
        say(json.dumps(report))
        return
    say(
        f"{report['worlds']} worlds, {report['steps']:,} steps, {report['decisions']:,} decisions, "
        f"{report['moves']:,} moves, {report['handovers']:,} handovers in {report['seconds']} s"
    )
    failed = report["failed"]
    if not isinstance(failed, dict):
        say("every law held")
        return
    for entry in failed["tail"]:
        say(f"  {entry[:200]}")
    say("", f"seed {failed['seed']} breaks {failed['law']}: {failed['detail']}")
    say(f"  task {failed['task']}, member {failed['member']}; events left: {', '.join(failed['events']) or 'none'}")
    say(f"  {failed['replay']}")
