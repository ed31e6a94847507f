"""The join storm is played to its end, and what is timed keeps the laws; seen on a small group."""

import pytest
from tests.benchmarks.groups import Shape
from tests.benchmarks.storm import KINDS, storm, storm_lines


@pytest.mark.parametrize("takes_ms", [0, 400])
def test_everybody_joins_and_the_group_comes_to_rest(takes_ms: float) -> None:
    """Members that come late take over from those that came first; the longer a decision takes, the fewer there are."""
    seen = storm(
        Shape(60, 12, 1),
        joins_a_second=3,
        laws=True,
        takes_ms=takes_ms,
        rebalance_batch_ms=50,
        initial_rebalance_delay_ms=1_000,
    )
    counts = {kind: len(spent) for kind, spent in seen.spent_ms.items()}
    assert counts["placement"] > 1
    assert counts["quiet batch"]
    assert set(counts) <= set(KINDS)
    assert seen.most_open
    assert len(storm_lines(seen)) == 2 + len(counts)
    assert sum(seen.inputs.values()) > sum(counts.values()) * (1.5 if takes_ms else 1)
