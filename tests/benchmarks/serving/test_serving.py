"""The benchmark of the service measures what it says that it measures; seen on a small group for a moment."""

import argparse
import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.benchmarks.groups import Shape
from tests.benchmarks.serving.__main__ import HABITS, committed, doubling, handovers, heartbeats, polls, show_persisted
from tests.benchmarks.serving.commits import Persisted, persist
from tests.benchmarks.serving.population import POSITION, Played
from tests.benchmarks.serving.watched import busy_with, noted, watch
from tests.benchmarks.serving.wire import Answer
from tests.waiting import until
from tests.worker.scripted import answer, assignment, joined

from batonpass.worker.protocol import Progress


@pytest.mark.timeout(300)
async def test_every_part_runs(own_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    persisted = await persist(own_url, Shape(100, 4, 1), rounds=1, changes=2)
    show_persisted(persisted)
    bars = committed([persisted])
    options = argparse.Namespace(rounds=1, seconds=0.3)
    bars += await heartbeats(own_url, 4, options)
    bars.append(await handovers(own_url, 3))
    bars += await polls(own_url, 20, rounds=1)
    bars.append(await doubling(own_url, 2))
    shown = capsys.readouterr().out
    assert [bar.what.partition(" ")[0] for bar in bars] == ["a", "a", "at", "20", "no"]
    for words in (
        "persisting at 100 x 4",
        "bare, copies standing still:",
        "ours, copies standing still:",
        "ours, copies reading on:",
        "ours, copies reading on, each heartbeat naming them:",
        "one every 3 s, as they are told, copies reading on",
        "times the processor time of bare",
        "caught up to granted",
        "two bare hops with a row each",
        "20 parked",
        "20 parked long-polls, bare",
        "200 tasks on 2 members",
    ):
        assert words in shown


@pytest.mark.parametrize("copies", ["copies standing still", "copies reading on"])
def test_members_say_what_the_sdk_says(copies: str) -> None:
    """The same tasks in the same words, as rarely."""
    reads_on, lists_every = HABITS[copies]
    asked: dict[str, Any] = {"report_interval_ms": 10_000}
    picture = assignment(active={"0_0": 7}, standby=["0_1"])
    sdk, played = joined(1, picture, **asked), Played("")
    played.take(Answer(200, msgspec.json.encode(answer("a", 1, picture))))
    sdk.do("task_running", "0_0")

    def reads_to(position: int) -> None:
        sdk.do("input_lag", "0_0", position)
        sdk.do("copy_progress", "0_1", Progress(position=position, end_offset=position))

    reads_to(POSITION)
    sdk.beat(1, **asked)
    first = dict(sdk.last().body or {})
    assert msgspec.json.decode(played.body())["tasks"] == first["tasks"]
    played.reads_on, played.lists_every, played.seq = reads_on, lists_every, 4
    for seq in range(5, 17):
        reads_to(POSITION + seq * reads_on)
        sdk.beat(1, **asked)
        said = dict(sdk.last().body or {}) | {"seq": seq}
        assert msgspec.json.decode(played.body()) == said


def test_a_bar_is_about_the_size_that_it_names() -> None:
    """Only changes of some tasks, and how a first generation grows with its group, are held to bars."""
    small = Persisted(Shape(1_000, 10, 1), 1, 500, 100, 6, 1)
    middle = Persisted(Shape(10_000, 100, 1), 1, 40, 200, 30, 1)
    large = Persisted(Shape(100_000, 1_000, 1), 1, 601, 200, 30, 1)
    assert [bar.holds for bar in committed([small])] == [True]
    assert [bar.holds for bar in committed([replace(small, change=8.1)])] == [False]
    assert committed([large]) == []
    assert [bar.holds for bar in committed([middle, large])] == [False]
    assert [bar.holds for bar in committed([middle, replace(large, first=600)])] == [True]


def test_what_ran_is_named_by_the_innermost_call_of_each_thread() -> None:
    """The rest of a stack, and threads that wait, say nothing."""
    stacks = (
        'Thread 1:\n  File "/x/threading.py", line 5 in wait\n\n'
        'Thread 2:\n  File "/x/numpy.py", line 1 in add\n  File "/x/batonpass/core/handover/step.py", line 59 in take_step\n'
        '  File "/x/batonpass/core/decide.py", line 63 in decide\n\n'
        'Thread 3:\n  File "/x/batonpass/bootstrap.py", line 344 in serve\n'
    )
    assert busy_with(stacks) == "core/handover/step.py:59 in take_step"
    assert busy_with("") == "nothing of its own"


async def test_what_keeps_the_loop_is_noted_with_its_stack(tmp_path: Path) -> None:
    watching = asyncio.create_task(watch(tmp_path / "stalls"))
    await asyncio.sleep(0)
    time.sleep(1.5)  # noqa: ASYNC251 - that is what is noted
    await until(lambda: noted(tmp_path / "stalls"))
    watching.cancel()
    stall = max(noted(tmp_path / "stalls"), key=lambda one: one.ms)
    assert stall.ms > 1_000
    assert "test_what_keeps_the_loop" in stall.stacks.rpartition("\n\n")[2]
