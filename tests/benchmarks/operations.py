"""The four operations and the quiet heartbeat, timed on our decisions and on the yardstick in turns.

Two views of the same four. *Step* is what an assignor does, given who is there: the question to placement, placement,
the new target folded in, every task that is not settled staged and funded, and the reasons for all of it. *Whole* is
what a coordinator waits for: every `decide` of the operation, with each member's next assignment, all records folded,
the next look and the reply. A join or leave is two decisions there, for the placement follows after
`rebalance_batch_ms`, and a leave lets ready copies take over in the first.
"""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tests.benchmarks.groups import POLICY, Moment, Stage, join_of, member_name, reported_by

from batonpass.core.decide import Decision
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.step import explain, plan_step
from batonpass.core.state.inputs import Heartbeat, Input, Leave, ProbeRequest, Tick
from batonpass.core.target.retarget import place_now
from batonpass.invariants import Transition, check_step

OPERATIONS = ("first", "re-run", "join", "leave")


@dataclass(frozen=True, slots=True)
class Timed:
    """Milliseconds of processor time of one operation: in our two views, and to check the laws before the append."""

    step: float
    whole: float
    laws: float


def clocked(call: Callable[[], object]) -> float:
    """Return the milliseconds of processor time that a call takes, collector off, as `timeit` measures."""
    gc.collect()
    gc.disable()
    started = time.process_time_ns()
    call()
    spent = time.process_time_ns() - started
    gc.enable()
    return spent / 1e6


def steps_of(stage: Stage) -> Mapping[str, Moment]:
    """Return the moment of each operation at which an assignor would be asked."""
    return {"first": stage.empty, "re-run": stage.at_rest, "join": stage.joined, "leave": stage.gone}


def inputs_of(stage: Stage) -> Mapping[str, Sequence[tuple[Moment, Input]]]:
    """Return the decisions that make up each operation."""
    shape = stage.shape
    return {
        "first": [(stage.empty, Tick())],
        "re-run": [(stage.at_rest, ProbeRequest())],
        "join": [(stage.before, join_of(shape, shape.members)), (stage.joined, Tick())],
        "leave": [(stage.before, Leave(member_name(shape.members // 2))), (stage.left, Tick())],
    }


def time_operation(moment: Moment, decisions: Sequence[tuple[Moment, Input]]) -> Timed:
    """Time the step and the decisions of one operation once."""
    step = clocked(partial(one_step, moment))
    whole = sum(clocked(partial(at.decide, one)) for at, one in decisions)
    laws = 0.0
    for at, one in decisions:
        decision = at.decide(one)
        laws += clocked(partial(held_to_the_laws, at, one, decision))
    return Timed(step, whole, laws)


def one_step(moment: Moment) -> DecisionDraft:
    """Place a group anew and take one step towards the target, as far as an assignor goes."""
    draft = DecisionDraft(moment.group, moment.soft, moment.now_ms, POLICY)
    place_now(draft)
    explain(draft, plan_step(draft.view()))
    return draft


def held_to_the_laws(moment: Moment, item: Input, decision: Decision) -> None:
    """Check a decision as it is checked before it is appended.

    Raises:
        AssertionError: when a law does not hold.
    """
    step = Transition(
        moment.group, decision.after, decision.records, moment.soft, decision.soft, moment.now_ms, (item,)
    )
    found = check_step(step)
    assert not found, f"a law is broken: {found[0]}"


def time_quiet_heartbeats(at_rest: Moment, beats: int) -> tuple[float, float]:
    """Return the mean milliseconds of a heartbeat that changes nothing: one with other words, and a repeated one.

    Each is decided on what the one before left, as in life: the mean has its share of the folding of soft state. It is
    every member's turn before one of them speaks again, as far as the number of beats goes.

    Raises:
        AssertionError: when one of them changes something.
    """
    members = [at_rest.group.members[member_id] for member_id in sorted(at_rest.group.members)][:beats]
    # What the first one says of every active is other than before, if of no consequence; those that follow repeat it.
    reports = {
        member.id: {task: one._replace(input_lag=1) for task, one in reported_by(member).items()} for member in members
    }
    moment = at_rest
    spent = [0.0, 0.0]
    for turn in range(2 * beats // len(members)):
        items = [Heartbeat(member.id, 2 + turn, member.epoch, reports[member.id]) for member in members]
        moment, took = _beats(moment, items)
        spent[min(turn, 1)] += took
    assert moment.group is at_rest.group, "a quiet heartbeat changed the group"
    return spent[0] / len(members), spent[1] / len(members) / (2 * beats // len(members) - 1)


def _beats(moment: Moment, items: Sequence[Heartbeat]) -> tuple[Moment, float]:
    def speak() -> None:
        nonlocal moment
        for item in items:
            moment = moment.then(item, 1)

    spent = clocked(speak)
    return moment, spent


def least(samples: Sequence[Timed]) -> Timed:
    """Return the least of each figure: whatever else runs on a machine only ever adds to it."""
    return Timed(min(one.step for one in samples), min(one.whole for one in samples), min(one.laws for one in samples))
