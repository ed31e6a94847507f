"""Members: all of a group, and one."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rich.filesize import decimal

from batonpass.dashboard.view_models.grid import TONES as WORST_FIRST
from batonpass.dashboard.view_models.grid import Cell, Tile, cells_of, eta_of, member_tone, natural
from batonpass.dashboard.words import Names, count

Json = Mapping[str, Any]


def size(count: int | None) -> str | None:
    return None if count is None else decimal(count)


def _disk(member: Json) -> str | None:
    """Return how much state is on a member's disk, and its limit if the member reported one."""
    used, most = size(member["disk_bytes"]), size(member.get("max_disk_bytes"))
    return used if most is None else f"{used or '?'} of {most}"


Columns = Mapping[str, Callable[[Json], Any]]
"""What a table shows of each member, or of each report, by the column's title."""

COLUMNS: Final[Columns] = {
    "active": lambda member: len(member["assignment"]["active"]),
    "standby": lambda member: len(member["assignment"]["standby"]) or None,
    "warmup": lambda member: len(member["assignment"]["warmup"]) or None,
    "capacity": lambda member: None if member["capacity"] == 1 else member["capacity"],
    "load": lambda member: None if member.get("load") is None else f"{member['load']:.3g}",
    "of standbys": lambda member: None if member.get("standby_load") is None else f"{member['standby_load']:.2g}",
    "disk": _disk,
}
"""What every list has beside who a member is, its state, and when it was heard: `members`, `watch`, and the page."""

REPORTED: Final[Columns] = {
    "behind": lambda said: said.get("lag"),
    "records/s": lambda said: None if said.get("records_per_second") is None else round(said["records_per_second"]),
    "disk": lambda said: size(said.get("disk_bytes")),
}
"""What tables of a member's tasks have of what it last said of each."""


def filled(columns: Columns, members: Sequence[Json]) -> Columns:
    """Return the columns that are not empty for all of these members."""
    return {title: cell for title, cell in columns.items() if any(cell(one) not in (None, "", {}) for one in members)}


class MemberLine(NamedTuple):
    """A member in the list, as it is told. ``load`` is per capacity: measured, or active tasks where it is not."""

    member: Json
    name: str
    tone: str
    words: str
    active: int
    load: float
    tags: str


TONES: Final[Mapping[str, str]] = {
    "bad": "silent, or with a task that failed",
    "warn": "leaving, restoring or distrusted",
    "warm": "warming up",
    "move": "changing hands",
    "ok": "well",
}
"""What the tones of members mean, the worst first."""

SORTS: Final[Mapping[str, Callable[[MemberLine], Any]]] = {
    "state": lambda line: (WORST_FIRST.index(line.tone), natural(line.name)),
    "name": lambda line: natural(line.name),
    "active tasks": lambda line: (-line.active, natural(line.name)),
    "load": lambda line: (-line.load, natural(line.name)),
    "silence": lambda line: (line.member["last_heard_at"] or "", natural(line.name)),
}
"""By what members can be sorted; the first counts unless another is asked for."""


class Held(NamedTuple):
    """A task of a member: its role, its last report, and how long until it is caught up."""

    task: str
    role: str
    cell: Cell
    token: int | None
    said: Json
    eta_ms: float | None


def member_lines(members: Sequence[Json], acceptable_lag: int, names: Names) -> list[MemberLine]:
    """Return a line for each member, members with a problem first."""
    lines, is_measured = [], any(one.get("load") is not None for one in members)
    for one in members:
        active = len(one["assignment"]["active"])
        tags = ", ".join(f"{name}={value}" for name, value in sorted(one["client_tags"].items()))
        tone = member_tone(one, cells_of(one, acceptable_lag, names).values())
        load = one.get("load") or 0.0 if is_measured else active / one["capacity"]
        lines.append(MemberLine(one, names(one["member_id"]), tone, state_words(one), active, load, tags))
    return sorted(lines, key=SORTS["state"])


def member_tiles(lines: Iterable[MemberLine]) -> list[Tile]:
    """Return a tile for each member of a list: how many active tasks it has, and its load where that is measured."""
    tiles = []
    for one in lines:
        measured = one.member.get("load") is not None
        numbers = f"{one.active} · {one.load:.2g}" if measured else str(one.active)
        said = f"{count(one.active, 'active task')}{f', load {one.load:.2g} per capacity' if measured else ''}"
        tiles.append(Tile(one.member["member_id"], one.name, one.tone, numbers, f"{one.name}: {said}, {one.words}"))
    return tiles


def state_words(one: Json) -> str:
    """Return the state of a member: what is special about it, or else what it does."""
    words = ["fallen silent"] if one["silent"] else []
    words += ["given nothing new"] if one.get("distrusted_until") else []
    words += ["restarting"] if one["state"] == "away" else []
    words += ["draining"] if one["draining"] else []
    words += ["kept out"] if one.get("kept_out") else []
    words += [f"giving up {len(one['revoking'])}"] if one["revoking"] else []
    if words:
        return ", ".join(words)
    if one["last_heard_at"] is None:
        return "not heard since the coordinator started"
    if one["state"] == "unreleased":
        return "waits for tasks that others give up"
    warm = len(one["assignment"]["warmup"])
    return f"warms {count(warm, 'task')} up" if warm else str(one["state"])


def matching(lines: Iterable[MemberLine], text: str) -> list[MemberLine]:
    """Return the members whose name, id or tags contain a text."""
    wanted = text.casefold()
    return [one for one in lines if wanted in f"{one.name} {one.member['member_id']} {one.tags}".casefold()]


def held_by(member: Json, acceptable_lag: int, names: Names) -> list[Held]:
    """Return everything that a member has or must give up: actives first, and within a role the worst first."""
    cells = cells_of(member, acceptable_lag, names)
    tokens = {grant["task"]: grant["fencing_token"] for grant in member["assignment"]["active"]}
    roles = {task: role for role in ("standby", "warmup") for task in member["assignment"][role]}
    order = {"active": 0, "gives up": 1, "warmup": 2, "standby": 3}
    found = []
    for task, cell in cells.items():
        role = "active" if task in tokens else roles.get(task, "gives up")
        said = member["reports"].get(task, {})
        eta_ms = None if cell.letter == "A" else eta_of(said, acceptable_lag)
        found.append(Held(task, role, cell, tokens.get(task), said, eta_ms))
    worth = {tone: place for place, tone in enumerate((*WORST_FIRST, "behind", "copy"))}
    return sorted(found, key=lambda one: (order[one.role], worth[one.cell.tone], natural(one.task)))
