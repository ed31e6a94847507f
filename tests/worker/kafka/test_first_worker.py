"""The jobs of docs/first-worker.md run as they stand there; a second run over the same input gives the same results."""

import asyncio
import random
import re
import runpy
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from mypy import api as mypy
from tests.waiting import until
from tests.worker.kafka.test_app import running
from tests.worker.kafka.totals import Job, NewTopics, read

from batonpass.worker.kafka import App, KafkaConnection
from batonpass.worker.testing import HttpServer, LocalCoordinator

PAGE = Path(__file__).resolve().parents[3] / "docs" / "first-worker.md"


def program(name: str) -> str:
    """Return a program of the page by the file name in its first line."""
    [found] = re.findall(rf"```python\n# {re.escape(name)}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(found)


@pytest.mark.needs("kafka")
async def test_the_job_of_the_page_adds_orders_up_and_goes_on_when_it_was_killed(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = uuid.uuid4().hex[:8]
    text = program("totals.py")
    for there in ('"orders"', '"totals"'):
        assert there in text
        text = text.replace(there, there[:-1] + f'-{own}"')
    (tmp_path / "totals.py").write_text(text)
    (tmp_path / "try_it.py").write_text(program("try_it.py"))
    monkeypatch.setenv("BATONPASS_KAFKA_BOOTSTRAP", bootstrap)
    monkeypatch.setenv("BATONPASS_INSTANCE", "orders-0")
    job = runpy.run_path(str(tmp_path / "totals.py"))
    app, orders, totals = job["app"], job["orders"], job["totals"]

    async def start(file: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(sys.executable, file, cwd=tmp_path)

    async def has(*wanted: tuple[str, int]) -> bool:
        return sorted((one.key, one.value) for one in await app.records(totals)) == [*wanted]

    async with LocalCoordinator() as coordinator, HttpServer(coordinator.answer) as server:
        monkeypatch.setenv("BATONPASS_URL", server.url)
        trying = await start("try_it.py")
        assert await asyncio.wait_for(trying.wait(), 60) == 0
        process = await start("totals.py")
        try:
            await until(lambda: has(("ada", 5), ("ada", 15), ("bob", 7)))
            process.kill()
            await process.wait()
            process, began = await start("totals.py"), time.monotonic()
            async with app.producer() as producer:
                await producer.send(orders, 1, key="ada")
            await until(lambda: has(("ada", 5), ("ada", 15), ("ada", 16), ("bob", 7)))
            assert time.monotonic() - began < 30, "it waited for the lease of the killed one, which lasts 45 s"
        finally:
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 30) == 0
    assert (tmp_path / "state" / "orders-0").is_dir()


# --- sessions, a join, and a count under another key ----------------------------------------------------------------

GAP_MS = 30_000
BEGIN_MS = time.time_ns() // 1_000_000 - 3 * 3_600_000
"""When the clicks begin: hours ago, for brokers delete what is older than a week."""

OUTPUTS = ("ended", "visits", "counts")


class Click(NamedTuple):
    """One click of a user."""

    user: str
    page: str
    at_ms: int


def clicks_of_a_while(many: int) -> Iterator[Click]:
    """Yield clicks of some users, some of them with long pauses, and one late enough to end every session."""
    rng, at_ms = random.Random(1), BEGIN_MS
    for _ in range(many):
        at_ms += rng.choice((500, 2_000, 9_000, 40_000))
        yield Click(f"u{rng.randrange(6)}", f"/{rng.randrange(3)}", at_ms)
    yield Click("last", "/", at_ms + 10 * GAP_MS)


def sessions_of(clicks: list[Click]) -> list[tuple[str, int, int, int]]:
    """Return every session that has ended: user, clicks, begin and end."""
    found: list[tuple[str, int, int, int]] = []
    for user in {click.user for click in clicks} - {"last"}:
        times = [click.at_ms for click in clicks if click.user == user]
        begin = 0
        for at in range(1, len(times) + 1):
            if at == len(times) or times[at] - times[at - 1] >= GAP_MS:
                found.append((user, at - begin, times[begin], times[at - 1]))
                begin = at
    return sorted(found)


class Trial(NamedTuple):
    """One run of the jobs by a group of its own, with outputs of its own."""

    connection: KafkaConnection
    folder: Path
    name: str
    sources: dict[str, str]

    def app(self) -> App:
        """Return the jobs of the page, each topic with one partition."""
        text = program("jobs.py").replace("partitions=4", "partitions=1").replace('App("clicks"', f'App("{self.name}"')
        for topic in ("clicks", "countries", *OUTPUTS):
            there = f'topic("{topic}"'
            assert there in text
            text = text.replace(there, f'topic("{self.sources.get(topic, self.output(topic))}"')
        quick = "{'initial_rebalance_delay_ms': 0, 'rebalance_batch_ms': 0}"
        text = re.sub(r"config=\{.*?\}", f"config={quick}", text)
        file = self.folder / f"{self.name}.py"
        file.write_text(text)
        app = runpy.run_path(str(file))["app"]
        assert isinstance(app, App)
        return app

    def output(self, topic: str) -> str:
        """Return the name of an output."""
        return f"{self.name}-{topic}"

    async def records(self, topic: str) -> list[tuple[bytes, bytes, int]]:
        """Return what was written to an output: key, value and time."""
        job = Job(self.connection, self.name, "", "", "")
        return [(one.key, one.value, one.timestamp) for one in await read(job, self.output(topic))]

    async def has_counted(self, many: int) -> bool:
        """Whether so many clicks have gone through all the jobs."""
        try:
            return len(await self.records("counts")) == many
        except KeyError:
            # It is only being made.
            return False


COUNTRIES = {f"u{number}": f"c{number}" for number in range(0, 6, 2)}


async def hold_to_the_broker(trial: Trial, clicks: list[Click]) -> None:
    """Check that the same input gives the same outputs and the same changelogs without a broker."""
    app = trial.app()
    test, at = app.test(), runpy.run_path(str(trial.folder / f"{trial.name}.py"))
    for user, country in COUNTRIES.items():
        await test.send(at["countries"], country, key=user, timestamp_ms=0)
    for click in clicks:
        await test.send(at["clicks"], click.page, key=click.user, timestamp_ms=click.at_ms)
    for topic in OUTPUTS:
        there = [(one.key.encode(), one.timestamp_ms) for one in test.records(at[topic])]
        assert there == [(key, at_ms) for key, _, at_ms in await trial.records(topic)]
        values = [at[topic].value.dump(one.value) for one in test.records(at[topic])]
        assert values == [value for _, value, _ in await trial.records(topic)]
    job = Job(trial.connection, trial.name, "", "", "")
    changelogs = {changelog for part in app.subtopologies().values() for changelog in part.changelog_topics}
    assert len(changelogs) == 4
    for changelog in changelogs:
        latest = {one.key: one.value for one in await read(job, changelog)}
        assert test.changelog(changelog) == {key: value for key, value in latest.items() if value is not None}


@pytest.mark.needs("kafka")
async def test_sessions_joins_and_counts_of_a_second_run_are_those_of_the_first(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run meets its input in parts, and is taken over by another worker in the middle of sessions."""
    connection = KafkaConnection(bootstrap_servers=bootstrap)
    sources = {topic: await new_topic(topic) for topic in ("clicks", "countries")}
    clicks = list(clicks_of_a_while(120))
    trials = [Trial(connection, tmp_path, f"clicks-{uuid.uuid4().hex[:8]}", sources) for _ in range(2)]

    async def write(part: list[Click]) -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for click in part:
                await producer.send_and_wait(
                    sources["clicks"], click.page.encode(), key=click.user.encode(), timestamp_ms=click.at_ms
                )

    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for user, country in COUNTRIES.items():
            await producer.send_and_wait(sources["countries"], country.encode(), key=user.encode())
    async with LocalCoordinator() as coordinator, HttpServer(coordinator.answer) as server:
        monkeypatch.setenv("BATONPASS_URL", server.url)
        monkeypatch.setenv("BATONPASS_KAFKA_BOOTSTRAP", bootstrap)
        first, second = trials
        for number, part in enumerate((clicks[:50], clicks[50:])):
            # Without an instance id it leaves, and the next one has a folder of its own: it restores the changelogs.
            monkeypatch.setenv("BATONPASS_STATE", str(tmp_path / f"state-{number}"))
            async with running(first.app()):
                await write(part)
                await until(lambda: first.has_counted(50 if number == 0 else len(clicks)))  # noqa: B023
        async with running(second.app()):
            await until(lambda: second.has_counted(len(clicks)))
    for topic in OUTPUTS:
        assert await first.records(topic) == await second.records(topic)
    await hold_to_the_broker(first, clicks)
    ended = [(key.decode(), *msgspec.json.decode(value).values()) for key, value, _ in await first.records("ended")]
    assert sorted(ended) == sessions_of(clicks)
    joined = [(key.decode(), value) for key, value, _ in await first.records("visits")]
    assert joined == [(click.page, COUNTRIES.get(click.user, "unknown").encode()) for click in clicks]


@pytest.mark.parametrize("name", ["totals.py", "jobs.py"])
def test_the_types_of_the_page_hold(name: str, tmp_path: Path) -> None:
    right, wrong = program(name), program(name).replace("total.get(0)", 'total.get("0")', 1)
    assert right != wrong
    (tmp_path / "right.py").write_text(right)
    (tmp_path / "wrong.py").write_text(wrong)
    said, _, status = mypy.run(["--strict", str(tmp_path / "right.py"), str(tmp_path / "wrong.py")])
    assert status == 1
    assert "right.py" not in said
    assert 'No overload variant of "get" of "State" matches argument type "str"' in said


def test_the_three_jobs_and_their_test_take_sixty_lines_at_most() -> None:
    lines = (program("jobs.py") + program("test_jobs.py")).splitlines()
    assert len([line for line in lines if line.strip()]) <= 60


def test_the_tests_of_the_page_pass_without_a_broker(tmp_path: Path) -> None:
    for name in ("jobs.py", "test_jobs.py", "test_fleet.py"):
        (tmp_path / name).write_text(program(name))
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in said.stdout, said.stdout
