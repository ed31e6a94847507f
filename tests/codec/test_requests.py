"""Whatever arrives is either understood or refused by path and reason; nothing else can happen."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batonpass.codec.answers import answer_body, assignment_body, positions_body, problem_body, rfc3339
from batonpass.codec.bodies import SUBTOPOLOGIES_MAX, HeartbeatBody, JoinBody, ReportBody
from batonpass.codec.requests import (
    checked_name,
    etag,
    read_declaration,
    read_heartbeat,
    read_if_match,
    read_join,
    read_pause,
    read_what_if,
)
from batonpass.codec.shape import FAULTS_MAX, UNKNOWN_MAX, WALKED_FAULTS_MAX
from batonpass.core.state.errors import (
    InstanceIdInUse,
    InvalidRequest,
    InvalidTopology,
    ProtocolError,
    StaleMemberEpoch,
)
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import Heartbeat, Join, PauseRequest
from batonpass.core.state.model import ActiveState, Grant, PauseScope, Role
from batonpass.core.state.replies import Answer
from batonpass.core.state.soft import TaskReport

M1 = MemberId("m1")
KEYS = st.sampled_from(
    [
        "seq",
        "member_epoch",
        "tasks",
        "role",
        "state",
        "lag",
        "position",
        "positions",
        "lost",
        "client_tags",
        "capacity",
        "replaces",
        "topology",
        "config",
        "subtopologies",
        "id",
        "partitions",
        "weight",
        "task_weights",
        "scope",
        "expires_at",
        "join",
        "count",
        "leave",
        "0_0",
        "x",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=5) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)
READERS = {
    "join": lambda body: read_join(M1, body, tasks_max=5),
    "heartbeat": lambda body: read_heartbeat(M1, body, tasks_max=5),
    "declaration": lambda body: read_declaration(GroupId("g"), body, if_match=None),
    "pause": read_pause,
    "what-if": read_what_if,
}


@pytest.mark.parametrize("reader", sorted(READERS))
@settings(deadline=None)
@given(body=JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40))
@example(b'{"seq": 1, "seq": []}')
@example(b'{"a": ' * 5_000)
@example(b'{"expires_at": "9999-12-31T23:59:59Z"}')
def test_any_body_is_understood_or_refused_with_its_faults(reader: str, body: bytes) -> None:
    refused = error_of(reader, body)
    if refused is not None:
        assert refused.status in {413, 422}
        assert refused.status == 413 or refused.errors
        assert all(path and reason for path, reason in refused.errors)


def error_of(reader: str, body: bytes) -> ProtocolError | None:
    """Return how a body is refused; None when it is understood."""
    try:
        READERS[reader](body)
    except ProtocolError as error:
        return error
    return None


def test_a_heartbeat_means_what_it_says() -> None:
    body = {
        "seq": 118,
        "member_epoch": 12,
        "tasks": {
            "0_1": {
                "role": "active",
                "state": "running",
                "input_lag": 40,
                "fencing_token": 41,
                "disk_bytes": 70,
                "load": 0.25,
            },
            "0_2": {"role": "active", "state": "failed", "detail": "disk full", "position": 5, "end_offset": 70},
            "0_3": {"role": "warmup", "positions": {"b": 2, "a": 1}, "end_offsets": {"a": 9, "b": 8}},
            "0_4": {"role": "standby", "lag": 0, "lost": True},
            "0_7": {"role": "none", "final_position": 905, "position": 905},
        },
    }
    expected = {
        "0_1": TaskReport("active", ActiveState.RUNNING, input_lag=40, token=41, disk_bytes=70, load=0.25),
        "0_2": TaskReport(
            "active", ActiveState.FAILED, positions=(("", 5),), end_offsets=(("", 70),), detail="disk full"
        ),
        "0_3": TaskReport("warmup", positions=(("a", 1), ("b", 2)), end_offsets=(("a", 9), ("b", 8))),
        "0_4": TaskReport("standby", lag=0, lost=True),
        "0_7": TaskReport("none", positions=(("", 905),), final_position=(("", 905),)),
    }
    read = read_heartbeat(M1, json.dumps(body).encode(), tasks_max=5)
    assert read == Heartbeat(M1, 118, 12, {TaskId(task): report for task, report in expected.items()})


OF_A_REPORT = {
    "state": "running",
    "lag": 1,
    "position": 1,
    "end_offset": 1,
    "positions": {"a": 1},
    "end_offsets": {"a": 1},
    "lost": True,
    "input_lag": 1,
    "detail": "x",
    "final_position": 1,
    "final_positions": {"a": 1},
    "fencing_token": 1,
    "disk_bytes": 1,
    "load": 0,
}
OF_A_JOIN = {
    "instance_id": "i",
    "takeover": True,
    "replaces": "m0",
    "capacity": 2,
    "max_tasks": 1,
    "max_disk_bytes": 1,
    "client_tags": {"zone": "a"},
    "topology_epoch": 1,
    "on_lease_lost": "continue",
    "endpoint": "e",
    "tasks": {"0_0": {"role": "none"}},
}
OF_A_HEARTBEAT = {"seq": 9, "member_epoch": 9, "tasks": {"0_0": {"role": "none"}}}


def without(struct: type[msgspec.Struct], *names: str) -> list[str]:
    """Return the names of a body's fields but for some."""
    return [field.encode_name for field in msgspec.structs.fields(struct) if field.encode_name not in names]


