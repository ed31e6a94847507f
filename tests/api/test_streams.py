"""Leaders of Kafka Streams groups ask over HTTP who is to have what."""

import threading
from typing import Any

import pytest
from tests.api.conftest import BODY_BYTES_MAX, GROUPS_MAX, Api

from batonpass.api import streams
from batonpass.codec import streams as codec_streams

RUNS = {"role": "active", "state": "running"}


def advice_body(*members: dict[str, Any], tasks: int = 4, **more: Any) -> dict[str, Any]:
    """Return what a leader says of these members and of tasks with one changelog."""
    listed = [{"id": f"0_{number}", "stateful": True, "changelog_topics": ["store"]} for number in range(tasks)]
    config = {"acceptable_recovery_lag": 100, "max_warmup_replicas": 2, "num_standby_replicas": 0}
    return {"mode": "assign", "config": config, "tasks": listed, "members": list(members)} | more


def process(name: str, **tasks: int | str) -> dict[str, Any]:
    """Return a process; ``t0_1="runs"`` is an active, ``t0_1=5`` a copy that is 5 records behind."""
    has = {task[1:]: RUNS if lag == "runs" else {"role": "none", "lag": lag} for task, lag in tasks.items()}
    return {"id": name, "capacity": 1, "tasks": has}


ALL = {"t0_0": "runs", "t0_1": "runs", "t0_2": "runs", "t0_3": "runs"}


async def test_the_first_call_makes_the_group_and_all_of_it_is_shown_as_any_other(api: Api) -> None:
    """Protocol 14.1."""
    await api.call("POST", "/app/advice", advice_body(process("a", **ALL)))
    joined = await api.call("POST", "/app/advice", advice_body(process("a", **ALL), process("b")))
    answer = joined.json()
    assert (answer["moves"], answer["lower_bound"], answer["mode"]) == (2, 2, "assign")
    assert answer["assignment"] == {
        "a": {"active": ["0_0", "0_1", "0_2", "0_3"], "standby": [], "warmup": []},
        "b": {"active": [], "standby": [], "warmup": ["0_0", "0_1"]},
    }
    assert (answer["followup_ms"], answer["followup_everyone"]) == (2_000, False)
    group = (await api.call("GET", "/app")).json()
    assert (group["members"], group["tasks"], group["warmups"], group["config"]["kafka_streams"]) == (2, 4, 2, True)
    (generation,) = [one for one in (await api.call("GET", "/app/generations")).json()["generations"] if one["moves"]]
    assert (generation["triggers"], generation["moves"], generation["lower_bound"]) == (["join"], 2, 2)
    sentences = (await api.call("GET", "/app/explain")).json()["sentences"]
    assert "The application was asked to rebalance again in 2 s; between two rebalances nothing moves." in sentences
    assert (await api.call("GET", "/app/tasks/0_0")).json()["target"] == "b"
    assert {one["member_id"] for one in (await api.call("GET", "/app/members")).json()["members"]} == {"a", "b"}


