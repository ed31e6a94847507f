"""An answer in which something else stands than there should: said in a sentence, with the place, by every command."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.canned import Canned
from tests.schemas.examples import EXAMPLES

from batonpass.cli.exits import Exit
from batonpass.schemas.shapes import faults

NAMED: dict[str, Any] = {"members_get": "GET /v1/groups/orders/members", "events_get": "GET /v1/groups/orders/events"}
READ: dict[tuple[str, ...], tuple[str, str]] = {
    ("groups",): ("groups_get", "GET /v1/groups"),
    ("groups", "show", "orders"): ("group_get", "GET /v1/groups/orders"),
    ("members", "orders"): ("members_get", "GET /v1/groups/orders/members"),
    ("explain", "orders"): ("group_explain", "GET /v1/groups/orders/explain"),
    ("explain", "orders", "0_5"): ("task_get", "GET /v1/groups/orders/tasks/0_5"),
    ("generations", "orders"): ("generations_get", "GET /v1/groups/orders/generations"),
    ("generations", "orders", "8"): ("generation_get", "GET /v1/groups/orders/generations/8"),
    ("commands",): ("commands_get", "GET /v1/commands"),
    ("audits",): ("audits_get", "GET /v1/audits"),
    ("audits", "2026-03-01"): ("audit_get", "GET /v1/audits/2026-03-01"),
    ("token",): ("tokens_get", "GET /v1/tokens"),
    ("plan", "orders"): ("plan_answer", "POST /v1/groups/orders/plan"),
}
"""By a command, the schema of what it reads, and where it reads that."""


TRIED = 12
"""In how many places of an answer something else stands, one after the other: all of them would take a minute."""


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value in a body."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, found in inside:
        yield (*way, key)
        yield from places(found, (*way, key))


def serve(server: Canned, call: str, body: Any) -> None:
    """Answer a call with a body."""
    method, path = call.split()
    server.on(method, path, (200, body))


def spoilt(body: Any, way: tuple[Any, ...]) -> Any:
    """Return a body with another kind of value in one place."""
    found = at = copy.deepcopy(body)
    for key in way[:-1]:
        at = at[key]
    at[way[-1]] = "here" if isinstance(at[way[-1]], int | float) else 5
    return found


@pytest.mark.parametrize("command", READ, ids=" ".join)
def test_whatever_stands_where_something_else_should_is_said_with_its_place(
    server: Canned, command: tuple[str, ...]
) -> None:
    """Where the command does not read it, it may be as it likes."""
    schema, call = READ[command]
    for name, place in NAMED.items():
        serve(server, place, dict(EXAMPLES[name]) | {"next": None})
    said = 0
    ways = list(places(EXAMPLES[schema]))
    for way in ways[:: max(1, len(ways) // TRIED)]:
        body = spoilt(EXAMPLES[schema], way)
        serve(server, call, body | ({"next": None} if "next" in body and way != ("next",) else {}))
        found = server.run(*command)
        assert found.exit_code in {Exit.DONE, Exit.UNREACHABLE}, (way, found.exception, found.stderr)
        if found.exit_code == Exit.UNREACHABLE:
            said += 1
            assert "in words that are not a coordinator's" in found.stderr, (way, found.stderr)
            assert "Check --url or BATONPASS_URL." in found.stderr
    assert said


def test_a_mistake_of_the_command_itself_is_not_the_coordinators(
    server: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batonpass.cli.groups.standing", lambda _: 1 / 0)
    server.on("GET", "/v1/groups/orders", (200, EXAMPLES["group_get"]))
    assert isinstance(server.run("groups", "show", "orders").exception, ZeroDivisionError)


@pytest.mark.parametrize(("schema", "call"), sorted({*READ.values(), *((one, NAMED[one]) for one in NAMED)}))
def test_an_answer_as_it_should_be_has_no_faults_and_a_spoilt_one_names_the_place(schema: str, call: str) -> None:
    method, path = call.split()
    assert list(faults(method, path, EXAMPLES[schema])) == []
    assert list(faults(method, path, dict(EXAMPLES[schema]) | {"unheard-of": 1})) == []
    first = next(iter(EXAMPLES[schema]))
    assert list(faults(method, path, spoilt(EXAMPLES[schema], (first,)))) == [first]
    assert list(faults(method, "/v1/nowhere", 5)) == []
