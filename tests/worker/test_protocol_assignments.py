"""From one assignment to the next: what stops, what starts, in which order, and when a revocation is confirmed."""

from tests.worker.scripted import Scripted, answer, assignment, joined, reported

from batonpass.worker.protocol import (
    MemberSettings,
    Progress,
    RequestKind,
    Role,
    RoleChanged,
    Stage,
    Start,
    Stop,
)


def running(tokens: dict[str, int], **kinds: list[str]) -> Scripted:
    """Return a worker whose actives run, and were heard to run."""
    worker = joined(1, assignment(tokens, **kinds))
    for task in tokens:
        worker.do("task_running", task)
    worker.beat(1)
    return worker


def test_what_stops_comes_before_what_starts() -> None:
    worker = running({"0_5": 1, "0_7": 2}, standby=["0_1", "0_2"], warmup=["0_3"])
    assigned = assignment({"0_0": 9, "0_3": 8}, standby=["0_7"], warmup=["0_2", "0_4"])
    assert worker.beat(2, assigned) == [
        Stop("0_1", Role.STANDBY),
        RoleChanged("0_2", Role.WARMUP),
        Stop("0_5", Role.ACTIVE),
        Stop("0_7", Role.ACTIVE, becomes=Role.STANDBY),
        Start("0_0", Role.ACTIVE, 9),
        Start("0_3", Role.ACTIVE, 8, in_place=True),
        Start("0_4", Role.WARMUP),
    ]


def test_a_assignment_that_is_true_already_asks_for_nothing() -> None:
    worker = running({"0_1": 1}, standby=["0_2"])
    assert worker.beat(1, assignment({"0_1": 1}, standby=["0_2"])) == []
    assert worker.beat(2, assignment({"0_1": 1}, standby=["0_2"])) == []
    assert worker.beat(2) == []


def test_a_grant_carries_where_the_last_owner_stopped() -> None:
    worker = joined(1, assignment(warmup=["0_3"]))
    assigned = assignment() | {
        "active": [
            {"task": "0_1", "fencing_token": 41, "restore_to": 905},
            {"task": "0_3", "fencing_token": 42, "restore_to": 77},
        ]
    }
    assert worker.beat(2, assigned) == [
        Start("0_1", Role.ACTIVE, 41, 905),
        Start("0_3", Role.ACTIVE, 42, 77, in_place=True),
    ]


def test_a_revocation_is_confirmed_only_after_the_worker_stopped() -> None:
    worker = running({"0_1": 1})
    assert worker.beat(2, assignment()) == [Stop("0_1", Role.ACTIVE)]
    worker.do("input_lag", "0_1", 4)
    worker.beat(2)
    active = {"role": "active", "state": "running", "fencing_token": 1, "input_lag": 4}
    assert reported(worker.last())["0_1"] == active
    sent_ms = worker.now_ms
    worker.later(200)
    worker.do("task_stopped", "0_1", final_position=905)
    assert worker.last().sent_ms == sent_ms + 200, "a confirmation does not wait for the interval"
    assert worker.last().body == {
        "seq": worker.machine.seq,
        "member_epoch": 2,
        "tasks": {"0_1": {"role": "none", "position": 905, "final_position": 905}},
    }


def test_a_final_position_is_said_until_it_is_heard() -> None:
    """What is on the disk is not forgotten with it."""
    worker = running({"0_1": 1})
    worker.beat(2, assignment())
    worker.do("task_stopped", "0_1", final_position=905)
    worker.later(60)
    worker.refuse("store-unavailable", 503)
    worker.later(4_000)
    worker.later(4_000)
    assert reported(worker.last())["0_1"]["final_position"] == 905
    worker.reply(2)
    worker.beat(2)
    assert reported(worker.last()) == {"0_1": {"role": "none", "position": 905}}


def test_an_answer_to_a_heartbeat_that_did_not_say_it_forgets_no_final_position() -> None:
    """What a late answer confirms is what its own heartbeat said."""
    worker = running({"0_1": 1})
    worker.later(3_000)
    early = worker.last()
    poll = worker.last(RequestKind.POLL)
    worker.do("on_answer", poll, 200, answer("run-1", 2, assignment()))
    worker.do("task_stopped", "0_1", final_position=905)
    worker.reply(1, to=early)
    worker.later(60)
    assert reported(worker.last())["0_1"]["final_position"] == 905


