"""Operators' commands on a group of real processes: what is killed is taken over, what is drained goes on meanwhile."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.running import PROGRAM, Up
from tests.waiting import wait_until

REFUSED, BAD_INPUT, NOT_ALLOWED, NOT_THERE = 1, 2, 4, 5
BESIDE = {"subtopologies": [{"id": "0", "partitions": 4, "changelog_topics": ["store"]}]}


def named(demo: Up) -> dict[str, Any]:
    """Return the members by their instance ids."""
    return {one["instance_id"]: one for one in demo.ask("members", "demo")["members"]}


def runs(member: dict[str, Any]) -> set[str]:
    """Return the tasks that a member is running, by its own word."""
    held = {grant["task"] for grant in member["assignment"]["active"]}
    return {task for task, report in member["reports"].items() if report.get("state") == "running"} & held


def all_run(demo: Up) -> bool:
    """Whether all twelve tasks of the group run."""
    return sum(len(runs(one)) for one in named(demo).values()) == 12


def test_a_killed_worker_is_taken_over_and_comes_back(demo: Up) -> None:
    """As the greeting suggests: `kill -9`, and `worker` brings it back."""
    wait_until(lambda: all_run(demo))
    pid = demo.workers()["demo-3"]
    mine = runs(named(demo)["demo-3"])
    assert mine
    following = [*PROGRAM, "watch", "demo", "--json"]
    with subprocess.Popen(following, stdout=subprocess.PIPE, text=True, env=demo.environment) as watching:
        time.sleep(4)
        os.kill(pid, signal.SIGKILL)
        left = set(mine)
        assert watching.stdout is not None
        for line in watching.stdout:
            event = json.loads(line)
            if event["type"] == "takeover-done":
                left.discard(event["task"])
            if not left:
                break
        watching.send_signal(signal.SIGINT)
        assert watching.wait(20) == 0
    back = [*PROGRAM, "worker", "--instance", "demo-3"]
    with subprocess.Popen(back, stdout=subprocess.PIPE, text=True, env=demo.environment) as worker:
        assert worker.stdout is not None
        assert str(demo.folder / "workers" / "demo-3") in worker.stdout.readline()
        wait_until(lambda: named(demo).get("demo-3", {}).get("member_id") and all_run(demo))
        wait_until(lambda: runs(named(demo)["demo-3"]))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0


def test_a_worker_is_added_and_drained(demo: Up) -> None:
    with subprocess.Popen([*PROGRAM, "worker"], stdout=subprocess.PIPE, text=True, env=demo.environment) as worker:
        assert worker.stdout is not None
        name = worker.stdout.readline().split()[1]
        assert name == "demo-4"
        wait_until(lambda: runs(named(demo).get(name, {"assignment": {"active": []}, "reports": {}})))
        check = demo.run("safe-to-stop", "demo", name, "--json")
        assert check.exit_code == (0 if json.loads(check.stdout)["safe_to_stop"] else REFUSED)
        done = demo.run("drain", "demo", name, "--wait", "--timeout", "80s", "--reason", "a test")
        assert done.exit_code == 0, done.stdout
        assert "it can be stopped" in done.stdout
        assert named(demo)[name]["assignment"]["active"] == []
        assert demo.run("safe-to-stop", "demo", name).exit_code == 0
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0


def test_a_group_and_its_tasks_are_explained(demo: Up) -> None:
    wait_until(lambda: all_run(demo))
    assert demo.run("explain", "demo").stdout.strip()
    owner = next(name for name, one in named(demo).items() if "orders_1" in runs(one))
    output = demo.run("explain", "demo", "orders_1").stdout
    assert f"{owner} runs orders_1" in output
    assert "Copies" in output
    assert "Runs" in output
    assert demo.ask("explain", "demo", "orders_1")["task"] == "orders_1"
    assert demo.ask("explain", "demo")["group"] == "demo"
    assert demo.run("explain", "demo", "orders_99").exit_code == NOT_THERE
    assert demo.run("explain", "nowhere").exit_code == NOT_THERE


def test_a_plan_changes_nothing(demo: Up) -> None:
    before = demo.ask("groups", "show", "demo")["generation"]
    found = demo.ask("plan", "demo", "--join", "2", "--drain", "demo-1", "--set", "num_standby_replicas=0")
    assert {"join-1", "join-2"} <= set(found["target"])
    assert found["target"][named(demo)["demo-1"]["member_id"]]["active"] == []
    assert demo.ask("groups", "show", "demo")["generation"] == before
    assert demo.run("plan", "demo", "--set", "num_standby_replicas=-1").exit_code == BAD_INPUT


@pytest.fixture(scope="module")
def beside(demo: Up, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Another group, with one member that does not speak."""
    file = tmp_path_factory.mktemp("declared") / "beside.json"
    file.write_text(json.dumps({"topology": BESIDE, "config": {"initial_rebalance_delay_ms": 0}}))
    assert demo.ask("groups", "declare", "beside", str(file))["tasks"] == 4
    with demo.client() as client:
        assert client.put("/groups/beside/members/m1", json={"instance_id": "silent"}).status_code == 201
    return "beside"


