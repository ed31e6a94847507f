"""When a heartbeat goes out and what it leaves out; when a poll is opened; how long retries wait."""

from typing import Any

import pytest
from tests.worker.scripted import INTERVAL_MS, Scripted, answer, assignment, joined, reported

from batonpass.core.state import loads
from batonpass.worker.protocol import (
    MemberSettings,
    Progress,
    RequestKind,
    RoleChanged,
    Status,
    StatusChanged,
    Stop,
)
from batonpass.worker.protocol.machine import backoff_ms
from batonpass.worker.protocol.types import LOAD_MAX

POLL = RequestKind.POLL


def lists_tasks(worker: Scripted) -> bool:
    """Whether the last heartbeat lists the tasks."""
    body = worker.last().body
    return body is not None and "tasks" in body


def test_heartbeats_follow_the_interval_from_sending_to_sending() -> None:
    worker = joined(1, assignment())
    worker.beat(1)
    sent_ms = worker.now_ms
    worker.until(sent_ms + 3_000)
    assert worker.last().first_sent_ms == sent_ms + 3_000
    worker.later(1_000)
    worker.reply(1, heartbeat_interval_ms=2_000)
    worker.until(sent_ms + 5_000)
    assert worker.last().first_sent_ms == sent_ms + 5_000


def test_tasks_are_left_out_while_nothing_changes() -> None:
    worker = joined(1, assignment(standby=["0_1"]))
    worker.beat(1)
    assert not lists_tasks(worker)
    worker.do("copy_progress", "0_1", Progress(lag=5))
    worker.beat(1)
    assert lists_tasks(worker)
    worker.do("copy_progress", "0_1", Progress(lag=5))
    worker.beat(1)
    assert not lists_tasks(worker)


def test_what_a_member_says_of_itself_stands_in_each_heartbeat_and_replaces_nothing_of_the_protocol() -> None:
    worker = joined(1, assignment())
    worker.do("numbers", {"cpu_share": 0.5, "member_epoch": 99})
    for seq in (2, 3):
        worker.beat(1)
        assert worker.last().body == {"cpu_share": 0.5, "seq": seq, "member_epoch": 1}
    worker.do("numbers", {})
    worker.beat(1)
    assert worker.last().body == {"seq": 4, "member_epoch": 1}


def at(position: int, end: int = 5_000, **more: Any) -> Progress:
    """Return how far a copy is; up to 1,000 records behind the end it is caught up."""
    return Progress(position=position, end_offset=end, **more)


def following(role: str = "standby", **fields: Any) -> Scripted:
    """Return a worker whose coordinator wants positions of caught-up copies every ten seconds. It has told of one."""
    fields = {"report_interval_ms": 10_000} | fields
    worker = joined(1, assignment(standby=["0_1"]) if role == "standby" else assignment(warmup=["0_1"]), **fields)
    worker.do("copy_progress", "0_1", at(4_900))
    worker.beat(1, **fields)
    assert lists_tasks(worker)
    return worker


@pytest.mark.parametrize("role", ["standby", "warmup"])
def test_how_far_a_caught_up_copy_is_waits_for_the_report_interval(role: str) -> None:
    worker = following(role)
    listed = []
    for position in range(4_901, 4_909):
        worker.do("copy_progress", "0_1", at(position))
        worker.beat(1, report_interval_ms=10_000)
        listed.append(lists_tasks(worker))
    assert listed == [False, False, False, True] * 2
    assert reported(worker.last())["0_1"]["position"] == 4_908


def test_a_copy_that_begins_from_disk_says_at_once_where_it_is_by_the_end_that_it_reads_now() -> None:
    """The end that it knew on the disk may be long past: the report with that one tells nobody that it is caught up."""
    fields: dict[str, Any] = {"report_interval_ms": 10_000}
    worker = Scripted(on_disk={"0_1": at(4_900, 4_900)})
    worker.start()
    worker.reply(1, assignment(warmup=["0_1"]), to=worker.last(RequestKind.JOIN), **fields)
    worker.beat(1, **fields)
    worker.do("copy_progress", "0_1", at(5_000))
    worker.beat(1, **fields)
    assert lists_tasks(worker)
    assert reported(worker.last())["0_1"]["end_offset"] == 5_000
    worker.do("copy_progress", "0_1", at(5_010, 5_010))
    worker.beat(1, **fields)
    assert not lists_tasks(worker)


