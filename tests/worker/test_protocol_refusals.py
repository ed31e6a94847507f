"""The table of errors: what each refusal makes the member do."""

import pytest
from tests.worker.scripted import Scripted, assignment, joined, problem

from batonpass.worker.protocol import (
    Joined,
    MemberSettings,
    Phase,
    Problem,
    ProblemSeen,
    Progress,
    Rejoining,
    RequestKind,
    Role,
    Start,
    StatusChanged,
    Stop,
    StopForGood,
)

JOIN = RequestKind.JOIN
POLL = RequestKind.POLL


def busy(settings: MemberSettings | None = None) -> Scripted:
    """Return a worker with a running active and a standby, and a heartbeat under way."""
    worker = joined(1, assignment({"0_1": 1}, standby=["0_2"]), settings)
    worker.do("task_running", "0_1")
    worker.do("copy_progress", "0_2", Progress(position=4, end_offset=9))
    worker.later(60)
    return worker


@pytest.mark.parametrize(
    ("kind", "status"), [("unknown-member", 404), ("gone", 409), ("fenced", 409), ("unknown-group", 404)]
)
@pytest.mark.parametrize("channel", [RequestKind.HEARTBEAT, POLL])
def test_a_member_that_is_none_stops_without_a_commit_and_then_joins_anew(
    kind: str, status: int, channel: RequestKind
) -> None:
    """The join vouches for it that every active has stopped; copies go on."""
    worker = busy()
    done = worker.refuse(kind, status, to=worker.last(channel))
    assert done[0] == Stop("0_1", Role.ACTIVE, commit=False)
    assert isinstance(done[1], Rejoining)
    assert (done[1].old_member_id, done[1].cause.type) == ("run-1", kind)
    assert len(done) == 2
    sent = len(worker.sent)
    worker.later(100_000)
    assert len(worker.sent) == sent
    assert worker.machine.phase is Phase.FENCED
    assert worker.do("task_stopped", "0_1", final_position=77) == []
    join = worker.last(JOIN)
    assert join.member_id == "run-2"
    assert join.body is not None
    assert join.body["replaces"] == "run-1"
    assert join.body["tasks"] == {
        "0_1": {"role": "none", "position": 77},
        "0_2": {"role": "none", "position": 4, "end_offset": 9},
    }
    done = worker.reply(1, assignment({"0_1": 2}, standby=["0_2"]), to=join)
    assert done == [Joined("run-2"), Start("0_1", Role.ACTIVE, 2)]


def test_a_member_without_actives_joins_anew_at_once() -> None:
    """There is nothing to wait for, and copies that the new run may keep are not interrupted."""
    worker = joined(1, assignment(standby=["0_2", "0_3"]))
    worker.later(3_000)
    [rejoining] = worker.refuse("fenced", 409)
    assert isinstance(rejoining, Rejoining)
    assert worker.last(JOIN).member_id == "run-2"
    assert worker.reply(1, assignment(standby=["0_2"]), to=worker.last(JOIN)) == [
        Joined("run-2"),
        Stop("0_3", Role.STANDBY),
    ]


def test_what_was_stopping_with_a_commit_stops_without_one_when_fenced() -> None:
    """The task may be another member's already."""
    worker = busy()
    assert worker.reply(2, assignment()) == [Stop("0_1", Role.ACTIVE), Stop("0_2", Role.STANDBY)]
    done = worker.refuse("fenced", 409, to=worker.last(POLL))
    assert done[0] == Stop("0_1", Role.ACTIVE, commit=False)


def test_each_run_replaces_the_one_before() -> None:
    """A run that was refused before it was heard once makes the next one take its time."""
    worker = busy()
    worker.refuse("fenced", 409)
    worker.do("task_stopped", "0_1")
    fenced_ms = worker.now_ms
    for run in range(2, 8):
        join = worker.last(JOIN)
        assert join.member_id == f"run-{run}"
        assert join.body is not None
        assert join.body["replaces"] == f"run-{run - 1}"
        worker.refuse("gone", 409, to=join)
        worker.later(5_000)
    worker.until(fenced_ms + 60_000)
    assert worker.count(JOIN) < 20


