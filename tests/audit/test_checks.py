"""Each law that the log shows by itself, on rows written by hand: what it finds, and what it lets pass."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import pytest
from tests.audit.by_hand import BEGIN_MS, DAY, TASK, Row, clock, found, in_order, plan_of, row, sentences

from batonpass.audit import checks, ledger
from batonpass.audit.entries import Entry, read_entries
from batonpass.audit.facts import Budgets
from batonpass.audit.findings import END_MISSING, STILL, Severity
from batonpass.audit.ledger import Ledger
from batonpass.audit.plan import DayPlan, GroupPlan
from batonpass.codec.records import encode_record
from batonpass.core.state.ids import MemberId
from batonpass.core.state.model import Subtopology, Topology
from batonpass.core.state.policy import GroupConfig
from batonpass.core.state.records import AssignmentChanged


def test_a_log_that_goes_on_breaks_nothing() -> None:
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
    (one,) = found([row(seq) for seq in seqs], base=base, first=base + 1)
    assert (one["law"], one["severity"], one["detail"]) == ("L2", "fatal", detail)
    assert (one["sequences"], one["at"]) == (proof, [BEGIN_MS + seq * 1_000 for seq in proof])
    assert (one["group_id"], one["task"], one["member"]) == ("g", None, None)


def test_a_doubled_record_does_not_make_up_for_a_missing_one() -> None:
    """Together they are as many as there should be."""
    assert [detail for _, detail in sentences([row(seq) for seq in (1, 2, 2, 4)])] == [
        "record 2 is there twice",
        f"record 3 is missing before {clock(4)}",
    ]


def test_what_is_missing_before_the_day_is_found_every_night_that_needs_it() -> None:
    """The day begins in a state that nobody knows, whenever the record was lost."""
    rows = [row(seq) for seq in (1, 3, 4, 6, 7)]
    lost = [("L2", f"record {seq - 1} is missing before {clock(seq)}") for seq in (3, 6)]
    assert sentences(rows, first=6) == sentences(rows, first=7) == lost


def test_a_record_with_a_wrong_date_is_found() -> None:
    """Its date is outside its neighbours' by more than a minute; these and another clock are not accused."""
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
    groups = [GroupPlan(name, 0, True, 1, 3, 0) for name in ("g", "h")]
    rows = [row(seq) for seq in (1, 2, 3)] + [row(seq, group_id="h") for seq in (1, 3)]
    assert [(one["group_id"], one["sequences"]) for one in found(rows, groups=groups)] == [("h", [1, 3])]


LOST = END_MISSING


def edge_findings(**known: Any) -> list[tuple[str, str, str, tuple[int, ...]]]:
    """Return what is found at the ends of the log of a group of nine records, of which this is known."""
    whole: dict[str, Any] = {"group": "g", "base": 0, "known": True, "first": 1, "last": 9, "missing": 0}
    plan = DayPlan(DAY, BEGIN_MS, BEGIN_MS + 86_400_000, (GroupPlan(**whole | known),))
    return [(one.law, one.severity, one.detail, one.sequences) for one in checks.log_ends(plan)]


@pytest.mark.parametrize(
    ("known", "law", "detail", "proof"),
    [
        ({"missing": 3}, "L2", f"{LOST}the last 3 records are lost, the head counts 12, the last one found is 9", (9,)),
        ({"missing": 1}, "L2", f"{LOST}the last record is lost, the head counts 10, the last one found is 9", (9,)),
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
            "record 1 is missing, and retention cannot have deleted it: too recent for that, or no snapshot has the result",
            (2,),
        ),
        (
            {"lost": 4, "known": False, "base": 4, "first": 5},
            "L2",
            "records 1 to 4 are missing, and retention cannot have deleted them: too recent for that, or no snapshot has the result",
            (5,),
        ),
    ],
)
def test_the_ends_of_a_log_are_looked_at(known: Mapping[str, Any], law: str, detail: str, proof: Sequence[int]) -> None:
    assert edge_findings(**known) == [(law, Severity.FATAL, detail, proof)]
    assert edge_findings() == edge_findings(base=4, first=5, base_epoch=2) == []


