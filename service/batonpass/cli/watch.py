"""`batonpass watch`: a group live, redrawn every second; without a terminal, its events line by line."""

import asyncio
import operator
import time
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import ConsoleOptions, RenderableType, RenderResult
from rich.console import Group as Stack
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from batonpass.cli.client_context import ClientContext, GroupName, client_command, failure_of
from batonpass.cli.exits import Exit, failing_as
from batonpass.cli.explain import names_of
from batonpass.cli.groups import standing
from batonpass.cli.spans import ago, span_ms
from batonpass.cli.tables import table
from batonpass.client import ApiError, path
from batonpass.dashboard.view_models import events
from batonpass.dashboard.view_models.grid import cells_of
from batonpass.dashboard.view_models.members import COLUMNS, Columns, filled, state_words
from batonpass.dashboard.words import Names
from batonpass.terminal import Renderer, shown
from batonpass.zones import UTC_ZONE, Zone, zone_named

EVENTS_SHOWN = 10
MEMBERS_SHOWN = 12
"""The most members that are shown with their tasks; of more, what is wrong is."""

HELD = {"active": "A", "standby": "S", "warmup": "W"}
"""The columns that name the tasks which a member has, and the letter of their cells."""

EXCEPTIONS_SHOWN = 8
TRYING = "Workers go on with what they have; trying again until it is back."
GOING_ON = "The events go on where they broke off."
STYLES = {
    "ok": "green",
    "copy": "dim",
    "warm": "cyan",
    "behind": "cyan",
    "move": "yellow",
    "warn": "yellow",
    "bad": "red",
}
"""How events and tasks are drawn, by the tones that pages have them in."""


class Seen(NamedTuple):
    """The results of one look at a group."""

    group: dict[str, Any]
    members: list[dict[str, Any]]
    explained: dict[str, Any] | None


@client_command
async def watch(
    context: ClientContext,
    group: GroupName,
    every: Annotated[str, typer.Option("--every", metavar="SPAN", help="How often to look, at least.")] = "1s",
    lasting: Annotated[
        str | None, typer.Option("--for", metavar="SPAN", help="End so long after the first look.")
    ] = None,
    zone: Annotated[
        str, typer.Option(metavar="ZONE", envvar="BATONPASS_ZONE", help="The zone of times, as in Europe/Vienna.")
    ] = UTC_ZONE.name,
) -> None:
    """Watch a group live until Ctrl-C: where it stands, who has what, how far warmups are, what just happened.

    Without a terminal, and with --json, every event is a line as it happens. If no coordinator answers any more, it
    says so, waits for one, and goes on where it was; at the start it waits as long as --patience says.
    """
    pause_s = max(span_ms(every) / 1_000, 0.1)
    with failing_as(Exit.BAD_INPUT, ValueError, form="--zone: {}."):
        chosen = zone_named(zone.strip())
    lasting_s = None if lasting is None else span_ms(lasting) / 1_000
    # A timeout and Ctrl-C are how watching ends.
    with suppress(TimeoutError, asyncio.CancelledError):
        seen, names = await look(context, group), await names_of(context, group)
        # From here on this command, not the client, waits for a coordinator that is away, and reports the outage.
        context.client.patience_s = 0
        async with asyncio.timeout(lasting_s):
            if context.as_json or not context.console.is_terminal:
                await _follow(context, seen, names, chosen)
            else:
                await _draw(context, seen, names, pause_s, chosen)


async def _follow(context: ClientContext, seen: Seen, names: Names, zone: Zone) -> None:
    """Print every event from now on. It waits until an outage is over: no event is missed or printed twice."""
    group, now = seen.group["group"], standing(seen.group)
    context.note("watching", f"{now[0]} Its events follow, a line each; times are {zone.name}.")
    lost_s: float | None = None
    async for heard in context.client.follow(path("groups", group, "events")):
        if isinstance(heard, ApiError):
            _require_passing(heard)
            if lost_s is None:
                lost_s = time.monotonic()
                context.note("coordinator-lost", f"{heard} {TRYING}")
            continue
        if lost_s is not None:
            told, lost_s = back(lost_s), None
            sentence = f"{events.sentence_of(told, names)} {GOING_ON}"
            context.note("coordinator-back", sentence, away_ms=round(told["body"]["took_ms"]))
        if heard is None:
            continue
        names.learn_from(heard)
        if not context.answered(heard):
            context.say(event_line(heard, names, zone).plain)


def _require_passing(error: ApiError) -> None:
    """Raise an error that is not that of an outage."""
    if failure_of(error).code is not Exit.UNREACHABLE:
        raise error


def back(lost_s: float) -> dict[str, Any]:
    """Return the end of an outage, which this command noticed itself, in the form of an event."""
    gone_ms = (time.monotonic() - lost_s) * 1_000
    return {"type": "coordinator-back", "at": datetime.now(UTC).isoformat(), "body": {"took_ms": gone_ms}}


