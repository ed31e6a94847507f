"""Each law of the log, on rows written by hand: what it finds, and what it lets pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.audit.by_hand import BEGIN_MS, DAY, TASK, Row, clock, found, in_order, row, told

from batonpass.audit import checks
from batonpass.audit.findings import Severity
from batonpass.audit.plan import DayPlan, GroupPart


def test_a_log_that_goes_on_breaks_nothing() -> None:
    """Records follow each other, coordinators too; a snapshot and more rows of one record are no records."""
    standing = [row(10, "joined", "a", place=place, coordinator_epoch=0) for place in (-2, -1)]
    records = [row(seq, coordinator_epoch=seq // 4) for seq in range(11, 20)]
    rows = [*standing, *records, row(15, place=1, coordinator_epoch=3)]
    assert found(rows, base=10, first=11) == []
    assert found([], base=10, first=11, last=10) == []


@pytest.mark.parametrize(
    ("seqs", "base", "detail", "proof"),
    [
        ((2, 3, 4), 0, f"record 1 is missing before {clock(2)}", [2]),
        ((14, 15), 10, f"records 11 to 13 are missing before {clock(14)}", [14]),
        ((1, 2, 4, 5), 0, f"record 3 is missing before {clock(4)}", [2, 4]),
        ((1, 2, 6), 0, f"records 3 to 5 are missing before {clock(6)}", [2, 6]),
        ((1, 2, 2, 3), 0, "record 2 is there twice", [2]),
    ],
)
def test_a_missing_or_doubled_record_is_found(
    seqs: Sequence[int], base: int, detail: str, proof: Sequence[int]
) -> None:
    """At the beginning, in the middle, one or several; the records on both sides prove it."""
    (one,) = found([row(seq) for seq in seqs], base=base, first=base + 1)
    assert (one["law"], one["severity"], one["detail"]) == ("L2", "fatal", detail)
    assert (one["sequences"], one["at"]) == (proof, [BEGIN_MS + seq * 1_000 for seq in proof])
    assert (one["group_id"], one["task"], one["member"]) == ("g", None, None)


def test_a_doubled_record_does_not_make_up_for_a_missing_one() -> None:
    """Together they are as many as there should be."""
    assert [detail for _, detail in told([row(seq) for seq in (1, 2, 2, 4)])] == [
        "record 2 is there twice",
        f"record 3 is missing before {clock(4)}",
    ]


def test_what_was_missing_before_the_day_was_found_on_its_day() -> None:
    """A hole belongs to the day of the record behind it."""
    rows = [row(seq) for seq in (1, 3, 4, 6, 7)]
    assert told(rows, first=6) == [("L2", f"record 5 is missing before {clock(6)}")]
    assert told(rows, first=7) == []


def test_a_record_with_a_wrong_date_is_found() -> None:
    """One that does not lie between its neighbours' by more than a minute; these and another clock are not accused."""
    whole = in_order(*(row(0) for _ in range(5)))
    for ms, year in ((-86_400_000 * 900, 2024), (86_400_000 * 900, 2029)):
        rows = [*whole[:2], whole[2] | {"at_ms": whole[2]["at_ms"] + ms}, *whole[3:]]
        (one,) = found(rows)
        assert (one["law"], one["sequences"]) == ("L2", [3])
        assert one["detail"].startswith(f"record 3 is dated {year}")
        assert one["detail"].endswith(f"the one before it is of {clock(2)}, the one behind it of {clock(4)}")
    behind = [one | {"at_ms": one["at_ms"] - 50_000 * (one["seq"] > 2)} for one in whole]
    assert found(behind) == []


def test_groups_are_looked_at_apart() -> None:
    """What is missing in one group is not made up for by another, nor held against it."""
    groups = [GroupPart(name, 0, True, 1, 3, 0) for name in ("g", "h")]
    rows = [row(seq) for seq in (1, 2, 3)] + [row(seq, group_id="h") for seq in (1, 3)]
    assert [(one["group_id"], one["sequences"]) for one in found(rows, groups=groups)] == [("h", [1, 3])]


LOST = checks.END_MISSING


