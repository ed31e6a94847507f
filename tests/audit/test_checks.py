"""Each law of the log, on rows written by hand: what it finds, and what it lets pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.audit.by_hand import BEGIN_MS, DAY, TASK, Row, audited, clock, found, in_order, row, told

from batonpass.audit import checks
from batonpass.audit.findings import Finding, Severity
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


def test_groups_are_looked_at_apart() -> None:
    """What is missing in one group is not made up for by another, nor held against it."""
    groups = [GroupPart(name, 0, True, 1, 3, 0) for name in ("g", "h")]
    rows = [row(seq) for seq in (1, 2, 3)] + [row(seq, group_id="h") for seq in (1, 3)]
    assert [(one["group_id"], one["sequences"]) for one in found(rows, groups=groups)] == [("h", [1, 3])]


def test_a_lost_end_is_found_by_the_head() -> None:
    """The head counts more records than there are."""
    (one,) = found([row(1), row(2)], missing=3)
    assert (one["law"], one["severity"], one["sequences"], one["at"]) == ("L2", "fatal", [2], [])
    assert one["detail"] == "the last 3 records are missing: the head counts 5, the last one there is 2"
    (one,) = found([row(1), row(2)], missing=1)
    assert one["detail"] == "the last record is missing: the head counts 3, the last one there is 2"


def test_an_unknown_beginning_is_told() -> None:
    """Where no snapshot reaches back to the first record that is left, nobody knows who had what: a notice, no hole."""
    (one,) = found([row(8), row(9)], base=7, known=False, first=8)
    assert (one["law"], one["severity"], one["sequences"]) == ("unknown-beginning", "notice", [])
    assert one["detail"] == "no snapshot says what was so before record 8; who had what before it is not known"


def test_every_record_of_a_deposed_coordinator_is_found() -> None:
    """Not the first one alone: each is behind one of a higher epoch."""
    rows = [row(seq, coordinator_epoch=epoch) for seq, epoch in enumerate((1, 3, 2, 2, 3, 1), start=1)]
    assert [(one["law"], one["detail"], one["sequences"]) for one in found(rows)] == [
        ("L4", f"a coordinator of epoch {epoch} appended after one of epoch 3 at {clock(seq)}", [seq - 1, seq])
        for epoch, seq in ((2, 3), (2, 4), (1, 6))
    ]
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


@pytest.mark.parametrize("what", ["raised", "adopted"])
def test_lost_commits_and_adoptions_excuse_the_epochs_of_their_group(what: str) -> None:
    """They raise epochs out of turn; those of other groups go on one by one."""
    groups = [GroupPart(name, 0, True, 1, 4, 0) for name in ("g", "h")]
    skipped = [*assignments(1, 2, 4), row(4)]
    elsewhere = [one | {"group_id": "h"} for one in skipped]
    assert len(found([*skipped, *elsewhere], groups=groups)) == 2
    excused = [*skipped[:-1], row(4, what, "b", "0_5", ready=True, token=1)]
    assert [one["group_id"] for one in found([*excused, *elsewhere], groups=groups)] == ["h"]


def test_generations_are_told_as_the_log_has_them() -> None:
    """Each that changed something is there once, with its moves; what was placed before the day is not asked for."""
    rows = in_order(
        row(0, "placed", number=1, token=4, until_ms=4),
        row(0, "placed", number=2, token=2, until_ms=1),
        row(0, "placed", number=3, token=0, until_ms=0),
        row(0, "placed", number=4, token=2, until_ms=2),
    )
    assert found(rows, generations=[(2, 1), (4, 2)], first=2) == []
    untold = found(rows, generations=[(4, 2)], first=2)
    assert [(one["law"], one["detail"], one["sequences"], one["at"]) for one in untold] == [
        ("L2", "generation 2 is in the log, and not among the generations", [2], [BEGIN_MS + 2_000])
    ]
    invented = found(rows, generations=[(2, 1), (3, 1), (4, 2)], first=2)
    assert [(one["detail"], one["sequences"], one["at"]) for one in invented] == [
        ("generation 3 is told, and not in the log", [], [BEGIN_MS])
    ]
    otherwise = found(rows, generations=[(2, 1), (4, 7)], first=2)
    assert [(one["detail"], one["sequences"]) for one in otherwise] == [
        ("generation 4 moved 2 tasks by the log, 7 as told", [4])
    ]


def test_grants_and_reports_of_the_day_are_counted() -> None:
    """For every group; copies, and what was before the day, do not count."""
    rows = in_order(
        row(0, "active", "a", TASK, token=3, number=1),
        row(0, "reported", "a", TASK, word="running"),
        row(0, "active", "b", "0_1", token=5, number=1),
        row(0, "standby", "b", "0_2", number=2),
        row(0, "active", "b", "0_3", number=3),
        row(0, "reported", "b", "0_1", word="running"),
        row(0, "reported", "b", "0_3", word="running"),
    )
    groups = [GroupPart("g", 0, True, 2, 7, 0), GroupPart("quiet", 5, True, 6, 5, 0)]
    with audited(rows, groups=groups) as part:
        assert part.rows("select * from logged order by group_id") == [
            {"group_id": "g", "logged": 2, "logged_tokens": 5, "logged_reports": 3},
            {"group_id": "quiet", "logged": 0, "logged_tokens": 0, "logged_reports": 0},
        ]


def test_histories_are_shown_as_the_log_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are asked for some at a time, those without records not at all; those without history pass."""
    monkeypatch.setattr(checks, "GROUPS_AT_ONCE", 2)
    names = ("same", "grants", "tokens", "reports", "unlogged", "unshown")
    groups = (*(GroupPart(name, 4, True, 5, 9, 0) for name in names), GroupPart("quiet", 4, True, 5, 4, 0))
    plan = DayPlan(DAY, BEGIN_MS, BEGIN_MS + 86_400_000, groups)
    logged: Mapping[str, tuple[int, int, int]] = dict.fromkeys(
        ("same", "grants", "tokens", "reports", "unshown"), (1, 2, 3)
    )
    shown = {"same": (1, 2, 3), "grants": (9, 2, 3), "tokens": (1, 9, 3), "reports": (1, 2, 9), "unlogged": (1, 1, 0)}
    asked: list[str] = []

    def rows(sql: str) -> Sequence[tuple[Any, ...]]:
        asked.append(sql)
        return [(name, *numbers) for name, numbers in shown.items() if f"('{name}', 5, 9)" in sql]

    compared = checks.changes_shown(logged, rows, plan)
    assert len(asked) == 3
    assert not any("quiet" in sql for sql in asked)
    assert [one.group for one in compared] == ["grants", "tokens", "reports", "unlogged"]
    text = "the histories of tasks show 1 grants of actives (sum of tokens 1) and 0 reports; the log has 0 (0) and 0"
    assert compared[-1] == Finding("unlogged", "L2", Severity.FATAL, None, None, text)
