"""All groups of this process, each in a room of its own that is made on first use."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from batonpass.core.errors import LimitExceeded, ProtocolError, UnknownGroup
from batonpass.core.ids import GroupId, MemberId
from batonpass.core.inputs import GroupDeclaration, Input, Tick
from batonpass.runtime.engine import RETRY_AFTER_MS
from batonpass.runtime.feed import FOLLOWERS_MAX, Feed
from batonpass.runtime.history import NOBODY_ASKED, Asked
from batonpass.runtime.ports import Archive, CoordinatorLoading, Defect, NotOwner, Ports
from batonpass.runtime.room import Room

if TYPE_CHECKING:
    from batonpass.core.model import Group
    from batonpass.core.policy import Policy
    from batonpass.core.replies import Answer, Reply
    from batonpass.core.soft import Soft

LETTERS_MAX = 10_000
GROUPS_MAX = 1_000


class Coordinator:
    """What the shells ask: inputs are carried out, long-polls wait, and the present state can be looked at."""

    def __init__(
        self,
        ports: Ports,
        *,
        letters_max: int = LETTERS_MAX,
        groups_max: int = GROUPS_MAX,
        streams_max: int = FOLLOWERS_MAX,
    ) -> None:
        self.feed = Feed(ports.archive, followers_max=streams_max)
        self._feeding: asyncio.Task[None] | None = None
        self._known: set[GroupId] = set()
        self._ports = ports
        self._letters_max = letters_max
        self._groups_max = groups_max
        self._rooms: dict[GroupId, Room] = {}
        self._stopping = asyncio.Event()
        self.is_ready = False

    async def start(self) -> None:
        """Read every group, so that deadlines of groups that nobody asks for are kept too.

        Raises:
            StoreUnavailable: when the log is away.
        """
        if self._feeding is None:
            self._feeding = asyncio.create_task(self.feed.run(), name="event feed")
        for group_id in await self._ports.log.group_ids():
            if self._ports.ownership.holds(group_id):
                # A group that cannot be read is a defect, which the observer has heard of; the others are served.
                with contextlib.suppress(Defect):
                    await self._loaded(group_id)
        self.is_ready = True

    async def ownership_changed(self) -> None:
        """Let go of groups that fall to another coordinator now, and read those that fall to this one.

        Raises:
            StoreUnavailable: when the log is away; to be called again.
        """
        ownership = self._ports.ownership
        for group_id in ownership.to_forget():
            room = self._rooms.get(group_id)
            if room is None:
                ownership.forgotten(group_id)
            else:
                room.mailbox.let_go()
        for group_id in await self._ports.log.group_ids():
            if ownership.holds(group_id):
                with contextlib.suppress(NotOwner, Defect):
                    await self._loaded(group_id)

    def loaded_groups(self) -> list[tuple[Group, Soft]]:
        """Return what this coordinator has in memory of the groups that it answers for now."""
        ownership = self._ports.ownership
        rooms = [room for group_id, room in self._rooms.items() if ownership.holds(group_id)]
        return [(room.engine.group, room.engine.soft) for room in rooms if room.engine.group.declared]

    async def keep_snapshots(self, *, after_records: int) -> None:
        """Have the log keep every group of which more than ``after_records`` records were added since it last did.

        Raises:
            StoreUnavailable: when the log is away.
        """
        for group_id, room in list(self._rooms.items()):
            if self._ports.ownership.holds(group_id):
                await room.engine.keep_snapshot(after_records=after_records)

    async def stop(self) -> None:
        """End every wait and carry out what was accepted."""
        self.end_waits()
        rooms = list(self._rooms.values())
        await asyncio.gather(*(room.mailbox.close() for room in rooms))
        # Last, because whatever was still carried out has set a deadline anew.
        for room in rooms:
            room.deadline.cancel()
        if self._feeding is not None:
            await self._feeding

    def end_waits(self) -> None:
        """Let every long-poll end now, as if its time were over, and every event stream."""
        self._stopping.set()
        self.feed.close()
        for room in self._rooms.values():
            room.watchers.wake_all()

    @property
    def archive(self) -> Archive:
        """What was committed beside the records of all groups, whoever owns them."""
        return self._ports.archive

    async def knows(self, group_id: GroupId) -> bool:
        """Say whether there is, or ever was, a group of this name, whoever owns it.

        Raises:
            StoreUnavailable: when the log is away.
        """
        if group_id not in self._known:
            self._known = set(await self._ports.log.group_ids())
        return group_id in self._known

    @property
    def policy(self) -> Policy:
        """The limits of this coordinator."""
        return self._ports.policy

    def now_ms(self) -> int:
        """Return the coordinator's time."""
        return self._ports.clock.now_ms()

    async def ask(self, group_id: GroupId, item: Input, asked: Asked = NOBODY_ASKED) -> Reply:
        """Have an input carried out and return the reply; a refusal is a reply like any other."""
        room = self._rooms.get(group_id)
        if room is None:
            if isinstance(item, GroupDeclaration) and len(self._rooms) >= self._groups_max:
                return LimitExceeded(f"this coordinator has {self._groups_max} groups, as many as it may have")
            room = self._room(group_id)
        try:
            return await room.mailbox.ask(item, asked)
        finally:
            self._tidy(room)

    async def look(self, group_id: GroupId) -> tuple[Group, Soft]:
        """Return the group as it is committed, with what is softly known of it.

        Raises:
            UnknownGroup: when it is not declared.
            StoreUnavailable: when it cannot be read.
        """
        room = await self._loaded(group_id)
        self._require(group_id)
        if not room.engine.group.declared:
            raise UnknownGroup(f"no group {group_id} is declared; declare it with PUT /v1/groups/{group_id}")
        return room.engine.group, room.engine.soft

    async def declared(self, *, after: str, limit: int) -> list[GroupId]:
        """Return the next declared groups of this coordinator by name after ``after``, at most ``limit``."""
        declared = (name for name, room in self._rooms.items() if room.engine.group.declared and name > after)
        return sorted(name for name in declared if self._ports.ownership.owner_url(name) is None)[:limit]

    async def poll(
        self, group_id: GroupId, member_id: MemberId, *, after: int, wait_ms: int
    ) -> Answer | ProtocolError | None:
        """Return the member's assignment as soon as it is not the one of epoch ``after``; None when the wait is over.

        A refusal is returned too: the member, or the group, is unknown here, or another coordinator's.

        To cancel this call says that the poll broke: its caller went away without an answer.

        Raises:
            StoreUnavailable: when the group cannot be read.
        """
        room = await self._loaded(group_id)
        end = asyncio.get_running_loop().time() + wait_ms / 1_000
        room.poll_opened(member_id)
        try:
            while True:
                found = await self._look_for(group_id, member_id, after)
                left_s = end - asyncio.get_running_loop().time()
                if found is not None or left_s <= 0 or self.is_stopping:
                    return found
                await room.watchers.wait(member_id, left_s)
        except asyncio.CancelledError:
            if not self.is_stopping:
                room.poll_broken(member_id)
            raise
        finally:
            room.poll_closed(member_id)

    async def _look_for(self, group_id: GroupId, member_id: MemberId, after: int) -> Answer | ProtocolError | None:
        if refusal := self._refusal(group_id):
            return refusal
        engine = (await self._loaded(group_id)).engine
        return self._ports.poll(engine.group, engine.soft, member_id, after, self._ports.policy)

    @property
    def is_stopping(self) -> bool:
        """Whether every wait ends now."""
        return self._stopping.is_set()

    async def news(self, group_id: GroupId, member_id: MemberId, *, wait_s: float) -> bool:
        """Wait until something that concerns the member was committed; say whether it was before the wait was over."""
        room = self._rooms.get(group_id)
        if room is None or self.is_stopping:
            return False
        return await room.watchers.wait(member_id, wait_s) and not self.is_stopping

    def _require(self, group_id: GroupId) -> None:
        """Refuse to speak for a group without a valid lease (L4)."""
        if refusal := self._refusal(group_id):
            raise refusal

    def _refusal(self, group_id: GroupId) -> NotOwner | None:
        if self._ports.ownership.holds(group_id):
            return None
        owner = self._ports.ownership.owner_url(group_id) or "a coordinator that is not known yet"
        return NotOwner(f"group {group_id} is served by {owner}; try again", retry_after_ms=RETRY_AFTER_MS)

    async def _loaded(self, group_id: GroupId) -> Room:
        room = self._room(group_id)
        try:
            if not room.engine.is_loaded:
                # Any input makes the engine read the group; this one asks for nothing else.
                reply = await room.mailbox.ask(Tick())
                if not room.engine.is_loaded:
                    raise (
                        reply
                        if isinstance(reply, ProtocolError)
                        else CoordinatorLoading(f"group {group_id} has not been read yet")
                    )
        finally:
            self._tidy(room)
        return room

    def _room(self, group_id: GroupId) -> Room:
        room = self._rooms.get(group_id)
        if room is None:
            room = self._rooms[group_id] = Room(group_id, self._ports, self.feed, letters_max=self._letters_max)
        return room

    def _tidy(self, room: Room) -> None:
        """Forget a group that turned out never to have been declared, lest asking for names should fill the memory."""
        if room.is_empty and self._rooms.get(room.engine.group_id) is room:
            room.deadline.cancel()
            del self._rooms[room.engine.group_id]
