"""Looking back: generations with their difference, the audit trail, a task's runs; and where a task is served."""

from typing import Any

import pytest
from tests.api.conftest import Api
from tests.api.test_views import RUNNING, begin_handover


async def hand_over(api: Api) -> tuple[str, str]:
    """Hand one of two tasks over from m1 to m2, which needs 400 ms to run it; return that task, and the other one."""
    task = await begin_handover(api)
    other = "0_1" if task == "0_0" else "0_0"
    api.clock.at_ms += 1_000
    await api.beat("m2", 3, 2, {task: {"role": "warmup", "position": 900, "end_offset": 900}})
    answer = (await api.assignment("m1", 2)).json()
    assert [one["task"] for one in answer["assignment"]["active"]] == [other]
    api.clock.at_ms += 100
    await api.beat("m1", 2, answer["member_epoch"], {other: RUNNING, task: {"role": "standby", "lag": 0}})
    granted = (await api.assignment("m2", 2)).json()
    api.clock.at_ms += 400
    await api.beat("m2", 4, granted["member_epoch"], {task: RUNNING})
    return task, other


async def test_generations_come_newest_first_and_whole_by_number(api: Api) -> None:
    """Protocol 2.6."""
    task, _ = await hand_over(api)
    listed = (await api.call("GET", "/orders/generations")).json()
    assert [one["generation"] for one in listed["generations"]] == [2, 1]
    assert listed["next"] is None
    assert "diff" not in listed["generations"][0]
    first_page = (await api.call("GET", "/orders/generations?limit=1")).json()
    assert ([one["generation"] for one in first_page["generations"]], first_page["next"]) == ([2], 2)
    second_page = (await api.call("GET", "/orders/generations?limit=1&before=2")).json()
    assert ([one["generation"] for one in second_page["generations"]], second_page["next"]) == ([1], None)
    one = (await api.call("GET", "/orders/generations/2")).json()
    assert (one["triggers"], one["moves"], one["lower_bound"], one["members"]) == (["join"], 1, 1, 2)
    assert one["imbalance"] == {"before": 2.0, "after": 0.0}
    assert [(line["task"], line["from"], line["to"]) for line in one["diff"]] == [(task, "m1", "m2")]


@pytest.mark.parametrize(("number", "status"), [("3", 404), ("x", 422), ("-1", 422), ("1" * 30, 422), ("0", 404)])
async def test_a_generation_that_is_not_there_is_said_not_to_be(api: Api, number: str, status: int) -> None:
    await api.declare()
    assert (await api.call("GET", f"/orders/generations/{number}")).status_code == status


async def test_every_command_leaves_a_row_in_the_audit_trail(api: Api) -> None:
    """Protocol 1.5 and protocol 1.12."""
    await api.declare()
    await api.join("m1")
    await api.call("POST", "/orders/pause?reason=deploy", headers={"X-Request-Id": "abc-1"})
    await api.call("POST", "/orders/probe", {"reason": "look"})
    await api.call("POST", "/orders/members/m1/drain", {"reason": "node goes"})
    rows = (await api.call("GET", "/orders/commands")).json()["commands"]
    assert [(row["command"], row["reason"]) for row in rows] == [
        ("drain", "node goes"),
        ("probe", "look"),
        ("pause", "deploy"),
        ("declare", ""),
    ]
    assert rows[2]["cause"] == "abc-1"
    assert rows[0]["subject"] == {"member_id": "m1"}
    positions = [row["position"] for row in rows]
    assert positions == sorted(positions, reverse=True)
    page = (await api.call("GET", "/orders/commands?limit=3")).json()
    assert page["next"] == positions[2]
    rest = (await api.call("GET", f"/orders/commands?before={page['next']}")).json()
    assert ([row["command"] for row in rest["commands"]], rest["next"]) == (["declare"], None)
    everywhere = (await api.client.get("/v1/commands?limit=1")).json()
    assert [row["position"] for row in everywhere["commands"]] == positions[:1]


async def test_a_task_shows_its_runs_and_its_changes(api: Api) -> None:
    task, _ = await hand_over(api)
    body = (await api.call("GET", f"/orders/tasks/{task}")).json()
    assert (body["state"], body["owner"], body["endpoint"], body["target"]) == ("running", "m2", "http://m2", "m2")
    assert (body["fencing_token"], body["stopped"], body["held_back"]) == (2, None, None)
    newest, oldest = body["runs"]
    assert (newest["member"], newest["warm"], newest["gap_ms"], newest["ended"]) == ("m2", True, 400, None)
    assert (oldest["member"], oldest["ended"], oldest["gap_ms"]) == ("m1", "revoked", None)
    assert oldest["stopped_at"] == newest["granted_at"] < newest["running_at"]
    changes = [(row["member"], row["kind"], row["role"], row["state"]) for row in body["history"]]
    assert changes.index(("m2", "reported", "active", "running")) < changes.index(("m2", "granted", "active", None))
    assert changes[-1] == ("m1", "granted", "active", None)
    assert len((await api.call("GET", f"/orders/tasks/{task}?limit=2")).json()["history"]) == 2


