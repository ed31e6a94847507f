"""A store in memory, lost when its process ends, that otherwise behaves like a real one.

Its record log keeps stored forms, not the values it was given. So a record without a stored form fails here as it would
in a database, and a read never returns the object that was written.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import date

import msgspec

from batonpass.codec.changes import Change
from batonpass.codec.generations import Generation
from batonpass.codec.records import StoredRecord, decode_records, encode_records
from batonpass.core.state.ids import GroupId, TaskId
from batonpass.core.state.model import Group
from batonpass.runtime.access import Principal, StoredToken, digest_of, new_secret
from batonpass.runtime.audits import AuditDay, AuditFinding, AuditMeasures, AuditStanding
from batonpass.runtime.history import Asked, History, Sample, StoredCommand, StoredEvent
from batonpass.runtime.ports import Clock, Commit, Loaded, Superseded, VersionConflict


class Alone:
    """Ownership for a single coordinator: it owns every group."""

    def holds(self, group_id: GroupId) -> bool:  # noqa: ARG002 - every group is alike here
        """Always True."""
        return True

    def owner_url(self, group_id: GroupId) -> str | None:  # noqa: ARG002 - every group is alike here
        """Always None: there is no other owner."""
        return None

    def others(self) -> Sequence[str]:
        """Always empty."""
        return ()

    def to_forget(self) -> Sequence[GroupId]:
        """Always empty."""
        return ()

    def forgotten(self, group_id: GroupId) -> None:
        """Do nothing."""


class MemoryRecordLog:
    """The records and histories of all groups, in memory."""

    def __init__(self) -> None:
        self._stored: dict[GroupId, list[StoredRecord]] = {}
        self._epochs: dict[GroupId, int] = {}
        self._histories: dict[GroupId, list[History]] = {}
        self._events: list[StoredEvent] = []
        self._commands: list[StoredCommand] = []

    async def take_over(self, group_id: GroupId) -> int:
        """Return the next coordinator epoch of the group; appends under lower epochs fail from now on."""
        self._epochs[group_id] = self._epochs.get(group_id, 0) + 1
        return self._epochs[group_id]

    async def append(self, commit: Commit) -> None:
        """Add all of the commit or nothing, if the group holds ``expected_version`` records.

        Raises:
            VersionConflict: when it holds another number.
            Superseded: when a higher coordinator epoch has taken the group over.
            UnwritableRecord: when a record has no stored form.
        """
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
        """Return the records after the first ``after_version``; this log keeps no snapshots."""
        stored = self._stored.get(group_id, [])
        return Loaded(len(stored), decode_records(stored[after_version or 0 :]))

    async def group_ids(self) -> Sequence[GroupId]:
        """Return every group that holds records, sorted."""
        return sorted(self._stored)

    async def keep_snapshot(self, group: Group) -> None:
        """Do nothing: reading from the beginning costs this log no more."""

    async def generations(self, group_id: GroupId, *, before: int | None, limit: int) -> Sequence[Generation]:
        """Return generations below ``before``, newest first, without ``moved``."""
        found = [one.generation for one in reversed(self._histories.get(group_id, ())) if one.generation]
        below = [one._replace(moved=()) for one in found if before is None or one.number < before]
        return below[:limit]

    async def generation(self, group_id: GroupId, number: int) -> Generation | None:
        """Return one generation with ``moved``; None if there is none of this number."""
        found = (one.generation for one in self._histories.get(group_id, ()) if one.generation)
        return next((one for one in found if one.number == number), None)

    async def task_changes(self, group_id: GroupId, task: TaskId, *, limit: int) -> Sequence[Change]:
        """Return the last changes of a task, newest first."""
        histories = reversed(self._histories.get(group_id, ()))
        found = [change for one in histories for change in reversed(one.changes) if change.task == task]
        return found[:limit]

    async def events(self, group_id: GroupId | None, *, after: int, limit: int) -> Sequence[StoredEvent]:
        """Return events after a position, in order."""
        later = self._events[max(after, 0) :]
        return [replace(one) for one in later if group_id is None or one.group == group_id][:limit]

    async def events_before(self, group_id: GroupId | None, *, before: int | None, limit: int) -> Sequence[StoredEvent]:
        """Return events below a position, newest first."""
        below = (one for one in reversed(self._events) if before is None or one.position < before)
        return [one for one in below if group_id is None or one.group == group_id][:limit]

    async def lags(self, group_id: GroupId, **stretch: object) -> Sequence[tuple[int, int]]:  # noqa: ARG002 - it has none
        """Return nothing: samples are not kept."""
        return ()

    async def last_position(self) -> int:
        """Return the position of the newest event."""
        return len(self._events)

    async def commands(self, group_id: GroupId | None, *, before: int | None, limit: int) -> Sequence[StoredCommand]:
        """Return rows of the audit trail below a position, newest first."""
        below = [one for one in reversed(self._commands) if before is None or one.position < before]
        return [one for one in below if group_id is None or one.group == group_id][:limit]


class MemoryTokens:
    """Tokens by the digest of their secret."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._stored: dict[bytes, StoredToken] = {}

    async def find(self, secret: str) -> Principal | None:
        """Return the caller that a secret belongs to; None for one that is unknown, revoked or expired."""
        token = self._stored.get(digest_of(secret))
        if token is None or token.revoked_ms is not None:
            return None
        if token.expires_ms is not None and token.expires_ms <= self._now_ms():
            return None
        return Principal(token.name, token.role, token.group, token.expires_ms)

    async def create(self, wanted: Principal, asked: Asked) -> tuple[StoredToken, str]:  # noqa: ARG002 - no trail is kept
        """Make a token and return it with its secret, which is not kept."""
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
        """Return every token, oldest first."""
        return tuple(self._stored.values())

    async def revoke(self, token_id: str, asked: Asked) -> bool:  # noqa: ARG002 - no trail is kept
        """Revoke a token; return whether there is one of this id."""
        for digest, token in self._stored.items():
            if token.id == token_id:
                if token.revoked_ms is None:
                    self._stored[digest] = replace(token, revoked_ms=self._now_ms())
                return True
        return False


