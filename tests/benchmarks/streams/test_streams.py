"""What the comparison measures is what it says, and what documents show of it is what its file says."""

import json
from pathlib import Path

import pytest
from tests.benchmarks.streams.measures import Figures, Window, figures_of, part_words, parts_of
from tests.benchmarks.streams.scenarios import ARMS, EVERY_JOB, SCENARIOS
from tests.benchmarks.streams.tables import DEMONSTRATION, DOCUMENTS, RESULTS, bars, filled, shortfalls, shown_beside
from tests.clients.streams_job import PARTITIONS

from batonpass.demo.job import Output
from batonpass.demo.ledger import Ledger

FOUND = json.loads(RESULTS.read_text())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_show_what_was_measured(document: Path) -> None:
    """`python -m tests.benchmarks.streams.tables` has nothing to write."""
    text = document.read_text()
    assert filled(text, FOUND) == text
    assert text.count("<!-- compare-streams: ") >= 2


def test_the_demonstration_shows_it_too() -> None:
    assert DEMONSTRATION.read_text() == shown_beside(FOUND)


def test_the_file_was_written_by_this_comparison() -> None:
    assert {(run["scenario"], run["arm"]) for run in FOUND["runs"]} <= {
        (s.name, a.name) for s in SCENARIOS for a in ARMS
    }
    assert FOUND["job"].items() >= EVERY_JOB.items()
    assert FOUND["arms"] == {arm.name: {"what": arm.what, **arm.settings} for arm in ARMS}
    assert FOUND["scenarios"] == {each.name: {"what": each.what, "standbys": each.standbys} for each in SCENARIOS}


def test_lost_moved_and_unmoved_tasks_are_told_apart() -> None:
    """C dies: its tasks go to A and B, one of A's goes to B and back, and one of B's to A for good."""
    ledger = Ledger(PARTITIONS, stateful=False)
    for task in range(PARTITIONS):
        before = "ABC"[task // 4]
        changes = {0: [(2_000, "A"), (3_500, "B"), (9_999, "A")], 4: [(2_500, "B"), (9_999, "A")]}
        stretches = changes.get(task, [(2_000, before), (9_999, "AB"[task % 2] if before == "C" else before)])
        at_ms = offset = 0
        for until_ms, writer in stretches:
            while at_ms < until_ms:
                ledger.note(task, b"k", Output(offset, 0, 1, writer), at_ms)
                at_ms, offset = at_ms + 100, offset + 1
            # Whoever takes a task over needs a while, and the longer where somebody has died.
            at_ms += 3_000 if task >= 8 else 400
    window = Window((0, 1_900), 1_950, 7_950, 9_900)
    events = [
        [
            {"at": 1_000, "event": "progress", "behind": 0, "read": 40},
            {"at": 3_000, "event": "progress", "behind": 9, "read": 100},
            {"at": 4_000, "event": "restored", "partition": 1, "records": 7},
        ]
    ]
    figures = figures_of(ledger, window, lost=frozenset("C"), alive="AB", events=events)
    assert (figures["needed"], figures["moved"], figures["handovers"]) == (4, 5, 7)
    assert (figures["rest_s"], figures["restored"]) == (6.0, {"waited_for": 7, "beside": 60})
    silence = figures["silence_ms"]
    assert silence["lost"] == {"tasks": 4, "p50": 3_100, "max": 3_100}
    assert silence["moved"] == {"tasks": 2, "p50": 500, "max": 500}
    assert silence["unmoved"]["tasks"] == 6
    assert silence["quiet"] == {"tasks": 12, "p50": 100, "max": 100}


def test_a_silence_is_divided_into_its_parts() -> None:
    """A gives task 0 up and B restores 7 records of it; the old owner of task 1 is not heard of again."""
    ledger = Ledger(2, stateful=False)
    for task in (0, 1):
        for offset, (writer, at_ms) in enumerate([("A", 1_000), ("B", 1_900)]):
            ledger.note(task, b"k", Output(offset, 0, 1, writer), at_ms)
    events = [
        [{"at": 1_010, "event": "closed", "partition": 0}, {"at": 1_500, "event": "progress", "read": 0}],
        [
            {"at": 300, "event": "opened", "partition": 0},
            {"at": 1_300, "event": "restoring", "partition": 0},
            {"at": 1_700, "event": "restored", "partition": 0, "records": 7},
            {"at": 1_710, "event": "opened", "partition": 0},
            {"at": 1_800, "event": "opened", "partition": 1},
        ],
    ]
    first, second = parts_of(ledger, Window((0, 500), 500, None, 2_000), events, [1_005, 1_200])
    assert part_words(first) == (
        "task 0, A to B, ms: closed 10, decided 200, restoring 300, restored 700, opened 710, output 900;"
        " 7 records restored"
    )
    assert part_words(second) == (
        "task 1, A to B, ms: closed -, decided 5, restoring -, restored -, opened 800, output 900; 0 records restored"
    )


def run(**figures: object) -> Figures:
    """Return the figures of a run that fell short of nothing, but for these."""
    whole = {"scenario": "3-to-4", "arm": "batonpass", "moved": 3, "needed": 3, "rest_s": 30.0, "watched_s": 40.0}
    return whole | dict.fromkeys(("missing", "doubled", "wrong_totals"), 0) | figures


@pytest.mark.parametrize(
    ("figures", "shortfall"),
    [
        ({"missing": 2}, "3-to-4, batonpass: 2 missing"),
        ({"arm": "kafka", "doubled": 1}, "3-to-4, kafka: 1 doubled"),
        ({"wrong_totals": 4}, "3-to-4, batonpass: 4 wrong_totals"),
        ({"moved": 4}, "3-to-4, batonpass: 4 moved for 3, at rest after: 30 s"),
        ({"rest_s": None}, "3-to-4, batonpass: 3 moved for 3, at rest after: not within 40 s"),
        ({"errors": ["a fault"]}, "3-to-4, batonpass: an instance failed: a fault"),
        ({"failed": "no rest"}, "3-to-4, batonpass: no rest"),
    ],
)
def test_a_run_that_falls_short_is_named_with_its_figure(figures: Figures, shortfall: str) -> None:
    """It makes the exit code 1."""
    assert shortfalls({"runs": [run(**figures)]}) == [f"MISSED: {shortfall}"]


def test_others_may_move_more_than_is_needed() -> None:
    """That is what is measured; nor do they have to come to rest."""
    assert shortfalls({"runs": [run(), run(arm="kafka", moved=9, rest_s=None)]}) == []


def test_a_figure_at_its_bar_has_missed_it() -> None:
    silence = {"moved": {"p50": 799, "max": 1_100}, "unmoved": {"p50": 80, "max": 199}}
    lines = bars({"runs": [run(silence_ms=silence), run(arm="kafka", silence_ms=silence)]})
    assert [line.split(":")[0] for line in lines] == ["reached", "reached", "MISSED", "reached"]
