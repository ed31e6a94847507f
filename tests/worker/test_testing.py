"""What users test their workers with: virtual time, a coordinator in the same process, a line that fails."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
from typing import Any, cast

import httpx2 as httpx
import pytest
from tests.waiting import until
from tests.worker.recording import Scene, on_virtual_time

from batonpass.core.state.errors import ProtocolError
from batonpass.worker import Callbacks, Member, Task
from batonpass.worker.testing import HttpServer, Line, LocalCoordinator, VirtualClock, run
from batonpass.worker.testing.__main__ import main
from batonpass.worker.testing.http import Reply


def test_hours_pass_at_once_and_timers_keep_their_order() -> None:
    async def scenario() -> list[tuple[str, float]]:
        loop, seen = asyncio.get_running_loop(), list[tuple[str, float]]()

        async def note(name: str, after_s: float) -> None:
            await asyncio.sleep(after_s)
            seen.append((name, loop.time()))

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1_800):
                await asyncio.Event().wait()
        await asyncio.gather(note("late", 7_200), note("early", 0.5), note("same", 0.5))
        return seen

    began = time.monotonic()
    assert run(scenario()) == [("early", 1_800.5), ("same", 1_800.5), ("late", 9_000)]
    assert time.monotonic() - began < 5


def test_no_time_passes_while_a_thread_works() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        timer = asyncio.ensure_future(asyncio.sleep(60))
        await asyncio.to_thread(time.sleep, 0.2)
        assert loop.time() < 60
        assert not timer.done()
        await timer
        assert loop.time() == pytest.approx(60)

    run(scenario())


def test_a_thread_that_is_left_at_the_end_is_waited_for() -> None:
    """From Python 3.12 on a loop ends with a limit on that, which must not be over while nothing else is to be done."""

    async def leave() -> float:
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, time.sleep, 0.05)
        await cast("Any", loop).shutdown_default_executor(300)
        return loop.time()

    assert run(leave()) == 0


@on_virtual_time
async def test_a_clock_can_be_suspended_by_itself() -> None:
    one, other = VirtualClock(), VirtualClock()
    await asyncio.sleep(1)
    one.suspend(60_000)
    assert (one(), other()) == (61_000, 1_000)


class Minimal(Callbacks):
    """The least that a worker does."""

    async def on_active(self, task: Task) -> None:
        """Run."""
        task.running()


@on_virtual_time
async def test_a_test_of_a_worker_takes_a_dozen_lines() -> None:
    async with LocalCoordinator() as coordinator:
        await coordinator.declare("orders", partitions=3)
        async with Member(coordinator.url, "orders", Minimal(), transport=coordinator.transport()) as member:
            found = await coordinator.at_rest("orders")
            assert found["current"] == {
                member.member_id: {"active": ["0_0", "0_1", "0_2"], "standby": [], "warmup": []}
            }


@on_virtual_time
async def test_what_an_operator_does_can_be_done_to_a_group() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare()
        async with scene.member(scene.worker("a")) as member:
            await scene.rest()
            await coordinator.probe("orders")
            assert member.member_id is not None
            old = member.member_id
            await coordinator.evict("orders", old, dead=True)
            await until(lambda: member.member_id != old)
            with pytest.raises(ProtocolError, match="nobody"):
                await coordinator.evict("orders", "nobody")


async def test_a_coordinator_serves_outside_of_its_block_nothing() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await LocalCoordinator().declare("orders")


@on_virtual_time
async def test_a_line_can_be_cut_lose_answers_refuse_and_be_slow() -> None:
    async with LocalCoordinator() as coordinator:
        await coordinator.declare("orders")
        line = Line()
        async with httpx.AsyncClient(transport=coordinator.transport(line), base_url=coordinator.url) as client:
            joined = await client.put("/v1/groups/orders/members/m1")
            poll = asyncio.ensure_future(client.get("/v1/groups/orders/members/m1/assignment?after=99&wait_ms=9000"))
            assert (joined.status_code, (await poll).status_code) == (201, 200)
            line.loses_answers = True
            with pytest.raises(httpx.ReadError):
                await client.put("/v1/groups/orders/members/m2")
            line.loses_answers = False
            assert (await client.put("/v1/groups/orders/members/m2")).status_code == 200
            line.refuses_with = 503
            assert (await client.get("/v1/groups/orders")).json()["type"] == "store-unavailable"
            line.refuses_with, line.delay_s = None, 2
            began = asyncio.get_running_loop().time()
            assert (await client.get("/v1/groups/orders")).json()["members"] == 2
            assert asyncio.get_running_loop().time() - began == pytest.approx(4)
            line.delay_s = 0
            waiting = asyncio.ensure_future(client.get("/v1/groups/orders/members/m1/assignment?after=2&wait_ms=60000"))
            await asyncio.sleep(1)
            line.cut()
            with pytest.raises(httpx.ReadError):
                await waiting
            with pytest.raises(httpx.ConnectError):
                await client.get("/v1/groups/orders")
            line.mend()
            assert (await client.get("/v1/groups/orders")).status_code == 200
            assert line.calls[0] == ("PUT", "/v1/groups/orders/members/m1")


async def test_the_small_server_speaks_http() -> None:
    seen: list[tuple[str, str, bytes]] = []

    async def answer(method: str, target: str, body: bytes) -> Reply | None:
        seen.append((method, target, body))
        match target:
            case "/empty":
                return Reply(204)
            case "/broken":
                return None
            case "/refused":
                return Reply(409, b"{}")
            case _:
                return Reply(200, body)

    async with HttpServer(answer) as server, httpx.AsyncClient(base_url=server.url) as client:
        large = b"x" * 300_000
        assert (await client.post("/echo?a=b", content=large)).content == large
        assert (await client.get("/empty")).status_code == 204
        refused = await client.delete("/refused")
        assert (refused.status_code, refused.headers["content-type"]) == (409, "application/problem+json")
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get("/broken")
        assert [target for _, target, _ in seen] == ["/echo?a=b", "/empty", "/refused", "/broken"]


async def test_the_small_server_notices_that_a_caller_went_away() -> None:
    """It cancels the answer, which is how a coordinator sees a broken long-poll."""
    cancelled = asyncio.Event()

    async def answer(_method: str, _target: str, _body: bytes) -> Reply | None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return None

    async with HttpServer(answer) as server, httpx.AsyncClient(base_url=server.url) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.get("/", timeout=0.2)
        async with asyncio.timeout(10):
            await cancelled.wait()


def test_a_coordinator_for_tests_in_any_language_runs_as_a_process() -> None:
    command = [sys.executable, "-m", "batonpass.worker.testing", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        topology = {"subtopologies": [{"id": "0", "partitions": 2, "changelog_topics": ["store"]}]}
        assert httpx.put(f"{url}/v1/groups/orders", json={"topology": topology}).status_code == 201
        assert httpx.put(f"{url}/v1/groups/orders/members/m1", json={"capacity": 2}).status_code == 201
        assert httpx.post(f"{url}/v1/groups/orders/members/m1/drain").status_code in {200, 202}
        assert httpx.delete(f"{url}/v1/groups/orders/members/m1/drain").status_code == 204
        assert httpx.post(f"{url}/v1/groups/orders/members/m1/evict?dead=true").status_code == 204
        assert httpx.put(f"{url}/v1/groups/orders/members/m1").json()["type"] == "gone"
        assert httpx.put(f"{url}/v1/groups/orders", content=b"{").status_code == 422
        assert httpx.get(f"{url}/v1/nothing").status_code == 422
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    with_port = [*command[:-1], url.rpartition(":")[2]]
    with socket.create_server(("127.0.0.1", int(with_port[-1]))):
        done = subprocess.run(with_port, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert "cannot listen" in done.stderr


def test_a_port_that_there_is_not_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--port", "99999"]) == 1
    assert "cannot listen on port 99999: " in capsys.readouterr().err
