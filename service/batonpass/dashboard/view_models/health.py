"""Health: whether a group is well, if not why, what moves, and when that is over, in one glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from batonpass.client import instant
from batonpass.dashboard.words import Names, ago, count, soon, span_whole

Json = Mapping[str, Any]

STANDING_STILL: Final = {
    "failed": "failed",
    "lost": "lost its state",
    "parked": "parked after failures",
    "waiting": "without an owner",
}
"""States of a task that no member processes or is about to process."""

BETWEEN: Final = {"restoring": "restoring", "starting": "starting", "handing-over": "handing over"}
"""States of a task that is not processed for a short time."""


class Level(StrEnum):
    """How well a group is, from the best to the worst; lists of groups show the worst first."""

    REST = "rest"
    MOVING = "moving"
    ATTENTION = "attention"
    TROUBLE = "trouble"


ORDER: Final = {Level.TROUBLE: 0, Level.ATTENTION: 1, Level.MOVING: 2, Level.REST: 3}


@dataclass(frozen=True, slots=True)
class Health:
    """A group in one glance. ``reasons`` are details, the most important first; ``over`` is when it should be over."""

    level: Level
    title: str
    headline: str
    reasons: tuple[str, ...] = ()
    over: str = ""


@dataclass(frozen=True, slots=True)
class Stuck:
    """A task that is not processed: its state in words, and what it waits for."""

    task: str
    state: str
    waits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupLine:
    """One line of the list of groups."""

    group: str
    health: Health
    members: int
    tasks: int
    warmups: int
    moves: int
    generation: int


def health(explained: Json, names: Names, *, members: int, tasks: int, lease_over_at: str | None = None) -> Health:
    """Return the health of a group, from `explain` and the counts of the group.

    ``lease_over_at`` is when the lease of the member that has been silent longest is over, if known.
    """
    state = explained["state"]
    counts: Mapping[str, int] = explained["tasks"]
    still = {word: counts.get(code, 0) for code, word in STANDING_STILL.items() if counts.get(code, 0)}
    between = {word: counts.get(code, 0) for code, word in BETWEEN.items() if counts.get(code, 0)}
    members_told = tuple(one["member"] for one in explained["members"])
    reasons = tuple(
        names.within(sentence) for sentence in explained["sentences"] if not is_said(sentence, members_told)
    )
    over = _over(explained)
    if state == "not-ready":
        return Health(Level.ATTENTION, "Not ready", explained["detail"] or "It waits for partition counts.", reasons)
    if not members:
        level = Level.ATTENTION if tasks else Level.REST
        return Health(level, "Empty", f"It has no members: nobody runs its {count(tasks, 'task')}.", ())
    if explained["storm_since"]:
        headline = f"Too many members vanished at once, {ago(explained['storm_since'])}: moves are held."
        over = f"when they come back, on Resume, or by itself {soon(explained.get('storm_ends_at'))} if nobody else is lost"
        return Health(Level.TROUBLE, "Storm", headline, reasons, over)
    application = explained.get("application")
    if application and application["refused"] and not application["refused"].get("is_another"):
        return Health(Level.TROUBLE, "Refused", explained["sentences"][0], reasons[1:])
    if still:
        return Health(Level.TROUBLE, "Trouble", _not_running(still, tasks), reasons, _mended(counts) or over)
    if between.get("restoring"):
        return Health(
            Level.ATTENTION, "Restoring", _not_running({"restoring": between["restoring"]}, tasks), reasons, over
        )
    silent = [one for one in explained["members"] if one["what"] in {"suspected", "drain-blocked", "distrusted"}]
    if silent:
        return _silent(silent, explained, names, (tasks, reasons, over, lease_over_at))
    if explained["pause"]:
        headline = f"{_paused(explained['pause'])} {_meanwhile(tasks, between)}"
        return Health(Level.ATTENTION, "Paused", headline, reasons, _pause_over(explained["pause"]))
    if explained["at_rest"]:
        headline = explained["sentences"][0] if application else _all_run(tasks)
        return Health(Level.REST, "At rest", headline, () if len(reasons) < 2 else reasons[1:])
    return Health(Level.MOVING, "Moving", _moving(explained, between), reasons, over)


def _mended(counts: Mapping[str, int]) -> str:
    """Return what ends problems that do not end by themselves; empty if they may end by themselves."""
    if counts.get("failed") or counts.get("lost"):
        return "when it is mended: look at the workers' logs"
    return "on Release, once it is mended" if counts.get("parked") else ""


def _silent(
    silent: list[Json], explained: Json, names: Names, around: tuple[int, tuple[str, ...], str, str | None]
) -> Health:
    tasks, reasons, over, lease_over_at = around
    first = silent[0]
    more = f" (and {len(silent) - 1} more)" if len(silent) > 1 else ""
    between = {word: explained["tasks"][code] for code, word in BETWEEN.items() if explained["tasks"].get(code)}
    if first["what"] == "suspected":
        words, over = "has fallen silent", "when it speaks again, or its lease is over"
        over += f", {ago(lease_over_at)}" if lease_over_at else ""
    elif first["what"] == "distrusted":
        words, over = (
            "is given nothing new, for what failed there runs elsewhere",
            f"{soon(first['until'])}, or on Trust again",
        )
    else:
        words = "cannot hand everything over"
    headline = f"Member {names(first['member'])} {words}{more}. {_meanwhile(tasks, between)}"
    return Health(Level.ATTENTION, "Attention", headline, reasons, over)


def _meanwhile(tasks: int, between: Mapping[str, int]) -> str:
    """Return whether work goes on, which matters most during a problem."""
    if between:
        return f"{', '.join(f'{amount} {word}' for word, amount in between.items())}; the others run."
    return f"All {count(tasks, 'task')} run." if tasks != 1 else "Its task runs."


def is_said(sentence: str, members: tuple[str, ...] = ()) -> bool:
    """Whether the headline, or the text beside it, already says what a sentence says."""
    if sentence.endswith("still to move.") or sentence.startswith("Whatever members report"):
        return True
    return bool(members) and sentence.startswith(members)


def lease_over(members: Sequence[Json], config: Json) -> str | None:
    """Return when the lease of the suspected member that has been silent longest is over, if known."""
    heard = sorted(one["last_heard_at"] for one in members if one["suspected"] and one["last_heard_at"])
    at = instant(heard[0]) if heard else None
    if at is None:
        return None
    return (at + timedelta(milliseconds=config["session_timeout_ms"])).isoformat()


def health_of_line(group: Json) -> Health:
    """Return the health of a group from its entry in the list alone, which has no single tasks."""
    if not group["members"]:
        return Health(Level.ATTENTION if group["tasks"] else Level.REST, "Empty", "It has no members.")
    application = group.get("application")
    if application and application["refused"] and not application["refused"].get("is_another"):
        return Health(Level.TROUBLE, "Refused", f"Rebalances are refused: {application['refused']['why']}.")
    match group["state"]:
        case "not-ready":
            return Health(Level.ATTENTION, "Not ready", "It waits for partition counts.")
        case "paused":
            return Health(Level.ATTENTION, "Paused", "An operator holds moves.")
        case "at-rest":
            heard = f" {_last_heard(application)}" if application else ""
            return Health(Level.REST, "At rest", _all_run(group["tasks"]) + heard)
        case _:
            moves = count(group["moves_pending"], "task")
            return Health(Level.MOVING, "Moving", f"{moves} still to move, {group['warmups']} warming up.")


def group_line(group: Json, explained: Json | None, names: Names) -> GroupLine:
    """Return the line of a group in the list, with its explanation if there is one."""
    found = health_of_line(group)
    if explained is not None:
        found = health(explained, names, members=group["members"], tasks=group["tasks"])
    return GroupLine(
        group["group"],
        found,
        group["members"],
        group["tasks"],
        group["warmups"],
        group["moves_pending"],
        group["generation"],
    )


def stuck_tasks(explained: Json, names: Names) -> list[Stuck]:
    """Return the tasks that are not processed, among the first that the explanation lists, the worst first."""
    words = STANDING_STILL | {"restoring": BETWEEN["restoring"]}
    order = list(words)
    found = [one for one in explained["waiting"] if one["state"] in words]
    return [
        Stuck(one["task"], words[one["state"]], tuple(names.within(wait_words(wait)) for wait in one["waits_for"]))
        for one in sorted(found, key=lambda one: order.index(one["state"]))
    ]


def wait_words(wait: Json) -> str:
    """Return what a task waits for: which member, what, and for about how long."""
    who = f"{wait['member']}: " if wait["member"] else ""
    soon = f", about {span_whole(wait['eta_ms'])}" if wait["eta_ms"] else ""
    return f"{who}{wait['detail'] or wait['what']}{soon}"


def worst_first(lines: list[GroupLine]) -> list[GroupLine]:
    """Return the lines, groups that need attention first."""
    return sorted(lines, key=lambda line: (ORDER[line.health.level], line.group))


def _last_heard(application: Json) -> str:
    """Return as of when what is known of a Kafka Streams application was so."""
    heard_at = application["last_heard_at"]
    return f"Its application was last heard {ago(heard_at)}." if heard_at else "Its application was not heard lately."


def _all_run(tasks: int) -> str:
    return f"All {count(tasks, 'task')} run where they belong." if tasks != 1 else "Its task runs where it belongs."


def _not_running(states: Mapping[str, int], tasks: int) -> str:
    total = sum(states.values())
    parts = ", ".join(f"{amount} {word}" for word, amount in states.items())
    return f"{total} of {count(tasks, 'task')} {'is' if total == 1 else 'are'} not processed: {parts}."


def _moving(explained: Json, between: Mapping[str, int]) -> str:
    warming = explained["tasks"].get("warming", 0)
    moves = explained["moves_pending"]
    parts = [f"{count(moves, 'task')} still to move"] if moves else []
    parts += [f"{warming} warming up"] if warming else []
    parts += [f"{amount} {word}" for word, amount in between.items()]
    if not parts:
        return "Every task runs; copies are still catching up."
    return f"{', '.join(parts)}; the old owners go on until then." if warming else f"{', '.join(parts)}."


def _paused(pause: Json) -> str:
    what = "all moves, recovery too" if pause["scope"] == "all" else "moves made for balance"
    why = f": {pause['reason']}" if pause["reason"] else ""
    return f"An operator holds {what}, since {ago(pause['since'])}{why}."


def _pause_over(pause: Json) -> str:
    return ago(pause["expires_at"]) if pause["expires_at"] else "on Resume"


def _over(explained: Json) -> str:
    """Return when what is under way should be over, if known."""
    held = sum(explained["held_back_by_reason"].values())
    after = f", then {count(held, 'move')} that wait{'s' if held == 1 else ''} now" if held else ""
    if explained["eta_ms"] is not None:
        return f"in about {span_whole(explained['eta_ms'])}{after}"
    ends = sorted((one["until"], one["member"]) for one in explained["members"] if one["until"])
    if ends:
        return f"{ago(ends[0][0])} at the latest"
    return "not known yet: no rate has been seen" if explained["budgets"]["warmups"]["used"] else ""
