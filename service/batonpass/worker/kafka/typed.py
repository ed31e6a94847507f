"""Topics and tables with their types: what a record and the state of its key are for code that handles no bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, overload

from batonpass.worker.kafka.serdes import Serde

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Record(Generic[K, V]):
    """A record that was read. ``timestamp_ms`` is in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K
    value: V
    headers: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Topic(Generic[K, V]):
    """A topic, and what its keys and values are."""

    name: str
    key: Serde[K]
    value: Serde[V]

    def record(self, raw: Any) -> Record[K, V]:
        """Return a record of aiokafka's with its key and value read.

        Raises:
            ValueError: when one of them is not what the topic says.
        """
        return Record(
            raw.topic,
            raw.partition,
            raw.offset,
            raw.timestamp,
            _read("key", self.key, raw.key),
            _read("value", self.value, raw.value),
            tuple(raw.headers),
        )


def _read(which: str, serde: Serde[T], data: bytes | None) -> T:
    try:
        return serde.load(data)
    except (ValueError, TypeError) as error:
        raise ValueError(f"its {which} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class Table(Generic[K, V]):
    """State by key, in a store of each task of a subtopology; ``changelog`` is the topic that it is rebuilt from."""

    name: str
    key: Serde[K]
    value: Serde[V]
    changelog: str
    subtopology: str


class ByteStore(Protocol):
    """A store of bytes in a transaction."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        ...

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        ...

    def delete(self, key: bytes) -> None:
        """Remove a key."""
        ...

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with their values, in order."""
        ...


class KeyValueStore(Generic[K, V]):
    """A table as the present transaction has it."""

    def __init__(self, table: Table[K, V], store: ByteStore) -> None:
        self._table = table
        self._store = store

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V) -> V: ...
    def get(self, key: K, default: V | None = None) -> V | None:
        """Return the value of a key, or ``default``."""
        found = self._store.get(self._key(key))
        return default if found is None else self._table.value.load(found)

    def put(self, key: K, value: V) -> None:
        """Set the value of a key.

        Raises:
            ValueError: when key or value is None, which only topics take; `delete` removes a key.
        """
        self._store.put(self._key(key), self._bytes("value", self._table.value.dump(value)))

    def delete(self, key: K) -> None:
        """Remove a key."""
        self._store.delete(self._key(key))

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[K, V]]:
        """Yield the keys whose bytes begin with ``prefix`` with their values, in the order of the bytes."""
        for key, value in self._store.scan(prefix):
            yield self._table.key.load(key), self._table.value.load(value)

    def _key(self, key: K) -> bytes:
        return self._bytes("key", self._table.key.dump(key))

    def _bytes(self, which: str, data: bytes | None) -> bytes:
        if data is None:
            raise ValueError(f"table {self._table.name} has no room for a {which} that is None")
        return data


class State(Generic[V]):
    """What a table has of the key of the record that is processed."""

    def __init__(self, store: KeyValueStore[K, V], key: K) -> None:
        self._store: KeyValueStore[Any, V] = store
        self._of = key

    @overload
    def get(self) -> V | None: ...
    @overload
    def get(self, default: V) -> V: ...
    def get(self, default: V | None = None) -> V | None:
        """Return the value, or ``default``."""
        found = self._store.get(self._of)
        return default if found is None else found

    def put(self, value: V) -> None:
        """Set the value."""
        self._store.put(self._of, value)

    def delete(self) -> None:
        """Remove the key."""
        self._store.delete(self._of)