def test_positions_by_topic_go_both_ways() -> None:
    places = {"orders-a": 905, "orders-b": 7}
    worker = joined(1, assignment())
    active = {"task": "0_1", "fencing_token": 41, "restore_to": places}
    assert worker.beat(2, assignment() | {"active": [active]}) == [Start("0_1", Role.ACTIVE, 41, places)]
    worker.beat(3, assignment())
    worker.do("task_stopped", "0_1", final_position=places)
    worker.later(60)
    assert reported(worker.last()) == {"0_1": {"role": "none", "positions": places, "final_positions": places}}


def test_a_stateless_task_is_given_up_without_a_position() -> None:
    worker = running({"0_1": 1})
    worker.beat(2, assignment())
    worker.do("task_stopped", "0_1")
    worker.later(60)
    assert reported(worker.last()) == {"0_1": {"role": "none"}}
    worker.reply(2)
    worker.beat(2)
    assert reported(worker.last()) == {}


def test_a_demotion_in_place_is_confirmed_once_it_is_done() -> None:
    worker = running({"0_1": 1})
    assert worker.beat(2, assignment(standby=["0_1"])) == [Stop("0_1", Role.ACTIVE, becomes=Role.STANDBY)]
    worker.do("input_lag", "0_1", 4)
    worker.beat(2)
    assert reported(worker.last())["0_1"]["role"] == "active"
    worker.do("task_demoted", "0_1", final_position=905)
    worker.later(60)
    assert reported(worker.last()) == {"0_1": {"role": "standby", "position": 905, "final_position": 905}}
    worker.reply(2)
    worker.do("copy_progress", "0_1", Progress(lag=0))
    worker.beat(2)
    assert reported(worker.last()) == {"0_1": {"role": "standby", "lag": 0}}


def test_a_demoted_copy_that_is_no_longer_wanted_stops() -> None:
    """Assignments go on while the worker demotes: what comes of it is what the last one says."""
    worker = running({"0_1": 1, "0_2": 2, "0_3": 3})
    worker.beat(2, assignment(standby=["0_1", "0_2", "0_3"]))
    assert worker.beat(3, assignment({"0_3": 9}, warmup=["0_2"])) == []
    assert worker.do("task_demoted", "0_1") == [Stop("0_1", Role.STANDBY)]
    assert worker.do("task_demoted", "0_2") == [RoleChanged("0_2", Role.WARMUP)]
    assert worker.do("task_demoted", "0_3", final_position=5) == [Start("0_3", Role.ACTIVE, 9, in_place=True)]
    worker.later(60)
    assert "final_position" not in reported(worker.last())["0_3"]


def test_a_demotion_that_ends_in_a_stop_starts_the_copy_anew() -> None:
    """The worker cannot go on in place and says that it stopped; the copy starts from the disk."""
    worker = running({"0_1": 1})
    worker.beat(2, assignment(standby=["0_1"]))
    assert worker.do("task_stopped", "0_1", final_position=905) == [Start("0_1", Role.STANDBY)]
    worker.later(60)
    assert reported(worker.last()) == {"0_1": {"role": "standby", "position": 905, "final_position": 905}}


def test_a_failed_active_is_not_demoted_but_stopped() -> None:
    """What failed has nothing to commit."""
    worker = running({"0_1": 1})
    worker.do("task_failed", "0_1", "poison record")
    assert worker.beat(2, assignment(standby=["0_1"])) == [Stop("0_1", Role.ACTIVE, commit=False)]
    assert worker.do("task_stopped", "0_1") == [Start("0_1", Role.STANDBY)]


def test_a_task_taken_back_while_it_stops_starts_again_once_it_has_stopped() -> None:
    worker = running({"0_1": 1})
    worker.beat(2, assignment())
    assert worker.beat(3, assignment({"0_1": 2})) == []
    assert worker.do("task_stopped", "0_1", final_position=905) == [Start("0_1", Role.ACTIVE, 2)]
    worker.later(60)
    assert reported(worker.last())["0_1"] == {
        "role": "active",
        "state": "restoring",
        "fencing_token": 2,
        "position": 905,
    }


def test_a_newer_token_stops_the_task_before_it_starts_under_it() -> None:
    """A token that grew means that another member had the task: nothing of the old run is committed."""
    worker = running({"0_1": 1})
    assert worker.beat(2, assignment({"0_1": 3})) == [Stop("0_1", Role.ACTIVE, commit=False)]
    assert worker.do("task_stopped", "0_1") == [Start("0_1", Role.ACTIVE, 3)]


