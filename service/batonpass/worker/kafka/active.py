"""An active task: fence, restore, check the lease, read the offsets, process, in that order.

The order matters. The broker refuses a former owner that wakes up late from the first step on, and it cannot take the
task back without a lease. Input offsets, outputs and changelog are one transaction, and the stores apply it only after
the commit. Where the outcome of a commit is unknown, the next restore reads the transaction from the changelog, or does
not find it there.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    ProducerFenced,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
from aiokafka.structs import OffsetAndMetadata

from batonpass.core.state.ids import split_task_id
from batonpass.worker.kafka.changelog import TOPICS_LOOK_S, Changelog
from batonpass.worker.kafka.clients import CLOSE_DELAY_S, CLOSE_TIMEOUT_S, Clients, OffsetGone, Prepared, Terms
from batonpass.worker.kafka.commits import metadata_of
from batonpass.worker.kafka.connection import in_words
from batonpass.worker.kafka.failed_records import (
    PassedOver,
    cause,
    done_by_its_code,
    error_of_others,
    headers,
    where,
)
from batonpass.worker.kafka.inputs import Batches, Inputs
from batonpass.worker.kafka.metadata import first_look
from batonpass.worker.kafka.reading import GONE_S, HELD_BACK_S, place_of
from batonpass.worker.kafka.said import Said
from batonpass.worker.kafka.stores import TaskState, progress
from batonpass.worker.kafka.subtopology import Subtopology
from batonpass.worker.kafka.topics import MissingPartition
from batonpass.worker.kafka.transaction import BatchRefused, Context, OutputsRefused, RecordTooLarge
from batonpass.worker.kafka.wall_clock import WallClock
from batonpass.worker.measured_load import BusyTime, LoadMeter
from batonpass.worker.protocol import Offsets
from batonpass.worker.raised import add_note
from batonpass.worker.tasks import Task

log = logging.getLogger("batonpass.worker.kafka")

LEASE_LOOK_S = 0.05
INPUT_LAG_S = 1.0
POLL_MS = 1_000

GATHER = 3
"""How many times in its interval a transaction with few records polls for all that have gathered since."""

FEW = 50

BATCH_ADDS = 200
"""More than a batch of one record adds to it, in bytes."""

GIVE_UP_S = 1.0
"""How long a call that is given up may take to end."""

PROMPT_S = 0.04
"""How long the connection that restores may take to read what is left after a promotion."""

FIRING_S = 0.1
"""How long timers may fire in one transaction at least, however short its interval: they are many at a time."""

RENEW_S = 86_400.0
"""How often offsets are committed without new input: a cluster drops old ones (`offsets.retention.minutes`)."""

FIRST_RENEWAL_S = 60.0
"""When that is first done: offsets also grow old for tasks that move, or restart, more often than once a day."""

RIGHTS_MISSING = (
    TopicAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    ClusterAuthorizationFailedError,
)
OWN_S = 1.0
"""How long a restore stands still before its owner ends what its own id may have left open in the changelog."""

AWAY_S = 30.0
"""How long a worker may not reach the cluster before it says that its tasks do not run: it may be cut off alone."""

NEAR = 10_000
"""With at most this many offsets left, a changelog is read to the end over another connection, free of its quota."""


async def given_up(call: asyncio.Future[Any]) -> None:
    """Cancel a call that is under way, wait a moment until it has ended, and let nobody miss its error."""
    if not call.done():
        call.cancel()
        await asyncio.wait((call,), timeout=GIVE_UP_S)
    call.add_done_callback(lambda done: done.cancelled() or done.exception())


def _place(record: ConsumerRecord) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset


class ChangelogShort(Exception):
    """The changelog ends before the place up to which the task's last owner wrote."""


class FencedByOthers(Exception):
    """Who fenced the task's producer is no member of this group: no member has a newer token."""


@dataclass(slots=True)
class Copy:
    """What is open of a task on this worker, across its roles."""

    state: TaskState
    changelog: Changelog | None
    prepared: Prepared
    active: "Active | None" = None


