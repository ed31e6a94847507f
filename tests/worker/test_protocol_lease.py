"""The lease: from when it runs, what happens at its end, and what may start again after it."""

import pytest
from tests.worker.scripted import Scripted, answer, assignment, joined, reported

from batonpass.worker.protocol import (
    Instruction,
    MemberSettings,
    OnLeaseLost,
    Phase,
    Progress,
    RequestKind,
    Role,
    Start,
    Stop,
)

CONTINUE = MemberSettings(on_lease_lost=OnLeaseLost.CONTINUE)


def stops(done: list[Instruction]) -> list[Instruction]:
    """Return what is to stop."""
    return [each for each in done if isinstance(each, Stop)]


def silent(settings: MemberSettings | None = None, assigned: dict[str, object] | None = None) -> Scripted:
    """Return a worker with a running active, whose last heartbeat was answered as soon as it was sent."""
    worker = joined(1, assigned or assignment({"0_1": 1}), settings)
    worker.do("task_running", "0_1")
    worker.beat(1)
    worker.beat(1)
    return worker


def test_the_lease_runs_from_the_first_sending_of_the_answered_heartbeat() -> None:
    worker = joined(1, assignment({"0_1": 1}))
    worker.beat(1)
    worker.later(3_000)
    beat = worker.last()
    sent_ms = worker.now_ms
    worker.later(500)
    worker.do("on_no_answer", beat)
    worker.later(300)
    again = worker.last()
    assert (again.seq, again.attempt, again.first_sent_ms, again.body) == (beat.seq, 2, sent_ms, beat.body)
    worker.later(700)
    worker.reply(1, to=again)
    assert worker.machine.lease_end_ms == sent_ms + 45_000


def test_the_highest_answered_seq_counts_and_no_lower_one() -> None:
    worker = joined(1, assignment({"0_1": 1}))
    worker.later(3_000)
    old = worker.last()
    worker.later(4_000)
    new = worker.last()
    assert new.seq > old.seq
    worker.reply(1, to=new)
    end_ms = worker.machine.lease_end_ms
    worker.reply(1, to=old, session_timeout_ms=90_000)
    assert worker.machine.lease_end_ms == end_ms == new.first_sent_ms + 45_000


@pytest.mark.parametrize(
    ("kind", "status"),
    [("store-unavailable", 503), ("coordinator-loading", 503), ("limit-exceeded", 429), ("stale-member-epoch", 409)],
)
def test_a_refusal_renews_nothing(kind: str, status: int) -> None:
    worker = silent()
    worker.later(3_000)
    end_ms = worker.machine.lease_end_ms
    assert stops(worker.refuse(kind, status, answer=answer("run-1", 2, assignment({"0_1": 1})))) == []
    assert worker.machine.lease_end_ms == end_ms
    assert worker.machine.may_process("0_1", worker.now_ms)


def test_a_poll_renews_nothing() -> None:
    worker = silent()
    end_ms = worker.machine.lease_end_ms
    worker.later(1_000)
    assigned = assignment({"0_1": 1, "0_2": 2})
    done = worker.do("on_answer", worker.last(RequestKind.POLL), 200, answer("run-1", 2, assigned))
    assert done == [Start("0_2", Role.ACTIVE, 2)]
    assert worker.machine.lease_end_ms == end_ms


def test_at_the_end_of_the_lease_every_active_stops_without_a_commit() -> None:
    assigned = assignment({"0_1": 1, "0_2": 2}, standby=["0_3"], warmup=["0_4"])
    worker = silent(assigned=assigned)
    end_ms = worker.machine.lease_end_ms
    assert end_ms is not None
    assert stops(worker.until(end_ms - 1)) == []
    assert worker.machine.may_process("0_1", end_ms - 1)
    assert not worker.machine.may_process("0_1", end_ms)
    assert worker.machine.wake_at_ms == end_ms
    done = worker.until(end_ms)
    assert done == [Stop("0_1", Role.ACTIVE, commit=False), Stop("0_2", Role.ACTIVE, commit=False)]
    assert worker.machine.lease_is_over(end_ms)


def test_stopping_early_leaves_the_worker_time() -> None:
    worker = silent(MemberSettings(stop_early_ms=700))
    beat = worker.last()
    end_ms = beat.first_sent_ms + 45_000 - 700
    assert worker.machine.lease_end_ms == end_ms
    assert stops(worker.until(end_ms)) == [Stop("0_1", Role.ACTIVE, commit=False)]


def silent_at(settings: MemberSettings, assignment: dict[str, object]) -> Scripted:
    """Return a worker whose lease has just ended, with nothing stopped yet by the worker itself."""
    worker = silent(settings, assignment)
    assert worker.machine.lease_end_ms is not None
    worker.until(worker.machine.lease_end_ms)
    return worker


