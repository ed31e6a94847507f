"""Results of the nightly audits."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from batonpass.audit_words import MEASURES, measured, times_of
from batonpass.laws import TITLES
from batonpass.zones import Zone

Json = Mapping[str, Any]

TONE: Final[Mapping[str, str]] = {"passed": "ok", "failed": "bad", "broken": "bad", "running": "move"}
STATE: Final[Mapping[str, str]] = {
    "passed": "every law held",
    "failed": "a law was broken",
    "broken": "the audit did not end",
    "running": "under way",
}


def law_words(law: str) -> str:
    """Return the statement of a law, or of a finding that breaks none; for an unknown one its name."""
    return TITLES.get(law) or law.replace("-", " ")


def when_of(finding: Json, zone: Zone) -> str:
    """Return when a finding was so, as one time or two; empty if unknown."""
    sequences, at = (finding["evidence"].get(name) or () for name in ("sequences", "at"))
    times = [zone.clock(one) for one in sorted(times_of(finding["severity"], sequences, at))]
    if not times:
        return ""
    words = times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
    return f"{words} {zone.name}"


def measures_of(measures: Mapping[str, float | None]) -> list[tuple[str, str]]:
    """Return the measures of a group and day, labelled, the most informative first; unknown ones are left out."""
    return [
        (MEASURES.get(name, name.replace("_", " ")), measured(name, measures[name]))
        for name in dict.fromkeys((*MEASURES, *sorted(measures)))
        if measures.get(name) is not None
    ]


def findings_of(findings: Sequence[Json], group: str | None) -> list[Json]:
    """Return the findings of a group, or of all, fatal ones first."""
    chosen = [one for one in findings if group is None or one["group"] == group]
    return sorted(chosen, key=lambda one: (one["severity"] != "fatal", one["number"]))


def is_address(report: str | None) -> bool:
    """Whether a browser can open the report; if not, it is at the place that the audit was given, on some machine."""
    return bool(report) and str(report).startswith(("https://", "http://"))
