"""A member's calls over Kafka instead of HTTP: the same `Member`, with this as its ``transport``.

    Member("http://kafka", "orders", callbacks, transport=KafkaTransport(connection))

A heartbeat is answered when ``batonpass.acks`` has its ``seq``; the answer to a join, a refusal and every new
assignment come by ``batonpass.assignments``. Only the path of the URL counts. The member sees one difference: an
acknowledgement takes up to one heartbeat interval.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final
from urllib.parse import unquote

import httpx2 as httpx
import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError

from batonpass.background import first_to_fail
from batonpass.worker.kafka.connection import KafkaConnection, TopicNames, carrying, in_words, to_its_end
from batonpass.worker.kafka.reading import look_after, place_of, placed
from batonpass.worker.kafka.said import UnreadableRecords, write_once
from batonpass.worker.protocol import RequestKind, parse_answer
from batonpass.worker.protocol.messages import KINDS

log = logging.getLogger("batonpass.worker.kafka")

_PATH: Final = re.compile(r"/v1/groups/([^/]+)/members/([^/]+)(.*)")
_GONE: Final = {
    "type": "gone",
    "title": "The member is gone",
    "status": 409,
    "detail": "its record was taken away: it left, or was fenced",
    "action": "stop-and-rejoin",
}
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
_ACKS: Final = msgspec.json.Decoder(dict[str, int])


class KafkaTransport(httpx.AsyncBaseTransport):
    """Carries the calls of one process's members to the coordinators on one cluster."""

    def __init__(self, connection: KafkaConnection, *, prefix: str = "batonpass") -> None:
        """Name the cluster and the topics' prefix; nothing is connected before the first call."""
        write_once(self)
        self._connection = connection
        self._topics = TopicNames(prefix)
        self._starting = asyncio.Lock()
        self._producer: AIOKafkaProducer | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._clients = AsyncExitStack()
        self._listening: asyncio.Task[None] | None = None
        self._news = asyncio.Condition()
        # The members that call by this transport, and what was last said to each.
        self._mine: set[str] = set()
        self._records: dict[str, tuple[int, dict[str, Any] | None]] = {}
        # Of each member's records the last that refused, for its present answer may come with it.
        self._refusals: dict[str, tuple[int, dict[str, Any] | None]] = {}
        self._sent: dict[str, int] = {}
        self._acked: dict[str, int] = {}
        self._read_to: dict[TopicPartition, int] = {}
        self._count = 0
        self._unreadable = UnreadableRecords(log)
        self._is_closed = False

    @property
    def unreadable(self) -> int:
        """How many records of the protocol's topics were skipped, because they are not what a coordinator writes."""
        return self._unreadable.count

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Carry one call out.

        Raises:
            httpx.ConnectError: when the cluster cannot be reached.
        """
        found = _PATH.fullmatch(request.url.path)
        kind = KINDS.get((request.method, found[3])) if found else None
        if found is None or kind is None:
            return _response(404, {"type": "not-found", "title": "Not found", "status": 404})
        group, member = unquote(found[1]), unquote(found[2])
        self._mine.add(f"{group}/{member}")
        try:
            await self._start()
            body = await request.aread()
            said: dict[str, Any] = msgspec.json.decode(body) if body else {}
            match kind:
                case RequestKind.JOIN:
                    return await self._join(group, member, said)
                case RequestKind.HEARTBEAT:
                    return await self._heartbeat(group, member, said)
                case RequestKind.POLL:
                    return await self._poll(group, member, request.url.params)
                case RequestKind.LEAVE:
                    return await self._leave(group, member, request.url.params.get("mode", "leave"))
                case RequestKind.DRAIN | RequestKind.UNDRAIN:
                    wish = {name: int(ms) for name, ms in request.url.params.items() if name == "deadline_ms"}
                    await self._send(group, {"kind": kind, "member": member} | wish)
                    return _response(202, {"drained": False}) if kind is RequestKind.DRAIN else httpx.Response(204)
        except (KafkaError, OSError) as error:
            raise httpx.ConnectError(await in_words(error, self._connection), request=request) from error

    async def aclose(self) -> None:
        """Disconnect for good; a connection that is just being made is closed once it is made."""
        self._is_closed = True
        await self._disconnect()

    # --- the calls --------------------------------------------------------------------------------------------------

    async def _join(self, group: str, member: str, said: dict[str, Any]) -> httpx.Response:
        since, key = self._count, f"{group}/{member}"
        await self._send(group, {"kind": "join", "member": member} | said)
        return _answer(await self._record(key, since, lambda: self._latest(key)[0] > since), 201)

    async def _heartbeat(self, group: str, member: str, said: dict[str, Any]) -> httpx.Response:
        since, key = self._count, f"{group}/{member}"
        self._sent[key] = max(said["seq"], self._sent.get(key, -1))
        await self._send(group, {"kind": "heartbeat", "member": member} | said)
        known = await self._record(key, since, lambda: self._acked.get(key, -1) >= said["seq"])
        if self._is_refused(key, since):
            return _answer(known, 200)
        if known is None or "member_epoch" not in known:
            # Acknowledged, but its assignment has not arrived: the answer is not known yet, so it is sent again.
            return _response(
                503, {"type": "coordinator-loading", "title": "Loading", "status": 503, "retry_after_ms": 200}
            )
        is_current = known["member_epoch"] == said["member_epoch"]
        return _response(200, known | {"seq": self._acked[key]} | ({"assignment": None} if is_current else {}))

    async def _poll(self, group: str, member: str, params: httpx.QueryParams) -> httpx.Response:
        since, key, after = self._count, f"{group}/{member}", int(params.get("after", 0))

        def is_news() -> bool:
            record = self._latest(key)[1]
            return record is not None and record.get("member_epoch", after) != after

        try:
            async with asyncio.timeout(int(params.get("wait_ms", 30_000)) / 1_000):
                return _answer(await self._record(key, since, is_news), 200)
        except TimeoutError:
            return httpx.Response(204)

    async def _leave(self, group: str, member: str, mode: str) -> httpx.Response:
        since, key = self._count, f"{group}/{member}"
        await self._send(group, {"kind": "leave", "member": member, "mode": mode})
        record = await self._record(key, since, lambda: self._latest(key)[1] is None)
        if record is not None:
            return _answer(record, 204)
        self._mine.discard(key)
        for said in (self._records, self._refusals, self._sent, self._acked):
            said.pop(key, None)
        return httpx.Response(204)

    def _latest(self, key: str) -> tuple[int, dict[str, Any] | None]:
        """Return the number of a member's last record and what it says; 0 and None where there was none."""
        return self._records.get(key, (0, None))

    def _is_refused(self, key: str, since: int) -> bool:
        number, _ = self._refusals.get(key, (0, None))
        return number > since

    async def _record(self, key: str, since: int, condition: Callable[[], bool]) -> dict[str, Any] | None:
        """Wait until a member was refused, or a condition holds; return the refusal, or what its last record says."""
        async with self._news:
            await self._news.wait_for(lambda: self._is_refused(key, since) or condition())
            return self._refusals[key][1] if self._is_refused(key, since) else self._latest(key)[1]

    # --- the wire ---------------------------------------------------------------------------------------------------

    async def _send(self, group: str, said: dict[str, Any]) -> None:
        producer = self._producer
        if producer is None:
            raise KafkaConnectionError("this transport was closed, or connects anew")
        try:
            await producer.send_and_wait(self._topics.heartbeats, msgspec.json.encode(said), key=group.encode())
        except KafkaError as error:
            # Brokers may take nothing more of this producer, as after a leader that did not have all that it wrote.
            if not error.retriable and self._producer is producer:
                await self._disconnect()
            raise

    async def _start(self) -> None:
        async with self._starting:
            if self._listening is not None and not self._listening.done():
                return
            # Listening has failed, but its clients are still connected.
            await self._disconnect()
            async with AsyncExitStack() as clients:
                topics = (self._topics.assignments, self._topics.acks)
                connecting = clients.enter_async_context(carrying(self._connection, topics))
                consumer, producer = await to_its_end(connecting)
                if not self._read_to:
                    await placed(consumer)
                for part in consumer.assignment():
                    # After a failure, go on from the last position: an assignment is written once. What is in a
                    # partition that was added meanwhile was written meanwhile, and one whose leader is out of reach is
                    # read from its beginning.
                    consumer.seek(part, self._read_to.setdefault(part, place_of(consumer, part) or 0))
                self._consumer, self._producer, self._clients = consumer, producer, clients.pop_all()
            self._listening = asyncio.create_task(self._listen(consumer), name="batonpass kafka transport")
            if self._is_closed:
                await self._disconnect()
                raise KafkaConnectionError("this transport was closed")

    async def _disconnect(self) -> None:
        listening, clients = self._listening, self._clients.pop_all()
        self._listening = self._consumer = self._producer = None
        if listening is not None:
            listening.cancel()
            await asyncio.wait([listening])
        await clients.aclose()

    async def _listen(self, consumer: AIOKafkaConsumer) -> None:
        await first_to_fail(self._take_all(consumer), look_after(consumer))

    async def _take_all(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            batches = await consumer.getmany(timeout_ms=1_000)
            async with self._news:
                for part, records in batches.items():
                    for record in records:
                        self._take(record)
                        self._read_to[part] = record.offset + 1
                self._news.notify_all()

    def _take(self, record: ConsumerRecord) -> None:
        """Take what a record says. Others than coordinators may be able to write to these topics."""
        try:
            if record.topic == self._topics.assignments:
                # Those of all other members on the cluster would fill the memory.
                if (key := _key(record)) in self._mine:
                    answer = _read_answer(record)
                    self._count += 1
                    self._records[key] = (self._count, answer)
                    if answer is None or "member_epoch" not in answer:
                        self._refusals[key] = self._records[key]
            else:
                for member, seq in _ACKS.decode(record.value or b"").items():
                    whose = f"{_key(record)}/{member}"
                    # What was not sent cannot have been processed.
                    if self._acked.get(whose, -1) < seq <= self._sent.get(whose, -1):
                        self._acked[whose] = seq
        except (ValueError, RecursionError) as error:
            self._unreadable.skip(record, error)


def _key(record: ConsumerRecord) -> str:
    if not record.key:
        raise ValueError("it has no key")
    key: str = record.key.decode()
    return key


def _read_answer(record: ConsumerRecord) -> dict[str, Any] | None:
    """Return a member's last answer: its assignment, or a refusal; None when the member is gone.

    Raises:
        ValueError: when the record has neither of them, or that of another member than its key says.
        RecursionError: when it is nested too deeply.
    """
    if record.value is None:
        return None
    said = _OBJECT.decode(record.value)
    if "member_epoch" in said:
        answer = parse_answer(said)
        if answer.assignment is None or answer.member_id != _key(record).rpartition("/")[2]:
            raise ValueError("it does not have the assignment of the member in its key")
        return said
    status = said.get("status")
    if not (isinstance(status, int) and 400 <= status < 600 and isinstance(said.get("type"), str)):
        raise ValueError("it has neither an assignment nor a refusal")
    return said


def _answer(record: dict[str, Any] | None, status: int) -> httpx.Response:
    """Return the answer that a member's record stands for: its assignment, a refusal, or that the member is gone."""
    if record is None:
        return _response(409, _GONE)
    return _response(status if "member_epoch" in record else record["status"], record)


def _response(status: int, body: dict[str, Any]) -> httpx.Response:
    return httpx.Response(status, content=msgspec.json.encode(body), headers={"content-type": "application/json"})
