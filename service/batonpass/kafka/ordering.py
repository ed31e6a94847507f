"""What keeps its order while others go on beside it: records of a partition going out, calls of a member coming in."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.partitioner import DefaultPartitioner

from batonpass.background import first_to_fail
from batonpass.codec.answers import answer_body, problem_body, to_json
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import GroupId, MemberId
from batonpass.core.state.replies import Answer
from batonpass.loop_turns import LoopTurns
from batonpass.worker.kafka.metadata import RECORD_BYTES_MAX
from batonpass.worker.kafka.said import Said

log = logging.getLogger("batonpass.kafka")

WRITER: Final = "coordinator"
"""The header with the name of the coordinator that wrote a record, and since when it has been writing."""

IN_HAND_BYTES: Final = 64 * 1_048_576
"""How much of what was read may wait until it is carried out. Then nothing more is read."""


class Delivery(NamedTuple):
    """A record to write: an answer, a refusal, the acknowledgements of a group, or a tombstone (None)."""

    key: bytes
    body: Answer | ProtocolError | dict[MemberId, int] | None

    def value(self) -> bytes | None:
        if isinstance(self.body, ProtocolError):
            return to_json(problem_body(self.body))
        if isinstance(self.body, Answer):
            return to_json(answer_body(self.body))
        return None if self.body is None else to_json(self.body)


class Deliveries:
    """Writes to one topic, whose keys begin with a group's name: each partition's records in their order.

    A leader that does not answer holds up what it leads alone. Of a key only the last refusal and the last of its other
    records wait for it, so that they do not fill the memory, and none once ``speaks_for`` says no to the group.
    """

    def __init__(
        self,
        producer: AIOKafkaProducer,
        topic: str,
        partitions: int,
        speaks_for: Callable[[GroupId], bool],
        writer: Callable[[], bytes] = lambda: b"",
    ) -> None:
        self._producer = producer
        self._writer = writer
        self._topic = topic
        self._speaks_for = speaks_for
        self._lanes: list[dict[tuple[bytes, bool], Delivery]] = [{} for _ in range(partitions)]
        self._news = [asyncio.Event() for _ in self._lanes]
        self._said = Said()

    def _lane_of(self, key: bytes) -> int:
        return int(DefaultPartitioner()(key, range(len(self._lanes)), ()))

    def put(self, record: Delivery) -> None:
        """Have a record written, behind all that wait for its partition."""
        number, is_refusal = self._lane_of(record.key), isinstance(record.body, ProtocolError)
        lane = self._lanes[number]
        if (record.key, not is_refusal) in lane:
            # What was said last of a member stands last; all else keeps its turn.
            lane.pop((record.key, is_refusal), None)
        lane[record.key, is_refusal] = record
        self._news[number].set()

    def has(self, key: bytes) -> bool:
        """Whether a record of a key waits, or is just being written."""
        return (key, False) in self._lanes[self._lane_of(key)]

    async def run(self) -> None:
        """Write until cancelled.

        Raises:
            KafkaError: when the cluster refuses a record.
        """
        await first_to_fail(*map(self._write, self._lanes, self._news))

    async def _write(self, lane: dict[tuple[bytes, bool], Delivery], news: asyncio.Event) -> None:
        while await news.wait():
            news.clear()
            while lane:
                kind, record = next(iter(lane.items()))
                if self._speaks_for(GroupId(record.key.decode().partition("/")[0])):
                    await self._send(record)
                newer = lane.pop(kind)
                if newer is not record:
                    lane[kind] = newer

    async def _send(self, record: Delivery) -> None:
        # Encoded one by one: all answers of a large group at once would hold up the loop.
        value = record.value()
        try:
            await self._producer.send_and_wait(self._topic, value, key=record.key, headers=[(WRITER, self._writer())])
        except MessageSizeTooLargeError:
            # A refusal repeats what was wrong. All others are still answered.
            if self._said.is_news("too large"):
                size = len(value or b"")
                log.warning(
                    "%s gets no answer: with %d bytes it is too large; raise max.message.bytes of %s to %d",
                    *(record.key.decode(), size, self._topic, RECORD_BYTES_MAX),
                )


class Turns:
    """Does each member's work in its order, and that of others beside it: what holds one group up holds up no other.

    What has come at once, as after a pause, is begun in turns with all else that the coordinator does.
    """

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._turns = LoopTurns()
        self._last: dict[tuple[GroupId, MemberId], asyncio.Task[None]] = {}
        self._bytes = 0
        self._ended = asyncio.Event()

    async def take(self, member: tuple[GroupId, MemberId], size: int, work: Callable[[], Awaitable[None]]) -> None:
        """Have work begin once all before it is done for the member; wait while the work in hand is too large."""
        task = self._last[member] = self._tasks.create_task(self._do(self._last.get(member), work))
        self._bytes += size
        task.add_done_callback(partial(self._done, member, size))
        while self._bytes > IN_HAND_BYTES:
            # Not for the tasks themselves: of ten thousand members each wait would look at them all.
            self._ended.clear()
            await self._ended.wait()

    def _done(self, member: tuple[GroupId, MemberId], size: int, task: asyncio.Task[None]) -> None:
        self._bytes -= size
        self._ended.set()
        if self._last.get(member) is task:
            del self._last[member]

    async def _do(self, before: asyncio.Task[None] | None, work: Callable[[], Awaitable[None]]) -> None:
        if before is not None:
            await asyncio.wait([before])
        await self._turns.take()
        await work()
