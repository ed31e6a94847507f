"""The rows of a day: what a service would have left, in the columns of the tables."""

import json
from dataclasses import replace

from tests.days.small_day import DAY, MINUTE, SMALL, column

from batonpass.days.generate import rows_of
from batonpass.days.rows import COLUMNS, GroupRows
from batonpass.postgres.tables import metadata
from batonpass.simulate.scenario.drawing import Oddities, draw_day
from batonpass.simulate.scenario.model import Act, Step


def test_the_columns_are_those_of_the_tables() -> None:
    for name, written in COLUMNS.items():
        table = metadata.tables[name]
        assert set(written) <= set(table.columns.keys())
        for one in table.columns.values():
            has_default = one.nullable or one.server_default is not None or one.identity is not None
            assert one.name in written or has_default


def test_times_are_those_of_the_decisions(rows: GroupRows) -> None:
    instants = column(rows, "record_log", "at")
    assert instants == sorted(instants)
    assert column(rows, "record_log", "seq") == list(range(1, rows.version + 1))
    at_version = dict(zip(column(rows, "traces", "version"), column(rows, "traces", "at"), strict=True))
    for version, at in zip(
        column(rows, "assignment_events", "version"), column(rows, "assignment_events", "at"), strict=True
    ):
        assert at_version[version] == at


def test_lags_are_sampled_every_minute(rows: GroupRows) -> None:
    assert len(rows.tables["samples"]) == 180 + 10
    assert len(json.loads(rows.tables["samples"][-1][2])) >= 18
    assert len(rows_of(replace(SMALL, until_ms=MINUTE), DAY, sample_every=5).tables["samples"]) == 3
    assert rows_of(replace(SMALL, until_ms=MINUTE), DAY, sample_every=0).tables["samples"] == []


def test_the_same_seed_is_the_same_day(rows: GroupRows) -> None:
    assert rows_of(SMALL, DAY) == rows
    assert draw_day(7) == draw_day(7) != draw_day(8)


def test_a_stuck_warmup_is_given_up() -> None:
    """The core says so after its stall timeout."""
    stuck = next(one for one in draw_day(3, oddities=Oddities(stuck_warmup=True)).workers if one.name == "stuck")
    day = replace(SMALL, workers=(*SMALL.workers, stuck), steps=(Step(MINUTE, Act.JOIN, "stuck"),), until_ms=8 * MINUTE)
    assert "warmup-stalled" in column(rows_of(day, DAY), "record_log", "kind")