class NoAudits:
    """The audits of a coordinator with a store in memory: there are none, because an audit reads a database."""

    async def days(self, *, before: date | None, limit: int) -> Sequence[AuditDay]:  # noqa: ARG002 - there is none
        """Always empty."""
        return ()

    async def day(self, day: date) -> AuditDay | None:  # noqa: ARG002 - there is none
        """Always None."""
        return None

    async def findings(self, day: date, *, after: int, limit: int) -> Sequence[AuditFinding]:  # noqa: ARG002 - the same
        """Always empty."""
        return ()

    async def measures(self, day: date) -> Sequence[AuditMeasures]:  # noqa: ARG002 - there is none
        """Always empty."""
        return ()

    async def standing(self) -> AuditStanding:
        """Always as before the first audit."""
        return AuditStanding()


class DroppedSamples:
    """Takes samples and keeps none of them."""

    async def keep_samples(self, samples: Sequence[Sample]) -> None:
        """Do nothing."""


class MemoryStore:
    """A store in memory, which no other process shares."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.log = self.archive = MemoryRecordLog()
        self.samples = DroppedSamples()
        self.outbox = None
        self.tokens = MemoryTokens(clock.now_ms)
        self.audits = NoAudits()
        self.ownership = Alone()

    async def start(self, changed: Callable[[], Awaitable[None]] | None = None) -> None:
        """Do nothing: nothing runs in the background."""

    async def stop(self) -> None:
        """Do nothing: it is forgotten by itself."""

    def not_ready(self) -> str:
        """Always empty: it is always ready."""
        return ""

    def lease_left_s(self) -> float:
        """Always infinite: there is no lease."""
        return float("inf")