async def test_a_route_says_who_serves_a_task_and_who_stands_by(api: Api) -> None:
    task, other = await hand_over(api)
    route = (await api.call("GET", f"/orders/tasks/{task}/route")).json()
    assert route["active"] == {"member": "m2", "endpoint": "http://m2", "state": "running", "fencing_token": 2}
    shown = await api.call("GET", "/orders")
    body = {"config": {"num_standby_replicas": 1}}
    await api.call("PUT", "/orders", body, headers={"If-Match": shown.headers["etag"]})
    await api.beat("m1", 3, 4, {other: RUNNING})
    assignment = (await api.assignment("m1", 4)).json()
    assert assignment["assignment"]["standby"] == [task]
    reports = {other: RUNNING, task: {"role": "standby", "lag": 5_000}}
    await api.beat("m1", 4, assignment["member_epoch"], reports)
    route = (await api.call("GET", f"/orders/tasks/{task}/route")).json()
    assert route["standbys"] == [{"member": "m1", "endpoint": None, "lag": 5_000, "caught_up": False}]
    await api.call("DELETE", "/orders/members/m2")
    await api.call("DELETE", "/orders/members/m1")
    assert (await api.call("GET", f"/orders/tasks/{task}/route")).json()["active"] is None


async def test_a_task_explains_itself(api: Api) -> None:
    task = await begin_handover(api)
    api.clock.at_ms += 1_000
    await api.beat("m2", 3, 2, {task: {"role": "warmup", "position": 90, "end_offset": 900}})
    body = (await api.call("GET", f"/orders/tasks/{task}/explain")).json()
    assert (body["state"], body["owner"], body["target"]) == ("warming", "m1", "m2")
    assert body["waits_for"] == [
        {
            "what": "warmup",
            "member": "m2",
            "instance_id": "orders-1",
            "endpoint": "http://m2",
            "until": None,
            "eta_ms": 8_875,
            "detail": "810 records behind",
        }
    ]
    assert body["last_run"]["member"] == "m1"
    placed = body["last_placement"]
    assert (placed["generation"], placed["triggers"], placed["from"], placed["to"]) == (2, ["join"], "m1", "m2")
    assert placed["why"] == "balance"
    assert body["sentences"][1] == "It belongs to m2."


async def test_a_group_explains_why_it_is_not_at_rest(api: Api) -> None:
    task = await begin_handover(api)
    body = (await api.call("GET", "/orders/explain")).json()
    assert (body["state"], body["at_rest"], body["waiting_total"]) == ("balancing", False, 1)
    assert body["budgets"]["warmups"] == {"used": 1, "limit": 2}
    assert [one["task"] for one in body["waiting"]] == [task]
    assert body["tasks"] == {"running": 1, "warming": 1}
    assert body["sentences"][0] == "1 task still to move, 1 warming up. All 2 tasks run."
    assert body["next_probe_at"] is not None
    assert (await api.call("GET", "/orders/explain?limit=0")).status_code == 422


async def test_what_is_not_there_is_said_not_to_be(api: Api) -> None:
    for path in ("generations", "generations/1", "commands", "events", "explain", "tasks/0_0", "tasks/0_0/route"):
        answer = await api.call("GET", f"/orders/{path}")
        assert (answer.status_code, answer.json()["type"]) == (404, "unknown-group"), path
    await api.declare()
    for path in ("tasks/0_9", "tasks/0_9/route", "tasks/0_9/explain", "tasks/x"):
        assert (await api.call("GET", f"/orders/{path}")).status_code == 404, path
    for path in ("generations?befor=1", "commands?x=1", "events?x=1", "explain?x=1", "tasks/0_0/route?x=1"):
        answer = await api.call("GET", f"/orders/{path}")
        assert (answer.status_code, answer.json()["errors"][0]["path"][:6]) == (422, "query."), path


async def test_a_deleted_group_can_still_be_looked_back_at(api: Api) -> None:
    await hand_over(api)
    await api.call("DELETE", "/orders?force=true&reason=done")
    assert len((await api.call("GET", "/orders/generations")).json()["generations"]) == 2
    rows: Any = (await api.call("GET", "/orders/commands")).json()["commands"]
    assert (rows[0]["command"], rows[0]["reason"]) == ("delete", "done")
    assert (await api.call("GET", "/orders/explain")).status_code == 404


async def test_lags_of_a_time_that_is_none_are_refused(api: Api) -> None:
    await api.declare()
    now = "2026-11-20T03:04:05Z"
    found = await api.call("GET", f"/orders/lags?since={now}")
    assert (found.status_code, found.json()) == (200, {"lags": []}), "no samples are kept here"
    beyond = ("since=0001-01-01T00:00:00%2B14:00", f"since={now}&until=9999-12-31T23:59:59-14:00")
    for asked in (f"since={now}&until={now}", "since=yesterday", "limit=3", f"since={now[:-1]}", *beyond):
        assert (await api.call("GET", f"/orders/lags?{asked}")).status_code == 422, asked
    assert (await api.call("GET", f"/nobody/lags?since={now}")).status_code == 404
