"""What is committed beside the records of a decision: why it was made, what it changed, and who asked.

Records alone only say what happened. Operators, the audit and the event stream read the values here, which are
committed with the records, all or none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from batonpass.codec.changes import Change, changes_of
from batonpass.codec.generations import Generation, generation_of, new_moves, why_of
from batonpass.codec.traces import Trace, soft_delta
from batonpass.core.decide import Decision
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import (
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
    TrustRequest,
)
from batonpass.core.state.model import Group
from batonpass.core.state.policy import Policy
from batonpass.core.state.soft import Soft
from batonpass.runtime.event_derivation import events_of
from batonpass.runtime.events import Event


class Asked(NamedTuple):
    """Who asked for something, and why.

    ``cause`` is the id that the request, its log lines and its records share. ``command`` names a mutating call, which
    leaves a row in the audit trail whether or not it changed anything; "" for any other call.
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
    TrustRequest: "trust",
}
"""The name of each mutating call in the audit trail and in the log."""


def command_of(item: Input) -> str:
    """Return the name of a mutating call; "" for any other input."""
    return "unpin" if isinstance(item, PinRequest) and item.member_id is None else COMMANDS.get(type(item), "")


SUBJECT_BYTES_MAX: Final = 32_768

NOBODY_ASKED: Final = Asked()
"""For what the coordinator does without a caller: a deadline, a start."""


@dataclass(frozen=True, slots=True)
class History:
    """All that is committed beside the records of one decision; ``item`` is the command, where one was given.

    ``new_moves`` is only counted: how many of the generation's moves no earlier one asked for.
    """

    asked: Asked = NOBODY_ASKED
    at_ms: int = 0
    item: Input | None = None
    generation: Generation | None = None
    new_moves: int = 0
    changes: tuple[Change, ...] = ()
    events: tuple[Event, ...] = ()
    trace: Trace | None = None

    @property
    def subject(self) -> dict[str, Any]:
        """What the command was about, for the audit trail: the fields of its input that are not empty.

        Of many bytes only the number is kept, so that rows are quick to read; the records have it all.
        """
        fields: dict[str, Any] = {} if self.item is None else msgspec.to_builtins(self.item, str_keys=True)
        if not fields.get("until_undone"):
            # Rows of commands that are about one run alone are as they were.
            fields.pop("until_undone", None)
        about = {name: said for name, said in fields.items() if said not in (None, {}, [], "") and name != "group_id"}
        size = len(msgspec.json.encode(about))
        return about if size <= SUBJECT_BYTES_MAX else {"left_out_bytes": size}


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
    """The lags and rates of one group at one instant, for the audit and the simulator."""

    group: GroupId
    at_ms: int
    copies: tuple[CopySample, ...]

    @property
    def behind(self) -> int:
        """How many records copies lack that are restored or followed, added up as far as they are known."""
        return sum(one.lag or 0 for one in self.copies if one.role in ("standby", "warmup") or one.state == "restoring")


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


DAY_MS: Final = 86_400_000


class Historian:
    """Writes down, for each decision of one group, what is to be committed beside its records.

    It remembers what the last trace said, so that the next one says only what is new. The first trace of a day says
    everything: traces are stored by day, and a chain of them can be followed only from its beginning.

    ``code`` identifies the program that decides: the same code decides the same on the same input (L10).
    """

    def __init__(self, policy: Policy, code: str) -> None:
        self._policy = policy
        self._code = code
        self._traced: Soft | None = None
        self._day = self._day_of_last = 0

    def begin_anew(self) -> None:
        """Have the next trace start from empty soft state: the group was read anew."""
        self._traced = None

    def history(
        self,
        asked: Asked,
        inputs: tuple[Input, ...],
        before: tuple[Group, Soft],
        decision: Decision,
        *,
        at: tuple[int, float],
    ) -> History:
        """Return what is to be committed with a decision; ``at`` is its instant, and how many milliseconds it took."""
        group, soft = before
        now_ms, decide_ms = at
        self._day_of_last = now_ms // DAY_MS
        generation = generation_of(group, decision.records, decision.after, decision.reasons, at=at)
        return History(
            asked=asked,
            at_ms=now_ms,
            item=inputs[0] if asked.command else None,
            generation=generation,
            new_moves=0 if generation is None else new_moves(group, generation, decision.after),
            changes=changes_of(group, decision.records, decision.after, why_of(decision.reasons), now_ms),
            events=events_of(group, inputs, decision, now_ms),
            trace=Trace(
                inputs=inputs,
                now_ms=now_ms,
                version=group.version,
                soft=soft_delta(self._traced if self._day == self._day_of_last else None, soft),
                policy=self._policy,
                code=self._code,
                decide_ms=decide_ms,
            ),
        )

    def committed(self, soft: Soft) -> None:
        """Called when the last history, of a decision on ``soft``, is in the log."""
        self._traced, self._day = soft, self._day_of_last
