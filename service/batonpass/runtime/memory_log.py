"""A record log that forgets everything with its process, and otherwise behaves like a real one.

It keeps stored forms, not the values it was handed: what has no stored form fails here as it would in a database, and
what is read is never the object that was written.
"""

from __future__ import annotations

from collections.abc import Sequence

from batonpass.codec.records import StoredRecord, decode_records, encode_records
from batonpass.core.ids import GroupId
from batonpass.core.records import Record
from batonpass.runtime.ports import VersionConflict


class MemoryRecordLog:
    """The records of all groups, in memory."""

    def __init__(self) -> None:
        self._stored: dict[GroupId, list[StoredRecord]] = {}

    async def append(self, group_id: GroupId, records: Sequence[Record], *, expected_version: int) -> None:
        """Add all records or none, if the group holds ``expected_version`` of them.

        Raises:
            VersionConflict: when it holds another number.
            UnwritableRecord: when one of them has no stored form.
        """
        stored = encode_records(records)
        present = len(self._stored.get(group_id, ()))
        if present != expected_version:
            raise VersionConflict(f"{group_id} is at version {present}, not {expected_version}")
        if stored:
            self._stored.setdefault(group_id, []).extend(stored)

    async def read(self, group_id: GroupId, *, after_version: int = 0) -> tuple[int, Sequence[Record]]:
        """Return how many records the group holds, and those after the first ``after_version``."""
        stored = self._stored.get(group_id, [])
        return len(stored), decode_records(stored[after_version:])

    async def group_ids(self) -> Sequence[GroupId]:
        """Return every group that holds records, sorted."""
        return sorted(self._stored)
