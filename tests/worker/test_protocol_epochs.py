"""Epochs and seq on two channels: late, lost, doubled and reordered answers cost nothing."""

from tests.worker.scripted import answer, assignment, joined, reported

from batonpass.worker.protocol import (
    ProblemSeen,
    Progress,
    RequestKind,
    Role,
    Start,
    Stop,
)

POLL = RequestKind.POLL


def test_an_answer_of_a_lower_epoch_changes_nothing_held() -> None:
    """The other channel was faster; the lease is renewed all the same."""
    worker = joined(1, assignment())
    worker.later(3_000)
    poll = worker.last(POLL)
    assert worker.do("on_answer", poll, 200, answer("run-1", 3, assignment({"0_1": 5}))) == [
        Start("0_1", Role.ACTIVE, 5)
    ]
    assert worker.reply(2, assignment(standby=["0_1"]), heartbeat_interval_ms=77) == []
    assert worker.machine.member_epoch == 3
    assert worker.machine.lease_end_ms == 48_000 + 60
    worker.later(60)
    assert worker.last().body is not None
    assert worker.last().body["member_epoch"] == 3  # type: ignore[index]


def test_a_heartbeat_echoes_the_highest_epoch_of_any_channel() -> None:
    worker = joined(1, assignment())
    before = worker.count()
    worker.do("on_answer", worker.last(POLL), 200, answer("run-1", 2, assignment(standby=["0_1"])))
    worker.later(60)
    assert worker.count() == before + 1
    assert worker.last().body == {
        "seq": worker.machine.seq,
        "member_epoch": 2,
        "tasks": {"0_1": {"role": "standby"}},
    }
    worker.reply(2)
    assert worker.last(POLL).query["after"] == 2


def test_doubled_and_reordered_answers_start_and_stop_nothing_twice() -> None:
    """Every answer of the past may come again."""
    worker = joined(1, assignment(standby=["0_1"]))
    old = worker.last()
    worker.beat(2, assignment({"0_1": 5}))
    new = worker.last()
    for _ in range(2):
        assert worker.reply(1, assignment(standby=["0_1"]), to=old) == []
        assert worker.reply(2, assignment({"0_1": 5}), to=new) == []
        assert worker.reply(1, assignment(standby=["0_1"]), to=worker.last(RequestKind.JOIN)) == []
    assert worker.machine.holdings["0_1"].token == 5


def test_an_epoch_without_its_assignment_is_not_echoed() -> None:
    """So that nothing unseen is confirmed."""
    worker = joined(1, assignment({"0_1": 5}))
    worker.beat(4, None)
    assert worker.machine.member_epoch == 1
    worker.beat(1)
    assert worker.last().body is not None
    assert worker.last().body["member_epoch"] == 1  # type: ignore[index]


def test_a_stale_epoch_is_answered_with_the_assignment_to_take() -> None:
    worker = joined(1, assignment({"0_1": 5}))
    worker.later(3_000)
    refused = worker.last()
    assigned = answer("run-1", 4, assignment(standby=["0_2"]))
    done = worker.refuse("stale-member-epoch", 409, answer=assigned)
    assert done == [Stop("0_1", Role.ACTIVE), Start("0_2", Role.STANDBY)]
    worker.later(60)
    worker.do("task_stopped", "0_1")
    worker.later(0)
    assert worker.last().seq == refused.seq + 1
    assert worker.last().body is not None
    assert worker.last().body["member_epoch"] == 4  # type: ignore[index]


def test_a_late_stale_epoch_disturbs_no_other_request() -> None:
    worker = joined(1, assignment({"0_1": 5}))
    worker.later(3_000)
    old = worker.last()
    worker.later(4_000)
    waiting = worker.last()
    assert worker.refuse("stale-member-epoch", 409, to=old, answer=answer("run-1", 1, assignment({"0_1": 5}))) == []
    worker.later(100)
    assert worker.last() is waiting


def test_a_stale_epoch_that_brings_nothing_new_waits() -> None:
    """A coordinator that refuses over and over is not asked over and over without a pause."""
    worker = joined(1, assignment({"0_1": 5}))
    worker.later(3_000)
    first = worker.last()
    worker.refuse("stale-member-epoch", 409, answer=answer("run-1", 1, assignment({"0_1": 5})))
    worker.later(90)
    assert worker.last() is first
    worker.later(200)
    assert (worker.last().seq, worker.last().attempt) == (first.seq + 1, 1)