# A field that is new has no example above, and fails until it has one.
@pytest.mark.parametrize("name", without(ReportBody, "role"))
def test_every_field_of_a_report_reaches_the_core(name: str) -> None:
    def heartbeat(**more: object) -> Heartbeat:
        body = {"seq": 1, "member_epoch": 1, "tasks": {"0_0": {"role": "active", **more}}}
        return read_heartbeat(M1, json.dumps(body).encode(), tasks_max=5)

    assert heartbeat(**{name: OF_A_REPORT[name]}) != heartbeat()


# Why somebody joins is for the audit trail.
@pytest.mark.parametrize("name", without(JoinBody, "reason"))
def test_every_field_of_a_join_reaches_the_core(name: str) -> None:
    assert read_join(M1, json.dumps({name: OF_A_JOIN[name]}).encode(), tasks_max=5) != Join(M1)


@pytest.mark.parametrize("name", without(HeartbeatBody))
def test_every_field_of_a_heartbeat_reaches_the_core(name: str) -> None:
    body = {"seq": 1, "member_epoch": 1}
    read = read_heartbeat(M1, json.dumps(body | {name: OF_A_HEARTBEAT[name]}).encode(), tasks_max=5)
    assert read != read_heartbeat(M1, json.dumps(body).encode(), tasks_max=5)


def test_whole_numbers_may_be_written_with_a_point() -> None:
    """JSON has one kind of number, and many clients write 812.0 (protocol 1.1)."""
    report = b'{"role": "standby", "position": 812.0, "end_offset": 9e2}'
    read = read_heartbeat(M1, b'{"seq": 118.0, "member_epoch": 12.0, "tasks": {"0_1": %b}}' % report, tasks_max=5)
    expected = TaskReport("standby", positions=(("", 812),), end_offsets=(("", 900),))
    assert read == Heartbeat(M1, 118, 12, {TaskId("0_1"): expected})
    assert type(read.seq) is int
    refused = {
        b'{"seq": 118.5, "member_epoch": 1}': "Expected `int`, got `float`",
        b'{"seq": -1.0, "member_epoch": 1}': "Expected `int` >= 0",
    }
    for body, reason in refused.items():
        error = error_of("heartbeat", body)
        assert error is not None
        assert error.errors == (("seq", reason),)


@pytest.mark.parametrize(("body", "tasks"), [({}, None), ({"tasks": {}}, {})])
def test_tasks_left_out_are_not_an_empty_report(body: Any, tasks: Any) -> None:
    """Left out, tasks confirm nothing; an empty mapping says that nothing is held."""
    assert read_heartbeat(M1, json.dumps({"seq": 1, "member_epoch": 1} | body).encode(), tasks_max=5).tasks == tasks


def test_a_join_without_a_body_has_every_default() -> None:
    nulls = b'{"instance_id": null, "replaces": null, "max_tasks": null, "topology_epoch": null, "endpoint": null}'
    assert read_join(M1, b"", tasks_max=5) == read_join(M1, b"{}", tasks_max=5) == Join(M1)
    assert read_join(M1, nulls, tasks_max=5) == Join(M1)