def test_an_unknown_beginning_is_a_finding() -> None:
    detail = "no snapshot has the state before record 8, so the owners before it are not known"
    assert edge_findings(base=7, known=False, first=8) == [("unknown-beginning", Severity.NOTICE, detail, ())]
    assert found([row(8), row(9)], base=7, known=False, first=8) == []


def test_what_a_deposed_coordinator_wrote_is_one_finding() -> None:
    rows = [row(seq, coordinator_epoch=epoch) for seq, epoch in enumerate((1, 3, 2, 2, 3, 1, 3, 2), start=1)]
    many = f"2 appended 3 records after one of epoch 3 at {clock(3)}, the last one at {clock(8)}"
    assert [(one["law"], one["detail"], one["sequences"]) for one in found(rows)] == [
        ("L4", f"a coordinator of epoch 1 appended after one of epoch 3 at {clock(6)}", [5, 6]),
        ("L4", f"a coordinator of epoch {many}", [2, 3, 8]),
    ]
    assert found(rows, first=9) == []
    rows = rows[:6]
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


def test_an_unreadable_record_is_fatal_on_every_day_that_needs_it_and_a_snapshot_a_notice() -> None:
    """What a record said is lost to every reader; what a snapshot said may be known from the records."""
    rows = [row(3, "unreadable", place=-1, word="bad sum"), row(4), row(5, "unreadable", word="no kind"), row(6)]
    of_snapshot = ("unreadable-snapshot", "the snapshot of version 3: bad sum")
    assert sentences(rows, base=3, first=5) == [of_snapshot, ("L2", "record 5 cannot be read: no kind")]
    assert sentences(rows, base=3, first=6) == sentences(rows, base=3, first=5)
    assert [one["severity"] for one in found(rows, base=3, first=6)] == ["notice", "fatal"]
    assert sentences([row(1, "unreadable")]) == [("L2", "record 1 cannot be read: ?")]


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
    assert [(one["law"], one["member"], one["detail"], one["sequences"]) for one in found(assignments(*epochs))] == [
        (
            *("L2", "a", f"its epoch {epoch} follows {before} at {clock(seq)}; each change of an assignment adds one"),
            [seq - 1, seq],
        )
        for before, epoch, seq in steps
    ]


def test_an_epoch_that_was_skipped_before_the_day_was_found_then() -> None:
    assert len(found(assignments(1, 3, 4), first=2)) == 1
    assert found(assignments(1, 3, 4), first=3) == []


def joined(epoch: int, place: int = 0) -> Row:
    """Return that a member is there, or joins, with this epoch."""
    return row(0, "joined", "a", number=epoch, place=place)


def assigned(epoch: int, member: str = "a") -> Row:
    """Return an assignment of a member."""
    return row(0, "standby", member, TASK, number=epoch)


def only_assigned(epoch: int) -> Row:
    """Return an assignment of a member that changes its epoch alone, as the audit reads its record."""
    record = encode_record(AssignmentChanged(MemberId("a"), epoch, BEGIN_MS))
    ((entry,), _) = read_entries(0, BEGIN_MS, 1, record)
    return row(0) | entry._asdict()


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ([joined(1), assigned(2)], []),
        ([joined(1), assigned(3)], [(1, 2)]),
        ([joined(4), assigned(2)], [(1, 2)]),
        ([joined(4, place=-1), assigned(5)], []),
        ([joined(4, place=-1), assigned(6)], [(1, 2)]),
        ([assigned(7), joined(1), assigned(2)], []),
        # A lowered timeout raises epochs, and changes nothing else.
        ([joined(1), only_assigned(2), assigned(3)], []),
        ([joined(1), only_assigned(2), assigned(4)], [(2, 3)]),
        ([joined(1), only_assigned(3), assigned(4)], [(1, 2)]),
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
    placed = [
        one | {"place": place} for one, place in zip(in_order(*rows), [one["place"] for one in rows], strict=True)
    ]
    known: dict[str, Any] = {"base": 1, "first": 2} if placed[0]["place"] < 0 else {}
    assert [tuple(one["sequences"]) for one in found(placed, **known) if one["member"] == "a"] == list(wrong)