def test_what_was_stopping_with_a_commit_stops_without_one() -> None:
    """A demotion under way is given up as well."""
    worker = silent(assigned=assignment({"0_1": 1, "0_2": 2}))
    assert len(worker.beat(2, assignment(standby=["0_2"]))) == 2
    end_ms = worker.machine.lease_end_ms
    assert end_ms is not None
    assert worker.machine.may_process("0_1", end_ms - 1), "for it has to commit"
    assert stops(worker.until(end_ms)) == [
        Stop("0_1", Role.ACTIVE, commit=False),
        Stop("0_2", Role.ACTIVE, commit=False),
    ]
    assert not worker.machine.may_process("0_1", end_ms)
    assert worker.do("task_demoted", "0_2") == [], "done all the same, just before it was told"
    assert worker.machine.holdings["0_2"].role is Role.STANDBY


def test_a_suspended_machine_stops_as_soon_as_it_wakes() -> None:
    worker = silent()
    beat = worker.last()
    worker.now_ms += 200_000
    assert worker.do("copy_progress", "0_1", Progress(lag=1)) == [Stop("0_1", Role.ACTIVE, commit=False)]
    assert worker.reply(1, to=beat) == []


def test_an_answer_that_arrives_after_the_end_stops_first_and_starts_nothing() -> None:
    """It renews the lease, for its heartbeat was sent before the end."""
    worker = silent()
    worker.later(44_000)
    beat = worker.last()
    worker.now_ms = beat.first_sent_ms + 30_000
    assert worker.reply(1, to=beat) == [Stop("0_1", Role.ACTIVE, commit=False)]
    assert not worker.machine.lease_is_over(worker.now_ms)
    assert worker.do("task_stopped", "0_1") == []
    worker.later(60)
    assert worker.reply(1) == [Start("0_1", Role.ACTIVE, 1)]


def test_what_stopped_starts_again_after_a_heartbeat_sent_since() -> None:
    """Under the same token: the stop gave nothing up."""
    worker = silent_at(MemberSettings(), assignment({"0_1": 1}))
    worker.do("task_stopped", "0_1", final_position=7)
    worker.later(10_000)
    assert reported(worker.last())["0_1"] == {"role": "none", "position": 7, "final_position": 7}
    assert worker.reply(1) == [Start("0_1", Role.ACTIVE, 1)]
    worker.later(60)
    assert reported(worker.last())["0_1"] == {
        "role": "active",
        "state": "restoring",
        "fencing_token": 1,
        "position": 7,
    }


def test_a_machine_that_wakes_after_its_lease_sends_a_new_heartbeat_at_once() -> None:
    """The one under way cannot bring anything back, so it is neither waited for nor repeated."""
    worker = silent()
    worker.later(3_000)
    under_way = worker.last()
    worker.jump(100_000)
    assert (worker.last().seq, worker.last().sent_ms) == (under_way.seq + 1, worker.now_ms)


def test_what_still_stops_when_the_lease_is_back_starts_after_it_has_stopped() -> None:
    worker = silent_at(MemberSettings(), assignment({"0_1": 1}))
    worker.later(10_000)
    assert worker.reply(1) == []
    assert worker.do("task_stopped", "0_1") == [Start("0_1", Role.ACTIVE, 1)]


def test_what_is_no_longer_in_the_assignment_does_not_start_again() -> None:
    worker = silent_at(MemberSettings(), assignment({"0_1": 1}))
    worker.do("task_stopped", "0_1")
    worker.later(10_000)
    assert worker.reply(2, assignment()) == []


@pytest.mark.parametrize("settings", [MemberSettings(), CONTINUE])
def test_a_poll_starts_nothing_while_the_lease_is_over(settings: MemberSettings) -> None:
    worker = silent_at(settings, assignment({"0_1": 1}, standby=["0_3"]))
    poll = worker.last(RequestKind.POLL)
    assigned = assignment({"0_2": 2}, standby=["0_1", "0_4"])
    done = worker.do("on_answer", poll, 200, answer("run-1", 2, assigned))
    assert Stop("0_3", Role.STANDBY) in done
    assert not [each for each in done if isinstance(each, Start)]
    worker.later(10_000)
    assert worker.reply(2) == [Start("0_2", Role.ACTIVE, 2), Start("0_4", Role.STANDBY)]


def test_a_member_that_continues_goes_on_at_the_end_of_the_lease() -> None:
    """All its outputs are fenced."""
    worker = silent(CONTINUE)
    assert stops(worker.later(500_000)) == []
    assert worker.machine.may_process("0_1", worker.now_ms)
    assert stops(worker.refuse("fenced", 409)) == [Stop("0_1", Role.ACTIVE, commit=False)]
    assert not worker.machine.may_process("0_1", worker.now_ms)


