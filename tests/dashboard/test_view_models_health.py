"""Levels and what to do, as pages show them."""

import re

import pytest
from tests.dashboard.situations import SITUATIONS, Situation, described, staged

from batonpass.codec.views import group_summary
from batonpass.dashboard.words import LEVEL_NAMES
from batonpass.explain.remedies import Level
from batonpass.group_words import LEVELS


def test_every_level_has_its_place_and_its_name() -> None:
    assert list(LEVELS) == list(LEVEL_NAMES) == [level.value for level in Level]


@pytest.mark.parametrize("one", SITUATIONS, ids=lambda one: one.name)
def test_whatever_is_wrong_says_what_to_do_which_may_be_to_wait(one: Situation) -> None:
    stage = staged(one)
    todo = group_summary(stage.group, *described(stage))["health"]["todo"]
    assert re.fullmatch(one.todo, todo), todo
