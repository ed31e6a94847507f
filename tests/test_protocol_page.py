"""docs/protocol.md is complete, and what cites it cites rules that are there."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from tests.pages import table
from tests.protocol_page import BODIES, PAGE, RULES, unnumbered
from tests.schemas.validating import faults

from batonpass.codec.bodies import (
    HeartbeatBody,
    JoinBody,
    NewcomersBody,
    PauseBody,
    PinBody,
    ReportBody,
    WhatIfBody,
)
from batonpass.codec.streams import (
    StreamsBody,
    StreamsCopyBody,
    StreamsOtherBody,
    StreamsProcessBody,
    StreamsTaskBody,
)
from batonpass.core.reasons import Held
from batonpass.schemas import load

ROOT = Path(__file__).parents[1]


def test_rules_are_numbered_in_order_and_once() -> None:
    numbers = [tuple(map(int, rule.split("."))) for rule in RULES]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 50


def test_a_rule_stands_in_the_section_of_its_number() -> None:
    of_section = re.split(r"^## (\d+) .*$", PAGE, flags=re.MULTILINE)[1:]
    for number, text in zip(of_section[::2], of_section[1::2], strict=True):
        assert {rule.partition(".")[0] for rule in re.findall(r"^(\d+\.\d+) ", text, re.MULTILINE)} == {number}


def test_whatever_is_normative_can_be_cited() -> None:
    hint = "begin it with a number, the next one of its section; tests/protocol_page.py says what needs none"
    assert unnumbered(PAGE) == [], hint


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ("A member waits.\n", ["A member waits."]),
        ("1.1 A member waits,\nand waits.\n", []),
        ("1.1 A member waits.\n\nAnd waits.\n", ["And waits."]),
        ("1.1 These:\n\n- one\n- two,\n  or three\n", []),
        ("1.1 These:\n- one\n\nAnd those:\n- two\n", ["And those:", "- two"]),
        ("- one\n- two\n", ["- one"]),
        ("1.1 These:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n", []),
        ("1.1 These:\n\n| a |\n|---|\n\n| b |\n|---|\n", ["| b |"]),
        ("1.1 These:\n\n<!-- schema: pin -->\n```json\n{}\n\n{}\n```\n\n| a |\n|---|\n", []),
        ("1.1 Waits.\n\n## 2 Groups\n\n| a |\n|---|\n", ["| a |"]),
        ("```\na picture\n\nof it\n```\n", []),
    ],
)
def test_what_cannot_be_cited_is_found(planted: str, found: list[str]) -> None:
    assert unnumbered(f"# A page\n\nIts head.\n\n## 1 Messages\n\n{planted}") == found


def test_every_rule_that_is_cited_is_there() -> None:
    """Code and tests cite `protocol N.M`."""
    files = [path for folder in ("service", "tests", "clients", "docs") for path in (ROOT / folder).rglob("*.*")]
    texts = [
        path.read_text() for path in files if path.suffix in {".py", ".md", ".java"} and path.name != "protocol.md"
    ]
    cited = {number for text in texts for number in re.findall(r"\bprotocol,? (\d+\.\d+)\b", text)}
    assert cited <= set(RULES)
    assert cited


def test_every_body_is_what_its_schema_says() -> None:
    assert len(BODIES) > 10
    assert {name: faults(name, body) for name, body in BODIES.items()} == {name: [] for name in BODIES}


WORDS = {word for code in re.findall(r"`([^`\n]+)`", PAGE) for word in re.findall(r"\w+", code)}
SENT = (
    *(JoinBody, HeartbeatBody, ReportBody, PauseBody, PinBody, WhatIfBody, NewcomersBody),
    *(StreamsBody, StreamsTaskBody, StreamsProcessBody, StreamsCopyBody, StreamsOtherBody),
)


@pytest.mark.parametrize("body", SENT, ids=lambda body: body.__name__)
def test_every_field_that_a_caller_may_send_stands_in_the_text(body: type[msgspec.Struct]) -> None:
    """An example alone does not say what a field means."""
    assert [field.encode_name for field in msgspec.structs.fields(body) if field.encode_name not in WORDS] == []


@pytest.mark.parametrize("name", ["member_answer", "problem", "advice"])
def test_every_field_that_a_client_acts_on_stands_in_the_text(name: str) -> None:
    assert set(load(name)["properties"]) - WORDS == set()


def test_every_reason_stands_in_the_table() -> None:
    listed = [row[0].strip("`") for row in table(PAGE, "| reason | what it waits for |")]
    assert sorted(listed) == sorted(Held)
