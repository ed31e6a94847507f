"""How long no member ran a task, each time it changed hands."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from batonpass.dashboard.words import CAUSES, gap_of
from batonpass.percentiles import nearest_rank

Json = Mapping[str, Any]

KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "handover": ("ok", "Warm handover"),
    "failover": ("move", "Failover to a warm copy"),
    "cold": ("bad", "Cold handover or start"),
    "recovered": ("warn", "Came back by itself"),
}
"""By the kind of a gap: its tone, and what it is called."""

_KIND_OF: Final = {"handover-done": "handover", "takeover-done": "failover", "task-recovered": "recovered"}
"""What the event is of a gap that is not cold."""


class Gap(NamedTuple):
    """One change of hands. ``tasks`` is how many tasks changed hands at once, with ``gap_ms`` the longest of them.

    ``bound``: "up to " if the last owner fell silent, so that ``gap_ms`` counts since it was last heard; "at least " if
    that is not known; else "".
    """

    event: Json
    kind: str
    tasks: int
    gap_ms: float | None
    bound: str
    cause: str


class Summary(NamedTuple):
    """The gaps of one kind. ``bound``: that of all of them whose length is not exact; "about " if they differ."""

    kind: str
    tasks: int
    median_ms: float | None
    p99_ms: float | None
    longest_ms: float | None
    bound: str


def gaps_of(events: Sequence[Json]) -> list[Gap]:
    """Return the changes of hands among some events, newest first."""
    found = [gap for event in events if (gap := _gap(event)) is not None]
    return sorted(found, key=lambda gap: int(gap.event["position"]), reverse=True)


def _gap(event: Json) -> Gap | None:
    body, kind = event.get("body") or {}, _KIND_OF.get(event["type"])
    if kind is None:
        return None
    if kind != "recovered" and not body.get("warm"):
        kind = "cold"
    cause = str(body.get("cause") or "")
    tasks = body["tasks"] if isinstance(body.get("tasks"), int) else 1
    why = f"its owner {CAUSES[cause]}" if cause in CAUSES else cause.replace("-", " ")
    return Gap(event, kind, tasks, *gap_of(body), why)


def summaries(gaps: Sequence[Gap]) -> list[Summary]:
    """Return, for each kind, how many gaps and how long; if many tasks moved at once, the longest counts for all."""
    found = []
    for kind in KINDS:
        of_kind = [gap for gap in gaps if gap.kind == kind]
        if not of_kind:
            continue
        lengths = sorted(ms for gap in of_kind if gap.gap_ms is not None for ms in [gap.gap_ms] * gap.tasks)
        count, bounds = sum(gap.tasks for gap in of_kind), {gap.bound for gap in of_kind if gap.bound}
        bound = "about " if len(bounds) > 1 else "".join(bounds)
        median_ms, p99_ms = (nearest_rank(lengths, one) if lengths else None for one in (50, 99))
        found.append(Summary(kind, count, median_ms, p99_ms, max(lengths, default=None), bound))
    return found
