"""`batonpass watch`: a group live, redrawn every second; without a terminal, its events line by line."""

from __future__ import annotations

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

from batonpass.cli.client_context import ClientContext, GroupName, client_command, failure_of, table
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.explain import names_in, names_of
from batonpass.cli.groups import standing
from batonpass.cli.members import state_of
from batonpass.cli.spans import ago, span_ms
from batonpass.client import ApiError, name_of, path
from batonpass.core.state.durations import duration
from batonpass.remedies import remedy_of
from batonpass.terminal import Renderer, shown
from batonpass.zones import UTC_ZONE, Zone, zone_named

EVENTS_SHOWN = 10
MEMBERS_SHOWN = 12
"""The most members that are shown with their tasks; of more, what is wrong is."""

EXCEPTIONS_SHOWN = 8
TRYING = "Workers go on with what they have; trying again until it is back."
GOING_ON = "The events go on where they broke off."
COLOURS = {
    "handover-done": "green",
    "takeover-done": "green",
    "takeover-begun": "yellow",
    "member-gone": "red",
    "member-suspected": "red",
    "member-distrusted": "red",
    "task-parked": "red",
    "task-failed": "red",
    "task-lost": "red",
    "placement-failed": "red",
    "storm-began": "red",
    "commits-lost": "bold red",
    "drain-blocked": "red",
    "at-rest": "cyan",
    "coordinator-back": "cyan",
}


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
    lasting: Annotated[str | None, typer.Option("--for", metavar="SPAN", help="End after this long.")] = None,
    zone: Annotated[
        str, typer.Option(metavar="ZONE", envvar="BATONPASS_ZONE", help="The zone of times, as in Europe/Vienna.")
    ] = UTC_ZONE.name,
) -> None:
    """Watch a group live until Ctrl-C: where it stands, who has what, how far warmups are, what just happened.

    Without a terminal, and with --json, every event is a line as it happens. If no coordinator answers any more, it
    says so, waits for one, and goes on where it was; at the start it waits as long as --patience says.
    """
    pause_s = max(span_ms(every) / 1_000, 0.1)
    try:
        chosen = zone_named(zone.strip())
    except ValueError as error:
        raise Failure(Exit.BAD_INPUT, f"--zone: {error}.") from None
    lasting_s = None if lasting is None else span_ms(lasting) / 1_000
    # A timeout and Ctrl-C are how watching ends.
    with suppress(TimeoutError, asyncio.CancelledError):
        async with asyncio.timeout(lasting_s):
            if context.as_json or not context.console.is_terminal:
                await _follow(context, group, chosen)
            else:
                await _draw(context, group, pause_s, chosen)


class Outage:
    """The time since which no coordinator answers, to report the beginning and the end of an outage once each."""

    def __init__(self) -> None:
        self._since: float | None = None

    def begun(self, error: ApiError) -> bool:
        """Note an error; return whether it is the first of an outage.

        Raises:
            ApiError: the same error, if it is not one of those that pass.
        """
        if failure_of(error).code is not Exit.UNREACHABLE:
            raise error
        is_first = self._since is None
        self._since = self._since or time.monotonic()
        return is_first

    def over(self) -> float | None:
        """Note that events come again; return how long they did not, in ms, the first time after an outage."""
        began, self._since = self._since, None
        return None if began is None else (time.monotonic() - began) * 1_000


async def _follow(context: ClientContext, group: str, zone: Zone) -> None:
    """Print every event from now on. It waits until an outage is over: no event is missed or printed twice."""
    names = Names(context, group, await names_of(context, group))
    now = standing(await context.client.get(path("groups", group)))
    context.note("watching", f"{now[0]} Its events follow, a line each; times are {zone.name}.")
    # From here on this function, not the client, waits for a coordinator that is away, and reports the outage.
    context.client.patience_s = 0
    outage = Outage()
    async for heard in context.client.follow(path("groups", group, "events")):
        if isinstance(heard, ApiError):
            if outage.begun(heard):
                context.note("coordinator-lost", f"{heard} {TRYING}")
            continue
        if (gone_ms := outage.over()) is not None:
            context.note("coordinator-back", f"{back(gone_ms)} {GOING_ON}", away_ms=round(gone_ms))
        if heard is None:
            continue
        if not context.answered(heard):
            context.say(event_line(heard, await names.of(heard), zone).plain)