def edge_findings(**known: Any) -> list[tuple[str, str, str, tuple[int, ...]]]:
    """Return what is found at the ends of the log of a group of nine records, of which this is known."""
    whole: dict[str, Any] = {"group": "g", "base": 0, "known": True, "first": 1, "last": 9, "missing": 0}
    plan = DayPlan(DAY, BEGIN_MS, BEGIN_MS + 86_400_000, (GroupPart(**whole | known),))
    return [(one.law, one.severity, one.detail, one.sequences) for one in checks.edges(plan)]


@pytest.mark.parametrize(
    ("known", "law", "detail", "proof"),
    [
        ({"missing": 3}, "L2", f"{LOST}the last 3 records are lost, the head counts 12, the last one there is 9", (9,)),
        ({"missing": 1}, "L2", f"{LOST}the last record is lost, the head counts 10, the last one there is 9", (9,)),
        (
            {"beyond": 12},
            *("L2", "there are records up to 12 that the head does not count: it ends at 9", (12,)),
        ),
        (
            {"deposed": 3},
            *("L4", "record 9 is of a higher coordinator epoch than the head, which has 3", (9,)),
        ),
        (
            {"lost": 1, "known": False, "base": 1, "first": 2},
            "L2",
            "record 1 is missing, and no retention can have taken it: nothing is kept of what it came to",
            (2,),
        ),
        (
            {"lost": 4, "known": False, "base": 4, "first": 5},
            "L2",
            "records 1 to 4 are missing, and no retention can have taken them: nothing is kept of what they came to",
            (5,),
        ),
    ],
)
def test_the_ends_of_a_log_are_looked_at(known: Mapping[str, Any], law: str, detail: str, proof: Sequence[int]) -> None:
    """Each end says what is missing there, once; an end that is as it should be says nothing."""
    assert edge_findings(**known) == [(law, Severity.FATAL, detail, proof)]
    assert edge_findings() == edge_findings(base=4, first=5, base_epoch=2) == []


def test_an_unknown_beginning_is_told() -> None:
    """Where no snapshot reaches back to the first record that is left, nobody knows who had what: a notice, no hole."""
    detail = "no snapshot says what was so before record 8; who had what before it is not known"
    assert edge_findings(base=7, known=False, first=8) == [("unknown-beginning", Severity.NOTICE, detail, ())]
    assert found([row(8), row(9)], base=7, known=False, first=8) == []


def test_every_record_of_a_deposed_coordinator_is_found() -> None:
    """Not the first one alone: each is behind one of a higher epoch."""
    rows = [row(seq, coordinator_epoch=epoch) for seq, epoch in enumerate((1, 3, 2, 2, 3, 1), start=1)]
    assert [(one["law"], one["detail"], one["sequences"]) for one in found(rows)] == [
        ("L4", f"a coordinator of epoch {epoch} appended after one of epoch 3 at {clock(seq)}", [seq - 1, seq])
        for epoch, seq in ((2, 3), (2, 4), (1, 6))
    ]
    # The record that the snapshot ends with has an epoch, too, where it is still there.
    assert found(rows[3:], base=3, first=4, base_epoch=2)[0]["sequences"] == [5, 6]
    (one, *_) = found(rows[3:], base=3, first=4, base_epoch=5)
    assert (one["detail"], one["sequences"], one["at"]) == (
        f"a coordinator of epoch 2 appended after one of epoch 5 at {clock(4)}",
        [3, 4],
        [BEGIN_MS + 4_000],
    )
    # Who was deposed on an earlier day may not write on this one; what it wrote then was found then.
    assert [one["sequences"] for one in found(rows, first=4)] == [[3, 4], [5, 6]]


def test_an_unreadable_record_is_fatal_on_its_day_and_a_snapshot_a_notice() -> None:
    """What a record said is lost to every reader; what a snapshot said may be known from the records."""
    rows = [row(3, "unreadable", place=-1, word="bad sum"), row(4), row(5, "unreadable", word="no kind"), row(6)]
    of_snapshot = ("unreadable-snapshot", "the snapshot of version 3: bad sum")
    assert told(rows, base=3, first=5) == [of_snapshot, ("L2", "record 5 cannot be read: no kind")]
    assert told(rows, base=3, first=6) == [of_snapshot]
    assert {one["severity"] for one in found(rows, base=3, first=6)} == {"notice"}
    assert told([row(1, "unreadable")]) == [("L2", "record 1 cannot be read: ?")]


