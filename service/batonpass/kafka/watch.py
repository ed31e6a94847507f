"""What a coordinator looks up in Kafka for its groups: where changelogs begin and end, and partition counts of sources.

So workers need to report only positions, and a partition that is added becomes a task. Nothing here decides: what was
read goes to the groups as inputs. While the cluster is unavailable, groups keep what they know, and no task moves.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from aiokafka.errors import KafkaError

from batonpass.core.handover.lag import open_transactions
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import GroupId
from batonpass.core.state.inputs import EndOffsets, PartitionCounts
from batonpass.core.state.model import Group, Topology
from batonpass.core.state.policy import IsolationLevel
from batonpass.core.state.soft import EndOffset, Soft
from batonpass.core.state.topology import with_partitions
from batonpass.kafka.topics import Partition, TopicReader
from batonpass.runtime.coordinator import Coordinator
from batonpass.worker.kafka.said import Said

ALL_AFTER_MS = 30_000
"""Unchanged end offsets are sent again, and beginnings read again, after this time. Only an end that was read after a
report can show that the report's position belongs to a deleted and recreated changelog."""

PARTITION_S = 0.0001
"""How much later the next look is for each partition, where that is more than the interval: a look takes up to 40
microseconds of the event loop for each, on a busy machine."""


class ClusterWatch:
    """Looks at the cluster again and again, on behalf of every group of a coordinator."""

    def __init__(
        self,
        coordinator: Coordinator,
        reader: TopicReader,
        *,
        interval_ms: int = 1_000,
        away: Callable[[str | None], None] = lambda _reason: None,
        held_up: Callable[[GroupId, Mapping[Partition, int]], None] = lambda _group, _begins: None,
    ) -> None:
        """Make a watch that has looked at nothing yet.

        ``away`` is called with the reason when the cluster cannot be asked, again when that is found to be another one,
        and with None when it can be asked again.
        ``held_up`` is called for a group when other transactions stay open in its changelogs than before, with the
        offset at which each begins.
        """
        self._coordinator = coordinator
        self._reader = reader
        self._interval_s = interval_ms / 1_000
        self._away = away
        self._said = Said()
        self._held_up = held_up
        self._all_told_ms: dict[GroupId, int] = {}
        self._refused: dict[GroupId, Topology] = {}
        self._open: dict[GroupId, Mapping[Partition, int]] = {}
        self._partitions = 0
        self.reason: str | None = None
        """Why the cluster could not be asked last time; None when it could."""

    def reachable(self) -> int:
        """Return 1 when the cluster could be asked last time, else 0."""
        return int(self.reason is None)

    async def run(self) -> None:
        try:
            while True:
                await self.look()
                await asyncio.sleep(max(self._interval_s, self._partitions * PARTITION_S))
        finally:
            with contextlib.suppress(KafkaError):
                await self._reader.close()

    async def look(self) -> None:
        """Look once, for all groups; an error of the cluster is reported by ``away``, and the next look tries again."""
        groups = self._coordinator.loaded_groups()
        present = {group.id for group, _ in groups}
        for kept in (self._all_told_ms, self._refused, self._open):
            for group_id in kept.keys() - present:
                del kept[group_id]
        for group, soft in groups:
            self._tell_open_transactions(group, soft)
        reason: str | None = None
        try:
            parts = [part for group, _ in groups for part in group.topology.subtopologies]
            topics = {topic for part in parts for topic in (*part.source_topics, *part.changelog_topics)}
            counts = await self._reader.partition_counts(topics)
            self._partitions = sum(counts.values())
            for group, _ in groups:
                await self._tell_counts(group, counts)
            for group, soft in groups:
                await self._tell_ends(group, soft, counts)
        except (KafkaError, OSError) as error:
            # It may change: a broker that is back may refuse the login.
            if self._said.is_news("why") or self.reason is None:
                reason = await self._reader.why(error)
            else:
                reason = self.reason
        if reason != self.reason:
            self._away(reason)
        self.reason = reason

    def _tell_open_transactions(self, group: Group, soft: Soft) -> None:
        """Tell what the group knows from the looks before this one."""
        begins = {log: end.offset for log, end in open_transactions(group, soft).items()}
        if begins != self._open.get(group.id, {}):
            self._held_up(group.id, begins)
        self._open[group.id] = begins

    async def _tell_counts(self, group: Group, counts: Mapping[str, int]) -> None:
        sources = {topic for part in group.topology.subtopologies for topic in part.source_topics}
        known = {topic: counts[topic] for topic in sorted(sources) if topic in counts}
        wanted = with_partitions(group.topology, known)
        if wanted != group.topology and wanted != self._refused.get(group.id):
            reply = await self._coordinator.tell(group.id, PartitionCounts(known))
            if isinstance(reply, ProtocolError) and reply.action == "fix":
                # For example too many tasks: the same counts are not sent again.
                self._refused[group.id] = wanted

    async def _tell_ends(self, group: Group, soft: Soft, counts: Mapping[str, int]) -> None:
        wanted = {
            (topic, partition)
            for part in group.topology.subtopologies
            if part.stateful
            for topic in part.changelog_topics
            for partition in range(min(part.partitions or 0, counts.get(topic, 0)))
        }
        if not wanted:
            return
        begun_ms = self._coordinator.now_ms()
        ends = await self._reader.ends(wanted, group.config.isolation_level)
        # These come second, so that no end lies beyond its log's end.
        log_ends = ends
        if group.config.isolation_level is not IsolationLevel.READ_UNCOMMITTED:
            log_ends = await self._reader.ends(wanted, IsolationLevel.READ_UNCOMMITTED)
        ids = await self._reader.ids(wanted)
        begins: Mapping[tuple[str, int], int] = {}
        is_all = begun_ms - self._all_told_ms.get(group.id, 0) >= ALL_AFTER_MS
        if is_all:
            begins = await self._reader.begins(wanted)
            self._all_told_ms[group.id] = begun_ms
        known = soft.end_offsets
        news = {
            key: end
            for key, end in ends.items()
            if key in log_ends and (is_all or _is_news(known.get(key), end, log_ends[key], ids.get(key[0], "")))
        }
        if news:
            moved = {key: begin for key, begin in begins.items() if begin != soft.begin_offsets.get(key)}
            beyond = {key: log_ends[key] for key, end in news.items() if log_ends[key] > end}
            await self._coordinator.tell(group.id, EndOffsets(news, begun_ms, moved, beyond, ids))


def _is_news(known: EndOffset | None, end: int, log_end: int, topic_id: str) -> bool:
    """Whether an end differs from the known one, or its topic from the known topic.

    One that had shrunk is always sent again, and so is one that stands still before an open transaction, until it is
    known that the transaction stays open.
    """
    if known is None or known.shrunk or (known.offset, known.log_end) != (end, log_end):
        return True
    if topic_id not in {"", known.topic_id}:
        return True
    return log_end > end and not known.is_held_up