def test_faults_and_unknown_fields_are_bounded() -> None:
    """The same unknown field of many tasks is named once."""
    wrong = {"seq": 1, "member_epoch": 1, "tasks": {f"0_{number}": {} for number in range(500)}}
    with pytest.raises(InvalidRequest) as refused:
        read_heartbeat(M1, json.dumps(wrong).encode(), tasks_max=1_000)
    assert len(refused.value.errors) == FAULTS_MAX
    tasks = {f"0_{number}": {"role": "none", "mood": 1} for number in range(500)}
    many = {"seq": 1, "member_epoch": 1, "tasks": tasks} | {f"x{number}": 1 for number in range(100)}
    read = read_heartbeat(M1, json.dumps(many).encode(), tasks_max=1_000)
    assert len(read.unknown_fields) == UNKNOWN_MAX
    assert read.unknown_fields[0] == "tasks.*.mood"


@pytest.mark.parametrize("field", ["source_topics", "changelog_topics"])
def test_many_topics_of_one_subtopology_take_no_longer_than_those_of_many(field: str) -> None:
    topics = [f"t{number}" for number in range(40_000)]
    body = json.dumps({"topology": {"subtopologies": [{"id": "0", "partitions": 1, field: topics}]}}).encode()
    began = time.thread_time()
    declaration, _ = read_declaration(GroupId("g"), body, if_match=None)
    assert time.thread_time() - began < 5
    assert declaration.topology is not None
    assert len(getattr(declaration.topology.subtopologies[0], field)) == len(topics)


def test_a_topology_has_so_many_subtopologies_at_most() -> None:
    """Each costs the group's decisions time, in which the coordinator serves no other."""
    parts = [{"id": f"{number}", "partitions": 1} for number in range(SUBTOPOLOGIES_MAX + 1)]
    with pytest.raises(InvalidTopology) as refused:
        read_declaration(GroupId("g"), json.dumps({"topology": {"subtopologies": parts}}).encode(), if_match=None)
    assert [path for path, _ in refused.value.errors] == ["topology.subtopologies"]
    whole = json.dumps({"topology": {"subtopologies": parts[1:]}}).encode()
    assert read_declaration(GroupId("g"), whole, if_match=None)[0].topology is not None


@pytest.mark.parametrize("length", [1, 248, 249, 255])
def test_a_subtopology_whose_tasks_no_heartbeat_could_name_is_refused(length: int) -> None:
    """Nobody could run them: the member that does would not be heard, nor the next one."""
    name = "s" * length
    declared = json.dumps({"topology": {"subtopologies": [{"id": name, "partitions": 1_000_000}]}})
    heartbeat = json.dumps({"seq": 1, "member_epoch": 0, "tasks": {f"{name}_999999": {"role": "none"}}})
    faults = [error_of("declaration", declared.encode()), error_of("heartbeat", heartbeat.encode())]
    assert [fault is None for fault in faults] == [length <= 248] * 2


@pytest.mark.parametrize("report", ["{}", '{"role": 1}', '{"role": "none", "lag": -1}', "7"])
def test_a_body_with_too_many_faults_is_not_read_to_its_end(report: str) -> None:
    """Those that a member is spared count too."""
    tasks = ",".join(f'"0_{number}": {report}' for number in range(WALKED_FAULTS_MAX + 2))
    with pytest.raises(InvalidRequest) as refused:
        read_heartbeat(M1, f'{{"seq": 1, "member_epoch": 1, "tasks": {{{tasks}}}}}'.encode(), tasks_max=10**6)
    assert f"tasks.0_{WALKED_FAULTS_MAX + 1}" not in f"{refused.value.errors}"
    assert "lag" in report or f"and {WALKED_FAULTS_MAX + 1 - 3} more" in refused.value.detail


def test_a_pause_ends_at_an_instant() -> None:
    """Protocol 1.1."""
    body = b'{"scope": "all", "reason": "body", "expires_at": "2030-01-01T01:00:00.5+01:00"}'
    assert read_pause(body, reason="query") == PauseRequest(PauseScope.ALL, "body", 1_893_456_000_500)
    assert read_pause(b"", reason="query") == PauseRequest(PauseScope.BALANCE, "query")


