"""The worker's side of Batonpass, for programs that run tasks.

    async with Member("http://coordinator:8420", "orders", MyCallbacks()) as member:
        await member.run()

`Member` keeps one worker process in one group over HTTP and calls its `Callbacks`; `ThreadedMember` does the same for
code that blocks. Both drive `protocol`, the state machine without I/O, which knows what to stop and start in which
order, and until when the lease holds. `testing` has what tests of workers need. Except for `testing`, this package
imports nothing of the service but the ids and the codec.

The names below are imported on first use: `protocol` needs only the standard library, and a program that imports
nothing else shall need nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batonpass.http_clients import tls_context
    from batonpass.worker.member import JoinRefused, Member, member_lifespan
    from batonpass.worker.options import Exit, MemberOptions, Options
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

_HOMES = {
    "member": ("JoinRefused", "Member", "member_lifespan"),
    "options": ("Exit", "MemberOptions", "Options"),
    "protocol": ("LeaveMode", "Offsets", "OnLeaseLost", "Phase", "Problem", "Progress", "Role", "Status"),
    "tasks": ("Callbacks", "Revocation", "Task"),
    "threaded": ("ThreadCallbacks", "ThreadTask", "ThreadedMember"),
    ".http_clients": ("tls_context",),
}


if not TYPE_CHECKING:
    # Hidden from type checkers: for them it would make every name a name of this package.
    def __getattr__(name: str) -> object:
        """Import a name when it is first used."""
        for module, names in _HOMES.items():
            if name in names:
                return getattr(import_module(f".{module}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