def test_an_epoch_is_not_accused_of_what_is_missing() -> None:
    """What is missing or unreadable may have been an assignment; an epoch that falls is wrong still."""
    hole = [*in_order(joined(1), assigned(2)), *in_order(assigned(4), begin=4)]
    assert [one["detail"].partition(" is missing")[0] for one in found(hole)] == ["record 3"]
    assert len(found([*hole[:2], hole[2] | {"number": 2}])) == 2
    unread = in_order(joined(1), assigned(2), row(0, "unreadable", word="?"), assigned(4))
    assert [one["sequences"] for one in found(unread)] == [[3]]


FAR_MS: Final = BEGIN_MS + 80_000_000


def grant(member: str, token: int, *, task: str = TASK, **columns: Any) -> Row:
    """Return that a member is to run a task."""
    return row(0, "active", member, task, token=token, **{"ready": True} | columns)


def runs(member: str, word: str = "running") -> Row:
    """Return that a member reported on the task."""
    return row(0, "reported", member, TASK, word=word)


TAKEN: Final = (row(0, "revoked", "a", TASK), row(0, "released", "a", TASK))
DIED: Final = row(0, "gone", "a", until_ms=FAR_MS, word="expired")
LEFT: Final = row(0, "gone", "a", until_ms=0, word="left")


@pytest.mark.parametrize(
    ("between", "at_once"),
    [
        (TAKEN, False),
        ((), True),
        (TAKEN[:1], True),
        ((TAKEN[0], LEFT), False),
        ((TAKEN[0], DIED), True),
        ((DIED, LEFT), False),
        ((LEFT, row(0, "unreleased", "a", TASK), LEFT), False),
        ((TAKEN[0], row(0, "waived", "a", TASK)), False),
    ],
)
def test_a_task_is_granted_when_nobody_else_may_run_it(between: Sequence[Row], *, at_once: bool) -> None:
    rows = in_order(grant("a", 1), *between, grant("b", 2))
    last = len(rows)
    seen = [(one["law"], one["task"], one["member"], one["sequences"]) for one in found(rows)]
    assert seen == ([("L1", TASK, "b", [1, last])] if at_once else [])
    said = f"granted at {clock(last)} while a might still run it: it had not said that it stopped, was not gone, and still had a lease"
    assert [one["detail"].startswith(f"{said}, ") for one in found(rows)] == [True] * at_once


WHILE_A: Final = "while a might still run it: it had not said that it stopped, was not gone, and still had a lease"


def test_who_is_named_is_who_might_still_run_the_task() -> None:
    """Not whoever was granted it last, which may have stopped; each with its grant, the oldest first."""
    rows = in_order(grant("a", 1), grant("b", 2), row(0, "revoked", "b", TASK), row(0, "released", "b", TASK))
    first, then = found([*rows, *in_order(grant("c", 3), begin=5)])
    assert first["detail"] == f"granted at {clock(2)} {WHILE_A}, until {clock(4)}, when b had stopped"
    assert then["detail"] == f"granted at {clock(5)} {WHILE_A}, still so {STILL}"
    assert (first["sequences"], then["sequences"]) == ([1, 2], [1, 5])
    *_, third = found(in_order(grant("b", 1), grant("a", 2), grant("c", 3)))
    both = "while b and a might still run it: they had not said that they stopped, were not gone, and still had leases"
    assert third["detail"] == f"granted at {clock(3)} {both}, still so {STILL}"
    assert third["sequences"] == [1, 2, 3]
    assert [(one["others"], one["member"]) for one in (first, then, third)] == [
        (["a"], "b"),
        (["a"], "c"),
        (["b", "a"], "c"),
    ]


def test_who_may_have_confirmed_in_a_lost_record_is_not_named() -> None:
    rows = [*in_order(grant("a", 1)), *in_order(grant("b", 2), grant("c", 3), begin=3)]
    assert [one["detail"] for one in found(rows) if one["law"] == "L1"] == [
        f"granted at {clock(4)} {WHILE_A.replace('while a', 'while b')}, still so {STILL}"
    ]


def test_a_lease_that_has_run_out_is_none() -> None:
    assert found(in_order(grant("a", 1), died(3), row(0), grant("b", 2))) == []
    left = row(0, "unreleased", "a", TASK, place=-1, until_ms=BEGIN_MS + 1_000)
    assert found([left, *in_order(grant("b", 2))]) == []


