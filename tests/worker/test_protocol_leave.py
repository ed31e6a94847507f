"""Leaving and draining: the goodbye is said after the actives have stopped, and a drain is asked for until heard."""

import pytest
from tests.worker.scripted import Scripted, answer, assignment, joined

from batonpass.worker.protocol import (
    LeaveMode,
    MemberSettings,
    Phase,
    ProblemSeen,
    RequestKind,
    Role,
    StatusChanged,
    Stop,
    StopForGood,
)

LEAVE = RequestKind.LEAVE
DRAIN = RequestKind.DRAIN
UNDRAIN = RequestKind.UNDRAIN
INSTANCE = MemberSettings(instance_id="orders-0")


def leaving() -> Scripted:
    """Return a worker that was told to leave while an active and a standby run."""
    worker = joined(1, assignment({"0_1": 1}, standby=["0_2"]))
    worker.do("task_running", "0_1")
    worker.beat(1)
    assert worker.do("leave") == [Stop("0_1", Role.ACTIVE), Stop("0_2", Role.STANDBY)]
    return worker


def test_the_goodbye_waits_for_the_actives() -> None:
    worker = leaving()
    worker.do("task_stopped", "0_2")
    worker.beat(1)
    assert worker.count(LEAVE) == 0
    worker.do("task_stopped", "0_1", final_position=9)
    assert worker.last(LEAVE).query == {"mode": "leave"}
    beats = worker.count()
    assert worker.do("on_answer", worker.last(LEAVE), 204, None) == [StopForGood("left")]
    worker.later(100_000)
    assert worker.count() == beats
    assert worker.machine.phase is Phase.LEFT
    assert worker.machine.wake_at_ms is None


def test_nothing_starts_while_leaving() -> None:
    worker = leaving()
    assert worker.beat(2, assignment({"0_1": 1, "0_5": 7}, standby=["0_2", "0_3"])) == []
    assert worker.do("task_stopped", "0_2") == []
    worker.beat(2)
    assert worker.last().body is not None
    assert worker.last().body["member_epoch"] == 2  # type: ignore[index]
    assert worker.do("leave") == []


def test_a_restart_says_so_and_needs_an_instance_id() -> None:
    with pytest.raises(ValueError, match="instance id"):
        joined(1, assignment()).do("leave", mode=LeaveMode.RESTART)
    worker = joined(1, assignment(), INSTANCE)
    worker.do("leave", mode=LeaveMode.RESTART)
    assert worker.last(LEAVE).query == {"mode": "restart"}


@pytest.mark.parametrize(
    ("kind", "status"), [("gone", 409), ("fenced", 409), ("unknown-member", 404), ("fenced-instance-id", 409)]
)
def test_a_goodbye_that_is_refused_because_the_member_is_none_has_been_said(kind: str, status: int) -> None:
    """It is what was wanted."""
    worker = joined(1, assignment())
    worker.do("leave")
    assert worker.refuse(kind, status, to=worker.last(LEAVE)) == [StopForGood("left")]


def test_a_goodbye_without_an_answer_is_repeated_until_the_lease_is_over() -> None:
    """After that the member is gone in any case."""
    worker = joined(1, assignment())
    end_ms = worker.machine.lease_end_ms
    assert end_ms is not None
    worker.do("leave")
    done = worker.until(end_ms - 1)
    assert done == []
    assert worker.count(LEAVE) > 3
    assert worker.until(end_ms + 10_000) == [StopForGood("left without an answer")]


def test_a_refused_goodbye_is_shown_and_repeated() -> None:
    """A store that is away does not keep the worker from leaving."""
    worker = joined(1, assignment())
    worker.do("leave")
    [seen] = worker.refuse("store-unavailable", 503, to=worker.last(LEAVE))
    assert isinstance(seen, ProblemSeen)
    worker.later(300)
    assert worker.last(LEAVE).attempt == 2


def test_a_member_fenced_while_it_leaves_does_not_come_back() -> None:
    worker = leaving()
    assert worker.refuse("fenced", 409) == [Stop("0_1", Role.ACTIVE, commit=False)]
    assert worker.do("task_stopped", "0_1") == [StopForGood("left")]
    assert worker.count(RequestKind.JOIN) == 1