async def _draw(context: ClientContext, seen: Seen, names: Names, pause_s: float, zone: Zone) -> None:
    """Redraw on every event, and every now and then; during an outage the last look stays."""
    group = seen.group["group"]
    recent = deque[dict[str, Any]](maxlen=EVENTS_SHOWN)
    news = asyncio.Event()
    lost: ApiError | None = None
    lost_s: float | None = None

    async def hear() -> None:
        nonlocal lost
        async for heard in context.client.follow(path("groups", group, "events")):
            lost = heard if isinstance(heard, ApiError) else None
            if isinstance(heard, dict):
                recent.append(heard)
                names.learn_from(heard)
            news.set()

    drawn = Live(picture(seen, [], names, zone), console=context.console, auto_refresh=False, vertical_overflow="crop")
    hearing = asyncio.create_task(hear())
    try:
        with drawn as live:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), pause_s)
                news.clear()
                if hearing.done():
                    hearing.result()
                error = lost
                try:
                    seen = await look(context, group)
                except ApiError as failed:
                    error = failed
                if error is not None:
                    _require_passing(error)
                    lost_s = lost_s or time.monotonic()
                elif lost_s is not None:
                    recent.append(back(lost_s))
                    lost_s = None
                above: list[RenderableType] = [shown(f"{error} {TRYING}", style="bold red")] if error else []
                live.update(Stack(*above, picture(seen, list(recent), names, zone)), refresh=True)
                if error is not None:
                    await asyncio.sleep(pause_s)
    finally:
        hearing.cancel()


async def look(context: ClientContext, group: str) -> Seen:
    """Look at a group, and at its members; where they are many, at what is wrong with them and their tasks."""
    body = await context.client.get(path("groups", group))
    if body["members"] > MEMBERS_SHOWN:
        return Seen(body, [], await context.client.get(path("groups", group, "explain"), limit=EXCEPTIONS_SHOWN))
    return Seen(body, await context.client.pages(path("groups", group, "members"), "members"), None)


def picture(seen: Seen, recent: list[dict[str, Any]], names: Names, zone: Zone = UTC_ZONE) -> RenderableType:
    """Return the drawing of one look: how the group is, who has what or what is wrong, and below it the events."""
    lines: list[RenderableType] = [shown(line) for line in standing(seen.group)]
    for one in seen.members:
        names.learn(one["member_id"], one.get("instance_id"))
    if seen.explained is not None:
        lines += _exceptions(seen.explained, names)
    else:
        lag = seen.group["config"]["acceptable_recovery_lag"]
        more = {title: cell for title, cell in filled(COLUMNS, seen.members).items() if title not in HELD}
        rows = sorted([_row(one, lag, names, more) for one in seen.members], key=operator.itemgetter(0))
        lines.append(table("member", "state", *HELD, *more, "heard", rows=rows))
    return Pinned(Stack(*lines), [event_line(event, names, zone) for event in recent], zone)


def _exceptions(explained: dict[str, Any], names: Names) -> list[RenderableType]:
    """Return the counts of a large group, and the members and tasks that are not as they should be."""
    counts = ", ".join(f"{amount:,} {state.replace('-', ' ')}" for state, amount in explained["tasks"].items())
    lines: list[RenderableType] = [shown(f"Tasks: {counts}.")]
    for what, entries, total in (
        ("member", explained["members"], len(explained["members"])),
        ("task", explained["waiting"], explained["waiting_total"]),
    ):
        for one in entries[:EXCEPTIONS_SHOWN]:
            said = one["what"] if what == "member" else one["state"]
            who = names(one[what]) if what == "member" else one[what]
            lines.append(shown(f"{what} {who}: {said.replace('-', ' ')}", style="yellow"))
        if total > EXCEPTIONS_SHOWN:
            lines.append(Text(f"... and {total - EXCEPTIONS_SHOWN:,} more {what}s: `batonpass explain` lists them."))
    return lines


class Pinned:
    """What is so, and below it the newest events, which always stay in view; lines that do not fit are counted."""

    def __init__(self, above: RenderableType, events: list[Text], zone: Zone) -> None:
        self._above = above
        self._events = events
        self._zone = zone

    def __rich_console__(self, console: Renderer, options: ConsoleOptions) -> RenderResult:
        height = options.max_height
        events = self._events[-max(height // 3, 1) :]
        below = Stack(Text(f"Events ({self._zone.name}):", style="dim"), *events) if events else Stack()
        lower = console.render_lines(below, options, pad=False) if events else []
        upper = console.render_lines(self._above, options, pad=False)
        room = max(height - len(lower) - 1, 2)
        if len(upper) > room:
            more = Text(f"... and {len(upper) - room + 1} more lines: in a taller window, or from `batonpass explain`.")
            upper = [*upper[: room - 1], *console.render_lines(more, options, pad=False)]
        for line in (*upper, *lower):
            yield from line
            yield Segment.line()


def _row(one: dict[str, Any], acceptable_lag: int, names: Names, more: Columns) -> list[Any]:
    """Return a member with what it has; a task says what it is if that is not what its column says, and its lag."""
    cells = cells_of(one, acceptable_lag, names)
    columns: dict[str, list[Text]] = {letter: [] for letter in HELD.values()}
    for task, cell in cells.items():
        usual = cell.letter if cell.letter in columns else "A"
        said = " ".join(part for part in (cell.letter if cell.letter != usual else "", cell.note) if part)
        columns[usual].append(Text(f"{task} ({said})" if said else task, style=STYLES.get(cell.tone, "")))
    held = [Text(", ").join(tasks) for tasks in columns.values()]
    return [
        names(one["member_id"]),
        state_words(one),
        *held,
        *(cell(one) for cell in more.values()),
        ago(one["last_heard_at"]),
    ]


def event_line(event: dict[str, Any], names: Names, zone: Zone = UTC_ZONE) -> Text:
    """Return an event as one line: time in a zone, type, what it tells, and what helps."""
    told = events.event_line(event, names)
    line = Text(f"{zone.clock(event.get('at') or datetime.now(UTC).isoformat())} ", style="dim")
    line.append(event["type"], style=STYLES.get(told.tone, "bold"))
    line.append(f" {told.words}")
    if told.remedy is not None:
        line.append(" -> " + ", ".join(filter(None, [told.remedy.command, f"docs/runbooks/{told.remedy.runbook}.md"])))
    return shown(line)
