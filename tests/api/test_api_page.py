"""docs/api.md lists every call and every event, and nothing else."""

import re
from pathlib import Path

from tests.api.test_openapi import SERVED
from tests.pages import table
from tests.schemas.validating import bodies_of_events

from batonpass.explain.status import GroupState

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()


def test_every_call_stands_in_the_table() -> None:
    listed = [row[0].strip("`").split(" ") for row in table(PAGE, "| call | what it does |")]
    assert len(listed) == len({(method, path) for method, path in listed})
    served = {(method.upper(), path) for path, methods in SERVED.items() for method in methods}
    assert {(method, path) for method, path in listed} == served


def test_every_event_stands_in_the_table() -> None:
    rows = table(PAGE, "| type | what happened | body |")
    shown = [(row[0].strip("`"), tuple(re.findall(r"`([a-z_]+)`", row[2] if len(row) > 2 else ""))) for row in rows]
    assert shown == [(kind.value, names) for kind, names in bodies_of_events().items()]
    assert all(row[1].endswith(".") for row in rows)


def test_every_state_of_a_group_stands_in_the_table() -> None:
    assert {row[0].strip("`") for row in table(PAGE, "| state | the group |")} == {state.value for state in GroupState}
