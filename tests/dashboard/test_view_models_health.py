"""The tasks of a group that are not processed, as its page lists them."""

from __future__ import annotations

import re

import pytest
from tests.dashboard.fleet import Fleet
from tests.dashboard.situations import SITUATIONS, Situation, described, staged

from batonpass.client import LEVELS
from batonpass.codec.views import group_summary
from batonpass.dashboard.view_models.health import LEVEL_NAMES, stuck_tasks
from batonpass.dashboard.words import Names
from batonpass.explain.health import Level


def test_every_level_has_its_place_and_its_name() -> None:
    assert list(LEVELS) == list(LEVEL_NAMES) == [level.value for level in Level]


def test_tasks_that_are_not_processed_say_what_they_wait_for() -> None:
    fleet = Fleet.of(8, 40)
    found = stuck_tasks(fleet.explain(), Names({"worker-3": "w3"}))
    assert [(one.task, one.state) for one in found] == [
        (fleet.failed, "failed"),
        (fleet.waiting[0], "without an owner"),
    ]
    assert found[0].waits == ("w3: it failed there",)


@pytest.mark.parametrize("one", SITUATIONS, ids=lambda one: one.name)
def test_whatever_is_wrong_says_what_to_do_which_may_be_to_wait(one: Situation) -> None:
    stage = staged(one)
    todo = group_summary(stage.group, *described(stage))["health"]["todo"]
    assert re.fullmatch(one.todo, todo), todo
