"""The worker's side of Batonpass, for programs that run tasks.

    async with Member("http://coordinator:8420", "orders", MyCallbacks()) as member:
        await member.run()

`Member` keeps one worker process in one group over HTTP and calls its `Callbacks`; `ThreadedMember` does the same for
code that blocks. Both drive `protocol`, the state machine without I/O: what to stop and start in which order, and until
when the lease holds. `testing` has what tests of workers need. This package imports nothing of the service but the ids
and the codec, `testing` excepted.
"""

from batonpass.worker.lifespan import member_lifespan
from batonpass.worker.member import JoinRefused, Member
from batonpass.worker.options import Exit, MemberOptions, Options, tls_context
from batonpass.worker.protocol import LeaveMode, Offsets, OnLeaseLost, Phase, Problem, Progress, Role, Status
from batonpass.worker.tasks import Callbacks, Revocation, Task
from batonpass.worker.threaded import ThreadCallbacks, ThreadedMember, ThreadTask

__all__ = [
    "Callbacks",
    "Exit",
    "JoinRefused",
    "LeaveMode",
    "Member",
    "MemberOptions",
    "Offsets",
    "OnLeaseLost",
    "Options",
    "Phase",
    "Problem",
    "Progress",
    "Revocation",
    "Role",
    "Status",
    "Task",
    "ThreadCallbacks",
    "ThreadTask",
    "ThreadedMember",
    "member_lifespan",
    "tls_context",
]
