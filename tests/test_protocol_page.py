"""docs/protocol.md is complete, what cites it cites rules that are there, and each rule is cited by what tests it."""

import re
from pathlib import Path
from typing import Final

import msgspec
import pytest
from tests.pages import table
from tests.protocol_page import BODIES, PAGE, RULES, unnumbered
from tests.schemas.validating import faults
from tests.worker.vectors.scenes import SCENES

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
from batonpass.core.state.reasons import Held
from batonpass.schemas import load
from batonpass.worker.testing.conformance.cases import CASES

ROOT = Path(__file__).parents[1]
CITATION = re.compile(r"\b[Pp]rotocol,?\s+(\d+\.\d+)(?: to (\d+\.\d+))?\b")

NAMED: Final = [(one.name, one.rules) for one in CASES.values()] + [(one.name, one.rules) for one in SCENES]
"""The cases of the conformance kit and the scenes of the vectors, each with the rules that it names."""

NOT_TESTED: Final = {
    "8.2": "no test: Batonpass has no sink of its own; the rule is for those who write one",
    "11.3": "no test of its own: only a long-poll that breaks makes a member suspected (6.3), and over Kafka there is none",
}
"""Rules that no case of the conformance kit, no vector and no test cites, and why."""


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
def test_a_paragraph_without_a_number_is_found(planted: str, found: list[str]) -> None:
    assert unnumbered(f"# A page\n\nIts head.\n\n## 1 Messages\n\n{planted}") == found


def cited_in(*folders: str) -> set[str]:
    """Return the rules that files cite as `protocol N.M`, or as `protocol N.M to N.K`."""
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    texts = [
        path.read_text()
        for path in files
        if path.suffix in {".py", ".md", ".java", ".json"} and path.name != "protocol.md"
    ]
    return {number for text in texts for found in CITATION.findall(text) for number in found if number}


def cited_by_kit_and_vectors() -> set[str]:
    return {rule for _, rules in NAMED for rule in rules}


def test_every_rule_that_is_cited_is_there() -> None:
    assert cited_in("service", "tests", "clients", "docs") | cited_by_kit_and_vectors() <= set(RULES)


def test_every_case_and_every_vector_names_its_rules() -> None:
    assert [name for name, rules in NAMED if not 1 <= len(rules) <= 3] == []


def test_every_rule_is_cited_by_what_tests_it() -> None:
    assert set(RULES) - cited_by_kit_and_vectors() - cited_in("tests") == set(NOT_TESTED), (
        "cite it in the docstring of a test, or among the rules of a scene or a case"
    )


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
