"""Records with headers whose names are no UTF-8, which any producer may write and any broker takes.

aiokafka (0.14) raises for such a name, and its reader stays where it is: nobody who reads with it could go on, or pass
the record over. Here the name has other letters, as Java's consumer shows it.
"""

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords

_BEGIN = struct.Struct(">8xi4xb")
"""How many bytes of a batch follow this number, and its format. Those below 2 have no headers."""


class Records(MemoryRecords):  # type: ignore[misc]  # aiokafka has no types
    """The batches of an answer to a fetch."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._data = data
        self._at = 0

    def next_batch(self) -> Any:
        batch = super().next_batch()
        if batch is None:
            return None
        length, form = _BEGIN.unpack_from(self._data, self._at)
        begin, self._at = self._at, self._at + 12 + length
        return _Batch(batch, self._data[begin : self._at]) if form >= 2 else batch


class _Batch:
    """A batch that is read by aiokafka's fast reader, or by its other one if a name cannot be read."""

    def __init__(self, inner: Any, data: bytes) -> None:
        self._inner = inner
        self._data = data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __next__(self) -> Any:
        return next(self._inner)

    def __iter__(self) -> Iterator[Any]:
        read = 0
        try:
            for record in self._inner:
                yield record
                read += 1
        except (UnicodeDecodeError, CorruptRecordException):
            slow: Any = _DefaultRecordBatchPy(self._data)
            slow._maybe_uncompress()  # noqa: SLF001 - it decodes what it takes from its buffer, and nothing says how
            slow._buffer = _Buffer(slow._buffer)  # noqa: SLF001
            yield from islice(slow, read, None)


class _Buffer(bytearray):
    """Bytes, of which each part can be decoded."""

    def __getitem__(self, place: Any) -> Any:
        found: Any = super().__getitem__(place)
        return _Part(found) if isinstance(place, slice) else found


class _Part(bytes):
    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, errors)
