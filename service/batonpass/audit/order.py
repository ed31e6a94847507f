"""A group's records in the order in which they are read: what is missing or out of place, and who wrote on (L2, L4)."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from batonpass.audit.entries import UNREADABLE, Entry
from batonpass.audit.facts import Wrong, wrong
from batonpass.audit.findings import time_of
from batonpass.audit.plan import GroupPlan

ASTRAY_MS: Final = 60_000
"""By how much a record may be dated before its predecessor, or its own time differ, as servers' clocks differ."""

SINCE: Final = frozenset({"drain", UNREADABLE})
"""The records whose own time, if they have one, may be long before they were written."""


class _Deposed(NamedTuple):
    """Records by a coordinator of a lower epoch than that of a record before them, ``highest``; the first ``place``."""

    place: Wrong
    highest: int
    first: Entry
    last: Entry
    records: int


class Order:
    """Takes the records of one group; ``take`` and ``end`` return what is wrong."""

    def __init__(self, plan: GroupPlan) -> None:
        """Begin before the first record that is read."""
        self._plan = plan
        self._lost: list[int] = []
        self._before: Entry | None = None
        self._earlier: Entry | None = None
        self._highest: int | None = plan.base_epoch
        # By epoch: what a coordinator wrote after one of a higher epoch has one cause.
        self._deposed: dict[int, _Deposed] = {}

    def take(self, record: Entry) -> Iterator[Wrong]:
        before, seq = self._before, record.seq
        # The number of the record before, if that was read, or is still there.
        known = before.seq if before is not None else self._plan.base if self._plan.base_epoch is not None else None
        after = self._plan.base if known is None else known
        at = () if before is None else (before.at_ms,)
        place = Wrong("L2", "", (seq,) if known is None else (known, seq), (*at, record.at_ms))
        if seq > after + 1:
            self.lose(seq)
            which = f"record {after + 1} is" if seq - after == 2 else f"records {after + 1} to {seq - 1} are"
            yield place._replace(detail=f"{which} missing before {time_of(record.at_ms)}", every_day=True)
        elif seq == known:
            yield wrong("L2", f"record {seq} is there twice", record)
        if before is not None:
            yield from _misdated(before, self._earlier, record)
        epoch = record.coordinator_epoch
        if self._highest is not None and epoch < self._highest and seq >= self._plan.first:
            known_of = self._deposed.get(epoch, _Deposed(place, self._highest, record, record, 0))
            self._deposed[epoch] = known_of._replace(last=record, records=known_of.records + 1)
        self._highest = epoch if self._highest is None else max(self._highest, epoch)
        self._before, self._earlier = record, before

    def end(self) -> Iterator[Wrong]:
        """End the day: the last record is judged, and what each coordinator wrote that had been replaced (L4)."""
        if self._before is not None:
            yield from _misdated(self._before, self._earlier, None)
        for epoch, (place, highest, first, last, count) in self._deposed.items():
            what, until = (f" {count:,} records", f", the last one at {time_of(last.at_ms)}") if count > 1 else ("", "")
            detail = (
                f"a coordinator of epoch {epoch} appended{what} after one of epoch {highest} at {time_of(first.at_ms)}"
            )
            more = (last,) if count > 1 else ()
            sequences = (*place.sequences, *(one.seq for one in more))
            yield Wrong("L4", detail + until, sequences, (*place.at, *(one.at_ms for one in more)))

    def lose(self, seq: int) -> None:
        """Note that records before a number are missing, or that the one of that number cannot be read."""
        if not self._lost or self._lost[-1] < seq:
            self._lost.append(seq)

    def loses(self, after: int = -1, up_to: int | None = None) -> bool:
        """Whether a record behind ``after``, up to ``up_to`` or anywhere, is missing or cannot be read."""
        end = len(self._lost) if up_to is None else bisect_right(self._lost, up_to)
        return bisect_right(self._lost, after) < end


def _misdated(one: Entry, earlier: Entry | None, behind: Entry | None) -> Iterator[Wrong]:
    """Yield what is wrong with the time of a record (L2), given those around it.

    A record is dated between its neighbours, and tells the time of its own row: coordinators go by the database's
    clock.
    """
    is_late = behind is not None and one.at_ms > behind.at_ms + ASTRAY_MS
    if is_late or (earlier is not None and one.at_ms < earlier.at_ms - ASTRAY_MS):
        # Of two records that are dated the wrong way round, neighbours that agree say which is astray.
        if earlier is None or behind is None or one.what == UNREADABLE or earlier.at_ms > behind.at_ms + ASTRAY_MS:
            return
        beside = f"the one before it is of {time_of(earlier.at_ms)}, the one behind it of {time_of(behind.at_ms)}"
        yield wrong("L2", f"record {one.seq} is dated {time_of(one.at_ms)}; {beside}", one)
    elif one.what not in SINCE and abs(one.at_ms - one.ms) > ASTRAY_MS:
        told = f"record {one.seq} tells of {time_of(one.ms)}, and was written at {time_of(one.at_ms)}"
        yield wrong("L2", told, one, task=one.task, member=one.member)