def back(gone_ms: float) -> str:
    """Return the sentence that ends an outage."""
    return f"A coordinator answers again, after {duration(gone_ms)}."


async def _draw(context: ClientContext, group: str, pause_s: float, zone: Zone) -> None:
    """Redraw on every event, and every now and then; during an outage the last look stays."""
    seen = await look(context, group)
    names = Names(context, group, await names_of(context, group))
    context.client.patience_s = 0
    recent = deque[dict[str, Any]](maxlen=EVENTS_SHOWN)
    outage, news = Outage(), asyncio.Event()
    lost: ApiError | None = None

    async def hear() -> None:
        nonlocal lost
        async for heard in context.client.follow(path("groups", group, "events")):
            lost = heard if isinstance(heard, ApiError) else None
            if isinstance(heard, dict):
                recent.append(heard)
                await names.of(heard)
            news.set()

    drawn = Live(
        picture(seen, [], names.known, zone), console=context.console, auto_refresh=False, vertical_overflow="crop"
    )
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
                    outage.begun(error)
                elif (gone_ms := outage.over()) is not None:
                    recent.append(_note("coordinator-back", f"after {duration(gone_ms)}"))
                above: list[RenderableType] = [shown(f"{error} {TRYING}", style="bold red")] if error else []
                live.update(Stack(*above, picture(seen, list(recent), names.known, zone)), refresh=True)
                if error is not None:
                    await asyncio.sleep(pause_s)
    finally:
        hearing.cancel()


def _note(kind: str, words: str) -> dict[str, Any]:
    """Return something that this command noticed itself, in the form of an event."""
    return {"type": kind, "at": datetime.now(UTC).isoformat(), "body": {"gone": words}}


class Names:
    """The names of a group's members, asked for again when an unknown member turns up."""

    def __init__(self, context: ClientContext, group: str, known: dict[str, str]) -> None:
        self._context = context
        self._group = group
        self.known = known

    async def of(self, event: dict[str, Any]) -> dict[str, str]:
        """Return the names to print an event with; if the coordinator does not answer, those known so far."""
        member = event.get("member")
        if member and member not in self.known:
            joined = {"member_id": member, "instance_id": (event.get("body") or {}).get("instance_id")}
            try:
                self.known |= await names_of(self._context, self._group)
            except ApiError:
                return self.known
            self.known.setdefault(member, name_of(joined))
        return self.known


async def look(context: ClientContext, group: str) -> Seen:
    """Look at a group, and at its members; where they are many, at what is wrong with them and their tasks."""
    body = await context.client.get(path("groups", group))
    if body["members"] > MEMBERS_SHOWN:
        return Seen(body, [], await context.client.get(path("groups", group, "explain"), limit=EXCEPTIONS_SHOWN))
    return Seen(body, await context.client.pages(path("groups", group, "members"), "members"), None)


def picture(seen: Seen, recent: list[dict[str, Any]], names: dict[str, str], zone: Zone = UTC_ZONE) -> RenderableType:
    """Return the drawing of one look: how the group is, who has what or what is wrong, and below it the events."""
    lines: list[RenderableType] = [shown(line) for line in standing(seen.group)]
    known = names | names_in(seen.members, recent)
    if seen.explained is not None:
        lines += _exceptions(seen.explained, known)
    else:
        rows = sorted([_row(one, known) for one in seen.members], key=operator.itemgetter(0))
        lines.append(table("member", "state", "active", "standby", "warmup", "heard", rows=rows))
    for reason, tasks in held_by_reason(seen.group):
        lines.append(shown(f"held back by {reason}: {tasks}", style="yellow"))
    return Pinned(Stack(*lines), [event_line(event, known, zone) for event in recent], zone)


