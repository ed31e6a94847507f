"""docs/protocol.md is complete, and what cites it cites rules that are there."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from tests.protocol_page import BODIES, PAGE, RULES, table
from tests.schemas.validating import faults

from batonpass.codec.bodies import HeartbeatBody, JoinBody, ReportBody
from batonpass.core.reasons import Held

ROOT = Path(__file__).parents[1]


def test_rules_are_numbered_in_order_and_once() -> None:
    """A number means one rule."""
    numbers = [tuple(map(int, rule.split("."))) for rule in RULES]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 50


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
    """The page shows nothing that a coordinator would refuse."""
    assert len(BODIES) > 10
    assert {name: faults(name, body) for name, body in BODIES.items()} == {name: [] for name in BODIES}


@pytest.mark.parametrize("body", [JoinBody, HeartbeatBody, ReportBody], ids=lambda body: body.__name__)
def test_every_field_that_a_member_may_send_stands_in_the_text(body: type[msgspec.Struct]) -> None:
    """An example alone does not say what a field means."""
    words = {word for code in re.findall(r"`([^`\n]+)`", PAGE) for word in re.findall(r"\w+", code)}
    assert [field.encode_name for field in msgspec.structs.fields(body) if field.encode_name not in words] == []


def test_every_reason_stands_in_the_table() -> None:
    """There is no reason for holding a task back that the page does not explain."""
    listed = [row[0].strip("`") for row in table("| reason | what it waits for |")]
    assert sorted(listed) == sorted(Held)
