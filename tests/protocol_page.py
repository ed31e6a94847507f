"""docs/protocol.md as tests read it: its rules, its tables, and the bodies that it shows."""

import json
import re
from pathlib import Path
from typing import Any, Final

from tests.pages import table

PAGE: Final = (Path(__file__).parents[1] / "docs" / "protocol.md").read_text()

BODIES: Final[dict[str, dict[str, Any]]] = {
    name: json.loads(body) for name, body in re.findall(r"<!-- schema: (\w+) -->\n```json\n(.*?)```", PAGE, re.DOTALL)
}
"""Each body that the page shows, by the schema that it is an example of."""

RULE: Final = re.compile(r"^(\d+\.\d+) ", re.MULTILINE)
RULES: Final = RULE.findall(PAGE)

EXEMPT: Final = {
    r"^```.*?^```$": "a picture or an example shows what a rule says, and says nothing of its own",
    r"^<!-- schema: \w+ -->$": "names the schema of the example below it, for tests",
}
"""What needs no number, beside headings and the head of the page, which says what the page is and what stands where."""


def unnumbered(page: str) -> list[str]:
    """Return the first line of each part of a page that is normative and that nothing can cite.

    A paragraph begins with its number. A table or a list belongs to the numbered paragraph right before it: nothing but
    what is exempt may stand between.
    """
    found: list[str] = []
    _, *sections = re.split(r"^##+ .*$", page, flags=re.MULTILINE)
    for section in sections:
        text = section
        for pattern in EXEMPT:
            text = re.sub(pattern, "", text, flags=re.MULTILINE | re.DOTALL)
        last, is_owned = "blank", False
        for line in text.splitlines():
            kind = _kind_of(line)
            if kind not in {"blank", last}:
                if kind == "paragraph":
                    is_owned = RULE.match(line) is not None
                if not is_owned:
                    found.append(line)
                is_owned = is_owned and kind == "paragraph"
            last = kind
    return found


def _kind_of(line: str) -> str:
    if not line.strip():
        return "blank"
    if line.startswith("|"):
        return "table"
    return "list" if re.match(r"\s|[-*+] |\d+[.)] ", line) else "paragraph"


PROBLEMS: Final[list[tuple[str, tuple[int, ...], str]]] = [
    (row[0].strip("`"), tuple(map(int, row[1].split(" or "))), row[2].split(" or ")[-1].strip("`"))
    for row in table(PAGE, "| `type` | status | `action` | the caller |")
]
"""The table of errors: type, its statuses, and what the caller does."""
