"""Topics and tables with their types: what a record and the state of its key are for code that handles no bytes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from batonpass.worker.kafka.serdes import Serde
from batonpass.worker.kafka.stores import StoreFailed, StoreInTransaction
from batonpass.worker.kafka.timers import Timers

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

NONE_OF_THIS_JOB = "topic {} is none of this job: name it with app.topic"

Headers = Mapping[str, bytes] | Sequence[tuple[str, bytes]]
"""Headers of a record: pairs of a name and bytes, or a mapping where no name comes twice."""


def pairs_of(headers: Headers) -> list[tuple[str, bytes]]:
    """Return headers as aiokafka takes them.

    Raises:
        TypeError: when one is no pair of a name and bytes.
    """
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    for pair in pairs:
        match pair:
            case (str(), bytes() | None):
                pass
            case _:
                raise TypeError(f"a header is a name and bytes, as in {{'trace': b'7'}}, and not {pair!r}")
    return pairs


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


def check_topic(topic: object, names: Collection[str]) -> None:
    """Refuse what is no topic of a job.

    Raises:
        TypeError: when it is no topic, but its name for instance.
        ValueError: when it is another job's.
    """
    if not isinstance(topic, Topic):
        raise TypeError(f"a topic is what app.topic returned, and not {topic!r}")
    if topic.name not in names:
        raise ValueError(NONE_OF_THIS_JOB.format(topic.name))


def _read(which: str, serde: Serde[T], data: bytes | None) -> T:
    try:
        return serde.load(data)
    except (ValueError, TypeError) as error:
        raise ValueError(f"its {which} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class Table(Generic[K, V]):
    """State by key, in a store of each task of a subtopology; ``changelog`` is the topic that it is rebuilt from.

    One that ``follows`` a topic has what the topic says, and nothing else.
    """

    name: str
    key: Serde[K]
    value: Serde[V]
    changelog: str
    subtopology: str
    follows: bool = False


def read_state(table: Table[Any, Any], serde: Serde[T], data: bytes, key: object) -> T:
    """Return what bytes of a table's state are.

    Raises:
        StoreFailed: when they are not what the serde takes.
    """
    try:
        return serde.load(data)
    except Exception as error:
        # Not the fault of the record that is processed: an earlier release may have written it.
        raise StoreFailed(f"what table {table.name} has of key {key!r:.100} cannot be read: {error}") from error


class KeyValueStore(Generic[K, V]):
    """A table as the present transaction has it."""

    def __init__(self, table: Table[K, V], store: StoreInTransaction) -> None:
        self._table = table
        self._store = store

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V) -> V: ...
    def get(self, key: K, default: V | None = None) -> V | None:
        """Return the value of a key, or ``default``.

        Raises:
            StoreFailed: when the store has what is not of the table's type.
        """
        found = self._store.get(self._key(key))
        return default if found is None else read_state(self._table, self._table.value, found, key)

    def put(self, key: K, value: V) -> None:
        """Set the value of a key.

        Raises:
            ValueError: when key or value is None, which only topics take (`delete` removes a key); when the table
                follows a topic.
        """
        self._check_own()
        self._store.put(self._key(key), self._bytes("value", self._table.value.dump(value)))

    def delete(self, key: K) -> None:
        """Remove a key.

        Raises:
            ValueError: when the table follows a topic.
        """
        self._check_own()
        self._store.delete(self._key(key))

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[K, V]]:
        """Yield the keys whose bytes begin with ``prefix`` with their values, in the order of the bytes.

        Raises:
            StoreFailed: when the store has what is not of the table's types.
        """
        for key, value in self._store.scan(prefix):
            table = self._table
            yield read_state(table, table.key, key, key), read_state(table, table.value, value, key)

    def _check_own(self) -> None:
        if self._table.follows:
            raise ValueError(
                f"table {self._table.name} follows its topic: write to the topic, or to a table of your own"
            )

    def _key(self, key: K) -> bytes:
        return self._bytes("key", self._table.key.dump(key))

    def _bytes(self, which: str, data: bytes | None) -> bytes:
        if data is None:
            raise ValueError(f"table {self._table.name} has no room for a {which} that is None")
        return data


@dataclass(frozen=True, slots=True)
class Timer(Generic[K]):
    """A timer of a key that is due. ``at_ms`` is for when it was set, in stream time: milliseconds since 1970."""

    key: K
    at_ms: int


class State(Generic[V]):
    """What a table has of the key of the record, or the timer, that is processed."""

    def __init__(self, table: Table[K, V], store: KeyValueStore[K, V], key: K, timers: Timers | None) -> None:
        self._table: Table[Any, V] = table
        self._store: KeyValueStore[Any, V] = store
        self._of = key
        self._timers = timers

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
        """Remove the key, and its timer."""
        self._store.delete(self._of)
        if self._timers is not None:
            self._timers.clear(self._owner)

    def set_timer(self, at_ms: int) -> None:
        """Have the table's `App.on_timer` called once stream time is ``at_ms``, instead of when it was set for before.

        Raises:
            ValueError: when the table has no such function, there is no such time, or the key is None.
        """
        self._known_timers.set(self._owner, at_ms)

    def clear_timer(self) -> None:
        """Take the key's timer away, if it has one.

        Raises:
            ValueError: when the table has no function for timers, or the key is None.
        """
        self._known_timers.clear(self._owner)

    @property
    def _owner(self) -> bytes:
        key = self._table.key.dump(self._of)
        if key is None:
            raise ValueError(f"table {self._table.name} has no room for a key that is None")
        return self._table.name.encode() + b"\0" + key

    @property
    def _known_timers(self) -> Timers:
        if self._timers is None:
            raise ValueError(f"nothing is called for timers of table {self._table.name}: write one with @app.on_timer")
        return self._timers
