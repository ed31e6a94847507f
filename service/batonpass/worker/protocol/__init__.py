"""The member's side of the protocol: a state machine without I/O, clock or randomness, which any client can drive.

Where to find what: `machine` has the theory, the tables of phases and refusals, and every decision on what is said and
done; `holdings` what the member has of each task; `lease` the time that it may count on; `messages` how requests and
answers go over HTTP; `types` the types that all of them use.
"""

from batonpass.worker.protocol.holdings import Holding
from batonpass.worker.protocol.machine import MemberProtocol
from batonpass.worker.protocol.messages import (
    NOTHING_HELD,
    Answer,
    Assignment,
    Grant,
    MalformedAnswer,
    http_target,
    parse_answer,
)
from batonpass.worker.protocol.types import (
    UNKNOWN_PROGRESS,
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
    Rejoining,
    Request,
    RequestKind,
    Role,
    RoleChanged,
    Send,
    Stage,
    Start,
    Status,
    StatusChanged,
    Stop,
    StopForGood,
)

__all__ = [
    "NOTHING_HELD",
    "UNKNOWN_PROGRESS",
    "Answer",
    "Assignment",
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
    "Phase",
    "Problem",
    "ProblemSeen",
    "Progress",
    "Rejoining",
    "Request",
    "RequestKind",
    "Role",
    "RoleChanged",
    "Send",
    "Stage",
    "Start",
    "Status",
    "StatusChanged",
    "Stop",
    "StopForGood",
    "http_target",
    "parse_answer",
]
