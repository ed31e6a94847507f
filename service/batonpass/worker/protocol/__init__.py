"""The member's side of the protocol: a state machine without I/O, clock or randomness, which any client can drive.

Half of the law that at most one member runs an active task (L1) is kept here; the coordinator keeps the other half.
This side promises:

1. An active starts only from an assignment that grants it, and only while the lease holds. A long-poll's answer starts
   nothing while the lease is over, and never renews it.
2. The lease runs `session_timeout_ms` from when the member first sent the highest `seq` that was answered 200: never
   from a retry, never from receipt, never from a refusal. With `on_lease_lost` "stop" every active is told to stop
   without a commit the moment that it is over, those included that were stopping with one. A task so stopped starts
   again only after a heartbeat sent since then is answered 200 with the task still in the assignment.
3. A task is reported as given up only after the worker said that it has stopped. Until then each report calls it
   active. Where its owner stopped stands in each report until one is answered 200 that could confirm the revocation.
4. `seq` grows with every new heartbeat. A retry says word for word what it said before.
5. The epoch sent never falls within a run, and no epoch is echoed whose assignment was not taken. An answer of a lower
   epoch changes nothing but the lease. So late, lost, doubled and reordered answers on both channels cost nothing.
6. A join with `replaces` is sent only when every active of the old run has stopped. Each run has an id of its own.
7. Stops come before starts. What still stops does not start again before it has stopped, and a newer token for a
   running task stops it first.
8. Refused for good (a newer run of the same instance), it stops everything and sends nothing more.

What it deliberately ignores: where tasks should be, how warm a copy must be to take over, whom to believe. The
coordinator decides that, in `batonpass.core`.

The way through the files: `types` has the words, `machine` the inputs, `conversation` the rules between process and
coordinator, `run` what belongs to one member id, `lease` the time that it may count on, `holdings` what the member has
of each task, `requests`, `answers` and `refusals` the wire, `lanes` the calls under way.
"""

from batonpass.worker.protocol.answers import NOTHING_HELD, Answer, Assignment, Grant, MalformedAnswer, parse_answer
from batonpass.worker.protocol.holdings import Holding, Pending
from batonpass.worker.protocol.machine import MemberProtocol
from batonpass.worker.protocol.requests import http_target
from batonpass.worker.protocol.types import (
    UNKNOWN_PROGRESS,
    DemoteActive,
    Instruction,
    Joined,
    LeaveMode,
    MemberSettings,
    Offsets,
    OnLeaseLost,
    Phase,
    Problem,
    ProblemSeen,
    Progress,
    PromoteCopy,
    Rejoining,
    Request,
    RequestKind,
    Role,
    RoleChanged,
    Send,
    Stage,
    StartActive,
    StartStandby,
    StartWarmup,
    Status,
    StatusChanged,
    StopActive,
    StopCopy,
    StopForGood,
)

__all__ = [
    "NOTHING_HELD",
    "UNKNOWN_PROGRESS",
    "Answer",
    "Assignment",
    "DemoteActive",
    "Grant",
    "Holding",
    "Instruction",
    "Joined",
    "LeaveMode",
    "MalformedAnswer",
    "MemberProtocol",
    "MemberSettings",
    "Offsets",
    "OnLeaseLost",
    "Pending",
    "Phase",
    "Problem",
    "ProblemSeen",
    "Progress",
    "PromoteCopy",
    "Rejoining",
    "Request",
    "RequestKind",
    "Role",
    "RoleChanged",
    "Send",
    "Stage",
    "StartActive",
    "StartStandby",
    "StartWarmup",
    "Status",
    "StatusChanged",
    "StopActive",
    "StopCopy",
    "StopForGood",
    "http_target",
    "parse_answer",
]