def test_a_day_that_begins_with_two_owners_has_broken_the_law_too() -> None:
    """Since before it began, until it is over; what ended before is of the day before."""
    rows = in_order(grant("a", 1), grant("b", 2))
    before = f"granted at {clock(2)}, before the day began, {WHILE_A}"
    still = ("L1", f"{before}, still so {STILL}")
    assert sentences(rows, first=3) == [still], "nothing happened on that day"
    assert sentences([*rows, row(3)], first=3) == [still]
    later = in_order(row(0), row(0, "gone", "b", until_ms=0, word="left"), begin=3)
    assert sentences([*rows, *later], first=3) == [("L1", f"{before}, until {clock(4)}, when b had stopped")]
    yesterday = [one | {"ms": one["ms"] - 9_000, "at_ms": one["at_ms"] - 9_000} for one in (*rows, *later)]
    assert found(yesterday, first=5) == []
    lapsed = in_order(grant("a", 1), died(-5), grant("b", 2))
    yesterday = [one | {"ms": one["ms"] - 9_000, "at_ms": one["at_ms"] - 9_000} for one in lapsed]
    assert [one["law"] for one in found(yesterday, first=1)] == ["L1"]
    assert found(yesterday, first=4) == []


def test_a_day_that_begins_with_two_owners_by_its_snapshot_says_so() -> None:
    """It is one record that proves it; whoever has not confirmed stands there too."""
    for other in (grant("a", 1), row(0, "unreleased", "a", TASK)):
        standing = [one | {"seq": 7, "place": place} for place, one in ((-2, other), (-1, grant("b", 2)))]
        (one,) = found([*standing, row(8)], base=7, first=8)
        assert one["detail"].startswith("granted at ")
        assert one["detail"].endswith(f", before the day began, {WHILE_A}, still so {STILL}")
        assert one["sequences"] == [7]


def test_a_loss_before_the_day_may_have_ended_what_it_would_begin_with() -> None:
    rows = [*in_order(grant("a", 1), grant("b", 2)), *in_order(row(0), row(0), begin=4)]
    assert [one["law"] for one in found(rows, first=5)] == ["L2"]
    assert [one["law"] for one in found(rows, first=3)] == ["L1", "L2"]


STOPPED: Final = (row(0, "revoked", "b", TASK), row(0, "released", "b", TASK))


def died(seconds: int) -> Row:
    """Return that a member went without a word, whose lease ends so many seconds after midnight."""
    return row(0, "gone", "a", until_ms=BEGIN_MS + seconds * 1_000, word="expired")


@pytest.mark.parametrize(
    ("before", "after", "until"),
    [
        ((), (), None),
        ((), (row(0),), None),
        ((), (row(0), LEFT), 4),
        ((), STOPPED, 4),
        ((died(90),), (), 90),
        ((died(90),), STOPPED, 5),
        ((died(4),), STOPPED, 4),
        ((), (died(4), *STOPPED), 4),
        ((), (died(90),), 90),
    ],
)
def test_how_long_two_might_run_a_task_is_told(before: Sequence[Row], after: Sequence[Row], until: int | None) -> None:
    """Until one of them has confirmed that it stopped, or its lease is over, whichever comes first."""
    (one,) = found(in_order(grant("a", 1), *before, grant("b", 2), *after))
    end = one["detail"].rpartition("lease, ")[2]
    if until is None:
        assert end == f"still so {STILL}"
    else:
        assert end.startswith(f"until {clock(until)}, when ")
        assert one["at"][-1] == BEGIN_MS + until * 1_000


@pytest.mark.parametrize(
    ("after", "ends"),
    [
        # What is told of a grant ends with its own member, or with the last of the others.
        ((LEFT,), [f"until {clock(4)}, when a had stopped", f"still so {STILL}"]),
        (STOPPED, [f"until {clock(5)}, when b had stopped", f"still so {STILL}"]),
        ((*STOPPED, LEFT), [f"until {clock(5)}, when b had stopped", f"until {clock(6)}, when a had stopped"]),
        ((LEFT, *STOPPED), [f"until {clock(4)}, when a had stopped", f"until {clock(6)}, when b had stopped"]),
    ],
)
def test_each_overlap_of_three_is_told_by_itself(after: Sequence[Row], ends: Sequence[str]) -> None:
    rows = in_order(grant("a", 1), grant("b", 2), grant("c", 3), *after)
    assert [one["detail"].partition(" lease")[2].partition(", ")[2] for one in found(rows)] == ends


