"""What tests read of the pages in docs/."""

import re


def table(page: str, heading: str) -> list[list[str]]:
    """Return the rows of the table below a header line, cell by cell."""
    found = re.search(rf"^{re.escape(heading)}\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert found is not None, heading
    return [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in found[1].splitlines()]
