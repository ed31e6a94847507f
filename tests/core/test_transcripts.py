"""The transcripts come out as they are written: what a group does in its great moments, in words."""

import json
from difflib import unified_diff
from pathlib import Path

import pytest
from tests.core.transcripts.player import FOLDER, UnclearLine, play, transcripts
from tests.core.transcripts.words import in_words

from batonpass.codec.records import RECORD_TYPES, StoredRecord, decode_record

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
ANEW = "if the new text is right, write it down with `python -m tests.core.transcripts --write`"


def difference(name: str, text: str) -> str:
    """Return how a transcript comes out otherwise than it is written; nothing when it does not."""
    written, found = text.splitlines(), play(text).splitlines()
    lines = list(unified_diff(written, found, f"{name} as it is written", "as it comes out now", n=4, lineterm=""))
    return "\n".join([*lines, ANEW]) if lines else ""


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_a_transcript_comes_out_as_it_is_written(path: Path) -> None:
    """What is written is what people have read and found right."""
    found = difference(path.name, path.read_text())
    if found:
        pytest.fail(found, pytrace=False)


def test_a_transcript_that_comes_out_otherwise_is_shown_line_by_line() -> None:
    text = (FOLDER / "warm-handover.txt").read_text()
    found = difference("warm-handover.txt", text.replace("token 2", "token 9", 1))
    assert [line for line in found.splitlines() if line.startswith(("-m2", "+m2"))] == [
        "-m2 is told (epoch 3): run 0_0 (warmup becomes active, token 9, restore to 90500)",
        "+m2 is told (epoch 3): run 0_0 (warmup becomes active, token 2, restore to 90500)",
    ]
    assert found.endswith(ANEW)


@pytest.mark.parametrize("line", ["> m1 wonders", "> m1 says: 0_0 somehow"])
def test_a_line_that_the_notation_does_not_know_is_refused(line: str) -> None:
    """A misspelt line must not pass for one that changes nothing."""
    with pytest.raises(UnclearLine):
        play(f"> given 1 tasks on m1\n{line}\n")


def test_every_record_has_words() -> None:
    lines = (FIXTURES / "records-v1.jsonl").read_text().splitlines()
    stored = [json.loads(line) for line in lines]
    records = [
        decode_record(StoredRecord(one["kind"], one["version"], json.dumps(one["payload"]).encode())) for one in stored
    ]
    assert {type(record) for record in records} == set(RECORD_TYPES.values())
    assert all(
        in_words(record, 0)[0]
        for record in records
        if type(record).__name__ not in {"TargetPlaced", "AssignmentChanged"}
    )


def test_the_index_names_every_transcript() -> None:
    index = (FOLDER / "README.md").read_text()
    assert [path.name for path in transcripts() if f"[{path.stem}]({path.name})" not in index] == []
