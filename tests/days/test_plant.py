"""Faults are planted into a finished day, and into what is simulated of one."""

from tests.days.small_day import column

from batonpass.days.plant import Fault, oddities_of, plant
from batonpass.days.rows import GroupRows
from batonpass.simulate.scenario.drawing import ORDINARY, Oddities, draw_day
from batonpass.simulate.scenario.model import Act


def test_planted_rows_leave_the_day_alone(rows: GroupRows) -> None:
    before = rows.version, len(rows.tables["record_log"])
    plant(rows, tuple(Fault))
    assert (rows.version, len(rows.tables["record_log"])) == before


def test_two_owners_are_planted(rows: GroupRows) -> None:
    found = plant(rows, [Fault.TWO_OWNERS])
    added = found.tables["assignment_events"][rows.events :]
    assert [(row[5], row[7]) for row in added] == [("granted", "active"), ("reported", "active")]
    task, member = added[0][3], added[0][4]
    holders = [row for row in rows.tables["assignment_events"] if row[3] == task and row[7] == "active"]
    assert holders[-1][4] != member
    assert added[0][11] > holders[-1][11] >= 0
    assert found.version == rows.version + 2 == found.tables["record_log"][-1][1]


def test_a_cold_promotion_is_planted(rows: GroupRows) -> None:
    found = plant(rows, [Fault.COLD_PROMOTION])
    added = found.tables["assignment_events"][rows.events :]
    assert [row[5] for row in added] == ["revoked", "released", "granted", "reported"]
    assert added[2][13] is False
    assert (added[3][8] - added[2][8]).total_seconds() > 20
    kinds = [row[4] for row in found.tables["record_log"][rows.version :]]
    assert kinds == ["picture-changed", "task-released", "picture-changed", "active-reported"]


def test_a_hole_is_planted(rows: GroupRows) -> None:
    found = plant(rows, [Fault.SEQUENCE_HOLE])
    missing = set(range(1, rows.version + 1)) - set(column(found, "record_log", "seq"))
    assert len(missing) == 1
    assert found.version == rows.version


def test_the_oddities_of_a_day_are_simulated() -> None:
    """A stuck warmup is a member that restores next to nothing; a flapping one crashes again and again."""
    assert oddities_of([Fault.TWO_OWNERS]) == ORDINARY
    odd = draw_day(3, oddities=Oddities(stuck_warmup=True, flapping_member=True))
    assert {"stuck", "flapping"} <= {worker.name for worker in odd.workers}
    crashes = [step for step in odd.steps if step.worker == "flapping" and step.act is Act.CRASH]
    assert len(crashes) == 6
