"""Where each law is enforced: docs/architecture.md names code that exists, for every law that the audit knows."""

import re
from importlib import import_module
from pathlib import Path

from batonpass.laws import LAWS

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def test_each_law_says_where_it_is_enforced() -> None:
    rows = re.findall(r"^\| (L\d+) \| .+ \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert [law for law, _ in rows] == [*LAWS]
    for law, places in rows:
        named = re.findall(r"`([a-z_/]+)\.py`: ((?:`\w+`(?:, )?)+)", places)
        assert named, law
        for file, names in named:
            module = import_module("batonpass." + file.replace("/", "."))
            assert [name for name in re.findall(r"`(\w+)`", names) if not hasattr(module, name)] == [], (law, file)
