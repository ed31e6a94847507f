"""`batonpass simulate --into-database`: days of simulated groups in a database, as a service would have left them."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import typer

from batonpass.cli.database import failing_on_database, upgrade_schema, without_password
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.progress import progress
from batonpass.days.generate import Drawing, Hear, Wish, Written, generate
from batonpass.days.plant import OF_DRAWN_DAYS, Fault
from batonpass.days.writing import GroupsThere
from batonpass.simulate.scenario.drawing import EVENTS_OF_A_DAY
from batonpass.terminal import say, say_on_stderr

__all__ = ["EVENTS_OF_A_DAY", "Wish", "fill", "parse_faults"]


LINE_EVERY_S = 5.0
"""How often a line shows the progress if standard error is not a terminal."""


@dataclass(slots=True)
class Sum:
    """What has been written so far, and the share of each day that is being simulated.

    ``missed`` are the steps that could not happen, each named once, however many groups had it.
    """

    groups: int = 0
    events: int = 0
    records: int = 0
    traces: int = 0
    missed: dict[str, None] = field(default_factory=dict)
    under_way: dict[str, float] = field(default_factory=dict)

    def add(self, one: Written | Drawing) -> None:
        """Count one more group, or note the progress of one that is under way."""
        if isinstance(one, Drawing):
            self.under_way[one.group] = one.share
            return
        self.under_way.pop(one.group, None)
        self.groups += 1
        self.events += one.events
        self.records += one.records
        self.traces += one.traces
        self.missed |= dict.fromkeys(one.missed)

    def about(self, of_a_group: float) -> int:
        """Return about how many events there are; a day under way counts as its share of a group's events."""
        return self.events + round(sum(self.under_way.values()) * of_a_group)

    def counts(self) -> dict[str, int]:
        return {"groups": self.groups, "events": self.events, "records": self.records, "traces": self.traces}


def parse_faults(names: list[str], *, is_drawn: bool) -> tuple[Fault, ...]:
    """Return the named faults; with ``is_drawn`` they are for drawn days, else for those of a scenario.

    Raises:
        typer.BadParameter: when a name is unknown, or the fault cannot be planted into a scenario's day.
    """
    try:
        faults = tuple(Fault(name) for name in names)
    except ValueError as error:
        known = ", ".join(Fault)
        raise typer.BadParameter(f"{error}; the faults are {known}", param_hint="--plant") from None
    for fault in faults:
        if fault in OF_DRAWN_DAYS and not is_drawn:
            message = f"{fault} is only for days without --scenario; a scenario defines all that happens"
            raise typer.BadParameter(message, param_hint="--plant")
    return faults


def fill(url: str, wish: Wish, *, as_json: bool) -> None:
    """Write days into a database, show the progress, and print what was written.

    Raises:
        Failure: when the database cannot take them; the failure says what to do.
    """
    upgrade_schema(url)
    done, started = Sum(), time.monotonic()
    try:
        with _progress(wish, done) as hear:
            _write(url, wish, hear)
    except KeyboardInterrupt:
        whole = f"{done.groups} of {wish.group_count} groups were written completely, and nothing of the others"
        raise Failure(Exit.INTERRUPTED, f"interrupted: {whole}.") from None
    seconds = round(time.monotonic() - started, 1)
    # What a drawn day misses was chosen by the draw; what a scenario's day misses was asked for by its author.
    missed = [] if wish.scenario is None else list(done.missed)
    if as_json:
        say(json.dumps({"day": wish.day.isoformat(), **done.counts(), "missed": missed, "seconds": seconds}))
        return
    say(
        f"wrote {done.groups} group{'s' * (done.groups != 1)} on {wish.day}: {done.events:,} changes of assignments, "
        f"{done.records:,} records, {done.traces:,} decisions in {seconds} s"
    )
    for one in missed:
        say(f"could not happen: {one}")
    say(f"audit it with: batonpass audit --day {wish.day} --database-url {without_password(url)}")


@contextmanager
def _progress(wish: Wish, done: Sum) -> Iterator[Hear]:
    """Provide a callback that counts, and shows the progress: a bar on a terminal, else a line every few seconds."""
    started = said_at = time.monotonic()
    with progress("{task.completed:,} of about {task.total:,} events") as bar:
        line = bar.add_task("days", total=wish.events)

        def hear(one: Written | Drawing) -> None:
            nonlocal said_at
            done.add(one)
            events, now = done.about(wish.events / wish.group_count), time.monotonic()
            bar.update(line, completed=events)
            if bar.disable and now - said_at >= LINE_EVERY_S:
                said_at = now
                said = f"{events:,} of about {wish.events:,} events, {done.groups} of {wish.group_count} groups written"
                say_on_stderr(f"{now - started:5.0f} s  {said}")

        yield hear


def _write(url: str, wish: Wish, hear: Hear) -> None:
    try:
        with failing_on_database(url):
            generate(url, wish, hear=hear)
    except GroupsThere as error:
        some = ", ".join(error.groups[:5]) + (f" and {len(error.groups) - 5} more" if len(error.groups) > 5 else "")
        raise Failure(
            Exit.REFUSED,
            f"{without_password(url)} already has groups with these names: {some}. Nothing was written.",
            todo="Choose other names (--prefix, or `group` in the scenario), or an empty database.",
        ) from None
    except BrokenExecutor:
        raise Failure(
            Exit.REFUSED,
            "a process that simulated days was killed; groups that were already written remain.",
            todo="Check whether memory ran out, and write the rest under another --prefix.",
        ) from None
    except ValueError as error:
        raise Failure(Exit.BAD_INPUT, f"{error}.") from None