def test_how_long_two_might_run_a_task_is_not_told_where_records_are_lost() -> None:
    rows = [*in_order(grant("a", 1), grant("b", 2)), *in_order(row(0), begin=4)]
    (one,) = [one for one in found(rows) if one["law"] == "L1"]
    assert one["detail"].endswith("still had a lease")


def test_a_late_confirmation_ends_no_newer_grant() -> None:
    """What a member gives up after it was granted the task anew is the grant before."""
    rows = in_order(grant("a", 1), TAKEN[0], grant("a", 2), TAKEN[1], grant("b", 3))
    assert [(one["law"], one["member"], one["sequences"]) for one in found(rows)] == [("L1", "b", [3, 5])]


@pytest.mark.parametrize(("token", "broken"), [(6, False), (5, True), (4, True)])
def test_tokens_grow(token: int, *, broken: bool) -> None:
    """A token that is as high as one before, or lower, fences off no owner."""
    rows = in_order(grant("a", 5), *TAKEN, grant("b", token))
    text = f"granted at {clock(4)} under token {token}, which is not above 5 that was granted before"
    assert sentences(rows) == ([("L1", text)] if broken else [])


def test_an_adoption_is_no_grant() -> None:
    """A member that turned out to run a task after lost commits is believed."""
    assert found(in_order(grant("a", 5), row(0, "adopted", "b", TASK, token=5, ready=True))) == []


COLD: Final = (*TAKEN, grant("b", 2, ready=False), runs("b"))
COPY: Final = row(0, "standby", "b", TASK, ready=True)


def handed_over(*between: Row, before: Sequence[Row] = (), taken: Sequence[Row] = COLD) -> list[Row]:
    """Return the handover of a task from its running owner to a member that was not caught up."""
    return in_order(*before, grant("a", 1), runs("a"), *between, *taken)


@pytest.mark.parametrize(
    ("between", "copy"),
    [
        ((), "no copy of it"),
        ((COPY,), "a standby that was not caught up"),
        ((COPY | {"what": "warmup"},), "a warmup that was not caught up"),
        ((row(0, "next-owner", "b", TASK),), "no copy of it"),
        # To be drained without a deadline is no haste; nor are another's suspicion, or trouble with another task.
        ((row(0, "drain", "a"),), "no copy of it"),
        ((row(0, "suspected", "b"),), "no copy of it"),
        ((runs("b", "failed"), row(0, "parked", task="0_1")), "no copy of it"),
    ],
)
def test_a_task_is_not_taken_for_a_member_that_is_not_caught_up(between: Sequence[Row], copy: str) -> None:
    rows = handed_over(*between)
    revoked, taken = len(rows) - 3, len(rows) - 1
    told = f"a, which ran it, was told to stop at {clock(revoked)} for b, which was granted it at {clock(taken)} and had {copy}"
    assert [(one["law"], one["others"], one["member"], one["detail"], one["sequences"]) for one in found(rows)] == [
        ("L7", ["a"], "b", told, [revoked, taken])
    ]
    assert found([*rows, row(len(rows) + 1)], first=len(rows)) == []


def test_a_copy_in_a_kafka_streams_application_is_left_to_the_replay() -> None:
    """Between two of its rebalances no report says how far a copy is."""
    streams = row(0, "config", whole=GroupConfig(kafka_streams=True))
    assert found(handed_over(COPY, before=[streams])) == []
    assert [one["law"] for one in found(handed_over(before=[streams]))] == ["L7"]
    others = row(0, "config", whole=GroupConfig())
    assert [one["law"] for one in found(handed_over(COPY, before=[others]))] == ["L7"]


