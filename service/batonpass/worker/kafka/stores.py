"""Where a task's state is kept: keys and values of one changelog partition, and how far that has been read.

A store is always exactly a prefix of its changelog: the records before ``position``, and nothing else. Records and
position change together, so that a process killed at any instruction goes on from where it was. An active's own writes
are applied only after their transaction was committed.

A store has an age: how long ago it was last known to be level with its changelog. A compacted changelog forgets
deletions after a while, and a store that slept for longer would never learn of them.
"""

from __future__ import annotations

import functools
import re
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from batonpass.core.ids import split_task_id
from batonpass.worker.protocol import Progress

if TYPE_CHECKING:
    from rocksdict import Options, Rdict

Change = tuple[bytes, bytes | None]
"""A key with its new value; None removes the key."""

_RECORD = b"r"
_POSITION = b"position"
_FORM = struct.Struct(">qq")

KEEP_LEVEL_MS = 60_000
"""How often a store to which nothing is written records on disk that it is level."""


class ReadableStore(Protocol):
    """A store for reading only; it holds nothing uncommitted."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        ...

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys that begin with ``prefix`` with their values, in the order of the keys."""
        ...


class Store(ReadableStore, Protocol):
    """One changelog partition's state, and how it changes."""

    @property
    def position(self) -> int | None:
        """The offset of the first changelog record that is not in this store; None: nothing was read yet."""
        ...

    @property
    def level_ms(self) -> int:
        """When it was last known to lack nothing of its changelog, in milliseconds since 1970; 0 if never.

        A store that is begun anew lacks no deletion either, because it holds nothing that could have been deleted.
        """
        ...

    def apply(self, changes: Iterable[Change], position: int) -> None:
        """Apply records and move the position, both or neither."""
        ...

    def note_level(self, level_ms: int) -> None:
        """Note when it was level with its changelog; stored when it is closed, and at least every minute."""
        ...

    def wipe(self) -> None:
        """Forget everything, the position too."""
        ...

    def close(self) -> None:
        """Close files. What was applied stays, if the store is a lasting one."""
        ...


