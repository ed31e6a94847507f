"""The ledger looks at what was, not at what comes later, and forgets what nothing follows from."""

from collections.abc import Sequence

from tests.audit.by_hand import BEGIN_MS, TASK, Row, folded, found, in_order, plan_of, row
from tests.audit.test_checks import COPY, handed_over, settings

from batonpass.audit.entries import Entry
from batonpass.audit.facts import Interval, Warmup
from batonpass.audit.ledger import Ledger


def incarnations(count: int) -> list[Row]:
    """Return how a task goes from one member to the next, each of which runs it, and goes for good."""
    rows: list[Row] = []
    for number in range(count):
        member = f"m{number}"
        rows += [
            row(0, "joined", member, number=1, word="a"),
            row(0, "warmup", member, TASK, number=2),
            row(0, "active", member, TASK, number=3, token=number, ready=True),
            row(0, "reported", member, TASK, word="running"),
            row(0, "gone", member, until_ms=0, word="left"),
        ]
    return in_order(*rows)


def taken(rows: Sequence[Row]) -> tuple[Ledger, list[object]]:
    """Return the ledger behind some rows, and the facts before the end of the day."""
    ledger = Ledger(plan_of(rows), BEGIN_MS)
    facts = [fact for one in rows for fact in ledger.take(Entry(*(one[name] for name in Entry._fields)))]
    return ledger, list(facts)


def test_copies_of_members_that_are_gone_are_forgotten() -> None:
    """Else memory would grow with every restart; what was open of them has been said."""
    ledger, facts = taken(incarnations(200))
    assert len(ledger.tasks[TASK].copies) == 0
    assert sum(len(one.tasks) for one in ledger.members.values()) == 0
    assert sum(isinstance(one, Interval) for one in facts) == sum(isinstance(one, Warmup) for one in facts) == 200


def test_the_copy_of_a_member_whose_lease_goes_on_is_kept() -> None:
    rows = incarnations(1)
    ledger, _ = taken([*rows[:-1], rows[-1] | {"until_ms": BEGIN_MS + 80_000_000, "word": "expired"}])
    assert [one.licensed for one in ledger.tasks[TASK].copies.values()] == [True]


def test_a_suspicion_excuses_handovers_behind_it_and_not_before() -> None:
    rows = handed_over()
    suspected = row(len(rows) + 1, "suspected", "a")
    assert [one["law"] for one in found([*rows, suspected])] == ["L7"]
    assert found(handed_over(row(0, "suspected", "a"))) == []


def test_a_warmup_that_is_granted_again_counts_from_its_first_grant_on() -> None:
    """And once: it began when it was granted last, to a member that had a copy."""
    again = [row(0, "warmup", "a", TASK), row(0, "warmup", "a", TASK)]
    fold = folded(in_order(settings(1, 1), *again), plan_of([]))
    assert [(one.from_seq, one.fresh) for one in fold.warmups] == [(3, False)]
    other = row(0, "warmup", "b", "0_1")
    assert [one["sequences"] for one in found(in_order(settings(1, 1), again[0], other, again[1]))] == [[3]]


def test_nothing_is_proven_across_a_record_that_was_lost_before_the_day() -> None:
    """It may be the confirmation that the grant lacks."""
    rows = in_order(row(0, "active", "a", TASK, token=1), row(0), row(0), row(0, "active", "b", TASK, token=2))
    assert [one["law"] for one in found(rows, first=4)] == ["L1"]
    assert [one["law"] for one in found([rows[0], *rows[2:]], first=4)] == ["L2"]


def test_a_copy_that_comes_after_a_lost_topology_may_have_no_state() -> None:
    rows = handed_over(COPY)
    assert [one["law"] for one in found(rows)] == ["L7"]
    late = [one | {"seq": one["seq"] + 2, "at_ms": one["at_ms"] + 2_000} for one in rows]
    assert [one["law"] for one in found(late, first=1)] == ["L2"]


def test_a_member_whose_id_was_drawn_is_called_by_its_instance_and_run() -> None:
    """In every row that it is in; a chosen id is readable as it is."""
    drawn = [f"0f0e0d0c-0000-4000-8000-00000000000{number}" for number in range(3)]
    rows = [row(0, "joined", member, number=1, word="pod-1") for member in (*drawn[:2], "chosen")]
    rows += [row(0, "active", member, TASK, token=number) for number, member in enumerate([*drawn, "chosen"])]
    fold = folded(in_order(*rows), plan_of([]))
    assert [one.name for one in fold.intervals] == ["pod-1", "pod-1, run 2", drawn[2], "chosen"]
