"""Members by the names that people gave them, where a report would show the ids that a coordinator gave them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from batonpass.audit.findings import AuditResult, Finding

GIVEN_ID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
"""An id that a coordinator, or the SDK, drew for a member; one that somebody chose is read as it is."""


def readable(result: AuditResult) -> AuditResult:
    """Return the same with names in place of ids, where ``result.pictures.names`` has one.

    Two members of a group never have one name, so that whoever looks for two owners of a task still sees two.
    """
    names = result.pictures.names
    if not names:
        return result
    by_group: dict[str, dict[str, str]] = {}
    for (group, member), name in names.items():
        by_group.setdefault(group, {})[member] = name

    def named(group: str, member: str) -> str:
        return names.get((group, member), member)

    pictures = replace(
        result.pictures,
        ownership=tuple(one._replace(member=named(one.group, one.member)) for one in result.pictures.ownership),
        warmups=tuple(one._replace(member=named(one.group, one.member)) for one in result.pictures.warmups),
    )
    findings = tuple(_finding(one, by_group.get(one.group, {})) for one in result.findings)
    return replace(result, pictures=pictures, findings=findings)


def _finding(one: Finding, names: Mapping[str, str]) -> Finding:
    detail = GIVEN_ID.sub(lambda found: names.get(found[0], found[0]), one.detail)
    return replace(one, member=names.get(one.member or "", one.member), detail=detail)