class Active:
    """One task while it is active here."""

    def __init__(self, task: Task, subtopology: Subtopology, terms: Terms, *, copy: Copy) -> None:
        self._task = task
        self._part = subtopology
        self._state = copy.state
        self._changelog = copy.changelog
        self._prepared = copy.prepared
        self._terms = terms
        self._group = terms.group
        self._options = terms.options
        self._has_committed = False
        self._is_connected = False
        self._unable_since: float | None = None
        self._away_since: float | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._found: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._has_run = False
        self._hindrance = ""
        # Records that are not processed, by their places, each with what becomes of it and why; and those among them
        # that are too large to be put aside whole.
        self._passed: dict[tuple[str, int, int], tuple[str, Exception]] = {}
        self._cut: set[tuple[str, int, int]] = set()
        self._again = 0
        self._counts = terms.counts[split_task_id(task.id)[0]]
        self.input_lag = 0
        self._busy = BusyTime()
        self._wall_clock = WallClock(subtopology.by_clock, terms.options.clock())
        self.restored = 0
        """Records that were read from the changelog after the grant, over all tries."""

    @property
    def final_position(self) -> Offsets | None:
        """Where the changelog ends for the next owner; None for a stateless task, or where that is not known."""
        if not self._has_run:
            # It has written nothing, and may not have restored what others wrote.
            return self._task.restore_to
        positions = self._state.positions
        if len(self._part.changelog_topics) == 1:
            return positions.get(self._part.changelog_topics[0])
        return positions or None

    async def run(self) -> None:
        """Work until told to stop. The last transaction is committed, unless this call is cancelled.

        Raises:
            KafkaError: when a topic (`MissingPartition`) or a right was missing for too long, or the task cannot run
                although the cluster answers.
            RecordTooLarge: when a record is larger than its topic takes.
            OutputRefused: when a topic does not take a record for what is in it.
            ChangelogRefused: when a changelog may forget what a store needs.
            ChangelogShort: when the changelog has lost what the last owner wrote.
            RecordRefused: when the changelog has a record that no store can take.
            OffsetGone: when the committed offset is not in the input any more, or there is state and none.
            StoreFailed: when a store failed.
            FencedByOthers: when its producer was fenced again under the same token.
            Exception: what the worker's own code raised.
        """
        said = Said()
        lacking_since: float | None = None
        while not self._task.stopping:
            try:
                await self._try()
            except ProducerFenced:
                self._note_fenced()
                log.warning("the producer of %r was fenced: somebody else has the task", self._task)
                self._task.producer_fenced()
                await self._task.stop_requested()
                return
            except KafkaError as error:
                now = time.monotonic()
                lacking_since = (
                    (lacking_since or now) if isinstance(error, (MissingPartition, *RIGHTS_MISSING)) else None
                )
                if lacking_since is not None and now - lacking_since > self._options.missing_topic_ms / 1_000:
                    raise
                if self._is_unable(now):
                    raise
                if said.is_news(repr(error)):
                    why = await in_words(error, self._terms.connection)
                    log.warning("%r begins anew every %s ms: %s", self._task, self._options.retry_ms, why)
                    self._hindrance = why
                if self._away_since is not None and now - self._away_since > AWAY_S:
                    self._task.restoring()
                await self._task.stop_requested(self._options.retry_ms / 1_000)

    def _note_fenced(self) -> None:
        """Raise an error if another member cannot be who did it: this one was granted the task all the while."""
        task_id, now = self._task.id, (self._task.fencing_token, time.monotonic())
        before = self._terms.fenced.get(task_id)
        self._terms.fenced[task_id] = now
        # Seldom it may come of a process that stood still, whose transaction the cluster ended.
        if before is not None and before[0] == now[0] and now[1] - before[1] < self._options.unable_ms / 1_000:
            raise FencedByOthers(
                "its producer was fenced twice, and no other member of this group has the task: on the same cluster "
                f"only one group may be named {self._group!r}, and nothing else may use transactional ids that begin "
                f"with {self._group + '-'!r}; or transactions take longer than transaction_timeout_ms"
            )

    def _is_unable(self, now: float) -> bool:
        """Say whether the task could not run for ``unable_ms``, although the cluster answered each time.

        Nothing is held against a worker while the cluster is away: no other one could run the task then.
        """
        if not self._is_connected:
            self._away_since, self._unable_since = self._away_since or now, None
            return False
        self._unable_since = now if self._unable_since is None else self._unable_since
        return now - self._unable_since > self._options.unable_ms / 1_000

    async def _try(self) -> None:
        self._is_connected = False
        # The copy's position now: its last report may be old, and how close it is decides whether the task stays.
        changelog, has_all = self._changelog, self._has_run
        ends = self._state.positions if has_all or changelog is None else changelog.known_ends()
        self._report(ends, self._hindrance)
        # Connecting fences no other producer, so it needs no lease, and takes none of its time.
        clients = await self._connected()
        if clients is None:
            return
        self._is_connected, self._away_since = True, None
        close_after_s = 0.0
        try:
            if not await self._lease_holds():
                return
            await clients.fence()
            await self._restore(clients)
            if not await self._lease_holds():
                return
            found = await clients.find_input()
            if remade := ", ".join(filter(clients.is_remade, self._part.changelog_topics)):
                self._heed_lost(f"changelog {remade} was deleted and made anew since offsets were committed")
            await self._check_commits(clients, found)
            if self._changelog is not None:
                self._changelog.pause()
            self._has_run, self._hindrance = True, ""
            self._task.running()
            log.info("%r runs", self._task)
            await self._busy.of(self._process(clients))
            close_after_s = CLOSE_DELAY_S
        finally:
            self._terms.closing.put(self._task.id, clients.close, delay_s=close_after_s)

    async def _connected(self) -> Clients | None:
        """Return clients that are connected; None when the task is to stop instead."""
        taking, is_taken = asyncio.ensure_future(self._prepared.take()), False
        try:
            is_taken = await self._task.unless_stopping(taking)
        finally:
            if not is_taken:
                self._terms.closing.abandon(self._task.id, taking)
        return taking.result() if is_taken else None

    async def _restore(self, clients: Clients) -> None:
        """Read the changelog to where it ended after all others were fenced: they can add nothing to that."""
        changelog = self._changelog
        if changelog is None:
            clients.read_ahead()
            return
        await changelog.resume()
        asking = asyncio.ensure_future(changelog.ends(clients.input))
        try:
            # The end offsets are asked for first: a broker answers one connection in order, and a read may wait.
            await asyncio.sleep(0)
            clients.read_ahead()
            ends = await asking
        finally:
            await given_up(asking)
        before, began_at, began = changelog.records_read, time.monotonic(), dict(self._state.positions)
        said, least, moved_at, has_ended_own = Said(), math.inf, time.monotonic(), False
        try:
            await changelog.restore_some(ends, PROMPT_S)
            while (left := changelog.missing(ends)) and not self._task.stopping:
                if left < least:
                    least, moved_at = left, time.monotonic()
                self._report(ends, self._what_it_waits_for(changelog, ends, moved_at, said))
                if not has_ended_own and time.monotonic() - moved_at > OWN_S and self._task.may_begin:
                    has_ended_own = True
                    await self._in_time(clients.producer.end_own(changelog.partitions), clients)
                # A broker that throttles this client by its quota answers so late that the whole handover waits.
                await changelog.restore_some(ends, over=clients.lent_input() if left <= NEAR else None)
        finally:
            self.restored += changelog.records_read - before
        if self._task.stopping:
            return
        self._heed_short(ends)
        read, took_s = changelog.records_read - before, time.monotonic() - began_at
        self._counts.restores += 1
        self._counts.restored_records += read
        self._counts.restore_seconds += took_s
        log.info("%r has restored %d records in %.2f s, from %s up to %s", self._task, read, took_s, began, dict(ends))

    def _what_it_waits_for(self, changelog: Changelog, ends: Mapping[str, int], moved_at: float, said: Said) -> str:
        """Return in words why a restore stands still, and log it; empty while it does not."""
        waited_s = time.monotonic() - moved_at
        if waited_s < HELD_BACK_S:
            return ""
        why = changelog.held_back() or f"nothing comes of {self._state.positions}, up to {dict(ends)}"
        if said.is_news("waits"):
            log.warning("%r waits with its restore, for %.0f s now: %s", self._task, waited_s, why)
        return f"waits with its restore: {why}"

    def _heed_short(self, ends: Mapping[str, int]) -> None:
        """Refuse to run below the place up to which the last owner wrote, if that is known."""
        wanted = self._task.restore_to or {}
        if isinstance(wanted, int):
            wanted = dict.fromkeys(self._part.changelog_topics[:1], wanted)
        short = ", ".join(
            f"{topic} ends at {ends[topic]}, before {at}" for topic, at in wanted.items() if at > ends.get(topic, at)
        )
        if short:
            self._heed_lost(f"changelog {short}, where the last owner of {self._task.id} stopped")

    def _heed_lost(self, what: str) -> None:
        """Refuse to run with a changelog that has lost something.

        Raises:
            ChangelogShort: unless somebody has said to run all the same.
        """
        if self._options.changelog_short == "fail":
            raise ChangelogShort(
                f"{what}: the cluster has lost what it acknowledged. Bring it back, or set changelog_short to run, which "
                "goes on without it"
            )
        log.warning("%s; it runs all the same, as changelog_short says", what)

    async def _check_commits(self, clients: Clients, found: Mapping[TopicPartition, int | None]) -> None:
        """Drop the state if the cluster has lost commits that it acknowledged, as brokers may.

        State and offsets are committed together. State without any offset, or without one that was committed once,
        means that the cluster has dropped the group's offsets, or that the group has another name now.

        Raises:
            KafkaError: when commits were lost; the state is then to be restored.
            OffsetGone: when no offset is committed, or none any more, and there is state.
        """
        lost = [f"{part}: {found.get(part)}, after {mine}" for part, mine in self._committed.items()
                if (found.get(part) or 0) < mine]  # fmt: skip
        if lost:
            self._committed.clear()
            went_back = f"committed offsets went back ({', '.join(lost)})"
            if self._changelog is not None:
                await self._changelog.forget()
                raise KafkaError(f"{went_back}: the state is restored from scratch")
            log.warning("%s: %r processes once more what follows", went_back, self._task)
        has_state = any(next(iter(store.scan()), None) is not None for store in self._state.stores.values())
        none = [one for one, offset in found.items() if offset is None]
        # A source that was added never had one.
        gone = none if len(none) == len(found) else [one for one in none if one.topic in clients.committed_ids]
        if has_state and gone:
            partitions = ", ".join(f"{one.topic}-{one.partition}" for one in sorted(gone))
            raise OffsetGone(
                f"group {self._group} has no committed offset of {partitions}, and its state is not empty: commit the "
                "offsets up to which the state counts, or empty the changelog to begin anew"
            )
        for one, offset in found.items():
            table = self._part.changelogs.get(one.topic) if one.topic in self._part.tables else None
            if table and offset and next(iter(self._state.stores[table].scan()), None) is None:
                log.warning(
                    "table %s of %r is empty, and group %s has read its topic up to %d: if a release has added it, it lacks "
                    "what that says. Set the offset back (kafka-consumer-groups.sh --reset-offsets --to-earliest)",
                    one.topic, self._task, self._group, offset,
                )  # fmt: skip
        changelogs = set(self._part.changelog_topics)
        self._found = {one: offset for one, offset in found.items() if offset is not None}
        committed = {one.topic for one in self._found}
        self._topic_ids = {
            topic: known for topic, known in clients.topic_ids.items() if topic in changelogs | committed
        }

    def _report(self, ends: Mapping[str, int], detail: str = "") -> None:
        self._task.progress(progress(self._state.positions, ends, self._part.changelog_topics, detail))

    async def _lease_holds(self) -> bool:
        """Wait until the task may begin; False when it is to stop instead."""
        while not self._task.may_begin and not await self._task.stop_requested(LEASE_LOOK_S):
            pass
        return not self._task.stopping

    async def _process(self, clients: Clients) -> None:
        reported_lag_at = 0.0
        said = Said()
        looked_at, moved_at = first_look(TOPICS_LOOK_S), time.monotonic()
        meter = LoadMeter(self._busy.seconds, moved_at)
        renew_at = moved_at + FIRST_RENEWAL_S
        # Where the input is to go on by what is committed, and where this task has come without anything to process.
        at_start = self._places(clients)
        if at_start.items() - self._found.items() and "latest" in {self._options.start, self._options.offset_gone}:
            # Whoever is next would begin at the end once more, and skip what has come meanwhile.
            await self._renew_offsets(clients, at_start)
        places: dict[TopicPartition, int] = {}
        inputs = Inputs(clients.input, clients.partitions, self._part.tables, self._options.max_task_idle_ms)
        while not self._task.stopping:
            wait_ms = None if inputs.is_filling else self._wall_clock.left_ms(self._options.clock())
            if not inputs.is_ready and wait_ms != 0:
                wait_ms = POLL_MS if wait_ms is None else min(wait_ms, POLL_MS)
                inputs.put(await self._poll(clients, inputs, wait_ms, self._options.records_max))
            if inputs.is_ready or wait_ms == 0:
                await self._transaction(clients, inputs)
                self._has_committed, places = True, {}
            now = time.monotonic()
            if not inputs and not self._task.stopping:
                # Once it is to stop, a poll may have been cut short, with records that nobody has processed.
                places = self._places(clients)
                has_moved = places != at_start | self._committed
                if now >= renew_at or (has_moved and now - moved_at > FIRST_RENEWAL_S):
                    renew_at, moved_at = now + RENEW_S, now
                    await self._renew_offsets(clients, places)
            if now - looked_at > TOPICS_LOOK_S:
                looked_at = now
                await clients.raise_if_remade()
            if now - reported_lag_at > INPUT_LAG_S:
                reported_lag_at = now
                self._tell_input_lag(clients, len(inputs), said)
                if (load := meter.look(self._busy.seconds, now)) is not None:
                    of_user = self._options.load
                    self._task.load_measured(load if of_user is None else of_user(self._task.id, load))
                if self._task.may_begin:
                    self._note_level()
        if places and places != at_start | self._committed:
            # Markers and aborted records have moved it on. Retention may take them while nobody runs the task.
            await self._renew_offsets(clients, places)

    def _places(self, clients: Clients) -> dict[TopicPartition, int]:
        return {one: place for one in clients.partitions if (place := place_of(clients.input, one)) is not None}

    async def _poll(self, clients: Clients, inputs: Inputs, timeout_ms: int, records_max: int) -> Batches:
        """Return records as soon as there are any, or none when the time is over or the task is to stop.

        The time is also over when a record that waits for those of another source need not wait any longer.

        Raises:
            OffsetGone: when the place that it reads at is not in the input any more.
            KafkaError: when the cluster does not answer.
        """
        ready_in_s = inputs.ready_in_s()
        if ready_in_s is not None:
            timeout_ms = min(timeout_ms, int(ready_in_s * 1_000) + 1)
        poll = asyncio.ensure_future(
            clients.input.getmany(*inputs.wanted(), timeout_ms=timeout_ms, max_records=records_max)
        )
        try:
            is_over = await self._task.unless_stopping(poll)
        except asyncio.CancelledError:
            poll.cancel()
            raise
        if not is_over:
            # The next owner reads what it would have returned: only what was processed is committed.
            poll.cancel()
            await asyncio.wait((poll,))
            return {}
        try:
            batches: Batches = poll.result()
        except OffsetOutOfRangeError as error:
            await clients.find_input_again(error)
            return {}
        clients.reading.look(batches)
        return batches

    async def _transaction(self, clients: Clients, inputs: Inputs) -> None:
        """Process and commit some records, all or nothing; what is left is for the next transaction.

        Raises:
            ProducerFenced: when another member has the task.
            KafkaError: when the cluster failed; the next restore finds out whether the transaction was committed.
            Exception: what the worker's own code raised; the transaction was aborted.
        """
        producer = clients.producer
        terms = self._terms
        context = Context(self._state, self._part.changelogs, producer, terms.changelogs, terms.turns)
        await self._in_time(producer.begin_transaction(), clients)
        try:
            now_ms, is_filling = self._options.clock(), inputs.is_filling
            was_due = not is_filling and await self._wall_clock.call(now_ms, context)
            offsets = await self._fill(context, clients, inputs)
            if offsets or was_due or context.is_cut:
                # One after the other: a broker that is to check a transaction twice at once gives up the first check.
                await self._in_time(context.flush(), clients)
                # Also where the worker's own code went on after an error of a store.
                self._state.raise_if_failed()
                if not self._task.may_process:
                    # The transaction is left open: the next owner ends it.
                    await self._task.stop_requested()
                    return
                if offsets:
                    await self._in_time(
                        producer.send_offsets_to_transaction(self._with_ids(clients, offsets), self._group), clients
                    )
            await self._in_time(producer.commit_transaction(), clients)
        except BatchRefused as refused:
            error = await self._limited(clients, refused)
            if isinstance(error, RecordTooLarge) and refused.of is not None:
                error = self._without([(refused.of, error)])
            raise error from refused
        except OutputsRefused as refused:
            raise self._without(refused.blamed) from refused
        except KafkaError:
            raise
        except PassedOver:
            await self._in_time(producer.abort_transaction(), clients)
            self._again = inputs.put_back()
            return
        except Exception as error:
            producer.raise_if_dead(error)
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await producer.abort_transaction()
            raise
        context.apply()
        self._unable_since = None
        self._note_level()
        self._committed |= offsets
        if not is_filling:
            self._wall_clock.passed(now_ms)
        self._count(inputs.done())
        producer.raise_if_unanswered()

    async def _renew_offsets(self, clients: Clients, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets without records, so that none grows old, or falls behind markers that retention takes.

        Raises:
            ProducerFenced: when another member has the task.
            KafkaError: when the cluster failed.
        """
        if not self._task.may_process:
            return
        await self._in_time(clients.producer.begin_transaction(), clients)
        await self._in_time(
            clients.producer.send_offsets_to_transaction(self._with_ids(clients, offsets), self._group), clients
        )
        await self._in_time(clients.producer.commit_transaction(), clients)
        self._committed |= offsets
        clients.producer.raise_if_unanswered()

    def _with_ids(
        self, clients: Clients, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Add to offsets which topics they, and the state, belong to.

        The first commit of a source commits the others' offsets once more, so that each of them names all sources.
        """
        ids = {one.topic: known for one in offsets if (known := clients.topic_ids.get(one.topic)) is not None}
        if ids.keys() - self._topic_ids.keys():
            self._topic_ids |= ids
            offsets = {**self._found, **self._committed, **offsets}
        metadata = metadata_of(self._topic_ids, clients.began_with)
        return {partition: OffsetAndMetadata(offset, metadata) for partition, offset in offsets.items()}

    async def _in_time(self, call: Awaitable[Any], clients: Clients) -> Any:
        """Await a call for no longer than the broker keeps a transaction open; a client that hangs is given up then.

        Raises:
            MissingPartition: when a topic that is written to has been gone for a while.
            KafkaError: when the time is over.
        """
        limit_ms = self._options.transaction_timeout_ms
        running = asyncio.ensure_future(call)
        try:
            async with asyncio.timeout(limit_ms / 1_000):
                while not (await asyncio.wait((running,), timeout=GONE_S))[0]:
                    # A producer waits without a word for a topic that was deleted.
                    clients.raise_if_gone()
                return running.result()
        except TimeoutError:
            raise KafkaTimeoutError(f"a transaction of {self._task!r} did not end within {limit_ms} ms") from None
        finally:
            await given_up(running)

    async def _limited(self, clients: Clients, refused: BatchRefused) -> Exception:
        """Have the next try write batches that the topic takes; return the error that begins it, or ends all tries."""
        limit = await clients.largest_message(refused.topic)
        least = refused.largest + BATCH_ADDS
        if clients.batch_bytes <= (limit or least) or (limit is not None and refused.largest > limit):
            self._terms.limits.pop(refused.topic, None)
            return RecordTooLarge(
                f"a record of {refused.largest} bytes for topic {refused.topic}, which takes {limit or '?'} bytes with "
                "what a batch adds (max.message.bytes)"
            )
        self._terms.limits[refused.topic] = batch_bytes = limit or max(least, clients.batch_bytes // 2)
        goes_on: Exception = KafkaError(f"{refused.args[0]}: it goes on with batches of at most {batch_bytes} bytes")
        return goes_on

    async def _fill(self, context: Context, clients: Clients, inputs: Inputs) -> dict[TopicPartition, int]:
        """Process records until the transaction is long enough; return where the input is to go on."""
        # The first transaction ends with its first records: readers of the output wait since the last owner stopped.
        longest_s = self._options.commit_interval_ms / 1_000
        interval_s = longest_s if self._has_committed else 0.0
        began = time.monotonic()
        commit_at, end_at = began + interval_s, began + longest_s
        offsets: dict[TopicPartition, int] = {}
        # After a record was passed over: as many as there were up to it, so that one more costs no more than these.
        left = self._again or self._options.records_max
        timers_left = iter(range(self._options.records_max - 1))

        def has_room() -> bool:
            is_over = time.monotonic() >= max(end_at, began + FIRING_S) or self._task.stopping
            return not is_over and next(timers_left, None) is not None

        context.has_room = has_room
        while True:
            came = 0
            while inputs.is_ready:
                now = time.monotonic()
                if self._task.stopping or came == left or (now >= end_at and offsets):
                    # The rest belongs to the next transaction, or is read again by the next owner.
                    return offsets
                await context.turn()
                record = inputs.take()
                await self._process_one(record, context, clients)
                if context.is_cut:
                    inputs.put_back_last()
                    return offsets
                offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1
                came += 1
            left -= came
            context.announce()
            left_s = commit_at - time.monotonic()
            if left_s <= 0 or left <= 0 or self._task.stopping:
                return offsets
            if came < FEW:
                await self._task.stop_requested(min(left_s, interval_s / GATHER))
                left_s = commit_at - time.monotonic()
            inputs.put(await self._poll(clients, inputs, max(0, int(left_s * 1_000)), left))

    async def _process_one(self, record: ConsumerRecord, context: Context, clients: Clients) -> None:
        """Process a record, unless it was found before that it cannot be.

        Raises:
            PassedOver: when it is to be left out of the transaction, which begins anew for that.
            Exception: what the worker's own code raised otherwise.
        """
        context.cause.record = record
        passed = self._passed.get(_place(record))
        if passed is not None:
            if passed[0] == "dead-letter":
                is_cut = _place(record) in self._cut
                value, said = b"" if is_cut else record.value, headers(record, passed[1], is_cut=is_cut)
                # A letter is larger than its record, which another producer was given room for.
                with clients.producer.room_for_any():
                    await context.send(self._options.dead_letter_topic, value, key=record.key, headers=said)
            return
        try:
            await done_by_its_code(self._part.process(record, context))
        except Exception as error:
            clients.producer.raise_if_dead(error)
            add_note(error, where(record))
            of_others = error_of_others(error)
            if isinstance(of_others, KafkaError):
                # Tried again as if its code had left it as it was.
                raise of_others from of_others.__cause__
            if self._state.has_failed or context.calls_for_time or of_others is not None:
                raise
            if not self._passes_over(record, error):
                raise
            raise PassedOver from error

    def _passes_over(self, record: ConsumerRecord, error: Exception) -> bool:
        """Note what becomes of a record that is to blame for an error; False if it is to be tried again."""
        place = _place(record)
        if place in self._passed:
            # Its letter is refused.
            if place in self._cut or not isinstance(error, RecordTooLarge):
                return False
            self._cut.add(place)
            log.warning(
                "%r: dead-letter without its value and headers, %s: %s", self._task, where(record), cause(error)
            )
            return True
        choice = self._options.what_becomes_of(record, error)
        if choice == "retry":
            self._counts.errors["retry"] += 1
            return False
        log.warning("%r: %s %s: %s", self._task, choice, where(record), cause(error))
        self._passed[place] = choice, error
        return True

    def _without(self, blamed: Collection[tuple[ConsumerRecord, Exception]]) -> Exception:
        """Return what begins a try that passes over the records that outputs are refused for, or ends all tries."""
        for record, error in {_place(record): (record, error) for record, error in blamed}.values():
            add_note(error, where(record))
            if not self._passes_over(record, error):
                return error
        # It gets on, if only by one record each time.
        self._unable_since = None
        goes_on: Exception = KafkaError("an output was refused for what is in it: it goes on without its record")
        return goes_on

    def _count(self, done: Collection[ConsumerRecord]) -> None:
        """Count what was committed."""
        self._again = 0
        self._counts.commits += 1
        self._counts.records += len(done)
        if self._passed:
            for place in map(_place, done):
                self._cut.discard(place)
                if (passed := self._passed.pop(place, None)) is not None:
                    self._counts.errors[passed[0]] += 1

    def _tell_input_lag(self, clients: Clients, unprocessed: int, said: Said) -> None:
        lag = unprocessed
        for partition in clients.partitions:
            # The log's end, and not the last stable offset: what an open transaction holds back waits too.
            end = clients.input.highwater(partition)
            if end is not None and end >= 0:
                lag += max(0, end - (place_of(clients.input, partition) or 0))
        self.input_lag = lag
        self._task.input_lag(lag)
        why = clients.reading.held_back()
        if why and said.is_news("held back"):
            log.warning("the input of %r is held back: %s", self._task, why)

    def _note_level(self) -> None:
        """Note that the state is complete: by its lease or a commit, only this active writes the changelog."""
        self._state.note_level(self._options.clock())