def test_a_caught_up_copy_that_reads_nothing_is_not_reported_again() -> None:
    worker = following()
    for _ in range(8):
        worker.beat(1, report_interval_ms=10_000)
        assert not lists_tasks(worker)


def test_a_coordinator_that_names_no_report_interval_is_told_of_every_change() -> None:
    worker = joined(1, assignment(standby=["0_1"]))
    for position in range(4_900, 4_905):
        worker.do("copy_progress", "0_1", at(position))
        worker.beat(1)
        assert reported(worker.last())["0_1"]["position"] == position


@pytest.mark.parametrize(
    "said",
    [
        ("copy_progress", "0_1", at(3_999)),
        ("copy_progress", "0_1", Progress(position=4_950)),
        ("copy_progress", "0_1", at(4_950, detail="the broker is slow")),
        ("state_lost", "0_1"),
        ("state_removed", "0_1"),
        ("task_stopped", "0_1"),
    ],
    ids=["falls behind", "knows no end", "is held up", "is lost", "has other state", "stops"],
)
def test_a_copy_that_does_not_just_read_on_is_reported_with_the_next_heartbeat(said: tuple[Any, ...]) -> None:
    worker = following()
    worker.do(*said)
    worker.beat(1, report_interval_ms=10_000)
    assert lists_tasks(worker)


def test_a_copy_that_restores_is_reported_with_every_heartbeat_until_it_has_reported_itself_as_caught_up() -> None:
    worker = joined(1, assignment(standby=["0_1"]), report_interval_ms=10_000)
    listed = []
    for position in (1_000, 2_000, 4_500, 4_600, 4_700):
        worker.do("copy_progress", "0_1", at(position))
        worker.beat(1, report_interval_ms=10_000)
        listed.append(lists_tasks(worker))
    assert listed == [True, True, True, False, False]


def test_a_warmup_that_a_raised_lag_makes_ready_is_reported_once_and_at_once() -> None:
    fields: dict[str, Any] = {"report_interval_ms": 10_000, "acceptable_recovery_lag": 10}
    worker = following("warmup", **fields)
    raised: dict[str, Any] = {"report_interval_ms": 10_000}
    worker.beat(1, **raised)
    worker.do("copy_progress", "0_1", at(4_900))
    worker.later(60)
    assert lists_tasks(worker)
    worker.reply(1, **raised)
    before = worker.count()
    worker.do("copy_progress", "0_1", at(4_900))
    worker.later(1_000)
    assert worker.count() == before


def test_input_lags_and_bytes_on_disk_wait_for_the_report_interval() -> None:
    worker = joined(1, assignment(active={"0_0": 7}), report_interval_ms=10_000)
    worker.do("task_running", "0_0")
    worker.beat(1, report_interval_ms=10_000)
    listed = []
    for lag in range(1, 9):
        worker.do("input_lag", "0_0", lag)
        worker.do("disk_bytes", {"0_0": lag})
        worker.beat(1, report_interval_ms=10_000)
        listed.append(lists_tasks(worker))
    assert listed == [False, False, False, True] * 2
    assert reported(worker.last())["0_0"] == {"role": "active", "state": "running", "fencing_token": 7} | {
        "input_lag": 8,
        "disk_bytes": 8,
    }


def test_a_load_is_said_while_an_active_runs_and_waits_for_the_report_interval() -> None:
    worker = joined(1, assignment(active={"0_0": 7}), report_interval_ms=10_000)
    worker.do("load", "0_0", 0.25)
    worker.do("task_restoring", "0_0", progress=at(4_900))
    worker.beat(1, report_interval_ms=10_000)
    assert "load" not in reported(worker.last())["0_0"]
    worker.do("task_running", "0_0")
    worker.beat(1, report_interval_ms=10_000)
    assert reported(worker.last())["0_0"]["load"] == 0.25
    listed = []
    for load in (0.5, 0.75, 1, 1.25):
        worker.do("load", "0_0", load)
        worker.beat(1, report_interval_ms=10_000)
        listed.append(lists_tasks(worker))
    assert listed == [False, False, False, True]
    worker.do("load", "0_0", 1.25)
    worker.do("load", "0_9", 1)
    for _ in range(5):
        worker.beat(1, report_interval_ms=10_000)
        assert not lists_tasks(worker)
    worker.do("state_lost", "0_0")
    worker.beat(1, report_interval_ms=10_000)
    assert "load" not in reported(worker.last())["0_0"]