def test_a_stale_epoch_without_an_assignment_counts_as_unanswered() -> None:
    worker = joined(1, assignment({"0_1": 5}))
    worker.later(3_000)
    [seen] = worker.refuse("stale-member-epoch", 409)
    assert isinstance(seen, ProblemSeen)
    assert seen.problem.type == "malformed-answer"


def test_seq_grows_with_every_new_heartbeat_and_stays_with_a_retry() -> None:
    """A retry says word for word what it said before, so that a doubled one changes nothing."""
    worker = joined(1, assignment({"0_1": 5}))
    worker.beat(1)
    worker.later(3_000)
    first = worker.last()
    worker.do("on_no_answer", first)
    worker.later(250)
    again = worker.last()
    assert again.seq == first.seq
    assert again.body == first.body
    assert again.attempt == 2
    # News in between: the next one is another heartbeat.
    worker.do("on_no_answer", again)
    worker.do("task_running", "0_1")
    worker.later(1_000)
    assert worker.last().seq == first.seq + 1
    assert reported(worker.last())["0_1"]["state"] == "running"


def test_a_retry_gives_way_to_what_is_true_by_now() -> None:
    worker = joined(1, assignment(standby=["0_1"]))
    worker.later(3_000)
    first = worker.last()
    worker.do("on_no_answer", first)
    worker.do("copy_progress", "0_1", Progress(lag=5))
    worker.later(250)
    assert worker.last().seq == first.seq + 1
    assert reported(worker.last())["0_1"] == {"role": "standby", "lag": 5}


def test_a_heartbeat_older_than_the_interval_is_not_repeated() -> None:
    """The lease never counts from a retry, so after an interval a new heartbeat is worth more."""
    worker = joined(1, assignment({"0_1": 5}))
    worker.beat(1)
    worker.later(3_000)
    first = worker.last()
    worker.later(4_000)
    assert worker.last().seq == first.seq + 1
    assert worker.last().attempt == 1


def test_a_silence_is_noticed_once() -> None:
    worker = joined(1, assignment({"0_1": 5}))
    worker.later(3_000)
    first = worker.last()
    worker.do("on_no_answer", first)
    worker.later(250)
    again = worker.last()
    worker.do("on_no_answer", first)
    worker.later(250)
    assert worker.last() is again


def test_an_answer_below_what_the_poll_asked_for_brings_a_heartbeat() -> None:
    """The store may have lost commits; only a heartbeat says so, and the poll waits meanwhile."""
    worker = joined(7, assignment({"0_1": 5}))
    beats, polls = worker.count(), worker.count(POLL)
    assert worker.do("on_answer", worker.last(POLL), 200, answer("run-1", 3, assignment())) == []
    worker.later(500)
    assert worker.machine.member_epoch == 7
    assert worker.count() == beats + 1
    assert worker.count(POLL) == polls
    worker.later(600)
    assert worker.count(POLL) == polls + 1


def test_late_polls_are_read_and_disturb_nothing() -> None:
    """A poll that was given up may still bring an assignment."""
    worker = joined(1, assignment(standby=["0_1"]))
    old = worker.last(POLL)
    worker.do("on_no_answer", old)
    worker.later(100)
    waiting = worker.last(POLL)
    assert waiting is not old
    worker.do("on_answer", waiting, 200, answer("run-1", 2, assignment(standby=["0_1", "0_2"])))
    worker.later(100)
    third = worker.last(POLL)
    assert worker.do("on_answer", old, 200, answer("run-1", 3, assignment(standby=["0_2"]))) == [
        Stop("0_1", Role.STANDBY)
    ]
    assert worker.do("on_answer", waiting, 204, None) == []
    worker.later(100)
    assert worker.last(POLL) is third


def test_a_new_run_begins_its_epochs_and_seq_anew() -> None:
    """They belong to one member id; answers to the old one mean nothing any more."""
    worker = joined(7, assignment(standby=["0_1"]))
    old = worker.last()
    worker.later(3_000)
    worker.refuse("fenced", 409)
    assert worker.machine.member_id == "run-2"
    assert (worker.machine.member_epoch, worker.machine.seq) == (-1, 0)
    assert worker.reply(9, assignment(), to=old) == []
    assert worker.refuse("fenced-instance-id", 409, to=old) == []
    worker.reply(1, assignment(standby=["0_1"]), to=worker.last(RequestKind.JOIN))
    worker.do("copy_progress", "0_1", Progress(lag=5))
    worker.beat(1)
    assert worker.last().body == {"seq": 1, "member_epoch": 1, "tasks": {"0_1": {"role": "standby", "lag": 5}}}
