"""Operators' commands ask the coordinator for what they say, and show its answer to people and to scripts."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.cli.canned import Canned
from tests.core.scene import Scene
from tests.schemas.history_examples import HEALTH

from batonpass.codec.views import member_body

NO_CONTENT = (204, None)
M1, M2, M3 = "0a11-m1", "0a22-m2", "0b33-m3"


def member_example() -> dict[str, Any]:
    """Return a member as the coordinator tells of it."""
    scene = Scene()
    scene.declare()
    scene.join("m1")
    return member_body(scene.view(), scene.member("m1"), frozenset())


def member(name: str, instance: str | None, **more: Any) -> dict[str, Any]:
    """Return a member as the coordinator shows it."""
    shown: dict[str, Any] = {
        "member_id": name,
        "instance_id": instance,
        "state": "stable",
        "capacity": 1.0,
        "client_tags": {"zone": "a"},
        "last_heard_at": "2026-05-04T12:00:00.000Z",
        "disk_bytes": 12_300,
        "draining": False,
        "kept_out": None,
        "suspected": False,
        "silent": False,
        "assignment": {"active": [{"task": "0_0", "fencing_token": 3}], "standby": ["0_1"], "warmup": []},
        "revoking": [],
        "reports": {
            "0_0": {"role": "active", "state": "running", "lag": 0, "at": "2026-05-04T12:00:00.000Z"},
            "0_1": {"role": "standby", "lag": 40, "records_per_second": 12.6, "at": "2026-05-04T12:00:00.000Z"},
        },
    }
    return member_example() | shown | more


MEMBERS = [
    member(M1, "orders-1", max_disk_bytes=50_000, load=0.71234),
    member(M2, "orders-2", draining=True),
    member(M3, None),
]


def group(**more: Any) -> dict[str, Any]:
    """Return a group as the coordinator shows it."""
    part = {
        "id": "0",
        "partitions": 4,
        "stateful": True,
        "weight": 1.0,
        "source_topics": ["in"],
        "task_weights": {"0_2": 9.5},
    }
    return {
        "group": "orders",
        "state": "balancing",
        "detail": "",
        "group_epoch": 4,
        "generation": 3,
        "members": 3,
        "tasks": 4,
        "warmups": 1,
        "moves_pending": 2,
        "eta_ms": 41_000,
        "health": HEALTH | {"level": "attention"},
        "next_probe_at": None,
        "held_back": [{"task": "0_3", "to": M3, "reason": "warmup-budget"}],
        "held_back_by_reason": {"warmup-budget": 1},
        "pause": None,
        "storm_since": None,
        "kept_out": [],
        "storm_ends_at": None,
        "warnings": ["beware"],
        "topology": {"epoch": 1, "subtopologies": [part | {"changelog_topics": ["store"]}]},
        "config": {"max_warmup_replicas": 2, "acceptable_recovery_lag": 100},
    } | more


def reload(server: Canned) -> None:
    """Serve the members in two pages, from the first one on."""
    server.on(
        "GET",
        "/v1/groups/orders/members",
        (200, {"members": MEMBERS[:2], "next": M2}),
        (200, {"members": MEMBERS[2:], "next": None}),
    )
    server.on("GET", "/v1/groups/orders/events", (200, {"events": []}))


@pytest.fixture(autouse=True)
def _members(server: Canned) -> None:
    """A group of three members."""
    reload(server)


@pytest.mark.parametrize(
    ("words", "call", "query", "body"),
    [
        (["probe", "orders", "--reason", "why"], "POST /probe", {"reason": "why"}, None),
        (["resume", "orders"], "POST /resume", {}, None),
        (["pause", "orders"], "POST /pause", {}, {"scope": "balance", "reason": ""}),
        (["pause", "orders", "--all", "--reason", "x"], "POST /pause", {}, {"scope": "all", "reason": "x"}),
        (["pin", "orders", "0_1", "orders-1"], "PUT /tasks/0_1/pin", {}, {"member": M1, "reason": ""}),
        (["unpin", "orders", "0_1", "--reason", "x"], "DELETE /tasks/0_1/pin", {"reason": "x"}, None),
        (["release", "orders", "0_1"], "POST /tasks/0_1/release", {}, None),
        (["evict", "orders", "orders-2"], f"POST /members/{M2}/evict", {}, None),
        (["evict", "orders", M3, "--dead"], f"POST /members/{M3}/evict", {"dead": "true"}, None),
        # One that is gone already is in no list.
        (["evict", "orders", "9f00-gone", "--dead"], "POST /members/9f00-gone/evict", {"dead": "true"}, None),
        (["trust", "orders", "0b33"], f"POST /members/{M3}/trust", {}, None),
        (["undrain", "orders", "0b33"], f"DELETE /members/{M3}/drain", {}, None),
        (["undrain", "orders", "orders-9"], "DELETE /members/orders-9/drain", {}, None),
        (
            ["evict", "orders", "orders-2", "--until-undone", "--for", "2h"],
            f"POST /members/{M2}/evict",
            {"until_undone": "true", "for_ms": "7200000"},
            None,
        ),
        (
            ["evict", "orders", "orders-9", "--until-undone"],
            "POST /members/orders-9/evict",
            {"until_undone": "true"},
            None,
        ),
        (["groups", "delete", "orders", "--force"], "DELETE ", {"force": "true"}, None),
    ],
)
def test_each_order_is_one_call(server: Canned, words: list[str], call: str, query: dict[str, str], body: Any) -> None:
    method, path = call.split(" ")
    server.on(method, f"/v1/groups/orders{path}", NO_CONTENT)
    for as_json in (False, True):
        found = server.run(*words, *(["--json"] if as_json else []))
        assert found.exit_code == 0, found.stderr
        assert not as_json or json.loads(found.stdout)["done"] is True
        (asked,) = server.calls(method)
        assert (asked.path, asked.query, asked.body) == (f"/v1/groups/orders{path}", query, body)
        server.asked.clear()
        reload(server)


def test_a_pause_may_end_by_itself(server: Canned) -> None:
    server.on("POST", "/v1/groups/orders/pause", NO_CONTENT)
    assert server.run("pause", "orders", "--for", "30m").exit_code == 0
    assert server.asked[0].body["for_ms"] == 1_800_000


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [("orders-9", 5, "Its members are 0b33-m3, orders-1, orders-2"), ("0a", 2, "may mean any of 0a11-m1, 0a22-m2")],
)
def test_a_member_that_is_not_clear_is_refused(server: Canned, name: str, code: int, words: str) -> None:
    found = server.run("evict", "orders", name)
    assert found.exit_code == code
    assert words in found.stderr
    assert server.calls("POST") == []
    reload(server)
    error = json.loads(server.run("pin", "orders", "0_1", name, "--json").stderr)
    assert (error["exit_code"], words in error["todo"] or words in error["detail"]) == (code, True)
    assert (error["type"], error.get("status")) == (("unknown-member", 404) if code == 5 else ("failed", None))


def test_processes_of_kafka_streams_are_called_what_people_call_them(server: Canned) -> None:
    """Their instance ids are process ids, which nobody can tell apart."""
    run = member("counts-1.2", "c731eb0f-8a3b-4d6b-9a55-0f4d1c3b2a10")
    server.on("GET", "/v1/groups/app/members", (200, {"members": [run], "next": None}))
    assert "Its members are counts-1.2." in server.run("drain", "app", "counts-3").stderr


def test_members_are_listed_and_shown(server: Canned) -> None:
    listed = server.run("members", "orders").stdout
    for word in ("orders-1", "orders-2", M3, "draining", "zone=a", "12.3 kB of 50.0 kB", "0.712"):
        assert word in listed
    reload(server)
    assert len(json.loads(server.run("members", "orders", "--json").stdout)["members"]) == 3
    server.on("GET", f"/v1/groups/orders/members/{M1}", (200, MEMBERS[0]))
    reload(server)
    shown = server.run("members", "orders", "orders-1").stdout
    assert "running" in shown
    assert "13" in shown
    reload(server)
    assert json.loads(server.run("members", "orders", "orders-1", "--json").stdout) == MEMBERS[0]
    server.on("GET", "/v1/groups/empty/members", (200, {"members": [], "next": None}))
    assert "has no members" in server.run("members", "empty").stdout


@pytest.mark.parametrize("ahead_h", [-1, 0, 1])
def test_how_long_ago_something_was_is_told_by_the_clock_that_says_when_it_was(server: Canned, ahead_h: int) -> None:
    heard_at = datetime.now(UTC) + timedelta(hours=ahead_h, seconds=-30)
    server.ahead_s = 3_600 * ahead_h
    members = [MEMBERS[0] | {"last_heard_at": heard_at.isoformat()}]
    server.on("GET", "/v1/groups/orders/members", (200, {"members": members, "next": None}))
    assert re.search(r"\b(29|3\d)(\.\d)? s ago", server.run("members", "orders").stdout)


TROUBLE: dict[str, Any] = HEALTH | {
    "level": "trouble",
    "what": "not-processed",
    "sentence": "1 of 4 tasks is not processed: 1 parked after failures.",
    "since": "2026-05-04T12:00:00.000Z",
    "at": "2026-05-04T12:00:41.000Z",
    "until": None,
    "ends": "when an operator releases it",
    "evidence": "3 of 3 members heard within 1 s",
    "cause": {
        "task": "0_1",
        "member": "m1",
        "instance_id": "pod-1",
        "at": "2026-05-04T12:00:00.000Z",
        "detail": "checksum mismatch",
    },
    "incident": {
        "task": None,
        "member": "m2",
        "instance_id": "pod-2",
        "at": "2026-05-04T12:00:00.000Z",
        "detail": "its lease ran out; it ran 3 tasks",
    },
    "todo": "First mend what the worker logged (checksum mismatch), then release what is parked.",
    "remedies": [{"action": "release", "member": None, "task": "0_1", "command": "batonpass release orders 0_1"}],
    "runbook": "task-not-running",
}


def test_groups_are_listed_and_shown(server: Canned) -> None:
    server.on("GET", "/v1/groups", (200, {"groups": [group()], "next": None}))
    for words in (["groups"], ["groups", "list"]):
        assert "attention" in server.run(*words).stdout
    worse = group(group="zz", health=TROUBLE)
    server.on("GET", "/v1/groups", (200, {"groups": [group(), worse], "next": None}))
    listed = json.loads(server.run("groups", "--json").stdout)["groups"]
    assert [one["group"] for one in listed] == ["zz", "orders"]
    assert "checksum mismatch" in server.run("groups", "list", "--level", "trouble").stdout
    assert "orders" not in server.run("groups", "list", "--name", "z").stdout
    assert server.run("groups", "list", "--level", "bad").exit_code == 2
    calm = [group(group=f"calm-{number:02}", health=HEALTH | {"level": "at-rest"}) for number in range(58)]
    server.on("GET", "/v1/groups", (200, {"groups": [group(), worse, *calm], "next": None}))
    first, *_, names, last = server.run("groups").stdout.splitlines()
    assert first.startswith("zz: trouble")
    assert names.startswith("At rest: calm-00, calm-01, ")
    assert last == ("1 trouble, 1 attention, 58 at rest. The worst are at the top; `--level trouble` shows them alone.")
    pause = {"scope": "all", "reason": "audit", "expires_at": None}
    server.on("GET", "/v1/groups/orders", (200, group(pause=pause, health=TROUBLE)))
    shown = server.run("groups", "show", "orders").stdout
    for line in (
        "Group orders: trouble, generation 3.",
        # By the coordinator's clock, wherever the command runs.
        "1 of 4 tasks is not processed: 1 parked after failures. Since 41 s ago.",
        "Over when an operator releases it. Cause: 0_1 on pod-1 41 s ago: checksum mismatch.",
        "Last incident: pod-2 41 s ago: ",
        "Also, attention: An operator holds every move. Since ",
        "Command: batonpass resume orders",
        "Known from: 3 of 3 members heard within 1 s.",
        "Do: First mend what the worker logged (checksum mismatch), then release what is parked.",
        "Command: batonpass release orders 0_1",
        "Runbook: docs/runbooks/task-not-running.md",
        "Held back: 1 by warmup-budget.",
        "Warning: beware",
        "max_warmup_replicas",
        "store",
        "0_2=9.5",
    ):
        assert line in shown
    server.on("GET", "/v1/groups", (200, {"groups": [], "next": None}))
    assert "There are no groups" in server.run("groups").stdout


def test_an_application_is_shown_with_when_it_was_last_heard(server: Canned) -> None:
    known = {"last_heard_at": "2026-05-04T12:00:00.000Z", "silent": True, "refused": None}
    server.on("GET", "/v1/groups/orders", (200, group(application=known)))
    assert "Its application was last heard " in server.run("groups", "show", "orders").stdout
    server.on("GET", "/v1/groups/orders", (200, group(application=known | {"last_heard_at": None})))
    assert "last heard before the coordinator started." in server.run("groups", "show", "orders").stdout


def test_names_in_brackets_are_shown_as_they_stand(server: Canned) -> None:
    server.on("GET", "/v1/groups", (200, {"groups": [group(group="[red]orders[/red]")], "next": None}))
    assert "[red]orders[/red]" in server.run("groups").stdout


def test_a_group_is_declared_from_a_file(server: Canned, tmp_path: Path) -> None:
    server.on("PUT", "/v1/groups/orders", (201, group()))
    (tmp_path / "g.json").write_text('{"config": {"max_warmup_replicas": 2}}')
    (tmp_path / "g.toml").write_text("[config]\nmax_warmup_replicas = 2\n")
    for words, stdin in (
        ([str(tmp_path / "g.json")], None),
        ([str(tmp_path / "g.toml")], None),
        (["-"], '{"config": {"max_warmup_replicas": 2}}'),
    ):
        found = server.run("groups", "declare", "orders", *words, "--reason", "why", stdin=stdin)
        assert found.exit_code == 0, found.stderr
        assert "Group orders created: 4 tasks." in found.stdout
        assert "Warning: beware" in found.stdout
        assert (server.asked[-1].body, server.asked[-1].query) == (
            {"config": {"max_warmup_replicas": 2}},
            {"reason": "why"},
        )
    assert json.loads(server.run("groups", "declare", "orders", "-", "--json", stdin="{}").stdout) == group()


def test_a_group_that_exists_is_changed_under_its_etag(server: Canned) -> None:
    """The first answer asks for the ETag; only then is the group read and changed."""
    required = (428, {"type": "precondition-required", "detail": "send If-Match"})
    server.on("PUT", "/v1/groups/orders", required, (200, group()))
    server.on("GET", "/v1/groups/orders", (200, group()))
    found = server.run("groups", "declare", "orders", "-", stdin="{}")
    assert "Group orders changed" in found.stdout
    headers = {name.lower(): text for name, text in server.asked[-1].headers.items()}
    assert headers["if-match"] == '"7"'
    server.on("PUT", "/v1/groups/orders", required)
    assert server.run("groups", "declare", "orders", "-", "--create-only", stdin="{}").exit_code == 1


@pytest.mark.parametrize(
    ("name", "written", "words"),
    [
        ("a.json", "{", "is not JSON"),
        ("a.toml", "= 1", "is not TOML"),
        ("a.json", "[]", "holds no object"),
        (
            "a.json",
            '{"config": {"num_standby_replicas": 1, "num_standby_replicas": 2}}',
            "'num_standby_replicas' stands twice",
        ),
        ("b.json", None, "No such file"),
    ],
)
def test_a_bad_file_is_said_to_be_one(
    server: Canned, tmp_path: Path, name: str, written: str | None, words: str
) -> None:
    if written is not None:
        (tmp_path / name).write_text(written)
    found = server.run("groups", "declare", "orders", str(tmp_path / name))
    assert found.exit_code == 2
    assert words in found.stderr
    assert server.asked == []


@pytest.mark.parametrize(("name", "encoding"), [("a.json", "utf-8-sig"), ("a.json", "utf-16"), ("a.toml", "utf-8-sig")])
def test_a_file_that_was_written_on_windows_is_read(server: Canned, tmp_path: Path, name: str, encoding: str) -> None:
    server.on("PUT", "/v1/groups/orders", (200, group()))
    (tmp_path / name).write_text('{"reason": "ü"}' if name == "a.json" else 'reason = "ü"', encoding=encoding)
    assert server.run("groups", "declare", "orders", str(tmp_path / name)).exit_code == 0
    assert server.asked[-1].body["reason"] == "ü"


def progress(*remaining: str) -> tuple[int, Any]:
    """Return an answer to a drain."""
    return (
        202 if remaining else 200,
        {
            "drained": not remaining,
            "remaining": list(remaining),
            "blocked": [{"task": one, "reason": "no-capacity"} for one in remaining[:1]],
        },
    )


def test_a_drain_is_ordered_and_need_not_be_waited_for(server: Canned) -> None:
    server.on("POST", f"/v1/groups/orders/members/{M2}/drain", progress("0_1", "0_2"))
    found = server.run("drain", "orders", "orders-2", "--deadline", "2m", "--reason", "scale-in")
    assert found.exit_code == 0
    assert "it still has 2 active tasks: 0_1, 0_2" in found.stdout
    assert "0_1 is blocked: no-capacity" in found.stdout
    assert server.calls("POST")[0].query == {"deadline_ms": "120000", "reason": "scale-in"}


def test_a_drain_is_waited_for(server: Canned) -> None:
    path = f"/v1/groups/orders/members/{M2}/drain"
    gone = (409, {"type": "gone", "detail": "it left"})
    for last in (progress(), gone):
        server.on("POST", path, progress("0_1", "0_2"), progress("0_2"), last)
        found = server.run("drain", "orders", "orders-2", "--wait", "--json")
        assert found.exit_code == 0
        assert json.loads(found.stdout) == {"member_id": M2, "drained": True, "remaining": [], "blocked": []}
        reload(server)
    assert server.calls("POST")[1].query == {"wait_ms": "10000", "only_wait": "true"}


def test_a_drain_that_is_taken_back_is_waited_for_no_longer(server: Canned) -> None:
    undone = (202, progress("0_2")[1] | {"undone": True})
    server.on("POST", f"/v1/groups/orders/members/{M2}/drain", progress("0_1", "0_2"), undone)
    found = server.run("drain", "orders", "orders-2", "--wait")
    assert found.exit_code == 1
    assert "was undrained meanwhile; it still has 1 active tasks: 0_2" in found.stdout


def test_a_drain_that_takes_too_long_is_said_to(server: Canned) -> None:
    server.on("POST", f"/v1/groups/orders/members/{M2}/drain", progress("0_1"))
    found = server.run("drain", "orders", "orders-2", "--wait", "--timeout", "50ms")
    assert found.exit_code == 1
    assert "it still has 1 active tasks" in found.stdout


def test_safe_to_stop_is_an_exit_code(server: Canned) -> None:
    """0, or 1 with the reasons, for a deployment gate."""
    path = f"/v1/groups/orders/members/{M1}/safe-to-stop"
    server.on("GET", path, (200, {"member_id": M1, "safe_to_stop": True}))
    assert "can be stopped now" in server.run("safe-to-stop", "orders", "orders-1").stdout
    reload(server)
    assert json.loads(server.run("safe-to-stop", "orders", "orders-1", "--json").stdout)["safe_to_stop"] is True
    reasons = [{"path": "0_0", "reason": "no ready copy"}]
    server.on("GET", path, (409, {"type": "not-safe-to-stop", "detail": "would interrupt 1 task", "errors": reasons}))
    reload(server)
    found = server.run("safe-to-stop", "orders", "orders-1")
    assert found.exit_code == 1
    assert "0_0: no ready copy" in found.stderr
    assert "batonpass drain" in found.stderr
    reload(server)
    found = server.run("safe-to-stop", "orders", "orders-1", "--json")
    assert (found.exit_code, json.loads(found.stdout)["reasons"]) == (1, reasons)


PLAN: dict[str, Any] = {
    "target": {M1: {"active": ["0_0"], "standby": []}, "join-1": {"active": ["0_1"], "standby": []}},
    "assignment": {
        M1: {"active": ["0_0", "0_1"], "standby": [], "warmup": []},
        "join-1": {"active": [], "standby": [], "warmup": []},
    },
    "moves": 1,
    "lower_bound": 1,
    "at_rest": False,
    "probing_needed": True,
    "decide_ms": 0.4,
    "held_back": [{"task": "0_1", "to": "join-1", "reason": "warmup-budget"}],
    "reasons": [],
    "balance": {"before": {"least": 0.0, "most": 2.0}, "after": {"least": 1.0, "most": 1.0}},
}


def test_a_plan_of_a_live_group(server: Canned) -> None:
    answer = PLAN | {"for_load": [{"task": "0_0", "from": M1, "to": M2}]}
    server.on("POST", "/v1/groups/orders/plan", (200, answer))
    words = [
        "--join",
        "2x4",
        "--join",
        "1",
        "--drain",
        "orders-2",
        "--set",
        "max_warmup_replicas=10%",
        "--set",
        "num_standby_replicas=1",
    ]
    found = server.run("plan", "orders", *words)
    assert found.exit_code == 0, found.stderr
    assert "1 moves (lower bound 1), more steps follow" in found.stdout
    assert "0_1 waits to go to join-1: warmup-budget" in found.stdout
    assert "Load per capacity: 0 to 2 now, 1 to 1 then." in found.stdout
    assert f"for load, 0_0 would move from {M1} to {M2}" in found.stdout
    assert server.calls("POST")[0].body == {
        "join": [{"count": 2, "capacity": 4.0}, {"count": 1, "capacity": 1.0}],
        "drain": [M2],
        "config": {"max_warmup_replicas": "10%", "num_standby_replicas": 1},
    }
    reload(server)
    assert json.loads(server.run("plan", "orders", "--json").stdout) == answer
    assert server.calls("POST")[1].body == {}


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["orders", "--snapshot", "-"],
        ["--snapshot", "-", "--join", "1"],
        ["orders", "--join", "many"],
        ["orders", "--set", "x"],
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(server: Canned, words: list[str]) -> None:
    assert server.run("plan", *words, stdin="{}").exit_code == 2
    assert server.asked == []


TOKEN = {
    "id": "t1",
    "name": "ci",
    "role": "worker",
    "group": "orders",
    "last_four": "wxyz",
    "status": "valid",
    "created_at": "2026-05-04T12:00:00.000Z",
    "expires_at": None,
    "revoked_at": None,
}


def test_tokens_are_made_listed_and_revoked(server: Canned) -> None:
    server.on("POST", "/v1/tokens", (201, TOKEN | {"secret": "bpt_secret"}))
    made = server.run("token", "create", "ci", "--role", "worker", "--group", "orders", "--for", "90d", "--reason", "x")
    assert "token: bpt_secret\n" in made.stdout
    assert server.asked[0].body == {"name": "ci", "role": "worker", "group": "orders", "expires_in_ms": 7_776_000_000}
    assert server.asked[0].query == {"reason": "x"}
    as_json = server.run("token", "create", "ci", "--role", "admin", "--json")
    assert json.loads(as_json.stdout) == TOKEN | {"secret": "bpt_secret"}
    server.on("GET", "/v1/tokens", (200, {"tokens": [TOKEN]}))
    for words in (["token"], ["token", "list"]):
        assert "...wxyz" in server.run(*words).stdout
    server.on("DELETE", "/v1/tokens/t1", NO_CONTENT)
    assert "is revoked" in server.run("token", "revoke", "t1").stdout
    assert server.run("token", "create", "ci", "--role", "king").exit_code == 2
    server.on("GET", "/v1/tokens", (200, {"tokens": []}))
    assert "There are no tokens" in server.run("token").stdout


UUID = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"


def test_a_generation_says_what_kafkas_assignor_did_and_calls_processes_by_their_names(server: Canned) -> None:
    """The processes of Kafka Streams have UUIDs for instance ids."""
    reasons = [
        {
            "code": "other-assignor",
            "task": None,
            "to": None,
            "detail": "Kafka's decides, and moves 8 tasks",
            "tasks": 8,
        },
        {"code": "stays", "task": None, "to": None, "detail": "", "tasks": 3},
    ]
    diff = [{"task": "0_0", "from": "app-a", "to": "app-b", "standbys_before": [], "standbys": [], "why": "balance"}]
    made = {"generation": 2, "at": "2026-05-04T12:00:00.000Z", "triggers": ["join"], "moves": 1, "lower_bound": 1}
    body = made | {"imbalance": {"before": 1.0, "after": 0.0}, "reasons": reasons, "diff": diff}
    server.on("GET", "/v1/groups/app/generations/2", (200, body))
    members = [member("app-a", UUID), member("app-b", UUID)]
    server.on("GET", "/v1/groups/app/members", (200, {"members": members, "next": None}))
    server.on("GET", "/v1/groups/app/events", (200, {"events": []}))
    shown = server.run("generations", "app", "2").stdout
    assert "Kafka's decides, and moves 8 tasks." in shown
    assert "app-a" in shown
    assert UUID not in shown


@pytest.mark.parametrize(("last_heard", "code"), [("2026-05-04T12:00:35.000Z", 1), ("2026-05-04T12:00:20.000Z", 0)])
def test_an_instance_id_does_not_vouch_for_the_death_of_a_run_that_was_heard(
    server: Canned, last_heard: str, code: int
) -> None:
    """An earlier run of the instance may be meant; the whole id says which. The coordinator's clock counts."""
    server.on("GET", "/v1/groups/orders", (200, group(health=TROUBLE)))
    server.on("GET", f"/v1/groups/orders/members/{M2}", (200, member(M2, "orders-2", last_heard_at=last_heard)))
    server.on("POST", f"/v1/groups/orders/members/{M2}/evict", NO_CONTENT)
    found = server.run("evict", "orders", "orders-2", "--dead")
    assert found.exit_code == code, found.stderr
    assert (M2 in found.stderr) == bool(code)
    assert len(server.calls("POST")) == 1 - code
    assert server.run("evict", "orders", M2, "--dead").exit_code == 0
