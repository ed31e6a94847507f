"""The records on Kafka's defects and invariants name tests: each of them exists, and no row is without one."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RECORDS = [("0003-kafka-defects.md", "D", 29), ("0004-kafka-invariants.md", "I", 18)]
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows(name: str, letter: str) -> dict[str, str]:
    """Return the rows of a record's table by id."""
    text = (ROOT / "docs" / "decisions" / name).read_text(encoding="utf-8")
    return dict(re.findall(rf"^\| ({letter}\d+) \|(.*)$", text, re.MULTILINE))


@pytest.mark.parametrize(("name", "letter", "count"), RECORDS)
def test_every_row_is_there_and_names_a_test(name: str, letter: str, count: int) -> None:
    found = rows(name, letter)
    assert list(found) == [f"{letter}{number}" for number in range(1, count + 1)]
    assert [row for row, text in found.items() if not _NAMED.search(text)] == []


@pytest.mark.parametrize(("name", "letter"), [record[:2] for record in RECORDS])
def test_every_test_that_a_record_names_exists(name: str, letter: str) -> None:
    for text in rows(name, letter).values():
        for path, function in _NAMED.findall(text):
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
            assert function in functions, f"{path}::{function}"
