"""docs/settings.md and .env.example, as they follow from the settings and the schema; run as a module, it writes both.

python -m tests.settings_documents
"""

import json
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from batonpass.settings import MIB, Settings

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "settings.md"
EXAMPLE = ROOT / ".env.example"
SCHEMA = ROOT / "service" / "batonpass" / "schemas" / "common.json"
SOURCE = ROOT / "service" / "batonpass" / "settings.py"

HEAD = """# Settings

One process is set up by environment variables; a group by its config, which is [at the end](#a-group). A value outside of its
range, or a set that contradicts itself, stops the start with what is wrong. `batonpass serve` reads them all; `batonpass
up` brings a database and an admin's token of its own. [.env.example](../.env.example) holds them with their defaults.
Blanks and line breaks around a value do not count, in these and in the variables of commands and workers; an empty value is none.
A variable that begins with `BATONPASS_` and that nothing reads, as a misspelled one, is named in the log at the start (`variables-unread`).

Written from `service/batonpass/settings.py` and `service/batonpass/schemas/common.json` by `python -m tests.settings_documents`; a test holds them equal.
"""

OF_A_GROUP = """## A group

The `config` of `PUT /v1/groups/{group}` sets these; what is left out keeps its value, or gets its default. `batonpass plan GROUP --set NAME=VALUE`
shows beforehand what a change would move. Durations are milliseconds, lags are records.

| setting | default | range | what for |
|---|---|---|---|
"""


def sections() -> list[tuple[str, list[str]]]:
    """Return the settings in their order, under the headings that the source has for them."""
    found: list[tuple[str, list[str]]] = []
    body = SOURCE.read_text().partition("class Settings(")[2]
    for line in body.splitlines():
        if heading := re.fullmatch(r"    # (.+)", line):
            found.append((heading[1], []))
        elif (named := re.match(r"    (\w+):", line)) and named[1] in Settings.model_fields:
            found[-1][1].append(named[1])
    return found


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"BATONPASS_{name.upper()}"


def bounds(field: FieldInfo) -> str:
    """Return which values a setting may have."""
    kinds = [field.annotation, *get_args(field.annotation)]
    choices = [one for kind in kinds if get_origin(kind) is Literal for one in get_args(kind)]
    if choices:
        return " or ".join(f"`{one}`" for one in choices)
    least = [found for one in field.metadata if (found := getattr(one, "ge", None)) is not None]
    most = [found for one in field.metadata if (found := getattr(one, "le", None)) is not None]
    if least and most:
        return f"{number(least[0])} to {number(most[0])}"
    return "`true` or `false`" if field.annotation is bool else ""


def number(value: float) -> str:
    """Return a number as people write it."""
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def default(field: FieldInfo) -> str:
    """Return the default of a setting as its variable would hold it; "" where it has none."""
    value: Any = field.default
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


def is_secret(field: FieldInfo) -> bool:
    """Say whether a setting must not be shown."""
    return SecretStr in (field.annotation, *get_args(field.annotation))


def document() -> str:
    """Return docs/settings.md."""
    parts = [HEAD]
    for heading, names in sections():
        rows = [
            f"| `{variable(name)}` | {f'`{default(field)}`' if default(field) else ''} | {bounds(field)} "
            f"| {field.description}{' A secret.' if is_secret(field) else ''} |"
            for name in names
            for field in (Settings.model_fields[name],)
        ]
        parts.append(
            "\n".join((f"## {heading}\n", "| variable | default | range | what for |", "|---|---|---|---|", *rows))
        )
    config = msgspec.json.decode(SCHEMA.read_bytes())["$defs"]["config"]["properties"]
    rows = [
        f"| `{name}` | `{json.dumps(known['default'])}` | {range_of(known)} | {known['description']} |"
        for name, known in config.items()
    ]
    parts.append(OF_A_GROUP + "\n".join(rows))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def range_of(known: dict[str, Any]) -> str:
    """Return which values a schema allows."""
    if "anyOf" in known:
        return " or ".join(filter(None, map(range_of, known["anyOf"])))
    if "$ref" in known:
        return "a share such as `10%`"
    if "enum" in known:
        return " or ".join(f"`{one}`" for one in known["enum"])
    if known["type"] == "boolean":
        return "`true` or `false`"
    if known["type"] == "array":
        return f"up to {known['maxItems']} names"
    if known["type"] == "string":
        return f"up to {known['maxLength']} characters"
    return "`null`" if known["type"] == "null" else f"{number(known['minimum'])} to {number(known['maximum'])}"


def example() -> str:
    """Return .env.example: every setting, commented out, with its default."""
    parts = [f"# Settings of a coordinator; docs/settings.md has their ranges. Sizes: {MIB} is 1 MiB."]
    for heading, names in sections():
        lines = [f"# {heading}"]
        for name in names:
            field = Settings.model_fields[name]
            lines += [f"# {field.description}", f"#{variable(name)}={default(field)}"]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write both."""
    DOCUMENT.write_text(document())
    EXAMPLE.write_text(example())


if __name__ == "__main__":
    main()
