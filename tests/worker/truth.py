"""What a worker's process really does with its tasks, whatever its machine believes."""

from __future__ import annotations

from dataclasses import dataclass, field

from batonpass.worker.protocol import (
    DemoteActive,
    Instruction,
    PromoteCopy,
    Role,
    RoleChanged,
    StartActive,
    StartStandby,
    StartWarmup,
    StopActive,
    StopCopy,
    StopForGood,
)


@dataclass
class Work:
    """What the worker does with a task, in truth. ``writes`` is whether a record of it could still come out."""

    role: str
    writes: bool = False
    token: int = 0
    # What the machine asked for and still waits to hear of: stop, demote.
    asked: str = ""


@dataclass
class Truth:
    """The worker's process: carries out what it is told, when the test lets it."""

    works: dict[str, Work] = field(default_factory=dict)
    is_over: bool = False

    def carry_out(self, each: Instruction) -> None:
        """Do one thing, and object to what makes no sense."""
        match each:
            case StopActive(task, commit):
                work = self.works[task]
                assert work.role == "active"
                assert not (commit and work.asked), "asked twice to stop"
                work.asked = "stop"
                work.writes &= commit
            case DemoteActive(task, role):
                assert self.works[task].role == "active"
                assert role in (Role.STANDBY, Role.WARMUP)
                assert not self.works[task].asked
                self.works[task].asked = "demote"
            case StopCopy(task):
                assert self.works[task].role != "active"
                assert not self.works[task].asked
                self.works[task].asked = "stop"
            case RoleChanged(task, role):
                assert self.works[task].role not in ("active", role)
                self.works[task].role = role.value
            case StartStandby(task):
                assert task not in self.works
                self.works[task] = Work("standby")
            case StartWarmup(task):
                assert task not in self.works
                self.works[task] = Work("warmup")
            case StartActive(task, token):
                assert task not in self.works
                self.works[task] = Work("active", writes=True, token=token)
            case PromoteCopy(task, token):
                assert self.works[task].role != "active"
                assert not self.works[task].asked
                self.works[task] = Work("active", writes=True, token=token)
            case StopForGood():
                self.is_over = True
            case _:
                pass
