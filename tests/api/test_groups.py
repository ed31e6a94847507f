"""Groups are declared, changed and deleted, and operators' commands taken, as the protocol says (2, 12)."""

import asyncio
from typing import Any

import pytest
from tests.api.conftest import GROUPS_MAX, Api

PROBLEM = "application/problem+json"
TOPOLOGY = {"epoch": 1, "subtopologies": [{"id": "0", "partitions": 2, "changelog_topics": ["store"]}]}


def weighed(weights: dict[str, Any]) -> dict[str, Any]:
    """Return a part of two partitions with weights of tasks."""
    return {"id": "0", "partitions": 2, "changelog_topics": ["store"], "task_weights": weights}


async def test_a_group_is_created_once_and_changed_under_its_etag(api: Api) -> None:
    """Protocol 2.1."""
    created = await api.call("PUT", "/orders", {"topology": TOPOLOGY})
    assert created.status_code == 201
    etag = created.headers["etag"]
    without = await api.call("PUT", "/orders", {"config": {"max_warmup_replicas": 4}})
    assert (without.status_code, without.json()["type"]) == (428, "precondition-required")
    for wrong in ('"99"', "W/" + etag, "nonsense", '"99", "98"'):
        answer = await api.call("PUT", "/orders", {"config": {}}, headers={"If-Match": wrong})
        assert (answer.status_code, answer.json()["type"]) == (412, "precondition-failed"), wrong
    body = {"config": {"max_warmup_replicas": 4}}
    changed = await api.call("PUT", "/orders", body, headers={"If-Match": etag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != etag
    for right in ("*", f'"77", {changed.headers["etag"]}'):
        answer = await api.call("PUT", "/orders", {"config": {}}, headers={"If-Match": right})
        assert answer.status_code == 200, right


@pytest.mark.parametrize(
    ("body", "kind", "paths"),
    [
        (b"{", "invalid-request", ["body"]),
        ({"topolgy": {}}, "invalid-request", ["topolgy"]),
        ({"topology": {"epoch": -1}}, "invalid-topology", ["topology.epoch"]),
        (
            {"topology": {"subtopologies": [{"id": "0", "partitions": 0}, {"colour": "red"}]}},
            "invalid-topology",
            [
                "topology.subtopologies[0].partitions",
                "topology.subtopologies[1].id",
                "topology.subtopologies[1].colour",
            ],
        ),
        (
            {"topology": {"subtopologies": [{"id": "0", "partitions": 1}, {"id": "0", "partitions": 1}]}},
            "invalid-topology",
            ["topology.subtopologies[1].id"],
        ),
        *(
            (
                {
                    "topology": {
                        "subtopologies": [
                            {"id": "0", topics: first},
                            {"id": "1", topics: second},
                        ]
                    }
                },
                "invalid-topology",
                [f"topology.subtopologies[{number}].{topics}"],
            )
            for topics in ("source_topics", "changelog_topics")
            for number, first, second in ((1, ["store"], ["other", "store"]), (0, ["store", "store"], []))
        ),
        (
            {"topology": {"subtopologies": [weighed({"0_0": 0, "0_1": 1_000_001, "0_00": "heavy", "nonsense": 1})]}},
            "invalid-topology",
            [f"topology.subtopologies[0].task_weights.{task}" for task in ("0_0", "0_1", "0_00", "nonsense")],
        ),
        (
            {"topology": {"subtopologies": [weighed({"0_0": 1, "0_2": 1, "1_0": 1, "0_00": 1})]}},
            "invalid-topology",
            [f"topology.subtopologies[0].task_weights.{task}" for task in ("0_2", "1_0", "0_00")],
        ),
        ({"topology": TOPOLOGY, "config": {"colour": "red"}}, "invalid-config", ["config.colour"]),
        ({"topology": TOPOLOGY, "config": []}, "invalid-config", ["config"]),
        (
            {"topology": TOPOLOGY, "config": {"session_timeout_ms": 1, "max_warmup_replicas": "0%"}},
            "invalid-config",
            ["config.session_timeout_ms", "config.max_warmup_replicas"],
        ),
        (
            {"topology": TOPOLOGY, "config": {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 3_000}},
            "invalid-config",
            ["config.session_timeout_ms"],
        ),
    ],
)
async def test_a_bad_declaration_is_refused_with_every_fault(api: Api, body: Any, kind: str, paths: list[str]) -> None:
    answer = await api.call("PUT", "/orders", body)
    assert (answer.status_code, answer.json()["type"], answer.json()["action"]) == (422, kind, "fix")
    assert sorted(fault["path"] for fault in answer.json()["errors"]) == sorted(paths)
    assert (await api.join("m1")).json()["type"] == "unknown-group"


async def test_a_topology_never_goes_back(api: Api) -> None:
    """Protocol 2.2."""
    etag = (await api.declare(partitions=4)).headers["etag"]
    fewer = {"epoch": 2, "subtopologies": [{"id": "0", "partitions": 3, "changelog_topics": ["store"]}]}
    for topology in (fewer, TOPOLOGY | {"epoch": 0}):
        answer = await api.call("PUT", "/orders", {"topology": topology}, headers={"If-Match": etag})
        assert (answer.status_code, answer.json()["type"]) == (422, "invalid-topology")


async def actives_at(api: Api, generation: int) -> dict[str, list[str]]:
    """Return which actives each member of ``orders`` is to have by a generation that is on its way."""
    async with asyncio.timeout(5):
        while (await api.call("GET", "/orders")).json()["generation"] < generation:
            await asyncio.sleep(0.01)
    target = (await api.call("GET", "/orders/assignment")).json()["target"]
    return {member: roles["active"] for member, roles in target.items()}


async def test_the_heaviest_tasks_on_the_smallest_members_are_a_load_that_json_has(api: Api) -> None:
    """A load divided by a capacity would be infinite otherwise, which JSON writes as null."""
    part = {"id": "0", "partitions": 3, "weight": 1_000_000, "changelog_topics": ["store"]}
    config = {"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0}
    await api.call("PUT", "/orders", {"topology": {"subtopologies": [part]}, "config": config})
    for member in ("m1", "m2"):
        await api.join(member, capacity=0.000_001)
    await actives_at(api, 2)
    newest = (await api.call("GET", "/orders/generations")).json()["generations"][0]
    assert newest["imbalance"]["after"] == 1e12


async def test_a_heavy_task_weighs_what_it_is_declared_to_weigh(api: Api) -> None:
    etag = (await api.declare(partitions=8)).headers["etag"]
    part = {"id": "0", "partitions": 8, "changelog_topics": ["store"]}
    heavy = {"topology": {"epoch": 1, "subtopologies": [part | {"task_weights": {"0_3": 5.0}}]}}
    changed = await api.call("PUT", "/orders", heavy, headers={"If-Match": etag})
    assert changed.json()["topology"]["subtopologies"][0]["task_weights"] == {"0_3": 5.0}
    epoch = (await api.join("m1")).json()["member_epoch"]
    tasks = {f"0_{number}": {"role": "active", "state": "running"} for number in range(8)}
    await api.beat("m1", 1, epoch, tasks)
    await api.join("m2")
    # Six and six: the heavy task and one of the others.
    assert "0_3" in (await actives_at(api, 2))["m2"]
    assert len((await actives_at(api, 2))["m2"]) == 2
    assert (await api.call("GET", "/orders/tasks/0_3/explain")).json()["weight"] == 5.0
    assert (await api.call("GET", "/orders/snapshot")).json()["tasks"][3]["weight"] == 5.0
    equal = {"topology": {"epoch": 1, "subtopologies": [part]}}
    await api.call("PUT", "/orders", equal, headers={"If-Match": changed.headers["etag"]})
    assert sorted(map(len, (await actives_at(api, 3)).values())) == [4, 4]


async def test_why_a_group_was_declared_is_noted(api: Api) -> None:
    await api.call("PUT", "/orders?reason=query", {"topology": TOPOLOGY, "reason": "body"})
    await api.call("PUT", "/clicks?reason=query", {"topology": TOPOLOGY})
    assert [asked.reason for _, asked in api.commands] == ["body", "query"]


async def test_only_an_empty_group_is_deleted_unless_forced(api: Api) -> None:
    assert (await api.call("DELETE", "/orders")).status_code == 404
    await api.declare()
    await api.join("m1")
    refused = await api.call("DELETE", "/orders")
    assert (refused.status_code, refused.json()["type"]) == (409, "group-not-empty")
    assert (await api.call("DELETE", "/orders?force=true")).status_code == 204
    assert (await api.beat("m1", 1, 1)).json()["type"] == "unknown-group"


async def test_names_that_were_never_declared_take_no_room(api: Api) -> None:
    for number in range(20):
        assert (await api.call("GET", f"/no{number}/members/m1/assignment")).status_code == 404
        assert (await api.call("DELETE", f"/no{number}")).status_code == 404
    for number in range(5):
        assert (await api.call("PUT", f"/g{number}", {"topology": TOPOLOGY})).status_code == 201
    full = await api.call("PUT", "/g5", {"topology": TOPOLOGY})
    assert (full.status_code, full.json()["type"]) == (429, "limit-exceeded")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/probe", None),
        ("POST", "/pause", None),
        ("POST", "/pause", {"scope": "all", "reason": "move house", "expires_at": "2030-01-01T00:00:00Z"}),
        ("POST", "/resume", {"reason": "done"}),
        ("PUT", "/tasks/0_0/pin", {"member": "m1"}),
        ("DELETE", "/tasks/0_0/pin", None),
        ("POST", "/tasks/0_0/release", None),
    ],
)
async def test_a_command_is_204_and_is_noted_with_its_reason(api: Api, method: str, path: str, body: Any) -> None:
    """Protocol 1.5 and protocol 12.3."""
    await api.declare()
    await api.join("m1")
    answer = await api.call(method, f"/orders{path}?reason=why", body)
    assert (answer.status_code, answer.content) == (204, b"")
    group, asked = api.commands[-1]
    assert (group, asked.who, asked.reason) == ("orders", "127.0.0.1", (body or {}).get("reason", "why"))
    unknown = await api.call(method, f"/other{path}", body)
    assert (unknown.status_code, unknown.json()["type"]) == (404, "unknown-group")


@pytest.mark.parametrize(
    ("method", "path", "body", "fault"),
    [
        ("POST", "/probe?colour=red", None, "query.colour"),
        ("POST", "/probe", {"colour": "red"}, "colour"),
        ("POST", "/pause", {"scope": "everything"}, "scope"),
        ("POST", "/pause", {"expires_at": "tomorrow"}, "expires_at"),
        ("POST", "/pause", {"expires_at": "2030-01-01T00:00:00"}, "expires_at"),
        ("PUT", "/tasks/0_0/pin", {}, "member"),
        ("PUT", "/tasks/0_0/pin", {"member": "m1", "colour": "red"}, "colour"),
        ("DELETE", "?force=perhaps", None, "query.force"),
        ("DELETE", "/members/m1?mode=vanish", None, "query.mode"),
        ("GET", "/members/m1/assignment?after=-1", None, "query.after"),
        ("GET", "/members/m1/assignment?wait_ms=300001", None, "query.wait_ms"),
        ("GET", "/members/m1/assignment?wait=1", None, "query.wait"),
        ("POST", "/members/m1/drain?deadline_ms=soon", None, "query.deadline_ms"),
        ("POST", "/members/m1/evict?dead=maybe", None, "query.dead"),
    ],
)
async def test_a_typo_of_an_operator_is_seen(api: Api, method: str, path: str, body: Any, fault: str) -> None:
    await api.declare()
    await api.join("m1")
    asked = len(api.commands)
    answer = await api.call(method, f"/orders{path}", body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, PROBLEM)
    assert [error["path"] for error in answer.json()["errors"]] == [fault]
    assert len(api.commands) == asked


async def test_what_is_not_served_is_a_problem_too(api: Api) -> None:
    missing = await api.client.get("/v1/nothing")
    assert (missing.status_code, missing.headers["content-type"], missing.json()["status"]) == (404, PROBLEM, 404)
    await api.declare()
    for method, path, allowed in (
        ("PATCH", "/orders", {"PUT", "DELETE"}),
        ("GET", "/orders/members/m1/heartbeat", {"POST"}),
        ("POST", "/orders/members/m1/assignment", {"GET"}),
        ("PUT", "/orders/members/m1/drain", {"POST", "DELETE"}),
    ):
        answer = await api.call(method, path)
        assert (answer.status_code, answer.json()["type"]) == (405, "method-not-allowed"), path
        assert allowed <= set(answer.headers["allow"].split(", "))


async def test_health_says_that_the_loop_turns_and_the_groups_are_read(api: Api) -> None:
    live = await api.client.get("/livez")
    assert (live.status_code, live.json()["loop_age_ms"]) == (200, 0.0)
    assert (await api.client.get("/readyz")).status_code == 200
    api.coordinator.is_ready = False
    ready = await api.client.get("/readyz")
    assert (ready.status_code, bool(ready.json()["reasons"])) == (503, True)


async def test_a_group_that_was_deleted_takes_no_place(api: Api) -> None:
    """Else a coordinator on which groups come and go refuses new ones for ever, at last with none there."""
    await api.declare()
    topology = {"topology": {"subtopologies": [{"id": "0", "partitions": 2}]}}
    for number in range(2 * GROUPS_MAX):
        assert (await api.call("PUT", f"/passing-{number}", topology)).status_code == 201, number
        assert (await api.call("PUT", f"/passing-{number}/members/m1", {})).status_code == 201
        assert (await api.call("DELETE", f"/passing-{number}?force=true")).status_code == 204
    beat = ("POST", "/passing-0/members/m1/heartbeat", {"seq": 1, "member_epoch": 1})
    assert (await api.call(*beat)).json()["type"] == "unknown-group"
    for number in range(GROUPS_MAX - 1):
        assert (await api.call("PUT", f"/passing-{number}", topology)).status_code == 201
    # It goes on from where it was.
    assert (await api.call(*beat)).json()["type"] == "fenced"
    assert (await api.call("PUT", "/more", topology)).status_code == 429