def test_a_takeover_is_claimed_by_the_first_run_alone() -> None:
    """A fenced member cannot know which process has the instance id by now."""
    worker = Scripted(MemberSettings(instance_id="orders-0", takeover=True))
    worker.start()
    first = worker.last(JOIN)
    assert first.body is not None
    assert first.body["takeover"] is True
    worker.reply(1, assignment(), to=first)
    worker.beat(1)
    worker.later(3_000)
    worker.refuse("fenced", 409)
    assert worker.last(JOIN).body is not None
    assert "takeover" not in worker.last(JOIN).body  # type: ignore[operator]


@pytest.mark.parametrize("channel", [RequestKind.HEARTBEAT, POLL])
def test_a_newer_run_of_the_same_instance_ends_this_one_for_good(channel: RequestKind) -> None:
    worker = busy()
    assert worker.refuse("fenced-instance-id", 409, to=worker.last(channel)) == [
        Stop("0_1", Role.ACTIVE, commit=False),
        Stop("0_2", Role.STANDBY),
        StopForGood("fenced-instance-id"),
    ]
    sent = len(worker.sent)
    assert worker.machine.wake_at_ms is None
    worker.do("task_stopped", "0_1")
    worker.do("leave")
    worker.later(100_000)
    assert len(worker.sent) == sent
    assert worker.machine.phase is Phase.STOPPED


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("invalid-request", 422),
        ("unauthenticated", 401),
        ("forbidden", 403),
        ("limit-exceeded", 413),
        ("limit-exceeded", 429),
        ("store-unavailable", 503),
        ("coordinator-loading", 503),
        ("method-not-allowed", 405),
    ],
)
def test_what_somebody_may_have_to_mend_is_shown_and_tried_again(kind: str, status: int) -> None:
    worker = busy()
    beat = worker.last()
    errors = [{"path": "tasks.0_1", "reason": "no"}]
    [seen] = worker.refuse(kind, status, action="retry", errors=errors, retry_after_ms=250)
    assert isinstance(seen, ProblemSeen)
    assert seen.kind is RequestKind.HEARTBEAT
    assert seen.problem == Problem(
        type=kind,
        status=status,
        title=kind,
        detail=f"this is {kind}",
        action="retry",
        retry_after_ms=250,
        errors=(("tasks.0_1", "no"),),
    )
    worker.later(249)
    assert worker.last() is beat
    worker.later(1)
    assert worker.last() is not beat
    assert (worker.last().seq == beat.seq) is (status >= 500), "what was judged is not repeated, but sent anew"
    assert worker.machine.phase is Phase.JOINED


@pytest.mark.parametrize("wait_ms", [0, 1])
@pytest.mark.parametrize(("kind", "status"), [("store-unavailable", 503), ("limit-exceeded", 429), ("", 503)])
@pytest.mark.parametrize("channel", [JOIN, RequestKind.HEARTBEAT, POLL, RequestKind.DRAIN])
def test_who_is_told_to_come_back_at_once_comes_back_ever_later(
    channel: RequestKind, kind: str, status: int, wait_ms: int
) -> None:
    """Proxies say `Retry-After: 0`, and all members would ask thousands of times a second."""
    worker = Scripted() if channel is JOIN else busy()
    worker.start()
    worker.do("drain")
    ends_at_ms, refused = worker.now_ms + 3_000, 0
    while worker.now_ms < ends_at_ms:
        refused += 1
        worker.refuse(kind, status, to=worker.last(channel), retry_after_ms=wait_ms)
        sent = worker.count(channel)
        while worker.count(channel) == sent and worker.now_ms < ends_at_ms:
            worker.later(1)
    assert 3 <= refused <= 8


def test_a_limit_is_waited_out_in_full_and_an_outage_is_not() -> None:
    """Before the time that a limit names a try is refused again; waiting long for a store only spends the lease."""
    worker = busy()
    worker.refuse("limit-exceeded", 429, retry_after_ms=20_000)
    limited = worker.last()
    worker.later(19_999)
    assert worker.last() is limited
    worker.later(1)
    assert worker.last() is not limited
    worker.refuse("store-unavailable", 503, retry_after_ms=20_000)
    refused = worker.last()
    worker.later(3_000)
    assert worker.last() is not refused