@pytest.mark.parametrize(
    ("header", "present", "wanted"),
    [
        (None, 3, None),
        ('"3"', 3, 3),
        ('"2"', 3, 2),
        ('"2", "3"', 3, 3),
        ("*", 3, 3),
        ("*", None, -1),
        ('W/"3"', 3, -1),
        ("3", 3, -1),
        ('"x"', 3, -1),
    ],
)
def test_if_match_is_read_as_http_says(header: str | None, present: int | None, wanted: int | None) -> None:
    """Strong comparison, lists and the asterisk as in RFC 9110; what can match nothing names no revision."""
    assert read_if_match(header, present) == wanted


def test_an_etag_is_what_if_match_takes() -> None:
    assert read_if_match(etag(7), 9) == 7


@pytest.mark.parametrize("name", ["", "a/b", "a b", "a\n", "x" * 256, "\x7f", "\ufffd", ".", ".."])
def test_a_bad_name_is_refused_in_a_path_and_in_a_body(name: str) -> None:
    """Protocol 1.2."""
    with pytest.raises(InvalidRequest) as refused:
        checked_name("member", name)
    assert [path for path, _ in refused.value.errors] == ["path.member"]
    with pytest.raises(InvalidRequest) as refused:
        read_join(M1, json.dumps({"instance_id": name}).encode(), tasks_max=5)
    assert [path for path, _ in refused.value.errors] == ["instance_id"]


@pytest.mark.parametrize("name", ["...", ".a", "a.", "\u00e9", "x" * 255])
def test_a_name_that_looks_like_a_bad_one_is_taken(name: str) -> None:
    assert checked_name("member", name) == name
    assert read_join(M1, json.dumps({"instance_id": name}).encode(), tasks_max=5).instance_id == name


def test_a_assignment_lists_tasks_in_order() -> None:
    picture = {
        TaskId("0_10"): Grant(Role.ACTIVE, 1, 0, 3, (("", 905),)),
        TaskId("0_9"): Grant(Role.ACTIVE, 1, 0, 2),
        TaskId("1_0"): Grant(Role.ACTIVE, 1, 0, 1, (("a", 1), ("b", 2))),
        TaskId("0_1"): Grant(Role.STANDBY, 1, 0),
        TaskId("0_0"): Grant(Role.WARMUP, 1, 0),
    }
    assert assignment_body(picture) == {
        "active": [
            {"task": "0_9", "fencing_token": 2},
            {"task": "0_10", "fencing_token": 3, "restore_to": 905},
            {"task": "1_0", "fencing_token": 1, "restore_to": {"a": 1, "b": 2}},
        ],
        "standby": ["0_1"],
        "warmup": ["0_0"],
    }


def test_a_problem_carries_what_helps() -> None:
    """Protocol 1.4."""
    plain = problem_body(InstanceIdInUse("taken"))
    assert plain == {
        "type": "instance-id-in-use",
        "title": "Instance id is in use",
        "status": 409,
        "detail": "taken",
        "action": "retry",
    }
    answer = Answer(M1, 1, 2, 3, 3_000, 45_000, 0, None, None, None, (("draining", "1 left"),))
    rich = problem_body(StaleMemberEpoch("old", errors=[("a", "b")], retry_after_ms=5, answer=answer))
    assert rich["errors"] == [{"path": "a", "reason": "b"}]
    assert (rich["retry_after_ms"], rich["answer"]) == (5, answer_body(answer))
    assert rich["answer"]["status"] == [{"code": "draining", "detail": "1 left"}]


def test_times_are_rfc_3339_in_utc() -> None:
    assert rfc3339(1_893_456_000_500) == "2030-01-01T00:00:00.500Z"
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
    assert positions_body((("", 3),)) == 3


@pytest.mark.parametrize(
    "instant", ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-23:59", "1969-12-31T00:00:00Z"]
)
def test_a_pause_beyond_what_can_be_written_is_refused(instant: str) -> None:
    error = error_of("pause", f'{{"expires_at":"{instant}"}}'.encode())
    assert error is not None
    assert error.errors[0][0] == "expires_at"


def test_a_pause_ends_at_an_instant_or_after_a_time_and_not_both() -> None:
    assert read_pause(b'{"for_ms":5}') == PauseRequest(for_ms=5)
    error = error_of("pause", b'{"expires_at":"2030-01-01T00:00:00Z","for_ms":5}')
    assert error is not None
    assert error.errors[0][0] == "for_ms"
