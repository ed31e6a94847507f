"""Joining: what a run says of itself, lost replies, ids, and what happens when the group will not have it."""

from typing import Any

import pytest
from tests.worker.scripted import Scripted, answer, assignment, joined, reported

from batonpass.worker.protocol import (
    Joined,
    LeaveMode,
    MemberSettings,
    OnLeaseLost,
    Phase,
    ProblemSeen,
    Progress,
    RequestKind,
    Role,
    Start,
    StopForGood,
)

JOIN = RequestKind.JOIN


def test_a_join_says_what_the_worker_is_and_has() -> None:
    settings = MemberSettings(
        instance_id="orders-0",
        takeover=True,
        capacity=4,
        max_tasks=40,
        client_tags={"zone": "a"},
        topology_epoch=3,
        on_lease_lost=OnLeaseLost.CONTINUE,
        endpoint="http://10.0.0.7:9000",
    )
    worker = Scripted(settings, on_disk={"0_3": Progress(position=812, end_offset=900)}, replaces="old")
    assert worker.start() == []
    assert worker.last(JOIN).body == {
        "instance_id": "orders-0",
        "takeover": True,
        "replaces": "old",
        "capacity": 4,
        "max_tasks": 40,
        "client_tags": {"zone": "a"},
        "topology_epoch": 3,
        "on_lease_lost": "continue",
        "endpoint": "http://10.0.0.7:9000",
        "tasks": {"0_3": {"role": "none", "position": 812, "end_offset": 900}},
    }


def test_a_join_leaves_out_what_is_not_set() -> None:
    worker = Scripted()
    worker.start()
    assert worker.last(JOIN).body == {"capacity": 1, "on_lease_lost": "stop"}


def test_only_the_first_start_joins() -> None:
    worker = Scripted()
    worker.start()
    worker.start()
    assert worker.count(JOIN) == 1
    assert worker.machine.phase is Phase.JOINING
    assert worker.machine.member_id == "run-1"


def test_the_answer_to_a_join_starts_what_it_grants() -> None:
    worker = Scripted()
    worker.start()
    assigned = assignment({"0_10": 7, "0_9": 8}, standby=["1_0"], warmup=["0_3"])
    done = worker.reply(1, assigned, to=worker.last(JOIN))
    assert done == [
        Joined("run-1"),
        Start("0_3", Role.WARMUP),
        Start("0_9", Role.ACTIVE, 8),
        Start("0_10", Role.ACTIVE, 7),
        Start("1_0", Role.STANDBY),
    ]
    worker.later(60)
    assert worker.last().body == {
        "seq": 1,
        "member_epoch": 1,
        "tasks": {
            "0_3": {"role": "warmup"},
            "0_9": {"role": "active", "state": "restoring", "fencing_token": 8},
            "0_10": {"role": "active", "state": "restoring", "fencing_token": 7},
            "1_0": {"role": "standby"},
        },
    }


def test_a_join_that_gets_no_answer_is_repeated_with_its_id() -> None:
    worker = Scripted()
    worker.start()
    first = worker.last(JOIN)
    worker.until(4_000)
    again = worker.last(JOIN)
    assert (again.member_id, again.body, again.attempt) == (first.member_id, first.body, 2)
    assert again.sent_ms > again.first_sent_ms == first.first_sent_ms == 0
    worker.reply(1, assignment(), to=again)
    assert worker.machine.lease_end_ms == 45_000


def test_a_grant_in_an_answer_that_came_after_the_lease_starts_nothing() -> None:
    """A join that was first sent a session timeout ago brings no lease: what it grants waits for a heartbeat."""
    worker = Scripted()
    worker.start()
    worker.until(50_000)
    assert worker.reply(1, assignment({"0_1": 4}), to=worker.last(JOIN)) == [Joined("run-1")]
    assert worker.beat(1) == [Start("0_1", Role.ACTIVE, 4)]


def test_the_late_answer_to_the_first_attempt_joins() -> None:
    worker = Scripted()
    worker.start()
    first = worker.last(JOIN)
    worker.until(3_100)
    assert worker.reply(1, assignment(), to=first) == [Joined("run-1")]
    worker.until(10_000)
    assert worker.count(JOIN) <= 2


def test_an_instance_id_in_use_is_asked_for_again_when_the_coordinator_says() -> None:
    worker = Scripted(MemberSettings(instance_id="orders-0"))
    worker.start()
    [seen] = worker.refuse("instance-id-in-use", 409, to=worker.last(JOIN), retry_after_ms=30_000)
    assert isinstance(seen, ProblemSeen)
    assert seen.problem.type == "instance-id-in-use"
    worker.until(29_999)
    assert worker.count(JOIN) == 1
    worker.until(30_000)
    assert worker.count(JOIN) == 2
    # It was answered, so this one is no retry, and a lease may count from it.
    assert (worker.last(JOIN).first_sent_ms, worker.last(JOIN).member_id) == (30_000, "run-1")


