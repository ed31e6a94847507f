"""What can be read of a group says where it stands, and what is written out can be read in again."""

import asyncio
import json
from dataclasses import replace
from typing import Any

from tests.api.conftest import Api

from batonpass.codec.snapshots import read_snapshot, write_snapshot
from batonpass.codec.views import group_body, member_body
from batonpass.core.handover.copies import HeldBack
from batonpass.core.handover.view import View
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.model import ActiveState, Group, Member
from batonpass.core.state.pmap import PMap
from batonpass.core.state.reasons import Held
from batonpass.core.state.soft import MeasuredReport, MemberSoft, Soft, TaskReport
from batonpass.explain.health import describe

RUNNING = {"role": "active", "state": "running"}
EVERYTHING = TaskReport(
    role="warmup",
    state=ActiveState.RESTORING,
    lag=2,
    positions=(("", 7),),
    end_offsets=(("", 9),),
    lost=True,
    input_lag=3,
    detail="why",
    final_position=(("", 8),),
    token=4,
    disk_bytes=10,
    load=0.5,
)
SHOWN_ELSEWHERE = {
    "lag": "the member shows the lag that the coordinator measured",
    "end_offsets": "a part of that lag",
    "final_position": "only with a confirmation; the history of the task has it",
    "token": "the assignment has it",
}
"""What a report may have that is not among what a member last reported."""


async def begin_handover(api: Api) -> str:
    """Bring m1 to run both tasks and m2 to warm up one of them; return that task."""
    await api.declare(session_timeout_ms=45_000)
    epoch = (await api.join("m1")).json()["member_epoch"]
    await api.beat("m1", 1, epoch, {"0_0": RUNNING, "0_1": RUNNING})
    await api.join("m2", capacity=1, client_tags={"zone": "a"}, instance_id="orders-1", endpoint="http://m2")
    await asyncio.sleep(0.02)
    (task,) = (await api.assignment("m2", 0)).json()["assignment"]["warmup"]
    await api.beat("m2", 1, 1, {})
    assignment = (await api.assignment("m2", 0)).json()
    await api.beat("m2", 2, assignment["member_epoch"], {task: {"role": "warmup", "position": 10, "end_offset": 900}})
    return str(task)


async def test_a_group_shows_where_it_stands(api: Api) -> None:
    declared = await api.declare(max_warmup_replicas=3)
    empty = (await api.call("GET", "/orders")).json()
    assert (empty["state"], empty["members"], empty["tasks"], empty["held_back"]) == ("empty", 0, 2, [])
    await api.call("DELETE", "/orders")
    task = await begin_handover(api)
    answer = await api.call("GET", "/orders")
    body = answer.json()
    assert answer.headers["etag"] != declared.headers["etag"]
    named = [
        "group",
        "state",
        "group_epoch",
        "generation",
        "topology",
        "config",
        "members",
        "tasks",
        "paused",
        "at_rest",
        "warmups",
        "moves_pending",
        "eta_ms",
        "next_probe_at",
        "held_back",
    ]
    assert [name for name in named if name not in body] == []
    assert (body["group"], body["state"], body["members"], body["tasks"]) == ("orders", "balancing", 2, 2)
    assert (body["warmups"], body["moves_pending"], body["at_rest"], body["held_back"]) == (1, 1, False, [])
    assert body["next_probe_at"].endswith("Z")
    assert body["config"]["acceptable_recovery_lag"] == 100
    assert task in {"0_0", "0_1"}


def test_a_group_lists_so_many_moves_that_are_held_back_and_counts_them_all() -> None:
    """A large group that waits for slots is described in a body of bounded size."""
    group = Group(GroupId("g"))
    status, health = describe(View(group, Soft(), 0))
    held = [HeldBack(TaskId(f"0_{number}"), MemberId("m"), Held.WARMUP_BUDGET) for number in range(2_000)]
    held[0] = held[0]._replace(reason=Held.STALLED)
    body = group_body(group, replace(status, held_back=tuple(held)), health, ())
    assert [one["task"] for one in body["held_back"]] == [one.task for one in held[:1_000]]
    assert body["held_back_by_reason"] == {"warmup-budget": 1_999, "warmup-stalled": 1}


async def test_what_a_group_shows_can_be_declared_again(api: Api) -> None:
    await api.declare()
    shown = await api.call("GET", "/orders")
    body = {name: shown.json()[name] for name in ("topology", "config")}
    again = await api.call("PUT", "/orders", body, headers={"If-Match": shown.headers["etag"]})
    assert again.status_code == 200
    after = await api.call("GET", "/orders")
    assert {name: after.json()[name] for name in body} == body
    assert after.json()["group_epoch"] == shown.json()["group_epoch"]


async def test_why_a_group_is_not_ready_or_paused_is_said(api: Api) -> None:
    topology = {"subtopologies": [{"id": "0", "source_topics": ["orders"]}]}
    created = await api.call("PUT", "/orders", {"topology": topology, "config": {"session_timeout_ms": 4_000}} | {})
    assert created.status_code == 422
    config = {"session_timeout_ms": 4_000, "heartbeat_interval_ms": 1_000}
    created = await api.call("PUT", "/orders", {"topology": topology, "config": config})
    assert (created.status_code, created.json()["state"]) == (201, "not-ready")
    assert "orders" in created.json()["detail"]
    assert "coordinator leases" in created.json()["warnings"][0]
    await api.call("DELETE", "/orders")
    await api.declare()
    await api.join("m1")
    await api.call(
        "POST", "/orders/pause", {"scope": "all", "reason": "move house", "expires_at": "2100-01-01T00:00:00Z"}
    )
    paused = (await api.call("GET", "/orders")).json()
    assert (paused["state"], paused["paused"], paused["detail"]) == ("paused", True, "move house")
    since = "2027-01-15T08:00:00.000Z"
    pause = {"scope": "all", "reason": "move house", "since": since, "expires_at": "2100-01-01T00:00:00.000Z"}
    assert paused["pause"] == pause
    assert paused["warnings"] == []
    assert (await api.beat("m1", 1, 1)).json()["status"][0]["code"] == "group-paused"


