"""Stateful tasks on Kafka: the callbacks of a `Member` that restore, tail, promote in place, process and hand over."""

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError

from batonpass.core.state.ids import split_task_id
from batonpass.worker.kafka.active import AWAY_S, Active, Copy
from batonpass.worker.kafka.beginning import begin_at_end
from batonpass.worker.kafka.changelog import Changelog, Facts, judge
from batonpass.worker.kafka.clients import Clients, Close, Closing, Prepared, Terms
from batonpass.worker.kafka.connection import KafkaConnection, disconnect, in_words, to_its_end
from batonpass.worker.kafka.metrics import Counts, Levels, WorkerMetrics
from batonpass.worker.kafka.options import ActiveOptions
from batonpass.worker.kafka.said import Said, write_once
from batonpass.worker.kafka.stores import OpenStore, ReadableStore, RocksStore, StateFolder, StoreFailed, progress
from batonpass.worker.kafka.subtopology import Subtopology, check_job
from batonpass.worker.kafka.topics import ChangelogRefused, MissingPartition
from batonpass.worker.measured_load import BusyTime, LoadMeter
from batonpass.worker.protocol import Offsets, Progress, Role
from batonpass.worker.raised import words_of
from batonpass.worker.tasks import Callbacks, Revocation, Task

log = logging.getLogger("batonpass.worker.kafka")

REPORT_S = 0.2
DEMOTED_CONNECTS_AFTER_S = 2.0
OWNER_FIRST_S = 10.0
"""How long a copy that was cut off from the cluster is not ready after it has come back."""

CONNECTS_WITHIN_S = 3.0
"""How long a copy may connect for its promotion before it reports its progress all the same."""


