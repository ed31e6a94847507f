"""At every moment of every story, whatever is not settled says what it waits for."""

from collections.abc import Callable

import pytest
from tests.runtime.stories import STORIES, StoryScene

from batonpass.core.handover.view import View
from batonpass.core.state.inputs import Input
from batonpass.core.state.replies import Reply
from batonpass.explain.group import explain_group
from batonpass.explain.task import TaskState, explain_task


def explained(scene: StoryScene) -> int:
    """Explain the group and each of its tasks; return how many tasks wait for something."""
    group, view = scene.group, View(scene.group, scene.soft, scene.now_ms)
    if not group.declared:
        return 0
    whole = explain_group(view, limit=1_000)
    assert sum(whole.health.states.values()) == len(group.table.ids)
    assert whole.sentences
    of_group = {one.task: one for one in whole.waiting}
    waiting = 0
    for task_id in group.table.ids:
        found = explain_task(view, task_id)
        assert found.sentences
        if task_id in group.unsettled:
            assert found.waits or found.state is TaskState.PARKED, (task_id, found)
            assert (of_group[task_id].waits, of_group[task_id].held) == (found.waits, found.held)
            waiting += 1
    assert not (whole.status.at_rest and waiting)
    return waiting


@pytest.mark.parametrize("story", STORIES)
def test_what_is_not_settled_says_what_it_waits_for(
    story: Callable[[], StoryScene], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, waits = StoryScene.do, []

    def do(scene: StoryScene, item: Input) -> Reply:
        reply = plain(scene, item)
        waits.append(explained(scene))
        return reply

    monkeypatch.setattr(StoryScene, "do", do)
    story()
    assert any(waits)
