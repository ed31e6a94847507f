"""A small day: three workers with standbys, one that joins, a crash, a new coordinator, a restart and a drain."""

from datetime import date
from typing import Any

from batonpass.days.rows import COLUMNS, GroupRows
from batonpass.simulate.scenario.model import Act, Scenario, SimulatedSubtopology, Step, Worker

DAY = date(2026, 11, 20)
MINUTE = 60_000
NAMES = ("a", "b", "c")
SMALL = Scenario(
    name="small",
    group="small",
    subtopologies=(SimulatedSubtopology((100_000,) * 9, (10.0,) * 9),),
    workers=tuple(map(Worker, (*NAMES, "d"))),
    present=NAMES,
    config={"num_standby_replicas": 1},
    steps=(
        Step(30 * MINUTE, Act.JOIN, "d"),
        Step(60 * MINUTE, Act.CRASH, "a"),
        Step(62 * MINUTE, Act.RETURN, "a"),
        Step(90 * MINUTE, Act.COORDINATOR),
        Step(91 * MINUTE, Act.RESTART, "b"),
        Step(91 * MINUTE + 20_000, Act.RETURN, "b"),
        Step(120 * MINUTE, Act.DRAIN, "d"),
    ),
    until_ms=180 * MINUTE,
)


def column(rows: GroupRows, table: str, name: str) -> list[Any]:
    """Return one column of a table."""
    place = COLUMNS[table].index(name)
    return [row[place] for row in rows.tables[table]]
