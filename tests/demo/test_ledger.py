"""The account of a job's outputs: what is missing, doubled or forgotten shows, and silences are the records' own."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.demo.job import Output
from batonpass.demo.ledger import Ledger, quiet_for, silences

A, B = "demo-1", "demo-2"


def noted(*outputs: tuple[int, int, str], stateful: bool = False) -> Ledger:
    """Return a ledger of one task with outputs of (offset, time, writer)."""
    ledger = Ledger(1, stateful=stateful)
    for offset, at_ms, writer in outputs:
        ledger.note(0, b"customer", Output(offset, 0, 1, writer), at_ms)
    return ledger


def test_every_input_once_is_a_clean_account() -> None:
    account = noted((0, 10, A), (1, 20, A), (2, 30, B)).account([3])
    assert account.is_clean
    assert (account.taken_in, account.put_out) == (3, 3)


@pytest.mark.parametrize(
    ("offsets", "missing", "doubled"),
    [
        ([0, 2], 1, 0),
        ([0, 1], 1, 0),
        ([], 3, 0),
        ([0, 1, 1, 2], 0, 1),
        ([0, 1, 2, 0, 1, 2], 0, 3),
        ([0, 2, 1], 0, 0),
        ([0, 1, 2, 3], 0, 1),
        ([1, 2, 2], 1, 1),
    ],
)
def test_what_is_missing_or_doubled_is_counted(offsets: list[int], missing: int, doubled: int) -> None:
    account = noted(*((offset, 10 * number, A) for number, offset in enumerate(offsets))).account([3])
    assert (account.missing, account.doubled) == (missing, doubled)
    assert account.is_clean == (not missing and not doubled)


@settings(deadline=None)
@given(st.permutations(list(range(12))), st.lists(st.integers(0, 11), max_size=5))
def test_the_account_does_not_depend_on_the_order(offsets: list[int], again: list[int]) -> None:
    account = noted(*((offset, number, A) for number, offset in enumerate([*offsets, *again]))).account([12])
    assert (account.missing, account.doubled) == (0, len(again))


@pytest.mark.parametrize(("amounts", "wrong"), [([1, 2, 3], 0), ([1, 1, 2], 1), ([1, 3, 4], 1), ([2], 1)])
def test_a_total_that_forgot_or_counted_twice_is_wrong(amounts: list[int], wrong: int) -> None:
    """A state that was lost or doubled breaks the row of totals, each one amount above the one before."""
    ledger = Ledger(1, stateful=True)
    for offset, count in enumerate(amounts):
        ledger.note(0, b"customer", Output(offset, count, 1, A), offset)
    account = ledger.account([len(amounts)])
    assert (account.wrong_totals, account.is_clean) == (wrong, wrong == 0)


def test_customers_are_told_apart_by_task() -> None:
    ledger = Ledger(2, stateful=True)
    for task in (0, 1):
        ledger.note(task, b"customer", Output(0, 1, 5, A), 10)
    assert ledger.account([1, 1]).is_clean


def test_a_handover_is_a_change_of_writer() -> None:
    """Its gap is the silence between the last record of the one and the first of the other."""
    ledger = noted((0, 100, A), (1, 110, A), (2, 190, B), (3, 200, B), (4, 260, A))
    assert [(one.giver, one.taker, one.gap_ms) for one in ledger.handovers((0, 300))] == [(A, B, 80), (B, A, 60)]
    assert [one.gap_ms for one in ledger.handovers((195, 300))] == [60]
    assert ledger.handovers((260, 300)) == []


@pytest.mark.parametrize(
    ("window", "longest"),
    [((0, 300), 130), ((150, 300), 130), ((240, 300), 60), ((0, 105), 5), ((0, 200), 90), ((240, 400), 160)],
)
def test_the_longest_silence_of_a_window(window: tuple[int, int], longest: int) -> None:
    """A silence counts where it ends, whole; one that goes on at the end of the window counts up to there."""
    ledger = noted((0, 100, A), (1, 110, A), (2, 240, B))
    assert ledger.longest_silence(0, window) == longest
    assert silences(ledger, [0], [(0, 1), window]) == [longest]


def test_the_writer_at_a_time_and_the_number_of_outputs_of_a_stretch_are_known() -> None:
    ledger = noted((0, 100, A), (1, 110, A), (2, 240, B))
    assert [ledger.writer_at(0, at) for at in (99, 100, 200, 240)] == [None, A, A, B]
    assert ledger.put_out_within(0, (100, 240)) == 2
    assert (ledger.first_at(0), ledger.last_at(0), ledger.writers_of(0)) == (100, 240, {A, B})


def test_quiet_windows_are_as_long_as_the_phase_and_the_nearest() -> None:
    """Of the last window taken, the part that is nearest."""
    quiet = [(0, 100), (200, 230), (400, 500)]
    assert quiet_for((250, 290), quiet) == [(200, 230), (400, 410)]
    assert quiet_for((250, 270), quiet) == [(210, 230)]
    assert quiet_for((500, 10_000), quiet) == quiet