def test_orders_are_carried_out(demo: Up, beside: str, tmp_path: Path) -> None:
    assert demo.run("pause", beside, "--for", "1h", "--reason", "an audit").exit_code == 0
    shown = demo.ask("groups", "show", beside)
    assert (shown["paused"], shown["pause"]["reason"]) == (True, "an audit")
    assert demo.run("resume", beside).exit_code == 0
    assert demo.run("probe", beside).exit_code == 0
    assert demo.run("pin", beside, "0_1", "silent").exit_code == 0
    assert demo.ask("explain", beside, "0_1")["pin"] == "m1"
    assert demo.run("unpin", beside, "0_1").exit_code == 0
    assert demo.run("pin", beside, "0_9", "silent").exit_code == BAD_INPUT
    assert demo.run("release", beside, "0_1").exit_code == 0
    (tmp_path / "more.toml").write_text("[config]\nnum_standby_replicas = 1\n")
    assert demo.run("groups", "declare", beside, str(tmp_path / "more.toml")).exit_code == 0
    assert demo.ask("groups", "show", beside)["config"]["num_standby_replicas"] == 1
    assert demo.run("groups", "delete", beside).exit_code == REFUSED
    assert demo.run("evict", beside, "m1", "--dead", "--reason", "gone").exit_code == 0
    assert demo.run("members", beside).stdout == f"Group {beside} has no members.\n"
    assert demo.run("groups", "delete", beside).exit_code == 0
    assert demo.run("groups", "show", beside).exit_code == NOT_THERE
    trail = demo.ask("commands", beside)["commands"]
    assert {("pause", "an audit"), ("evict", "gone")} <= {(one["command"], one["reason"]) for one in trail}
    assert "an audit" in demo.run("commands").stdout


def test_generations_are_looked_back_at(demo: Up) -> None:
    newest = demo.ask("generations", "demo", "--limit", "1")["generations"][0]["generation"]
    assert newest == demo.ask("groups", "show", "demo")["generation"]
    assert "join" in demo.run("generations", "demo").stdout
    assert {one["task"] for one in demo.ask("generations", "demo", "1")["diff"]} >= {"orders_0", "stock_3"}
    assert "orders_0" in demo.run("generations", "demo", "1").stdout
    assert demo.run("generations", "demo", "9999").exit_code == NOT_THERE


def test_a_snapshot_is_planned_without_the_server(demo: Up, tmp_path: Path) -> None:
    (tmp_path / "demo.json").write_text(demo.run("groups", "snapshot", "demo").stdout)
    assert demo.ask("plan", "--snapshot", str(tmp_path / "demo.json"))["moves"] >= 0


def test_tokens_open_what_their_role_allows(demo: Up) -> None:
    made = demo.ask("token", "create", "a-test", "--role", "viewer", "--for", "1h")
    assert demo.run("groups", "--token", made["secret"]).exit_code == 0
    refused = demo.run("probe", "demo", "--token", made["secret"])
    assert (refused.exit_code, "role" in refused.stderr) == (NOT_ALLOWED, True)
    assert [one["name"] for one in demo.ask("token", "list")["tokens"]] == ["demo-workers", "a-test"]
    assert demo.run("token", "revoke", made["id"]).exit_code == 0
    wait_until(lambda: demo.run("groups", "--token", made["secret"]).exit_code == NOT_ALLOWED, within_s=30)
    assert demo.run("token", "revoke", "nobody").exit_code == NOT_THERE
    assert demo.run("token", "create", "w", "--role", "worker").exit_code == BAD_INPUT


def test_watching_needs_no_terminal(demo: Up) -> None:
    assert demo.run("watch", "demo", "--for", "1s").exit_code == 0
    assert demo.run("watch", "nowhere", "--for", "1s").exit_code == NOT_THERE
