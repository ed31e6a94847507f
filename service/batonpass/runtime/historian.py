"""Writes down, for each decision of one group, what is to be committed beside its records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batonpass.codec.traces import Trace, soft_delta
from batonpass.core.records import RebalanceScheduled, TargetPlaced
from batonpass.runtime.changes_of import changes_of
from batonpass.runtime.events_of import events_of
from batonpass.runtime.history import Asked, Generation, History, Moved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batonpass.core.decide import Decision
    from batonpass.core.ids import MemberId, TaskId
    from batonpass.core.inputs import Input
    from batonpass.core.model import Group
    from batonpass.core.policy import Policy
    from batonpass.core.soft import Soft


class Historian:
    """Knows of one group what its last trace said, so that the next one says only what is new.

    ``code`` identifies the program that decides: the same code decides the same on the same input (L10).
    """

    def __init__(self, policy: Policy, code: str) -> None:
        self._policy = policy
        self._code = code
        self._traced: Soft | None = None

    def begin_anew(self) -> None:
        """Have the next trace start from empty soft state: the group was read, or a commit's fate is unknown."""
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
        why: dict[TaskId, str] = {}
        for reason in decision.reasons:
            if reason.task is not None:
                why.setdefault(reason.task, reason.code)
        return History(
            asked=asked,
            at_ms=now_ms,
            item=inputs[0] if asked.command else None,
            generation=_generation(group, decision, why, now_ms, decide_ms),
            changes=changes_of(group, decision.records, decision.after, why, now_ms),
            events=events_of(group, inputs, decision, now_ms),
            trace=Trace(
                inputs=inputs,
                now_ms=now_ms,
                version=group.version,
                soft=soft_delta(self._traced, soft),
                policy=self._policy,
                code=self._code,
                decide_ms=decide_ms,
            ),
        )

    def committed(self, soft: Soft) -> None:
        """Hear that the history of a decision made on ``soft`` is in the log."""
        self._traced = soft


def _generation(
    before: Group, decision: Decision, why: Mapping[TaskId, str], now_ms: int, decide_ms: float
) -> Generation | None:
    after = decision.after
    placed = next((one for one in decision.records if isinstance(one, TargetPlaced)), None)
    if placed is None or after.generation == before.generation:
        return None
    moved = []
    for task_id, (owner, standbys, _) in placed.changes.items():
        task = before.tasks.get(task_id)
        owner_before, standbys_before = (task.target, task.target_standbys) if task else (None, ())
        moved.append(Moved(task_id, owner_before, owner, standbys_before, standbys, why.get(task_id, "")))
    return Generation(
        number=placed.generation,
        group_epoch=placed.group_epoch,
        at_ms=now_ms,
        triggers=_triggers(before, decision),
        members=len(after.members),
        tasks=len(after.table.ids),
        moves=placed.moves,
        lower_bound=placed.lower_bound,
        warmups=sum(len(after.tasks[task].warmups) for task in after.open_tasks()),
        score_before=_score(before, after),
        score=_score(after, after),
        decide_ms=decide_ms,
        moved=tuple(moved),
        reasons=tuple(one for one in decision.reasons if one.task is None or one.tasks > 1),
    )


def _triggers(before: Group, decision: Decision) -> tuple[str, ...]:
    new = [one.trigger for one in decision.records if isinstance(one, RebalanceScheduled)]
    return tuple(dict.fromkeys((*before.triggers, *new)))


def _score(group: Group, present: Group) -> float:
    """Return by how much target load per capacity differs between the members that are ``present``, most to least.

    The load is the weight of the stateful tasks whose target a member is in ``group``.
    """
    load: dict[MemberId | None, float] = dict.fromkeys(present.members, 0.0)
    table = group.table
    for task_index, task_id in enumerate(table.ids):
        if table.stateful[task_index]:
            target = group.tasks[task_id].target
            if target in load:
                load[target] += table.weight[task_index]
    shares = [load[one] / member.capacity for one, member in present.members.items() if member.drain is None]
    return round(max(shares) - min(shares), 6) if shares else 0.0
