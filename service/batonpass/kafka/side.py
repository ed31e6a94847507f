"""Everything that a coordinator does with Kafka, in one piece for the composition root."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from batonpass.core.ids import GroupId
from batonpass.kafka.events import EventPublisher, Outbox
from batonpass.kafka.exchange import Coordination, Exchange
from batonpass.kafka.topics import TopicReader
from batonpass.kafka.watch import ClusterWatch
from batonpass.worker.kafka.connection import KafkaConnection

if TYPE_CHECKING:
    from batonpass.runtime.history import Asked, StoredEvent

EVENTS_OWNER: Final = GroupId("batonpass.events")
"""Whichever coordinator would own a group of this name passes the events on, so that one does."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """How Kafka is used. ``outbox`` is None where events are not kept, ``body`` shows one as the API does.

    ``takes_heartbeats``: whether members may speak over Kafka; ``commanded`` hears of the commands that they gave,
    ``refused`` of the type of each refusal.
    """

    interval_ms: int
    takes_heartbeats: bool
    prefix: str
    holds: Callable[[GroupId], bool]
    away: Callable[[str | None], None]
    commanded: Callable[[str, Asked], None]
    refused: Callable[[str], None]
    body: Callable[[StoredEvent], Mapping[str, Any]]
    outbox: Outbox | None = None


class KafkaSide:
    """Reads ends and partition counts, passes events on and, where that is asked for, carries the protocol."""

    def __init__(self, coordinator: Coordination, connection: KafkaConnection, wishes: Wishes) -> None:
        """Make everything; nothing is connected yet."""
        self.watch = ClusterWatch(
            coordinator, TopicReader(connection), interval_ms=wishes.interval_ms, away=wishes.away
        )
        self.exchange: Exchange | None = None
        if wishes.takes_heartbeats:
            self.exchange = Exchange(
                coordinator,
                connection,
                holds=wishes.holds,
                commanded=wishes.commanded,
                refused=wishes.refused,
                prefix=wishes.prefix,
            )
        self._events: EventPublisher | None = None
        if wishes.outbox is not None:
            self._events = EventPublisher(
                wishes.outbox,
                connection,
                body=wishes.body,
                prefix=wishes.prefix,
                mine=lambda: wishes.holds(EVENTS_OWNER),
            )

    def reachable(self) -> int:
        """Return 1 when the cluster could be asked last time, else 0."""
        return self.watch.reachable()

    async def run(self) -> None:
        """Work until cancelled."""
        await asyncio.gather(*(part.run() for part in (self.watch, self.exchange, self._events) if part is not None))
