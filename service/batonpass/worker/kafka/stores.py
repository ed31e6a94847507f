"""Where a task's state is kept: keys and values of one changelog partition, and how far that has been read.

A store is always exactly a prefix of its changelog: the records before ``position``, and nothing else. Records and
position change together, so that a process killed at any instruction goes on from where it was. An active's own writes
are applied only after their transaction was committed.

A store has an age: how long ago it was last known to be level with its changelog. A compacted changelog forgets
deletions after a while, and a store that slept for longer would never learn of them.

After an error a store is not asked again: it is closed, and the next try opens it anew. One whose files are damaged is
removed when it is closed, and begun anew from its changelog.
"""

import errno
import functools
import heapq
import json
import logging
import os
import re
import shutil
import struct
import threading
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from batonpass.core.state.ids import split_task_id
from batonpass.worker.protocol import Progress

if TYPE_CHECKING:
    from aiokafka import ConsumerRecord
    from rocksdict import Options, Rdict, RdictIter

log = logging.getLogger("batonpass.worker.kafka")

Answer = TypeVar("Answer")

Change = tuple[bytes, bytes | None]
"""A key with its new value; None removes the key."""

_RECORD = b"r"
_POSITION = b"position"
_FORM = struct.Struct(">qq")

KEEP_LEVEL_MS = 60_000
"""How often a store to which nothing is written records on disk that it is level."""

LOG_BYTES_MAX = 1 << 20
"""How large RocksDB's own log of a store may grow before it is begun anew: unbounded, for as long as it is open."""

_DAMAGE = ("corruption", "no such file or directory", "input/output error")
"""What RocksDB says of files that are damaged or missing when it reads or writes them."""

_OF_THE_MOMENT = (
    "/lock: ",
    *(os.strerror(number).lower() for number in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOMEM, errno.ESTALE)),
    *(os.strerror(number).lower() for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE)),
)
"""What it says where another process has the files, or there is no room, right or file descriptor for it. Whatever else
keeps a store from being opened lies in its files: they are missing, cut short, or not its own."""

_HELD = _OF_THE_MOMENT[0]
_DISCARDED = ".discarded-"


class StoreFailed(Exception):
    """A store cannot be read or written, and the next try opens it anew; or what it has is not of its table's type."""


class StoreClosed(StoreFailed):
    """The store was closed, or begun anew, while a scan of it was under way."""


class ReadableStore(Protocol):
    """A store for reading only; it holds nothing uncommitted."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""

    def scan(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys that begin with ``prefix``, from ``start`` on, with their values, in the order of the keys."""


class Store(ReadableStore, Protocol):
    """One changelog partition's state, and how it changes."""

    @property
    def position(self) -> int | None:
        """The offset of the first changelog record that is not in this store; None: nothing was read yet."""

    @property
    def level_ms(self) -> int:
        """When it was last known to lack nothing of its changelog, in milliseconds since 1970; 0 if never.

        A store that is begun anew lacks no deletion either, because it holds nothing that could have been deleted.
        """

    def apply(self, changes: Iterable[Change], position: int) -> None:
        """Apply records and move the position, both or neither."""

    def note_level(self, level_ms: int) -> None:
        """Note when it was level with its changelog; stored when it is closed, and at least every minute."""

    def wipe(self) -> None:
        """Forget everything, the position too. It can be called again if it has failed half way."""

    def close(self) -> None:
        """Close files and end scans. What was applied stays, if the store is a lasting one that is not damaged."""


