"""What an audit came to in a few characters a measure, so that two of them can be held together."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from batonpass.audit.findings import Finding, GroupDay


def digest(groups: Iterable[GroupDay], findings: Iterable[Finding]) -> dict[str, Any]:
    """Return the digest of each measure over all groups, and of the findings; how many were found of each law."""
    values: defaultdict[str, list[str]] = defaultdict(list)
    for day in groups:
        for name, value in day.measures.items():
            values[name].append(f"{day.group}={_rounded(value)}")
        for cause, of in day.downtime_by_cause.items():
            for name, value in of.items():
                values[f"downtime_by_cause.{name}"].append(f"{day.group} {cause}={_rounded(value)}")
    kept = list(findings)
    return {
        "measures": {name: _digest(lines) for name, lines in sorted(values.items())},
        "findings": _digest(repr(one) for one in kept),
        "found": dict(Counter(one.law for one in kept)),
    }


def _digest(lines: Iterable[str]) -> str:
    return sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def _rounded(value: float | None) -> str:
    """Return a whole number as it is, any other one to six significant digits."""
    if value is None:
        return "none"
    return str(int(value)) if float(value).is_integer() else f"{value:.6g}"
