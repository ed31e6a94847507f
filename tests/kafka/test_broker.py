"""A broker of one's own: from nothing to answering, its data kept, and gone with its parent."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from tests.programs import is_alive
from tests.waiting import wait_until

from batonpass.kafka.broker import LocalBroker
from batonpass.kafka.broker_parts import BrokerUnavailable

pytestmark = pytest.mark.needs("kafka")

ELSEWHERE = """
import sys
from pathlib import Path
from batonpass.kafka.broker import LocalBroker
broker = LocalBroker(Path(sys.argv[1]), heap_mb=256)
print(broker.start(), broker.pid, broker.watchdog.pid, flush=True)
sys.stdin.read()
"""


async def write_one(bootstrap: str, topic: str) -> None:
    """Make a topic and write one record to it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    await producer.send_and_wait(topic, b"kept")
    await producer.stop()


async def read_one(bootstrap: str, topic: str) -> bytes | None:
    """Read the first record of a topic."""
    async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        return bytes((await asyncio.wait_for(consumer.getone(), 20)).value)


def test_data_outlive_a_restart_and_a_killed_parent(tmp_path: Path) -> None:
    """A broker ends with its parent, even a killed one."""
    parent = subprocess.Popen(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        bootstrap, pid, watchdog = parent.stdout.readline().split()
        asyncio.run(write_one(bootstrap, "records"))
        with pytest.raises(BrokerUnavailable, match="another process runs a broker"):
            LocalBroker(tmp_path).start()
        parent.kill()
    # The next start waits until the broker that was left has ended.
    with LocalBroker(tmp_path, heap_mb=256) as broker:
        assert not is_alive(int(pid))
        wait_until(lambda: not is_alive(int(watchdog)), within_s=12)
        # A client that knows the address of the first one finds this one.
        assert broker.bootstrap_servers == bootstrap
        assert asyncio.run(read_one(broker.bootstrap_servers, "records")) == b"kept"
        # Without its watchdog the broker is told to end by the system.
        assert broker.watchdog is not None
        broker.watchdog.kill()
        if sys.platform == "linux":
            wait_until(lambda: not is_alive(broker.pid), within_s=30)
        assert not broker.is_running


def test_the_output_of_a_broker_that_does_not_start_is_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(BrokerUnavailable, match=r"num\.network\.threads"):
        LocalBroker(tmp_path, settings={"num.network.threads": "none"}).start()


def test_run_by_hand_it_says_where_it_listens_and_stops_when_told(tmp_path: Path) -> None:
    """`python -m batonpass.kafka` prints the setting that others connect by."""
    process = subprocess.Popen(
        [sys.executable, "-m", "batonpass.kafka", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        name, _, bootstrap = line.partition("=")
        assert name == "BATONPASS_KAFKA_BOOTSTRAP"
        asyncio.run(write_one(bootstrap, "records"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0
    with pytest.raises(OSError, match="Connect call failed"):
        asyncio.run(asyncio.wait_for(asyncio.open_connection(*bootstrap.split(":")), 5))


@pytest.mark.parametrize(("asked", "code"), [("--help", 0), ("--port", 2)])
def test_what_looks_like_an_option_is_no_folder(asked: str, code: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "batonpass.kafka", asked],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, list(tmp_path.iterdir())) == (code, [])
    assert "[FOLDER]" in done.stdout + done.stderr


async def test_a_run_shares_its_broker(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    described = await admin.describe_cluster()
    await admin.close()
    assert described["brokers"]
