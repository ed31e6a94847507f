"""Findings of all that looks for them, put together and cut to what a person reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from batonpass.audit.checks import END_MISSING
from batonpass.audit.findings import FINDINGS_PER_LAW, Finding, Severity


def finding_of(row: Mapping[str, Any]) -> Finding:
    """Return a finding from its columns (``part.FOUND``)."""
    return Finding(
        group=row["group_id"],
        law=row["law"],
        severity=Severity(row["severity"]),
        task=row["task"],
        member=row["member"],
        detail=row["detail"],
        sequences=tuple(row["sequences"]),
        at=tuple(row["at"]),
    )


STUCK: Final = frozenset({"stuck-task", "stuck-warmup"})
"""What is told of whatever did not come to its end."""


def without_consequences(
    kept: Iterable[tuple[Finding, int]], others: Iterable[Finding]
) -> tuple[list[tuple[Finding, int]], list[Finding]]:
    """Return findings without what follows from that the end of a group's log is missing, which is told once.

    ``kept`` are as ``cut`` takes them.
    """
    found = list(others)
    ended: dict[str, Finding] = {}
    for one in found:
        if one.detail.startswith(END_MISSING):
            ended.setdefault(one.group, one)
    return (
        [(one, count) for one, count in kept if one.group not in ended or one.law not in STUCK],
        [one for one in found if not one.detail.startswith(END_MISSING) or one is ended[one.group]],
    )


def cut(
    kept: Iterable[tuple[Finding, int]], others: Iterable[Finding], limit: int = FINDINGS_PER_LAW
) -> tuple[tuple[Finding, ...], int]:
    """Return the first findings of each group and law, in the order of the log, and how many were left out.

    ``kept`` are the first ones of those that parts of the day found, each with how many its part found of its group and
    law; ``others`` are whole.
    """
    of_law: defaultdict[tuple[str, str], list[Finding]] = defaultdict(list)
    counts: defaultdict[tuple[str, str], int] = defaultdict(int)
    for one, count in kept:
        of_law[one.group, one.law].append(one)
        counts[one.group, one.law] = count
    for one in others:
        of_law[one.group, one.law].append(one)
        counts[one.group, one.law] += 1
    whole = {key: sorted(found, key=_place)[:limit] for key, found in sorted(of_law.items())}
    return tuple(one for found in whole.values() for one in found), sum(
        counts[key] - len(found) for key, found in whole.items()
    )


def _place(one: Finding) -> tuple[object, ...]:
    return (one.severity.value, one.at[-1] if one.at else -1, one.task or "", one.member or "", one.detail)
