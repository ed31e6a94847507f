"""Figures, tables and bars: `--json` prints these fields and no others, and a run that falls short says so."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from batonpass.demo.figures import PhaseFigures, RunFigures, Spread
from batonpass.demo.job import Job, Output, read_state, state
from batonpass.demo.ledger import Account, Handover, Ledger
from batonpass.demo.picture import picture
from batonpass.demo.tables import bars, kafka_streams, phase_table, run_table
from batonpass.demo.workers import Restore, Workers

KEYS = {
    "name", "moves", "moves_needed", "handovers", "rest_s", "restored_records", "gap_moved_ms", "gap_unmoved_ms",
    "quiet_gap_ms", "unanswered_reads",
}  # fmt: skip
CLEAN = Account(taken_in=100, put_out=100, missing=0, doubled=0, wrong_totals=0)


def phase(name: str = "scale-out", *, gap: int = 90) -> PhaseFigures:
    """Return the figures of a phase in which everything went well."""
    moved = [Handover(0, "demo-1", "demo-4", 1_000, gap)]
    return PhaseFigures(
        name=name,
        group="demo",
        window=(0, 20_000),
        moves=1,
        moves_needed=1,
        handovers=moved,
        handovers_needed=1,
        rest_s=14.0,
        restore_s=9.0,
        restored_records=20_000,
        moved=[gap],
        unmoved=[60, 70],
        quiet=[70, 80],
        unanswered_reads=0,
        reads=100,
        reads_by_copies=3,
    )


def missed(*phases: PhaseFigures, account: Account = CLEAN) -> list[str]:
    """Return the bars that a run misses."""
    return [bar.text for bar in bars(RunFigures([*phases], [account])) if not bar.held]


def test_of_few_values_the_99th_in_a_hundred_is_the_largest() -> None:
    """By nearest rank."""
    assert Spread.of([]) == Spread(None, None, None)
    assert Spread.of([30, 10, 20]) == Spread(20, 30, 30)
    assert Spread.of(range(1, 201)) == Spread(100, 198, 200)


def test_the_object_has_the_fields_that_were_promised() -> None:
    body = RunFigures([phase()], [CLEAN, CLEAN]).body()
    assert body.keys() == {"phases", "records"}
    assert body["phases"][0].keys() == KEYS
    assert body["phases"][0]["gap_moved_ms"] == {"p50": 90, "p99": 90, "max": 90}
    assert body["records"] == {"in": 200, "out": 200, "missing": 0, "doubled": 0}
    json.dumps(RunFigures([phase()], [CLEAN]).body())


def test_a_run_that_reaches_everything_misses_nothing() -> None:
    assert missed(phase(), phase("crash", gap=2_400), phase("scale-out-eager", gap=20_000)) == []


@pytest.mark.parametrize(
    ("change", "bar"),
    [
        ({"moves": 2}, "moves exactly as many as needed in every phase"),
        ({"handovers": []}, "handovers exactly as many as needed in every phase"),
        ({"unanswered_reads": 1}, "no read unanswered where tasks have standbys or a running owner"),
        ({"rest_s": 19.1}, "scale-out: rest within the restores' own time and 10 s"),
        ({"unmoved": [81]}, "scale-out: gap of unmoved tasks no longer than quiet ones"),
        ({"moved": [150] * 50}, "warm handover gap p50 under 150 ms, p99 under 500 ms"),
        ({"moved": [100] * 50 + [500]}, "warm handover gap p50 under 150 ms, p99 under 500 ms"),
    ],
)
def test_a_figure_beyond_its_bar_misses_that_bar_and_no_other(change: dict[str, object], bar: str) -> None:
    assert missed(replace(phase(), **change)) == [bar]  # type: ignore[arg-type]


def test_a_slow_crash_and_a_quick_eager_move_fall_short() -> None:
    """Immediate reassignment has to be fifty times worse."""
    assert missed(phase("crash", gap=3_000)) == ["kill -9 with a ready standby: gap under 3000 ms"]
    quick_eager = [phase(), phase("scale-out-eager", gap=90 * 49)]
    assert missed(*quick_eager) == ["immediate reassignment at least 50 times worse (p50)"]


@pytest.mark.parametrize("field", ["missing", "doubled", "wrong_totals"])
def test_a_record_that_is_lost_or_doubled_misses_its_bar(field: str) -> None:
    account = CLEAN._replace(**{field: 1})
    assert missed(phase(), account=account) == ["every input record accounted for exactly once"]
    assert not RunFigures([], [account]).is_clean


def test_tables_show_what_was_seen() -> None:
    console = Console(record=True, width=220, file=io.StringIO())
    console.print(phase_table(phase()), run_table(RunFigures([phase()], [CLEAN])))
    shown = console.export_text()
    assert "90 / 90 / 90" in shown
    assert "1 of 1" in shown
    beside = kafka_streams("scale-out")
    assert " moved for 3; " in beside
    assert beside in shown
    assert not kafka_streams("warm-handovers")


def test_a_picture_has_a_row_for_each_task_and_a_hole_where_nothing_came() -> None:
    ledger = Ledger(2, stateful=False)
    for number in range(60):
        if not 20 <= number < 40:
            ledger.note(0, b"c", Output(number, 0, 1, "demo-1" if number < 20 else "demo-2"), number * 100)
        ledger.note(1, b"c", Output(number, 0, 1, "demo-1"), number * 100)
    drawn = picture("a <title>", ledger, (0, 6_000), [phase()], 10)
    assert drawn.startswith("<svg")
    assert drawn.count("<path") == 3
    assert "a &lt;title&gt;" in drawn
    assert drawn.count('text-anchor="end"') == 2


def test_states_and_outputs_are_read_as_they_were_written() -> None:
    """A customer's state has its fixed size; no state is a total of nothing."""
    assert read_state(state(12, 3_456)) == (12, 3_456)
    assert len(state(1, 1)) == 200
    assert read_state(None) == (0, 0)
    output = Output(7, 2, 500, "demo-1")
    assert Output.decode(output.encode()) == output


def test_the_time_of_restores_is_that_of_their_union() -> None:
    """What goes on counts up to the end; a restore of nothing does not count."""
    job = Job(bootstrap="", group="demo", tasks=1, customers=1, rate=1)
    workers = Workers(job, infrastructure=None, commit_interval_ms=100)  # type: ignore[arg-type]
    workers.restores = [
        Restore("demo-4", "0_0", 1_000, 3_000, 10),
        Restore("demo-4", "0_1", 2_000, 4_000, 10),
        Restore("demo-4", "0_2", 6_000, 7_000, 10),
        Restore("demo-4", "0_3", 8_000, 9_000, 0),
    ]
    assert workers.restoring_ms((0, 10_000)) == 4_000
    assert workers.restoring_ms((0, 2_500)) == 1_500
    assert workers.restored((0, 6_500)) == 20
