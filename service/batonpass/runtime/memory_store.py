"""A store in memory, lost when its process ends, that otherwise behaves like a real one.

Its record log keeps stored forms, not the values it was given. So a record without a stored form fails here as it would
in a database, and a read never returns the object that was written.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from batonpass.codec.changes import Change
from batonpass.codec.generations import Generation
from batonpass.codec.records import StoredRecord, decode_records, encode_records
from batonpass.core.state.ids import GroupId, TaskId
from batonpass.core.state.model import Group
from batonpass.runtime.access import Principal, StoredToken, Tokens, digest_of, new_secret
from batonpass.runtime.audits import Audits
from batonpass.runtime.history import Asked, History, Sample, StoredCommand, StoredEvent
from batonpass.runtime.ports import (
    Archive,
    Clock,
    Commit,
    Loaded,
    Ownership,
    RecordLog,
    Store,
    Superseded,
    VersionConflict,
)


class MemoryRecordLog(RecordLog, Archive):
    """The records and histories of all groups, in memory. It keeps no snapshots and no samples."""

    def __init__(self) -> None:
        self._stored: dict[GroupId, list[StoredRecord]] = {}
        self._epochs: dict[GroupId, int] = {}
        self._histories: dict[GroupId, list[History]] = {}
        self._events: list[StoredEvent] = []
        self._commands: list[StoredCommand] = []

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
        self._remember(group_id, commit.history)

    def _remember(self, group_id: GroupId, history: History) -> None:
        self._histories.setdefault(group_id, []).append(history)
        for event in history.events:
            body = msgspec.json.decode(msgspec.json.encode(event.body))
            self._events.append(StoredEvent(len(self._events) + 1, group_id, event._replace(body=body)))
        if history.asked.command:
            row = StoredCommand(len(self._commands) + 1, group_id, history.at_ms, history.asked, history.subject)
            self._commands.append(row)

    async def read(self, group_id: GroupId, *, after_version: int | None = None) -> Loaded:
        stored = self._stored.get(group_id, [])
        return Loaded(len(stored), decode_records(stored[after_version or 0 :]))

    async def group_ids(self) -> Sequence[GroupId]:
        return sorted(name for name, stored in self._stored.items() if stored[-1].kind != "group-deleted")

    async def knows(self, group_id: GroupId) -> bool:
        return group_id in self._stored

    async def keep_snapshot(self, group: Group) -> None:
        pass

    async def generations(self, group_id: GroupId, *, before: int | None, limit: int) -> Sequence[Generation]:
        found = [one.generation for one in reversed(self._histories.get(group_id, ())) if one.generation]
        below = [one._replace(moved=()) for one in found if before is None or one.number < before]
        return below[:limit]

    async def generation(self, group_id: GroupId, number: int) -> Generation | None:
        found = (one.generation for one in self._histories.get(group_id, ()) if one.generation)
        return next((one for one in found if one.number == number), None)

    async def task_changes(self, group_id: GroupId, task: TaskId, *, limit: int) -> Sequence[Change]:
        histories = reversed(self._histories.get(group_id, ()))
        found = [change for one in histories for change in reversed(one.changes) if change.task == task]
        return found[:limit]

    async def events(self, group_id: GroupId | None, *, after: int, limit: int) -> Sequence[StoredEvent]:
        later = self._events[max(after, 0) :]
        return [replace(one) for one in later if group_id is None or one.group == group_id][:limit]

    async def events_before(self, group_id: GroupId | None, *, before: int | None, limit: int) -> Sequence[StoredEvent]:
        below = (one for one in reversed(self._events) if before is None or one.position < before)
        return [one for one in below if group_id is None or one.group == group_id][:limit]

    async def lags(self, group_id: GroupId, **stretch: object) -> Sequence[tuple[int, int]]:  # noqa: ARG002 - it has none
        return ()

    async def keep_samples(self, samples: Sequence[Sample]) -> None:
        pass

    async def last_position(self) -> int:
        return len(self._events)

    async def commands(self, group_id: GroupId | None, *, before: int | None, limit: int) -> Sequence[StoredCommand]:
        below = [one for one in reversed(self._commands) if before is None or one.position < before]
        return [one for one in below if group_id is None or one.group == group_id][:limit]


class MemoryTokens(Tokens):
    """Tokens by the digest of their secret."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._stored: dict[bytes, StoredToken] = {}

    async def find(self, secret: str) -> Principal | None:
        token = self._stored.get(digest_of(secret))
        if token is None or token.revoked_ms is not None:
            return None
        if token.expires_ms is not None and token.expires_ms <= self._now_ms():
            return None
        return Principal(token.name, token.role, token.group, token.expires_ms)

    async def create(self, wanted: Principal, asked: Asked) -> tuple[StoredToken, str]:  # noqa: ARG002 - no trail is kept
        secret = new_secret()
        made = StoredToken(
            id=secrets.token_hex(8),
            name=wanted.name,
            role=wanted.role,
            group=wanted.group,
            last_four=secret[-4:],
            created_ms=self._now_ms(),
            expires_ms=wanted.expires_ms,
        )
        self._stored[digest_of(secret)] = made
        return made, secret

    async def list(self) -> Sequence[StoredToken]:
        return tuple(self._stored.values())

    async def revoke(self, token_id: str, asked: Asked) -> bool:  # noqa: ARG002 - no trail is kept
        for digest, token in self._stored.items():
            if token.id == token_id:
                if token.revoked_ms is None:
                    self._stored[digest] = replace(token, revoked_ms=self._now_ms())
                return True
        return False


class MemoryStore(Store):
    """A store in memory, which no other process shares, and which is forgotten by itself. No audit reads it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.log = self.archive = MemoryRecordLog()
        self.tokens = MemoryTokens(clock.now_ms)
        self.audits = Audits()
        self.ownership = Ownership()
