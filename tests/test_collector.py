"""The garbage collector is spared of what lives as long as the process, and nothing else."""

import gc
import subprocess
import sys
import weakref

from batonpass.bootstrap import COLLECT_AFTER, spare_the_collector

COUNT = """
import gc
from batonpass.bootstrap import spare_the_collector
kept = [{} for _ in range(5_000)]
before = len(gc.get_objects())
spare_the_collector()
print(before, len(gc.get_objects()), gc.get_freeze_count(), *gc.get_threshold())
"""


class Ring:
    """An object that refers to itself, so that only a collection frees it."""

    def __init__(self) -> None:
        self.itself = self


def test_objects_from_before_the_server_are_not_collected_again() -> None:
    output = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True).stdout
    before, after, frozen, *thresholds = map(int, output.split())
    assert before > 5_000
    assert after < 100
    assert frozen >= 5_000
    assert tuple(thresholds) == COLLECT_AFTER


def test_circles_of_objects_that_are_made_later_are_freed() -> None:
    thresholds = gc.get_threshold()
    try:
        spare_the_collector()
        ring = Ring()
        gone = weakref.ref(ring)
        del ring
        gc.collect()
        assert gone() is None
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