def assignments(*epochs: int) -> list[Row]:
    """Return assignments of a member that say nothing but their epochs, other rows of their records among them."""
    rows = in_order(*(row(0, "standby", "a", TASK, number=epoch) for epoch in epochs))
    return [*rows, *(one | {"place": 1, "task": "0_1"} for one in rows)]


@pytest.mark.parametrize(
    ("epochs", "steps"),
    [
        ((1, 2, 3, 4), []),
        ((7, 8, 9), []),
        ((1, 2, 4, 5), [(2, 4, 3)]),
        ((1, 2, 1, 2), [(2, 1, 3)]),
        ((1, 2, 2), [(2, 2, 3)]),
        ((1, 3, 2, 4), [(1, 3, 2), (3, 2, 3), (2, 4, 4)]),
    ],
)
def test_each_assignment_adds_one_to_an_epoch(epochs: Sequence[int], steps: Sequence[tuple[int, int, int]]) -> None:
    """Skipped, fallen, and the same again, wherever in the day."""
    assert [(one["law"], one["member"], one["detail"], one["sequences"]) for one in found(assignments(*epochs))] == [
        (
            *("L2", "a", f"its epoch {epoch} follows {before} at {clock(seq)}; each change of an assignment adds one"),
            [seq - 1, seq],
        )
        for before, epoch, seq in steps
    ]


def test_an_epoch_that_was_skipped_before_the_day_was_found_then() -> None:
    """The record that skips belongs to its day."""
    assert len(found(assignments(1, 3, 4), first=2)) == 1
    assert found(assignments(1, 3, 4), first=3) == []


def joined(epoch: int, place: int = 0) -> Row:
    """Return that a member is there, or joins, with this epoch."""
    return row(0, "joined", "a", number=epoch, place=place)


def assigned(epoch: int, member: str = "a") -> Row:
    """Return an assignment of a member."""
    return row(0, "standby", member, TASK, number=epoch)


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ([joined(1), assigned(2)], []),
        ([joined(1), assigned(3)], [(1, 2)]),
        ([joined(4), assigned(2)], [(1, 2)]),
        ([joined(4, place=-1), assigned(5)], []),
        ([joined(4, place=-1), assigned(6)], [(1, 2)]),
        ([assigned(7), joined(1), assigned(2)], []),
        # Lost commits raise an epoch to what is said, or leave it where it is higher.
        ([joined(1), row(0, "raised", "a", number=9), assigned(10)], []),
        ([joined(1), row(0, "raised", "a", number=9), assigned(2)], [(2, 3)]),
        ([joined(1), row(0, "raised", "a", number=9), assigned(11)], [(2, 3)]),
        ([joined(20), row(0, "raised", "a", number=9), assigned(21)], []),
        ([joined(1), row(0, "raised", "b", number=9), assigned(3)], [(1, 3)]),
        # Whoever loses a task to an adoption has its epoch raised without a record of its own.
        ([joined(1), row(0, "adopted", "b", TASK, token=1), assigned(4)], []),
        ([joined(3), row(0, "adopted", "b", TASK, token=1), assigned(3)], [(1, 3)]),
        ([joined(1), row(0, "adopted", "b", TASK, token=1), assigned(2), assigned(4)], [(3, 4)]),
    ],
)
def test_an_epoch_is_followed_from_the_joining_on(rows: Sequence[Row], wrong: Sequence[tuple[int, int]]) -> None:
    """Or from the snapshot on, and across what raises it out of turn."""
    placed = [
        one | {"place": place} for one, place in zip(in_order(*rows), [one["place"] for one in rows], strict=True)
    ]
    known = {"base": 1, "first": 2} if placed[0]["place"] < 0 else {}
    assert [tuple(one["sequences"]) for one in found(placed, **known) if one["member"] == "a"] == list(wrong)


def test_an_epoch_is_not_accused_of_what_is_missing() -> None:
    """Where a record is missing, or cannot be read, an assignment may have been in it; to fall is wrong still."""
    hole = [*in_order(joined(1), assigned(2)), *in_order(assigned(4), begin=4)]
    assert [one["detail"].partition(" is missing")[0] for one in found(hole)] == ["record 3"]
    assert len(found([*hole[:2], hole[2] | {"number": 2}])) == 2
    unread = in_order(joined(1), assigned(2), row(0, "unreadable", word="?"), assigned(4))
    assert [one["sequences"] for one in found(unread)] == [[3]]
