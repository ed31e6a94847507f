"""`batonpass simulate --into-database`: days of simulated groups in a database, as a service would have left them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from sqlalchemy.exc import DBAPIError

from batonpass.cli.database import shown, upgraded
from batonpass.cli.exits import Exit, Failure
from batonpass.days.generate import Wish, Written, generate, generate_scenario
from batonpass.days.plant import Fault
from batonpass.days.writing import GroupsThere
from batonpass.runtime.ports import StoreUnavailable
from batonpass.simulate.staged.drawing import EVENTS_OF_A_DAY
from batonpass.simulate.staged.model import Scenario

__all__ = ["EVENTS_OF_A_DAY", "Wish", "fill", "parse_day", "parse_faults"]


@dataclass(slots=True)
class Sum:
    """What has been written so far."""

    groups: int = 0
    events: int = 0
    records: int = 0
    traces: int = 0

    def add(self, one: Written) -> None:
        """Count one more group."""
        self.groups += 1
        self.events += one.events
        self.records += one.records
        self.traces += one.traces


def parse_day(text: str | None) -> date:
    """Return the day that is named; None: yesterday (UTC), which is what a nightly audit looks at.

    Raises:
        typer.BadParameter: when it is none.
    """
    if text is None:
        return datetime.now(UTC).date() - timedelta(days=1)
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no day; write for example 2026-11-20", param_hint="--day") from None


def parse_faults(names: list[str]) -> tuple[Fault, ...]:
    """Return the faults that are named.

    Raises:
        typer.BadParameter: when there is none of a name.
    """
    try:
        return tuple(Fault(name) for name in names)
    except ValueError as error:
        known = ", ".join(Fault)
        raise typer.BadParameter(f"{error}; there are {known}", param_hint="--plant") from None


def fill(url: str, wish: Wish, scenario: Scenario | None, *, as_json: bool) -> None:
    """Write days into a database, show how far that is, and say what was written.

    Raises:
        Failure: when the database cannot take them; what to do is said.
    """
    upgraded(url)
    done, started = Sum(), time.monotonic()
    console = Console(stderr=True)
    columns = (TextColumn("{task.completed:,} of about {task.total:,} events"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task("days", total=wish.events)

        def written(one: Written) -> None:
            done.add(one)
            bar.update(line, completed=done.events)

        _carefully(url, lambda: _write(url, wish, scenario, written))
    seconds = round(time.monotonic() - started, 1)
    if as_json:
        typer.echo(json.dumps({"day": wish.day.isoformat(), **asdict(done), "seconds": seconds}))
        return
    typer.echo(
        f"wrote {done.groups} group{'s' * (done.groups != 1)} on {wish.day}: {done.events:,} changes of assignments, "
        f"{done.records:,} records, {done.traces:,} decisions in {seconds} s"
    )
    typer.echo(f"look at it: batonpass audit --day {wish.day} --database-url {shown(url)}")


def _write(url: str, wish: Wish, scenario: Scenario | None, written: Callable[[Written], None]) -> None:
    if scenario is None:
        generate(url, wish, written=written)
    else:
        generate_scenario(url, scenario, replace(wish, events=0), written=written)


def _carefully(url: str, work: Callable[[], None]) -> None:
    try:
        work()
    except GroupsThere as error:
        some = ", ".join(error.groups[:5]) + (f" and {len(error.groups) - 5} more" if len(error.groups) > 5 else "")
        raise Failure(
            Exit.REFUSED,
            f"{shown(url)} has groups of these names: {some}. Nothing was written over them.",
            todo="Choose other names with --prefix, or an empty database.",
        ) from None
    except StoreUnavailable as error:
        raise Failure(
            Exit.UNREACHABLE, f"the database {shown(url)} is not to be had: {error.detail}.", todo="Look that it runs."
        ) from None
    except DBAPIError as error:
        raise Failure(Exit.REFUSED, f"the database {shown(url)} refused: {error.orig}.") from None
    except ValueError as error:
        raise Failure(Exit.BAD_INPUT, f"{error}.") from None
