"""Worlds full of faults keep every law; and each law, broken on purpose in the code under test, is seen to break."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from tests.often import ALL
from tests.simulate.worlds import run_many

from batonpass.core.arrivals import liveness
from batonpass.core.decide import HANDLERS, Decision, decide
from batonpass.core.handover import budget, lag
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.view import View
from batonpass.core.state.inputs import Input, Started, Tick
from batonpass.core.state.model import Group
from batonpass.core.state.policy import Policy
from batonpass.core.state.reasons import Reason
from batonpass.core.state.records import GrantsHeld, Record
from batonpass.core.state.soft import Soft
from batonpass.invariants import Violation
from batonpass.simulate import checks, coordinator
from batonpass.simulate.coordinator import AppendResult, SimulatedCoordinator, Store
from batonpass.simulate.faults import FAULTS
from batonpass.simulate.plan import Event
from batonpass.simulate.run import Outcome, run_world
from batonpass.simulate.seeds import draw
from batonpass.simulate.shrink import Narrowing, replay_command, shrink
from batonpass.worker.protocol.lease import Lease

STEPS = 50_000


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first_seed", [1, 101] if ALL else [1])
def test_tens_of_thousands_of_steps_keep_every_law(first_seed: int) -> None:
    seen: set[str] = set()
    handovers = 0
    for outcome in run_many(first_seed, steps=STEPS, worlds=None):
        assert not outcome.failed, (replay_command(outcome.plan.seed, Narrowing()), outcome.violations[0])
        assert outcome.rested_ms is not None
        seen.update(event.kind for event in outcome.plan.events)
        handovers += outcome.handovers
    assert len(seen) > len(FAULTS) // 2
    assert handovers > 25


def test_a_coordinator_is_woken_by_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer that was set sooner takes the place of the one before."""
    ticks = 0
    decided = SimulatedCoordinator.decide

    def counted(self: SimulatedCoordinator, item: Input) -> object:
        nonlocal ticks
        ticks += isinstance(item, Tick)
        return decided(self, item)

    monkeypatch.setattr(SimulatedCoordinator, "decide", counted)
    outcome = run_world(draw(17), most_steps=2_000)
    assert 0 < ticks < outcome.steps / 10


def test_one_owner_is_judged_again_a_session_after_a_loss_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost commits excuse two owners only until a member reported and all have spoken or stopped."""
    noticed: list[tuple[int, int]] = []
    commit = checks.Checks.on_commit

    def watched(self: checks.Checks, leader: SimulatedCoordinator, decision: Decision) -> None:
        commit(self, leader, decision)
        if any(isinstance(record, GrantsHeld) and record.adopting for record in decision.records):
            noticed.append((self.excused_until_ms - self._shared.now_ms, decision.after.longest_session_ms))

    monkeypatch.setattr(checks.Checks, "on_commit", watched)
    for seed in range(1_000, 1_010):
        loss = (Event(0, 9_000, "lost-commits-unnoticed", seed),)
        assert run_world(replace(draw(seed), events=loss, chaos_ms=20_000)).violations == ()
    assert noticed
    assert all(excused_ms <= session_ms for excused_ms, session_ms in noticed)


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_each_kind_of_event_by_itself_is_survived(kind: str) -> None:
    for seed in (11, 12):
        twice = tuple(Event(number, at_ms, kind, seed + number) for number, at_ms in enumerate((6_000, 13_000)))
        outcome = run_world(replace(draw(seed), events=twice, chaos_ms=20_000))
        assert outcome.violations == ()
        assert outcome.rested_ms is not None


def test_a_seed_is_a_world() -> None:
    lines: list[list[str]] = []
    for seed in (5, 5, 6):
        trace: list[str] = []
        run_world(draw(seed), trace=trace.append)
        lines.append(trace)
    assert lines[0] == lines[1]
    assert lines[0] != lines[2]


def first_broken(seeds: range) -> Outcome | None:
    """Return the first world of these that breaks a law."""
    return next((one for one in map(run_world, map(draw, seeds)) if one.failed), None)


def breaks_first(seeds: range, *laws: str) -> bool:
    """Whether one of these laws is the first to break in some of these worlds."""
    return any(one.failed and one.violations[0].law in laws for one in map(run_world, map(draw, seeds)))


def test_a_worker_that_forgets_its_lease_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It breaks L1 by the workers' own doing."""
    real = Lease.answered

    def generous(self: Lease, seq: int, first_sent_ms: int, session_timeout_ms: int) -> None:
        real(self, seq, first_sent_ms, 20 * session_timeout_ms)

    monkeypatch.setattr(Lease, "answered", generous)
    assert breaks_first(range(100), "L1")


def test_a_core_that_frees_tasks_too_soon_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It breaks L1 and L5, found before anything is appended."""
    monkeypatch.setattr(View, "lease_end_ms", lambda self, _member: self.now_ms)
    assert breaks_first(range(10), "L1", "L5")


def test_a_core_that_hands_over_to_the_unready_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It breaks L7."""
    monkeypatch.setattr(lag.Copy, "is_caught_up", property(lambda _self: True))
    assert breaks_first(range(20), "L7")


