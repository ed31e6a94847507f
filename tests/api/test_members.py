"""Members join, speak, wait, drain and go as the protocol says (3 to 9), with its names and codes."""

import asyncio
from typing import Any

import pytest
from tests.api.conftest import BODY_BYTES_MAX, TASKS_PER_HEARTBEAT_MAX, Api

from batonpass.codec.bodies import ReportBody
from batonpass.codec.shape import optional_numbers
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import Heartbeat, PollBroken, PollOpened
from batonpass.core.state.model import ActiveState
from batonpass.core.state.soft import TaskReport

RUNNING = {"role": "active", "state": "running"}
PROBLEM = "application/problem+json"


async def settle(api: Api) -> None:
    """Let what is due happen: a tick and whatever it posts."""
    api.clock.at_ms += 10
    await asyncio.sleep(0.03)


async def run_both_tasks(api: Api) -> None:
    """Bring the group to rest with member m1 running both tasks at epoch 2."""
    await api.declare()
    await api.join("m1")
    await settle(api)
    answer = await api.beat("m1", 1, 1, {})
    assert [active["task"] for active in answer.json()["assignment"]["active"]] == ["0_0", "0_1"]
    assert (await api.beat("m1", 2, 2, {"0_0": RUNNING, "0_1": RUNNING})).status_code == 200


async def warm_up_second(api: Api) -> str:
    """Let m2 join, and return the task that it is told to warm up."""
    await api.join("m2")
    await settle(api)
    assignment = (await api.assignment("m2", 1)).json()
    assert assignment["member_epoch"] == 2
    (task,) = assignment["assignment"]["warmup"]
    return str(task)


async def test_a_join_is_answered_with_everything_the_protocol_names(api: Api) -> None:
    """Protocol 5.1."""
    await api.declare(initial_rebalance_delay_ms=3_000)
    first = await api.join("m1")
    assert first.status_code == 201
    assert first.json() == {
        "member_id": "m1",
        "seq": 0,
        "member_epoch": 1,
        "generation": 0,
        "heartbeat_interval_ms": 3_000,
        "session_timeout_ms": 45_000,
        "acceptable_recovery_lag": 100,
        "acceptable_catchup_ms": None,
        "report_interval_ms": 10_000,
        "topology_epoch": 1,
        "report": None,
        "assignment": {"active": [], "standby": [], "warmup": []},
        "status": [],
    }
    again = await api.join("m1", capacity=7)
    assert again.status_code == 200
    assert again.json()["member_id"] == "m1"


async def test_a_warm_handover_interrupts_nobody_until_the_copy_is_ready(api: Api) -> None:
    await run_both_tasks(api)
    task = await warm_up_second(api)
    stays = {"0_0": "0_1", "0_1": "0_0"}[task]
    assert (await api.assignment("m1", 2, wait_ms=0)).status_code == 204
    await api.beat("m2", 1, 2, {task: {"role": "warmup", "position": 10, "end_offset": 900}})
    assert (await api.assignment("m1", 2, wait_ms=0)).status_code == 204
    waiting = asyncio.create_task(api.assignment("m1", 2))
    await asyncio.sleep(0.01)
    await api.beat("m2", 2, 2, {task: {"role": "warmup", "position": 890, "end_offset": 900}})
    revoked = (await waiting).json()
    assert revoked["member_epoch"] == 3
    assert [active["task"] for active in revoked["assignment"]["active"]] == [stays]
    assert (await api.assignment("m2", 2, wait_ms=0)).status_code == 204
    waiting = asyncio.create_task(api.assignment("m2", 2))
    await asyncio.sleep(0.01)
    given_up = {"role": "none", "final_position": 905, "position": 905}
    assert (await api.beat("m1", 3, 3, {stays: RUNNING, task: given_up})).status_code == 200
    granted = (await waiting).json()
    assert granted["assignment"]["active"] == [{"task": task, "fencing_token": 2, "restore_to": 905}]


