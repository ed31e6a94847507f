"""What is stored, read by who must go on: damage of any kind ends as an error of the one record that has it.

A coordinator may refuse a group of which it cannot read something. The audit looks at all groups, and says which record
of which group cannot be read.
"""

from __future__ import annotations

import zlib
from typing import Final

from batonpass.codec.groups import UnreadableGroup, decode_group
from batonpass.codec.records import StoredRecord, UnreadableRecord, decode_record
from batonpass.codec.traces import UnreadableTrace
from batonpass.core import records as r
from batonpass.core.errors import InvalidConfig
from batonpass.core.model import Group
from batonpass.core.policy import GroupConfig, parse_config
from batonpass.core.records import Record

DAMAGE: Final = (
    *(UnreadableRecord, UnreadableGroup, UnreadableTrace, InvalidConfig, zlib.error),
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
)
"""What comes of reading what is damaged, and of working with what was read and cannot be."""

SETTING_MOST: Final = 2**40
"""Settings that are reckoned with stay far below."""

COPIES: Final = "json_array_elements(case when json_typeof(copies) = 'array' then copies else '[]' end)"
"""The copies of a sample; a sample that is none has none."""
WHOLE_LAG: Final = r"case when copy ->> 4 ~ '^\d{1,18}$' then (copy ->> 4)::bigint end"
"""The lag of a copy; null where it is not known, or no whole number."""


def read_record(stored: StoredRecord) -> Record:
    """Return the record that was stored.

    Raises:
        Exception: one of ``DAMAGE``.
    """
    record = decode_record(stored)
    if isinstance(record, r.GroupDeclared | r.ConfigChanged):
        _check_settings(record.config)
    return record


def read_group(form: int, payload: bytes) -> Group:
    """Return the group that a snapshot holds.

    Raises:
        Exception: one of ``DAMAGE``.
    """
    group = decode_group(form, zlib.decompress(payload))
    _check_settings(group.config)
    return group


def _check_settings(config: GroupConfig) -> None:
    """The codec takes any text where a number or a share may stand, and whole numbers of any size."""
    parse_config({name: getattr(config, name) for name in ("max_warmup_replicas", "max_drain_warmups")})
    for name in ("max_warmups_per_member", "session_timeout_ms", "suspect_timeout_ms"):
        if not -SETTING_MOST < getattr(config, name) < SETTING_MOST:
            raise ValueError(f"config.{name}: {getattr(config, name)} is out of range")
