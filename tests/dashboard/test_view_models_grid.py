"""Tasks by members: cells, matrix, tiles."""

import time

import pytest
from tests.dashboard.fleet import Fleet, at, member, warm

from batonpass.dashboard.view_models.grid import (
    TONE_WORDS,
    Cell,
    cells_of,
    copies_of,
    fits_matrix,
    natural,
    rows_of,
    targets_by_task,
    task_tiles,
    tasks_of,
    tones_of,
    worst_tone,
)
from batonpass.dashboard.view_models.members import member_lines, member_tiles
from batonpass.dashboard.words import DASH, Names, counted

NAMES = Names()


def cell(role: str, report: dict[str, object] | None) -> Cell:
    """Return the cell of a task that a member has in a role and reported so."""
    one = member("m", [], [])
    if role == "active":
        one["assignment"]["active"] = [{"task": "t_0", "fencing_token": 1}]
    else:
        one["assignment"][role] = ["t_0"]
    one["reports"] = {} if report is None else {"t_0": {"role": role, "at": at()} | report}
    return cells_of(one, 100, NAMES)["t_0"]


@pytest.mark.parametrize(
    ("role", "report", "letter", "tone", "note"),
    [
        ("active", {"state": "running"}, "A", "ok", ""),
        ("active", {"state": "restoring", "lag": 4_115}, "R", "warn", "4.1k"),
        ("active", {"state": "restoring", "lag": None}, "R", "warn", ""),
        ("active", {"state": "failed", "detail": "disk"}, "!", "bad", ""),
        ("active", None, "…", "move", ""),
        ("standby", {"lag": 100}, "S", "copy", ""),
        ("standby", {"lag": 101}, "S", "behind", "101"),
        ("standby", {"lag": None}, "S", "behind", "?"),
        ("warmup", {"lag": 12_000}, "W", "warm", "12k"),
        ("warmup", None, "W", "warm", "?"),
    ],
)
def test_a_cell_shows_role_and_lag(
    role: str, report: dict[str, object] | None, letter: str, tone: str, note: str
) -> None:
    """The letter is for those who cannot tell colours apart; no data is not zero."""
    found = cell(role, report)
    assert (found.letter, found.tone, found.note) == (letter, tone, note)


def test_a_revocation_that_is_not_confirmed_stands_where_the_task_was() -> None:
    one = member("m", ["t_1"], ["t_0"], revoking=["t_0", "t_1", "t_2"])
    assert {task: found.letter for task, found in cells_of(one, 100, NAMES).items()} == {
        "t_0": "…",
        "t_1": "A",
        "t_2": "…",
    }


def test_a_matrix_has_a_column_for_each_member_and_marks_where_a_task_belongs() -> None:
    members = [member("m1", ["t_0"], ["t_1"]), member("m2", ["t_1"], [])]
    warm(members[1], "t_0", 50)
    copies = copies_of(members, 100, NAMES)
    found = rows_of(["t_0", "t_1", "t_2"], copies, {"t_0": "m2", "t_1": "m2"})
    assert [[row.cells[name].letter if name in row.cells else None for name in ("m1", "m2")] for row in found] == [
        ["A", "W"],
        ["S", "A"],
        [None, None],
    ]
    assert [(row.owner, row.target, row.tone) for row in found] == [
        ("m1", "m2", "warm"),
        ("m2", "m2", "ok"),
        (None, None, "bad"),
    ]


def test_a_list_of_tasks_names_the_active_first() -> None:
    """It stands where no matrix can be read."""
    members = [member("m1", [], ["t_0"]), member("m2", ["t_0"], [])]
    (row,) = rows_of(["t_0"], copies_of(members, 100, NAMES), {})
    assert list(row.cells) == ["m2", "m1"]


def test_tiles_stand_for_many_and_show_the_worst() -> None:
    members = [member(f"m{number}", [f"t_{number}"], []) for number in (10, 2, 1)]
    members[0]["silent"] = True
    members[1]["draining"] = True
    tiles = member_tiles(member_lines(members, 100, NAMES))
    assert [(tile.label, tile.tone) for tile in tiles] == [("m10", "bad"), ("m2", "warn"), ("m1", "ok")]
    assert (tiles[0].numbers, tiles[0].title) == ("1", "m10: 1 active task, fallen silent")


def test_tiles_of_members_show_their_measured_load() -> None:
    (tile,) = member_tiles(member_lines([member("m1", ["t_0"], []) | {"load": 0.8125}], 100, NAMES))
    assert (tile.numbers, tile.title) == ("1 · 0.81", "m1: 1 active task, load 0.81 per capacity, stable")


def test_blocks_of_tasks_count_what_is_not_just_running() -> None:
    topology = {"subtopologies": [{"id": "t", "partitions": 150}, {"id": "u", "partitions": None}]}
    members = [member("m1", [f"t_{number}" for number in range(149)], [])]
    found = task_tiles(topology, tones_of(tasks_of(topology), copies_of(members, 100, NAMES)))
    assert [(tile.label, tile.tone, tile.numbers) for tile in found["t"]] == [
        (f"0{DASH}99", "ok", ""),
        (f"100{DASH}149", "bad", "1"),
    ]
    assert found["u"] == []
    assert tasks_of(topology)[:2] == ["t_0", "t_1"]


def test_a_thousand_members_and_ten_thousand_tasks_are_shaped_in_no_time() -> None:
    """In less than a second and a half of computing."""
    fleet = Fleet.of(1_000, 10_000)
    began = time.process_time()
    copies = copies_of(fleet.members, 100, NAMES)
    tiles = member_tiles(member_lines(fleet.members, 100, NAMES))
    tones = tones_of(fleet.tasks, copies)
    blocks = task_tiles(fleet.group_get()["topology"], tones)
    took = time.process_time() - began
    assert {words: amount for _, words, amount in counted(TONE_WORDS, tones.values())} == {
        "not processed": 2,
        "restoring, or of silent members": 9,
        "warming up elsewhere": 1,
        "running": 9_988,
    }
    assert (len(tiles), sum(map(len, blocks.values()))) == (1_000, 100)
    assert [tile.tone for tile in tiles[:6]] == ["bad", "bad", "warn", "warm", "warm", "ok"]
    assert took < 1.5


def test_what_fits_is_shown_as_a_matrix() -> None:
    """Beyond 24 columns or 240 rows a matrix is not readable."""
    assert [fits_matrix(24, 240), fits_matrix(25, 1), fits_matrix(1, 241)] == [True, False, False]


def test_names_sort_by_their_numbers_the_worst_of_nothing_is_none_and_targets_turn_round() -> None:
    assert sorted(["d-10", "d-2", "d-1x"], key=natural) == ["d-1x", "d-2", "d-10"]
    assert worst_tone([]) == "none"
    assert targets_by_task({"target": {"m1": {"active": ["t_0"], "standby": []}}}) == {"t_0": "m1"}


def test_what_a_silent_member_ran_is_not_said_to_run() -> None:
    one = member("m1", ["t_0"], [])
    for silent, tone, words in ((True, "warn", "when it was last heard"), (False, "ok", "runs t_0")):
        cells = cells_of(one | {"silent": silent}, 100, Names()).values()
        assert {cell.tone for cell in cells if cell.letter == "A"} == {tone}
        assert all(words in cell.title for cell in cells if cell.letter == "A")
