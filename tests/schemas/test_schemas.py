"""The schemas say what docs/protocol.md says: what it shows is accepted, and what it rules out is not."""

import copy
from dataclasses import fields
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from tests.api.test_views import EVERYTHING
from tests.protocol_page import PROBLEMS
from tests.schemas.examples import EXAMPLES, MEMBER_ANSWER, PROBLEM
from tests.schemas.validating import bodies_of_events, faults, unnamed
from tests.worker.scripted import Scripted, assignment, joined

from batonpass import schemas
from batonpass.audit.findings import Outcome, Recommendation
from batonpass.codec import bodies
from batonpass.codec.requests import OWN_NUMBERS
from batonpass.codec.views import member_body
from batonpass.core.handover.view import View
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.model import Group, Member
from batonpass.core.state.pmap import PMap
from batonpass.core.state.policy import RANGES, GroupConfig
from batonpass.core.state.soft import MeasuredReport, MemberSoft, Soft
from batonpass.kafka.member_calls import KINDS
from batonpass.runtime.events import EventType
from batonpass.worker.protocol import MemberSettings, Progress, Request, RequestKind, parse_answer

DROP = object()


def changed(name: str, path: str, value: object) -> dict[str, object]:
    """Return the example of a schema with one place changed, or dropped; a path is keys and indexes joined by `/`."""
    body: Any = copy.deepcopy(EXAMPLES[name])
    *way, last = path.split("/")
    at = body
    for key in way:
        at = at[int(key)] if isinstance(at, list) else at[key]
    if value is DROP:
        del at[last]
    elif isinstance(at, list):
        at[int(last)] = value
    else:
        at[last] = value
    result: dict[str, object] = body
    return result


@pytest.mark.parametrize("name", schemas.names())
def test_each_schema_is_one_and_names_itself(name: str) -> None:
    schema = schemas.load(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == schemas.URN + name
    assert schema["title"]
    assert schema["description"]


def test_each_schema_is_shown_an_example() -> None:
    assert set(EXAMPLES) == set(schemas.names()) - {"common"}


def test_a_schema_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyError, match="heartbeat"):
        schemas.load("hartbeat")


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_example_is_accepted(name: str) -> None:
    assert faults(name, EXAMPLES[name]) == []


@pytest.mark.parametrize(
    ("name", "path", "found"),
    [
        ("group_get", "mood", "$.mood"),
        ("group_get", "held_back/0/mood", "$.held_back[0].mood"),
        ("task_get", "runs/0/mood", "$.runs[0].mood"),
        ("task_get", "copies/0/mood", "$.copies[0].mood"),
        ("member_get", "reports/0_3/mood", "$.reports.0_3.mood"),
        ("events_get", "events/0/body/mood", "$.events[0].body.mood"),
    ],
)
def test_a_key_that_a_schema_does_not_name_is_found(name: str, path: str, found: str) -> None:
    """At the top, in lists and maps, and where a schema refers to another: an answer with it is still valid."""
    body = changed(name, path, "fine")
    assert faults(name, body) == []
    assert unnamed(name, body) == [found]


def test_a_map_may_have_any_key() -> None:
    assert unnamed("group_get", changed("group_get", "held_back_by_reason", {"mood": 1})) == []
    assert unnamed("commands_get", changed("commands_get", "commands/0/subject/mood", {"good": [{"very": 1}]})) == []


@pytest.mark.parametrize("name", ["join", "heartbeat"])
def test_a_newer_client_may_say_more(name: str) -> None:
    """In a join and a heartbeat, inside of a task's report too."""
    assert faults(name, changed(name, "mood", "fine")) == []
    assert faults(name, changed(name, "tasks/0_3/mood", "fine")) == []


