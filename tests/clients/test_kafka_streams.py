"""The plug-in for Kafka Streams: its build, and a real application on a real broker whose coordinator fails.

What it does with each answer is tested in the module itself; what the coordinator answers is tested elsewhere.
"""

import asyncio
import json
import subprocess
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import NewTopic
from tests.clients.streams_job import MODULE, command, read, running
from tests.clients.stub_coordinator import StubCoordinator
from tests.e2e.serving import SECRET, serving
from tests.waiting import wait_until

from batonpass.demo.topics import admin_of

pytestmark = [pytest.mark.needs("maven"), pytest.mark.timeout(600)]


@pytest.fixture
def coordinator() -> Iterator[StubCoordinator]:
    """A coordinator that fails when it is told to."""
    stub = StubCoordinator()
    yield stub
    stub.close()


@pytest.mark.usefixtures("java")
def test_the_jar_brings_nothing_of_others() -> None:
    [jar] = (MODULE / "target").glob("batonpass-kafka-streams-*.jar")
    with zipfile.ZipFile(jar) as file:
        names = [name for name in file.namelist() if not name.endswith("/")]
    assert "io/batonpass/streams/BatonpassTaskAssignor.class" in names
    assert not [name for name in names if not name.startswith(("io/batonpass/streams/", "META-INF/"))]


@pytest.mark.parametrize("standbys", [0, 1])
async def test_a_process_that_joins_a_large_application_gets_its_share_and_nothing_else_moves(
    java: tuple[str, ...], own_url: str, standbys: int
) -> None:
    """The class alone, against a real coordinator: of 100 tasks on ten processes 9 must move to the eleventh."""

    def play() -> int:
        with serving(own_url) as served:
            words = ("--mode", "assign", "--standbys", str(standbys), "--url", served.url, "--token", SECRET)
            done = subprocess.run((*command(java, "Rounds"), *words), capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-2_000:]
            return int(json.loads(done.stdout)["moved"])

    assert await asyncio.to_thread(play) == 9


@pytest.mark.needs("kafka")
async def test_an_application_goes_on_whatever_its_coordinator_does(
    java: tuple[str, ...], bootstrap: str, coordinator: StubCoordinator, tmp_path: Path
) -> None:
    """Tasks move warm, a leader dies while it asks, answers are wrong; every order counts once."""
    application = f"app-{uuid.uuid4().hex[:8]}"
    with running(java, bootstrap, application, tmp_path) as job:
        load = job.load()
        settings: dict[str, object] = {
            "batonpass.url": coordinator.url,
            "batonpass.timeout.ms": 2000,
            "batonpass.retry.ms": 500,
            "session.timeout.ms": 10000,
            "heartbeat.interval.ms": 500,
            "max.warmup.replicas": 12,
        }
        for name in "AB":
            job.start(name, settings)
        job.until({"A": 6, "B": 6})

        # A leader that waits for an answer dies, and the next one has none either: what it had goes to who is there.
        coordinator.fail("hang")
        job.start("C", settings)
        wait_until(coordinator.hanging.is_set, seen=lambda: "nobody asked")
        job.leader.kill()
        wait_until(lambda: sum(job.counts().values()) == 12, seen=lambda: f"not every task runs: {job.counts()}")
        coordinator.fail("")
        wait_until(lambda: coordinator.rests, seen=lambda: "nobody asked any more")
        job.until(dict.fromkeys(job.counts(), 6))

        # Answers that are none: a newcomer waits until there is one, and then gets its tasks warm.
        for fault in ("incomplete", "unknown-process", "no-json", "unavailable"):
            coordinator.fail(fault)
            if "D" not in job.instances:
                job.start("D", settings)
            wait_until(coordinator.has_failed, seen=lambda: "nobody asked while it failed")
        coordinator.fail("")
        job.until(dict.fromkeys(job.counts(), 4))

        logs = "".join(each.log.read_text() for each in job.instances.values())
        for words in ("to nobody", "processes where there are", "is no JSON", "it answered 503"):
            assert words in logs
        assert [each.last("failed") for each in job.instances.values()] == [None] * 4
        load.stop()
        ledger, account = await read(bootstrap, application)
    assert account.is_clean, account
    assert account.put_out == account.taken_in
    assert len([task for task in ledger.tasks if "D" in ledger.writers_of(task)]) >= 4