class KafkaRuntime(Callbacks):
    """What a worker does with its tasks, given how each subtopology processes records.

        runtime = KafkaRuntime(connection, "orders", {"0": Subtopology(...)}, folder=Path("state"))
        async with Member(
            url, "orders", runtime, on_lease_lost=OnLeaseLost.CONTINUE, on_disk=await runtime.on_disk()
        ) as member:
            await member.run()

    Outputs are fenced by transactional producers, so ``on_lease_lost`` may be "continue". ``group`` names the consumer
    group whose committed offsets say where the input goes on, and begins the transactional ids; no other group may use
    either.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        group: str,
        subtopologies: Mapping[str, Subtopology],
        *,
        folder: Path,
        open_store: OpenStore = RocksStore,
        options: ActiveOptions | None = None,
    ) -> None:
        """Take the configuration; nothing happens before a task is given.

        ``folder`` keeps state between starts, and is this process's own. ``open_store`` makes the stores.

        Raises:
            ValueError: when two subtopologies would disturb one another, or what cannot be processed would disturb one.
        """
        options = options or ActiveOptions()
        check_job(subtopologies, options.dead_letter_topic)
        write_once(self)
        self._connection = connection
        self._parts = dict(subtopologies)
        self._folder = StateFolder(folder, open_store)
        self._options = options
        self._closing = Closing()
        changelogs = frozenset(topic for part in self._parts.values() for topic in part.changelog_topics)
        counts = {name: Counts() for name in self._parts}
        self._terms = Terms(connection, group, options, self._closing, counts, changelogs=changelogs)
        self.metrics = WorkerMetrics(group, self._terms.counts, self._levels)
        """What this worker counts, a collector for a registry of prometheus_client."""
        self._copies: dict[str, Copy] = {}

    # --- the state that is there already ----------------------------------------------------------------------------

    async def on_disk(self) -> dict[str, Progress]:
        """Return the state that earlier processes left in the folder, for the join.

        Each store is judged by itself: one that is too old or damaged begins anew, one that a release has added is
        empty. State that cannot be used now is left out, and the log says why. A job that is to begin at the end of its
        input (``start``) begins there now, for all its tasks.

        Raises:
            KafkaError: when the ends of the changelogs cannot be read, or it cannot be committed where it begins.
        """
        if self._options.start == "latest":
            sources = {topic for part in self._parts.values() for topic in set(part.sources).difference(part.tables)}
            await begin_at_end(self._connection, self._terms.group, sources)
        if unused := self._folder.unused({name: part.changelog_topics for name, part in self._parts.items()}):
            log.warning(
                "nothing in this program has the state in %s, as after a release that left it out: remove it, unless an "
                "earlier release is to come back", ", ".join(map(str, unused)),
            )  # fmt: skip
        stateful = {name for name, part in self._parts.items() if part.changelogs}
        tasks = [one for one in self._folder.tasks() if split_task_id(one)[0] in stateful and one not in self._copies]
        if not tasks:
            return {}
        consumer = self._connection.consumer({})
        try:
            await to_its_end(consumer.start())
            offers = await asyncio.gather(*(self._judged(task_id, consumer) for task_id in tasks))
        except KafkaConnectionError as error:
            raise KafkaConnectionError(await in_words(error, self._connection)) from error
        finally:
            await disconnect(consumer)
        return {task_id: offer for task_id, offer in zip(tasks, offers, strict=True) if offer is not None}

    async def _judged(self, task_id: str, consumer: AIOKafkaConsumer) -> Progress | None:
        """Return how far a task's state on disk is, once what is of no use is gone; None if nothing is left."""
        topics = self._part(task_id).changelog_topics
        partitions = [TopicPartition(topic, split_task_id(task_id)[1]) for topic in topics]
        try:
            facts = await Facts.ask(consumer, partitions, self._options)
            await self._terms.turns.take()
            with closing(self._folder.open(task_id, topics)) as state:
                kept = judge(state, facts, self._options.clock())
                positions = state.positions
            if not kept:
                self._folder.remove(task_id)
                return None
        except KafkaConnectionError:
            raise
        except (StoreFailed, ChangelogRefused, KafkaError, OSError) as error:
            log.warning("the state of %s on disk is not used for now: %s", task_id, error)
            return None
        return progress(positions, {partition.topic: facts.ends[partition] for partition in partitions}, topics)

    # --- the callbacks ----------------------------------------------------------------------------------------------

    async def on_standby(self, task: Task) -> None:
        """Restore the task's state and keep tailing it.

        Raises:
            StoreFailed: when a store failed; it is opened anew when this is called again.
            RecordRefused: when the changelog has a record that no store can take.
            ChangelogRefused: when a changelog may forget what a store needs.
        """
        try:
            await self._follow(task)
        except Exception as error:
            # Whatever it has reported before, it is not ready now.
            task.progress(Progress(detail=words_of(error)))
            raise

    async def _follow(self, task: Task) -> None:
        part = self._part(task.id)
        copy = await self._copy(task.id, part)
        if copy.changelog is None:
            return
        if self._options.connect_ahead:
            # The task's new owner connects first, then the previous owner, which has become a copy.
            copy.prepared.begin(delay_s=DEMOTED_CONNECTS_AFTER_S if task.was is Role.ACTIVE else 0)
        busy = BusyTime()
        tailing = asyncio.ensure_future(busy.of(self._keep_tailing(task, copy, copy.changelog, part, busy)))
        try:
            await task.unless_stopping(tailing)
        finally:
            tailing.cancel()
            await asyncio.wait((tailing,))
        if not tailing.cancelled():
            tailing.result()

    async def _keep_tailing(
        self, task: Task, copy: Copy, changelog: Changelog, part: Subtopology, busy: BusyTime
    ) -> None:
        # A copy that reports that it is ready may be promoted the next moment, so it connects before it reports.
        said = Said()
        has_told = task.was is Role.ACTIVE
        away_since: float | None = None
        meter = LoadMeter(busy.seconds, time.monotonic())
        speaks_at = 0.0 if task.was is Role.ACTIVE else time.monotonic() + CONNECTS_WITHIN_S
        while not task.stopping:
            try:
                await changelog.resume()
                if away_since is not None and time.monotonic() - away_since > AWAY_S:
                    # Where the cluster is back for all, the task's owner is to say so first, and keeps it.
                    await task.stop_requested(OWNER_FIRST_S)
                told_at, away_since = 0.0, None
                while not task.stopping:
                    came = await changelog.step()
                    now = time.monotonic()
                    if self._options.load is None and (load := meter.look(busy.seconds, now)) is not None:
                        task.load_measured(load)
                    if (not came or now - told_at > REPORT_S) and (copy.prepared.is_settled or now > speaks_at):
                        told_at, has_told = now, True
                        topics, held_back = part.changelog_topics, changelog.held_back()
                        task.progress(progress(copy.state.positions, changelog.known_ends(), topics, held_back))
                        if held_back and said.is_news("held back"):
                            log.warning("%r cannot be read on for now: %s", task, held_back)
            except KafkaError as error:
                # That a cluster is away for a moment says nothing about the copy; that its changelog is gone does.
                now = time.monotonic()
                away_since = away_since or now
                if has_told and (isinstance(error, MissingPartition) or now - away_since > AWAY_S):
                    task.progress(Progress(detail=words_of(error)))
                if said.is_news(repr(error)):
                    log.warning("%r cannot be tailed for now: %s", task, await in_words(error, self._connection))
                # The next try has a new reader, which begins with the addresses that were given.
                with suppress(KafkaError):
                    await changelog.close()
                await asyncio.sleep(self._options.retry_ms / 1_000)

    async def on_active(self, task: Task) -> None:
        """Take the task over, from the copy on this worker if there is one, and process until it is to stop."""
        part = self._part(task.id)
        copy = await self._copy(task.id, part)
        copy.active = Active(task, part, self._terms, copy=copy)
        await copy.active.run()

    async def on_revoke(self, task: Task, revocation: Revocation) -> Offsets | None:
        """Stop as the revocation says; the state stays open if the task goes on as a copy, else on disk."""
        copy = self._copies.get(task.id)
        if copy is None:
            return None
        final: Offsets | None = None
        # When asked to stop, an active commits its last records and ends, and a copy ends. Without a commit the active
        # was cancelled.
        await task.finished()
        if task.role is Role.ACTIVE:
            if copy.active is not None and revocation.commit:
                final = copy.active.final_position
            copy.active = None
        if revocation.becomes is None:
            self._close(task.id)
        return final

    async def disk_bytes(self) -> Mapping[str, int]:
        """Return what the state of each task of a known subtopology takes on disk."""
        sizes = await asyncio.to_thread(self._folder.disk_bytes)
        return {task_id: size for task_id, size in sizes.items() if split_task_id(task_id)[0] in self._parts}

    async def remove_state(self, task_id: str) -> None:
        """Remove the state of a task that moved away, unless it is open."""
        if task_id not in self._copies:
            # Opening the state waits for what is being closed.
            self._closing.put(task_id, partial(asyncio.to_thread, self._folder.remove, task_id), delay_s=0)
            await self._closing.done(task_id)

    async def on_close(self) -> None:
        """Close everything that is open, and wait for it."""
        for task_id in list(self._copies):
            self._close(task_id)
        await self._closing.done()

    def _close(self, task_id: str) -> None:
        copy = self._copies.pop(task_id)
        copy.prepared.drop()
        # It takes RocksDB a tenth of a second to write out what it has in memory.
        closes: list[Close] = [partial(asyncio.to_thread, copy.state.close)]
        if copy.changelog is not None:
            closes.insert(0, copy.changelog.close)
        self._closing.put(task_id, *closes)

    # --- looks ------------------------------------------------------------------------------------------------------

    def store(self, task_id: str, name: str) -> ReadableStore | None:
        """Return a task's store for reading, whatever its role here; None when there is no copy.

        It holds what was committed and has reached this copy. Do not keep it: it is closed when the task goes. A read
        here that fails is its reader's own affair, unless it finds damage.
        """
        copy = self._copies.get(task_id)
        if copy is None:
            return None
        return copy.state.stores[self._part(task_id).changelogs[name]].inner

    def positions(self, task_id: str) -> Mapping[str, int] | None:
        """Return the positions of a task's copy here, by changelog topic; None when there is no copy."""
        copy = self._copies.get(task_id)
        return None if copy is None else copy.state.positions

    def restored(self, task_id: str) -> int | None:
        """Return how many changelog records were read since the grant of an active; None when it is not active."""
        copy = self._copies.get(task_id)
        return None if copy is None or copy.active is None else copy.active.restored

    def records_read(self, task_id: str) -> int | None:
        """Return how many changelog records the copy here has read in all; None when there is no copy."""
        copy = self._copies.get(task_id)
        return None if copy is None or copy.changelog is None else copy.changelog.records_read

    def _levels(self) -> Mapping[str, Levels]:
        """Return how it is with the tasks here, by subtopology; another thread may ask."""
        levels = {name: Levels() for name in self._parts}
        for task_id, copy in self._copies.copy().items():
            level = levels[split_task_id(task_id)[0]]
            level.tasks["active" if copy.active is not None else "copy"] += 1
            level.input_lag += 0 if copy.active is None else copy.active.input_lag
        for task_id, size in self._folder.disk_bytes().items():
            if (name := split_task_id(task_id)[0]) in levels:
                levels[name].state_bytes += size
        return levels

    def _part(self, task_id: str) -> Subtopology:
        try:
            return self._parts[split_task_id(task_id)[0]]
        except KeyError:
            raise LookupError(f"task {task_id} is of a subtopology that this worker does not know") from None

    async def _copy(self, task_id: str, part: Subtopology) -> Copy:
        copy = self._copies.get(task_id)
        if copy is not None and copy.state.has_failed:
            # A store may keep its error until it is opened anew, as RocksDB does with a disk that was full.
            self._close(task_id)
        if task_id not in self._copies:
            # The task may have been here a moment ago.
            await self._closing.done(task_id)
            # All that a new member gets is opened at the same time, and each store takes tens of milliseconds.
            await self._terms.turns.take()
        copy = self._copies.get(task_id)
        if copy is None:
            state = self._folder.open(task_id, part.changelog_topics)
            changelog = Changelog(self._terms, state) if part.changelogs else None
            if changelog is not None:
                log.info("the state of %s on this disk: %s", task_id, dict(state.positions) or "nothing")
            prepared = Prepared(lambda: Clients(self._terms, task_id, part, state.partition), self._closing, task_id)
            copy = self._copies[task_id] = Copy(state, changelog, prepared)
        return copy