def test_only_an_active_may_process() -> None:
    worker = silent(assigned=assignment({"0_1": 1}, standby=["0_3"]))
    assert worker.machine.may_process("0_1", worker.now_ms)
    assert not worker.machine.may_process("0_3", worker.now_ms)
    assert not worker.machine.may_process("0_9", worker.now_ms)


def test_a_lower_session_timeout_shortens_the_lease_from_the_seq_answered_with_it() -> None:
    worker = silent()
    worker.beat(1, session_timeout_ms=10_000)
    assert worker.machine.lease_end_ms == worker.last().first_sent_ms + 10_000
    worker.beat(1, session_timeout_ms=60_000)
    assert worker.machine.lease_end_ms == worker.last().first_sent_ms + 60_000


def test_a_lower_session_timeout_may_end_the_lease_with_the_answer_that_brings_it() -> None:
    """So late that the lower timeout has passed since the heartbeat was sent."""
    worker = silent()
    worker.later(3_000)
    beat = worker.last()
    worker.now_ms = beat.first_sent_ms + 6_500
    done = worker.reply(1, to=beat, session_timeout_ms=6_000)
    assert done == [Stop("0_1", Role.ACTIVE, commit=False)]


def test_what_has_stopped_is_not_told_to_stop_by_the_end_of_the_lease() -> None:
    """A stop that is acknowledged after the end was still a stop."""
    worker = silent(assigned=assignment({"0_1": 1, "0_2": 2, "0_3": 3}))
    worker.beat(2, assignment(standby=["0_2"]))
    worker.now_ms += 100_000
    assert worker.do("task_stopped", "0_1", final_position=4) == [
        Stop("0_2", Role.ACTIVE, commit=False),
        Stop("0_3", Role.ACTIVE, commit=False),
    ]
    other = silent(assigned=assignment({"0_1": 1, "0_2": 2}))
    other.beat(2, assignment(standby=["0_2"]))
    other.now_ms += 100_000
    assert other.do("task_demoted", "0_2", final_position=4) == [Stop("0_1", Role.ACTIVE, commit=False)]


def test_a_lower_session_timeout_known_from_a_poll_counts_from_the_heartbeat_that_echoes_its_epoch() -> None:
    """From that heartbeat on the coordinator may count the lower timeout."""
    worker = silent()
    worker.later(3_000)
    waiting = worker.last()
    end_ms = worker.machine.lease_end_ms
    lower = answer("run-1", 2, assignment({"0_1": 1}, standby=["0_2"]), session_timeout_ms=6_000)
    worker.do("on_answer", worker.last(RequestKind.POLL), 200, lower)
    assert worker.last() is waiting
    assert worker.machine.lease_end_ms == end_ms
    worker.later(4_000)
    echo = worker.last()
    assert echo.body is not None
    assert echo.body["member_epoch"] == 2
    # Neither was answered. The lease ends all the same, because the coordinator may have heard the second.
    assert worker.machine.lease_end_ms == echo.first_sent_ms + 6_000
    assert stops(worker.until(echo.first_sent_ms + 6_000)) == [Stop("0_1", Role.ACTIVE, commit=False)]


def test_a_stale_answer_cannot_bring_back_a_longer_session_timeout() -> None:
    worker = silent()
    worker.later(3_000)
    beat = worker.last()
    lower = answer("run-1", 2, assignment({"0_1": 1}, standby=["0_2"]), session_timeout_ms=6_000)
    worker.do("on_answer", worker.last(RequestKind.POLL), 200, lower)
    worker.reply(1, to=beat)
    assert worker.machine.lease_end_ms == beat.first_sent_ms + 6_000


def test_a_lease_that_ends_again_stops_again() -> None:
    worker = silent_at(MemberSettings(), assignment({"0_1": 1}))
    worker.do("task_stopped", "0_1")
    worker.later(10_000)
    worker.reply(1)
    worker.do("task_running", "0_1")
    worker.later(60)
    worker.reply(1)
    end_ms = worker.machine.lease_end_ms
    assert end_ms is not None
    assert stops(worker.until(end_ms)) == [Stop("0_1", Role.ACTIVE, commit=False)]


def test_a_member_that_leaves_stops_without_a_commit_when_its_lease_ends_meanwhile() -> None:
    worker = silent()
    assert worker.do("leave") == [Stop("0_1", Role.ACTIVE)]
    end_ms = worker.machine.lease_end_ms
    assert end_ms is not None
    assert stops(worker.until(end_ms)) == [Stop("0_1", Role.ACTIVE, commit=False)]
    assert worker.machine.phase is Phase.LEAVING


def test_time_that_goes_back_is_not_believed() -> None:
    worker = silent_at(MemberSettings(), assignment({"0_1": 1}))
    assert worker.machine.lease_is_over(0)
    worker.now_ms = 0
    assert worker.take(worker.machine.tick(0)) == []
    assert not worker.machine.may_process("0_1", 0)
