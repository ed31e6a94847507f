"""The rows that a simulated group's day leaves, in the columns of the tables that they go to."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from batonpass.codec.changes import Change
from batonpass.codec.code import code_version
from batonpass.codec.groups import GROUP_VERSION, decode_group, encode_group
from batonpass.codec.records import json_text
from batonpass.core.decide import Decision
from batonpass.core.state.ids import GroupId
from batonpass.core.state.inputs import DrainRequest, GroupDeclaration, Input
from batonpass.core.state.model import Group
from batonpass.core.state.policy import Policy
from batonpass.core.state.soft import Soft
from batonpass.postgres.append import Row, prepare
from batonpass.postgres.snapshots import KEPT
from batonpass.runtime.chores import SNAPSHOT_EVERY_RECORDS, sample_of
from batonpass.runtime.history import NOBODY_ASKED, Asked, Historian
from batonpass.runtime.ports import Commit

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "record_log": ("group_id", "seq", "coordinator_epoch", "at", "kind", "version", "payload"),
    "generations": (
        *("group_id", "number", "version", "group_epoch", "at", "triggers", "members", "tasks", "moves"),
        *("lower_bound", "warmups", "score_before", "score", "decide_ms", "reasons", "moved"),
    ),
    "assignment_events": (
        *("group_id", "version", "place", "task_id", "member_id", "kind", "role_before", "role", "at"),
        *("generation", "member_epoch", "token", "state", "warm", "why", "heard_at"),
    ),
    "traces": ("group_id", "at", "version", "format", "code", "cause", "payload"),
    "samples": ("group_id", "at", "copies"),
    "commands": ("group_id", "at", "command", "who", "asked", "subject"),
    "snapshots": ("group_id", "version", "format", "at", "payload"),
    "events": ("position", "group_id", "at", "type", "generation", "member_id", "task_id", "body"),
}
"""What is written of each table, in order; positions of events are given out when they are written."""

_COMMAND_OF: Final[Mapping[type[Input], str]] = {GroupDeclaration: "declare", DrainRequest: "drain"}
_WHO: Final = "simulator"


def instant(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else EPOCH + timedelta(milliseconds=at_ms)


@dataclass(slots=True)
class GroupRows:
    """All rows of one group. ``version`` is how many records it has; ``tables`` has the rows of each table.

    ``missed`` says which steps of the scenario could not happen.
    """

    group_id: str
    version: int = 0
    coordinator_epoch: int = 1
    tables: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    missed: tuple[str, ...] = ()

    @property
    def events(self) -> int:
        """How many changes of assignments there are: the size of a day is counted in these."""
        return len(self.tables["assignment_events"])

    def append(self, records: Sequence[Row], changes: Iterable[Change], at: datetime) -> None:
        """Append what a decision wrote: for each record its number, kind, version and payload; and its task history."""
        self.tables["record_log"] += [
            (self.group_id, seq, self.coordinator_epoch, at, *stored) for seq, *stored in records
        ]
        self.tables["assignment_events"] += [
            (self.group_id, self.version, place, *one[:5], at, *one[6:-1], instant(one.heard_ms))
            for place, one in enumerate(changes)
        ]
        self.version += len(records)

    def copy_as(self, group_id: str) -> "GroupRows":
        """Return the same day under another name, without traces, as if retention had deleted these already.

        The moment of a probe depends on the group's name, so what was decided under another name cannot be replayed.
        """
        tables: dict[str, list[Row]] = {}
        for name, rows in self.tables.items():
            place = COLUMNS[name].index("group_id")
            tables[name] = [(*row[:place], group_id, *row[place + 1 :]) for row in rows]
        tables["traces"] = []
        for place, (*row, packed) in enumerate(tables["snapshots"]):
            group = decode_group(row[2], zlib.decompress(packed))
            tables["snapshots"][place] = (*row, _packed(replace(group, id=GroupId(group_id))))
        return replace(self, group_id=group_id, tables=tables)


class GroupRecorder:
    """Writes down one group as the service does: the service's historian makes the history, and its store the rows.

    How long a decision took is not simulated; it is 0.
    """

    def __init__(self, group_id: str, *, sample_every: int = 1, policy: Policy | None = None) -> None:
        """Sample lags every so many minutes; 0: never."""
        self._rows = GroupRows(group_id)
        self._historian = Historian(policy or Policy(), code_version())
        self._snapshots: list[tuple[Group, int]] = []
        self._snapshot_at = 0
        self._started_ms = 0
        self._sample_every = sample_every
        self._minutes = 0
        self._sampled: tuple[object, str] | None = None

    def decided(self, group: Group, soft: Soft, item: Input, decision: Decision, now_ms: int) -> None:
        if soft.started_ms != self._started_ms:
            # A coordinator has started and taken the group over, without the soft state of the last one.
            self._historian.begin_anew()
            self._rows.coordinator_epoch += bool(group.version)
            self._started_ms = soft.started_ms
        command = _COMMAND_OF.get(type(item))
        asked = Asked(_WHO, "", "", command) if command else NOBODY_ASKED
        history = self._historian.history(asked, (item,), (group, soft), decision, at=(now_ms, 0.0))
        self._historian.committed(soft)
        epoch = self._rows.coordinator_epoch
        prepared = prepare(Commit(GroupId(self._rows.group_id), epoch, group.version, decision.records, history))
        at = EPOCH + timedelta(milliseconds=now_ms)
        tables, group_id, parts = self._rows.tables, self._rows.group_id, prepared.rows
        self._rows.append(parts.get("records", ()), history.changes, at)
        tables["generations"] += [
            (group_id, *row[:3], at, msgspec.json.decode(row[4]), *row[5:]) for row in parts.get("generations", ())
        ]
        tables["traces"] += [(group_id, at, *row[1:]) for row in parts.get("traces", ())]
        tables["commands"] += [(group_id, at, *row[1:]) for row in parts.get("commands", ())]
        tables["events"] += [(0, group_id, at, *row[1:]) for row in parts.get("events", ())]

    def minute(self, group: Group, soft: Soft, now_ms: int) -> None:
        """Take a sample, and a snapshot if the group has grown enough."""
        if self._sample_every and self._minutes % self._sample_every == 0 and group.version:
            at = EPOCH + timedelta(milliseconds=now_ms)
            self._rows.tables["samples"].append((self._rows.group_id, at, self._sample(group, soft, now_ms)))
        self._minutes += 1
        if group.version - self._snapshot_at > SNAPSHOT_EVERY_RECORDS:
            self._snapshot_at = group.version
            self._snapshots.append((group, now_ms))

    def _sample(self, group: Group, soft: Soft, now_ms: int) -> str:
        """Return the sample; if no member reported anything new, it is the last one."""
        key = [heard.reports for heard in soft.members.values()]
        if self._sampled is not None and self._sampled[0] == key:
            return self._sampled[1]
        found = json_text(sample_of(group, soft, now_ms).copies)
        self._sampled = key, found
        return found

    def rows(self) -> GroupRows:
        self._rows.tables["snapshots"] = [
            (self._rows.group_id, group.version, GROUP_VERSION, instant(at_ms), _packed(group))
            for group, at_ms in self._kept()
        ]
        return self._rows

    def _kept(self) -> Iterator[tuple[Group, int]]:
        """Yield the snapshots that the service would still have: the newest, and the last one of each day."""
        last_of_day = {at_ms // 86_400_000: place for place, (_, at_ms) in enumerate(self._snapshots)}
        for place, taken in enumerate(self._snapshots):
            if place >= len(self._snapshots) - KEPT or place in last_of_day.values():
                yield taken


def _packed(group: Group) -> bytes:
    return zlib.compress(encode_group(group), 1)