def test_a_copy_that_was_an_active_once_is_one_still_whoever_adopts_the_task() -> None:
    """An adoption takes the task from its owner, and from nobody who has a copy of it."""
    given_up = [row(0, what, "a", TASK) for what in ("demoted", "standby", "released")]
    begun = [grant("a", 1), runs("a"), *given_up, grant("c", 2, ready=True), runs("c")]
    adopted = [row(0, "adopted", "b", TASK, token=3, ready=True), row(0, "released", "c", TASK)]
    taken = [row(0, what, "b", TASK) for what in ("revoked", "released")]
    rows = in_order(*begun, *adopted, *taken, grant("a", 4, ready=False), runs("a"))
    details = [one["detail"] for one in found(rows)]
    assert [detail.rpartition(" and had ")[2] for detail in details] == ["a standby that was not caught up"]


def topology(**stateful: bool) -> Row:
    """Return the topology of a group: ``s0``, ``s1``... are its parts "0", "1"..., with state or without."""
    parts = tuple(Subtopology(name[1:], 6, stateful=has) for name, has in stateful.items())
    return row(0, "topology", whole=Topology(subtopologies=parts))


NEW_COORDINATOR: Final = (*TAKEN, grant("b", 2, ready=False, coordinator_epoch=2), runs("b") | {"coordinator_epoch": 2})


@pytest.mark.parametrize(
    ("excused", "same"),
    [
        (handed_over(taken=(*TAKEN, grant("b", 2), runs("b"))), handed_over()),
        (handed_over(row(0, "suspected", "a")), handed_over(row(0, "suspected", "c"))),
        (handed_over(row(0, "drain", "a", until_ms=FAR_MS)), handed_over(row(0, "drain", "c", until_ms=FAR_MS))),
        (handed_over(row(0, "parked", task=TASK)), handed_over(row(0, "parked", task="0_1"))),
        (handed_over(runs("a", "failed")), handed_over(runs("b", "failed"))),
        (handed_over(row(0, "next-owner", "c", TASK)), handed_over(row(0, "next-owner", "b", TASK))),
        (handed_over(COPY, taken=NEW_COORDINATOR), handed_over(taken=NEW_COORDINATOR)),
        (handed_over(before=[topology(s0=False)]), handed_over(before=[topology(s0=True, s1=False)])),
        (handed_over(taken=(*TAKEN, grant("a", 2, ready=False), runs("a"))), handed_over()),
    ],
    ids=[
        "ready",
        "suspect",
        "deadline",
        "parked",
        "failed",
        "not the next owner",
        "new coordinator",
        "stateless",
        "the same",
    ],
)
def test_what_excuses_a_cold_promotion(excused: Sequence[Row], same: Sequence[Row]) -> None:
    assert found(excused) == []
    assert [one["law"] for one in found(same)] == ["L7"]


def returned(*between: Row, before: Sequence[Row] = ()) -> list[Row]:
    """Return the handover of a task, and the handover back."""
    there = (*TAKEN, grant("b", 2), runs("b"))
    back = (row(0, "revoked", "b", TASK), row(0, "released", "b", TASK), grant("a", 3), runs("a"))
    return in_order(*before, grant("a", 1), runs("a"), *there, *between, *back)


@pytest.mark.parametrize("between", [(), (row(0, "target", "b", TASK),), (row(0, "gone", "c"),)])
def test_one_change_of_target_is_one_handover(between: Sequence[Row]) -> None:
    """To name the same target again is no change of it."""
    rows = returned(*between, before=[row(0, "target", "b", TASK)])
    revocations = [one["seq"] for one in rows if one["what"] == "revoked"]
    assert [(one["law"], one["task"], one["member"], one["detail"], one["sequences"]) for one in found(rows)] == [
        (
            *("L8", TASK, "a", f"2 handovers from running owners for one change of its target, since {clock(4)}"),
            revocations,
        )
    ]
    assert found([*rows, row(len(rows) + 1)], first=revocations[-1] + 1) == []


@pytest.mark.parametrize(
    "between",
    [
        (row(0, "target", "a", TASK),),
        (row(0, "standby", "c", TASK), row(0, "gone", "c", until_ms=0)),
        (runs("b", "failed"),),
        (row(0, "suspected", "b"),),
    ],
)
def test_a_second_handover_may_have_its_own_reason(between: Sequence[Row]) -> None:
    before = [row(0, "target", "b", TASK), row(0, "warmup", "c", TASK), row(0, "dropped", "c", TASK)]
    assert len(found(returned(before=before))) == 1
    assert found(returned(*between, before=before)) == []