async def test_a_confirmation_needs_the_epoch_that_announced_the_revocation(api: Api) -> None:
    """The member of an older epoch was never asked to give the task up."""
    await run_both_tasks(api)
    task = await warm_up_second(api)
    stays = {"0_0": "0_1", "0_1": "0_0"}[task]
    await api.beat("m2", 1, 2, {task: {"role": "warmup", "lag": 0}})
    answer = await api.beat("m1", 3, 2, {stays: RUNNING})
    assert answer.json()["member_epoch"] == 3
    assert (await api.assignment("m2", 2, wait_ms=0)).status_code == 204


async def test_a_late_heartbeat_gets_the_present_assignment_and_changes_nothing(api: Api) -> None:
    await run_both_tasks(api)
    answer = await api.beat("m1", 1, 1, {})
    assert answer.status_code == 200
    assert answer.json()["seq"] == 2
    assert len(answer.json()["assignment"]["active"]) == 2


async def test_an_epoch_below_one_that_was_echoed_is_stale(api: Api) -> None:
    await run_both_tasks(api)
    answer = await api.beat("m1", 3, 1, {})
    assert (answer.status_code, answer.headers["content-type"]) == (409, PROBLEM)
    body = answer.json()
    assert (body["type"], body["status"], body["action"]) == ("stale-member-epoch", 409, "retry")
    assert body["answer"]["member_epoch"] == 2
    assert len(body["answer"]["assignment"]["active"]) == 2


async def test_unknown_fields_of_a_worker_are_named_and_do_no_harm(api: Api) -> None:
    """A newer client can talk to an older coordinator."""
    await run_both_tasks(api)
    tasks = {task: RUNNING | {"mood": "fine"} for task in ("0_0", "0_1")}
    body = {"seq": 3, "member_epoch": 2, "tasks": tasks, "colour": "red"}
    answer = await api.call("POST", "/orders/members/m1/heartbeat", body)
    assert answer.status_code == 200
    named = [status["detail"] for status in answer.json()["status"] if status["code"] == "unknown-field"]
    assert len(named) >= 1
    assert all(any(word in detail for detail in named) for word in ("colour", "mood"))
    joined = await api.call("PUT", "/orders/members/m2", {"shoe_size": 44})
    assert joined.status_code == 201
    assert [status["code"] for status in joined.json()["status"]] == ["unknown-field"]


async def test_bytes_on_disk_are_shown(api: Api) -> None:
    await run_both_tasks(api)
    assert (await api.call("GET", "/orders/members/m1")).json()["disk_bytes"] is None
    reports = {"0_0": RUNNING | {"disk_bytes": 70}, "0_1": {"role": "none", "disk_bytes": 5}}
    answer = await api.beat("m1", 3, 2, reports)
    assert [status["code"] for status in answer.json()["status"]] == []
    shown = (await api.call("GET", "/orders/members/m1")).json()
    assert shown["disk_bytes"] == 75
    assert {task: one["disk_bytes"] for task, one in shown["reports"].items()} == {"0_0": 70, "0_1": 5}


async def test_a_member_whose_disk_is_full_is_given_nothing_more(api: Api) -> None:
    """Protocol 3.9."""
    await run_both_tasks(api)
    await api.beat("m1", 3, 2, {task: RUNNING | {"disk_bytes": 70} for task in ("0_0", "0_1")})
    joined = await api.join("m2", max_disk_bytes=69)
    assert (joined.status_code, joined.json()["status"]) == (201, [])
    await settle(api)
    shown = (await api.call("GET", "/orders/members/m2")).json()
    assert (shown["max_disk_bytes"], shown["assignment"]) == (69, {"active": [], "standby": [], "warmup": []})
    await api.join("m3", max_disk_bytes=70)
    await settle(api)
    assert len((await api.call("GET", "/orders/members/m3")).json()["assignment"]["warmup"]) == 1


