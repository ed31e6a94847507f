"""What was committed beside the records, as the API shows it: generations, runs, changes, events, commands."""

from __future__ import annotations

from typing import Any

from batonpass.codec.answers import rfc3339, time_of
from batonpass.codec.changes import Change
from batonpass.codec.generations import Generation, Moved
from batonpass.core.reasons import Reason
from batonpass.runtime.history import StoredCommand, StoredEvent
from batonpass.runtime.runs_of import Run


def generation_body(generation: Generation) -> dict[str, Any]:
    """Return a generation: when and why it was made, how much it moved, and how even it left the group."""
    return {
        "generation": generation.number,
        "group_epoch": generation.group_epoch,
        "at": rfc3339(generation.at_ms),
        "triggers": list(generation.triggers),
        "members": generation.members,
        "tasks": generation.tasks,
        "moves": generation.moves,
        "lower_bound": generation.lower_bound,
        "warmups": generation.warmups,
        "imbalance": {"before": generation.score_before, "after": generation.score},
        "decide_ms": round(generation.decide_ms, 3),
        "reasons": [_reason_body(one) for one in generation.reasons],
    }


def _reason_body(reason: Reason) -> dict[str, Any]:
    return {
        "code": str(reason.code),
        "task": reason.task,
        "to": reason.to,
        "detail": reason.detail,
        "tasks": reason.tasks,
    }


def diff_body(moved: tuple[Moved, ...]) -> list[dict[str, Any]]:
    """Return the tasks whose target changed, with the targets before and after."""
    return [
        {
            "task": one.task,
            "from": one.owner_before,
            "to": one.owner,
            "standbys_before": list(one.standbys_before),
            "standbys": list(one.standbys),
            "why": str(one.why),
        }
        for one in moved
    ]


def placement_body(generation: Generation, line: Moved) -> dict[str, Any]:
    """Return which generation gave a task its target, for what, and why the task."""
    return {
        "generation": generation.number,
        "at": rfc3339(generation.at_ms),
        "triggers": list(generation.triggers),
        "from": line.owner_before,
        "to": line.owner,
        "why": str(line.why),
    }


def change_body(change: Change) -> dict[str, Any]:
    """Return one change of a task."""
    return {
        "at": rfc3339(change.at_ms),
        "member": change.member,
        "kind": change.kind,
        "role_before": str(change.role_before),
        "role": str(change.role),
        "state": str(change.state) or None,
        "generation": change.generation,
        "member_epoch": change.member_epoch,
        "fencing_token": change.token,
        "warm": change.warm,
        "why": str(change.why),
    }


def run_body(run: Run) -> dict[str, Any]:
    """Return one member's time with a task."""
    return {
        "member": run.member,
        "fencing_token": run.token,
        "generation": run.generation,
        "granted_at": time_of(run.granted_ms),
        "running_at": time_of(run.running_ms),
        "stopped_at": time_of(run.stopped_ms),
        "ended": str(run.ended) or None,
        "warm": run.warm,
        "why": str(run.why),
        "gap_ms": run.gap_ms,
    }


def event_body(stored: StoredEvent) -> dict[str, Any]:
    """Return an event with its position."""
    event = stored.event
    return {
        "position": stored.position,
        "group": stored.group,
        "type": event.type,
        "at": rfc3339(event.at_ms),
        "generation": event.generation,
        "member": event.member,
        "task": event.task,
        "body": dict(event.body),
    }


def command_body(command: StoredCommand) -> dict[str, Any]:
    """Return a row of the audit trail."""
    asked = command.asked
    return {
        "position": command.position,
        "at": rfc3339(command.at_ms),
        "group": command.group,
        "command": asked.command,
        "who": asked.who,
        "reason": asked.reason,
        "cause": asked.cause,
        "subject": dict(command.subject),
    }