def test_no_limit_is_waited_out_beyond_the_lease() -> None:
    """A proxy that knows no leases may have named the time."""
    worker = busy()
    lease_end_ms = worker.machine.lease_end_ms
    assert lease_end_ms is not None
    tries = worker.count(RequestKind.HEARTBEAT)
    worker.refuse("limit-exceeded", 429, retry_after_ms=3_600_000)
    for _ in range(2):
        left_ms = lease_end_ms - worker.now_ms
        worker.later(left_ms // 2)
        tries += 1
        assert worker.count(RequestKind.HEARTBEAT) == tries
        worker.refuse("limit-exceeded", 429, retry_after_ms=3_600_000)
    assert worker.now_ms < lease_end_ms


def test_a_join_is_tried_again_within_a_minute_whatever_it_is_told() -> None:
    """A process without a lease has nothing to lose by asking again."""
    worker = Scripted()
    worker.start()
    worker.refuse("instance-id-in-use", 409, to=worker.last(JOIN), retry_after_ms=86_400_000)
    worker.later(59_999)
    assert worker.count(JOIN) == 1
    worker.later(1)
    assert worker.count(JOIN) == 2


@pytest.mark.parametrize(
    ("action", "expected"), [("stop-and-rejoin", Phase.FENCED), ("stop", Phase.STOPPED), ("retry", Phase.JOINED)]
)
def test_a_type_that_is_not_known_yet_goes_by_its_action(action: str, expected: Phase) -> None:
    """So that an older worker does the right thing with a newer coordinator's refusals."""
    worker = busy()
    worker.refuse("something-new", 409, action=action)
    assert worker.machine.phase is expected


@pytest.mark.parametrize("body", [None, {}, {"type": 3, "errors": "no", "retry_after_ms": "soon", "answer": 1}])
def test_a_refusal_of_any_shape_is_survived(body: dict[str, object] | None) -> None:
    """A proxy may answer with anything."""
    worker = busy()
    beat = worker.last()
    done = worker.do("on_answer", beat, 502, body)
    assert len(done) == 1
    assert isinstance(done[0], ProblemSeen)
    worker.later(300)
    assert worker.last().attempt == 2


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"member_id": "run-1"},
        {"member_epoch": -1},
        {"member_epoch": True},
        {"session_timeout_ms": 0},
        {"assignment": []},
        {"assignment": {"active": {}}},
        {"assignment": {"active": ["0_1"]}},
        {"assignment": {"active": [{"task": "0_1"}]}},
        {"assignment": {"active": [{"task": "0_1", "fencing_token": 1, "restore_to": -1}]}},
        {"assignment": {"standby": [3]}},
        {"assignment": {"standby": ["nonsense"]}},
        {"assignment": {"standby": ["0_1"], "warmup": ["0_1"]}},
        {"status": ["drained"]},
        {"status": [{"detail": "x"}]},
    ],
)
def test_a_malformed_answer_is_no_answer(body: dict[str, object] | None) -> None:
    worker = busy()
    end_ms = worker.machine.lease_end_ms
    beat = worker.last()
    well_formed = {
        "member_id": "run-1",
        "member_epoch": 2,
        "heartbeat_interval_ms": 3_000,
        "session_timeout_ms": 45_000,
        "assignment": {"active": [], "standby": [], "warmup": []},
    }
    if body is not None and len(body) == 1:
        body = well_formed | body if "member_id" not in body else body
    [seen] = worker.do("on_answer", beat, 200, body)
    assert isinstance(seen, ProblemSeen)
    assert seen.problem.type == "malformed-answer"
    assert seen.problem.detail
    assert worker.machine.lease_end_ms == end_ms
    assert set(worker.machine.holdings) == {"0_1", "0_2"}
    worker.later(300)
    assert worker.last().attempt == 2


def test_fields_that_are_not_known_are_ignored() -> None:
    """A newer coordinator may say more than this worker understands, and leave out what has a default."""
    worker = busy()
    body = {
        "member_id": "run-1",
        "member_epoch": 1,
        "heartbeat_interval_ms": 3_000,
        "session_timeout_ms": 45_000,
        "moon_phase": "full",
        "status": [{"code": "new-thing", "detail": None}],
    }
    [shown] = worker.do("on_answer", worker.last(), 200, body)
    assert isinstance(shown, StatusChanged)


def test_refusals_of_the_past_disturb_nothing() -> None:
    """A 503 to a heartbeat that was given up does not delay the one under way, and is not shown."""
    worker = busy()
    old = worker.last()
    worker.later(4_000)
    waiting = worker.last()
    assert worker.refuse("store-unavailable", 503, to=old) == []
    worker.reply(1)
    assert worker.last() is waiting
    worker.do("on_answer", old, 500, problem("", 500))
    worker.later(3_000)
    assert worker.last() is not waiting
