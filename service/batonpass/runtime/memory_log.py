"""A record log in memory, for coordinators in users' tests.

It keeps stored forms, not the values it was given. So a record without a stored form fails here as it would in a
database, and a read never returns the object that was written.
"""

from collections.abc import Sequence

from batonpass.codec.records import StoredRecord, decode_records, encode_records
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group
from batonpass.runtime.ports import Commit, Loaded, RecordLog, Superseded, VersionConflict


class MemoryRecordLog(RecordLog):
    """The records of all groups, in memory. It keeps no snapshots."""

    def __init__(self) -> None:
        self._stored: dict[GroupId, list[StoredRecord]] = {}
        self._epochs: dict[GroupId, int] = {}

    async def take_over(self, group_id: GroupId) -> int:
        self._epochs[group_id] = self._epochs.get(group_id, 0) + 1
        return self._epochs[group_id]

    async def append(self, commit: Commit) -> None:
        group_id = commit.group_id
        stored = encode_records(commit.records)
        epoch = self._epochs.get(group_id, 0)
        if commit.coordinator_epoch < epoch:
            raise Superseded(f"{group_id} was taken over under epoch {epoch}; this is {commit.coordinator_epoch}")
        present = len(self._stored.get(group_id, ()))
        if present != commit.expected_version:
            raise VersionConflict(f"{group_id} is at version {present}, not {commit.expected_version}")
        if stored:
            self._stored.setdefault(group_id, []).extend(stored)

    async def read(self, group_id: GroupId, *, after_version: int | None = None) -> Loaded:
        stored = self._stored.get(group_id, [])
        return Loaded(len(stored), decode_records(stored[after_version or 0 :]))

    async def group_ids(self) -> Sequence[GroupId]:
        return sorted(name for name, stored in self._stored.items() if stored[-1].kind != "group-deleted")

    async def knows(self, group_id: GroupId) -> bool:
        return group_id in self._stored

    async def keep_snapshot(self, group: Group) -> None:
        pass