def test_a_task_that_somebody_else_turned_out_to_run_is_handed_over_to_its_target_again() -> None:
    """Kafka moved it by itself, or commits were lost: no decision of the group did."""
    before = [row(0, "target", "b", TASK), grant("a", 1), runs("a")]
    adopted = (row(0, "adopted", "c", TASK, token=3, ready=True), row(0, "released", "b", TASK))
    taken = (row(0, "revoked", "c", TASK), row(0, "released", "c", TASK), grant("b", 4), runs("b"))
    assert found(in_order(*before, *TAKEN, grant("b", 2), runs("b"), *adopted, *taken)) == []


def settings(warmups: int | str, drains: int | str, on_member: int = 9) -> Row:
    """Return the settings of a group that warmups are counted by."""
    config = GroupConfig(max_warmup_replicas=warmups, max_drain_warmups=drains, max_warmups_per_member=on_member)
    return row(0, "config", whole=config)


def copies(*members: str, what: str = "warmup", begin: int = 0) -> list[Row]:
    """Return a copy for each of these members, of one task after the other."""
    return [row(0, what, member, f"0_{number}") for number, member in enumerate(members, start=begin)]


DRAINS: Final = row(0, "drain", "z")


def test_warmups_stay_within_the_budget_of_the_group() -> None:
    """Both budgets together while a member drains; a warmup that ended, or became a standby, makes room."""
    three = copies("a", "b", "c")
    assert found(in_order(settings(1, 2), DRAINS, *three)) == []
    fourth = row(0, "warmup", "d", "0_3")
    full = in_order(settings(1, 2), DRAINS, *three, fourth)
    assert [(one["law"], one["task"], one["member"], one["detail"], one["sequences"]) for one in found(full)] == [
        (
            *("L8", "0_3", None),
            f"4 warmups at {clock(6)}; max_warmup_replicas and max_drain_warmups together allow 3",
            [6],
        )
    ]
    assert found([*full, row(7)], first=7) == []
    for what in ("dropped", "standby", "next-owner"):
        assert found(in_order(settings(1, 2), DRAINS, *three, row(0, what, "a", "0_0"), fourth)) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((), ()),
        ((DRAINS, row(0, "undrain", "z")), (DRAINS,)),
        ((DRAINS, row(0, "gone", "z", until_ms=0)), (row(0, "undrain", "z"),)),
        ((DRAINS, row(0, "away", "z")), ()),
    ],
)
def test_drains_widen_the_budget_while_somebody_drains(before: Sequence[Row], after: Sequence[Row]) -> None:
    rows = in_order(settings(1, 2), *before, *copies("a", "b"), *after)
    last = next(one["seq"] for one in rows if one["member"] == "b")
    detail = f"2 warmups at {clock(last)}; nobody drains, and max_warmup_replicas allows 1"
    assert sentences(rows) == [("L8", detail)]
    again = in_order(settings(1, 2), *before, DRAINS, row(0, "drain", "y"), row(0, "undrain", "z"), *copies("a", "b"))
    assert sentences(again) == []


def test_a_budget_that_is_lowered_leaves_what_is_there() -> None:
    wide, narrow = settings(3, 1), settings(1, 1)
    third = copies("c", begin=2)
    assert found(in_order(wide, *copies("a", "b"), narrow)) == []
    assert len(found(in_order(wide, *copies("a", "b"), narrow, *third))) == 1
    assert len(found(in_order(narrow, *copies("a", "b"), wide, *third))) == 1


def test_a_standby_that_is_to_take_over_begins_no_warmup() -> None:
    """It had its copy already; it is counted when the next warmup begins."""
    turned = (*copies("a"), *copies("b", what="standby", begin=1), *copies("b", begin=1))
    assert found(in_order(settings(1, 1), *turned)) == []
    assert len(found(in_order(settings(1, 1), *turned, *copies("c", begin=2)))) == 1