@pytest.mark.needs("kafka")
def test_a_day_of_a_team_goes_through(java: tuple[str, ...], bootstrap: str, own_url: str, tmp_path: Path) -> None:
    """No limit of warmups, a drain that outlives a change of threads, a release with a new first step, and one without.

    Protocol 14.4, protocol 14.7 and protocol 14.8.
    """
    application = f"team-{uuid.uuid4().hex[:8]}"
    with serving(own_url) as served, running(java, bootstrap, application, tmp_path) as job:
        job.load()
        asyncio.run(_make_topics(bootstrap, f"{application}-clicks", f"{application}-counted"))
        settings: dict[str, object] = {
            "batonpass.url": served.url,
            "batonpass.token": SECRET,
            "batonpass.timeout.ms": 5000,
            "session.timeout.ms": 10000,
            "heartbeat.interval.ms": 500,
            "max.warmup.replicas": 2**31 - 1,
        }

        def asked(path: str, **query: object) -> dict[str, Any]:
            answer = served.call("GET", f"/v1/groups/{application}{path}", params=query)
            assert answer.is_success, answer.text
            found: dict[str, Any] = answer.json()
            return found

        for name in "AB":
            job.start(name, settings, leaves=True)
        job.until({"A": 6, "B": 6})
        served.call("POST", f"/v1/groups/{application}/members/A/drain").raise_for_status()
        job.start("C", settings, leaves=True)
        job.until({"A": 0, "B": 6, "C": 6})
        job.instances["A"].add_thread()
        wait_until(lambda: asked("/members/A")["capacity"] == 2, seen=lambda: str(asked("/members")))
        wait_until(lambda: asked("")["at_rest"], seen=lambda: str(asked("/explain")["sentences"]))
        # Each instance says what it has a moment after the rebalance that showed the group at rest.
        job.until({"A": 0, "B": 6, "C": 6})
        assert asked("/members/A")["draining"]
        served.call("DELETE", f"/v1/groups/{application}/members/A/drain").raise_for_status()

        def release(first: str, parts: list[str], total: int) -> dict[str, Any]:
            for each in list(job.instances.values()):
                each.stop()
            job.instances.clear()
            for name in "AB":
                job.start(name, settings, leaves=True, first=first)
            wait_until(lambda: sum(job.counts().values()) == total, seen=lambda: str(job.counts()))
            wait_until(lambda: asked("")["at_rest"], seen=lambda: str(asked("/explain")["sentences"]))
            found = asked("")
            assert [part["id"] for part in found["topology"]["subtopologies"]] == parts
            assert (found["tasks"], found["application"]["refused"], found["members"]) == (total, None, 2)
            assert [each.last("failed") for each in job.instances.values()] == [None] * 2
            return found

        release(f"{application}-clicks", ["0", "1"], 15)
        found = release("", ["0"], 12)
        assert found["config"]["max_warmup_replicas"] == 100_000
        assert asked("/explain")["sentences"][0].startswith("At the application's last rebalance, ")


async def _make_topics(bootstrap: str, *names: str) -> None:
    async with admin_of(bootstrap) as admin:
        await admin.create_topics([NewTopic(name, 3, 1) for name in names])


@pytest.mark.needs("kafka")
async def test_two_applications_under_one_name_are_kept_apart(
    java: tuple[str, ...], bootstrap: str, own_url: str, tmp_path: Path
) -> None:
    """The second one is told whose the name is, and the first one keeps its members, and an operator's word."""
    await asyncio.to_thread(keep_apart, java, bootstrap, own_url, tmp_path)


def keep_apart(java: tuple[str, ...], bootstrap: str, own_url: str, folder: Path) -> None:
    """Start one, drain it, and start another that asks under its name; the token is a wrong one at first."""
    names = [f"app-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    token = folder / "token"
    token.write_text("nobody-knows-it")
    with serving(own_url, sole_coordinator="true") as served, ExitStack() as stack:
        jobs = []
        for name in names:
            (folder / name).mkdir()
            jobs.append(stack.enter_context(running(java, bootstrap, name, folder / name)))
            jobs[-1].load().stop()
        settings: dict[str, object] = {
            "batonpass.url": served.url,
            "batonpass.token.file": token,
            "batonpass.timeout.ms": 10_000,
            "batonpass.retry.ms": 500,
            "batonpass.group": names[0],
        }
        first = jobs[0].start("A", settings)
        unknown = "it answered 401: the token is unknown, revoked or expired"
        wait_until(lambda: unknown in first.log.read_text(), seen=first.log.read_text)
        token.write_text(SECRET)
        wait_until(lambda: " decided for " in first.log.read_text(), seen=first.log.read_text)
        config = served.call("GET", f"/v1/groups/{names[0]}").json()["config"]
        assert (config["application_id"], bool(config["cluster_id"])) == (names[0], True)
        assert served.call("POST", f"/v1/groups/{names[0]}/members/A/drain").is_success
        early = jobs[1].start("B", settings)
        assert early.process.wait(60) != 0
        assert f"is the group of the application '{names[0]}'" in early.log.read_text()
        # Its coordinator did not answer when it was to start, so it learns of it from its first question.
        token = folder / "token-later"
        token.write_text("nobody-knows-it")
        second = jobs[1].start("B", settings | {"batonpass.token.file": token})
        wait_until(lambda: unknown in second.log.read_text(), seen=second.log.read_text)
        token.write_text(SECRET)
        taken = f"it answered 422: group '{names[0]}' is that of another application"
        wait_until(lambda: taken in second.log.read_text(), seen=second.log.read_text)
        jobs[1].until({"B": 12})
        [member] = served.call("GET", f"/v1/groups/{names[0]}/members").json()["members"]
        assert (member["member_id"], member["draining"]) == ("A", True)
