"""Which hour of a group is worth an assignment."""

from dataclasses import replace

from batonpass.audit.findings import Finding, Severity
from batonpass.audit.pictures import broken_hours

HOUR_MS = 3_600_000
BEGIN_MS = 1_000 * HOUR_MS
END_MS = BEGIN_MS + 24 * HOUR_MS


def broken(group: str, *hours: float) -> Finding:
    """Return a fatal finding whose records are of these hours of the day."""
    at = tuple(BEGIN_MS + round(hour * HOUR_MS) for hour in hours)
    return Finding(group, "L1", Severity.FATAL, "0_0", None, "it broke", (), at)


def test_the_hour_of_a_broken_law_is_the_worst() -> None:
    """Not the hour of an older record that proves it."""
    assert broken_hours([broken("a", 2.5, 20.5)], BEGIN_MS, END_MS) == [("a", BEGIN_MS + 20 * HOUR_MS)]


def test_the_hour_of_two_owners_is_that_in_which_the_second_was_granted_the_task() -> None:
    """Not that in which one of them stopped."""
    over = replace(broken("a", 2.5, 20.5, 22.5), sequences=(1, 2))
    assert broken_hours([over], BEGIN_MS, END_MS) == [("a", BEGIN_MS + 20 * HOUR_MS)]


def test_the_hour_with_the_most_broken_laws_wins() -> None:
    findings = [
        broken("b", 3.1),
        broken("c", 7.5),
        broken("a", 7.1),
        broken("a", 5.2),
        broken("a", 5.9),
        broken("b", 1),
    ]
    hours = [("a", 5), ("b", 1), ("c", 7)]
    assert broken_hours(findings, BEGIN_MS, END_MS) == [(group, BEGIN_MS + hour * HOUR_MS) for group, hour in hours]


def test_findings_outside_the_hours_of_the_day_have_no_broken_hour() -> None:
    assert broken_hours([broken("a"), broken("b", -1), broken("c", 24)], BEGIN_MS, END_MS) == []