def test_warmups_stay_within_the_budget_of_a_member() -> None:
    assert found(in_order(settings(9, 9, 2), *copies("a", "b", "a", "b"))) == []
    (one,) = found(in_order(settings(9, 9, 2), *copies("a", "b", "a", "a")))
    assert (one["law"], one["task"], one["member"], one["sequences"]) == ("L8", "0_3", "a", [5])
    assert one["detail"] == f"3 warmups on one member at {clock(5)}; max_warmups_per_member allows 2"


def test_a_decision_is_judged_by_what_it_comes_to() -> None:
    """Its records are written at one instant: what begins before another ends is not beyond the budget."""
    rows = in_order(settings(2, 1, 2), *copies("a", "a"), *copies("a", begin=2), *copies("a", what="dropped"))
    assert {detail.split(" at ")[0] for _, detail in sentences(rows)} == {"3 warmups", "3 warmups on one member"}
    begin, end = rows[-2:]
    assert found([*rows[:-2], begin, end | {"at_ms": begin["at_ms"]}]) == []


@pytest.mark.parametrize(
    ("config", "normal", "drains"),
    [
        (settings(1, 1), 1, 1),
        (settings(3, 2), 3, 2),
        # Of 40 tasks with state: those without do not count, and a share of a task is a whole one.
        (settings("10%", "20%"), 4, 8),
        (settings("12%", "12.4%"), 5, 5),
        # A share comes to one warmup at least, for drains to two.
        (settings("1%", "1%"), 1, 2),
        (settings("1%", 1), 1, 1),
    ],
)
def test_budgets_are_numbers_or_shares_of_tasks_with_state(config: Row, normal: int, drains: int) -> None:
    parts = Subtopology("0", 30), Subtopology("1", 50, stateful=False), Subtopology("2", 10)
    many, fewer = (row(0, "topology", whole=Topology(subtopologies=some)) for some in (parts, (Subtopology("0", 1),)))
    rows = in_order(many, config, settings(7, 6, 5), fewer)
    assert budgets_of(rows) == [None, (normal, drains, 9), (7, 6, 5), (7, 6, 5)]


def budgets_of(rows: Sequence[Row]) -> list[Budgets | None]:
    """Return the budgets behind each of some rows."""
    known = Ledger(plan_of(rows), BEGIN_MS)
    found = []
    for one in rows:
        known.take(Entry(*(one[name] for name in Entry._fields)))
        found.append(known.budgets)
    return found


def test_shares_of_an_unknown_or_empty_topology_are_the_least_budgets() -> None:
    for shape in ((), (row(0, "topology", whole=Topology()),)):
        assert set(budgets_of(in_order(settings("50%", "50%"), *shape))) == {(1, 2, 9)}


def test_where_the_beginning_is_lost_nobody_knows_which_tasks_have_state() -> None:
    """A task without state is taken over cold, and no law is broken by that."""
    assert [one["law"] for one in found(handed_over())] == ["L7"]
    assert found(handed_over(), base=1, known=False) == []
    assert [one["law"] for one in found(handed_over(before=[topology(s0=True)]), base=1, known=False)] == ["L7"]


def test_the_replay_knows_better_whether_a_chosen_copy_was_caught_up() -> None:
    """The log has only how a copy was when its owner had stopped."""
    rows = handed_over(COPY)
    assert [one["law"] for one in found(rows)] == ["L7"]
    assert found(rows, lawful=True) == []
    assert found(handed_over(), lawful=True) == found(handed_over()) != []
    both = [
        *rows,
        *(
            one | {"seq": one["seq"] + 20, "task": one["task"] and "0_1"}
            for one in in_order(grant("a", 1), grant("b", 2))
        ),
    ]
    assert {one["law"] for one in found(both, lawful=True)} == {"L1", "L2"}


NOT_AUDITED: Final = {
    "max_lost_share": "it begins a storm, which holds moves; L8 counts warmups and handovers",
    "max_heartbeats_per_s": "it says how often members speak, which no record tells",
}


def test_the_audit_knows_every_limit_of_a_group() -> None:
    """A limit that is new in the core is checked in the log as well, or named above with the reason why not."""
    limits = {field.name for field in fields(GroupConfig) if field.name.startswith("max_")}
    checked = {name for name in limits if f"config.{name}" in inspect.getsource(ledger)}
    assert limits - checked == NOT_AUDITED.keys()
