"""One Kafka for a test run, which all its processes share, and topics on it that no other test uses.

It is the cluster that BATONPASS_KAFKA_BOOTSTRAP names, else a broker of the run's own. Where neither can be had, the
tests that need it fail with what is missing.
"""

import fcntl
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.protocol.offset import OffsetRequest, OffsetResetStrategy
from tests.waiting import until

from batonpass.kafka.broker import BOOTSTRAP_VARIABLE

NewTopics = Callable[..., Awaitable[str]]


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap servers of the run's Kafka."""
    given = os.environ.get(BOOTSTRAP_VARIABLE)
    if given:
        yield given
        return
    base = tmp_path_factory.getbasetemp()
    # The processes of a parallel run have folders beside one another.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kafka"
    folder.mkdir(exist_ok=True)
    with (folder / "users").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        yield shared_broker(folder)


def shared_broker(folder: Path) -> str:
    """Return where the run's broker listens, after starting it if this is the first process that asks."""
    with (folder / "start").open("a") as start:
        fcntl.flock(start, fcntl.LOCK_EX)
        known = folder / "bootstrap"
        if known.exists():
            return known.read_text()
        # It outlives this process if others still use the broker.
        with (folder / "host.log").open("w") as log:
            host = subprocess.Popen(
                [sys.executable, "-m", "tests.kafka.host", str(folder)],
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
                cwd=Path(__file__).parents[2],
            )
        assert host.stdout is not None
        listening = host.stdout.readline().strip()
        host.stdout.close()
        if not listening:
            host.wait()
            pytest.fail((folder / "host.log").read_text())
        # It is waited for by the system's first process, not by this one.
        host.returncode = 0
        known.write_text(listening)
        return listening


@pytest.fixture
async def new_topic(bootstrap: str) -> AsyncIterator[NewTopics]:
    """A function that makes a topic of a name that nobody has used before and returns the name."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()

    async def make(name: str, *, partitions: int = 1, **settings: str) -> str:
        topic = f"{name}-{uuid.uuid4().hex[:8]}"
        configs = {key.replace("_", "."): value for key, value in settings.items()}
        await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])
        await known_to_broker(admin, topic, partitions)
        return topic

    yield make
    await admin.close()


async def known_to_broker(admin: AIOKafkaAdminClient, topic: str, partitions: int) -> None:
    """Wait until every partition of a topic has a leader that knows of it."""

    async def is_led() -> bool:
        [found] = await admin.describe_topics([topic])
        leaders = {part["partition"]: part["leader"] for part in found.get("partitions", [])}
        for leader in set(leaders.values()) - {-1}:
            led = [(number, OffsetResetStrategy.LATEST) for number, at in leaders.items() if at == leader]
            answer = await admin._client.send(leader, OffsetRequest(-1, 0, [(topic, led)]))
            if any(error_code for _, answered in answer.topics for _, error_code, *_ in answered):
                return False
        return len(leaders) == partitions and -1 not in leaders.values()

    await until(is_led, every_s=0.05)


def topics_of_a_job(names: Sequence[str], partitions: int = 1) -> list[NewTopic]:
    """Return the topics that a job needs, to be made; the last one is its changelog."""
    *others, changelog = names
    compacted = NewTopic(changelog, partitions, 1, topic_configs={"cleanup.policy": "compact"})
    return [*(NewTopic(name, partitions, 1) for name in others), compacted]


async def make_anew(admin: AIOKafkaAdminClient, topic: str, **settings: str) -> None:
    """Delete a topic and make another one of its name."""
    await admin.delete_topics([topic])

    async def is_made() -> bool:
        made = await admin.create_topics([NewTopic(topic, 1, 1, topic_configs=settings)])
        return all(code == 0 for _, code, *_ in made.topic_errors)

    await until(is_made)
    await known_to_broker(admin, topic, 1)