@pytest.mark.parametrize("load", [-0.1, 1_000_001, float("nan"), float("inf")])
def test_a_load_that_no_coordinator_takes_is_refused_and_costs_no_heartbeat(load: float) -> None:
    worker = joined(1, assignment(active={"0_0": 7}))
    worker.do("task_running", "0_0")
    with pytest.raises(ValueError, match=r"a load is a number from 0 to 1,000,000"):
        worker.do("load", "0_0", load)
    worker.beat(1)
    assert "load" not in reported(worker.last())["0_0"]
    assert LOAD_MAX == loads.LOAD_MAX


def test_an_active_that_restores_is_reported_with_every_heartbeat() -> None:
    worker = joined(1, assignment(active={"0_0": 7}), report_interval_ms=10_000)
    for position in (4_900, 4_910, 4_920):
        worker.do("task_restoring", "0_0", progress=at(position))
        worker.beat(1, report_interval_ms=10_000)
        assert reported(worker.last())["0_0"]["position"] == position


def test_tasks_are_listed_until_the_report_was_heard() -> None:
    worker = joined(1, assignment(standby=["0_1"]))
    worker.do("copy_progress", "0_1", Progress(lag=5))
    worker.later(3_000)
    lost = worker.last()
    worker.later(4_000)
    assert worker.last().seq > lost.seq
    assert lists_tasks(worker)
    worker.reply(1, to=lost)
    worker.reply(1)
    worker.beat(1)
    assert not lists_tasks(worker)


def test_an_answer_to_an_older_report_does_not_make_the_last_one_heard() -> None:
    """The coordinator may believe the older report until a later one is answered."""
    worker = joined(1, assignment(standby=["0_1"]))
    worker.do("copy_progress", "0_1", Progress(lag=5))
    worker.later(3_000)
    older = worker.last()
    worker.do("copy_progress", "0_1", Progress(lag=4))
    worker.later(3_900)
    assert worker.last().seq > older.seq
    worker.reply(1, to=older)
    worker.later(4_000)
    assert lists_tasks(worker)
    assert reported(worker.last())["0_1"]["lag"] == 4


def test_tasks_are_listed_with_each_new_epoch() -> None:
    """What is left out confirms nothing: a task granted and revoked unseen is given up by a list without it."""
    worker = joined(1, assignment(standby=["0_1"]))
    worker.beat(1)
    worker.beat(3, assignment(standby=["0_1"]))
    worker.later(60)
    assert worker.last().body == {"seq": worker.machine.seq, "member_epoch": 3, "tasks": {"0_1": {"role": "standby"}}}
    worker.reply(3)
    worker.beat(3)
    assert not lists_tasks(worker)


def test_a_full_report_is_given_when_it_is_asked_for() -> None:
    worker = joined(1, assignment(standby=["0_1"]))
    worker.beat(1)
    worker.beat(1, report="full")
    assert not lists_tasks(worker)
    worker.later(3_000)
    assert lists_tasks(worker)
    worker.later(4_000)
    assert lists_tasks(worker)
    worker.reply(1)
    worker.beat(1)
    assert not lists_tasks(worker)


def test_a_poll_may_ask_for_a_full_report() -> None:
    worker = joined(1, assignment(standby=["0_1"]))
    worker.beat(1)
    worker.do("on_answer", worker.last(POLL), 200, answer("run-1", 1, None, report="full"))
    worker.beat(1)
    assert lists_tasks(worker)


def test_a_heartbeat_under_way_does_not_count_as_the_full_report_asked_for() -> None:
    worker = joined(1, assignment(standby=["0_1"]))
    worker.beat(1)
    worker.later(3_000)
    before = worker.last()
    worker.do("on_answer", worker.last(POLL), 200, answer("run-1", 1, None, report="full"))
    worker.do("on_no_answer", before)
    worker.later(300)
    assert worker.last().seq == before.seq + 1
    assert lists_tasks(worker)


