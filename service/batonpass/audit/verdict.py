"""The verdict of an audit in words, for its report, its row in the database, and the end of its log."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from batonpass.audit.findings import AuditResult, Severity
from batonpass.core.laws import LAWS


def named(result: AuditResult) -> str:
    """Return the day of an audit: "2026-11-20", of one under way "2026-11-20 so far, until 18:07 UTC"."""
    if result.so_far_ms is None:
        return result.day.isoformat()
    return f"{result.day} so far, until {datetime.fromtimestamp(result.so_far_ms / 1_000, UTC):%H:%M} UTC"


def headline(result: AuditResult) -> str:
    """Return the verdict in a sentence: whether every law held, and if not, which ones were broken, and where."""
    so_far = "" if result.so_far_ms is None else " so far"
    broken = Counter(one.law for one in result.findings if one.severity is Severity.FATAL)
    if not broken:
        return f"Every law held{so_far}." if result.groups else f"Nothing happened{so_far or ' that day'}."
    where = {one.group for one in result.findings if one.severity is Severity.FATAL}
    laws = in_order(broken)
    names = laws[0] if len(laws) == 1 else f"{', '.join(laws[:-1])} and {laws[-1]}"
    verb = "was" if len(laws) == 1 else "were"
    return f"{names} {verb} broken{so_far}, in {amount(len(where), 'group')}."


def summary(result: AuditResult) -> str:
    """Return the verdict with its figures, as one line of plain text."""
    counts = [amount(len(result.groups), "group"), amount(result.records, "record")]
    counts += [amount(result.fatal, "fatal finding"), amount(result.notices, "notice")]
    parts = [headline(result), ", ".join(counts).capitalize() + "."]
    if result.findings_left_out:
        parts.append(f"{amount(result.findings_left_out, 'more finding')} counted but not kept.")
    if result.decisions_replayed:
        replayed, differing = amount(result.decisions_replayed, "decision"), f"{result.decisions_differing:,}"
        parts.append(f"{replayed} made again, {differing} of them with another outcome.")
    return " ".join(parts)


def amount(count: int, one: str) -> str:
    """Return a number of things, in words that fit it: "1 group", "1,204 records", "no notices"."""
    return f"1 {one}" if count == 1 else f"{f'{count:,}' if count else 'no'} {one}s"


def in_order(laws: Counter[str]) -> list[str]:
    """Return the names of laws in the order of their numbers, those of measures behind them."""
    return sorted(laws, key=lambda law: (law not in LAWS, int(law[1:]) if law in LAWS else 0, law))
