"""What commands and pages make of the answers of the API: how a group is, which is worst, what people call a member."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

STANDING_STILL: Final[Mapping[str, str]] = {
    "failed": "failed",
    "lost": "lost its state",
    "parked": "parked after failures",
    "waiting": "without an owner",
    "restoring": "restoring",
}
"""States of a task that is not processed, in words, the worst first."""

LEVELS: Final = ("trouble", "attention", "moving", "at-rest", "not-deployed")
"""How groups are, the worst first, as the API says it."""

TOLD_MAX: Final = 12
"""The most groups that are listed with how each is, also if it is at rest."""


def worst_first(groups: Iterable[Mapping[str, Any]], level: str = "", name: str = "") -> list[dict[str, Any]]:
    """Return the groups of a list, those of one level, if it is given, and whose name has ``name``.

    The worst level is first; in it, most tasks that are not processed, then what began first.
    """
    found = [dict(one) | {"health": health_of(one)} for one in groups if name in one["group"]]
    found = [one for one in found if level in ("", one["health"]["level"])]
    return sorted(found, key=_badness)


def only_named(groups: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """Return the levels of which a list of groups has only the names: so that many calm ones hide no others."""
    return LEVELS[-2:] if sum(one["health"]["level"] != LEVELS[-1] for one in groups) > TOLD_MAX else LEVELS[-1:]


def _badness(group: Mapping[str, Any]) -> tuple[int, int, bool, str, str]:
    health = group["health"]
    still = sum(amount for state, amount in health["tasks"].items() if state in STANDING_STILL)
    since = health["since"] or ""
    return LEVELS.index(health["level"]), -still, not since, since, group["group"]


def health_of(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how a group is. A level that is not known here is attention; an older coordinator tells one finding."""
    found: dict[str, Any] = {"others": [], "more_remedies": 0, "at": None} | body["health"]
    found["others"] = [one | {"at": found["at"], "level": _level(one)} for one in found["others"]]
    return found | {"level": _level(found)}


def _level(health: Mapping[str, Any]) -> str:
    return health["level"] if health["level"] in LEVELS else "attention"


def also(health: Mapping[str, Any]) -> str:
    """Return what else is wrong where there is room for a sentence each: what the cause does not say already."""
    cause = health["cause"]
    said = [one["sentence"] for one in health["others"] if not (cause and cause["detail"] in one["sentence"])]
    return " ".join(["Also:", *said]) if said else ""


def further(explained: Mapping[str, Any]) -> list[str]:
    """Return the sentences of an explanation that its health does not say."""
    said = [explained["sentences"][0], *(one["sentence"] for one in health_of(explained)["others"])]
    return [one for one in explained["sentences"] if one not in said]


def is_other_than(incident: Mapping[str, Any], cause: Mapping[str, Any] | None) -> bool:
    """Whether the last incident of a group is not what causes its present trouble."""
    same = ("task", "member", "at")
    return cause is None or any(incident[name] != cause[name] for name in same)


def is_uuid(text: str) -> bool:
    """Whether a text has the form of a UUID, which people do not read."""
    return len(text) == 36 and [len(part) for part in text.split("-")] == [8, 4, 4, 4, 12]


def readable_name(instance_id: str | None) -> str | None:
    """Return an instance id if people can read it, else None.

    The processes of a Kafka Streams application have UUIDs for instance ids, and names for their members.
    """
    return instance_id if instance_id and not is_uuid(instance_id) else None


def name_of(member: Mapping[str, Any]) -> str:
    """Return what people call a member: its instance id if people can read it, else its own id."""
    return readable_name(member.get("instance_id")) or str(member["member_id"])
