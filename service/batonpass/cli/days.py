"""`batonpass simulate --into-database`: days of simulated groups in a database, as a service would have left them."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager

import typer

from batonpass.cli.database import failing_on_database, upgrade_schema
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.tables import progress
from batonpass.database_url import DatabaseUrl
from batonpass.days.generate import Drawing, Hear, Wish, Written, generate
from batonpass.days.plant import OF_DRAWN_DAYS, Fault
from batonpass.days.writing import GroupsThere
from batonpass.simulate.scenario.drawing import EVENTS_OF_A_DAY
from batonpass.terminal import say, say_on_stderr

__all__ = ["EVENTS_OF_A_DAY", "Wish", "fill", "parse_faults"]


LINE_EVERY_S = 5.0
"""How often a line shows the progress if standard error is not a terminal."""


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
    done, missed = Counter(groups=0, events=0, records=0, traces=0), dict[str, None]()
    started = time.monotonic()
    try:
        with _progress(wish, done, missed) as hear:
            _write(url, wish, hear)
    except KeyboardInterrupt:
        whole = f"{done['groups']} of {wish.group_count} groups were written completely, and nothing of the others"
        raise Failure(Exit.INTERRUPTED, f"interrupted: {whole}.") from None
    seconds = round(time.monotonic() - started, 1)
    # What a drawn day misses was chosen by the draw; what a scenario's day misses was asked for by its author.
    steps = [] if wish.scenario is None else list(missed)
    if as_json:
        say(json.dumps({"day": wish.day.isoformat(), **done, "missed": steps, "seconds": seconds}))
        return
    say(
        f"wrote {done['groups']} group{'s' * (done['groups'] != 1)} on {wish.day}: {done['events']:,} changes of "
        f"assignments, {done['records']:,} records, {done['traces']:,} decisions in {seconds} s"
    )
    for one in steps:
        say(f"could not happen: {one}")
    say(f"audit it with: batonpass audit --day {wish.day}, and the URL of this database in BATONPASS_DATABASE_URL")


@contextmanager
def _progress(wish: Wish, done: Counter[str], missed: dict[str, None]) -> Iterator[Hear]:
    """Provide a callback that counts, and shows the progress: a bar on a terminal, else a line every few seconds.

    ``missed`` gets the steps that could not happen, each named once, however many groups had it.
    """
    started = said_at = time.monotonic()
    under_way: dict[str, float] = {}
    with progress("{task.completed:,} of about {task.total:,} events") as bar:
        line = bar.add_task("days", total=wish.events)

        def hear(one: Written | Drawing) -> None:
            nonlocal said_at
            if isinstance(one, Drawing):
                under_way[one.group] = one.share
            else:
                under_way.pop(one.group, None)
                done.update(groups=1, events=one.events, records=one.records, traces=one.traces)
                missed.update(dict.fromkeys(one.missed))
            # A day under way counts as its share of a group's events.
            events = done["events"] + round(sum(under_way.values()) * (wish.events / wish.group_count))
            now = time.monotonic()
            bar.update(line, completed=events)
            if bar.disable and now - said_at >= LINE_EVERY_S:
                said_at = now
                said = (
                    f"{events:,} of about {wish.events:,} events, {done['groups']} of {wish.group_count} groups written"
                )
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
            f"{DatabaseUrl.read(url).shown} already has groups with these names: {some}. Nothing was written.",
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
