"""What is written down: one form for all lines, each with its causal id, and silence for what is ordinary."""

import io
import json
import logging
import os
import threading
from typing import Any

import pytest
import uvicorn
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    NotLeaderForPartitionError,
    TopicAuthorizationFailedError,
)
from tests.api.conftest import serving

from batonpass import logs
from batonpass.api.access import Unauthenticated
from batonpass.core.state.ids import GroupId
from batonpass.core.state.inputs import Tick
from batonpass.invariants import Violation
from batonpass.runtime.history import Asked


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


@pytest.fixture
def stream() -> io.StringIO:
    """Have everything written to a stream, as JSON."""
    found = io.StringIO()
    logs.configure("auto", "info", found)
    return found


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """Return what was written, a line each."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_a_command_and_its_generation_bear_the_id_of_their_request(stream: io.StringIO) -> None:
    log = logs.LoggingObserver()
    async with serving(observers=[log]) as api:
        await api.declare()
        epoch = (
            await api.client.put("/v1/groups/orders/members/m1", json={}, headers={"x-request-id": "deploy-7"})
        ).json()["member_epoch"]
        await api.call("POST", "/orders/pause?reason=lunch", headers={"x-request-id": "ops-1"})
        before = len(lines(stream))
        for seq in range(1, 50):
            await api.beat("m1", seq, epoch, {"0_0": {"role": "active", "state": "running"}})
        assert len(lines(stream)) == before, "a steady heartbeat writes nothing"
    written = lines(stream)
    assert [(line["event"], line["cause"]) for line in written][1:] == [
        ("generation", "deploy-7"),
        ("command", "ops-1"),
    ]
    generation, command = written[1:]
    assert (generation["group"], generation["because"], generation["moves"], generation["members"]) == (
        "orders",
        "join",
        2,
        1,
    )
    assert (command["command"], command["reason"], command["who"]) == ("pause", "lunch", "127.0.0.1")
    assert all(line["at"].endswith("Z") and line["level"] == "info" for line in written)


def test_refusals_are_written_once_in_a_while_for_each_class(stream: io.StringIO) -> None:
    """The first of a class at once, then one line every ten seconds that says how many there were."""
    at_s = [0.0]
    log = logs.LoggingObserver(monotonic=lambda: at_s[0])
    for _ in range(5):
        log.refused(Unauthenticated("no token"), "GET /v1/groups", "10.0.0.7", "c-1")
    log.refused(Unauthenticated("no token"), "POST /v1/tokens", "10.0.0.7", "c-2")
    at_s[0] = 10.0
    log.refused(Unauthenticated("no token"), "GET /v1/groups", "10.0.0.7", "c-3")
    assert [(line["call"], line["cause"], line["before"]) for line in lines(stream)] == [
        ("GET /v1/groups", "c-1", 0),
        ("POST /v1/tokens", "c-2", 0),
        ("GET /v1/groups", "c-3", 4),
    ]


def test_a_warning_that_anybody_can_cause_is_written_once_in_a_while() -> None:
    written, at_s = io.StringIO(), [0.0]
    logs.configure("json", "info", written, monotonic=lambda: at_s[0])
    server = logging.getLogger("uvicorn.error")
    for _ in range(1_000):
        server.warning("Invalid HTTP request received.")
    server.warning("Another thing.")
    server.error("That failed.")
    server.error("That failed.")
    at_s[0] = 10.0
    server.warning("Invalid HTTP request received.")
    assert [(line["event"], line.get("before")) for line in lines(written)] == [
        ("Invalid HTTP request received.", None),
        ("Another thing.", None),
        ("That failed.", None),
        ("That failed.", None),
        ("Invalid HTTP request received.", 999),
    ]


def test_failures_are_written_with_their_traceback_and_without_values(stream: io.StringIO) -> None:
    secret = "a-token-that-nobody-may-read"  # noqa: S105 - it is made up
    log = logs.LoggingObserver()
    try:
        int(f"{secret} is not a number"[:0])
    except ValueError as error:
        log.failed(error, "GET /metrics", "c-9")
        log.defect(GroupId("orders"), Tick(), error)
    log.law_broken(GroupId("orders"), Tick(), [Violation("L1", "two owners")])
    log.store_failed(GroupId("orders"), "no connection")
    log.stalled(2_500.0)
    log.access_is_off()
    log.connections_are_fewer(30_000, 19_744)
    log.variables_unread(["BATONPASS_PRT"])
    log.changelogs_held_up(GroupId("orders"), {("store", partition): 7 for partition in range(8)})
    log.changelogs_held_up(GroupId("orders"), {})
    log.fleet("group-taken-over", {"group": "orders"})
    log.fleet("lease-lost", {"groups": 3})
    assert secret not in stream.getvalue()
    failed, defect, law, store, stall, off, fewer, unread, held_up, readable, taken, lost = lines(stream)
    assert "ValueError: invalid literal" in failed["exception"]
    assert "ValueError: invalid literal" in defect["exception"]
    assert (law["law"], store["reason"], stall["gap_ms"]) == ("L1", "no connection", 2_500)
    assert (off["level"], off["event"]) == ("warning", "access-is-off")
    assert (fewer["level"], fewer["connections_max"], fewer["fit"]) == ("info", 30_000, 19_744)
    assert (unread["level"], unread["names"]) == ("warning", ["BATONPASS_PRT"])
    assert (held_up["level"], held_up["count"]) == ("warning", 8)
    assert held_up["first"] == [f"store-{partition}@7" for partition in range(5)]
    assert (readable["level"], readable["event"]) == ("info", "changelogs-readable")
    assert (taken["level"], taken["event"], taken["group"]) == ("info", "group-taken-over", "orders")
    assert (lost["level"], lost["event"], lost["groups"]) == ("warning", "lease-lost", 3)


def test_what_libraries_write_takes_the_same_form() -> None:
    """Whatever logging the library set up by itself."""
    uvicorn.Config("nothing:here")
    stream = io.StringIO()
    logs.configure("json", "info", stream)
    logging.getLogger("uvicorn.error").error("cannot %s", "listen")
    logging.getLogger("uvicorn.error").info("hello")
    (line,) = lines(stream)
    assert (line["event"], line["logger"], line["level"]) == ("cannot listen", "uvicorn.error", "error")


@pytest.mark.parametrize(("level", "lines_written"), [("info", 1), ("debug", 4)])
def test_what_kafkas_client_gets_over_by_itself_is_no_warning(level: str, lines_written: int) -> None:
    """A partition that is getting its leader is no news, unless one looks for mistakes."""
    stream = io.StringIO()
    logs.configure("json", level, stream)
    client = logging.getLogger(f"aiokafka.written.{level}")  # Others' lines may be written once in a while only.
    client.warning(
        "Got error produce response on topic-partition %s, retrying. Error: %s", 1, NotLeaderForPartitionError
    )
    client.warning("Got error produce response: %s", NotLeaderForPartitionError())
    client.error("Group Coordinator Request failed: %s", GroupCoordinatorNotAvailableError())
    client.warning("Got error produce response: %s", TopicAuthorizationFailedError())
    found = lines(stream)
    assert len(found) == lines_written
    assert "TopicAuthorizationFailed" in found[-1]["event"]


def test_people_get_a_form_that_can_be_read() -> None:
    for form, stream, is_json in (
        ("auto", Terminal(), False),
        ("console", io.StringIO(), False),
        ("json", Terminal(), True),
    ):
        logs.configure(form, "info", stream)
        logs.LoggingObserver().commanded("orders", Asked("ops", "lunch", "c-1", "pause"))
        assert "pause" in stream.getvalue()
        assert stream.getvalue().startswith("{") is is_json


def test_the_level_is_the_least_that_is_written() -> None:
    stream = io.StringIO()
    logs.configure("json", "warning", stream)
    log = logs.LoggingObserver()
    log.commanded("orders", Asked("ops", "", "c-1", "pause"))
    log.stalled(2_500.0)
    assert [line["event"] for line in lines(stream)] == ["stalled"]


class Gone(io.StringIO):
    """A stream whose reader is gone."""

    def write(self, _text: str) -> int:
        """Fail, as a closed pipe does."""
        raise BrokenPipeError

    def flush(self) -> None:
        """Fail in the same way."""
        raise BrokenPipeError


def test_a_log_that_nobody_reads_any_more_stops_nothing() -> None:
    logs.configure("json", "info", Gone())
    log = logs.LoggingObserver()
    log.stalled(2_500.0)
    log.failed(ValueError(), "GET /metrics", "c-9")
    logging.getLogger("uvicorn.error").error("cannot listen")


def log_much(log: logging.Logger) -> None:
    for number in range(1_000):
        log.error("%s %s", number, "x" * 900)


def test_a_pipe_that_nobody_reads_costs_lines_and_holds_nobody_up() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as pipe, os.fdopen(reading, "rb", buffering=0) as reader:
        logs.configure("json", "info", pipe)
        log = logging.getLogger("nobody.reads")
        said = threading.Thread(target=log_much, args=(log,), daemon=True)
        said.start()
        said.join(20)
        assert not said.is_alive()
        kept = reader.read(1_000_000)
        log.error("read again")
        kept += reader.read(1_000_000)
    first, *_, last = kept.splitlines()
    assert "0 xxx" in json.loads(first)["event"]
    assert "read again" in json.loads(last)["event"]