@pytest.mark.parametrize("name", ["group_put", "pause", "pin", "plan_request", "snapshot", "command"])
def test_a_field_that_is_not_known_is_refused_in_operators_calls(name: str) -> None:
    assert faults(name, changed(name, "resaon", "typo"))


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("join", {}),
        ("group_put", {}),
        ("pause", {}),
        ("plan_request", {}),
        ("snapshot", {}),
        ("command", {}),
        ("kafka_ack", {}),
        ("heartbeat", {"seq": 1, "member_epoch": 0}),
        ("heartbeat", {"seq": 1, "member_epoch": 0, "tasks": {}}),
        ("kafka_heartbeat", {"kind": "join", "member": "a6f1"}),
        ("kafka_heartbeat", {"kind": "leave", "member": "a6f1"}),
        ("kafka_heartbeat", {"kind": "leave", "member": "a6f1", "mode": "restart", "reason": "a new version"}),
        ("kafka_heartbeat", {"kind": "drain", "member": "a6f1", "deadline_ms": None}),
        ("kafka_heartbeat", {"kind": "undrain", "member": "a6f1"}),
        ("member_answer", MEMBER_ANSWER | {"assignment": None, "report": "full", "acceptable_catchup_ms": 0}),
    ],
)
def test_optional_fields_may_be_left_out(name: str, body: dict[str, object]) -> None:
    assert faults(name, body) == []


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("join", "tasks/0_3", {"role": "warmup", "positions": {"a": 1}, "end_offsets": {"a": 2}}),
        ("join", "client_tags", {}),
        ("join", "capacity", 0.5),
        ("heartbeat", "tasks/0_1", {"role": "active", "state": "failed", "detail": "poison record"}),
        ("heartbeat", "tasks/0_1", {"role": "active", "state": "running", "lost": True, "fencing_token": 4}),
        ("heartbeat", "tasks/0_4", {"role": "standby", "final_positions": {"a": 4}}),
        ("heartbeat", "tasks/named_sub_12", {"role": "none"}),
        ("member_answer", "assignment/active/0/restore_to", {"a": 4, "b": 5}),
        ("member_answer", "assignment/active/0/restore_to", DROP),
        ("member_answer", "status", [{"code": "drained", "detail": "nothing left"}]),
        ("group_put", "topology/subtopologies/0/partitions", DROP),
        ("group_put", "topology/subtopologies/0/stateful", DROP),
        ("group_put", "config/max_warmup_replicas", "10%"),
        ("group_put", "config/max_drain_warmups", "0.5%"),
        ("group_put", "config/acceptable_catchup_ms", None),
        ("group_get", "eta_ms", None),
        ("group_get", "next_probe_at", None),
        ("event", "body", {"tasks": 120, "sample": ["0_5"], "gap_ms": 250}),
        ("event", "body/more", "than is described"),
        ("events_get", "events", []),
        ("task_get", "runs/0/gap_ms", None),
        ("task_explain", "last_run", None),
        ("route_get", "active", None),
        ("group_explain", "pause", None),
        ("pause", "expires_at", "2026-03-01T12:00:00.5+01:00"),
        ("snapshot", "now_ms", 5),
        ("snapshot", "target", {"m1": {"active": ["0_0"]}}),
        ("snapshot", "pins", {"0_0": "m1"}),
        ("snapshot", "paused", "all"),
        ("snapshot", "paused", True),
        ("snapshot", "tasks/0/revoking", "m1"),
        ("snapshot", "members/1/tasks/0_0/progress_at_ms", 17),
        ("snapshot_answer", "at_rest", False),
    ],
)
def test_what_the_prose_allows_is_accepted(name: str, path: str, value: object) -> None:
    assert faults(name, changed(name, path, value)) == []


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("join", "capacity", 0),
        ("join", "capacity", "4"),
        ("join", "max_tasks", -1),
        ("join", "max_tasks", 1.5),
        ("join", "max_disk_bytes", 0),
        ("join", "takeover", "yes"),
        ("join", "on_lease_lost", "go-on"),
        ("join", "instance_id", ""),
        ("join", "instance_id", "a b"),
        ("join", "instance_id", ".."),
        ("join", "instance_id", "a\n"),
        ("join", "client_tags", {"zone": 3}),
        ("join", "tasks", ["0_3"]),
        ("join", "tasks/0_3", {"role": "none", "position": -1}),
        ("join", "tasks/0_3", {"position": 1}),
        ("heartbeat", "seq", DROP),
        ("heartbeat", "member_epoch", DROP),
        ("heartbeat", "seq", -1),
        ("heartbeat", "seq", "118"),
        ("heartbeat", "seq", True),
        ("heartbeat", "tasks/0_1/role", "owner"),
        ("heartbeat", "tasks/0_1/state", "warming"),
        ("heartbeat", "tasks/0_4/lag", None),
        ("heartbeat", "tasks/0_4/lag", -1),
        ("heartbeat", "tasks/0_3/end_offset", 1.5),
        ("heartbeat", "tasks/nonsense", {"role": "standby"}),
        ("heartbeat", "tasks/0_4/positions", {"a": "1"}),
        ("member_answer", "assignment", DROP),
        ("member_answer", "session_timeout_ms", 0),
        ("member_answer", "report", "some"),
        ("member_answer", "assignment/standby", DROP),
        ("member_answer", "assignment/active/0/fencing_token", DROP),
        ("member_answer", "assignment/active/0/restore_to", None),
        ("member_answer", "assignment/active/0", "0_1"),
        ("member_answer", "assignment/standby", ["0_4", "0_4"]),
        ("member_answer", "status", [{"code": "sleeping", "detail": ""}]),
        ("member_answer", "mood", "fine"),
        ("group_put", "topology/subtopologies/0/id", DROP),
        ("group_put", "topology/subtopologies/0/partitions", 0),
        ("group_put", "topology/subtopologies/0/weight", 0),
        ("group_put", "topology/subtopologies/0/task_weights/0_3", 0),
        ("group_put", "topology/subtopologies/0/task_weights/nonsense", 2.0),
        ("group_put", "topology/subtopologies/0/partition", 8),
        ("group_put", "config/acceptable_recovery_lags", 5),
        ("group_put", "config/max_warmup_replicas", 0),
        ("group_put", "config/max_warmup_replicas", "0%"),
        ("group_put", "config/max_warmup_replicas", "101%"),
        ("group_put", "config/max_warmup_replicas", "many"),
        ("group_put", "config/session_timeout_ms", "45s"),
        ("group_put", "config/isolation_level", "serializable"),
        ("group_put", "config/rack_aware_tags", ["zone", "zone"]),
        ("group_get", "state", "resting"),
        ("group_get", "held_back/0/reason", DROP),
        ("group_get", "held_back/0/reason", "Warmup budget"),
        ("group_get", "next_probe_at", "soon"),
        ("member_get", "assignment", None),
        ("assignment_get", "current", DROP),
        ("pause", "scope", "everything"),
        ("pause", "expires_at", "2026-03-01 12:00"),
        ("pin", "member", DROP),
        ("plan_request", "join/0/count", 0),
        ("plan_request", "leave", "m1"),
        ("snapshot", "tasks/0/id", "nonsense"),
        ("snapshot", "tasks/0/id", DROP),
        ("snapshot", "members/1/tasks/0_0/lag", None),
        ("snapshot", "members/1/tasks/0_0/lag", -3),
        ("snapshot", "members/1/tasks/0_0/role", DROP),
        ("snapshot", "members/1/tasks/0_0/leg", 10),
        ("snapshot", "members/0/capacity", 0),
        ("snapshot", "paused", "some"),
        ("snapshot_answer", "probing_needed", True),
        ("snapshot_answer", "assignment/m1/warmup", DROP),
        ("snapshot_answer", "reasons/0/code", DROP),
        ("snapshot_answer", "moves", -1),
        ("plan_answer", "balance", DROP),
        ("advice", "followup_ms", DROP),
        ("advice", "assignment/a/active", DROP),
        ("event", "type", "handed-over"),
        ("event", "body/gap_ms", DROP),
        ("events_get", "events/0/position", DROP),
        ("generation_get", "diff", DROP),
        ("generations_get", "generations/0/imbalance", DROP),
        ("commands_get", "commands/0/who", None),
        ("lags_get", "lags/0/behind", -1),
        ("audits_get", "audits/0/state", "late"),
        ("audits_get", "next", 7),
        ("audit_get", "findings/0/evidence/at/0", 5),
        ("audit_get", "measures/orders/moves", "many"),
        ("audit_get", "recommendations/orders/present/settings", DROP),
        ("task_get", "state", "moving"),
        ("task_get", "history/0/kind", "moved"),
        ("task_explain", "waits_for/0/what", "godot"),
        ("route_get", "standbys/0/caught_up", None),
        ("group_explain", "tasks/dancing", 1),
        ("kafka_heartbeat", "kind", "poll"),
        ("kafka_heartbeat", "member", DROP),
        ("kafka_heartbeat", "seq", DROP),
        ("kafka_ack", "a6f1", "118"),
        ("command", "reason", 7),
    ],
)
def test_an_example_with_a_wrong_value_is_refused(name: str, path: str, value: object) -> None:
    assert faults(name, EXAMPLES[name]) == []
    assert faults(name, changed(name, path, value))


