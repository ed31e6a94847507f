"""Publishes committed events from the outbox to ``batonpass.events``, in order, at least once."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from batonpass.codec.answers import to_json
from batonpass.kafka.topics import make_topics
from batonpass.runtime.history import StoredEvent
from batonpass.runtime.ports import Outbox, StoreUnavailable
from batonpass.worker.kafka.connection import KafkaConnection, TopicNames, in_words, producing
from batonpass.worker.kafka.said import Said

log = logging.getLogger("batonpass.kafka")

BATCH = 500
IDLE_S = 0.5
AGAIN_S = 2.0


class EventPublisher:
    """Passes events on. Records have the group as key, so that a group's events stay in their order."""

    def __init__(
        self,
        outbox: Outbox,
        connection: KafkaConnection,
        *,
        body: Callable[[StoredEvent], Mapping[str, Any]],
        prefix: str = "batonpass",
        mine: Callable[[], bool] = lambda: True,
    ) -> None:
        """Make a publisher; ``body`` returns an event as the API shows it, ``mine`` whether this one publishes now."""
        self._mine = mine
        self._topics = TopicNames(prefix)
        self._outbox = outbox
        self._connection = connection
        self._body = body

    async def run(self) -> None:
        """Pass events on until cancelled; events that the cluster did not acknowledge are passed on again."""
        said = Said()
        while True:
            try:
                await make_topics(self._connection.client_options(), {self._topics.events: {}})
                async with producing(self._connection) as producer:
                    while True:
                        if not self._mine() or not await self.pass_on(producer):
                            await asyncio.sleep(IDLE_S)
            except (KafkaError, OSError, StoreUnavailable) as error:
                if said.is_news(type(error).__name__):
                    why = await in_words(error, self._connection)
                    log.warning("events cannot be passed on; tried again every %s s: %s", AGAIN_S, why)
                await asyncio.sleep(AGAIN_S)

    async def pass_on(self, producer: AIOKafkaProducer) -> int:
        """Pass the next events on and return how many there were.

        Raises:
            KafkaError: when they could not be written; the next call passes them on again.
            StoreUnavailable: when the store cannot be reached; they may be passed on once more.
        """
        events = await self._outbox.next(BATCH)
        sent = [
            await producer.send(self._topics.events, to_json(self._body(event)), key=event.group.encode())
            for event in events
        ]
        await asyncio.gather(*sent)
        if events:
            await self._outbox.passed(events[-1].position)
        return len(events)
