"""All groups of this process, each with its own runtime, which is created on first use."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final

from batonpass.background import kept_going
from batonpass.core.state.application import application_of
from batonpass.core.state.errors import LimitExceeded, ProtocolError, UnknownGroup
from batonpass.core.state.ids import GroupId, MemberId
from batonpass.core.state.inputs import GroupDeclaration, Input, RefusedRebalance, StreamsRebalance, Tick
from batonpass.core.state.model import Group
from batonpass.core.state.policy import GroupConfig
from batonpass.core.state.replies import Answer, Reply
from batonpass.core.state.soft import Soft
from batonpass.loop_turns import LoopTurns
from batonpass.runtime.feed import FOLLOWERS_EACH_MAX, FOLLOWERS_MAX, Feed
from batonpass.runtime.group_runtime import GroupRuntime
from batonpass.runtime.history import NOBODY_ASKED, Asked
from batonpass.runtime.ports import (
    RETRY_AFTER_MS,
    CoordinatorLoading,
    Defect,
    NotOwner,
    Ports,
    StoreUnavailable,
    not_owner,
)
from batonpass.runtime.task_room import TASKS_TOTAL_MAX, TaskRoom

REQUESTS_WAITING_MAX = 10_000
GROUPS_MAX = 1_000
TELL_S: Final = 1.0


class Coordinator:
    """The entry point for the shells: it carries out inputs, serves long-polls, and shows the present state."""

    def __init__(
        self,
        ports: Ports,
        *,
        requests_waiting_max: int = REQUESTS_WAITING_MAX,
        groups_max: int = GROUPS_MAX,
        tasks_total_max: int = TASKS_TOTAL_MAX,
        streams_max: int = FOLLOWERS_MAX,
        streams_each_max: int = FOLLOWERS_EACH_MAX,
    ) -> None:
        self.feed = Feed(ports.archive, followers_max=streams_max, followers_each_max=streams_each_max)
        self._feeding: asyncio.Task[None] | None = None
        self._ports = ports
        self._requests_waiting_max = requests_waiting_max
        self._turns = LoopTurns()
        self._groups_max = groups_max
        self._runtimes: dict[GroupId, GroupRuntime] = {}
        self._room = TaskRoom(tasks_total_max, lambda: [runtime.engine.group for runtime in self._runtimes.values()])
        self.archive = ports.archive
        """The histories of all groups, also of those that other coordinators own."""
        self.policy = ports.policy
        self.observer = ports.observer
        self.is_ready = False
        self.is_stopping = False
        """Whether every wait ends at once."""

    async def start(self) -> None:
        """Read every group that this coordinator owns, so that deadlines are kept even if no request names the group.

        It is ready when every group has been tried; those that could not be read now are read later.

        Raises:
            StoreUnavailable, CoordinatorLoading, NotOwner: when the log cannot be reached, or a group not be read or
                taken over now; the caller has to call again.
        """
        if self._feeding is None:
            self._feeding = asyncio.create_task(kept_going("event feed", self.feed.run), name="event feed")
        self._require_lease()
        failed = await self._read_owned()
        self.is_ready = True
        if failed is not None:
            raise failed

    async def ownership_changed(self) -> None:
        """Forget the groups that another coordinator owns now, and read those that this one owns now.

        Raises:
            StoreUnavailable, CoordinatorLoading: when the log cannot be reached, or a group not be read now; the caller
                has to call again.
        """
        ownership = self._ports.ownership
        for group_id in ownership.to_forget():
            runtime = self._runtimes.get(group_id)
            if runtime is None:
                ownership.forgotten(group_id)
            else:
                runtime.mailbox.let_go()
        failed = await self._read_owned()
        # A group that its last owner has yet to release is made known again then.
        if failed is not None and not isinstance(failed, NotOwner):
            raise failed

    async def _read_owned(self) -> ProtocolError | None:
        """Read every group that this coordinator owns; return why one could not be read now. None keeps the others.

        Raises:
            StoreUnavailable: when the log cannot be reached.
        """
        log = self._ports.log
        failed: ProtocolError | None = None
        for group_id in await log.group_ids():
            if not self._ports.ownership.holds(group_id):
                continue
            try:
                # A group that cannot be read at all is a defect, already reported to the observer.
                with contextlib.suppress(Defect):
                    await self._loaded(group_id)
            except NotOwner as error:
                failed = failed or error
            except ProtocolError as error:
                failed = error
                # If the log cannot be reached at all, trying the others would only take long.
                await log.group_ids()
        return failed

    def loaded_groups(self) -> list[tuple[Group, Soft]]:
        """Return the declared groups that this coordinator owns now and has in memory."""
        return [(one.engine.group, one.engine.soft) for one in self._held() if one.engine.group.declared]

    def _held(self) -> list[GroupRuntime]:
        return [one for group_id, one in self._runtimes.items() if self._ports.ownership.holds(group_id)]

    def is_deciding(self) -> bool:
        """Return whether a decision on a large group is being made. A thread may ask."""
        return any(runtime.engine.is_deciding for runtime in list(self._runtimes.values()))

    async def keep_snapshots(self, *, after_records: int) -> None:
        """Store a snapshot of every group that got more than ``after_records`` records since its last snapshot.

        Raises:
            StoreUnavailable: when the log cannot be reached, or did not take some; that keeps no other group's from it.
        """
        failed: StoreUnavailable | None = None
        for runtime in self._held():
            try:
                await runtime.engine.keep_snapshot(after_records=after_records)
            except StoreUnavailable as error:
                failed = error
                # If the log cannot be reached at all, trying the others would only take long.
                await self._ports.log.group_ids()
        if failed is not None:
            raise failed

    async def stop(self) -> None:
        """End every wait and carry out the inputs that were accepted."""
        self.end_waits()
        runtimes = list(self._runtimes.values())
        await asyncio.gather(*(runtime.mailbox.close() for runtime in runtimes))
        # Last, because inputs that were still carried out have set new deadlines.
        for runtime in runtimes:
            runtime.deadline.cancel()
        if self._feeding is not None:
            await self._feeding

    def end_waits(self) -> None:
        """End every long-poll now, as if its time were over, and every event stream."""
        self.is_stopping = True
        self.feed.close()
        for runtime in self._runtimes.values():
            runtime.watchers.wake_all()

    def shown_groups(self) -> list[tuple[Group, Soft]]:
        """Return these groups, and the applications that have none because they are refused (``_shown``)."""
        return [found for runtime in self._held() if (found := self._shown(runtime)) is not None]

    async def knows(self, group_id: GroupId) -> bool:
        """Return whether a group of this name exists or ever existed, on any coordinator.

        Raises:
            StoreUnavailable: when the log cannot be reached.
        """
        return group_id in self._runtimes or await self._ports.log.knows(group_id)

    def now_ms(self) -> int:
        return self._ports.clock.now_ms()

    async def ask(self, group_id: GroupId, item: Input, asked: Asked = NOBODY_ASKED) -> Reply:
        """Carry out an input and return the reply; a refusal is returned, not raised."""
        runtime = self._runtimes.get(group_id)
        if runtime is None:
            if isinstance(item, GroupDeclaration | StreamsRebalance | RefusedRebalance):
                for one in list(self._runtimes.values()):
                    if one.is_vacant:
                        self._forget(one)
                without = sum(one.is_vacant for one in self._runtimes.values())
                others = without if isinstance(item, RefusedRebalance) else len(self._runtimes) - without
                if others >= self._groups_max:
                    return LimitExceeded(f"this coordinator has {self._groups_max} groups, as many as it may have")
            else:
                try:
                    await self._require_known(group_id)
                except ProtocolError as refused:
                    return refused
            runtime = self._runtime(group_id)
        try:
            with self._room.claim(runtime.engine.group, item):
                return await runtime.mailbox.ask(item, asked)
        except LimitExceeded as refused:
            return refused
        finally:
            self._tidy(runtime)

    async def tell(self, group_id: GroupId, item: Input) -> Reply | None:
        """As ``ask``, for one who tells many groups, again and again: no group is waited for longer than ``TELL_S``.

        None: it was not carried out within that time. It will be.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TELL_S):
                return await self.ask(group_id, item)
        return None

    def hear(self, group_id: GroupId, member_ids: Iterable[MemberId]) -> None:
        """Count members as heard that may well have been, without having this coordinator hear them (L5)."""
        runtime = self._runtimes.get(group_id)
        if runtime is not None:
            runtime.mailbox.hear(member_ids)

    async def look(self, group_id: GroupId) -> tuple[Group, Soft]:
        """Return the group as it is committed, with its soft state.

        Raises:
            UnknownGroup: when it is not declared, and no application is refused under its name.
            StoreUnavailable: when it cannot be read.
        """
        found = self._shown(await self._loaded(group_id))
        self._require(group_id)
        if found is None:
            raise _unknown(group_id)
        return found

    def _shown(self, runtime: GroupRuntime) -> tuple[Group, Soft] | None:
        """Return a declared group; or, as one that is not, an application that has none, because it is refused.

        A refused question makes no group: nothing of it is stored, and it is shown for as long as the application asks.
        """
        group, soft = runtime.engine.group, runtime.engine.soft
        if not group.declared:
            group = Group(group.id, config=GroupConfig(kafka_streams=True))
            application = application_of(group, soft, self.now_ms())
            if application is None or application.refused is None or application.is_silent:
                return None
        return group, soft

    async def declared(self, *, after: str, limit: int) -> list[GroupId]:
        """Return the next groups of this coordinator by name after ``after``, at most ``limit``.

        Raises:
            NotOwner: when it does not know them: its lease is over, or they are still being read (503).
        """
        self._require_lease()
        if not self.is_ready:
            raise NotOwner("this coordinator is still reading its groups; try again", retry_after_ms=RETRY_AFTER_MS)
        shown = (name for name, runtime in self._runtimes.items() if name > after and self._shown(runtime) is not None)
        return sorted(name for name in shown if self._ports.ownership.owner_url(name) is None)[:limit]

    def _require_lease(self) -> None:
        if why := self._ports.ownership.not_ready():
            raise NotOwner(f"{why}; try again", retry_after_ms=RETRY_AFTER_MS)

    async def poll(
        self, group_id: GroupId, member_id: MemberId, *, after: int, wait_ms: int
    ) -> Answer | ProtocolError | None:
        """Return the member's assignment as soon as it is not the one of epoch ``after``; None when the wait is over.

        A refusal is returned too: the member or the group is unknown here, or another coordinator owns the group.

        Cancelling this call means that the poll broke: the caller disconnected before it got an answer.

        Raises:
            UnknownGroup: when no such group ever existed.
            StoreUnavailable: when the group cannot be read.
        """
        runtime = await self._loaded(group_id)
        end = asyncio.get_running_loop().time() + wait_ms / 1_000
        runtime.poll_opened(member_id)
        try:
            while True:
                found = await self._look_for(group_id, member_id, after)
                left_s = end - asyncio.get_running_loop().time()
                if found is not None or left_s <= 0 or self.is_stopping:
                    return found
                await runtime.watchers.wait(member_id, left_s)
        except asyncio.CancelledError:
            if not self.is_stopping:
                runtime.poll_broken(member_id)
            raise
        finally:
            runtime.poll_closed(member_id)

    async def _look_for(self, group_id: GroupId, member_id: MemberId, after: int) -> Answer | ProtocolError | None:
        if refusal := self._refusal(group_id):
            return refusal
        engine = (await self._loaded(group_id)).engine
        return self._ports.poll(engine.group, engine.soft, member_id, after)

    async def news(self, group_id: GroupId, member_id: MemberId, *, wait_s: float) -> bool:
        """Wait for a commit that concerns the member; return whether there was one before the wait was over."""
        runtime = self._runtimes.get(group_id)
        if runtime is None or self.is_stopping:
            return False
        return await runtime.watchers.wait(member_id, wait_s) and not self.is_stopping

    def _require(self, group_id: GroupId) -> None:
        """Refuse to answer for a group without a valid lease (L4)."""
        if refusal := self._refusal(group_id):
            raise refusal

    def _refusal(self, group_id: GroupId) -> NotOwner | None:
        return None if self._ports.ownership.holds(group_id) else not_owner(self._ports.ownership, group_id)

    async def _require_known(self, group_id: GroupId) -> None:
        """Refuse to read a group that never existed: reading a group takes it over, which writes."""
        if not await self.knows(group_id):
            self._require(group_id)
            raise _unknown(group_id)

    async def _loaded(self, group_id: GroupId) -> GroupRuntime:
        if group_id not in self._runtimes:
            await self._require_known(group_id)
        runtime = self._runtime(group_id)
        try:
            if not runtime.engine.is_loaded:
                # Any input makes the engine read the group; this one asks for nothing else.
                reply = await runtime.mailbox.ask(Tick())
                if not runtime.engine.is_loaded:
                    raise (
                        reply
                        if isinstance(reply, ProtocolError)
                        else CoordinatorLoading(f"group {group_id} has not been read yet")
                    )
        finally:
            self._tidy(runtime)
        return runtime

    def _runtime(self, group_id: GroupId) -> GroupRuntime:
        runtime = self._runtimes.get(group_id)
        if runtime is None:
            runtime = self._runtimes[group_id] = GroupRuntime(
                group_id,
                self._ports,
                self.feed,
                requests_waiting_max=self._requests_waiting_max,
                turns=self._turns,
            )
        return runtime

    def _tidy(self, runtime: GroupRuntime) -> None:
        """Forget a group that was never declared, so that unknown names do not fill the memory."""
        if runtime.is_vacant and runtime.engine.group.version == 0:
            self._forget(runtime)

    def _forget(self, runtime: GroupRuntime) -> None:
        """Forget that there is no group, unless an application of its name is shown; who asks has it read again."""
        if self._shown(runtime) is None and self._runtimes.get(runtime.engine.group_id) is runtime:
            runtime.deadline.cancel()
            del self._runtimes[runtime.engine.group_id]


def _unknown(group_id: GroupId) -> UnknownGroup:
    return UnknownGroup(f"no group {group_id} is declared; declare it with PUT /v1/groups/{group_id}")
