"""The codec takes what the schemas take, and refuses what they refuse: two descriptions of one wire agree."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.schemas.examples import EXAMPLES
from tests.schemas.validating import faults

from batonpass.codec.requests import read_declaration, read_heartbeat, read_join, read_pause, read_what_if
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import GroupId, MemberId
from batonpass.core.state.policy import parse_config

MISSING = object()
MEMBER, GROUP = MemberId("m1"), GroupId("orders")


def declare(body: bytes) -> None:
    """Read a declaration, its settings included, as declaring a group does."""
    declaration, _ = read_declaration(GROUP, body, if_match=None)
    parse_config(declaration.config or {})


def imagine(body: bytes) -> None:
    """Read a change to imagine, its settings included."""
    parse_config(read_what_if(body).config)


READERS: dict[str, tuple[Callable[[bytes], object], Any]] = {
    "join": (lambda body: read_join(MEMBER, body, tasks_max=100), EXAMPLES["join"]),
    "heartbeat": (lambda body: read_heartbeat(MEMBER, body, tasks_max=100), EXAMPLES["heartbeat"]),
    "group_put": (declare, EXAMPLES["group_put"]),
    "pause": (read_pause, EXAMPLES["pause"]),
    "plan_request": (imagine, EXAMPLES["plan_request"]),
}
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 2**63 - 1, 2**63, 0.5, -0.5),
    *("", "x", "0_1", "01", "a b", "running", "active", "balance", "all", "10%", "x" * 256),
    *([], {}, ["x"], [1], ["x", "x"], {"x": 1}, {"0_0": {"role": "none"}}, {"0_0": {}}),
)


def places(body: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in a body."""
    if isinstance(body, dict):
        return [path] + [found for key in body for found in places(body[key], (*path, key))]
    if isinstance(body, list):
        return [path] + [found for number, item in enumerate(body) for found in places(item, (*path, number))]
    return [path]


def is_taken(name: str, body: Any) -> bool:
    """Say whether the codec takes a body, and all of it: numbers that it leaves out are no proper ones either."""
    try:
        said = READERS[name][0](json.dumps(body).encode())
    except ProtocolError:
        return False
    return not getattr(said, "invalid_numbers", ())


def variants(body: Any) -> Iterator[Any]:
    """Yield the body with each of its values taken out, replaced by each value, or joined by another."""
    for *above, last in (path for path in places(body) if path):
        for value in (MISSING, *VALUES):
            changed = copy.deepcopy(body)
            holder = changed
            for step in above:
                holder = holder[step]
            if value is MISSING:
                del holder[last]
            else:
                holder[last] = value
            yield changed
    for path in places(body):
        for name in ("x", "state", "lag", "0_5", "reason"):
            changed = copy.deepcopy(body)
            holder = changed
            for step in path:
                holder = holder[step]
            if isinstance(holder, dict) and name not in holder:
                holder[name] = "running"
                yield changed


@pytest.mark.parametrize("name", sorted(READERS))
def test_codec_and_schema_agree_on_bodies_that_are_slightly_wrong(name: str) -> None:
    """The protocol's own example with one value replaced, added or taken out."""
    verdicts = []
    for body in variants(READERS[name][1]):
        found = faults(name, body)
        assert is_taken(name, body) == (not found), (body, found)
        verdicts.append(not found)
    assert verdicts.count(True) > 10
    assert verdicts.count(False) > 10
