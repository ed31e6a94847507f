"""Faults planted in the product, each with the scenario in which the search sees it, and the laws that tell.

Without them a search that finds nothing would prove nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

import pytest
from tests.explorer import world

from batonpass.core import decide
from batonpass.core.arrivals import liveness
from batonpass.core.handover import budget, lag, reconcile
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.view import View
from batonpass.core.state.inputs import Started
from batonpass.core.state.model import Group
from batonpass.worker.protocol import Answer
from batonpass.worker.protocol.lease import Lease
from batonpass.worker.protocol.machine import Run


class Mutant(NamedTuple):
    """What is wrong, the scenario that shows it, the laws of which one breaks first, and how it is planted."""

    scenario: str
    laws: tuple[str, ...]
    plant: Callable[[pytest.MonkeyPatch], None]


def _lease_ends_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(View, "lease_end_ms", lambda self, _member: self.now_ms)


def _lease_without_end(patch: pytest.MonkeyPatch) -> None:
    real = Lease.answered

    def generous(self: Lease, seq: int, first_sent_ms: int, session_timeout_ms: int) -> None:
        real(self, seq, first_sent_ms, 20 * session_timeout_ms)

    patch.setattr(Lease, "answered", generous)


def _grant_before_confirmation(patch: pytest.MonkeyPatch) -> None:
    real = reconcile._compare

    def hasty(view: Any, plan: Any, members: Any) -> Any:
        return real(view, replace(plan, task=plan.task.with_handover(unreleased=())), members)

    patch.setattr(reconcile, "_compare", hasty)


def _old_answers_are_believed(patch: pytest.MonkeyPatch) -> None:
    def credulous(self: Run, answer: Answer, *, seq: int) -> bool:
        del seq
        self.latest = answer
        if answer.assignment is None:
            return False
        self.epoch, self.assignment = answer.member_epoch, answer.assignment
        return True

    patch.setattr(Run, "take", credulous)


def _tokens_repeat(patch: pytest.MonkeyPatch) -> None:
    real = reconcile._new_grants

    def repeating(view: Any, *rest: Any) -> Any:
        grants = real(view, *rest)
        return {task: grant._replace(token=min(grant.token, 1)) for task, grant in grants.items()}

    patch.setattr(reconcile, "_new_grants", repeating)


def _no_budget(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(budget.Slots, "why_not", lambda _self, _ask: None)
    patch.setattr(budget.Slots, "are_given", lambda _self, **_whose: True)


def _caught_up_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lag.Copy, "is_caught_up", property(lambda _self: True))


def _append_without_guard(patch: pytest.MonkeyPatch) -> None:
    def careless(one: world.World, _coordinator: object, after: Group) -> bool:
        one.store = after
        return True

    patch.setattr(world, "append", careless)


def _judges_at_once(patch: pytest.MonkeyPatch) -> None:
    real = liveness.started

    def hasty(draft: DecisionDraft, item: Any) -> object:
        reply = real(draft, item)
        draft.soft = draft.soft._replace(judge_from_ms=0)
        return reply

    patch.setitem(cast("dict[type, object]", decide.HANDLERS), Started, hasty)


def _forgets_to_wake(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decide, "next_wake_ms", lambda *_: None)


MUTANTS: Mapping[str, Mutant] = {
    "lease-ends-at-once": Mutant("silence", ("L1", "L5"), _lease_ends_at_once),
    "worker-forgets-its-lease": Mutant("silence", ("L1",), _lease_without_end),
    "grant-before-confirmation": Mutant("drains", ("L1",), _grant_before_confirmation),
    "old-answers-believed": Mutant("wire", ("L1", "L9"), _old_answers_are_believed),
    "token-repeats": Mutant("drains", ("L1",), _tokens_repeat),
    "no-budget": Mutant("join-many", ("L8",), _no_budget),
    "caught-up-at-once": Mutant("drains", ("L7",), _caught_up_at_once),
    "append-without-guard": Mutant("two-coordinators", ("L4",), _append_without_guard),
    "judges-at-once": Mutant("join", ("L3",), _judges_at_once),
    "never-wakes": Mutant("standby", ("L9",), _forgets_to_wake),
}