async def test_a_made_up_epoch_takes_no_task_from_who_runs_it(api: Api) -> None:
    await run_both_tasks(api)
    await api.join("m2")
    tasks = ("0_0", "0_1")
    claim = dict.fromkeys(tasks, RUNNING | {"fencing_token": 1})
    for seq in (1, 2, 3):
        assert (await api.beat("m2", seq, 999, claim)).status_code == 200
    await api.beat("m1", 3, 2, dict.fromkeys(tasks, RUNNING))
    await api.beat("m2", 4, 999, claim)
    owner, other = [(await api.call("GET", f"/orders/members/{name}")).json() for name in ("m1", "m2")]
    assert {one["task"] for one in owner["assignment"]["active"]} == set(tasks)
    assert (owner["revoking"], other["assignment"]["active"]) == ([], [])
    assert {one["fencing_token"] for one in owner["assignment"]["active"]} == {1}


async def test_unknown_parameters_of_a_worker_are_named(api: Api) -> None:
    await run_both_tasks(api)
    body = {"seq": 3, "member_epoch": 2}
    answer = await api.call("POST", "/orders/members/m1/heartbeat?colour=red&colour=blue", body)
    named = [status["detail"].split()[0] for status in answer.json()["status"]]
    assert (answer.status_code, named) == (200, ["query.colour"])
    joined = await api.call("PUT", "/orders/members/m2?takover=true&reason=deploy", {"mood": "fine"})
    named = [status["detail"].split()[0] for status in joined.json()["status"]]
    assert (joined.status_code, named) == (201, ["mood", "query.takover"])


async def test_unknown_fields_of_what_changes_nothing_are_named_too(api: Api) -> None:
    """A join whose reply was lost, and a heartbeat that came twice."""
    await run_both_tasks(api)
    again = await api.call("PUT", "/orders/members/m1", {"shoe_size": 44})
    assert (again.status_code, [one["code"] for one in again.json()["status"]]) == (200, ["unknown-field"])
    doubled = {"seq": 1, "member_epoch": 2, "mood": "fine"}
    answer = await api.call("POST", "/orders/members/m1/heartbeat", doubled)
    assert (answer.status_code, [one["code"] for one in answer.json()["status"]]) == (200, ["unknown-field"])


async def test_a_task_that_the_group_does_not_have_is_named(api: Api) -> None:
    await run_both_tasks(api)
    answer = await api.beat("m1", 3, 2, {"0_0": RUNNING, "0_1": RUNNING, "9_9": {"role": "none"}})
    assert [status["code"] for status in answer.json()["status"]] == ["unknown-task"]


@pytest.mark.parametrize("role", ["active", "standby", "warmup", "none"])
async def test_names_that_no_task_can_have_cost_no_lease_and_are_named(api: Api, role: str) -> None:
    await run_both_tasks(api)
    names = ["03", "0_x", "0_01", "0_1\n", "_", ""]
    said = {name: {"role": role, "position": 5, "end_offset": 7} for name in names}
    for seq in (3, 4):
        answer = await api.beat("m1", seq, 2, {"0_0": RUNNING, "0_1": RUNNING} | said)
        assert answer.status_code == 200
        assert [one["code"] for one in answer.json()["status"]] == ["unknown-task"] * len(names)
    joined = await api.join("m2", tasks=said)
    assert (joined.status_code, [one["code"] for one in joined.json()["status"]]) == (
        201,
        ["unknown-task"] * len(names),
    )