def test_a_fenced_member_that_is_told_to_leave_does_not_come_back() -> None:
    worker = joined(1, assignment({"0_1": 1}, standby=["0_2"]))
    worker.later(3_000)
    worker.refuse("fenced", 409)
    assert worker.do("leave") == [Stop("0_2", Role.STANDBY)]
    assert worker.do("task_stopped", "0_1") == [StopForGood("left")]


def test_a_late_answer_after_the_goodbye_is_nothing() -> None:
    worker = leaving()
    worker.later(3_000)
    beat = worker.last()
    worker.do("task_stopped", "0_1")
    assert worker.reply(3, assignment({"0_1": 5}), to=beat) == []
    sent = len(worker.sent)
    assert worker.refuse("gone", 409, to=beat) == [StopForGood("left")]
    assert worker.do("on_answer", worker.last(LEAVE), 204, None) == []
    worker.later(10_000)
    assert len(worker.sent) == sent


def test_a_drain_is_asked_for_until_it_is_heard() -> None:
    worker = joined(1, assignment({"0_1": 1}))
    asked_ms = worker.now_ms
    assert worker.do("drain", deadline_ms=30_000) == []
    assert worker.last(DRAIN).query == {"deadline_ms": 30_000}
    worker.do("on_no_answer", worker.last(DRAIN))
    worker.later(500)
    assert worker.last(DRAIN).query == {"deadline_ms": 30_000 - (worker.last(DRAIN).sent_ms - asked_ms)}
    worker.do("on_answer", worker.last(DRAIN), 202, {"active": 1})
    drains = worker.count(DRAIN)
    worker.later(100)
    assert worker.count(DRAIN) == drains
    [shown] = worker.beat(1, status=[{"code": "draining", "detail": "1 left"}])
    assert isinstance(shown, StatusChanged)
    assert "0_1" in worker.machine.holdings


def test_a_drain_without_a_deadline_names_none_and_may_be_called_off() -> None:
    worker = joined(1, assignment())
    worker.do("drain")
    assert worker.last(DRAIN).query == {}
    worker.do("undrain")
    undrain = worker.last(UNDRAIN)
    worker.do("on_answer", worker.last(DRAIN), 202, {})
    worker.later(3_300)
    assert worker.count(UNDRAIN) == 2, "the answer to the drain is not the answer to calling it off"
    worker.do("on_answer", undrain, 204, None)
    worker.later(10_000)
    assert worker.count(UNDRAIN) == 2


def test_a_drain_wanted_before_the_join_or_lost_with_a_run_is_asked_for_once_joined() -> None:
    """The wish belongs to the worker, not to one of its runs."""
    worker = Scripted()
    worker.start()
    worker.do("drain")
    assert worker.count(DRAIN) == 0
    worker.reply(1, assignment(), to=worker.last(RequestKind.JOIN))
    assert worker.count(DRAIN) == 1
    worker.do("on_answer", worker.last(DRAIN), 200, {})
    worker.beat(1)
    worker.later(3_000)
    worker.refuse("fenced", 409)
    worker.reply(1, assignment(), to=worker.last(RequestKind.JOIN))
    assert worker.last(DRAIN).member_id == "run-2"


def test_a_drain_that_is_not_allowed_is_shown_and_not_repeated() -> None:
    """What was judged will be judged alike again."""
    worker = joined(1, assignment())
    worker.do("drain")
    [seen] = worker.refuse("forbidden", 403, to=worker.last(DRAIN))
    assert isinstance(seen, ProblemSeen)
    worker.later(20_000)
    assert worker.count(DRAIN) == 1
    worker.do("drain")
    worker.refuse("limit-exceeded", 429, to=worker.last(DRAIN), retry_after_ms=500)
    worker.later(500)
    assert worker.count(DRAIN) == 3


def test_a_poll_answered_while_leaving_starts_nothing() -> None:
    worker = leaving()
    poll = worker.last(RequestKind.POLL)
    assert worker.do("on_answer", poll, 200, answer("run-1", 9, assignment({"0_7": 3}))) == []
    worker.later(5_000)
    assert worker.last(RequestKind.POLL) is poll
