"""What if: a hypothetical change, and its results."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from batonpass.dashboard.view_models.grid import natural, targets_by_task
from batonpass.dashboard.words import Names, why

Json = Mapping[str, Any]

NUMBERS: Final = ("max_warmup_replicas", "num_standby_replicas", "acceptable_recovery_lag", "max_warmups_per_member")
"""Settings that can be changed hypothetically here; `batonpass plan --set` takes all others."""


class BeforeAndAfter(NamedTuple):
    """A member's active tasks now, and at the end."""

    member: str
    now: int
    then: int
    is_new: bool
    is_gone: bool


class Move(NamedTuple):
    """A task that would move."""

    task: str
    source: str | None
    to: str | None
    why: str


def wanted(asked: Mapping[str, str], drain: Sequence[str], leave: Sequence[str]) -> dict[str, Any]:
    """Return the request for a plan from the fields of a form; empty if it asks for nothing.

    Raises:
        ValueError: when a field cannot be understood; the text says what to write.
    """
    body: dict[str, Any] = {}
    if asked.get("join"):
        capacity = _number(asked.get("capacity") or "1", "of capacity")
        body["join"] = [{"count": _number(asked["join"], "Members join"), "capacity": capacity}]
    if drain:
        body["drain"] = sorted(set(drain))
    if leave:
        body["leave"] = sorted(set(leave))
    config: dict[str, Any] = {}
    for name in NUMBERS:
        text = asked.get(name, "")
        if text:
            is_share = name == "max_warmup_replicas" and text.endswith("%")
            config[name] = text if is_share else _number(text, name)
    return body | ({"config": config} if config else {})


def _number(text: str, what: str) -> float:
    """Return a number that a form has; what it may be, the coordinator says."""
    try:
        found = float(text)
    except ValueError:
        raise ValueError(f"{what}: write a number, as in 2.") from None
    return int(found) if found.is_integer() else found


def before_and_after(members: Sequence[Json], plan: Json, names: Names) -> list[BeforeAndAfter]:
    """Return every member with its active tasks now and at the end, by name, newcomers last."""
    now = {one["member_id"]: len(one["assignment"]["active"]) for one in members}
    then = {member: len(roles["active"]) for member, roles in plan["target"].items()}
    found = [
        BeforeAndAfter(member, now.get(member, 0), then.get(member, 0), member not in now, member not in then)
        for member in {**now, **then}
    ]
    return sorted(found, key=lambda one: (one.is_new, natural(names(one.member))))


def moves(members: Sequence[Json], plan: Json) -> list[Move]:
    """Return the tasks that would have another owner at the end, in their order."""
    owner = {grant["task"]: one["member_id"] for one in members for grant in one["assignment"]["active"]}
    target = targets_by_task(plan)
    codes = {one["task"]: one["code"] for one in plan["reasons"]}
    held = {one["task"] for one in plan["held_back"]}
    moved = sorted((task for task, to in target.items() if owner.get(task) != to), key=natural)
    return [
        Move(task, owner.get(task), target[task], "waits for a slot" if task in held else why(codes.get(task)))
        for task in moved
    ]