async def test_invented_changelogs_are_named_and_not_kept(api: Api) -> None:
    """Offsets of such topics cost the member not its lease, and the coordinator no memory."""
    await run_both_tasks(api)
    offsets = {f"made-up-{number}": number for number in range(200)} | {"store": 7}
    invented = RUNNING | {"positions": offsets, "end_offsets": offsets, "final_positions": offsets}
    answer = await api.beat("m1", 3, 2, {"0_0": invented, "0_1": RUNNING})
    assert (answer.status_code, {one["code"] for one in answer.json()["status"]}) == (200, {"unknown-field"})
    assert len(answer.text) < 4_000
    _, soft = await api.coordinator.look(GroupId("orders"))
    report = soft.members[MemberId("m1")].reports[TaskId("0_0")].report
    assert (report.positions, report.end_offsets, report.final_position) == ((("store", 7),),) * 3
    joined = await api.join("m2", tasks={"0_0": {"role": "none", "positions": offsets}})
    assert (joined.status_code, {one["code"] for one in joined.json()["status"]}) == (201, {"unknown-field"})


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        (b"", ["seq", "member_epoch"]),
        (b"{", ["body"]),
        (b"[]", ["body"]),
        (b'"x"', ["body"]),
        (b'{"seq": NaN, "member_epoch": 1}', ["body"]),
        (b'{"seq": 1e999, "member_epoch": 1}', ["seq"]),
        (b'\xff{"seq": 1}', ["body"]),
        (b"[" * 19_000, ["body"]),
        ({"seq": -1, "member_epoch": 1}, ["seq"]),
        ({"seq": "1", "member_epoch": True}, ["member_epoch", "seq"]),
        ({"seq": 2**63, "member_epoch": 1.5}, ["member_epoch", "seq"]),
        ({"seq": 1, "member_epoch": 1, "tasks": []}, ["tasks"]),
        ({"seq": 1, "member_epoch": 1, "tasks": None}, ["tasks"]),
        ({"seq": 1, "member_epoch": 1, "tasks": {"0_" + 254 * "7": {"role": "none"}}}, ["tasks.0_" + 254 * "7"]),
        ({"seq": 1, "member_epoch": 1, "tasks": {"0_0": {}}}, ["tasks.0_0.role"]),
        ({"seq": 1, "member_epoch": 1, "tasks": {"0_0": {"role": "boss"}}}, ["tasks.0_0.role"]),
        ({"seq": 1, "member_epoch": 1, "tasks": {"0_0": {"role": "boss", "lag": -1}}}, ["tasks.0_0.role"]),
        ({"seq": 1, "member_epoch": 1, "tasks": {"0_0": {"role": "active", "state": "ok"}}}, ["tasks.0_0.state"]),
    ],
)
async def test_every_fault_of_a_heartbeat_is_named_by_its_path(api: Api, body: Any, paths: list[str]) -> None:
    await run_both_tasks(api)
    beats = sum(isinstance(item, Heartbeat) for item in api.seen.effects)
    answer = await api.call("POST", "/orders/members/m1/heartbeat", body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, PROBLEM)
    problem = answer.json()
    assert (problem["type"], problem["action"]) == ("invalid-request", "fix")
    assert sorted(fault["path"] for fault in problem["errors"]) == sorted(paths)
    assert all(fault["reason"] for fault in problem["errors"])
    assert sum(isinstance(item, Heartbeat) for item in api.seen.effects) == beats


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({"capacity": 0}, ["capacity"]),
        ({"capacity": 5e-324}, ["capacity"]),
        ({"capacity": -1, "max_tasks": -1}, ["capacity", "max_tasks"]),
        ({"max_disk_bytes": 0}, ["max_disk_bytes"]),
        ({"client_tags": {str(number): "x" for number in range(6)}}, ["client_tags"]),
        ({"client_tags": {"k" * 21: "x"}}, [f"client_tags.{'k' * 21}"]),
        ({"client_tags": {"zone": "v" * 31}}, ["client_tags.zone"]),
        ({"on_lease_lost": "panic"}, ["on_lease_lost"]),
        ({"instance_id": "a b"}, ["instance_id"]),
        ({"instance_id": "a\n"}, ["instance_id"]),
        ({"replaces": ""}, ["replaces"]),
    ],
)
async def test_every_fault_of_a_join_is_named_by_its_path(api: Api, body: Any, paths: list[str]) -> None:
    await api.declare()
    answer = await api.call("PUT", "/orders/members/m1", body)
    assert (answer.status_code, answer.json()["type"]) == (422, "invalid-request")
    assert sorted(fault["path"] for fault in answer.json()["errors"]) == sorted(paths)
    assert (await api.beat("m1", 1, 1)).json()["type"] == "unknown-member"


