"""Where an answer is of another kind than its schema says, for those who could not read it."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from batonpass.schemas import URN, load, names

KINDS: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
"""The values that are of a JSON type."""

_loaded = cache(load)


def faults(method: str, path: str, body: Any, missed: str = "") -> Iterator[str]:
    """Yield the places of the answer to a call that are of another kind than its schema says.

    What is missing or new is no fault, but for the field that the reader ``missed``, where the schema requires it;
    neither is anything in an answer that no schema describes.
    """
    name = _of_answer(method, path)
    return _faults(_loaded(name), body, "", missed) if name else iter(())


def _of_answer(method: str, path: str) -> str:
    """Return the name of the schema whose description names the call; empty if there is none."""
    call = re.compile(rf"{method} (/v1[^ ,:.]*)")
    for name in names():
        described = _loaded(name).get("description", "") if name.endswith(("_get", "_explain", "_answer")) else ""
        if any(re.fullmatch(re.sub(r"\{[a-z]+\}", "[^/]+", place), path) for place in call.findall(described)):
            return name
    return ""


def _faults(schema: dict[str, Any], value: Any, place: str, missed: str) -> Iterator[str]:
    if reference := schema.get("$ref"):
        file, _, inside = reference.removeprefix(URN).partition("#")
        schema = _loaded(file)
        for step in filter(None, inside.split("/")):
            schema = schema[step]
        yield from _faults(schema, value, place, missed)
        return
    for one in schema.get("allOf", ()):
        yield from _faults(one, value, place, missed)
    choices = schema.get("anyOf", ())
    kinds = schema.get("type", ())
    wanted = [known for kind in ([kinds] if isinstance(kinds, str) else kinds) for known in KINDS[kind]]
    wanted += [type(one) for one in schema.get("enum", ())]
    is_time = schema.get("format") == "date-time"
    if (
        (wanted and type(value) not in wanted and not (isinstance(value, dict) and dict in wanted))
        or (choices and all(any(_faults(one, value, place, missed)) for one in choices))
        or (is_time and not re.search(schema["pattern"], value))
    ):
        yield place or "the whole"
    elif isinstance(value, dict):
        known = schema.get("properties", {})
        others = schema.get("additionalProperties")
        if missed in schema.get("required", ()) and missed not in value:
            yield f"{place}.{missed}".lstrip(".")
        for field, found in value.items():
            of_field = known.get(field, others)
            if isinstance(of_field, dict):
                yield from _faults(of_field, found, f"{place}.{field}".lstrip("."), missed)
    elif isinstance(value, list):
        for index, found in enumerate(value):
            yield from _faults(schema.get("items", {}), found, f"{place}[{index}]", missed)
