"""The benchmark of the service measures what it says that it measures; seen on a small group for a moment."""

import argparse

import pytest
from tests.benchmarks.groups import Shape
from tests.benchmarks.serving.__main__ import committed, handovers, heartbeats, polls
from tests.benchmarks.serving.commits import Persisted, persist


@pytest.mark.timeout(300)
async def test_every_part_runs(own_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each part names its bar and prints what was seen, in a form that people can read."""
    bars = committed(await persist(own_url, Shape(100, 4, 1), rounds=1, changes=2))
    asked = argparse.Namespace(rounds=1, seconds=0.3)
    bars += await heartbeats(own_url, 4, asked)
    bars.append(await handovers(own_url, 3))
    bars += await polls(own_url, 20)
    shown = capsys.readouterr().out
    assert [bar.what.partition(" ")[0] for bar in bars] == ["a", "heartbeats", "caught-up", "at", "20"]
    for words in ("persisting at 100 x 4", "bare:", "ours:", "one every 3 s", "caught up to told", "20 parked"):
        assert words in shown


def test_a_bar_is_about_the_size_that_it_names() -> None:
    """Only changes of some tasks and generations of 100,000 are held to bars."""
    large = Persisted(Shape(100_000, 1_000, 1), 1, 399, 500, 30, 1)
    assert [bar.holds for bar in committed(large)] == [True]
    small = Persisted(Shape(1_000, 10, 1), 1, 500, 100, 6, 1)
    assert [bar.holds for bar in committed(small)] == [False]
