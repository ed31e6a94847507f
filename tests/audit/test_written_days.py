"""The audit goes through written days: a clean one is decided again to the same, a faulty one is not. No Spark."""

from __future__ import annotations

import pytest
from tests.audit.retold import retold
from tests.audit.small_day import DAY, SCENARIO

from batonpass.days.generate import rows_of
from batonpass.days.plant import Fault, plant
from batonpass.days.rows import GroupRows


@pytest.fixture(scope="module")
def rows() -> GroupRows:
    """The rows that the small day leaves."""
    return rows_of(SCENARIO, DAY)


def test_a_clean_day_is_decided_again_to_the_same(rows: GroupRows) -> None:
    """Every traced decision is replayed, none differs, and no law is found broken."""
    again = retold(rows)
    assert again.told == []
    assert again.replayed == len(rows.tables["traces"]) > 50
    assert again.differing == 0


@pytest.mark.parametrize("fault", [Fault.TWO_OWNERS, Fault.COLD_PROMOTION])
def test_what_no_core_decided_is_found(rows: GroupRows, fault: Fault) -> None:
    """Of records that a defective coordinator wrote no trace tells; what it wrote beside them is as it would be."""
    again = retold(plant(rows, [fault]))
    (one,) = [one for one in again.told if one.law == "L10"]
    assert one.detail.startswith("no trace tells of the decision that made records")
    assert all("history" not in one.detail for one in again.told)


def test_a_hole_ends_the_replay(rows: GroupRows) -> None:
    """Beyond a missing record nothing can be followed, and that is said."""
    again = retold(plant(rows, [Fault.SEQUENCE_HOLE]))
    assert again.replayed < len(rows.tables["traces"])
    assert [one.law for one in again.told] == ["replay-incomplete"]
