"""The account of everything that a job has put out: what is missing or doubled, who wrote it, and when it was silent.

Times are milliseconds since 1970, as the broker stamped the records when it took them (LogAppendTime).
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from batonpass.demo.job import Output

Window = tuple[int, int]
"""A stretch of time: from and to."""


class Handover(NamedTuple):
    """A change of writer in a task's output: the silence between the last record of one and the first of the next."""

    task: int
    giver: str
    taker: str
    at_ms: int
    gap_ms: int


class Account(NamedTuple):
    """What came of the input: records in and out, inputs without an output, and surplus outputs."""

    taken_in: int
    put_out: int
    missing: int
    doubled: int
    wrong_totals: int

    @property
    def is_clean(self) -> bool:
        """Whether every input had its effect exactly once."""
        return not (self.missing or self.doubled or self.wrong_totals)


@dataclass(slots=True)
class _Page:
    """One task's outputs in order."""

    times: "array[int]" = field(default_factory=lambda: array("q"))
    # Where each writer begins: the index of its first output in `times`.
    begins: list[int] = field(default_factory=list)
    writers: list[str] = field(default_factory=list)
    next_offset: int = 0
    missing: set[int] = field(default_factory=set)
    doubled: int = 0
    amounts: dict[bytes, int] = field(default_factory=dict)
    wrong_totals: int = 0


class Ledger:
    """Notes outputs, task by task, in their order."""

    def __init__(self, tasks: int, *, stateful: bool) -> None:
        """Begin without outputs; ``stateful`` says whether totals are to be checked."""
        self._pages = [_Page() for _ in range(tasks)]
        self._stateful = stateful

    @property
    def tasks(self) -> range:
        return range(len(self._pages))

    def note(self, task: int, key: bytes, output: Output, at_ms: int) -> None:
        page = self._pages[task]
        if output.offset >= page.next_offset:
            page.missing.update(range(page.next_offset, output.offset))
            page.next_offset = output.offset + 1
        elif output.offset in page.missing:
            page.missing.discard(output.offset)
        else:
            page.doubled += 1
        if self._stateful:
            # If a customer's total holds one amount more each time, it has forgotten nothing and counted nothing twice.
            if output.amounts != page.amounts.get(key, 0) + 1:
                page.wrong_totals += 1
            page.amounts[key] = output.amounts
        if not page.writers or page.writers[-1] != output.writer:
            page.begins.append(len(page.times))
            page.writers.append(output.writer)
        page.times.append(at_ms)

    def account(self, taken: Sequence[int]) -> Account:
        """Return what came of the input, given how many records of each partition the broker has taken."""
        each = [*zip(self._pages, taken, strict=True)]
        return Account(
            taken_in=sum(taken),
            put_out=self.put_out,
            missing=sum(len(page.missing) + max(0, count - page.next_offset) for page, count in each),
            # Outputs of inputs that do not exist count as doubled too.
            doubled=sum(page.doubled + max(0, page.next_offset - count) for page, count in each),
            wrong_totals=sum(page.wrong_totals for page in self._pages),
        )

    @property
    def put_out(self) -> int:
        return sum(len(page.times) for page in self._pages)

    def is_done(self, taken: Sequence[int]) -> bool:
        """Whether each partition has an output at or beyond its last input, given how many inputs each has."""
        return all(page.next_offset >= count for page, count in zip(self._pages, taken, strict=True))

    def longest_silence(self, task: int, window: Window) -> int:
        """Return the longest time in a window without an output of the task; one that began before it counts whole."""
        times, (begin, end) = self._pages[task].times, window
        first, last = bisect_right(times, begin), bisect_right(times, end)
        if not last:
            return 0
        # The silence may go on at the end of the window.
        return max(later - at for at, later in pairwise([*times[max(0, first - 1) : last], end]))

    def handovers(self, window: Window) -> list[Handover]:
        """Return the changes of writer that ended within a window, in the order of the tasks."""
        found: list[Handover] = []
        for task, page in enumerate(self._pages):
            for number in range(1, len(page.begins)):
                index = page.begins[number]
                at_ms = page.times[index]
                if window[0] < at_ms <= window[1]:
                    gap = at_ms - page.times[index - 1]
                    found.append(Handover(task, page.writers[number - 1], page.writers[number], at_ms, gap))
        return found

    def put_out_within(self, task: int, window: Window) -> int:
        """Return how many outputs of a task lie within a window."""
        times = self._pages[task].times
        return bisect_left(times, window[1]) - bisect_left(times, window[0])

    def writer_at(self, task: int, at_ms: int) -> str | None:
        """Return the writer of the task's last output before a time."""
        page = self._pages[task]
        index = bisect_right(page.times, at_ms) - 1
        if index < 0:
            return None
        return page.writers[bisect_right(page.begins, index) - 1]

    def writers_of(self, task: int) -> set[str]:
        return set(self._pages[task].writers)

    def first_at(self, task: int) -> int | None:
        times = self._pages[task].times
        return times[0] if times else None

    def last_at(self, task: int) -> int | None:
        times = self._pages[task].times
        return times[-1] if times else None


def silences(ledger: Ledger, tasks: Iterable[int], windows: Sequence[Window]) -> list[int]:
    """Return for each task its longest silence in any of these windows."""
    return [max((ledger.longest_silence(task, window) for window in windows), default=0) for task in tasks]


def quiet_for(phase: Window, quiet: Sequence[Window]) -> list[Window]:
    """Return the quiet windows nearest to a phase that are together as long as the phase, or all that there are."""
    left, found = phase[1] - phase[0], []
    for begin, end in sorted(quiet, key=lambda window: min(abs(phase[0] - window[1]), abs(window[0] - phase[1]))):
        if left <= 0:
            break
        length = min(left, end - begin)
        # Of the last window, the part nearest to the phase.
        found.append((end - length, end) if end <= phase[0] else (begin, begin + length))
        left -= length
    return sorted(found)