WRONG_NUMBERS = ("-1", str(2**63), "9" * 400, "1e999", "0.5", "null", '"7"', "[]", "true", '{"a" : -1}')


@pytest.mark.parametrize("number", WRONG_NUMBERS)
@pytest.mark.parametrize("field", sorted(optional_numbers(ReportBody)))
async def test_a_number_of_one_copy_that_cannot_be_read_is_left_out_and_the_lease_is_renewed(
    api: Api, field: str, number: str
) -> None:
    """Protocol 4.9."""
    if (field, number) == ("load", "0.5"):
        return  # The one number that may be a fraction.
    await run_both_tasks(api)
    _, before = await api.coordinator.look(GroupId("orders"))
    body = (
        f'{{"seq": 9, "member_epoch": 2, "tasks": {{"0_0": {{"role": "active", "state": "running", "{field}": {number}}},'
        ' "0_1": {"role": "active", "state": "running", "input_lag": 7}}}'
    )
    api.clock.at_ms += 10
    answer = await api.call("POST", "/orders/members/m1/heartbeat", body.encode())
    assert answer.status_code == 200, answer.text
    (told,) = answer.json()["status"]
    assert (told["code"], told["detail"].startswith(f"tasks.0_0.{field}")) == ("invalid-number", True), told
    _, soft = await api.coordinator.look(GroupId("orders"))
    known = soft.members[MemberId("m1")]
    assert known.heard_ms > before.members[MemberId("m1")].heard_ms
    assert known.reports[TaskId("0_0")].report == TaskReport("active", ActiveState.RUNNING)
    assert known.reports[TaskId("0_1")].report.input_lag == 7
    on_disk = f'{{"tasks": {{"0_0": {{"role": "none", "{field}": {number}}}}}}}'
    joined = await api.call("PUT", "/orders/members/m2", on_disk.encode())
    assert (joined.status_code, {one["code"] for one in joined.json()["status"]}) == (201, {"invalid-number"})


@pytest.mark.parametrize("command", ["drain", "evict"])
async def test_an_instance_is_kept_out_and_let_in(api: Api, command: str) -> None:
    """Protocol 9.6."""
    await run_both_tasks(api)
    place = "/orders/members"
    refused = await api.call("POST", f"{place}/m1/{command}?until_undone=true")
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "query.until_undone")
    for query, path in (("for_ms=5", "query.for_ms"), ("until_undone=true&for_ms=0", "query.for_ms")):
        refused = await api.call("POST", f"{place}/m1/{command}?{query}")
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, path)
    assert (await api.join("m2", instance_id="pod-2")).status_code == 201
    said = await api.call("POST", f"{place}/m2/{command}?until_undone=true&for_ms=60000&reason=bad+disk")
    assert said.status_code == (200 if command == "drain" else 204)
    (entry,) = (await api.call("GET", "/orders")).json()["kept_out"]
    assert (entry["instance_id"], entry["member_id"]) == ("pod-2", "m2" if command == "drain" else None)
    (explained,) = (await api.call("GET", "/orders/explain")).json()["kept_out"]
    assert explained == entry
    joined = await api.join("m2b", instance_id="pod-2", replaces="m2")
    assert [one["code"] for one in joined.json()["status"]] == ["drained"]
    member = (await api.call("GET", f"{place}/m2b")).json()
    assert (member["draining"], member["kept_out"]) == (True, {"since": entry["since"], "until": entry["until"]})
    assert (await api.call("DELETE", f"{place}/pod-2/drain")).status_code == 204
    member = (await api.call("GET", f"{place}/m2b")).json()
    assert (member["draining"], member["kept_out"]) == (False, None)
    assert (await api.call("GET", "/orders")).json()["kept_out"] == []


