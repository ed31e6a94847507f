"""Findings of several sources are put together, cut to what a person reads, and counted."""

from batonpass.audit.evidence import cut, finding_of
from batonpass.audit.findings import Finding, Severity


def told(group: str, law: str, at_ms: int, *, severity: Severity = Severity.FATAL) -> Finding:
    """Return a finding that was proven at an instant."""
    return Finding(group, law, severity, None, None, f"at {at_ms}", (at_ms,), (at_ms,))


def test_a_row_becomes_a_finding() -> None:
    """Every column is taken over, and lists become tuples."""
    row = {"group_id": "g", "law": "L1", "severity": "notice", "task": "0_0", "member": None, "detail": "d"}
    found = finding_of(row | {"sequences": [1, 2], "at": []})
    assert found == Finding("g", "L1", Severity.NOTICE, "0_0", None, "d", (1, 2), ())


def test_findings_of_all_sources_are_in_the_order_of_the_log() -> None:
    """Groups and laws by name; within them fatal ones first, then by when they came to be so."""
    late = told("a", "L1", 9)
    first = [told("b", "L1", 1), told("a", "L2", 5), late]
    others = [told("a", "L1", 3), told("a", "L1", 1, severity=Severity.NOTICE)]
    kept, left_out = cut([(one, 1) for one in first], others)
    assert left_out == 0
    assert kept == (others[0], late, others[1], first[1], first[0])


def test_what_is_beyond_the_limit_is_counted() -> None:
    """Those that a part left out already, and those that are too many together."""
    kept, left_out = cut(
        [(told("a", "L1", at), 70) for at in range(3)], [told("a", "L1", 100 + at) for at in range(4)], 5
    )
    assert [one.at[0] for one in kept] == [0, 1, 2, 100, 101]
    assert left_out == 69
    kept, left_out = cut([(told("a", "L1", 1), 1), (told("a", "L2", 1), 4)], [], 5)
    assert len(kept) == 2
    assert left_out == 3