def test_a_problem_is_shown_once() -> None:
    worker = Scripted()
    worker.start()
    assert len(worker.refuse("unknown-group", 404, to=worker.last(JOIN))) == 1
    worker.until(2_000)
    assert worker.refuse("unknown-group", 404, to=worker.last(JOIN)) == []
    assert worker.machine.phase is Phase.JOINING
    assert len(worker.refuse("unauthenticated", 401, to=worker.last(JOIN))) == 0  # not under way any more
    worker.until(10_000)
    assert len(worker.refuse("unauthenticated", 401, to=worker.last(JOIN))) == 1


def test_a_join_that_is_refused_as_gone_takes_a_new_id_that_replaces_the_refused_one() -> None:
    worker = Scripted(MemberSettings(takeover=True, instance_id="orders-0"))
    worker.start()
    worker.refuse("gone", 409, to=worker.last(JOIN))
    worker.until(5_000)
    again = worker.last(JOIN)
    assert again.member_id == "run-2"
    assert again.body is not None
    assert again.body["replaces"] == "run-1"
    assert "takeover" not in again.body


@pytest.mark.parametrize(("own", "told", "named"), [(None, 3, 3), (2, 3, 2), (None, None, None)])
def test_who_joins_anew_is_of_the_topology_that_it_began_with(
    own: int | None, told: int | None, named: int | None
) -> None:
    """By default a join counts as of the newest, which the same program need not know any more."""
    fields: dict[str, Any] = {} if told is None else {"topology_epoch": told}
    worker = joined(settings=MemberSettings(topology_epoch=own), **fields)
    first = worker.last(JOIN).body
    for run in (2, 3):
        worker.refuse("gone", 409)
        again = worker.last(JOIN)
        assert (again.member_id, (again.body or {}).get("topology_epoch")) == (f"run-{run}", named)
        worker.reply(1, assignment(), to=again, **(fields and {"topology_epoch": 9}))
        worker.beat(1)
    assert (first or {}).get("topology_epoch") == own


def test_a_join_whose_answer_holds_no_assignment_counts_as_unanswered() -> None:
    worker = Scripted()
    worker.start()
    [seen] = worker.reply(1, None, to=worker.last(JOIN))
    assert isinstance(seen, ProblemSeen)
    assert seen.problem.type == "malformed-answer"
    assert worker.machine.phase is Phase.JOINING
    worker.until(1_000)
    assert worker.count(JOIN) == 2


def test_a_doubled_join_answer_changes_nothing() -> None:
    worker = joined(1, assignment({"0_1": 4}))
    before = worker.machine.lease_end_ms
    assert worker.reply(1, assignment({"0_1": 4}), to=worker.last(JOIN)) == []
    assert worker.machine.lease_end_ms == before
    assert worker.refuse("instance-id-in-use", 409, to=worker.last(JOIN)) == []
    assert worker.refuse("unknown-group", 404, to=worker.last(JOIN)) == []
    assert worker.machine.phase is Phase.JOINED


def test_an_answer_for_another_member_is_no_answer() -> None:
    worker = joined(1, assignment({"0_1": 4}))
    worker.later(3_000)
    worker.do("on_answer", worker.last(), 200, answer("somebody", 9, assignment()))
    assert worker.machine.member_epoch == 1
    assert list(worker.machine.holdings) == ["0_1"]


def test_a_worker_that_leaves_while_it_joins_says_so() -> None:
    """A join whose reply is still out may have been heard."""
    worker = Scripted()
    worker.start()
    assert worker.do("leave") == []
    assert worker.last(RequestKind.LEAVE).query == {"mode": "leave"}
    assert worker.reply(1, assignment({"0_1": 4}), to=worker.last(JOIN)) == []
    done = worker.do("on_answer", worker.last(RequestKind.LEAVE), 204, None)
    assert done == [StopForGood("left")]


def test_a_worker_that_never_joined_just_ends() -> None:
    worker = Scripted(MemberSettings(instance_id="orders-0"))
    assert worker.do("leave", mode=LeaveMode.RESTART) == [StopForGood("left")]
    assert worker.start() == []
    assert worker.sent == []


def test_state_on_disk_stands_in_every_full_report_until_it_is_used_or_gone() -> None:
    disk = {"0_3": Progress(position=812, end_offset=900), "0_4": Progress(position=5), "0_5": Progress(position=6)}
    worker = Scripted(on_disk=disk)
    worker.start()
    worker.reply(1, assignment(warmup=["0_3"]), to=worker.last(JOIN))
    worker.do("state_lost", "0_5")
    worker.beat(1)
    assert reported(worker.last()) == {
        "0_3": {"role": "warmup", "position": 812, "end_offset": 900},
        "0_4": {"role": "none", "position": 5},
    }
