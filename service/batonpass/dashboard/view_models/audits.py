"""Results of the nightly audits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from batonpass.dashboard.words import duration, number
from batonpass.laws import LAWS, NOTICES
from batonpass.zones import Zone

Json = Mapping[str, Any]

TONE: Final[Mapping[str, str]] = {"passed": "ok", "failed": "bad", "broken": "bad", "running": "move"}
STATE: Final[Mapping[str, str]] = {
    "passed": "every law held",
    "failed": "a law was broken",
    "broken": "the audit did not end",
    "running": "under way",
}
MEASURES: Final[Mapping[str, tuple[str, str]]] = {
    "availability": ("available", "share"),
    "downtime_ms": ("not processed, all tasks together", "ms"),
    "longest_unowned_ms": ("longest without an owner", "ms"),
    "handovers": ("warm handovers", "count"),
    "failovers": ("failovers", "count"),
    "cold_starts": ("cold starts", "count"),
    "generations": ("generations", "count"),
    "moves": ("moves", "count"),
    "excess_moves": ("moves beyond the least possible", "count"),
    "warmups": ("warmups", "count"),
    "wasted_warmups": ("warmups for nothing", "count"),
    "probes": ("probes", "count"),
    "futile_probes": ("probes that changed nothing", "count"),
    "flapping_members": ("members that came and went", "count"),
    "balance_mean": ("imbalance on average", "count"),
    "balance_worst": ("worst imbalance", "count"),
    "members_max": ("most members", "count"),
    "tasks_max": ("most tasks", "count"),
    "records": ("records read", "count"),
}


def law_words(law: str) -> str:
    """Return the statement of a law, or of a finding that breaks none; for an unknown one its name."""
    return LAWS.get(law) or NOTICES.get(law) or law.replace("-", " ")


def when_of(evidence: Json, zone: Zone) -> str:
    """Return when the records of a finding were written, as one time or two; empty if unknown."""
    times = [zone.clock(at) for at in sorted(evidence.get("at") or ())]
    if not times:
        return ""
    words = times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
    return f"{words} {zone.name}"


def measures_of(measures: Mapping[str, float | None]) -> list[tuple[str, str]]:
    """Return the measures of a group and day, labelled, the most informative first; unknown ones are left out."""
    found = [
        (label, _shown(measures[name], form))
        for name, (label, form) in MEASURES.items()
        if measures.get(name) is not None
    ]
    others = [
        name for name in measures if name not in MEASURES and measures[name] is not None and name != "lower_bound"
    ]
    return found + [(name.replace("_", " "), number(measures[name])) for name in sorted(others)]


def _shown(value: float | None, form: str) -> str:
    match form:
        case "share" if value is not None:
            return f"{value * 100:.3f} %"
        case "ms":
            return duration(value)
        case _:
            return number(value)


def findings_of(findings: Sequence[Json], group: str | None) -> list[Json]:
    """Return the findings of a group, or of all, fatal ones first."""
    chosen = [one for one in findings if group is None or one["group"] == group]
    return sorted(chosen, key=lambda one: (one["severity"] != "fatal", one["number"]))


def is_address(report: str | None) -> bool:
    """Whether a browser can open the report; if not, it is at the place that the audit was given, on some machine."""
    return bool(report) and str(report).startswith(("https://", "http://"))


def settings_differ(recommendation: Json) -> list[tuple[str, Any, Any]]:
    """Return the settings that an audit would change: name, present, recommended."""
    present = recommendation["present"].get("settings", {})
    better = recommendation["recommended"].get("settings", {})
    return [
        (name, present[name], better[name])
        for name in sorted(better)
        if better[name] != present.get(name, better[name])
    ]
