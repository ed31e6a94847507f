"""docs/protocol.md as tests read it: its rules, its tables, and the bodies that it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

PAGE: Final = (Path(__file__).parents[1] / "docs" / "protocol.md").read_text()

BODIES: Final[dict[str, dict[str, Any]]] = {
    name: json.loads(body) for name, body in re.findall(r"<!-- schema: (\w+) -->\n```json\n(.*?)```", PAGE, re.DOTALL)
}
"""Each body that the page shows, by the schema that it is an example of."""

RULES: Final = re.findall(r"^(\d+\.\d+) ", PAGE, re.MULTILINE)


def table(heading: str) -> list[list[str]]:
    """Return the rows of the table below a header line, cell by cell."""
    found = re.search(rf"^{re.escape(heading)}\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert found is not None, heading
    return [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in found[1].splitlines()]


PROBLEMS: Final[list[tuple[str, tuple[int, ...], str]]] = [
    (row[0].strip("`"), tuple(map(int, row[1].split(" or "))), row[2].split(" or ")[-1].strip("`"))
    for row in table("| `type` | status | `action` | the caller |")
]
"""The table of errors: type, its statuses, and what the caller does."""
