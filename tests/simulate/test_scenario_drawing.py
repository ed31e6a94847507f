"""Days that are drawn at random."""

import pytest

from batonpass.simulate.scenario.drawing import draw_day


@pytest.mark.parametrize("seed", range(6))
def test_a_drawn_day_is_one_that_can_be(seed: int) -> None:
    day = draw_day(seed, events=2_000)
    assert len(day.present) >= 3
    assert day.task_count >= len(day.present)
    assert [step.at_ms for step in day.steps] == sorted(step.at_ms for step in day.steps)
    assert all(0 <= step.at_ms < 86_400_000 for step in day.steps)
    known = {worker.name for worker in day.workers}
    assert all(step.worker in known for step in day.steps if step.worker)
