"""What a group waits for, in words that a reader can add up."""

from typing import Any

import pytest
from tests.cli.canned import Canned
from tests.cli.test_operators import MEMBERS
from tests.schemas.history_examples import HEALTH, RUN

from batonpass.cli.explain import _run
from batonpass.dashboard.words import Names

EXPLAINED: dict[str, Any] = {
    "health": HEALTH,
    "sentences": ["It moves.", "4 copies warm up."],
    "members": [],
    "waiting": [],
    "waiting_total": 0,
}


def test_of_many_members_that_others_wait_for_the_first_are_listed_and_the_rest_counted(server: Canned) -> None:
    one = {"what": "suspected", "tasks": 1, "since": None, "until": None, "detail": "silent"}
    silent = [one | {"member": f"pod-{number}"} for number in range(30)]
    server.on("GET", "/v1/groups/orders/explain", (200, EXPLAINED | {"group": "orders", "members": silent}))
    server.on("GET", "/v1/groups/orders/members", (200, {"members": MEMBERS, "next": None}))
    server.on("GET", "/v1/groups/orders/events", (200, {"events": []}))
    said = server.run("explain", "orders").stdout
    assert ("pod-19 " in said, "pod-20 " in said) == (True, False)
    assert "... and 10 more members: `batonpass members orders` lists them all." in said


def test_members_that_went_keep_their_names(server: Canned) -> None:
    gone = "0c9d4f2e-1111-4222-8333-abcdefabcdef"
    event = {"type": "member-gone", "member": gone, "body": {"cause": "expired", "instance_id": "orders-9"}}
    explained = EXPLAINED | {"sentences": ["It moves.", f"0_1 waits for the lease of {gone}."]}
    server.on("GET", "/v1/groups/orders/explain", (200, explained))
    server.on("GET", "/v1/groups/orders/members", (200, {"members": MEMBERS, "next": None}))
    server.on("GET", "/v1/groups/orders/events", (200, {"events": [event]}))
    assert "0_1 waits for the lease of orders-9." in server.run("explain", "orders").stdout


def test_a_member_without_an_instance_is_called_by_its_endpoint(server: Canned) -> None:
    one = "0c9d4f2e-1111-4222-8333-abcdefabcdef"
    member = MEMBERS[0] | {"member_id": one, "instance_id": None, "endpoint": "http://10.0.0.7:9000"}
    explained = EXPLAINED | {"sentences": ["It moves.", f"0_1 waits for {one}."]}
    server.on("GET", "/v1/groups/orders/explain", (200, explained))
    server.on("GET", "/v1/groups/orders/members", (200, {"members": [member], "next": None}))
    server.on("GET", "/v1/groups/orders/events", (200, {"events": []}))
    assert "0_1 waits for http://10.0.0.7:9000." in server.run("explain", "orders").stdout


@pytest.mark.parametrize(("at_most_ms", "words"), [(2_400, "up to 2.4 s"), (None, "at least 223 ms")])
def test_how_long_nobody_ran_a_task_is_told_as_exactly_as_it_is_known(at_most_ms: int | None, words: str) -> None:
    run = RUN | {"gap_ms": 223, "gap_is_lower_bound": True, "gap_at_most_ms": at_most_ms}
    assert _run(run, Names())[4] == words