def _exceptions(explained: dict[str, Any], names: dict[str, str]) -> list[RenderableType]:
    """Return the counts of a large group, and the members and tasks that are not as they should be."""
    counts = ", ".join(f"{amount:,} {state.replace('-', ' ')}" for state, amount in explained["tasks"].items())
    lines: list[RenderableType] = [shown(f"Tasks: {counts}.")]
    for what, entries, total in (
        ("member", explained["members"], len(explained["members"])),
        ("task", explained["waiting"], explained["waiting_total"]),
    ):
        for one in entries[:EXCEPTIONS_SHOWN]:
            said = one["what"] if what == "member" else one["state"]
            lines.append(shown(f"{what} {names.get(one[what], one[what])}: {said.replace('-', ' ')}", style="yellow"))
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
        """Draw what fits."""
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


def held_by_reason(group: dict[str, Any], most: int = 8) -> list[tuple[str, str]]:
    """Return the tasks that are held back, by reason, each list cut to a readable length."""
    shown = []
    for reason, count in sorted(group["held_back_by_reason"].items()):
        tasks = [entry["task"] for entry in group["held_back"] if entry["reason"] == reason]
        shown.append((reason, ", ".join(tasks[:most]) + (f" and {count - most} more" if count > most else "")))
    return shown


def _row(one: dict[str, Any], names: dict[str, str]) -> list[Any]:
    held, reports = one["assignment"], one["reports"]
    active = Text(", ").join(_active(grant["task"], reports) for grant in held["active"])
    standby = Text(", ").join(_copy(task, reports) for task in held["standby"])
    warmup = Text(", ").join(_copy(task, reports) for task in held["warmup"])
    if one["revoking"]:
        active.append(f" (gives up {', '.join(one['revoking'])})", style="yellow")
    return [names[one["member_id"]], state_of(one), active, standby, warmup, ago(one["last_heard_at"])]


def _active(task: str, reports: dict[str, Any]) -> Text:
    said = reports.get(task, {})
    match said.get("state") if said.get("role") == "active" else None:
        case "running":
            return Text(task, style="green")
        case "restoring":
            return Text(f"{task} restoring{_behind(said)}", style="yellow")
        case "failed":
            return Text(f"{task} failed", style="red")
        case _:
            return Text(f"{task} starting", style="yellow")


def _copy(task: str, reports: dict[str, Any]) -> Text:
    said = reports.get(task, {})
    lag = said.get("lag")
    return Text(f"{task}{_behind(said)}", style="dim" if lag is not None and lag < 1_000 else "cyan")


def _behind(said: dict[str, Any]) -> str:
    lag, rate = said.get("lag"), said.get("records_per_second")
    if lag is None:
        return " (lag ?)"
    soon = f", {duration(lag / rate * 1_000)}" if lag and rate else ""
    return f" (lag {lag}{soon})"


def event_line(event: dict[str, Any], names: dict[str, str] | None = None, zone: Zone = UTC_ZONE) -> Text:
    """Return an event as one line: time in a zone, kind, subject, and the details that are not empty."""
    clock = zone.clock(event.get("at") or datetime.now(UTC).isoformat())
    known = names or {}
    body = event.get("body") or {}
    # The instants in an event add little to the time at the beginning of the line; `--json` has them.
    particulars = {
        name: value for name, value in body.items() if value not in (None, "", [], {}) and name[-3:] != "_at"
    }
    words = [f"{name}={_plain(value, known)}" for name, value in particulars.items()]
    who = [one for one in (event.get("task"), known.get(event.get("member") or "", event.get("member"))) if one]
    line = Text(f"{clock} ", style="dim")
    line.append(event["type"], style=COLOURS.get(event["type"], "bold"))
    line.append(f" {' '.join(who)}" if who else "")
    line.append(f" {' '.join(words)}" if words else "", style="dim")
    remedy = remedy_of(event, known.get(event.get("member") or "", ""))
    if remedy is not None:
        line.append(f" -> {remedy.command}{', ' if remedy.command else ''}docs/runbooks/{remedy.runbook}.md")
    return shown(line)


def _plain(value: Any, names: dict[str, str]) -> str:
    if isinstance(value, list):
        return ",".join(_plain(one, names) for one in value)
    return names.get(str(value), str(value)) if isinstance(value, str) else str(value)
