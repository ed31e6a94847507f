"""A worker's metrics are reached by every address, and silent callers take no more than a few threads of it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest
from prometheus_client import CollectorRegistry, Gauge
from tests.waiting import until

from batonpass.sockets import _has_ipv6, free_port
from batonpass.worker.kafka import metrics
from batonpass.worker.kafka.metrics import CALLERS_MAX, serve


@pytest.fixture
def port() -> Iterator[int]:
    registry, port = CollectorRegistry(), free_port()
    Gauge("answer", "Of everything.", registry=registry).set(42)
    with serve(port, registry):
        yield port


def scraped(host: str, port: int) -> bytes:
    with closing(socket.create_connection((host, port), 10)) as one:
        one.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return b"".join(iter(partial(one.recv, 65_536), b""))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_metrics_are_shown_at_addresses_of_either_kind(port: int, host: str) -> None:
    if host == "::1" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    assert b"answer 42.0" in scraped(host, port)


async def test_callers_who_say_nothing_are_few_and_are_hung_up_on(
    port: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics._Call, "timeout", 0.5)
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(2 * CALLERS_MAX)]
    # Those beyond the limit at once, the others once their time is over.
    assert [one.recv(1) for one in idle[CALLERS_MAX:]] == [b""] * CALLERS_MAX
    assert threading.active_count() - before <= CALLERS_MAX
    assert [one.recv(1) for one in idle[:CALLERS_MAX]] == [b""] * CALLERS_MAX
    await until(lambda: b"answer 42.0" in scraped("127.0.0.1", port))
    for one in idle:
        one.close()
    assert capfd.readouterr().err == ""


def test_after_the_block_nobody_listens_and_the_port_is_free() -> None:
    port = free_port()
    for _ in range(2):
        taken = pytest.raises(OSError, match="in use")
        with serve(port, CollectorRegistry()), taken, serve(port, CollectorRegistry()):
            pass
        with pytest.raises(ConnectionRefusedError):
            scraped("127.0.0.1", port)