async def test_too_many_tasks_and_too_large_a_body_are_413(api: Api) -> None:
    """Protocol 1.8."""
    await api.declare()
    tasks = {f"0_{number}": {"role": "none"} for number in range(TASKS_PER_HEARTBEAT_MAX + 1)}
    for answer in (
        await api.beat("m1", 1, 1, tasks),
        await api.join("m1", tasks=tasks),
        await api.call("POST", "/orders/members/m1/heartbeat", b" " * (BODY_BYTES_MAX + 1)),
        await api.call("PUT", "/orders/members/m1", b" " * (BODY_BYTES_MAX + 1)),
    ):
        assert (answer.status_code, answer.json()["type"]) == (413, "limit-exceeded")
        assert answer.json()["status"] == 413


async def test_whoever_is_not_a_member_is_told_what_to_do(api: Api) -> None:
    await api.declare()
    await api.join("m1")
    assert (await api.call("DELETE", "/orders/members/m1")).status_code == 204
    expected = {
        "/other/members/m1": (404, "unknown-group", "fix"),
        "/orders/members/m9": (404, "unknown-member", "stop-and-rejoin"),
        "/orders/members/m1": (409, "gone", "stop-and-rejoin"),
    }
    for path, (status, kind, action) in expected.items():
        for answer in (
            await api.call("POST", f"{path}/heartbeat", {"seq": 1, "member_epoch": 1}),
            await api.call("GET", f"{path}/assignment?after=0&wait_ms=1000"),
            await api.call("DELETE", path),
            await api.call("POST", f"{path}/drain"),
        ):
            body = answer.json()
            assert (answer.status_code, body["type"], body["action"]) == (status, kind, action), path


async def test_a_restart_needs_an_instance_id(api: Api) -> None:
    await api.declare()
    await api.join("m1")
    await api.join("m2", instance_id="orders-1")
    refused = await api.call("DELETE", "/orders/members/m1?mode=restart")
    assert (refused.status_code, refused.json()["type"]) == (422, "invalid-request")
    assert (await api.call("DELETE", "/orders/members/m2?mode=restart")).status_code == 204


async def test_an_instance_id_in_use_says_how_long(api: Api) -> None:
    await api.declare()
    await api.join("m1", instance_id="orders-0")
    refused = await api.join("m2", instance_id="orders-0")
    assert (refused.status_code, refused.json()["type"]) == (409, "instance-id-in-use")
    assert 0 < refused.json()["retry_after_ms"] <= 45_000
    assert int(refused.headers["retry-after"]) >= 1
    assert (await api.join("m2", instance_id="orders-0", takeover=True)).status_code == 201
    fenced = await api.beat("m1", 1, 1)
    assert (fenced.status_code, fenced.json()["type"], fenced.json()["action"]) == (409, "fenced-instance-id", "stop")


async def test_a_long_poll_ends_by_itself_and_answers_an_epoch_from_the_future_at_once(api: Api) -> None:
    await run_both_tasks(api)
    assert (await api.assignment("m1", 2, wait_ms=30)).status_code == 204
    ahead = await asyncio.wait_for(api.assignment("m1", 9, wait_ms=30_000), 2)
    assert (ahead.status_code, ahead.json()["member_epoch"]) == (200, 2)


async def test_a_parked_long_poll_learns_of_the_fence(api: Api) -> None:
    await run_both_tasks(api)
    waiting = asyncio.create_task(api.assignment("m1", 2, wait_ms=30_000))
    await asyncio.sleep(0.02)
    assert (await api.call("POST", "/orders/members/m1/evict?dead=true&reason=burnt")).status_code == 204
    answer = await asyncio.wait_for(waiting, 2)
    assert (answer.status_code, answer.json()["type"]) == (409, "fenced")
    assert api.commands[-1][1][:2] == ("127.0.0.1", "burnt")


