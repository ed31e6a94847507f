"""The soak sees what it is for: what grows is found, what only comes and goes is not, and every part of it runs."""

from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.soak.__main__ import main
from tests.soak.growth import MB, Kind, Series
from tests.soak.picture import picture
from tests.soak.samples import growing

HOUR = [15.0 * number for number in range(240)]


def series(kind: Kind, seen: list[float]) -> Series:
    """Return an hour of samples."""
    return Series(kind, HOUR, seen)


LEAKS = {
    "ten kB a second of memory": series(Kind.MEMORY, [150 * MB + 10_240 * at for at in HOUR]),
    "rows of which none goes": series(Kind.ROWS, list(HOUR)),
    "a connection in five minutes": series(Kind.COUNT, [40 + at // 300 for at in HOUR]),
    "a disk that begins to fill late": series(Kind.DISK, [40 * MB + max(0, at - 2_400) * MB / 40 for at in HOUR]),
}
STEADY = {
    "caches that fill, and are full": series(Kind.MEMORY, [150 * MB - 60 * MB * math.exp(-at / 200) for at in HOUR]),
    "rows that are let go of at every turn": series(Kind.ROWS, [50 * (at % 360) for at in HOUR]),
    "connections up and down": series(Kind.COUNT, [40 + 8 * math.sin(at / 90) for at in HOUR]),
    "a few rows more": series(Kind.ROWS, [number / 2 for number in range(240)]),
}


def test_what_grows_is_told_from_what_comes_and_goes() -> None:
    """A leak is found whatever it leaks; what fills in the beginning, goes up and down, or is little is none."""
    assert [line.partition(":")[0] for line in growing(LEAKS | STEADY)] == list(LEAKS)


def test_the_picture_shows_every_measure_and_marks_what_grows() -> None:
    """It is SVG that a browser reads, with a chart for each measure, and the word only where something grows."""
    root = ET.fromstring(picture("an <hour>", LEAKS | STEADY))  # noqa: S314 - our own
    words = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert set(LEAKS | STEADY) | {"an <hour>"} <= set(words)
    assert sum(word.endswith(", grows") for word in words) == len(LEAKS)


@pytest.mark.long
@pytest.mark.needs("kafka")
def test_a_short_one_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every part starts, nobody fails, the database forgets, and the picture is there."""
    drawn = tmp_path / "soak.svg"
    main(["--minutes", "0.2", "--picture", str(drawn), "--seed", "1"])
    said = capsys.readouterr().out
    assert "wrong:" not in said
    for measure in ("coordinator 2: memory", "coordinators: connections", "coordinators: long-polls", "rows of traces"):
        assert measure in drawn.read_text()