def test_a_warmup_that_comes_within_the_acceptable_lag_is_reported_at_once() -> None:
    worker = joined(1, assignment(warmup=["0_1"]))
    before = worker.count()
    worker.do("copy_progress", "0_1", Progress(position=1, end_offset=1002))
    worker.later(200)
    assert worker.count() == before
    worker.do("copy_progress", "0_1", Progress(position=2, end_offset=1002))
    assert worker.count() == before + 1
    assert reported(worker.last())["0_1"] == {"role": "warmup", "position": 2, "end_offset": 1002}
    worker.reply(1)
    worker.do("copy_progress", "0_1", Progress(position=1002, end_offset=1002))
    worker.later(200)
    assert worker.count() == before + 1, "it was within before"
    worker.do("copy_progress", "0_1", Progress(lag=5_000))
    worker.beat(1)
    worker.do("copy_progress", "0_1", Progress(lag=5))
    worker.later(60)
    assert reported(worker.last())["0_1"] == {"role": "warmup", "lag": 5}


def test_a_warmup_is_ready_by_its_time_to_catch_up_where_the_group_says_so() -> None:
    worker = joined(1, assignment(warmup=["0_1"]), acceptable_catchup_ms=500)
    before = worker.count()
    worker.do("copy_progress", "0_1", Progress(lag=9_000, catchup_ms=501))
    worker.later(100)
    assert worker.count() == before
    worker.do("copy_progress", "0_1", Progress(lag=8_000, catchup_ms=500))
    worker.later(100)
    assert worker.count() == before + 1
    assert reported(worker.last())["0_1"] == {"role": "warmup", "lag": 8_000}
    off = joined(1, assignment(warmup=["0_1"]))
    before = off.count()
    off.do("copy_progress", "0_1", Progress(lag=8_000, catchup_ms=1))
    off.later(100)
    assert off.count() == before


def test_a_standby_within_the_acceptable_lag_waits_for_the_interval() -> None:
    """Only a warmup's lag changes what the coordinator does next; a standby that becomes one is news again."""
    worker = joined(1, assignment(standby=["0_1"]))
    before = worker.count()
    worker.do("copy_progress", "0_1", Progress(lag=0))
    worker.later(100)
    assert worker.count() == before
    assert worker.beat(2, assignment(warmup=["0_1"]))[-1:] == [RoleChanged("0_1", worker.machine.holdings["0_1"].role)]
    worker.later(60)
    assert reported(worker.last())["0_1"] == {"role": "warmup", "lag": 0}


def test_urgent_heartbeats_stay_below_twenty_a_second() -> None:
    """Below it they are exempt from the rate limit."""
    worker = joined(1, assignment({f"0_{each}": each for each in range(50)}))
    before = worker.count()
    started_ms = worker.now_ms
    for each in range(50):
        worker.do("task_running", f"0_{each}")
        worker.later(10)
        if worker.machine.seq and worker.last().sent_ms == worker.now_ms:
            worker.reply(1)
    assert worker.count() - before <= (worker.now_ms - started_ms) / 1000 * 20


def test_news_while_a_heartbeat_is_under_way_goes_out_as_soon_as_it_is_answered() -> None:
    worker = joined(1, assignment({"0_1": 1}))
    worker.later(3_000)
    first = worker.last()
    worker.do("task_running", "0_1")
    worker.later(500)
    assert worker.last() is first
    worker.reply(1)
    assert worker.last().seq == first.seq + 1
    assert reported(worker.last())["0_1"]["state"] == "running"


def test_the_statuses_are_shown_when_they_change() -> None:
    worker = joined(1, assignment())
    drained = [{"code": "drained", "detail": "nothing left"}]
    assert worker.beat(1, status=drained) == [StatusChanged((Status("drained", "nothing left"),))]
    assert worker.beat(1, status=drained) == []
    assert worker.machine.statuses == (Status("drained", "nothing left"),)
    assert worker.beat(1) == [StatusChanged(())]


def test_a_poll_is_open_at_all_times() -> None:
    worker = joined(1, assignment())
    first = worker.last(POLL)
    assert first.query == {"after": 1, "wait_ms": 30_000}
    worker.later(10_000 - worker.now_ms)
    worker.do("on_answer", first, 204, None)
    second = worker.last(POLL)
    assert second.sent_ms == 10_000
    worker.do("on_answer", second, 204, None)
    worker.later(999)
    assert worker.last(POLL) is second
    worker.later(1)
    third = worker.last(POLL)
    assert third.sent_ms == 11_000
    worker.do("on_answer", third, 200, answer("run-1", 2, assignment(standby=["0_1"])))
    worker.later(60)
    assert worker.last(POLL).query["after"] == 2


