"""`batonpass up` as a user meets it: it says where it is and what is wrong, keeps everything, leaves nothing."""

import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from tests.e2e.running import PROGRAM, Up, environment, running
from tests.programs import is_alive
from tests.waiting import wait_until
from typer.testing import CliRunner, Result

from batonpass.cli import app

TOPOLOGY = {"subtopologies": [{"id": "0", "partitions": 1, "changelog_topics": ["store"]}]}
NOW = {"initial_rebalance_delay_ms": 0}


def descendants(pid: int) -> set[int]:
    """Return every process below one."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in listed.splitlines())}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def served(client: httpx.Client, path: str) -> Any:
    """Return what stands under a path, once the coordinator has read it; while it has not, it says 503."""

    def found() -> httpx.Response | None:
        answer = client.get(path)
        return None if answer.status_code == 503 else answer

    answer: httpx.Response = wait_until(found)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(home: Path, *options: str, **variables: str) -> Result:
    """Run an `up` that cannot start, in this process."""
    handled = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        done = CliRunner().invoke(app, ["up", *options], env=environment(home) | variables)
    finally:
        for number, what in handled.items():
            signal.signal(number, what)
    assert isinstance(done.exception, SystemExit), done.exc_info
    return done


def test_up_ends_with_all_that_it_started_and_the_next_start_finds_everything_again(
    open_folder: Path, tmp_path: Path
) -> None:
    folder = open_folder / "kept"
    with running(folder, "--workers", "1", home=tmp_path) as up:
        with up.client() as client:
            assert client.put("/groups/orders", json={"topology": TOPOLOGY}).status_code == 201
            before = wait_until(lambda: (found := client.get("/groups/demo").json())["generation"] and found)
            (member,) = client.get("/groups/demo/members").json()["members"]
        assert member["instance_id"] == "demo-1"
        token = up.token
        assert oct((folder / "token").stat().st_mode)[-3:] == "600"
        started = descendants(up.process.pid)
        assert len(started) >= 3
        printed, _ = up.stop(signal.SIGINT)
        assert up.process.returncode == 0
        assert f"Stopped. Everything is kept in {folder}" in printed
        assert not [pid for pid in started if is_alive(pid)]
    with running(folder, "--workers", "1", home=tmp_path) as up:
        assert up.token == token
        with up.client() as client:
            assert served(client, "/groups/orders")["tasks"] == 1
            after = served(client, "/groups/demo")
            assert after["generation"] >= before["generation"]
            assert after["group_epoch"] >= before["group_epoch"]
            wait_until(
                lambda: [one["state"] for one in client.get("/groups/demo/members").json()["members"]] == ["stable"]
            )
        started = descendants(up.process.pid)
        up.process.kill()
        wait_until(lambda: not [pid for pid in started if is_alive(pid)], within_s=20)
    with running(folder, "--no-demo", home=tmp_path) as up:
        with up.client() as client:
            assert [one["group"] for one in served(client, "/groups")["groups"]] == ["demo", "orders"]
            client.put("/groups/polls", json={"topology": TOPOLOGY, "config": NOW})
            epoch = client.put("/groups/polls/members/m1").json()["member_epoch"]
        # A poll that waits does not hold up the end.
        poll = f"{up.url}/v1/groups/polls/members/m1/assignment?after={epoch}&wait_ms=60000"
        command = ["curl", "-s", "-H", f"Authorization: Bearer {up.token}", "-w", "%{http_code}", poll]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
            time.sleep(1)
            asked_to_stop_at = time.monotonic()
            up.process.send_signal(signal.SIGTERM)
            answered, _ = waiting.communicate(timeout=10)
            up.process.communicate(timeout=20)
        assert (answered, up.process.returncode) == ("204", 0)
        assert time.monotonic() - asked_to_stop_at < 10


def test_every_night_is_audited_where_spark_is(open_folder: Path, tmp_path: Path) -> None:
    """A process of its own waits for the day to be over."""
    folder = open_folder / "audited"
    with running(folder, "--no-demo", "--audit", home=tmp_path) as up:
        assert f"Audits      {folder / 'audits'} (every day" in up.greeting
        log = folder / "workers" / "audit" / "log"
        wait_until(lambda: "nothing is left to audit" in log.read_text())
        started = descendants(up.process.pid)
        up.stop(signal.SIGINT)
        assert up.process.returncode == 0
        assert not [pid for pid in started if is_alive(pid)]


def test_without_java_and_a_broker_it_says_what_is_missing(open_folder: Path, tmp_path: Path) -> None:
    nowhere = {"JAVA_HOME": str(tmp_path), "BATONPASS_KAFKA_JARS": str(tmp_path)}
    folder = open_folder / "no Java, no broker"
    with running(folder, "--workers", "1", "--audit", home=tmp_path, broker=nowhere) as up:
        assert "Audits" not in up.greeting
        assert "demo: simulated workers, which only pretend to have state" in up.greeting
        wait_until(lambda: up.ask("members", "demo")["members"])
        _, errors = up.stop()
    assert errors.count("no nightly audit: it needs Java 17: openjdk-17-jre-headless on Debian, or set JAVA_HOME") == 1
    assert (
        f"no real workers: BATONPASS_KAFKA_JARS names {tmp_path}, which does not hold the jars of a broker." in errors
    )


def test_without_the_token_that_up_prints_nothing_but_health_and_metrics_is_to_be_had(up: Up) -> None:
    assert httpx.get(f"{up.url}/v1/groups").status_code == 401
    assert httpx.get(f"{up.url}/readyz").status_code == 200
    with up.client() as client:
        assert client.get("/groups").status_code == 200


def test_the_lines_that_it_suggests_work_as_they_stand(demo: Up) -> None:
    """What ends a process or goes on for ever is left to other tests."""
    lines = re.findall(r"^  (\S+ -m batonpass .*?)  +[a-z]", demo.greeting, re.MULTILINE)
    assert [line.split()[3] for line in lines] == ["watch", "worker", "drain", "explain"]
    for line in lines:
        if "worker" in line:
            continue
        command = line.replace("watch demo", "watch demo --for 1s")
        done = subprocess.run(
            ["/bin/bash", "-c", command], capture_output=True, text=True, env=_with_python(demo), check=False
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert demo.run("undrain", "demo", "demo-1").exit_code == 0


def _with_python(up: Up) -> dict[str, str]:
    return {**up.environment, "PATH": f"{Path(PROGRAM[0]).parent}:{os.environ['PATH']}"}


def test_a_second_one_on_the_same_folder_is_refused(up: Up, tmp_path: Path) -> None:
    done = refused(tmp_path, "--data", str(up.folder), "--port", "0")
    assert done.exit_code == 1
    assert f"process {up.process.pid}, which listens on {up.url}" in done.stderr
    assert httpx.get(f"{up.url}/readyz").status_code == 200


def test_a_port_in_use_is_said_plainly(open_folder: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for _ in range(2):
            done = refused(tmp_path, "--data", str(open_folder / "busy"), "--port", str(port))
            assert done.exit_code == 1
            assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr
            assert "--port" in done.stderr
    assert not (open_folder / "busy" / "postgres").exists()


@pytest.mark.parametrize(
    "arguments", [["--port", "99999"], ["--port", "many"], ["--colour", "red"], ["--workers", "-1"]]
)
def test_a_bad_argument_is_a_usage_error(tmp_path: Path, arguments: list[str]) -> None:
    done = refused(tmp_path, *arguments)
    assert done.exit_code == 2
    assert arguments[0].lstrip("-") in done.stderr


def test_a_bad_setting_is_named(tmp_path: Path, open_folder: Path) -> None:
    done = refused(tmp_path, "--data", str(open_folder / "never"), BATONPASS_GROUPS_MAX="none")
    assert done.exit_code == 2
    assert "BATONPASS_GROUPS_MAX" in done.stderr


def test_a_folder_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    done = refused(tmp_path, "--data", str(tmp_path))
    assert (done.exit_code, "holds other files (thesis.tex)" in done.stderr) == (1, True)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    nowhere = Path("/proc/batonpass") if os.geteuid() == 0 else closed / "below"
    done = refused(tmp_path, "--data", str(nowhere))
    assert (done.exit_code, f"cannot use {nowhere} for the data" in done.stderr) == (1, True)


def test_no_member_is_expired_for_a_silence_of_the_coordinator_itself(up: Up) -> None:
    """It was frozen for longer than every lease (L5)."""
    config = NOW | {"heartbeat_interval_ms": 500, "session_timeout_ms": 2_500}
    with up.client() as client:
        client.put("/groups/silence", json={"topology": TOPOLOGY, "config": config})
        epoch = client.put("/groups/silence/members/m1").json()["member_epoch"]
        beat = {"seq": 1, "member_epoch": epoch, "tasks": {"0_0": {"role": "active", "state": "running"}}}
        assert client.post("/groups/silence/members/m1/heartbeat", json=beat).status_code == 200
        os.kill(up.process.pid, signal.SIGSTOP)
        time.sleep(4)
        os.kill(up.process.pid, signal.SIGCONT)
        time.sleep(0.3)
        answer = client.post("/groups/silence/members/m1/heartbeat", json=beat | {"seq": 2})
        assert answer.status_code == 200, answer.text
        assert answer.json()["member_epoch"] == epoch


def test_a_database_that_died_is_started_again(open_folder: Path, tmp_path: Path) -> None:
    folder = open_folder / "json"
    command = [*PROGRAM, "up", "--data", str(folder), "--port", "0", "--workers", "1", "--simulated", "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment(tmp_path)) as process:
        assert process.stdout is not None
        greeting = json.loads(process.stdout.readline())
        assert greeting["token"] == (folder / "token").read_text().strip()
        assert (greeting["group"], set(greeting["workers"]), greeting["pid"]) == ("demo", {"demo-1"}, process.pid)
        headers = {"authorization": f"Bearer {greeting['token']}"}
        with httpx.Client(base_url=f"{greeting['url']}/v1", headers=headers, timeout=30) as client:
            server = folder / "postgres" / "cluster" / "postmaster.pid"
            before = int(server.read_text().split()[0])
            os.kill(before, signal.SIGKILL)
            wait_until(lambda: server.exists() and int(server.read_text().split()[0]) != before)
            wait_until(lambda: client.put("/groups/orders", json={"topology": TOPOLOGY}).status_code in {201, 428})
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)  # Somebody is in a hurry, and still sees no traceback.
        _, errors = process.communicate(timeout=90)
    assert "The database has died; it is started again." in errors
    assert "Traceback" not in errors
    assert process.returncode == 0