async def test_groups_and_members_come_in_pages(api: Api) -> None:
    topology = {"subtopologies": [{"id": "0", "partitions": 1}]}
    for name in ("b", "a", "c"):
        await api.call("PUT", f"/{name}", {"topology": topology})
    first = (await api.call("GET", "?limit=2")).json()
    assert ([group["group"] for group in first["groups"]], first["next"]) == (["a", "b"], "b")
    second = (await api.call("GET", f"?limit=2&after={first['next']}")).json()
    assert ([group["group"] for group in second["groups"]], second["next"]) == (["c"], None)
    for name in ("m2", "m1", "m3"):
        await api.call("PUT", f"/a/members/{name}")
    members = (await api.call("GET", "/a/members?limit=2")).json()
    assert ([member["member_id"] for member in members["members"]], members["next"]) == (["m1", "m2"], "m2")
    rest = (await api.call("GET", "/a/members?after=m2")).json()
    assert ([member["member_id"] for member in rest["members"]], rest["next"]) == (["m3"], None)
    assert (await api.call("GET", "?limit=0")).status_code == 422


async def test_a_member_shows_what_it_has_and_said(api: Api) -> None:
    task = await begin_handover(api)
    body = (await api.call("GET", "/orders/members/m2")).json()
    assert (body["member_id"], body["instance_id"], body["client_tags"]) == ("m2", "orders-1", {"zone": "a"})
    assert (body["state"], body["draining"], body["suspected"]) == ("stable", False, False)
    assert body["assignment"]["warmup"] == [task]
    assert (body["reports"][task]["lag"], body["reports"][task]["position"]) == (890, 10)
    missing = await api.call("GET", "/orders/members/m9")
    assert (missing.status_code, missing.json()["type"]) == (404, "unknown-member")
    assert (await api.call("GET", "/other/members/m1")).json()["type"] == "unknown-group"


def test_a_member_shows_every_field_of_its_report() -> None:
    less = {name: EVERYTHING._replace(**{name: TaskReport("none")._asdict()[name]}) for name in TaskReport._fields}

    def shown(report: TaskReport) -> Any:
        measured = MeasuredReport(report, at_ms=0, lag=2)
        soft = Soft(members=PMap({MemberId("m1"): MemberSoft(0, reports={TaskId("0_0"): measured})}))
        return member_body(View(Group(GroupId("g")), soft, 0), Member(MemberId("m1"), joined_ms=0), frozenset())

    unseen = {name for name in less if shown(less[name]) == shown(EVERYTHING)}
    assert unseen == SHOWN_ELSEWHERE.keys()


async def test_the_three_assignments_show_a_move_under_way(api: Api) -> None:
    task = await begin_handover(api)
    body = (await api.call("GET", "/orders/assignment")).json()
    assert task in body["target"]["m2"]["active"]
    assert task in body["intermediate"]["m1"]["active"]
    assert body["intermediate"]["m2"]["warmup"] == [task]
    assert body["current"]["m2"] == {"active": [], "standby": [], "warmup": [task]}
    assert body["revoking"] == {}
    await api.beat("m2", 3, 2, {task: {"role": "warmup", "lag": 0}})
    assert (await api.call("GET", "/orders/assignment")).json()["revoking"] == {"m1": [task]}


async def test_a_member_is_safe_to_stop_when_its_tasks_are(api: Api) -> None:
    """Protocol 9.3."""
    await begin_handover(api)
    refused = await api.call("GET", "/orders/members/m1/safe-to-stop")
    assert (refused.status_code, refused.json()["type"], refused.json()["action"]) == (409, "not-safe-to-stop", "retry")
    assert [fault["path"] for fault in refused.json()["errors"]] == ["0_0", "0_1"]
    assert (await api.call("GET", "/orders/members/m2/safe-to-stop")).status_code == 200


async def test_a_snapshot_of_a_live_group_is_one_that_can_be_planned(api: Api) -> None:
    await begin_handover(api)
    written = await api.call("GET", "/orders/snapshot")
    assert written.status_code == 200
    snapshot = read_snapshot(written.content)
    assert json.loads(json.dumps(write_snapshot(snapshot))) == written.json()


async def test_a_plan_shows_what_would_move_and_moves_nothing(api: Api) -> None:
    """Protocol 12.6."""
    await api.declare(partitions=4)
    epoch = (await api.join("m1")).json()["member_epoch"]
    await api.beat("m1", 1, epoch, {f"0_{number}": RUNNING for number in range(4)})
    before = (await api.call("GET", "/orders/snapshot")).json()
    answer = await api.call("POST", "/orders/plan", {"join": [{"capacity": 1, "count": 1}]})
    body: Any = answer.json()
    assert (answer.status_code, body["moves"], body["lower_bound"]) == (200, 2, 2)
    assert body["balance"] == {"before": {"least": 4.0, "most": 4.0}, "after": {"least": 2.0, "most": 2.0}}
    assert sorted(body["assignment"]) == ["join-1", "m1"]
    assert (await api.call("GET", "/orders/snapshot")).json() == before
    stranger = await api.call("POST", "/orders/plan", {"drain": ["m9"]})
    assert (stranger.status_code, stranger.json()["errors"][0]["path"]) == (422, "drain[0]")
    typo = await api.call("POST", "/orders/plan", {"joins": []})
    assert (typo.status_code, typo.json()["errors"][0]["path"]) == (422, "joins")
