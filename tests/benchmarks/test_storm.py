"""The join storm is played to its end, and what is timed keeps the laws; seen on a small group."""

import pytest
from tests.benchmarks.groups import Shape
from tests.benchmarks.storm import KINDS, storm, storm_lines

from batonpass.core import agenda


@pytest.mark.parametrize("fewest", [0, 1 << 60])
def test_everybody_joins_and_the_group_comes_to_rest(fewest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that come late take over from those that came first, whether or not what was found out is kept."""
    monkeypatch.setattr(agenda, "FEWEST", fewest)
    seen = storm(Shape(60, 12, 1), joins_a_second=3, laws=True, rebalance_batch_ms=50, initial_rebalance_delay_ms=1_000)
    counts = {kind: len(spent) for kind, spent in seen.spent_ms.items()}
    # What a join finds due it has placed in the same decision.
    assert 0 < counts["join"] <= 12
    assert counts["placement"] > 1
    assert counts["quiet heartbeat"]
    assert set(counts) <= set(KINDS)
    assert seen.most_open
    assert len(storm_lines(seen)) == 2 + len(counts)


def test_a_storm_is_the_same_with_and_without_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many inputs, as many records, and at rest at the same moment."""
    seen = []
    for fewest in (0, 1 << 60):
        monkeypatch.setattr(agenda, "FEWEST", fewest)
        one = storm(Shape(90, 9, 1), joins_a_second=2, max_warmup_replicas=4, max_warmups_per_member=2)
        seen.append(
            (one.records, one.rested_ms, one.most_open, {kind: len(spent) for kind, spent in one.spent_ms.items()})
        )
    assert seen[0] == seen[1]
