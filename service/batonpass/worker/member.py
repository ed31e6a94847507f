"""The asyncio member: joins a group, has the worker's callbacks called, and goes in good order."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from batonpass.worker.driver import Driver
from batonpass.worker.options import Exit, MemberOptions, Options
from batonpass.worker.protocol import Holding, LeaveMode, Phase, Problem, Progress, Status
from batonpass.worker.tasks import Callbacks, Task

log = logging.getLogger("batonpass.worker")

_FINAL_STATUSES = frozenset({401, 403, 413, 422})


class JoinRefused(Exception):
    """The coordinator refuses this member in a way that waiting does not mend."""

    def __init__(self, problem: Problem) -> None:
        faults = "".join(f"; {path}: {reason}" for path, reason in problem.errors)
        super().__init__(f"{problem.type or problem.status}: {problem.detail or problem.title}{faults}")
        self.problem = problem


class Member:
    """One worker process in one group.

        async with Member("http://coordinator:8420", "orders", Totals(), token=...) as member:
            await member.run()

    The block begins when the member has joined, and when it ends the member leaves (see ``on_exit`` of `Options`).
    Several URLs, in a list or with commas between them (as a setting has them), are several coordinators, any of which
    may be asked: where one cannot be reached or answers 503, the next one is. What happens is logged under
    `batonpass.worker`.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        group: str,
        callbacks: Callbacks | None = None,
        **options: Unpack[MemberOptions],
    ) -> None:
        """Make a member that has not joined yet.

        Raises:
            ValueError: for a URL that is not one.
        """
        self.options = Options(**options)
        self.group = group
        urls = [url] if isinstance(url, str) else url
        self._callbacks = callbacks or Callbacks()
        self._driver = Driver(urls, group, self._callbacks, self.options, self)
        self._machine = self._driver.machine
        self._hurried = asyncio.Event()
        self._signals = 0

    # --- life -------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Join, and wait until that is done.

        Raises:
            JoinRefused: when the coordinator will not have it.
        """
        self.start()
        try:
            await self.joined()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything and leave."""
        await self.exit()

    def start(self) -> None:
        """Begin to join, and go on with everything else when that is done."""
        self._driver.start()

    async def joined(self) -> None:
        """Wait until the group knows this member, for as long as the coordinator is away or asks to wait.

        Raises:
            JoinRefused: when the coordinator will not have it.
        """
        while self._machine.phase in (Phase.NEW, Phase.JOINING) and self._driver.end is None:
            if (problem := self._driver.join_problem) is not None and problem.status in _FINAL_STATUSES:
                raise JoinRefused(problem)
            await self._driver.next_turn()
        if self._machine.phase is Phase.STOPPED:
            raise JoinRefused(self._driver.join_problem or Problem(type=self._driver.end or "", status=409))

    async def run(self, *, on_sigterm: Exit | None = None, on_sigint: Exit | None = None) -> str:
        """Work until a signal asks to go, then go; return why it ended.

        What a signal means when it is not said is what the end of the ``async with`` block means. A second signal cuts
        a drain short. Without signals it ends when the coordinator says that this process is to stop for good.
        """
        asked: asyncio.Queue[Exit] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        meanings = {
            signal.SIGTERM: on_sigterm or self.options.exit,
            signal.SIGINT: on_sigint or self.options.exit,
        }
        for number, how in meanings.items():
            loop.add_signal_handler(number, self._signalled, asked, how)
        told = asyncio.ensure_future(asked.get())
        ended = asyncio.ensure_future(self.ended())
        try:
            await asyncio.wait((told, ended), return_when=asyncio.FIRST_COMPLETED)
            await self.exit(told.result() if told.done() else None)
        finally:
            told.cancel()
            ended.cancel()
            for number in meanings:
                loop.remove_signal_handler(number)
        return self._driver.end or "stopped"

    def _signalled(self, asked: asyncio.Queue[Exit], how: Exit) -> None:
        log.info("a signal asks this member to %s", how)
        self._signals += 1
        if self._signals > 1:
            self.hurry()
        asked.put_nowait(how)

    def hurry(self) -> None:
        """Cut a drain short that an exit waits for."""
        self._hurried.set()
        self._driver.wake()

    async def ended(self) -> str:
        """Wait until nothing more is to come, wanted or not; return why."""
        while self._driver.end is None:
            await self._driver.next_turn()
        return self._driver.end

    async def exit(self, how: Exit | None = None) -> None:
        """Go: stop every task in good order, tell the coordinator, and close. Only the first call does anything."""
        if self._driver.is_closed:
            return
        how = how or self.options.exit
        try:
            if how is Exit.DRAIN and self._machine.phase is Phase.JOINED:
                await self._drained()
            if self._driver.end is None:
                self._driver.turn(lambda now: self._machine.leave(now_ms=now, mode=self._mode(how)))
            async with asyncio.timeout(self.options.exit_timeout_ms / 1_000):
                await self.ended()
                while not all(work.is_idle for work in self._driver.works.values()):
                    await self._driver.next_turn()
        except TimeoutError:
            log.exception("gone without an answer, or with tasks that did not stop: %s", sorted(self.unfinished))
        finally:
            await self.close()

    def _mode(self, how: Exit) -> LeaveMode:
        return LeaveMode.LEAVE if self.options.instance_id is None else how.mode

    async def _drained(self) -> None:
        """Ask to be drained, and wait until that is done, its deadline is over, or somebody is in a hurry."""
        deadline_ms = self.options.drain_deadline_ms
        self.drain(deadline_ms=deadline_ms)
        try:
            async with asyncio.timeout(deadline_ms / 1_000):
                while not self._is_drained and not self._hurried.is_set() and self._driver.end is None:
                    await self._driver.next_turn()
        except TimeoutError:
            log.warning("the drain is not over after %s ms; leaving with %s", deadline_ms, sorted(self.tasks))

    @property
    def _is_drained(self) -> bool:
        return any(status.code == "drained" for status in self._machine.statuses)

    async def close(self) -> None:
        """Stop at once without a word to the coordinator: its lease runs out by itself. `exit` is the polite way."""
        await self._driver.close()
        try:
            await self._callbacks.on_close()
        except Exception:
            log.exception("on_close raised")

    # --- what the worker says ----------------------------------------------------------------------------------------

    def report(
        self, task: Task | str, position: int | None = None, end_offset: int | None = None, *, lag: int | None = None
    ) -> None:
        """Say how far a copy, or an active that restores, has come: position and end offset, or its lag."""
        self.progress(_id(task), Progress(position=position, end_offset=end_offset, lag=lag))

    def progress(self, task: Task | str, progress: Progress) -> None:
        """Say the same in all the ways that there are."""
        self._driver.turn(lambda now: self._machine.copy_progress(_id(task), progress, now_ms=now))

    def running(self, task: Task | str) -> None:
        """Say that an active has restored and processes."""
        self._driver.turn(lambda now: self._machine.task_running(_id(task), now_ms=now))

    def failed(self, task: Task | str, detail: str) -> None:
        """Say that an active cannot process; a ready copy elsewhere takes over."""
        self._driver.turn(lambda now: self._machine.task_failed(_id(task), detail, now_ms=now))

    def lost(self, task: Task | str) -> None:
        """Say that a task's state is gone, a copy's, an active's or what was on disk; an active must have ceased."""
        self._driver.turn(lambda now: self._machine.state_lost(_id(task), now_ms=now))

    def producer_fenced(self, task: Task | str) -> None:
        """Say that an active's producer was fenced: it is stopped without a commit."""
        self._driver.turn(lambda now: self._machine.producer_fenced(_id(task), now_ms=now))

    def input_lag(self, task: Task | str, lag: int) -> None:
        """Say how many input records wait for an active; shown to people, decides nothing."""
        self._driver.turn(lambda now: self._machine.input_lag(_id(task), lag, now_ms=now))

    def drain(self, *, deadline_ms: int | None = None) -> None:
        """Ask to have every task handed over; the status `drained` says when that is done."""
        self._driver.turn(lambda now: self._machine.drain(now_ms=now, deadline_ms=deadline_ms))

    def undrain(self) -> None:
        """Call a drain off."""
        self._driver.turn(lambda now: self._machine.undrain(now_ms=now))

    # --- looks ------------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """Where this process stands with its group."""
        return self._machine.phase

    @property
    def member_id(self) -> str | None:
        """The id of the present run; None before the first join."""
        return self._machine.member_id

    @property
    def statuses(self) -> tuple[Status, ...]:
        """What the coordinator said last of this member's standing."""
        return self._machine.statuses

    @property
    def holdings(self) -> Mapping[str, Holding]:
        """What this member has, as the coordinator is told."""
        return self._machine.holdings

    @property
    def on_disk(self) -> Mapping[str, Progress]:
        """State that nobody tails, by task."""
        return self._machine.on_disk

    @property
    def tasks(self) -> dict[str, Task]:
        """The tasks that were begun and have not stopped."""
        return {task_id: work.task for task_id, work in self._driver.works.items() if work.task is not None}

    @property
    def unfinished(self) -> list[str]:
        """The tasks that are stopping, or something of which still runs though the member is at its end."""
        return [task_id for task_id, work in self._driver.works.items() if not work.is_idle]

    def may_process(self, task: Task | str) -> bool:
        """Whether an active may write now: ask before every output and every commit."""
        return self._machine.may_process(_id(task), self._driver.now_ms())

    def may_begin(self, task: Task | str) -> bool:
        """Whether an active may begin to write now: it may process, and the lease holds."""
        now_ms = self._driver.now_ms()
        return self._machine.may_process(_id(task), now_ms) and not self._machine.lease_is_over(now_ms)


def _id(task: Task | str) -> str:
    return task if isinstance(task, str) else task.id
