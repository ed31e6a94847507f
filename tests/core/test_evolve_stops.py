"""How the last run of a task ended, and since when nobody can be running it, until it runs again."""

import pytest
from tests.core.test_evolve_tasks import M1, M2, T0, active, small

from batonpass.core.state import records as r
from batonpass.core.state.evolve import evolve
from batonpass.core.state.model import ActiveState, Cause, Group, Stop

RUNS = r.ActiveReported(T0, M1, ActiveState.RUNNING, 12)
REVOKED = r.AssignmentChanged(M1, 3, 20, revoked=(T0,))


def stop_of(group: Group) -> Stop | None:
    """Return how the last run of 0_0 ended."""
    return group.tasks[T0].handover.stop


def test_a_handover_counts_from_the_confirmation_to_the_first_run() -> None:
    """Until it confirms, a revoked owner may still run the task."""
    group = small(active(M1), RUNS, REVOKED)
    assert stop_of(group) == Stop(M1, None, "revoked")
    group = evolve(group, [r.TaskReleased(T0, M1, at_ms=30)])
    assert stop_of(group) == Stop(M1, 30, "revoked")
    group = evolve(group, [active(M2, token=2), r.ActiveReported(T0, M2, ActiveState.RESTORING, 35)])
    assert stop_of(group) == Stop(M1, 30, "revoked")
    assert stop_of(evolve(group, [r.ActiveReported(T0, M2, ActiveState.RUNNING, 40)])) is None


def test_a_task_that_never_ran_has_not_stopped() -> None:
    assert stop_of(small(active(M1))) is None
    assert stop_of(small(active(M1), REVOKED, r.TaskReleased(T0, M1, at_ms=30))) is None
    assert stop_of(small(active(M1), r.MemberGone(M1, Cause.EXPIRED, 20, 20))) is None


@pytest.mark.parametrize(("lease_end_ms", "since_ms"), [(20, 20), (50, None)])
def test_an_owner_that_goes_stops_when_its_lease_is_over(lease_end_ms: int, since_ms: int | None) -> None:
    group = small(active(M1), RUNS, r.MemberGone(M1, Cause.EVICTED, 20, lease_end_ms))
    assert stop_of(group) == Stop(M1, since_ms, "evicted")
    assert stop_of(evolve(group, [r.TaskReleased(T0, M1, at_ms=55)])) == Stop(M1, since_ms or 55, "evicted")


@pytest.mark.parametrize("lease_end_ms", [40, 60])
def test_who_was_given_up_may_have_stopped_since_it_was_last_heard(lease_end_ms: int) -> None:
    """A stop that was reported was then, whoever is given up later."""
    given_up = r.MemberGone(M1, Cause.EXPIRED, 40, lease_end_ms, 15)
    group = evolve(small(active(M1), RUNS, given_up), [r.TaskReleased(T0, M1, at_ms=60)])
    assert stop_of(group) == Stop(M1, lease_end_ms, "expired", 15)
    unconfirmed = evolve(small(active(M1), RUNS, REVOKED, given_up), [r.TaskReleased(T0, M1, at_ms=60)])
    assert stop_of(unconfirmed) == Stop(M1, lease_end_ms, "expired", 15)
    suspected: list[r.Record] = [r.MemberSuspected(M1), REVOKED, r.ReleaseWaived(T0, M1, 15)]
    assert stop_of(small(active(M1), RUNS, *suspected)) == Stop(M1, 20, "suspected", 15)
    failed = r.ActiveReported(T0, M1, ActiveState.FAILED, 18)
    assert stop_of(small(active(M1), RUNS, failed, *suspected)) == Stop(M1, 18, "failed")
    assert stop_of(small(active(M1), RUNS, failed, given_up)) == Stop(M1, 18, "failed")


def test_an_owner_that_goes_before_it_confirms_is_why_the_task_stopped() -> None:
    group = small(active(M1), RUNS, REVOKED, r.MemberGone(M1, Cause.FENCED, 25, 40))
    assert stop_of(group) == Stop(M1, None, "fenced")
    assert stop_of(evolve(group, [r.TaskReleased(T0, M1, at_ms=41)])) == Stop(M1, 41, "fenced")


def test_a_member_that_restarts_has_stopped() -> None:
    """A member stops its actives before it goes away to restart."""
    assert stop_of(small(active(M1), RUNS, r.MemberAway(M1, 90, 40))) == Stop(M1, 40, "restarted")


@pytest.mark.parametrize("state", [ActiveState.FAILED, ActiveState.LOST, ActiveState.RESTORING])
def test_an_owner_that_fell_back_is_not_running(state: ActiveState) -> None:
    group = small(active(M1), RUNS, r.ActiveReported(T0, M1, state, 20))
    assert stop_of(group) == Stop(M1, 20, state.value)
    # What happens to an owner that does not run the task does not begin the stop anew.
    assert stop_of(evolve(group, [REVOKED])) == Stop(M1, 20, state.value)
    assert stop_of(evolve(group, [r.MemberGone(M1, Cause.EXPIRED, 50, 50)])) == Stop(M1, 20, state.value)
    assert stop_of(evolve(group, [r.ActiveReported(T0, M1, ActiveState.RUNNING, 60)])) is None


def test_a_suspected_owner_whose_claim_is_waived_stopped_when_it_was_revoked() -> None:
    """The outputs of such a member are fenced, so that its word is not waited for."""
    group = small(active(M1), RUNS, r.MemberSuspected(M1), REVOKED, r.ReleaseWaived(T0, M1))
    assert stop_of(group) == Stop(M1, 20, "suspected")


def test_a_release_whose_instant_was_not_recorded_measures_nothing() -> None:
    """Records from before the instant was kept leave the stop unknown rather than wrong."""
    assert stop_of(small(active(M1), RUNS, REVOKED, r.TaskReleased(T0, M1))) is None


def test_what_is_adopted_after_lost_commits_runs_and_what_is_dropped_does_not() -> None:
    group = small(active(M1), RUNS, REVOKED, r.TaskReleased(T0, M1, at_ms=30))
    assert stop_of(evolve(group, [r.TasksAdopted(M2, {T0: 9}, (), 40)])) is None
    group = small(active(M1), RUNS)
    assert stop_of(evolve(group, [r.TasksAdopted(M1, {}, (T0,), 40)])) == Stop(M1, 40, "revoked")
