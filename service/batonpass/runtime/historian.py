"""Writes down, for each decision of one group, what is to be committed beside its records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batonpass.codec.changes import changes_of
from batonpass.codec.generations import generation_of, why_of
from batonpass.codec.traces import Trace, soft_delta
from batonpass.runtime.events_of import events_of
from batonpass.runtime.history import Asked, History

if TYPE_CHECKING:
    from batonpass.core.decide import Decision
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
        return History(
            asked=asked,
            at_ms=now_ms,
            item=inputs[0] if asked.command else None,
            generation=generation_of(group, decision.records, decision.after, decision.reasons, at=at),
            changes=changes_of(group, decision.records, decision.after, why_of(decision.reasons), now_ms),
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
