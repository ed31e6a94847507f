"""Is it healthy; if not, why; what moves; when is it over: a group in one glance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from batonpass.dashboard.words import Names, ago, count, span_whole

Json = Mapping[str, Any]

STANDING_STILL: Final = {
    "failed": "failed",
    "lost": "lost its state",
    "parked": "parked after failures",
    "waiting": "without an owner",
}
"""States of a task that nobody processes and that is not about to be."""

BETWEEN: Final = {"restoring": "restoring", "starting": "starting", "handing-over": "handing over"}
"""States of a task that is not processed for the moment."""


class Level(StrEnum):
    """How a group is, from the best to the worst: the order in which a list of them is read is the other way round."""

    REST = "rest"
    MOVING = "moving"
    ATTENTION = "attention"
    TROUBLE = "trouble"


ORDER: Final = {Level.TROUBLE: 0, Level.ATTENTION: 1, Level.MOVING: 2, Level.REST: 3}


@dataclass(frozen=True, slots=True)
class Health:
    """A group in one glance. ``reasons`` say more, the most important first; ``over`` is when it should be over."""

    level: Level
    title: str
    headline: str
    reasons: tuple[str, ...] = ()
    over: str = ""


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


def health(explained: Json, names: Names, *, members: int, tasks: int) -> Health:
    """Return how a group is, from `explain` and the counts of the group."""
    state = explained["state"]
    counts: Mapping[str, int] = explained["tasks"]
    still = {word: counts.get(code, 0) for code, word in STANDING_STILL.items() if counts.get(code, 0)}
    between = {word: counts.get(code, 0) for code, word in BETWEEN.items() if counts.get(code, 0)}
    reasons = tuple(names.within(sentence) for sentence in explained["sentences"])
    over = _over(explained)
    if state == "not-ready":
        return Health(Level.ATTENTION, "Not ready", explained["detail"] or "It waits for partition counts.", reasons)
    if not members:
        level = Level.ATTENTION if tasks else Level.REST
        return Health(level, "Empty", f"It has no members: nobody runs its {count(tasks, 'task')}.", ())
    if explained["storm_since"]:
        headline = f"Too many members vanished at once, {ago(explained['storm_since'])}: moves are held."
        return Health(Level.TROUBLE, "Storm", headline, reasons, "when they come back, or on Resume")
    if still:
        return Health(Level.TROUBLE, "Trouble", _not_running(still, tasks), reasons, over)
    if between.get("restoring"):
        return Health(
            Level.ATTENTION, "Restoring", _not_running({"restoring": between["restoring"]}, tasks), reasons, over
        )
    silent = [one for one in explained["members"] if one["what"] in {"suspected", "drain-blocked"}]
    if silent:
        first = silent[0]
        words = "has fallen silent" if first["what"] == "suspected" else "cannot hand everything over"
        more = f" (and {len(silent) - 1} more)" if len(silent) > 1 else ""
        return Health(Level.ATTENTION, "Attention", f"Member {names(first['member'])} {words}{more}.", reasons, over)
    if explained["pause"]:
        return Health(Level.ATTENTION, "Paused", _paused(explained["pause"]), reasons, _pause_over(explained["pause"]))
    if explained["at_rest"]:
        return Health(Level.REST, "At rest", _all_run(tasks), () if len(reasons) < 2 else reasons[1:])
    return Health(Level.MOVING, "Moving", _moving(explained, between), reasons, over)


def health_of_line(group: Json) -> Health:
    """Return how a group is from its entry in the list alone, which does not tell of single tasks."""
    if not group["members"]:
        return Health(Level.ATTENTION if group["tasks"] else Level.REST, "Empty", "It has no members.")
    match group["state"]:
        case "not-ready":
            return Health(Level.ATTENTION, "Not ready", "It waits for partition counts.")
        case "paused":
            return Health(Level.ATTENTION, "Paused", "An operator holds moves.")
        case "at-rest":
            return Health(Level.REST, "At rest", _all_run(group["tasks"]))
        case _:
            moves = count(group["moves_pending"], "task")
            return Health(Level.MOVING, "Moving", f"{moves} still to move, {group['warmups']} warming up.")


def group_line(group: Json, explained: Json | None, names: Names) -> GroupLine:
    """Return the line of a group in the list, with its explanation where there is one."""
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


def worst_first(lines: list[GroupLine]) -> list[GroupLine]:
    """Return the lines, those that need somebody first."""
    return sorted(lines, key=lambda line: (ORDER[line.health.level], line.group))


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
    """Return when what is under way should be over, as far as anybody knows."""
    held = sum(explained["held_back_by_reason"].values())
    after = f", then {count(held, 'move')} that wait{'s' if held == 1 else ''} now" if held else ""
    if explained["eta_ms"] is not None:
        return f"in about {span_whole(explained['eta_ms'])}{after}"
    untils = sorted(one["until"] for one in explained["members"] if one["until"])
    if untils:
        return f"{ago(untils[0])} at the latest for {explained['members'][0]['what'].replace('-', ' ')} members"
    return "not known yet: no rate has been seen" if explained["budgets"]["warmups"]["used"] else ""
