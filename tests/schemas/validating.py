"""Holding a body against a schema of the package, for any test that has one."""

from __future__ import annotations

from functools import cache

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from batonpass import schemas


@cache
def validator(name: str) -> Draft202012Validator:
    """Return the validator of a schema, with all others at hand."""
    resources = [(schemas.URN + each, Resource.from_contents(schemas.load(each))) for each in schemas.names()]
    return Draft202012Validator(schemas.load(name), registry=Registry().with_resources(resources))


def faults(name: str, body: object) -> list[str]:
    """Return what is wrong with a body, one line a fault, with its path."""
    return [f"{error.json_path}: {error.message}" for error in validator(name).iter_errors(body)]