class MemoryStore:
    """State in memory, gone with the process; it is restored from the changelog each time."""

    def __init__(self) -> None:
        self._records: dict[bytes, bytes] = {}
        self.position: int | None = None
        self.level_ms = 0

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        return self._records.get(key)

    def scan(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with their values in order, as they are when the scan begins."""
        # Copied first: another thread may read while this one writes.
        items = list(self._records.items())
        return iter(sorted(item for item in items if item[0].startswith(prefix) and item[0] >= start))

    def apply(self, changes: Iterable[Change], position: int) -> None:
        """Apply records and move the position."""
        for key, value in changes:
            if value is None:
                self._records.pop(key, None)
            else:
                self._records[key] = value
        self.position = position

    def note_level(self, level_ms: int) -> None:
        """Note that it was level with its changelog then."""
        self.level_ms = level_ms

    def wipe(self) -> None:
        """Forget everything."""
        self._records.clear()
        self.position, self.level_ms = None, 0

    def close(self) -> None:
        """Do nothing: there are no files."""


class RocksMemory:
    """A limit on the memory of all the RocksDB stores that share it, however many they are.

    It bounds the sum of what was written and is not in files yet (up to half of the limit) and what is cached of files
    that were read. RocksDB exceeds it for a moment rather than keep a writer waiting. Without a shared limit, each
    store alone may take 128 MB for writes.
    """

    def __init__(self, limit_bytes: int = 128 << 20) -> None:
        """Make a limit, in bytes."""
        from rocksdict import Cache, WriteBufferManager  # noqa: PLC0415 - a state in memory needs no RocksDB

        self._cache = Cache(limit_bytes)
        self._writes = WriteBufferManager.new_write_buffer_manager_with_cache(limit_bytes // 2, False, self._cache)

    def bound(self, options: "Options") -> None:
        """Let a store that is opened with these options share the limit."""
        from rocksdict import BlockBasedOptions  # noqa: PLC0415 - a state in memory needs no RocksDB

        files = BlockBasedOptions()
        files.set_block_cache(self._cache)
        files.set_cache_index_and_filter_blocks(True)
        options.set_block_based_table_factory(files)
        options.set_write_buffer_manager(self._writes)
        # A store with hardly any writes takes one such block, by default of 1 MB.
        options.set_arena_block_size(64 << 10)


@functools.cache
def _memory_of_this_process() -> RocksMemory:
    return RocksMemory()


class RocksStore:
    """State on disk in RocksDB, found again at the next start.

    All stores of a process share 128 MB of memory, unless they are given another limit:
    ``open_store=functools.partial(RocksStore, memory=RocksMemory(64 << 20))``.

    Nothing is forced to the disk: what the process wrote survives its death. A machine that goes down loses some of the
    latest records together with their positions, so that they are read again.
    """

    def __init__(self, folder: Path, *, memory: RocksMemory | None = None) -> None:
        """Open the store in a folder, which is made if it does not exist; a damaged store is begun anew.

        Raises:
            OSError: when the folder cannot be made.
            Exception: when another process has it open, or there is no room, right or file descriptor for it.
        """
        self._folder = folder
        self._memory = memory or _memory_of_this_process()
        self._scans: weakref.WeakSet[_Scan] = weakref.WeakSet()
        self._is_damaged = False
        # A store may be read in another thread than the one that closes it.
        self._turn = threading.Lock()
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._open()
        except Exception as error:
            # What rocksdict raises has no class of its own.
            is_its_own = type(error) in {Exception, struct.error}
            if not is_its_own or any(words in self._said(error) for words in _OF_THE_MOMENT):
                raise
            log.warning("the state in %s is damaged, and begun anew: %s", folder, error)
            self.wipe()

    def _open(self) -> None:
        self._db = _open(self._folder, self._memory)
        kept = self._db.get(_POSITION)
        self.position: int | None
        self.level_ms: int
        self.position, self.level_ms = (None, 0) if kept is None else _FORM.unpack(kept)
        self._kept_level_ms = self.level_ms

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        try:
            found: bytes | None = self._db.get(_RECORD + key)
        except Exception as error:
            self._note(error)
            raise
        return found

    def scan(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with their values in order, as they are when the scan begins.

        Raises:
            StoreClosed: at the next record, when the store was closed or begun anew meanwhile.
            Exception: when the files cannot be read to the end.
        """
        with self._turn:
            scan = _Scan(self._db.iter(), _RECORD + prefix, _RECORD + max(prefix, start), self._note)
            self._scans.add(scan)
        return scan

    def apply(self, changes: Iterable[Change], position: int) -> None:
        """Apply records and move the position, in one write."""
        from rocksdict import WriteBatch  # noqa: PLC0415 - a worker that keeps its state in memory needs no RocksDB

        batch = WriteBatch(raw_mode=True)
        for key, value in changes:
            if value is None:
                batch.delete(_RECORD + key)
            else:
                batch.put(_RECORD + key, value)
        batch.put(_POSITION, _FORM.pack(position, self.level_ms))
        try:
            self._db.write(batch)
        except Exception as error:
            self._note(error)
            raise
        self.position, self._kept_level_ms = position, self.level_ms

    def note_level(self, level_ms: int) -> None:
        """Note that it was level with its changelog then; written at most once a minute, and when it is closed."""
        self.level_ms = level_ms
        if not -KEEP_LEVEL_MS < self.level_ms - self._kept_level_ms < KEEP_LEVEL_MS:
            self._keep_level()

    def _keep_level(self) -> None:
        if self.position is not None and self.level_ms != self._kept_level_ms:
            self.apply([], self.position)

    def wipe(self) -> None:
        """Forget everything."""
        self.position = None
        self._shut()
        discard(self._folder)
        self._open()
        self._is_damaged = False

    def close(self) -> None:
        """Close the files, so that another process may open them; damaged ones are removed."""
        try:
            if not self._is_damaged:
                self._keep_level()
        finally:
            self._shut()
            if self._is_damaged:
                log.warning("the state in %s is damaged: it is removed, and restored from its changelog", self._folder)
                discard(self._folder)

    def _shut(self) -> None:
        with self._turn:
            for scan in list(self._scans):
                scan.close()
            # After an error RocksDB raises it once more, though it closes its files.
            with suppress(Exception):
                self._db.close()

    def _note(self, error: Exception) -> None:
        self._is_damaged |= any(words in self._said(error) for words in _DAMAGE)

    def _said(self, error: Exception) -> str:
        """Return what an error says, without the folder's name, which may have any word in it."""
        return str(error).replace(str(self._folder), "").lower()


class _Scan:
    """The records whose keys have a prefix; it ends with an error when its store closes, whoever still holds it.

    RocksDB keeps its files locked while there is an iterator. Its status tells an error from the end of the data.
    """

    def __init__(self, records: "RdictIter", prefix: bytes, start: bytes, note: Callable[[Exception], None]) -> None:
        self._records: RdictIter | None = records
        self._prefix = prefix
        self._note = note
        self._is_over = False
        # A store may be closed in another thread than the one that scans.
        self._turn = threading.Lock()
        records.seek(start)

    def __iter__(self) -> "_Scan":
        return self

    def __next__(self) -> tuple[bytes, bytes]:
        with self._turn:
            if self._is_over:
                raise StopIteration
            if self._records is None:
                raise StoreClosed("the store was closed, or begun anew, before this scan was over")
            try:
                if self._records.valid():
                    key: bytes = self._records.key()
                    if key.startswith(self._prefix):
                        value: bytes = self._records.value()
                        self._records.next()
                        return key[len(_RECORD) :], value
                else:
                    self._records.status()
            except Exception as error:
                self._note(error)
                raise
            self._is_over, self._records = True, None
            raise StopIteration

    def close(self) -> None:
        with self._turn:
            self._records = None


def discard(folder: Path) -> None:
    """Remove a folder at once, whole: what cannot be removed yet has another name, and goes with the next removal.

    Raises:
        OSError: when it cannot be renamed.
    """
    if folder.exists():
        folder.rename(folder.with_name(f"{_DISCARDED}{uuid.uuid4().hex}"))
    for left in folder.parent.glob(f"{_DISCARDED}*"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _open(folder: Path, memory: RocksMemory) -> "Rdict":
    from rocksdict import Options, Rdict  # noqa: PLC0415 - a worker that keeps its state in memory needs no RocksDB

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(LOG_BYTES_MAX)
    options.set_max_open_files(256)
    memory.bound(options)
    # There is only this one family. Left unnamed, it would be opened as its files say, with a cache of its own.
    return Rdict(str(folder), options, column_families={"default": options})


OpenStore = Callable[[Path], Store]
"""Makes the store of one changelog partition, in a folder for it alone."""

_TASK_FOLDER = re.compile(r".+_(0|[1-9][0-9]*)")
_TOPICS_FILE = ".topic-ids.json"


def in_memory(_folder: Path) -> Store:
    """Open a store that is lost when the process ends."""
    return MemoryStore()


def checked_bytes(given: bytes) -> bytes:
    """Return what is to be a key or a value.

    Raises:
        TypeError: when it is not bytes, which no store and no changelog takes.
    """
    if not isinstance(given, bytes):
        raise TypeError(f"keys and values of a store are bytes, and not {given!r}")
    return given


class TaskStore:
    """A task's store of one changelog. It names itself in errors, and remembers that it has failed."""

    def __init__(self, name: str, store: Store) -> None:
        self._name = name
        self.inner = store
        self.has_failed = False

    @property
    def position(self) -> int | None:
        return self._do(lambda: self.inner.position)

    @property
    def level_ms(self) -> int:
        return self._do(lambda: self.inner.level_ms)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None.

        Raises:
            TypeError: when the key is not bytes.
            StoreFailed: when the store failed.
        """
        checked_bytes(key)
        try:
            return self.inner.get(key)
        except Exception as error:
            raise self._failed(error) from error

    def scan(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        checked_bytes(prefix)
        checked_bytes(start)
        try:
            yield from self.inner.scan(prefix, start)
        except StoreClosed:
            # A scan that somebody holds has ended; the store may be whole.
            raise
        except Exception as error:
            raise self._failed(error) from error

    def apply(self, changes: Iterable[Change], position: int) -> None:
        self._do(lambda: self.inner.apply(changes, position))

    def note_level(self, level_ms: int) -> None:
        self._do(lambda: self.inner.note_level(level_ms))

    def wipe(self) -> None:
        self._do(self.inner.wipe)

    def close(self) -> None:
        self._do(self.inner.close)

    def _do(self, call: Callable[[], Answer]) -> Answer:
        try:
            return call()
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> StoreFailed:
        self.has_failed = True
        return StoreFailed(f"{self._name}: {str(error) or repr(error)}")


def raise_if_over(is_over: bool) -> None:  # noqa: FBT001 - it is all that this is about
    """Refuse what comes after a function has returned, and would be in no transaction.

    Raises:
        RuntimeError: saying what to do.
    """
    if is_over:
        raise RuntimeError("the transaction is over: a function awaits all that it begins before it returns")


class Cause:
    """The input record that is processed, which is to blame for what is written then; None where a time has come."""

    record: "ConsumerRecord | None" = None


class StoreInTransaction:
    """A store with changes that are not committed yet: this transaction sees them at once, others after the commit."""

    def __init__(self, store: ReadableStore) -> None:
        self._store = store
        self.cause = Cause()
        self.changes: dict[bytes, bytes | None] = {}
        self.causes: dict[bytes, ConsumerRecord | None] = {}
        """For which input record each key was changed last."""
        self.is_over = False

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key as this transaction has it, or None."""
        if key in self.changes:
            return self.changes[key]
        return self._store.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key.

        Raises:
            TypeError: when one of them is not bytes, which no changelog takes.
            RuntimeError: when the transaction is over.
        """
        raise_if_over(self.is_over)
        self.changes[checked_bytes(key)] = checked_bytes(value)
        self.causes[key] = self.cause.record

    def delete(self, key: bytes) -> None:
        """Remove a key.

        Raises:
            TypeError: when it is not bytes.
            RuntimeError: when the transaction is over.
        """
        raise_if_over(self.is_over)
        self.changes[checked_bytes(key)] = None
        self.causes[key] = self.cause.record

    def scan(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with ``prefix``, from ``start`` on, with their values, in order, as this transaction has them."""
        changed = dict(self.changes)
        kept = ((key, value) for key, value in self._store.scan(prefix, start) if key not in changed)
        new = sorted(
            (key, value)
            for key, value in changed.items()
            if value is not None and key.startswith(prefix) and key >= start
        )
        return heapq.merge(kept, new)


class TaskState:
    """The open stores of one task by changelog topic, and the ids of these topics (KIP-516), as far as they are known.

    ``topics_file`` keeps the ids between starts, beside stores that are kept.
    """

    def __init__(self, task_id: str, stores: Mapping[str, Store], topics_file: Path) -> None:
        self.task_id = task_id
        self.partition = split_task_id(task_id)[1]
        self.stores = {topic: TaskStore(f"the store of {topic} of {task_id}", each) for topic, each in stores.items()}
        self._topics_file = topics_file
        self._topic_ids: dict[str, str] = {}
        # Without the file nothing is known of the topics, as before there was one.
        with suppress(OSError, ValueError, AttributeError):
            self._topic_ids = {str(topic): str(known) for topic, known in json.loads(topics_file.read_text()).items()}

    @property
    def positions(self) -> dict[str, int]:
        """The position in each changelog; one of which nothing was read is left out."""
        return {topic: store.position for topic, store in self.stores.items() if store.position is not None}

    @property
    def has_failed(self) -> bool:
        """Whether a call of a store has failed, so that the state is to be closed and opened anew."""
        return any(store.has_failed for store in self.stores.values())

    def raise_if_failed(self) -> None:
        """Raise when a call of a store has failed, also where whoever called has not heeded it.

        Raises:
            StoreFailed: naming the stores.
        """
        if self.has_failed:
            failed = ", ".join(topic for topic, store in self.stores.items() if store.has_failed)
            raise StoreFailed(f"a call of the stores of {failed} has failed before")

    def topic_id(self, topic: str) -> str | None:
        """Return the id of the topic that the store was read from, if it is known."""
        return self._topic_ids.get(topic)

    def note_topic(self, topic: str, topic_id: str) -> None:
        """Keep the id of the topic that the store is read from."""
        if self._topic_ids.get(topic) == topic_id:
            return
        self._topic_ids[topic] = topic_id
        if self._topics_file.parent.is_dir():
            unfinished = self._topics_file.with_suffix(".new")
            unfinished.write_text(json.dumps(self._topic_ids))
            unfinished.replace(self._topics_file)

    def note_level(self, level_ms: int) -> None:
        for store in self.stores.values():
            store.note_level(level_ms)

    def close(self) -> None:
        """Close every store, whichever of them raises.

        Raises:
            StoreFailed: the first error.
        """
        errors: list[StoreFailed] = []
        for store in self.stores.values():
            try:
                store.close()
            except StoreFailed as error:
                errors.append(error)
        if errors:
            raise errors[0]


class StateFolder:
    """The folder in which a process keeps the states of its tasks, ``<task>/<changelog topic>``."""

    def __init__(self, folder: Path, open_store: OpenStore = RocksStore) -> None:
        # The program may go to another folder meanwhile.
        self.folder = folder.absolute()
        self._open_store = open_store

    def open(self, task_id: str, topics: Iterable[str]) -> TaskState:
        """Open the state of a task, empty if there is none.

        Raises:
            StoreFailed: when a store cannot be opened.
        """
        stores: dict[str, Store] = {}
        for topic in topics:
            try:
                stores[topic] = self._open_store(self.folder / task_id / topic)
            except Exception as error:
                for store in stores.values():
                    with suppress(Exception):
                        store.close()
                raise StoreFailed(
                    f"the store of {topic} of {task_id} cannot be opened: {str(error) or repr(error)}"
                ) from error
        return TaskState(task_id, stores, self.folder / task_id / _TOPICS_FILE)

    def tasks(self) -> list[str]:
        """Return the tasks that have state here, sorted."""
        if not self.folder.is_dir():
            return []
        return sorted(
            path.name for path in self.folder.iterdir() if path.is_dir() and _TASK_FOLDER.fullmatch(path.name)
        )

    def unused(self, topics: Mapping[str, Collection[str]]) -> list[Path]:
        """Return the stores here that are of none of a program's changelogs, which ``topics`` has by subtopology."""
        return [
            store
            for task_id in self.tasks()
            for store in sorted((self.folder / task_id).glob("[!.]*/"))
            if store.name not in topics.get(split_task_id(task_id)[0], ())
        ]

    def disk_bytes(self) -> dict[str, int]:
        """Return what the state of each task takes on disk."""
        total = dict.fromkeys(self.tasks(), 0)
        for task_id in total:
            for folder, _, names in os.walk(self.folder / task_id):
                for name in names:
                    # RocksDB removes files while it is open, and a state may be removed meanwhile.
                    with suppress(OSError):
                        total[task_id] += Path(folder, name).stat().st_size
        return total

    def remove(self, task_id: str) -> None:
        """Remove the state of a task, which must not be open here; one that another process has open stays."""
        for store in (self.folder / task_id).glob("*/"):
            try:
                self._open_store(store).close()
            except Exception as error:  # noqa: BLE001 - what cannot be opened for another reason is removed all the same
                if _HELD in str(error).lower():
                    log.warning(
                        "the state of %s stays: another process works in %s. Each worker has a folder of its own",
                        task_id, self.folder,
                    )  # fmt: skip
                    return
        discard(self.folder / task_id)


def progress(
    positions: Mapping[str, int], ends: Mapping[str, int], topics: tuple[str, ...], detail: str = ""
) -> Progress:
    """Return the progress that a task's positions stand for: unknown until every changelog has one."""
    if not topics or positions.keys() < set(topics):
        return Progress(detail=detail)
    if len(topics) == 1:
        return Progress(position=positions[topics[0]], end_offset=ends.get(topics[0]), detail=detail)
    return Progress(positions=dict(positions), end_offsets=dict(ends) or None, detail=detail)
