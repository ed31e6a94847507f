"""Workers that write down their instructions, and object when two of them run one task."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from batonpass.worker import Callbacks, Member, Offsets, Problem, Revocation, Role, Status, Task
from batonpass.worker.protocol import RequestKind
from batonpass.worker.testing import Line, LocalCoordinator, VirtualClock, run

P = ParamSpec("P")

END = 1_000
"""Where every changelog ends."""


def on_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Let a test run on an event loop whose time passes at once."""

    @functools.wraps(test)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return wrapped


@dataclass
class Ownership:
    """Who runs which task, as the workers know it themselves, and every token under which one ran."""

    owners: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, list[int]] = field(default_factory=dict)

    def takes(self, name: str, task: Task) -> None:
        """Note that a worker begins to run a task."""
        owner = self.owners.setdefault(task.id, name)
        assert owner == name, f"{name} runs {task.id}, which {owner} runs"
        assert task.fencing_token is not None
        self.tokens.setdefault(task.id, []).append(task.fencing_token)

    def gives_up(self, name: str, task_id: str) -> None:
        """Note that a worker runs a task no more."""
        if self.owners.get(task_id) == name:
            del self.owners[task_id]

    def count(self, name: str) -> int:
        """Return how many tasks a worker runs."""
        return list(self.owners.values()).count(name)


class Recorder(Callbacks):
    """A worker that restores in `restore_s` and then runs; it writes down each thing that happens."""

    def __init__(self, name: str, ownership: Ownership, *, restore_s: float = 1.0) -> None:
        self.name = name
        self.ownership = ownership
        self.restore_s = restore_s
        self.events: list[tuple[object, ...]] = []
        self.begun: list[Task] = []
        self.statuses: list[str] = []
        self.problems: list[str] = []

    def of(self, kind: str) -> list[tuple[object, ...]]:
        """Return what happened of one kind, without the kind."""
        return [event[1:] for event in self.events if event[0] == kind]

    async def on_active(self, task: Task) -> None:
        """Restore unless the state is in place, then run until told to stop."""
        self.begun.append(task)
        self.events.append(("active", task.id, task.was, task.restore_to))
        self.ownership.takes(self.name, task)
        if task.was is None:
            await self.restore(task)
        task.running()
        await asyncio.Event().wait()

    async def on_standby(self, task: Task) -> None:
        """Restore unless the state is in place, then stay caught up."""
        self.begun.append(task)
        self.events.append((task.role.value, task.id, task.was))
        if task.was is None:
            await self.restore(task)
        task.report(END, END)
        await asyncio.Event().wait()

    async def restore(self, task: Task) -> None:
        """Read the changelog in four steps."""
        for step in range(4):
            task.report(END * step // 4, END)
            await asyncio.sleep(self.restore_s / 4)

    async def on_revoke(self, task: Task, revocation: Revocation) -> Offsets | None:
        """Stop."""
        self.events.append(("revoke", task.id, task.role, revocation.commit, revocation.becomes))
        if task.role is Role.ACTIVE:
            self.ownership.gives_up(self.name, task.id)
            return END if revocation.commit else None
        return None

    def on_status(self, statuses: Any) -> None:
        """Write the codes down."""
        self.statuses = [status.code for status in statuses if isinstance(status, Status)]

    def on_problem(self, kind: RequestKind, problem: Problem) -> None:
        """Write the type down."""
        self.problems.append(f"{kind}:{problem.type}")


@dataclass
class Scene:
    """A coordinator in this process, and the workers on it."""

    coordinator: LocalCoordinator
    ownership: Ownership = field(default_factory=Ownership)
    lines: dict[str, Line] = field(default_factory=dict)
    clocks: dict[str, VirtualClock] = field(default_factory=dict)

    def member(self, worker: Callbacks, name: str = "a", **options: Any) -> Member:
        """Return a member on a line and a clock of its own."""
        self.lines[name], self.clocks[name] = Line(), VirtualClock()
        given: dict[str, Any] = {
            "transport": self.coordinator.transport(self.lines[name]),
            "clock": self.clocks[name],
            "poll_wait_ms": 10_000,
        }
        return Member(self.coordinator.url, "orders", worker, **(given | options))

    def worker(self, name: str, **options: Any) -> Recorder:
        """Return a worker that counts in this scene."""
        return Recorder(name, self.ownership, **options)

    async def declare(self, *, partitions: int = 2, **config: object) -> None:
        """Declare the group, with a lag that tells a copy that restores from one that is caught up."""
        await self.coordinator.declare("orders", partitions=partitions, acceptable_recovery_lag=100, **config)

    async def rest(self) -> dict[str, Any]:
        """Wait until every task is where it belongs and runs."""
        return await self.coordinator.at_rest("orders", timeout_s=300)
