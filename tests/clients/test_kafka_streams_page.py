"""docs/kafka-streams.md names what the plug-in has: settings with defaults and ranges, figures, the jar."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.clients.streams_job import MODULE

from batonpass import __version__

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "kafka-streams.md").read_text()
SOURCES = MODULE / "src" / "main" / "java" / "io" / "batonpass" / "streams"
POM = "{http://maven.apache.org/POM/4.0.0}"


def rows(heading: str) -> dict[str, list[str]]:
    """Return the rows of the table below a heading, by the names in their first cell."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {name: row[1:] for row in cells for name in re.findall(r"`([\w.]+)`", row[0])}


def test_every_setting_is_there() -> None:
    names = set(re.findall(r'String [A-Z_]+ = "(batonpass\.[a-z.]+)"', (SOURCES / "Settings.java").read_text()))
    assert rows("Settings").keys() == names


def test_numbers_have_their_defaults_and_ranges() -> None:
    source = (SOURCES / "Settings.java").read_text()
    found = re.findall(r"reader\.number\(([A-Z_]+), ([\d_ <]+), ([\d_ <]+), ([\d_ <]+)\)", source)
    assert len(found) == 3
    for constant, *numbers in found:
        default, least, most = (eval(number, {}) for number in numbers)  # noqa: S307 - our own source: 1 << 10
        name = "batonpass." + constant.lower().replace("_", ".")
        assert rows("Settings")[name][:2] == [str(default), f"{least} to {most}"]


def test_every_figure_is_there() -> None:
    attributes = set(re.findall(r"get(\w+)\(\);", (SOURCES / "CountersMXBean.java").read_text()))
    assert {name for name in rows("When something fails") if name[0].isupper()} == attributes


def test_the_module_has_the_version_of_batonpass() -> None:
    version = ET.parse(MODULE / "pom.xml").getroot().findtext(f"{POM}version")  # noqa: S314 - our own
    assert version == __version__
    assert f"batonpass-kafka-streams-{version}.jar" in PAGE
