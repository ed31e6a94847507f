"""Whatever an answer tells, at any depth, a command or a page shows, or it is named here as left out.

What is compared is the name of the field with the words of the code that shows answers.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import batonpass
from batonpass import schemas

PRODUCT = Path(batonpass.__file__).parent
ANSWERS = (
    *("groups_get", "group_get", "group_explain", "members_get", "member_get", "task_get", "task_explain"),
    *("generations_get", "generation_get", "commands_get", "audits_get", "audit_get", "tokens_get"),
    *("plan_answer", "safe_to_stop_get"),
)
NOT_SHOWN = {
    "application_id",
    "avoided_until",
    "grants_held_until",
    "group_epoch",
    "input_lag",
    "is_another",
    "judged_from",
    "judges_from",
    "last_at",
    "last_run",
    "member_epoch",
    "members_needed",
    "outcome",
    "progress_at",
    "refused",
    "restore_to",
    "revoked_at",
    "role_before",
    "silence_ms",
    "standbys_need",
    "storm_ends_at",
    "target_standbys",
    "times",
    "topology_epoch",
}
"""What only programs read, or what a sentence of the same answer says."""


def shown() -> str:
    """Return the code of commands and pages, and of the words that they share."""
    code = [*(PRODUCT / "cli").rglob("*.py"), PRODUCT / "group_words.py", PRODUCT / "audit_words.py"]
    code += [path for kind in ("*.py", "*.html", "*.js") for path in (PRODUCT / "dashboard").rglob(kind)]
    return "\n".join(path.read_text(encoding="utf-8") for path in code)


def fields_of(schema: Any, within: str, seen: frozenset[tuple[str, str]] = frozenset()) -> Iterator[str]:
    """Yield the names of the fields of a schema, at any depth. Settings are shown, whatever their names are."""
    if isinstance(schema, list):
        for one in schema:
            yield from fields_of(one, within, seen)
    if not isinstance(schema, dict):
        return
    reference = schema.get("$ref", "")
    file, _, place = reference.partition("#")
    file = file.rpartition(":")[2] or within
    if reference and (file, place) not in seen and not place.endswith("/config"):
        found = schemas.load(file)
        for step in filter(None, place.split("/")):
            found = found[step]
        yield from fields_of(found, file, seen | {(file, place)})
    for name, described in schema.get("properties", {}).items():
        yield name
        yield from fields_of(described, within, seen)
    for key in ("anyOf", "allOf", "oneOf", "items", "additionalProperties"):
        yield from fields_of(schema.get(key), within, seen)


@pytest.fixture(scope="module")
def words() -> set[str]:
    found = re.findall(r"[\"']([a-z0-9_]+)[\"']|\.([a-z0-9_]+)\b", shown())
    return {word for pair in found for word in pair}


@pytest.mark.parametrize("name", ANSWERS)
def test_whatever_an_answer_tells_is_shown_or_left_out_on_purpose(name: str, words: set[str]) -> None:
    told = set(fields_of(schemas.load(name), name))
    assert sorted(told - words - NOT_SHOWN) == [], "show it (cli/, dashboard/), or name it in NOT_SHOWN"


def test_what_is_left_out_is_told_by_an_answer_and_not_shown(words: set[str]) -> None:
    told = {field for name in ANSWERS for field in fields_of(schemas.load(name), name)}
    assert sorted(NOT_SHOWN - told) == []
    assert sorted(NOT_SHOWN & words) == [], "it is shown: take it out of NOT_SHOWN"