def test_a_poll_that_is_answered_without_news_is_not_repeated_at_once() -> None:
    worker = joined(1, assignment())
    for _ in range(3):
        poll = worker.last(POLL)
        worker.do("on_answer", poll, 200, answer("run-1", 1, assignment()))
        worker.until(poll.sent_ms + 999)
        assert worker.last(POLL) is poll
        worker.later(1)
        assert worker.last(POLL) is not poll


def test_a_broken_poll_is_opened_again_before_the_member_is_suspected() -> None:
    """At once the first time, then with a backoff below any sensible suspect timeout."""
    worker = joined(1, assignment())
    for failure in range(12):
        poll = worker.last(POLL)
        worker.do("on_no_answer", poll)
        worker.later(60 if failure == 0 else 1_000)
        assert worker.last(POLL) is not poll


def test_a_refused_poll_waits_and_is_shown() -> None:
    worker = joined(1, assignment({"0_1": 1}))
    poll = worker.last(POLL)
    [seen] = worker.refuse("coordinator-loading", 503, to=poll, retry_after_ms=700)
    assert not isinstance(seen, Stop)
    worker.later(699)
    assert worker.last(POLL) is poll
    worker.later(1)
    assert worker.last(POLL) is not poll


def test_a_heartbeat_waits_for_its_answer_no_longer_than_makes_sense() -> None:
    """About an interval, and never more than a third of the lease."""
    assert joined(1, assignment()).last().timeout_ms == 3_000
    quick = joined(1, assignment(), heartbeat_interval_ms=10, session_timeout_ms=1_500)
    assert quick.last().timeout_ms == 500


@pytest.mark.parametrize("failures", [1, 2, 3, 8, 50])
def test_waits_double_and_are_spread_by_seed(failures: int) -> None:
    """Between half and all of a doubling ceiling, the same for the same seed."""
    ceiling = min(5_000, 200 * 2 ** (failures - 1))
    waits = [backoff_ms(failures, 5_000, seed) for seed in range(100)]
    assert all(ceiling // 2 <= wait <= ceiling for wait in waits)
    assert waits == [backoff_ms(failures, 5_000, seed) for seed in range(100)]
    assert len(set(waits)) > 40


def test_the_seed_decides_when_retries_go_out() -> None:
    """Members with different seeds do not come back all at once."""
    times = set()
    for seed in range(20):
        worker = joined(1, assignment(), MemberSettings(jitter_seed=seed))
        worker.later(3_000)
        worker.do("on_no_answer", worker.last())
        wake_ms = worker.machine.wake_at_ms
        assert wake_ms is not None
        times.add(wake_ms - worker.now_ms)
    assert len(times) > 10
    assert all(100 <= time <= 200 for time in times)


def test_a_revocation_is_confirmed_at_once_when_the_task_has_stopped() -> None:
    """A heartbeat in between would have to keep its distance from the confirmation, and delay it."""
    worker = joined(1, assignment({"0_1": 5, "0_2": 6}))
    worker.later(1_000)
    before = worker.count()
    worker.reply(2, assignment({"0_2": 6}), to=worker.last(RequestKind.POLL))
    worker.later(10)
    assert worker.count() == before
    worker.do("task_stopped", "0_1", final_position=7)
    assert worker.count() == before + 1
    assert worker.last().body["member_epoch"] == 2  # type: ignore[index]
    assert reported(worker.last())["0_1"] == {"role": "none", "position": 7, "final_position": 7}


def test_a_task_that_takes_its_time_to_stop_is_reported_at_the_interval() -> None:
    worker = joined(1, assignment({"0_1": 5}))
    before = worker.count()
    worker.reply(2, assignment(), to=worker.last(RequestKind.POLL))
    worker.later(INTERVAL_MS)
    assert worker.count() == before + 1
    assert worker.last().body["member_epoch"] == 2  # type: ignore[index]
    assert reported(worker.last())["0_1"]["role"] == "active"
