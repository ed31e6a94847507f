"""What a group waits for, in words that a reader can add up."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.canned import Canned
from tests.cli.test_operators import MEMBERS

EXPLAINED: dict[str, Any] = {"sentences": ["4 copies warm up."], "members": [], "waiting": [], "waiting_total": 0}


@pytest.mark.parametrize(
    ("used", "words"),
    [
        (1, "Slots taken: warmups 1 of 2, warmups for drains 0 of 4."),
        (2, "warmups 2 of 2,"),
        (4, "warmups 4 where there are 2 (what was begun for a drain, or under a larger budget, goes on), warmups for"),
    ],
)
def test_more_slots_than_there_are_is_explained(server: Canned, used: int, words: str) -> None:
    """Nobody reads that four of two are taken."""
    budgets = {"warmups": {"used": used, "limit": 2}, "drain_warmups": {"used": 0, "limit": 4}}
    server.on("GET", "/v1/groups/orders/explain", (200, EXPLAINED | {"budgets": budgets}))
    server.on("GET", "/v1/groups/orders/members", (200, {"members": MEMBERS, "next": None}))
    assert words in server.run("explain", "orders").stdout
