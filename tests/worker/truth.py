"""What a worker's process really does with its tasks, whatever its machine believes."""

from dataclasses import dataclass, field

from batonpass.worker.protocol import (
    Instruction,
    Role,
    RoleChanged,
    Start,
    Stop,
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
            case Stop(task, role, commit, becomes):
                work = self.works[task]
                assert work.role == role
                assert not (commit and work.asked), "asked twice to stop"
                assert becomes in (None, Role.STANDBY, Role.WARMUP)
                assert commit or (role is Role.ACTIVE and becomes is None)
                work.asked = "stop" if becomes is None else "demote"
                work.writes &= commit
            case RoleChanged(task, role):
                assert self.works[task].role not in ("active", role)
                self.works[task].role = role.value
            case Start(task, role, token, _, in_place):
                assert (task in self.works) is in_place
                if in_place:
                    assert self.works[task].role != role == Role.ACTIVE
                    assert not self.works[task].asked
                self.works[task] = Work(role.value, writes=role is Role.ACTIVE, token=token or 0)
            case StopForGood():
                self.is_over = True
            case _:
                pass