def test_a_core_that_ignores_its_budgets_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It breaks L8."""
    monkeypatch.setattr(budget.Slots, "why_not", lambda _self, _ask: None)
    assert breaks_first(range(30), "L8")


def test_a_coordinator_that_follows_a_clock_that_has_moved_without_a_word_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It breaks L5: members seem silent for as long as the clock has moved."""

    def follow(self: SimulatedCoordinator) -> None:
        self._read_ahead_ms = self._store.clock_ahead_ms

    def outcomes() -> list[Outcome]:
        kinds = (
            (6_000, "evict"),
            (6_100, "move-clock"),
            (9_000, "evict"),
            (9_100, "move-clock"),
            (12_100, "move-clock"),
        )
        return [
            run_world(replace(draw(seed), events=tuple(Event(n, *one, seed * 31 + n) for n, one in enumerate(kinds))))
            for seed in (10, 23, 39)
        ]

    assert not any(one.failed for one in outcomes())
    monkeypatch.setattr(SimulatedCoordinator, "_read_clock", follow)
    assert any(one.failed and one.violations[0].law == "L5" for one in outcomes())


def test_a_coordinator_that_judges_at_once_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It breaks L3."""
    real = liveness.started

    def hasty(draft: DecisionDraft, item: Started) -> object:
        reply = real(draft, item)
        draft.soft = draft.soft._replace(judge_from_ms=0)
        return reply

    monkeypatch.setitem(cast("dict[type, object]", HANDLERS), Started, hasty)
    assert breaks_first(range(5), "L3")


def test_a_store_without_guards_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes what an old coordinator writes, against L4."""

    def careless(self: Store, _epoch: int, _expected: int, records: tuple[Record, ...], after: Group) -> AppendResult:
        self.history.append((self.group, records))
        self.group = after
        return AppendResult.COMMITTED

    monkeypatch.setattr(Store, "append", careless)
    stalls = (Narrowing(only=stalled(seed)).of(seed) for seed in range(400) if stalled(seed))
    found = {one.violations[0].law for one in map(run_world, stalls) if one.failed}
    assert found & {"L4", "L3"}


def stalled(seed: int) -> tuple[int, ...]:
    """Return the numbers of the events of a seed in which a coordinator stalls."""
    return tuple(event.number for event in draw(seed).events if event.kind == "stall")


def deciding(change: Callable[[Group, Decision], Decision]) -> Callable[..., Decision]:
    """Return ``decide`` with something done to each of its decisions."""

    def changed(group: Group, soft: Soft, inputs: tuple[Input, ...], now_ms: int, policy: Policy) -> Decision:
        return change(group, decide(group, soft, inputs, now_ms, policy))

    return changed


def test_a_decision_that_depends_on_order_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reason is taken from whichever member comes first in a mapping, against L10."""

    def first_come(group: Group, decision: Decision) -> Decision:
        return decision._replace(reasons=(*decision.reasons, Reason(next(iter(group.members), "nobody"))))

    for module in (coordinator, checks):
        monkeypatch.setattr(module, "decide", deciding(first_come))
    assert breaks_first(range(10), "L10")


def test_a_record_that_is_kept_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It breaks L2."""

    def secretive(_group: Group, decision: Decision) -> Decision:
        return decision._replace(records=decision.records[:-1]) if len(decision.records) > 1 else decision

    monkeypatch.setattr(coordinator, "decide", deciding(secretive))
    found = {one.violations[0].law for one in map(run_world, map(draw, range(3))) if one.failed}
    assert found
    assert found <= {"L2", "L4"}


def test_a_coordinator_that_never_wakes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It breaks L9."""
    monkeypatch.setattr(SimulatedCoordinator, "_arm", lambda _self, _wake_at_ms: None)
    assert breaks_first(range(6), "L9")


def test_an_exception_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(_group: Group, _decision: Decision) -> Decision:
        raise KeyError("0_0")

    monkeypatch.setattr(coordinator, "decide", deciding(raising))
    outcome = run_world(draw(1))
    assert outcome.violations[0].law == "exception"
    assert "KeyError" in outcome.violations[0].detail
    assert __name__.rpartition(".")[2] in outcome.violations[0].detail


def test_a_failure_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget.Slots, "why_not", lambda _self, _ask: None)
    outcome = first_broken(range(30))
    assert outcome is not None
    smaller, shown = shrink(outcome)
    assert shown.violations[0].law == outcome.violations[0].law
    assert len(shown.plan.events) <= len(outcome.plan.events)
    assert smaller != Narrowing()
    again = run_world(smaller.of(outcome.plan.seed))
    assert again.violations[0] == shown.violations[0]
    assert replay_command(outcome.plan.seed, smaller).startswith(f"batonpass simulate --seed {outcome.plan.seed}")


def test_the_search_keeps_what_is_needed_alone() -> None:
    seed = next(seed for seed in range(100) if len(draw(seed).events) > 6 and len(draw(seed).workers) > 3)
    outcome = replace(run_world(draw(seed), most_steps=1), violations=(Violation("L1", "planted"),))
    needed = draw(seed).events[4].number

    def run(plan: object) -> Outcome:
        one = replace(outcome, plan=plan)  # type: ignore[arg-type]
        numbers = {event.number for event in one.plan.events}
        breaks = needed in numbers and len(one.plan.workers) >= 2
        return one if breaks else replace(one, violations=())

    smaller, _ = shrink(outcome, run=run)
    assert smaller == Narrowing(only=(needed,), members=2, partitions=1, whole_wire=True)
    assert smaller.options() == f"--only {needed} --members 2 --partitions 1 --whole-wire"
