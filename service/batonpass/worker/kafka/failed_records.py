"""Records for which the worker's own code raised: which it was, and what is written of it to a dead letter topic."""

import asyncio
import errno
from collections.abc import Awaitable, Sequence
from typing import Final

from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError

from batonpass.background import is_failure
from batonpass.worker.kafka.stores import StoreFailed
from batonpass.worker.kafka.transaction import OutputRefused, RecordTooLarge
from batonpass.worker.raised import words_of

MESSAGE_CHARS_MAX = 1_000

_OF_HOST: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
"""What the system says when the host has no more of something, or its disk is broken."""


class PassedOver(Exception):
    """The transaction begins anew, without the record."""


async def done_by_its_code(call: Awaitable[None]) -> None:
    """Await a call of the worker's own code, in which a cancellation that nobody asked of the caller is an error.

    Raises:
        RuntimeError: in place of that.
        Exception: what it raised.
    """
    try:
        await call
    except asyncio.CancelledError as error:
        if not is_failure(error):
            raise
        raise RuntimeError("something that it waited for was cancelled") from error


def is_of_the_record(error: Exception) -> bool:
    """Say whether a record may be to blame for an error: what cluster, store or host do is none of its doing."""
    return error_of_others(error) is None


def error_of_others(error: Exception) -> BaseException | None:
    """Return the error of the cluster, the store or the host that an error is, or that the worker's code made it of.

    Its code may put one into a group, as an `asyncio.TaskGroup` does, or into words of its own.
    """
    left, seen = list[BaseException]([error]), list[BaseException]()
    while left:
        one = left.pop()
        if isinstance(one, RecordTooLarge | OutputRefused) or any(one is other for other in seen):
            continue
        seen.append(one)
        is_of_host = isinstance(one, MemoryError) or (isinstance(one, OSError) and one.errno in _OF_HOST)
        if is_of_host or isinstance(one, (KafkaError, StoreFailed)):
            return one
        before = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
        left += [*getattr(one, "exceptions", ()), *([before] if before is not None else [])]
    return None


def where(record: ConsumerRecord) -> str:
    """Return which record it is, for whoever reads why it was not processed."""
    key = "no key" if record.key is None else f"key {record.key!r:.100}"
    return f"in {record.topic}-{record.partition} at offset {record.offset}, {key}"


def cause(error: Exception) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {words_of(error)}"[:MESSAGE_CHARS_MAX]


def headers(record: ConsumerRecord, error: Exception, *, is_cut: bool = False) -> Sequence[tuple[str, bytes]]:
    """Return the headers of a dead letter: the record's own, where it was, and why it could not be processed.

    They say what those of Kafka Streams say (KIP-1034), and the record's time, for the letter has the time at which it
    was written: its topic is to keep it as long as any other. Of a record that is cut they have the value's size, and
    not its own headers.
    """
    said = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp),
        "exception": f"{type(error).__module__}.{type(error).__qualname__}",
        "message": words_of(error)[:MESSAGE_CHARS_MAX],
    }
    if is_cut:
        said["value_bytes"] = str(len(record.value or b""))
    return (
        *(() if is_cut else record.headers),
        *((f"__batonpass.errors.{name}", value.encode(errors="replace")) for name, value in said.items()),
    )
