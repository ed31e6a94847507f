"""What stands beside the records of a decision: why it was made, what it changed, and who asked.

Records alone say what became so. Operators, the audit and the event stream read the values here, which are committed
with the records, all or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from batonpass.codec.changes import Change
from batonpass.codec.generations import Generation
from batonpass.codec.traces import Trace
from batonpass.core.ids import GroupId, MemberId, TaskId
from batonpass.core.inputs import (
    DrainRequest,
    DrainReversal,
    Eviction,
    GroupDeclaration,
    GroupDeletion,
    Input,
    Leave,
    PauseRequest,
    PinRequest,
    ProbeRequest,
    ReleaseRequest,
    ResumeRequest,
)


class Asked(NamedTuple):
    """Who asked for something, and why.

    ``cause`` is the id under which the request, its log lines and its records are found again. ``command`` names a
    mutating call that is to leave a row in the audit trail whether or not it changed anything; "" for none.
    """

    who: str = ""
    reason: str = ""
    cause: str = ""
    command: str = ""


COMMANDS: Final[Mapping[type[Input], str]] = {
    GroupDeclaration: "declare",
    GroupDeletion: "delete",
    Leave: "leave",
    DrainRequest: "drain",
    DrainReversal: "undrain",
    Eviction: "evict",
    ProbeRequest: "probe",
    PauseRequest: "pause",
    ResumeRequest: "resume",
    PinRequest: "pin",
    ReleaseRequest: "release",
}
"""What a mutating call is named in the audit trail and in the log."""


def command_of(item: Input) -> str:
    """Return what a mutating call is named, "" for an input that is none."""
    return "unpin" if isinstance(item, PinRequest) and item.member_id is None else COMMANDS.get(type(item), "")


NOBODY_ASKED: Final = Asked()
"""What is done on the coordinator's own account: a deadline, a start."""


class Event(NamedTuple):
    """What the event stream tells. ``body`` holds what is particular to the ``type``, ready to be JSON."""

    type: str
    at_ms: int
    generation: int
    member: MemberId | None
    task: TaskId | None
    body: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class History:
    """All that is committed beside the records of one decision; ``item`` is the command, where one was given."""

    asked: Asked = NOBODY_ASKED
    at_ms: int = 0
    item: Input | None = None
    generation: Generation | None = None
    changes: tuple[Change, ...] = ()
    events: tuple[Event, ...] = ()
    trace: Trace | None = None


NO_HISTORY: Final = History()


class CopySample(NamedTuple):
    """How far one copy of a task had come: ``lag`` in records, ``rate`` in records a second; None: unknown.

    ``state`` is that of an active, "" for other roles; ``role`` is ``none`` for state on disk.
    """

    task: TaskId
    member: MemberId
    role: str
    state: str
    lag: int | None
    rate: float | None


class Sample(NamedTuple):
    """The lags and rates of one group at one instant, for those who look back (the audit, the simulator)."""

    group: GroupId
    at_ms: int
    copies: tuple[CopySample, ...]


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as it was committed. ``position`` grows over all groups, without gaps, in the order of the commits."""

    position: int
    group: str
    event: Event


@dataclass(frozen=True, slots=True)
class StoredCommand:
    """One row of the audit trail."""

    position: int
    group: str
    at_ms: int
    asked: Asked
    subject: Mapping[str, object] = field(default_factory=dict)