def test_a_copy_that_is_wanted_again_while_it_stops_starts_again_after_it() -> None:
    worker = joined(1, assignment(standby=["0_1"]))
    worker.do("copy_progress", "0_1", Progress(position=7, end_offset=9))
    assert worker.beat(2, assignment()) == [Stop("0_1", Role.STANDBY)]
    assert worker.beat(3, assignment({"0_1": 5})) == []
    assert worker.do("task_stopped", "0_1") == [Start("0_1", Role.ACTIVE, 5)]
    assert worker.machine.holdings["0_1"].progress == Progress(position=7, end_offset=9)


def test_a_stopped_copy_leaves_its_position_on_disk_but_no_bare_lag() -> None:
    """A lag alone means nothing once no copy tails, because the changelog grows on."""
    worker = joined(1, assignment(standby=["0_1", "0_2", "0_3"]))
    worker.do("copy_progress", "0_1", Progress(positions={"a": 1}, end_offsets={"a": 2}))
    worker.do("copy_progress", "0_2", Progress(lag=3))
    worker.beat(2, assignment())
    for task in ("0_1", "0_2", "0_3"):
        worker.do("task_stopped", task)
    worker.later(60)
    assert reported(worker.last()) == {"0_1": {"role": "none", "positions": {"a": 1}, "end_offsets": {"a": 2}}}


def test_a_task_that_stopped_unasked_waits_for_a_later_heartbeat() -> None:
    worker = running({"0_1": 1})
    assert worker.do("task_stopped", "0_1", final_position=4) == []
    assert worker.beat(1) == [Start("0_1", Role.ACTIVE, 1)]
    assert reported(worker.last())["0_1"] == {"role": "none", "position": 4, "final_position": 4}


def test_where_an_assigned_task_stopped_is_said_until_its_revocation_is_heard() -> None:
    worker = running({"0_1": 1})
    worker.do("task_stopped", "0_1", final_position=4)
    worker.beat(2, assignment())
    worker.later(60)
    assert worker.last().body == {
        "seq": worker.machine.seq,
        "member_epoch": 2,
        "tasks": {"0_1": {"role": "none", "position": 4, "final_position": 4}},
    }
    worker.reply(2)
    worker.beat(2)
    assert reported(worker.last())["0_1"] == {"role": "none", "position": 4}


def test_a_fenced_producer_stops_its_task_and_asks() -> None:
    worker = running({"0_1": 1})
    sent = worker.count()
    assert worker.do("producer_fenced", "0_1") == [Stop("0_1", Role.ACTIVE, commit=False)]
    worker.later(60)
    assert worker.count() == sent + 1
    assert worker.do("task_stopped", "0_1") == []
    assert worker.reply(1) == [Start("0_1", Role.ACTIVE, 1)]


def test_a_fenced_producer_starts_again_as_soon_as_it_has_stopped_and_was_granted_anew() -> None:
    """The answer may come before the stop is done; then the stop is all that is waited for."""
    worker = running({"0_1": 1})
    worker.do("producer_fenced", "0_1")
    worker.later(60)
    assert worker.reply(1) == []
    assert worker.do("task_stopped", "0_1") == [Start("0_1", Role.ACTIVE, 1)]


def test_a_fenced_producer_of_a_revoked_task_does_not_start_again() -> None:
    """The member with the newest token has the task."""
    worker = running({"0_1": 1})
    worker.do("producer_fenced", "0_1")
    worker.do("task_stopped", "0_1")
    worker.later(60)
    assert worker.reply(2, assignment()) == []
    worker.later(60)
    assert reported(worker.last()) == {"0_1": {"role": "none"}}


def test_a_fenced_producer_while_the_task_commits_ends_the_commit() -> None:
    worker = running({"0_1": 1})
    worker.beat(2, assignment())
    assert worker.do("producer_fenced", "0_1") == [Stop("0_1", Role.ACTIVE, commit=False)]
    assert worker.do("producer_fenced", "0_1") == []
    assert worker.do("producer_fenced", "0_9") == []


def test_an_active_that_lost_its_state_says_so_until_heard_and_is_revoked_like_any_other() -> None:
    worker = running({"0_1": 1})
    worker.do("state_lost", "0_1")
    worker.later(60)
    assert reported(worker.last())["0_1"] == {"role": "active", "state": "restoring", "fencing_token": 1, "lost": True}
    done = worker.reply(2, assignment(standby=["0_1"]))
    assert done == [Stop("0_1", Role.ACTIVE, becomes=Role.STANDBY)]
    worker.do("state_lost", "0_1")
    worker.beat(2)
    assert reported(worker.last())["0_1"]["lost"] is True


def test_a_lost_active_stops_without_a_commit_if_it_is_revoked_before_it_was_heard() -> None:
    """There is nothing behind a commit whose state is gone."""
    worker = running({"0_1": 1})
    worker.do("state_lost", "0_1")
    poll = worker.last(RequestKind.POLL)
    done = worker.do("on_answer", poll, 200, answer("run-1", 2, assignment()))
    assert done == [Stop("0_1", Role.ACTIVE, commit=False)]