@pytest.mark.parametrize(("kind", "statuses", "action"), PROBLEMS)
def test_a_problem_has_the_status_of_its_type(kind: str, statuses: tuple[int, ...], action: str) -> None:
    body = PROBLEM | {"type": kind, "action": action, "status": statuses[-1]}
    with_all = body | {"answer": MEMBER_ANSWER, "retry_after_ms": 5, "errors": [{"path": "a", "reason": "b"}]}
    for status in statuses:
        assert faults("problem", with_all | {"status": status}) == []
    assert faults("problem", with_all | {"status": 418})
    needs = {"stale-member-epoch": "answer", "instance-id-in-use": "retry_after_ms"}
    needs |= dict.fromkeys(["invalid-topology", "invalid-config", "invalid-request"], "errors")
    assert bool(faults("problem", body)) is (kind in needs)
    if kind in needs:
        assert faults("problem", {key: value for key, value in with_all.items() if key != needs[kind]})


def test_a_problem_names_a_type_of_the_table_and_its_action() -> None:
    """Protocol 10.4."""
    assert faults("problem", PROBLEM | {"type": "about:blank"})
    assert faults("problem", PROBLEM | {"action": "retry"})
    assert faults("problem", PROBLEM | {"type": "fenced-instance-id"})
    assert faults("problem", {key: value for key, value in PROBLEM.items() if key != "detail"})
    assert faults("problem", PROBLEM | {"instance": "an extension member of RFC 9457"}) == []
    types = schemas.load("problem")["properties"]["type"]["enum"]
    assert types == [kind for kind, _, _ in PROBLEMS]


