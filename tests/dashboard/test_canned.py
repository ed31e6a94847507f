"""The canned coordinator answers in the shapes of the real one."""

from typing import Any

import pytest
from tests.dashboard.fleet import AUDIT, Fleet
from tests.schemas.validating import faults

FLEET = Fleet.of(8, 40)


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ("groups_get", {"groups": [FLEET.summary()], "next": None}),
        ("group_get", FLEET.group_get()),
        ("group_explain", FLEET.explain()),
        ("assignment_get", FLEET.assignment()),
        ("members_get", {"members": FLEET.members, "next": None}),
        ("events_get", {"events": FLEET.events, "next": 1, "more": False}),
        ("task_get", FLEET.task(FLEET.tasks[0])),
        ("generation_get", FLEET.generation()),
        ("plan_answer", FLEET.plan()),
        ("audit_get", AUDIT),
    ],
)
def test_canned_answers_are_of_the_protocol(schema: str, body: dict[str, Any]) -> None:
    assert faults(schema, body) == []
