"""Play a vector on the SDK's machine: events in, and what comes out at which time (docs/vectors/README.md)."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from batonpass.worker.protocol import (
    Instruction,
    Joined,
    LeaveMode,
    MemberProtocol,
    MemberSettings,
    Offsets,
    OnLeaseLost,
    Progress,
    Rejoining,
    Request,
    Role,
    RoleChanged,
    Send,
    Start,
    StatusChanged,
    Stop,
    StopForGood,
    http_target,
)

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "vectors"
GROUP = "orders"
WAKES_MAX = 1_000

Json = dict[str, Any]


def vectors() -> list[Path]:
    """Return the files of all vectors."""
    return sorted(path for path in FOLDER.glob("*.json") if path.name != "schema.json")


def written(path: Path) -> Json:
    """Return the vector that a file holds."""
    found: Json = json.loads(path.read_text())
    return found


class Player:
    """One machine, its clock, and the steps of the vector so far."""

    def __init__(self, vector: Mapping[str, Any]) -> None:
        """Make the machine that the head of a vector describes."""
        settings = dict(vector["settings"])
        if "on_lease_lost" in settings:
            settings["on_lease_lost"] = OnLeaseLost(settings["on_lease_lost"])
        on_disk = {task: Progress(**fields) for task, fields in vector.get("on_disk", {}).items()}
        ids: Iterator[str] = iter(vector["member_ids"])
        self.machine = MemberProtocol(
            MemberSettings(**settings), lambda: next(ids), on_disk=on_disk, replaces=vector.get("replaces")
        )
        self.now_ms = 0
        self.sent: list[Request] = []
        self.steps: list[Json] = []

    def replay(self, vector: Mapping[str, Any]) -> list[Json]:
        """Give the machine all events of a vector, each at its time; return the steps as they come out now."""
        for step in vector["steps"]:
            if step["event"]["type"] == "slept":
                self.sleep(step["at_ms"])
                continue
            self.pass_time(step.get("between_ms", [step["at_ms"]])[-1])
            # What time brings has been noted by now, unless the step is there to say that it brings nothing.
            if step["event"]["type"] != "time" or not step["out"]:
                event = dict(step["event"])
                self.happens(event.pop("type"), **event)
        return self.steps

    def pass_time(self, until_ms: int) -> None:
        """Let time pass, waking the machine whenever it asks for it; what comes of that is a step.

        Raises:
            RuntimeError: when it asks for it again and again.
        """
        wakes = 0
        while (wake_ms := self.machine.wake_at_ms) is not None and wake_ms <= until_ms:
            wakes += 1
            if wakes > WAKES_MAX:
                raise RuntimeError(f"it asked {wakes} times to be woken until {until_ms} ms")
            self.now_ms = max(self.now_ms, wake_ms)
            out = self.machine.tick(self.now_ms)
            if out:
                self._add({"type": "time"}, out)
        self.now_ms = until_ms

    def sleep(self, until_ms: int) -> None:
        """Let time pass for which the computer is suspended, so that nothing is woken."""
        self.now_ms = until_ms
        self.happens("slept")

    def happens(self, kind: str, **fields: Any) -> None:
        """Let one event happen now."""
        self._add({"type": kind, **fields}, self._input(kind, fields))

    def _add(self, event: Json, out: list[Instruction]) -> None:
        self.steps.append(
            {
                "at_ms": self.now_ms,
                "event": event,
                "out": [self._in_json(each) for each in out],
                "phase": self.machine.phase.value,
                "may_process": [
                    task for task in sorted(self.machine.holdings) if self.machine.may_process(task, self.now_ms)
                ],
            }
        )

    def _input(self, kind: str, fields: Mapping[str, Any]) -> list[Instruction]:
        machine, now_ms, task = self.machine, self.now_ms, fields.get("task", "")
        final: Offsets | None = fields.get("final_position", fields.get("final_positions"))
        inputs: dict[str, Callable[[], list[Instruction]]] = {
            "start": lambda: machine.start(now_ms),
            "time": lambda: machine.tick(now_ms),
            "slept": lambda: machine.tick(now_ms),
            "answer": lambda: machine.on_answer(
                self.sent[fields["request"] - 1], fields["status"], fields["body"], now_ms=now_ms
            ),
            "no-answer": lambda: machine.on_no_answer(self.sent[fields["request"] - 1], now_ms=now_ms),
            "restoring": lambda: machine.task_restoring(task, now_ms=now_ms, progress=_progress(fields)),
            "running": lambda: machine.task_running(task, now_ms=now_ms),
            "failed": lambda: machine.task_failed(task, fields["detail"], now_ms=now_ms),
            "stopped": lambda: machine.task_stopped(task, now_ms=now_ms, final_position=final),
            "demoted": lambda: machine.task_demoted(task, now_ms=now_ms, final_position=final),
            "progress": lambda: machine.copy_progress(task, _progress(fields), now_ms=now_ms),
            "input-lag": lambda: machine.input_lag(task, fields["input_lag"], now_ms=now_ms),
            "load": lambda: machine.load(task, fields["load"], now_ms=now_ms),
            "lost": lambda: machine.state_lost(task, now_ms=now_ms),
            "disk-bytes": lambda: machine.disk_bytes(fields["disk_bytes"], now_ms=now_ms),
            "numbers": lambda: machine.numbers(fields["numbers"], now_ms=now_ms),
            "removed": lambda: machine.state_removed(task, now_ms=now_ms),
            "producer-fenced": lambda: machine.producer_fenced(task, now_ms=now_ms),
            "drain": lambda: machine.drain(now_ms=now_ms, deadline_ms=fields.get("deadline_ms")),
            "undrain": lambda: machine.undrain(now_ms=now_ms),
            "leave": lambda: machine.leave(now_ms=now_ms, mode=LeaveMode(fields["mode"])),
        }
        return inputs[kind]()

    def _in_json(self, each: Instruction) -> Json:
        match each:
            case Send(request):
                return self._sent(request)
            case Stop(task, role, commit, becomes):
                if becomes is not None:
                    return {"type": "demote-active", "task": task, "role": becomes.value}
                if role is Role.ACTIVE:
                    return {"type": "stop-active", "task": task, "commit": commit}
                return {"type": "stop-copy", "task": task}
            case RoleChanged(task, role):
                return {"type": "role-changed", "task": task, "role": role.value}
            case Start(task, Role.ACTIVE, token, restore_to, in_place):
                kind = "promote-copy" if in_place else "start-active"
                return {"type": kind, "task": task, "fencing_token": token, **_where(restore_to)}
            case Start(task, role):
                return {"type": f"start-{role}", "task": task}
            case Joined(member_id):
                return {"type": "joined", "member_id": member_id}
            case Rejoining(old_member_id, cause):
                return {"type": "rejoining", "old_member_id": old_member_id, "cause": cause.type}
            case StopForGood(reason):
                return {"type": "stop-for-good", "reason": reason}
            case StatusChanged(statuses):
                return {
                    "type": "status-changed",
                    "status": [{"code": status.code, "detail": status.detail} for status in statuses],
                }
            case _:
                return {"type": "problem-seen", "kind": each.kind.value, "problem": each.problem.type}

    def _sent(self, request: Request) -> Json:
        self.sent.append(request)
        first = next(number for number, one in enumerate(self.sent, 1) if one.is_same(request))
        method, path = http_target(request, GROUP)
        return {
            "type": "send",
            "request": len(self.sent),
            **({"repeats": first} if first < len(self.sent) else {}),
            "kind": request.kind.value,
            "method": method,
            "path": path,
            **({} if request.body is None else {"body": request.body}),
            "timeout_ms": request.timeout_ms,
        }


def _progress(fields: Mapping[str, Any]) -> Progress:
    return Progress(**{name: value for name, value in fields.items() if name != "task"})


def _where(restore_to: Offsets | None) -> Json:
    return {} if restore_to is None else {"restore_to": restore_to}
