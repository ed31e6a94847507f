"""The bodies of the protocol as JSON Schemas (draft 2020-12), the contract that the codec and the API are held to.

They were written from the contract and not from the code. Requests of operators refuse a field that is not known;
a join and a heartbeat let it pass. A schema refers to another by its `$id`, a URN that stands for a file here:
`urn:batonpass:schema:1:join` is `join.json`. What several share lies in `common.json`.
"""

import json
from importlib.resources import files
from typing import Any

URN = "urn:batonpass:schema:1:"


def names() -> tuple[str, ...]:
    return tuple(
        sorted(each.name.removesuffix(".json") for each in files(__name__).iterdir() if each.name[-5:] == ".json")
    )


def load(name: str) -> dict[str, Any]:
    """Return the schema of this name.

    Raises:
        KeyError: when there is none.
    """
    if name not in names():
        raise KeyError(f"no schema is named {name!r}; there are {', '.join(names())}")
    schema: dict[str, Any] = json.loads((files(__name__) / f"{name}.json").read_text(encoding="utf-8"))
    return schema
