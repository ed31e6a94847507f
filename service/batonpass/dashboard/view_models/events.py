"""Events as sentences."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from batonpass.dashboard.view_models.generations import because
from batonpass.dashboard.words import CAUSES, Names, count, duration, gap_of, meaning_of, number, why
from batonpass.explain.remedies import EventRemedy, remedy_of
from batonpass.group_words import readable_name

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
    "generation": ("plain", "Generation {number}{because}: {moves}."),
    "member-gone": ("bad", "{member} {gone}{ran}."),
    "task-failed": ("bad", "{task} failed on {member}: {failure}."),
    "tasks-adopted": ("plain", "{member} keeps {adopted}."),
    "drain-blocked": ("bad", "{member} keeps {active}: {blocked}."),
    "group-declared": ("plain", "The group was created, with {tasks}."),
    "group-deleted": ("warn", "The group was deleted, with {members}."),
    "topology-changed": ("plain", "The topology of the group changed. It has {tasks}."),
    "config-changed": ("plain", "Settings were changed{changes}."),
    "probed": ("plain", "A probing rebalance looked at the group{found}."),
    "paused": ("warn", "An operator paused {scope}{reason}."),
    "resumed": ("plain", "{ended}."),
}
"""By the type of an event: its tone and its sentence."""

ADOPTED: Final[Mapping[str, str]] = {"rebalance": "a rebalance of Kafka gave it"}
"""Why a member keeps tasks that it was not given, unless the store lost commits."""

TONE_WORDS: Final[Mapping[str, str]] = {"bad": "to look at", "warn": "out of the ordinary", "ok": "gone well"}
"""What the tones mean that events can be filtered by."""


class EventLine(NamedTuple):
    """One event: as it is told, in words, whether it is good or bad, and what helps."""

    event: Json
    tone: str
    words: str
    remedy: EventRemedy | None


def event_lines(events: Sequence[Json], names: Names) -> list[EventLine]:
    return [event_line(event, names) for event in events]


def event_line(event: Json, names: Names) -> EventLine:
    """Return an event as a sentence, with what helps, for which a member is named as commands know it."""
    member = event.get("member")
    about = event.get("task") or (names(member) if member in names else member)
    cause = (event.get("body") or {}).get("cause") or ""
    remedy = remedy_of(event["type"], cause, event.get("group") or "", *([about] if about else []))
    tone, _ = EVENTS.get(event["type"], ("plain", ""))
    return EventLine(event, tone, sentence_of(event, names), remedy)


def sentence_of(event: Json, names: Names) -> str:
    """Return what an event tells; for an unknown type, its type and details."""
    body: Json = event.get("body") or {}
    task, member, kind = _tasks(event, body), names(event.get("member")), event["type"]
    if kind not in EVENTS:
        return generic(kind, task, member if event.get("member") else "", _why(body))
    gap_ms, bound = gap_of(body)
    gone, warm = str(body.get("cause") or ""), body.get("warm")
    return EVENTS[kind][1].format(
        task=task,
        tasks=task or "no tasks",
        member=member,
        source=names(body.get("from")),
        gap=bound + duration(gap_ms),
        took=duration(body.get("took_ms")),
        running=count(body.get("running") or 0, "task"),
        active=count(body.get("running") or 0, "active task"),
        blocked=meaning_of(str(body.get("why") or "the reason is not known")),
        warmth="warm" if warm else "cold",
        begun="from a warm copy" if warm else "cold",
        detail=_told(body.get("detail")),
        failure=body.get("detail") or "no detail",
        lost=number(body.get("lost") or 0),
        why=_why(body),
        instance=readable_name(body.get("instance_id"))
        or (member if event.get("member") else body.get("instance_id", "")),
        number=body.get("number", event.get("generation")),
        because=f", because {because(body['triggers'])}" if body.get("triggers") else "",
        moves=count(body.get("moves", 0), "move"),
        gone=CAUSES.get(gone, f"is gone ({gone})"),
        ran=f", and ran {count(body['running'], 'task')}" if body.get("running") else "",
        adopted=f"{task or 'what it runs'}: {ADOPTED.get(gone, 'the store lost commits')}",
        members=count(body["members"] if isinstance(body.get("members"), int) else 0, "member"),
        changes=_told(_changes(body.get("changed"))),
        found=" and changed something" if body.get("changed") else "",
        scope="all moves" if body.get("scope") == "all" else "moves for balance",
        reason=f": {body['reason']}" if body.get("reason") else "",
        ended="The pause expired" if body.get("expired") else "An operator ended the pause",
    )


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


def _why(body: Json) -> str:
    return f" ({why(body['why'])})" if isinstance(body.get("why"), str) and body["why"] else ""
