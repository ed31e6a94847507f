"""Whatever befalls honest workers, every decision keeps the laws, and the group finds its rest."""

import gc
import os

import pytest
from tests.core.luck import Luck

SEEDS = int(os.environ.get("BATONPASS_LUCK", "10"))
"""How many seeds are played; ``make soak`` plays more."""


@pytest.mark.no_cover
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_bad_luck_breaks_a_law_or_keeps_a_group_from_its_rest(seed: int, *, together: bool) -> None:
    """Kills, losses, drains, pauses, restarts and settings that change, in the middle of warmups and handovers."""
    luck = Luck(seed, together=together)
    for _ in range(250):
        luck.step()
    luck.peace()


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", [2, 15, 30])
def test_nor_does_load_that_is_measured_and_wanders(seed: int) -> None:
    luck = Luck(seed, together=bool(seed % 2), measured=True)
    for _ in range(250):
        luck.step()
    luck.peace()
    assert luck.group.load_moves


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(6))
def test_nor_does_a_subtopology_that_goes_and_comes_in_the_middle_of_it(seed: int) -> None:
    """Members hold its tasks for a while, report them, and ran them when they were drained, full, or lost."""
    luck = Luck(seed, together=bool(seed % 2), measured=seed % 3 == 0)
    for number in range(250):
        if number % 7 == 0:
            luck.cut_or_mended()
        luck.step()
    luck.peace()


@pytest.mark.no_cover
def test_what_decisions_do_not_need_any_more_is_freed_at_once() -> None:
    """Nothing of it is in a circle: the collector may be as lazy as it likes, and groups are large."""
    luck = Luck(3, together=True, measured=True)
    luck.step()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(150):
            luck.step()
        gc.collect()
        assert {type(one).__name__ for one in gc.garbage if type(one).__module__.startswith("batonpass.")} == set()
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
