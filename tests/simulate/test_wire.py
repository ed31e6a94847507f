"""What the simulator puts between the worker's machine and the core: the service's own codec, there and back."""

import json

import pytest

from batonpass.core.state.errors import InvalidRequest, StaleMemberEpoch
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, DrainReversal, Heartbeat, Join, Leave
from batonpass.core.state.model import Grant, Role
from batonpass.core.state.replies import Answer, Done, DrainProgress
from batonpass.core.state.soft import TaskReport
from batonpass.simulate.wire import UnknownToCodecError, to_answer, to_input, to_wait
from batonpass.worker.protocol import Request, RequestKind

M1, TASK = MemberId("m1"), TaskId("0_0")
ANSWER = Answer(
    member_id=M1,
    seq=3,
    member_epoch=2,
    generation=1,
    heartbeat_interval_ms=3_000,
    session_timeout_ms=45_000,
    acceptable_recovery_lag=100,
    acceptable_catchup_ms=None,
    report=None,
    assignment={TASK: Grant(Role.ACTIVE, 2, 0, 7, (("log", 905),)), TaskId("0_1"): Grant(Role.STANDBY, 2, 0)},
    status=(),
)


def request(kind: RequestKind, body: dict[str, object] | None = None, **query: str | int) -> Request:
    """Return a request of m1."""
    return Request(kind=kind, member_id=M1, first_sent_ms=0, sent_ms=0, timeout_ms=1_000, body=body, query=query)


def test_every_request_is_read_by_the_codec() -> None:
    assert to_input(request(RequestKind.JOIN, {"capacity": 2.0})) == Join(M1, capacity=2.0)
    body = {"seq": 4, "member_epoch": 2, "tasks": {"0_0": {"role": "standby", "position": 5}}}
    report = TaskReport("standby", positions=(("", 5),))
    assert to_input(request(RequestKind.HEARTBEAT, body)) == Heartbeat(M1, 4, 2, {TASK: report})
    assert to_input(request(RequestKind.LEAVE, mode="restart")) == Leave(M1, restart=True)
    assert to_input(request(RequestKind.DRAIN, deadline_ms=9)) == DrainRequest(M1, 9)
    assert to_input(request(RequestKind.DRAIN)) == DrainRequest(M1, None)
    assert to_input(request(RequestKind.UNDRAIN)) == DrainReversal(M1)
    poll = request(RequestKind.POLL, after=2, wait_ms=30_000)
    assert to_input(poll) is None
    assert to_wait(poll) == (2, 30_000)


def test_what_the_codec_does_not_know_breaks_the_world() -> None:
    """One of the two, machine or codec, is at fault."""
    with pytest.raises(UnknownToCodecError, match="mood"):
        to_input(request(RequestKind.HEARTBEAT, {"seq": 1, "member_epoch": 1, "mood": "good"}))
    with pytest.raises(InvalidRequest):
        to_input(request(RequestKind.HEARTBEAT, {"seq": -1, "member_epoch": 1}))


def test_replies_arrive_as_json() -> None:
    status, body = to_answer(ANSWER)
    assert body is not None
    active = [{"task": "0_0", "fencing_token": 7, "restore_to": {"log": 905}}]
    assert (status, body["assignment"]) == (200, {"active": active, "standby": ["0_1"], "warmup": []})
    assert json.loads(json.dumps(body)) == body
    assert to_answer(DrainProgress((TASK,), ((TASK, "paused"),))) == (
        202,
        {"drained": False, "remaining": ["0_0"], "blocked": [{"task": "0_0", "reason": "paused"}]},
    )
    status, body = to_answer(StaleMemberEpoch("behind", answer=ANSWER))
    assert body is not None
    assert (status, body["type"], body["answer"]["member_epoch"]) == (409, "stale-member-epoch", 2)
    assert to_answer(Done()) == (204, None)
