"""The state of one task: a store for each of its changelogs, in a folder of its own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from batonpass.core.ids import split_task_id
from batonpass.worker.kafka.stores import MemoryStore, RocksStore, Store
from batonpass.worker.protocol import Progress

OpenStore = Callable[[Path], Store]
"""Makes the store of one changelog partition, in a folder that is its own."""

_TASK_FOLDER = re.compile(r".+_\d+")


def in_memory(_folder: Path) -> Store:
    """Open a store that is gone with the process."""
    return MemoryStore()


class TaskState:
    """The open stores of one task by changelog topic."""

    def __init__(self, task_id: str, stores: Mapping[str, Store]) -> None:
        self.task_id = task_id
        self.partition = split_task_id(task_id)[1]
        self.stores = dict(stores)

    @property
    def positions(self) -> dict[str, int]:
        """How far each changelog has been read; one of which nothing was read is left out."""
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
    """Where a process keeps the states of its tasks, ``<task>/<changelog topic>``."""

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
        """Return the tasks of which there is state, sorted."""
        if not self.folder.is_dir():
            return []
        return sorted(
            path.name for path in self.folder.iterdir() if path.is_dir() and _TASK_FOLDER.fullmatch(path.name)
        )

    def disk_bytes(self, task_id: str) -> int:
        """Return how many bytes the files of a task's state have."""
        total = 0
        for path in (self.folder / task_id).rglob("*"):
            # RocksDB takes files away while it is open.
            with suppress(FileNotFoundError):
                total += path.stat().st_size if path.is_file() else 0
        return total

    def remove(self, task_id: str) -> None:
        """Remove the state of a task, which must not be open."""
        shutil.rmtree(self.folder / task_id, ignore_errors=True)


def progress(positions: Mapping[str, int], ends: Mapping[str, int], topics: tuple[str, ...]) -> Progress:
    """Return what a task's positions amount to: unknown before every changelog has one."""
    if not topics or positions.keys() < set(topics):
        return Progress()
    if len(topics) == 1:
        return Progress(position=positions[topics[0]], end_offset=ends.get(topics[0]))
    return Progress(positions=dict(positions), end_offsets=dict(ends) or None)
