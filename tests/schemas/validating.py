"""Holding a body against a schema of the package, for any test that has one."""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from batonpass import schemas
from batonpass.runtime.events import EventType

RESOURCES = [(schemas.URN + name, Resource.from_contents(schemas.load(name))) for name in schemas.names()]
REGISTRY: Registry[Any] = Registry().with_resources(RESOURCES)


@cache
def validator(name: str) -> Draft202012Validator:
    """Return the validator of a schema, with all others at hand."""
    return Draft202012Validator(schemas.load(name), registry=REGISTRY)


def faults(name: str, body: object) -> list[str]:
    """Return what is wrong with a body, one line a fault, with its path."""
    return [f"{error.json_path}: {error.message}" for error in validator(name).iter_errors(body)]


def unnamed(name: str, body: object) -> list[str]:
    """Return the path of each key in a body that its schema does not name, at any depth.

    A schema names a key in `properties`. Where an object is a map, `additionalProperties` is the schema of its values;
    `true` there leaves everything below to the object.
    """
    return list(_unnamed([schemas.load(name)], body, "$"))


def _unnamed(found: Iterable[Any], value: object, path: str) -> Iterator[str]:
    """Yield the paths of the keys in a value that none of the schemas found for it names."""
    parts = [part for schema in found for part in _parts(schema)]
    if True in parts:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            of_key = [schema for part in parts for schema in _of_key(part, key)]
            yield from _unnamed(of_key, item, f"{path}.{key}") if of_key else [f"{path}.{key}"]
    elif isinstance(value, list):
        of_items = [part["items"] for part in parts if "items" in part]
        for number, item in enumerate(value):
            yield from _unnamed(of_items, item, f"{path}[{number}]")


def _parts(schema: Any) -> Iterator[Any]:
    """Yield a schema, and each that it refers to or is put together from."""
    yield schema
    if schema is True:
        return
    if "$ref" in schema:
        yield from _parts(REGISTRY.resolver().lookup(schema["$ref"]).contents)
    then = [schema["then"]] if "then" in schema else []
    for part in (*schema.get("allOf", ()), *schema.get("anyOf", ()), *then):
        yield from _parts(part)


def _of_key(schema: Any, key: str) -> list[Any]:
    """Return the schema that another one has for the value of a key; none where it does not name the key."""
    if key in schema.get("properties", {}):
        return [schema["properties"][key]]
    return [schema["additionalProperties"]] if schema.get("additionalProperties") not in (None, False) else []


def bodies_of_events() -> dict[EventType, tuple[str, ...]]:
    """Return the fields that the body of each type of event has."""
    named = {
        rule["if"]["properties"]["type"]["const"]: tuple(rule["then"]["properties"]["body"]["required"])
        for rule in schemas.load("event")["allOf"]
    }
    return {kind: named.get(kind.value, ()) for kind in EventType}
