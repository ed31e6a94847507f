"""Tasks by members, coloured by role and lag: as a matrix if it is readable, else as tiles to open."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from batonpass.dashboard.words import DASH, Names, count, short

Json = Mapping[str, Any]

MATRIX_MEMBERS: Final = 24
MATRIX_TASKS: Final = 240
"""The most columns (members) and rows (tasks) of a matrix."""

LISTED_MAX: Final = 100
"""How many tasks, if there are too many for a matrix, are listed one by one before they are gathered in tiles."""

BLOCK: Final = 100
"""How many tasks of a subtopology make one tile."""

TONES: Final = ("bad", "warn", "warm", "move", "ok", "none")
"""From the worst to the best: a tile for many cells shows the worst tone among them."""

LEGEND: Final = (
    ("A", "ok", "active, running"),
    ("A?", "warn", "ran when it was last heard"),
    ("R", "warn", "active, restoring"),
    ("!", "bad", "active, failed"),
    ("…", "move", "granted, or giving up"),
    ("S", "copy", "standby, caught up"),
    ("S", "behind", "standby, behind or not known"),
    ("W", "warm", "warmup, with its lag"),
)


class Cell(NamedTuple):
    """What a member has of a task. ``note`` is its lag in a few letters; ``words`` are those of the title."""

    letter: str
    tone: str
    note: str
    words: str
    task: str
    member: str
    name: str
    lag: int | None = None
    detail: str = ""

    @property
    def title(self) -> str:
        """Return everything in words."""
        lag = "lag not known" if self.lag is None else f"{count(self.lag, 'record')} behind"
        return self.words.format(name=self.name, task=self.task, lag=lag, detail=self.detail)


Copies = Mapping[str, Sequence[Cell]]
"""What members have, by task."""


class Row(NamedTuple):
    """A task, what members have of it, the active first, and where it belongs, if that is known."""

    task: str
    cells: Mapping[str, Cell]
    tone: str
    target: str | None
    owner: str | None


@dataclass(frozen=True, slots=True)
class Tile:
    """Many cells as one: a member with its tasks, or a block of tasks with the members that have them."""

    key: str
    label: str
    tone: str
    numbers: str
    title: str


def tone_of(task: str, copies: Copies) -> str:
    """Return the tone of a task: that of its active, or bad if no member has it."""
    cells = copies.get(task, ())
    active = [one for one in cells if one.letter in "AR!…"]
    if not active:
        return "bad"
    worst = worst_tone(one.tone for one in active)
    return "warm" if worst == "ok" and any(one.letter == "W" for one in cells) else worst


def tones_of(tasks: Iterable[str], copies: Copies) -> dict[str, str]:
    return {task: tone_of(task, copies) for task in tasks}


def worst_tone(tones: Iterable[str]) -> str:
    return min(tones, key=TONES.index, default="none")


def tasks_of(topology: Json) -> list[str]:
    """Return the ids of all tasks of a topology, in their order."""
    return [f"{part['id']}_{number}" for part in topology["subtopologies"] for number in range(part["partitions"] or 0)]


def copies_of(members: Sequence[Json], acceptable_lag: int, names: Names) -> Copies:
    """Return what every member has, by task."""
    found: dict[str, list[Cell]] = {}
    for member in members:
        for task, cell in cells_of(member, acceptable_lag, names).items():
            found.setdefault(task, []).append(cell)
    return found


def cells_of(member: Json, acceptable_lag: int, names: Names) -> dict[str, Cell]:
    """Return what one member has, by task: what it may hold with its last report, and what it has to give up."""
    held, said = member["assignment"], member["reports"]
    whose = (member["member_id"], names(member["member_id"]))
    found: dict[str, Cell] = {}
    for grant in held["active"]:
        found[grant["task"]] = _active(grant["task"], said.get(grant["task"]), whose, is_silent=member["silent"])
    for role in ("standby", "warmup"):
        for task in held[role]:
            found[task] = _copy(task, role, said.get(task), acceptable_lag, whose)
    for task in member["revoking"]:
        if task not in found or found[task].letter == "S":
            found[task] = Cell("…", "move", "", "{name} was told to give {task} up", task, *whose)
    return found


def _active(task: str, said: Json | None, whose: tuple[str, str], *, is_silent: bool) -> Cell:
    said = said if said is not None and said["role"] == "active" else {}
    lag = said.get("lag")
    match said.get("state"):
        case "running" if is_silent:
            return Cell("A", "warn", "?", "{name} ran {task} when it was last heard", task, *whose)
        case "running":
            return Cell("A", "ok", "", "{name} runs {task}", task, *whose)
        case "restoring":
            note = "" if lag is None else short(lag)
            return Cell("R", "warn", note, "{name} restores {task}, {lag}", task, *whose, lag)
        case "failed":
            detail = f": {said['detail']}" if said.get("detail") else ""
            return Cell("!", "bad", "", "{task} failed on {name}{detail}", task, *whose, detail=detail)
        case _:
            return Cell("…", "move", "", "{name} was granted {task} and has not reported it yet", task, *whose)


def _copy(task: str, role: str, said: Json | None, acceptable_lag: int, whose: tuple[str, str]) -> Cell:
    lag = said.get("lag") if said is not None and said["role"] == role else None
    if role == "standby" and lag is not None and lag <= acceptable_lag:
        return Cell("S", "copy", "", "{name} stands by for {task}, caught up", task, *whose, lag)
    note = "?" if lag is None else short(lag)
    if role == "warmup":
        return Cell("W", "warm", note, "{name} warms {task} up, {lag}", task, *whose, lag)
    return Cell("S", "behind", note, "{name} stands by for {task}, {lag}", task, *whose, lag)


def eta_of(said: Json, acceptable_lag: int) -> float | None:
    """Return how long, in ms, until a copy that was reported so is caught up; None if that is unknown."""
    lag, rate = said.get("lag"), said.get("records_per_second")
    left = None if lag is None else max(lag - acceptable_lag, 0)
    return 0.0 if left == 0 else left / rate * 1_000 if left is not None and rate else None


def fits_matrix(members: int, tasks: int) -> bool:
    """Whether a matrix of this many columns and rows is readable."""
    return members <= MATRIX_MEMBERS and tasks <= MATRIX_TASKS


def rows_of(tasks: Sequence[str], copies: Copies, target: Mapping[str, str]) -> list[Row]:
    """Return tasks with what members have of them; ``target`` is the target owner by task, if it is known."""
    order = {letter: place for place, letter in enumerate("AR!…WS")}
    found = []
    for task in tasks:
        cells = sorted(copies.get(task, ()), key=lambda cell: (order[cell.letter], cell.member))
        owner = next((cell.member for cell in cells if cell.letter in "AR!"), None)
        by_member = {cell.member: cell for cell in cells}
        found.append(Row(task, by_member, tone_of(task, copies), target.get(task), owner))
    return found


SORTS: Final[Mapping[str, Callable[[str, Copies], Any]]] = {
    # As the topology has them.
    "name": lambda _, __: 0,
    "state": lambda task, copies: (TONES.index(tone_of(task, copies)), natural(task)),
    "copies": lambda task, copies: (len(copies.get(task, ())), natural(task)),
}
"""By what tasks can be sorted; the first counts unless another is asked for."""


def targets_by_task(assignment: Json) -> dict[str, str]:
    return {task: member for member, roles in assignment["target"].items() for task in roles["active"]}


def member_tone(member: Json, cells: Iterable[Cell]) -> str:
    """Return the tone of a member: of its own state, or the worst of what it has."""
    if member["silent"]:
        return "bad"
    is_leaving = member["state"] == "away" or member["draining"]
    own = "warn" if is_leaving or member.get("distrusted_until") else "move" if member["revoking"] else "ok"
    shown = ("warm" if one.letter == "W" else one.tone for one in cells if one.letter != "S")
    return worst_tone([own, *shown])


def task_tiles(topology: Json, tones: Mapping[str, str]) -> dict[str, list[Tile]]:
    """Return, by subtopology, a tile for each block of tasks; one with a task that no member runs is bad."""
    found: dict[str, list[Tile]] = {}
    for part in topology["subtopologies"]:
        tiles = []
        for begin in range(0, part["partitions"] or 0, BLOCK):
            end = min(begin + BLOCK, part["partitions"]) - 1
            amounts = Counter(tones[f"{part['id']}_{number}"] for number in range(begin, end + 1))
            tone = worst_tone(amounts)
            other = sum(amount for name, amount in amounts.items() if name != "ok")
            label = f"{begin}{DASH}{end}" if end > begin else f"{begin}"
            words = ", ".join(f"{amounts[name]} {TONE_WORDS[name]}" for name in TONES if amounts[name])
            tiles.append(Tile(str(begin), label, tone, str(other or ""), f"{part['id']} {label}: {words}"))
        found[part["id"]] = tiles
    return found


TONE_WORDS: Final[Mapping[str, str]] = {
    "bad": "not processed",
    "warn": "restoring, or of silent members",
    "warm": "warming up elsewhere",
    "move": "changing hands",
    "ok": "running",
    "none": "without tasks",
}


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return a key by which `demo-2` comes before `demo-10`."""
    parts = re.split(r"(\d+)", text)
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)