def test_the_settings_are_those_of_the_core() -> None:
    settings = schemas.load("common")["$defs"]["config"]["properties"]
    defaults = GroupConfig()
    assert list(settings) == [field.name for field in fields(GroupConfig)]
    for name, schema in settings.items():
        default = getattr(defaults, name)
        assert schema["default"] == (list(default) if isinstance(default, tuple) else default)
        if name in RANGES:
            number = schema.get("anyOf", [schema])[0]
            assert (number["minimum"], number["maximum"]) == RANGES[name], name


BODIES: dict[str, type[msgspec.Struct]] = {
    "join": bodies.JoinBody,
    "heartbeat": bodies.HeartbeatBody,
    "group_put": bodies.GroupBody,
    "pause": bodies.PauseBody,
    "pin": bodies.PinBody,
    "plan_request": bodies.WhatIfBody,
    "command": bodies.ReasonBody,
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_has_the_fields_that_its_schema_describes(name: str) -> None:
    """Protocol 1.13."""
    assert [field.encode_name for field in msgspec.structs.fields(BODIES[name])] == list(
        schemas.load(name)["properties"]
    )


def test_a_report_has_the_fields_that_its_schema_describes() -> None:
    described = schemas.load("common")["$defs"]["task_report"]["properties"]
    assert {field.encode_name for field in msgspec.structs.fields(bodies.ReportBody)} == set(described)


def test_a_member_whose_reports_say_everything_is_described() -> None:
    """What is always in an answer is seen by the tests of the API; a report leaves out what was not said."""
    measured = MeasuredReport(EVERYTHING, at_ms=0, lag=2, rate=20.5)
    known = MemberSoft(0, reports={TaskId("0_0"): measured}, numbers=dict.fromkeys(OWN_NUMBERS, 1))
    view = View(Group(GroupId("g")), Soft(members=PMap({MemberId("m1"): known})), 0)
    body = member_body(view, Member(MemberId("m1"), joined_ms=0), frozenset())
    assert (faults("member_get", body), unnamed("member_get", body)) == ([], [])


def test_what_an_audit_recommends_has_the_fields_that_its_schema_describes() -> None:
    outcome = schemas.load("common")["$defs"]["audit_outcome"]["properties"]
    assert set(outcome) == {field.name for field in fields(Outcome)}
    advice = schemas.load("audit_get")["allOf"][1]["properties"]["recommendations"]["additionalProperties"]
    assert set(advice["properties"]) == {field.name for field in fields(Recommendation)}


def test_kafka_carries_the_calls_that_its_schema_describes() -> None:
    schema = schemas.load("kafka_heartbeat")
    assert schema["properties"]["kind"]["enum"] == list(KINDS)


def sent_by_a_worker() -> list[Request]:
    """Return every request of a worker that joins, restores, runs, fails, hands over, and leaves."""
    settings = MemberSettings(
        instance_id="orders-0", takeover=True, capacity=4, max_tasks=40, client_tags={"zone": "a"}, endpoint="http://a"
    )
    worker = Scripted(settings, on_disk={"0_3": Progress(position=812, end_offset=900)}, replaces="old")
    worker.start()
    picture = assignment({"0_1": 4, "0_2": 5}, standby=["0_4"], warmup=["0_3"])
    worker.reply(1, picture, to=worker.last(RequestKind.JOIN))
    worker.do("task_restoring", "0_1", progress=Progress(positions={"a": 1}, end_offsets={"a": 9}))
    worker.do("copy_progress", "0_4", Progress(lag=0))
    worker.beat(1)
    worker.do("task_running", "0_1")
    worker.do("input_lag", "0_1", 7)
    worker.do("task_failed", "0_2", "poison record")
    worker.do("state_lost", "0_4")
    worker.beat(2, assignment(standby=["0_1"]))
    worker.do("task_demoted", "0_1", final_position={"a": 4})
    worker.do("task_stopped", "0_2", final_position=905)
    worker.beat(2)
    worker.refuse("fenced", 409, to=worker.last(RequestKind.POLL))
    return worker.sent


def test_the_events_are_those_of_the_vocabulary() -> None:
    event, of_bodies = schemas.load("event"), bodies_of_events()
    assert event["properties"]["type"]["enum"] == [kind.value for kind in EventType]
    assert {rule["if"]["properties"]["type"]["const"] for rule in event["allOf"]} <= set(EventType)
    assert set(event["properties"]["body"]["properties"]) == {name for of in of_bodies.values() for name in of} | {
        "sample"
    }


def test_what_the_worker_sends_is_valid() -> None:
    requests = [request for request in sent_by_a_worker() if request.body is not None]
    assert {request.kind for request in requests} == {RequestKind.JOIN, RequestKind.HEARTBEAT}
    for request in requests:
        assert faults(request.kind.value, request.body) == []


def test_the_worker_reads_the_answer_of_the_text() -> None:
    read = parse_answer(MEMBER_ANSWER)
    assert read.assignment is not None
    assert read.assignment.grants["0_1"].restore_to == 905
    assert joined(1, assignment({"0_1": 1})).machine.member_epoch == 1