class MemoryStore:
    """State in memory, gone with the process; it is restored from the changelog each time."""

    def __init__(self) -> None:
        self._records: dict[bytes, bytes] = {}
        self._position: int | None = None
        self._level_ms = 0

    @property
    def position(self) -> int | None:
        """The offset of the first changelog record that is not in this store."""
        return self._position

    @property
    def level_ms(self) -> int:
        """When it was last known to be level with its changelog."""
        return self._level_ms

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        return self._records.get(key)

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with their values in order, as they are when the scan begins."""
        return iter(sorted(item for item in self._records.items() if item[0].startswith(prefix)))

    def apply(self, changes: Iterable[Change], position: int) -> None:
        """Apply records and move the position."""
        for key, value in changes:
            if value is None:
                self._records.pop(key, None)
            else:
                self._records[key] = value
        self._position = position

    def note_level(self, level_ms: int) -> None:
        """Note that it was level with its changelog then."""
        self._level_ms = max(self._level_ms, level_ms)

    def wipe(self) -> None:
        """Forget everything."""
        self._records.clear()
        self._position, self._level_ms = None, 0

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

    def bound(self, options: Options) -> None:
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
            Exception: when another process has it open.
        """
        self._folder = folder
        self._memory = memory or _memory_of_this_process()
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = _open(folder, self._memory)
        except Exception as error:  # what rocksdict raises has no class of its own
            if "corruption" not in str(error).lower():
                raise
            shutil.rmtree(folder)
            self._db = _open(folder, self._memory)
        self._position: int | None = None
        self._level_ms = 0
        kept = self._db.get(_POSITION)
        if kept is not None:
            self._position, self._level_ms = _FORM.unpack(kept)
        self._kept_level_ms = self._level_ms

    @property
    def position(self) -> int | None:
        """The offset of the first changelog record that is not in this store."""
        return self._position

    @property
    def level_ms(self) -> int:
        """When it was last known to be level with its changelog."""
        return self._level_ms

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        found: bytes | None = self._db.get(_RECORD + key)
        return found

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with their values in order, as they are when the scan begins."""
        first = _RECORD + prefix
        for key, value in self._db.snapshot().items(from_key=first):
            if not isinstance(key, bytes) or not key.startswith(first):
                return
            yield key[len(_RECORD) :], value

    def apply(self, changes: Iterable[Change], position: int) -> None:
        """Apply records and move the position, in one write."""
        from rocksdict import WriteBatch  # noqa: PLC0415 - a worker that keeps its state in memory needs no RocksDB

        batch = WriteBatch(raw_mode=True)
        for key, value in changes:
            if value is None:
                batch.delete(_RECORD + key)
            else:
                batch.put(_RECORD + key, value)
        batch.put(_POSITION, _FORM.pack(position, self._level_ms))
        self._db.write(batch)
        self._position, self._kept_level_ms = position, self._level_ms

    def note_level(self, level_ms: int) -> None:
        """Note that it was level with its changelog then; written at most once a minute, and when it is closed."""
        self._level_ms = max(self._level_ms, level_ms)
        if self._level_ms - self._kept_level_ms >= KEEP_LEVEL_MS:
            self._keep_level()

    def _keep_level(self) -> None:
        if self._position is not None and self._level_ms != self._kept_level_ms:
            self.apply([], self._position)

    def wipe(self) -> None:
        """Forget everything."""
        self._db.close()
        shutil.rmtree(self._folder)
        self._db = _open(self._folder, self._memory)
        self._position, self._level_ms, self._kept_level_ms = None, 0, 0

    def close(self) -> None:
        """Close the files, so that another process may open them."""
        self._keep_level()
        self._db.close()


def _open(folder: Path, memory: RocksMemory) -> Rdict:
    from rocksdict import Options, Rdict  # noqa: PLC0415 - a worker that keeps its state in memory needs no RocksDB

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_keep_log_file_num(1)
    options.set_max_open_files(256)
    memory.bound(options)
    # There is only this one family. Left unnamed, it would be opened as its files say, with a cache of its own.
    return Rdict(str(folder), options, column_families={"default": options})


OpenStore = Callable[[Path], Store]
"""Makes the store of one changelog partition, in a folder for it alone."""

_TASK_FOLDER = re.compile(r".+_\d+")


def in_memory(_folder: Path) -> Store:
    """Open a store that is lost when the process ends."""
    return MemoryStore()


class TaskState:
    """The open stores of one task by changelog topic."""

    def __init__(self, task_id: str, stores: Mapping[str, Store]) -> None:
        self.task_id = task_id
        self.partition = split_task_id(task_id)[1]
        self.stores = dict(stores)

    @property
    def positions(self) -> dict[str, int]:
        """The position in each changelog; one of which nothing was read is left out."""
        return {topic: store.position for topic, store in self.stores.items() if store.position is not None}

    def note_level(self, level_ms: int) -> None:
        """Note that every store was level with its changelog then."""
        for store in self.stores.values():
            store.note_level(level_ms)

    def close(self) -> None:
        """Close every store."""
        for store in self.stores.values():
            store.close()


class StateFolder:
    """The folder in which a process keeps the states of its tasks, ``<task>/<changelog topic>``."""

    def __init__(self, folder: Path, open_store: OpenStore = RocksStore) -> None:
        self.folder = folder
        self._open_store = open_store

    def open(self, task_id: str, topics: Iterable[str]) -> TaskState:
        """Open the state of a task, empty if there is none."""
        stores: dict[str, Store] = {}
        try:
            for topic in topics:
                stores[topic] = self._open_store(self.folder / task_id / topic)
        except BaseException:
            for store in stores.values():
                store.close()
            raise
        return TaskState(task_id, stores)

    def tasks(self) -> list[str]:
        """Return the tasks that have state here, sorted."""
        if not self.folder.is_dir():
            return []
        return sorted(
            path.name for path in self.folder.iterdir() if path.is_dir() and _TASK_FOLDER.fullmatch(path.name)
        )

    def disk_bytes(self, task_id: str) -> int:
        """Return how many bytes the files of a task's state take."""
        total = 0
        for path in (self.folder / task_id).rglob("*"):
            # RocksDB removes files while it is open.
            with suppress(FileNotFoundError):
                total += path.stat().st_size if path.is_file() else 0
        return total

    def remove(self, task_id: str) -> None:
        """Remove the state of a task, which must not be open."""
        shutil.rmtree(self.folder / task_id, ignore_errors=True)


def progress(positions: Mapping[str, int], ends: Mapping[str, int], topics: tuple[str, ...]) -> Progress:
    """Return the progress that a task's positions stand for: unknown until every changelog has one."""
    if not topics or positions.keys() < set(topics):
        return Progress()
    if len(topics) == 1:
        return Progress(position=positions[topics[0]], end_offset=ends.get(topics[0]))
    return Progress(positions=dict(positions), end_offsets=dict(ends) or None)
