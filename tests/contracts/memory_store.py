"""A store in memory, for tests of what works with one; the tests in this folder hold it to what Postgres does."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from batonpass.codec.changes import Change
from batonpass.codec.generations import Generation
from batonpass.core.state.ids import GroupId, TaskId
from batonpass.runtime.access import Principal, StoredToken, Tokens, digest_of, new_secret
from batonpass.runtime.audits import Audits
from batonpass.runtime.clocks import boot_ms, wall_ms
from batonpass.runtime.history import Asked, History, Sample, StoredCommand, StoredEvent
from batonpass.runtime.memory_log import MemoryRecordLog
from batonpass.runtime.ports import Archive, Clock, Commit, Ownership, Store


class MemoryLog(MemoryRecordLog, Archive):
    """The records and histories of all groups, in memory. It keeps no samples."""

    def __init__(self) -> None:
        super().__init__()
        self._histories: dict[GroupId, list[History]] = {}
        self._events: list[StoredEvent] = []
        self._commands: list[StoredCommand] = []

    async def append(self, commit: Commit) -> None:
        """Append, and remember what the commit says beside its records."""
        await super().append(commit)
        self._remember(commit.group_id, commit.history)

    def _remember(self, group_id: GroupId, history: History) -> None:
        self._histories.setdefault(group_id, []).append(history)
        for event in history.events:
            body = msgspec.json.decode(msgspec.json.encode(event.body))
            self._events.append(StoredEvent(len(self._events) + 1, group_id, event._replace(body=body)))
        if history.asked.command:
            row = StoredCommand(len(self._commands) + 1, group_id, history.at_ms, history.asked, history.subject)
            self._commands.append(row)

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


class MachineClock(Clock):
    """This machine's time of day, as it was at the start, counted on."""

    def __init__(self) -> None:
        self._offset_ms = wall_ms() - boot_ms()

    def now_ms(self) -> int:
        return int(boot_ms() + self._offset_ms)


class MemoryStore(Store):
    """A store in memory, which no other process shares, and which is forgotten by itself. No audit reads it."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or MachineClock()
        self.log = self.archive = MemoryLog()
        self.tokens = MemoryTokens(self.clock.now_ms)
        self.audits = Audits()
        self.ownership = Ownership()