async def test_a_large_answer_is_written_beside_the_loop(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names each task, with the reason why it goes there."""
    beside: list[bool] = []

    def write(*args: Any) -> dict[str, Any]:
        beside.append(threading.current_thread() is not threading.main_thread())
        return codec_streams.advice_body(*args)

    monkeypatch.setattr(streams, "advice_body", write)
    monkeypatch.setattr(streams, "UNCOUNTED_BYTES", 0, raising=False)
    answer = await api.call("POST", "/app/advice", advice_body(process("a", **ALL)))
    assert answer.json()["assignment"]["a"]["active"] == ["0_0", "0_1", "0_2", "0_3"]
    assert beside == [True]


async def test_an_operator_is_told_that_a_drain_waits_for_the_next_rebalance(api: Api) -> None:
    await api.call(
        "POST",
        "/app/advice",
        advice_body(process("a", t0_0="runs", t0_1="runs"), process("b", t0_2="runs", t0_3="runs")),
    )
    drained = await api.call("POST", "/app/members/b/drain")
    assert (drained.status_code, drained.json()["remaining"]) == (202, ["0_2", "0_3"])
    sentences = (await api.call("GET", "/app/explain")).json()["sentences"]
    assert "What has changed since (drain) is answered at the application's next rebalance." in sentences
    a, b = {"t0_0": "runs", "t0_1": "runs"}, {"t0_2": "runs", "t0_3": "runs"}
    answer = (await api.call("POST", "/app/advice", advice_body(process("a", **a), process("b", **b)))).json()
    assert answer["assignment"]["a"]["warmup"] == ["0_2", "0_3"]
    answer = (
        await api.call("POST", "/app/advice", advice_body(process("a", **a, t0_2=0, t0_3=0), process("b", **b)))
    ).json()
    assert answer["assignment"]["b"] == {"active": [], "standby": [], "warmup": []}
    assert (answer["followup_ms"], answer["followup_everyone"]) == (150, True)
    (detail,) = [
        one["detail"] for one in (await api.call("GET", "/app/explain")).json()["members"] if one["what"] == "unrevoked"
    ]
    assert detail == "it was told to give tasks up and has not confirmed it; the application's next rebalance tells"


async def test_in_shadow_the_answer_is_shown_and_kafkas_decision_beside_it(api: Api) -> None:
    other = {
        "assignor": "HighAvailabilityTaskAssignor",
        "assignment": {"a": {"active": ["0_2", "0_3"]}},
        "followup_ms": 600_000,
    }
    body = advice_body(process("a", t0_0="runs", t0_1="runs"), process("b", t0_2="runs", t0_3="runs"), process("c"))
    answer = (await api.call("POST", "/app/advice", body | {"mode": "shadow", "other": other})).json()
    assert (answer["mode"], answer["moves"]) == ("shadow", 1)
    assert answer["assignment"]["a"]["active"] == ["0_0", "0_1"]
    shown = (await api.call("GET", "/app/generations")).json()["generations"][0]
    (reason,) = [one for one in shown["reasons"] if one["code"] == "other-assignor"]
    assert reason["detail"] == "HighAvailabilityTaskAssignor decides, and moves 2 tasks: 0_2, 0_3"
    events = (await api.call("GET", "/app/events?after=0")).json()["events"]
    assert {one["body"]["cause"] for one in events if one["type"] == "tasks-adopted"} == {"rebalance"}
    assert (await api.call("GET", "/app/explain")).json()["next_probe_at"] is None


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        (advice_body(tasks=0), ["tasks", "members"]),
        (advice_body(process("a"), process("a")), ["members[1].id"]),
        (advice_body(process("a")) | {"mode": "shadow"}, ["other"]),
        (advice_body(process("a")) | {"mode": "off"}, ["mode"]),
        (advice_body(process("a")) | {"tasks": [{"id": "0_1"}]}, ["tasks"]),
        (advice_body(process("a")) | {"tasks": [{"id": "0_0"}, {"id": f"0_{10**15}"}]}, ["tasks"]),
        (advice_body(process("a")) | {"tasks": [{"id": "0_0"}, {"id": "0_0"}]}, ["tasks[1].id"]),
        (
            advice_body(process("a")) | {"tasks": [{"id": "0_0"}, {"id": "0_1", "stateful": False}]},
            ["tasks[1].stateful"],
        ),
        (advice_body(process("a")) | {"tasks": [{"id": "zero"}]}, ["tasks[0].id"]),
        (advice_body(process("a")) | {"tasks": [{"id": "0_00"}, {"id": "0_0"}]}, ["tasks[0].id"]),
        (advice_body({"id": "a", "tasks": {"0_0": {"role": "standby"}}}), ["members[0].tasks.0_0.role"]),
        (advice_body(process("a")) | {"config": {"num_standby_replicas": "two"}}, ["config.num_standby_replicas"]),
        (b"{", ["body"]),
    ],
)
async def test_what_cannot_be_understood_is_refused_by_name(api: Api, body: Any, paths: list[str]) -> None:
    answer = await api.call("POST", "/app/advice", body)
    assert answer.status_code == 422
    assert [one["path"] for one in answer.json()["errors"]] == paths


async def test_what_a_newer_plugin_says_is_ignored(api: Api) -> None:
    """Protocol 14.1."""
    answer = await api.call("POST", "/app/advice", advice_body(process("a") | {"colour": "red"}, weather="fine"))
    assert answer.status_code == 200


async def test_a_group_is_one_of_kafka_streams_or_of_members_that_heartbeat(api: Api) -> None:
    """Protocol 14.3."""
    await api.declare()
    answer = await api.call("POST", "/orders/advice", advice_body(process("a")))
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "path.group")
    await api.call("POST", "/app/advice", advice_body(process("a", **ALL)))
    for method, path, body in (
        ("PUT", "/app/members/m1", {}),
        ("POST", "/app/members/a/heartbeat", {"seq": 9, "member_epoch": 1}),
        ("DELETE", "/app/members/a", None),
    ):
        answer = await api.call(method, path, body)
        assert (answer.status_code, answer.json()["type"]) == (422, "invalid-request"), path


async def test_another_application_is_refused_and_told_which_name_is_taken(api: Api) -> None:
    """Protocol 14.3."""
    own = {"application_id": "totals", "cluster_id": "MkU3OEVBNTcwNTJENDM2Qk"}
    assert (await api.call("POST", "/app/advice", advice_body(process("a", **ALL)) | own)).status_code == 200
    config = (await api.call("GET", "/app")).json()["config"]
    assert {name: config[name] for name in own} == own
    refused = await api.call("POST", "/app/advice", advice_body(process("x")) | own | {"cluster_id": "other"})
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "cluster_id")
    assert "'other'" in refused.json()["detail"]
    assert (await api.call("GET", "/app")).json()["members"] == 1
    etag = (await api.call("GET", "/app")).headers["etag"]
    cleared = await api.call("PUT", "/app", {"config": {"cluster_id": ""}}, headers={"if-match": etag})
    assert cleared.is_success, cleared.text
    moved = await api.call("POST", "/app/advice", advice_body(process("a", **ALL)) | own | {"cluster_id": "other"})
    assert moved.status_code == 200


REFUSED: dict[str, tuple[Any, int]] = {
    "settings": (advice_body(process("a")) | {"config": {"max_warmup_replicas": "all"}}, 422),
    "nobody": (advice_body(), 422),
    "tasks": (advice_body(process("a", **ALL), tasks=0), 422),
    "no-json": (b"{", 422),
    "too-large": (b" " * (BODY_BYTES_MAX + 1), 413),
    "too-many-tasks": (advice_body({"id": "a", "tasks": {f"0_{number}": RUNS for number in range(51)}}), 413),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("deleted", [False, True])
async def test_an_application_is_shown_that_has_no_group_because_its_first_question_was_refused(
    api: Api, kind: str, *, deleted: bool
) -> None:
    """Protocol 14.8: in the list, by itself and explained, counted, and gone when it no longer asks."""
    if deleted:
        await api.call("POST", "/app/advice", advice_body(process("a")))
        await api.call("POST", "/app/advice", b"{")
        assert (await api.call("DELETE", "/app?force=true")).status_code == 204
    assert (await api.call("GET", "/app")).status_code == 404
    body, status = REFUSED[kind]
    assert (await api.call("POST", "/app/advice", body)).status_code == status
    api.clock.at_ms += 60_000
    answer = await api.call("POST", "/app/advice", body)
    group = (await api.call("GET", "/app")).json()
    refused = group["application"]["refused"]
    assert (refused["why"], refused["times"], refused["is_another"]) == (answer.json()["detail"], 2, False)
    assert (group["state"], group["at_rest"], group["members"], group["tasks"]) == ("not-ready", False, 0, 0)
    assert refused["why"] in group["detail"]
    assert (group["health"]["level"], group["health"]["what"]) == ("trouble", "refused")
    (listed,) = (await api.client.get("/v1/groups")).json()["groups"]
    explained = (await api.call("GET", "/app/explain")).json()
    assert listed["application"] == explained["application"] == group["application"]
    assert refused["why"] in explained["sentences"][0]
    for path in ("/app/members", "/app/assignment", "/app/generations", "/app/events?after=0", "/app/snapshot"):
        assert (await api.call("GET", path)).is_success, path
    api.clock.at_ms += 106_000
    assert (await api.call("GET", "/app")).status_code == 404
    assert (await api.client.get("/v1/groups")).json()["groups"] == []


async def test_an_application_that_was_refused_begins_with_its_first_question_that_is_answered(api: Api) -> None:
    await api.call("POST", "/app/advice", b"{")
    assert (await api.call("POST", "/app/advice", advice_body(process("a", **ALL)))).status_code == 200
    group = (await api.call("GET", "/app")).json()
    assert (group["application"]["refused"], group["members"], group["tasks"]) == (None, 1, 4)
    (listed,) = (await api.client.get("/v1/groups")).json()["groups"]
    assert listed["members"] == 1


@pytest.mark.parametrize("path", ["/app", "/app?force=true"])
async def test_what_an_application_without_a_group_was_refused_is_deleted(api: Api, path: str) -> None:
    await api.call("POST", "/app/advice", b"{")
    assert (await api.call("DELETE", path)).status_code == 204
    assert (await api.call("GET", "/app")).status_code == 404
    assert (await api.call("DELETE", path)).status_code == 404


async def test_a_refused_question_makes_no_group_that_others_could_not_declare(api: Api) -> None:
    """Its name is free: for members that heartbeat too, at whose group the application is then refused as another."""
    await api.call("POST", "/orders/advice", b"{")
    assert (await api.call("PUT", "/orders", {"config": {}}, headers={"if-match": "*"})).status_code == 412
    for path in ("/orders/members/m1/drain", "/orders/pause"):
        assert (await api.call("POST", path, {})).status_code == 404, path
    assert (await api.declare()).status_code == 201
    await api.join("m1")
    group = (await api.call("GET", "/orders")).json()
    assert (group["application"], group["members"]) == (None, 1)
    await api.call("POST", "/orders/advice", advice_body(process("a")))
    explained = (await api.call("GET", "/orders/explain")).json()
    assert explained["application"] is None
    assert [one for one in explained["sentences"] if one.startswith("Another application asks under this name")]


async def test_as_many_applications_without_a_group_are_known_as_there_may_be_groups(api: Api) -> None:
    for number in range(GROUPS_MAX + 1):
        assert (await api.call("POST", f"/app-{number}/advice", b"{")).status_code == 422
    assert (await api.call("GET", "/app-0")).status_code == 200
    assert (await api.call("GET", f"/app-{GROUPS_MAX}")).status_code == 404
    page = (await api.client.get("/v1/groups?limit=2")).json()
    assert (page["next"], [one["group"] for one in page["groups"]]) == ("app-1", ["app-0", "app-1"])
    # They take no group's place; once there are as many groups as there may be, that is a refusal like any other.
    for number in range(GROUPS_MAX):
        assert (await api.call("POST", f"/app-{number}/advice", advice_body(process("a")))).status_code == 200
    assert (await api.call("POST", "/app-more/advice", advice_body(process("a")))).status_code == 429
    refused = (await api.call("GET", "/app-more")).json()["application"]["refused"]
    assert refused["why"] == f"this coordinator has {GROUPS_MAX} groups, as many as it may have"
    api.clock.at_ms += 106_000
    await api.call("POST", "/app-late/advice", b"{")
    assert (await api.call("GET", "/app-more")).status_code == 404
    assert (await api.call("GET", "/app-late")).status_code == 200


async def test_whatever_kafka_streams_takes_for_a_name_is_no_reason_to_refuse_a_rebalance(api: Api) -> None:
    """Protocol 14.7."""
    odd = process("a", **ALL) | {"name": "x" * 3_000, "endpoint": "y" * 3_000, "client_tags": {"": "1", "zone": ""}}
    said = advice_body(odd) | {"application_id": "grüße\t" + "z" * 3_000, "cluster_id": "c\u2028"}
    assert (await api.call("POST", "/app/advice", said)).status_code == 200
    assert (await api.call("POST", "/app/advice", said)).status_code == 200
    config = (await api.call("GET", "/app")).json()["config"]
    assert (config["application_id"], config["cluster_id"]) == ("grüße?" + "z" * 249, "c?")
    (member,) = (await api.call("GET", "/app/members")).json()["members"]
    assert (member["member_id"], member["endpoint"], member["client_tags"]) == ("x" * 200, None, {"zone": ""})
    assert (await api.call("POST", "/app/advice", said | {"cluster_id": "other"})).status_code == 422
    assert (await api.call("POST", "/app/advice", b"{" + b'"application_id": "o"')).status_code == 422


async def test_an_application_has_no_task_where_none_of_its_topics_is_there(api: Api) -> None:
    """Protocol 14.7."""
    answer = await api.call("POST", "/app/advice", advice_body(process("a"), tasks=0))
    assert (answer.status_code, answer.json()["assignment"]["a"]["active"]) == (200, [])
    group = (await api.call("GET", "/app")).json()
    assert (group["state"], group["application"]["refused"]) == ("not-ready", None)
    assert "no topic that the application reads is there" in group["detail"]
    answer = await api.call("POST", "/app/advice", advice_body(process("a")))
    assert len(answer.json()["assignment"]["a"]["active"]) == 4


async def test_a_process_is_called_what_people_call_it(api: Api) -> None:
    """A client id that cannot be a name, or is none, is no reason to refuse a rebalance (protocol 14.4)."""
    named = process("u1", **ALL) | {"name": "orders-a", "endpoint": "10.0.0.7:9000"}
    await api.call("POST", "/app/advice", advice_body(named, process("u2") | {"name": "two words"}, process("u3")))
    members = (await api.call("GET", "/app/members")).json()["members"]
    assert {(one["member_id"], one["instance_id"]) for one in members} == {
        ("orders-a", "u1"),
        ("u2", "u2"),
        ("u3", "u3"),
    }
    assert (await api.call("GET", "/app/tasks/0_0/route")).json()["active"]["endpoint"] == "10.0.0.7:9000"


async def test_a_question_that_is_refused_is_shown_with_its_group_until_one_is_answered(api: Api) -> None:
    """Protocol 14.8."""
    good, bad = advice_body(process("a", **ALL)), advice_body(process("a", **ALL), tasks=0)
    for _ in range(2):
        await api.call("POST", "/app/advice", good)
    heard = (await api.call("GET", "/app")).json()["application"]
    assert heard == {"last_heard_at": heard["last_heard_at"], "silent": False, "refused": None, "application_id": ""}
    for _ in range(2):
        api.clock.at_ms += 60_000
        assert (await api.call("POST", "/app/advice", bad)).status_code == 422
    group = (await api.call("GET", "/app")).json()
    refused = group["application"]["refused"]
    assert (refused["times"], refused["since"] < refused["last_at"]) == (2, True)
    assert "names no task" in refused["why"]
    assert (group["at_rest"], group["state"], refused["why"] in group["detail"]) == (False, "balancing", True)
    (listed,) = (await api.client.get("/v1/groups")).json()["groups"]
    explained = (await api.call("GET", "/app/explain")).json()
    assert listed["application"] == explained["application"] == group["application"]
    assert refused["why"] in explained["sentences"][0]
    await api.call("POST", "/app/advice", good)
    assert (await api.call("GET", "/app")).json()["application"]["refused"] is None


async def test_another_application_is_shown_as_refused_while_it_asks_and_the_first_one_stays_at_rest(api: Api) -> None:
    """Protocol 14.8; also if its question cannot be understood, and whose that is, is all that can be read."""
    good = advice_body(process("a", **ALL)) | {"application_id": "app", "cluster_id": "c-1"}
    for _ in range(2):
        await api.call("POST", "/app/advice", good)
    for bad in ({"application_id": "other"}, {"cluster_id": "c-2", "tasks": []}):
        assert (await api.call("POST", "/app/advice", good | bad)).status_code == 422
    group = (await api.call("GET", "/app")).json()
    assert (group["at_rest"], group["state"], group["detail"]) == (True, "at-rest", "")
    known = group["application"]
    assert (known["application_id"], known["refused"]["is_another"], known["refused"]["times"]) == ("app", True, 2)
    said = (await api.call("GET", "/app/explain")).json()["sentences"]
    assert said[1].startswith("Another application asks under this name, and is refused: ")
    assert (await api.client.post("/v1/groups/app/advice", content=b"{")).status_code == 422
    known = (await api.call("GET", "/app")).json()["application"]
    assert (known["refused"]["is_another"], known["refused"]["times"]) == (False, 1)


async def test_the_group_of_an_application_that_is_stopped_is_deleted_without_force(api: Api) -> None:
    """Protocol 14.8."""
    for _ in range(2):
        await api.call("POST", "/app/advice", advice_body(process("a", **ALL)))
    refused = await api.call("DELETE", "/app")
    assert (refused.status_code, refused.json()["type"]) == (409, "group-not-empty")
    assert "stop the application and wait 45 s" in refused.json()["detail"]
    api.clock.at_ms += 46_000
    assert (await api.call("GET", "/app")).json()["application"]["silent"] is True
    assert (await api.call("DELETE", "/app")).status_code == 204
    answer = (await api.call("POST", "/app/advice", advice_body(process("a"), process("b")))).json()
    assert sorted(len(roles["active"]) for roles in answer["assignment"].values()) == [2, 2]


async def test_settings_that_kafka_takes_are_taken(api: Api) -> None:
    """Protocol 14.7."""
    config = {"max_warmup_replicas": 2**31 - 1, "num_standby_replicas": 2**31 - 1, "rack_aware_tags": ["zone", "zone"]}
    answer = await api.call("POST", "/app/advice", advice_body(process("a", **ALL)) | {"config": config})
    assert answer.status_code == 200
    told = (await api.call("GET", "/app")).json()["config"]
    assert [told[name] for name in config] == [100_000, 1_000, ["zone"]]
