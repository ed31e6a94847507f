"""A task's ownership timeline says the same as the events do, and survives a beginning that is missing."""

from collections.abc import Callable

import pytest
from tests.runtime.stories import (
    STORIES,
    TASK,
    A,
    B,
    StoryScene,
    dies_before_it_confirms,
    expires,
    fails,
    hands_over,
    is_suspected,
    leaves,
)

from batonpass.codec.changes import Change, changes_of
from batonpass.core.state.inputs import Input
from batonpass.core.state.replies import Reply
from batonpass.runtime.runs_of import Run, runs_of

DONE = frozenset({"handover-done", "takeover-done", "task-recovered"})


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> list[Change]:
    """Collect the changes of every story that is played."""
    found: list[Change] = []
    plain = StoryScene.do

    def do(scene: StoryScene, item: Input) -> Reply:
        before = scene.group
        reply = plain(scene, item)
        assert scene.last is not None
        found.extend(changes_of(before, scene.last.records, scene.group, {}, scene.now_ms))
        return reply

    monkeypatch.setattr(StoryScene, "do", do)
    return found


def runs(changes: list[Change], task: str = TASK) -> list[Run]:
    """Return the runs of one task."""
    return runs_of(change for change in changes if change.task == task)


@pytest.mark.parametrize("story", STORIES)
def test_gaps_are_those_that_the_events_tell(story: Callable[[], StoryScene], changes: list[Change]) -> None:
    """Each event that closes a gap has a run that began then, on that member, after a gap of that length."""
    for event in story().events:
        if event.type in DONE and event.task is not None:
            begun = [run for run in runs(changes, event.task) if run.running_ms == event.at_ms]
            exact = (event.body.get("gap_is_lower_bound", False), event.body.get("gap_at_most_ms"))
            found = [(run.member, run.gap_ms, run.gap_is_lower_bound, run.gap_at_most_ms) for run in begun]
            assert found == [(event.member, event.body["gap_ms"], *exact)]


def test_a_handover_is_the_end_of_one_run_and_the_beginning_of_the_next(changes: list[Change]) -> None:
    scene = hands_over()
    begun, done = scene.events[-3], scene.events[-1]
    first, second = runs(changes, str(done.task))
    assert begun.type == "handover-begun"
    assert (first.member, first.token, first.ended, first.gap_ms) == (A, 1, "revoked", None)
    assert (second.member, second.token, second.warm, second.gap_ms) == (B, 2, True, 400)
    assert first.stopped_ms == second.granted_ms
    assert (second.running_ms, second.stopped_ms, second.ended) == (done.at_ms, None, "")


@pytest.mark.parametrize(
    ("story", "ended", "is_lower_bound"),
    [
        (leaves, "left", False),
        (expires, "expired", True),
        (is_suspected, "suspected", True),
        (dies_before_it_confirms, "evicted", True),
    ],
)
def test_a_gap_after_an_owner_that_did_not_say_that_it_stopped_is_a_lower_bound(
    story: Callable[[], StoryScene], ended: str, *, is_lower_bound: bool, changes: list[Change]
) -> None:
    story()
    *_, before, last = runs(changes)
    assert (before.ended, last.gap_is_lower_bound) == (ended, is_lower_bound)
    assert (last.gap_at_most_ms is not None) is is_lower_bound


def test_an_owner_that_falls_back_ends_its_run_and_begins_another(changes: list[Change]) -> None:
    fails()
    ends = [(run.token, run.ended) for run in runs(changes) if run.member == A]
    assert ends == [(1, "failed"), (1, "lost"), (1, "restoring"), (1, "evicted")]


def test_a_timeline_without_its_beginning_leaves_the_first_grant_unknown(changes: list[Change]) -> None:
    expires()
    rows = [change for change in changes if change.task == TASK]
    whole = runs_of(rows)
    cut = runs_of(rows[1:])
    assert cut[0].granted_ms is None
    assert (cut[0].member, cut[0].ended, cut[-1]) == (whole[0].member, whole[0].ended, whole[-1])
    assert runs_of([]) == []
    for start in range(len(rows)):
        runs_of(rows[start:])
