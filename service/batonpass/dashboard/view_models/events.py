"""Events as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from batonpass.client import readable_name
from batonpass.dashboard.view_models.generations import because
from batonpass.dashboard.words import CAUSES, Names, count, duration, gap_of, number, why
from batonpass.remedies import EventRemedy, remedy_of

Json = Mapping[str, Any]

EVENTS: Final[Mapping[str, tuple[str, str]]] = {
    "member-joined": ("plain", "{member} joined."),
    "member-changed": ("plain", "{member} has other threads, other tags or another address."),
    "member-away": ("warn", "{member} stopped to restart; its place is kept."),
    "member-suspected": ("bad", "{member} has fallen silent."),
    "suspicion-cleared": ("ok", "{member} speaks again."),
    "member-distrusted": (
        "bad",
        "{member} is given nothing new for a while: tasks that failed there, or died with it, run elsewhere.",
    ),
    "member-trusted": ("ok", "An operator trusts {member} again."),
    "handover-begun": ("plain", "{source} was told to give {task} up to {member}."),
    "handover-done": ("ok", "{task} went from {source} to {member}; nobody ran it for {gap}."),
    "handover-redirected": ("plain", "{task} goes to {member} instead, because its next owner cannot take it."),
    "takeover-begun": ("warn", "{member} takes {task} over from {source}, {warmth}."),
    "takeover-done": ("ok", "{member} runs {task}, {begun}; nobody ran it for {gap}."),
    "task-stopped": ("plain", "{task} stopped on {member}."),
    "task-recovered": ("ok", "{task} runs again on {member}; nobody ran it for {gap}."),
    "task-revoked": ("warn", "{member} was told to give {task} up, and no other member gets it now{why}."),
    "task-pinned": ("plain", "An operator pinned {task} to {member}."),
    "task-unpinned": ("plain", "An operator removed the pin of {task}."),
    "task-parked": ("bad", "{task} is parked: it failed on too many members."),
    "task-unparked": ("plain", "An operator released {task}. It is tried again."),
    "task-lost": ("bad", "{member} lost the state of {task}{detail}."),
    "task-restoring": ("warn", "{member} restores {task} again{detail}."),
    "warmup-started": ("warm", "{member} began to restore a copy of {task}."),
    "warmup-caught-up": ("warm", "The copy of {task} on {member} caught up in {took}."),
    "warmup-stalled": ("warn", "The copy of {task} on {member} comes no closer. Others have their turn."),
    "warmup-dropped": ("plain", "The copy of {task} on {member} is no longer needed."),
    "drain-started": ("plain", "{member} began to drain. It runs {running}."),
    "drain-done": ("ok", "{member} has no active task left, after {took}."),
    "drain-cancelled": ("plain", "{member} stays: its drain was taken back."),
    "instance-kept-out": ("plain", "An operator keeps instance {instance} out: no run of it gets a task."),
    "instance-let-in": ("plain", "Instance {instance} may have tasks again."),
    "at-rest": ("ok", "At rest: every task is where it belongs."),
    "storm-began": ("bad", "Storm: {lost} members vanished at once. Moves for balance and cold takeovers stop."),
    "storm-ended": ("ok", "The storm is over."),
    "placement-failed": ("bad", "Placement failed. The target stays as it was, and placement is tried again."),
    "missed": ("plain", "{lost} events are missing: they are no longer stored."),
    "coordinator-back": ("plain", "A coordinator answers again, after {took}."),
    "commits-lost": ("bad", "Alarm: the store lost commits. Members keep the tasks that they run."),
    "paused": ("warn", ""),
    "group-deleted": ("warn", ""),
    "member-gone": ("bad", ""),
    "task-failed": ("bad", ""),
    "drain-blocked": ("bad", ""),
}
"""By the type of an event: its tone, and its sentence if that is always the same; ``sentence_of`` has the others."""

TONE_WORDS: Final[Mapping[str, str]] = {"bad": "to look at", "warn": "out of the ordinary", "ok": "gone well"}
"""What the tones mean that events can be filtered by."""

BLOCKED: Final[Mapping[str, str]] = {
    "no-eligible-member": "no other member is eligible",
    "placement-failed": "placement failed",
    "drain-timeout": "drain_timeout_ms is over",
    "drain-deadline": "its deadline is over",
}
"""Why a draining member keeps its tasks."""


class EventLine(NamedTuple):
    """One event: as it is told, in words, whether it is good or bad, and what helps."""

    event: Json
    tone: str
    words: str
    remedy: EventRemedy | None


def event_lines(events: Sequence[Json], names: Names) -> list[EventLine]:
    """Return events as sentences, in their order."""
    return [event_line(event, names) for event in events]


def tone_of(kind: str) -> str:
    """Return whether events of a type are good or bad; `plain` if neither."""
    return EVENTS.get(kind, ("plain", ""))[0]


def help_of(event: Json, names: Names) -> EventRemedy | None:
    """Return what helps against what an event tells, with a member as commands know it."""
    return remedy_of(event, names(event["member"]) if event.get("member") in names else "")


def event_line(event: Json, names: Names) -> EventLine:
    """Return an event as a sentence, with what helps."""
    return EventLine(event, tone_of(event["type"]), sentence_of(event, names), help_of(event, names))


def sentence_of(event: Json, names: Names) -> str:
    """Return what an event tells; for an unknown type, its type and details."""
    body: Json = event.get("body") or {}
    task, member = _tasks(event, body), names(event.get("member"))
    match event["type"]:
        case "generation":
            cause = f", because {because(body['triggers'])}" if body.get("triggers") else ""
            return (
                f"Generation {body.get('number', event['generation'])}{cause}: {count(body.get('moves', 0), 'move')}."
            )
        case "member-gone":
            gone = str(body.get("cause") or "")
            left = f", and ran {count(body['running'], 'task')}" if body.get("running") else ""
            return f"{member} {CAUSES.get(gone, f'is gone ({gone})')}{left}."
        case "task-failed":
            return f"{task} failed on {member}: {body.get('detail') or 'no detail'}."
        case "tasks-adopted":
            why_so = "a rebalance of Kafka gave it" if body.get("cause") == "rebalance" else "the store lost commits"
            return f"{member} keeps {task or 'what it runs'}: {why_so}."
        case "drain-blocked":
            what = count(body.get("running") or 0, "active task")
            why_not = BLOCKED.get(str(body.get("why")), str(body.get("why") or "the reason is not known"))
            return f"{member} keeps {what}: {why_not}."
        case "group-declared":
            return f"The group was created, with {task or 'no tasks'}."
        case "group-deleted":
            return f"The group was deleted, with {count(body.get('members') or 0, 'member')}."
        case "topology-changed":
            return f"The topology of the group changed. It has {task or 'no tasks'}."
        case "config-changed":
            return f"Settings were changed{_told(_changes(body.get('changed')))}."
        case "probed":
            return f"A probing rebalance looked at the group{' and changed something' if body.get('changed') else ''}."
        case "paused":
            return f"An operator paused {'all moves' if body.get('scope') == 'all' else 'moves for balance'}{_because(body)}."
        case "resumed":
            return "The pause expired." if body.get("expired") else "An operator ended the pause."
        case kind if EVENTS.get(kind, ("", ""))[1]:
            gap_ms, bound = gap_of(body)
            return EVENTS[kind][1].format(
                task=task,
                member=member,
                source=names(body.get("from")),
                gap=bound + duration(gap_ms),
                took=duration(body.get("took_ms")),
                running=count(body.get("running") or 0, "task"),
                warmth="warm" if body.get("warm") else "cold",
                begun="from a warm copy" if body.get("warm") else "cold",
                detail=_told(body.get("detail")),
                lost=number(body.get("lost") or 0),
                why=_why(body),
                instance=readable_name(body.get("instance_id"))
                or (member if event.get("member") else body.get("instance_id", "")),
            )
        case kind:
            return generic(kind, task, member if event.get("member") else "", _why(body))


def generic(kind: str, task: str, member: str, because_of: str) -> str:
    """Return the sentence for an event of an unknown type."""
    what, who = f" {task}" if task else "", f" on {member}" if member else ""
    return f"{kind.replace('-', ' ').capitalize()}{what}{who}{because_of}."


def _told(said: object) -> str:
    """Return a colon and a text, without a full stop at its end; empty for an empty text."""
    words = said.rstrip(".") if isinstance(said, str) else ""
    return f": {words}" if words else ""


def _changes(changed: object) -> str:
    """Return the settings that changed, each with its old and new value."""
    found = changed.items() if isinstance(changed, dict) else ()
    return ", ".join(
        f"{name} from {_plain(one.get('from'))} to {_plain(one.get('to'))}" if isinstance(one, dict) else str(name)
        for name, one in found
    )


def _plain(value: object) -> str:
    return "off" if value is None else ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _tasks(event: Json, body: Json) -> str:
    return (
        str(event["task"])
        if event.get("task")
        else count(body["tasks"], "task")
        if isinstance(body.get("tasks"), int)
        else ""
    )


def _because(body: Json) -> str:
    return f": {body['reason']}" if body.get("reason") else ""


def _why(body: Json) -> str:
    return f" ({why(body['why'])})" if isinstance(body.get("why"), str) and body["why"] else ""
