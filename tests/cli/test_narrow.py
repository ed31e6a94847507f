"""Eighty columns are enough: no word of a table is broken, and nothing is left out."""

from functools import partial
from typing import Any

import pytest
from rich.console import Console
from tests.cli.canned import Canned
from tests.cli.test_operators import member

from batonpass.cli import client_context
from batonpass.cli.tables import table
from batonpass.terminal import screen

IDS = [f"{number}6bb8df5-e7c2-49cc-a91f-c06e697663c5" for number in range(3)]
PODS = [f"payments-7f9c8d6b5-{end}" for end in ("abcde", "fghij", "klmno")]


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of eighty columns."""
    monkeypatch.setattr(client_context, "screen", partial(screen, plain_width=80))


def drawn(rows: list[list[Any]], width: int, *columns: str) -> str:
    """Return a table as it is drawn in so many columns."""
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table(*columns, rows=rows))
    return captured.get()


def test_a_table_that_fits_is_a_table_whose_long_texts_fold_between_words() -> None:
    shown = drawn([["0_1", "it waits for the copy on orders-1 to catch up"]], 30, "task", "waits for")
    assert "task  waits for" in shown
    assert max(map(len, shown.splitlines())) <= 30
    assert {"orders-1", "catch"} <= set(shown.split())


def test_a_table_that_is_too_wide_shows_each_row_in_lines_of_its_own() -> None:
    shown = drawn([[IDS[0], "stable", 4], [IDS[1], None, 0]], 50, "member", "what it says of itself", "active")
    assert max(map(len, shown.splitlines())) <= 60
    shown = drawn([[IDS[0], IDS[1]], [IDS[1], None]], 60, "member", "source")
    assert shown.count(IDS[0]) == 1
    assert shown.count(IDS[1]) == 2
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 60
    assert [line.split()[0] for line in shown.splitlines() if line.strip()] == ["member", "source"] * 2


def test_members_are_listed_by_instance_with_short_ids(server: Canned) -> None:
    listed = [member(one, pod) for one, pod in zip(IDS, PODS, strict=True)]
    server.on("GET", "/v1/groups/orders/members", (200, {"members": listed, "next": None}))
    shown = server.run("members", "orders").stdout
    lines = [line.rstrip() for line in shown.splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[:3] == ["instance", "member", "state"]
    assert [line.split()[:3] for line in lines if line.startswith("payments")] == [
        [pod, one[:8], "stable"] for one, pod in zip(IDS, PODS, strict=True)
    ]
    assert "warmup" not in lines[0]


def test_members_without_an_instance_have_their_whole_ids(server: Canned) -> None:
    """A command needs something to name them by."""
    listed = [member(one, None) for one in IDS]
    server.on("GET", "/v1/groups/orders/members", (200, {"members": listed, "next": None}))
    shown = server.run("members", "orders").stdout
    assert [one for one in IDS if one not in shown] == []
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80


@pytest.mark.parametrize("words", [["generations", "orders"], ["commands", "orders"], ["commands"]])
def test_a_list_says_that_it_goes_on(server: Canned, words: list[str]) -> None:
    page = {"generations": [], "commands": [], "next": 7}
    for place in ("/v1/groups/orders/generations", "/v1/groups/orders/commands", "/v1/commands"):
        server.on("GET", place, (200, page))
    assert "These are the newest; --limit shows more." in server.run(*words).stdout


def test_whoever_names_a_member_that_is_not_there_learns_how_many_there_are(server: Canned) -> None:
    listed = [member(f"m{number:02}", None) for number in range(30)]
    server.on("GET", "/v1/groups/orders/members", (200, {"members": listed, "next": None}))
    assert "m19 and 10 more." in server.run("members", "orders", "nobody").stderr
