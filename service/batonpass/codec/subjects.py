"""What a command was about, for the audit trail: the fields of its input that say something."""

from __future__ import annotations

from typing import Any

import msgspec

from batonpass.core.inputs import Input


def subject_of(item: Input) -> dict[str, Any]:
    """Return an input's fields as JSON has them, without those that are left open."""
    fields: dict[str, Any] = msgspec.to_builtins(item, str_keys=True)
    return {name: said for name, said in fields.items() if said not in (None, {}, [], "") and name != "group_id"}