def test_a_copy_that_lost_its_state_says_so_until_heard() -> None:
    worker = joined(1, assignment(standby=["0_1"]))
    worker.do("copy_progress", "0_1", Progress(position=7, end_offset=9))
    worker.do("state_lost", "0_1")
    worker.later(60)
    assert reported(worker.last())["0_1"] == {"role": "standby", "lost": True}
    worker.do("copy_progress", "0_1", Progress(position=0, end_offset=9))
    worker.later(4_000)
    assert reported(worker.last())["0_1"] == {"role": "standby", "position": 0, "end_offset": 9, "lost": True}
    worker.reply(1)
    worker.beat(1)
    assert reported(worker.last())["0_1"] == {"role": "standby", "position": 0, "end_offset": 9}


def test_a_loss_that_was_not_heard_is_said_of_the_task_in_its_next_role() -> None:
    """A copy is promoted, and an active demoted, before the loss was heard."""
    worker = running({"0_1": 1}, standby=["0_2"])
    worker.later(3_000)
    worker.do("state_lost", "0_2")
    assert worker.reply(2, assignment({"0_1": 1, "0_2": 2})) == [Start("0_2", Role.ACTIVE, 2, in_place=True)]
    worker.later(60)
    active = {"role": "active", "state": "restoring", "fencing_token": 2}
    assert reported(worker.last())["0_2"] == active | {"lost": True}
    worker.reply(3, assignment({"0_2": 2}, standby=["0_1"]))
    worker.do("state_lost", "0_1")
    worker.do("task_demoted", "0_1")
    worker.later(60)
    assert reported(worker.last()) == {"0_1": {"role": "standby", "lost": True}, "0_2": active}


def test_news_of_a_task_that_is_not_here_is_no_news() -> None:
    worker = joined(1, assignment(standby=["0_1"]))
    before = worker.count()
    for name in ("task_running", "task_restoring", "task_stopped", "task_demoted", "state_lost"):
        assert worker.do(name, "0_9") == []
    assert worker.do("task_failed", "0_9", "no") == []
    assert worker.do("task_running", "0_1") == []
    assert worker.do("task_demoted", "0_1") == []
    assert worker.do("input_lag", "0_1", 3) == []
    assert worker.do("copy_progress", "0_9", Progress(lag=1)) == []
    worker.later(60)
    assert worker.count() == before
    assert worker.machine.holdings["0_1"].role is Role.STANDBY


def test_the_stages_of_an_active_are_reported() -> None:
    worker = joined(1, assignment({"0_1": 1}))
    worker.do("task_restoring", "0_1", progress=Progress(position=5, end_offset=70))
    worker.beat(1)
    active = {"role": "active", "fencing_token": 1}
    assert reported(worker.last())["0_1"] == active | {"state": "restoring", "position": 5, "end_offset": 70}
    worker.do("copy_progress", "0_1", Progress(position=60, end_offset=70))
    worker.beat(1)
    assert reported(worker.last())["0_1"]["position"] == 60
    worker.do("task_running", "0_1")
    worker.later(60)
    assert reported(worker.last())["0_1"] == active | {"state": "running"}
    worker.reply(1)
    worker.do("input_lag", "0_1", 40)
    worker.beat(1)
    assert reported(worker.last())["0_1"] == active | {"state": "running", "input_lag": 40}
    worker.do("task_failed", "0_1", "poison record")
    worker.later(60)
    failed = {"state": "failed", "detail": "poison record", "input_lag": 40}
    assert reported(worker.last())["0_1"] == active | failed
    assert worker.machine.holdings["0_1"].stage is Stage.FAILED


def test_a_worker_that_does_not_listen_opens_no_poll() -> None:
    worker = joined(1, assignment(), MemberSettings(listen=False))
    assert worker.count(RequestKind.POLL) == 0


def test_a_task_that_was_taken_away_starts_again_only_under_a_newer_token() -> None:
    """An older token is a word of the past: the store lost what came after it."""
    worker = running({"0_1": 4})
    assert worker.beat(2, assignment()) == [Stop("0_1", Role.ACTIVE)]
    worker.do("task_stopped", "0_1", final_position=905)
    assert worker.beat(3, assignment({"0_1": 4})) == []
    assert "0_1" not in worker.machine.holdings
    assert worker.beat(4, assignment({"0_1": 5})) == [Start("0_1", Role.ACTIVE, 5)]