async def test_a_broken_long_poll_is_told_at_once_and_a_new_one_takes_it_back(api: Api) -> None:
    await run_both_tasks(api)
    await api.assignment("m1", 2, wait_ms=0)
    broken = asyncio.create_task(api.assignment("m1", 2, wait_ms=30_000))
    await asyncio.sleep(0.02)
    broken.cancel()
    await asyncio.sleep(0.02)
    assert [item for item in api.seen.effects if isinstance(item, PollBroken | PollOpened)] == [
        PollBroken(MemberId("m1"))
    ]
    await api.assignment("m1", 2, wait_ms=0)
    await asyncio.sleep(0.02)
    assert [item for item in api.seen.effects if isinstance(item, PollOpened)] == [PollOpened(MemberId("m1"))]


async def test_a_poll_that_breaks_beside_another_says_nothing(api: Api) -> None:
    """A client that opened a new long-poll before its old one broke is not suspected."""
    await run_both_tasks(api)
    first = asyncio.create_task(api.assignment("m1", 2, wait_ms=30_000))
    second = asyncio.create_task(api.assignment("m1", 2, wait_ms=60))
    await asyncio.sleep(0.02)
    first.cancel()
    await second
    assert not [item for item in api.seen.effects if isinstance(item, PollBroken)]


async def test_a_drain_waits_for_the_handover_and_says_how_far_it_is(api: Api) -> None:
    await run_both_tasks(api)
    await api.join("m2")
    under_way = await api.call("POST", "/orders/members/m1/drain?wait_ms=30")
    assert under_way.status_code == 202
    assert under_way.json()["remaining"] == ["0_0", "0_1"]
    assert (await api.call("DELETE", "/orders/members/m1/drain")).status_code == 204
    empty = await api.call("POST", "/orders/members/m2/drain", {"reason": "node goes"})
    assert (empty.status_code, empty.json()["remaining"]) == (200, [])
    assert api.commands[-1][1][:2] == ("127.0.0.1", "node goes")


async def test_who_waits_for_a_drain_that_is_taken_back_does_not_begin_it_anew(api: Api) -> None:
    """A wait is a question: an operator's word is not undone by another one who looks on."""
    await run_both_tasks(api)
    await api.join("m2")
    drain = "/orders/members/m1/drain"
    waiting = asyncio.create_task(api.call("POST", f"{drain}?wait_ms=5000"))
    await asyncio.sleep(0.03)
    assert (await api.call("DELETE", drain)).status_code == 204
    answer = await waiting
    assert (answer.status_code, answer.json()["undone"], answer.json()["remaining"]) == (202, True, ["0_0", "0_1"])
    again = await api.call("POST", f"{drain}?wait_ms=5000&only_wait=true")
    assert (again.status_code, again.json()["undone"]) == (202, True)
    assert (await api.call("GET", "/orders/members/m1")).json()["draining"] is False
    assert (await api.call("POST", drain)).json()["drained"] is False
    under_way = await api.call("POST", f"{drain}?wait_ms=10&only_wait=true")
    assert (under_way.status_code, "undone" in under_way.json()) == (202, False)
    absent = await api.call("POST", "/orders/members/nobody/drain?only_wait=true")
    assert absent.json()["type"] == "unknown-member"


@pytest.mark.parametrize("name", ["a%20b", "x" * 256, "tab%09"])
async def test_a_name_that_cannot_stand_in_a_path_is_refused(api: Api, name: str) -> None:
    for method, path in (("PUT", f"/orders/members/{name}"), ("POST", f"/orders/members/{name}/heartbeat")):
        answer = await api.call(method, path, {})
        assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "path.member")
    answer = await api.call("PUT", f"/{name}", {})
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "path.group")


async def test_the_store_being_away_is_503_and_says_when_to_come_again(api: Api) -> None:
    await run_both_tasks(api)
    api.log.refuse = True
    answer = await api.join("m2")
    assert (answer.status_code, answer.json()["type"], answer.json()["action"]) == (503, "store-unavailable", "retry")
    assert answer.json()["retry_after_ms"] > 0
    assert (await api.beat("m1", 3, 2)).status_code == 200
    api.log.refuse = False
    assert (await api.join("m2")).status_code == 201
