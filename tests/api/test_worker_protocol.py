"""The worker's own state machine and the coordinator's HTTP understand each other, in real time."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.api.conftest import Api
from tests.waiting import until

from batonpass.worker.protocol import (
    Instruction,
    LeaveMode,
    MemberProtocol,
    MemberSettings,
    Phase,
    ProblemSeen,
    Progress,
    Request,
    Role,
    Send,
    Start,
    Stop,
    http_target,
)

END = 1_000
STEPS_TO_CATCH_UP = 5
TASKS = tuple(f"0_{number}" for number in range(4))


def now_ms() -> int:
    """Return the time by which everybody here goes."""
    return int(time.monotonic() * 1_000)


class Worker:
    """A worker that does nothing but what its machine tells it, and keeps count of it."""

    def __init__(self, name: str, api: Api, owners: dict[str, str]) -> None:
        self.name = name
        self.started: Counter[str] = Counter()
        self.stopped: Counter[str] = Counter()
        self.tokens: dict[str, int] = {}
        self.problems: list[ProblemSeen] = []
        self._api = api
        self._owners = owners
        self._restored: dict[str, int] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self.machine = MemberProtocol(MemberSettings(poll_wait_ms=500), lambda: name)

    async def run(self) -> None:
        """Work until cancelled."""
        self.carry_out(self.machine.start(now_ms()))
        try:
            while True:
                await asyncio.sleep(0.01)
                self.carry_out(self.machine.tick(now_ms()))
                for task in list(self._restored):
                    self._restore(task)
        finally:
            for call in self._calls:
                call.cancel()

    def carry_out(self, instructions: Iterable[Instruction]) -> None:
        """Do what the machine says, in order."""
        for one in instructions:
            match one:
                case Send(request):
                    call = asyncio.create_task(self._send(request))
                    self._calls.add(call)
                    call.add_done_callback(self._calls.discard)
                case Start(task, Role.ACTIVE, token):
                    self._start(task, token or 0)
                case Start(task):
                    self._restored[task] = 0
                case Stop(task, Role.ACTIVE, _, None):
                    self._stop(task)
                    self.carry_out(self.machine.task_stopped(task, now_ms=now_ms(), final_position=END))
                case Stop(task, Role.ACTIVE):
                    self._stop(task)
                    self.carry_out(self.machine.task_demoted(task, now_ms=now_ms(), final_position=END))
                    self._restored[task] = END - END // STEPS_TO_CATCH_UP
                case Stop(task):
                    self._restored.pop(task, None)
                    self.carry_out(self.machine.task_stopped(task, now_ms=now_ms()))
                case ProblemSeen():
                    self.problems.append(one)
                case _:
                    pass

    def _start(self, task: str, token: int) -> None:
        assert task not in self._owners, f"{self.name} starts {task}, which {self._owners[task]} runs"
        assert token > self.tokens.get(task, 0)
        self._owners[task] = self.name
        self.started[task] += 1
        self.tokens[task] = token
        self._restored.pop(task, None)
        self.carry_out(self.machine.task_running(task, now_ms=now_ms()))

    def _stop(self, task: str) -> None:
        assert self._owners.pop(task) == self.name
        self.stopped[task] += 1

    def _restore(self, task: str) -> None:
        if self._restored[task] < END:
            self._restored[task] += END // STEPS_TO_CATCH_UP
            progress = Progress(position=self._restored[task], end_offset=END)
            self.carry_out(self.machine.copy_progress(task, progress, now_ms=now_ms()))

    async def _send(self, request: Request) -> None:
        method, path = http_target(request, "orders")
        answer = await self._api.client.request(method, path, json=request.body)
        body: Any = answer.json() if answer.content else None
        self.carry_out(self.machine.on_answer(request, answer.status_code, body, now_ms=now_ms()))


@asynccontextmanager
async def working(*workers: Worker) -> AsyncIterator[None]:
    """Let workers work for as long as the test looks on; a failure inside one fails the test."""
    running = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield
    finally:
        for one in running:
            one.cancel()
        results = await asyncio.gather(*running, return_exceptions=True)
    assert [result for result in results if not isinstance(result, asyncio.CancelledError)] == []


@pytest.fixture
def owners(api: Api) -> dict[str, str]:
    """Return who runs which task, as the workers themselves know it; the coordinator goes by the same clock."""
    api.clock.now_ms = now_ms  # type: ignore[method-assign]
    return {}


async def test_two_workers_share_the_tasks_by_warm_handovers_and_one_leaves(api: Api, owners: dict[str, str]) -> None:
    await api.declare(partitions=len(TASKS), heartbeat_interval_ms=100, session_timeout_ms=5_000)
    first, second = Worker("m1", api, owners), Worker("m2", api, owners)
    async with working(first):
        await until(lambda: len(owners) == len(TASKS))
        async with working(second):
            await until(lambda: Counter(owners.values()) == {"m1": 2, "m2": 2})
            moved = {task for task, owner in owners.items() if owner == "m2"}
            assert first.started == dict.fromkeys(TASKS, 1)
            assert first.stopped == second.started == dict.fromkeys(moved, 1)
            assert {task: second.tokens[task] for task in moved} == dict.fromkeys(moved, 2)
            async with asyncio.timeout(30):
                while (await api.call("GET", "/orders")).json()["state"] != "at-rest":
                    await asyncio.sleep(0.02)
            second.carry_out(second.machine.leave(now_ms=now_ms(), mode=LeaveMode.LEAVE))
            await until(lambda: second.machine.phase is Phase.LEFT)
            await until(lambda: set(owners.values()) == {"m1"} and len(owners) == len(TASKS))
    assert first.started == {task: 2 if task in moved else 1 for task in TASKS}
    assert first.problems == second.problems == []


async def test_a_drained_worker_hands_everything_over_before_it_is_empty(api: Api, owners: dict[str, str]) -> None:
    await api.declare(partitions=len(TASKS), heartbeat_interval_ms=100, session_timeout_ms=5_000)
    first, second = Worker("m1", api, owners), Worker("m2", api, owners)
    async with working(first, second):
        await until(lambda: Counter(owners.values()) == {"m1": 2, "m2": 2})
        second.carry_out(second.machine.drain(now_ms=now_ms()))
        await until(lambda: Counter(owners.values()) == {"m1": 4})
        await until(lambda: [status.code for status in second.machine.statuses] == ["drained"])
        assert (await api.call("POST", "/orders/members/m2/drain?wait_ms=2000")).status_code == 200
        assert (await api.call("GET", "/orders/members/m2/safe-to-stop")).status_code == 200
    assert first.problems == second.problems == []
