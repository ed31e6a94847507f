"""What a soak measures, and the rule by which a measure counts as one that grows."""

from dataclasses import dataclass, field
from enum import Enum
from statistics import median
from typing import Final

MB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Tolerance:
    """By how much a measure may be higher at the end: growth is more than this share, and more than so much."""

    share: float
    least: float


class Kind(Enum):
    """What is measured, each with its tolerance. A database's log comes and goes in ``SEGMENTS`` of 16 MB."""

    MEMORY = Tolerance(0.05, 4 * MB)
    DISK = Tolerance(0.10, 8 * MB)
    SEGMENTS = Tolerance(0.10, 20 * MB)
    COUNT = Tolerance(0.10, 5)
    ROWS = Tolerance(0.20, 1_000)


@dataclass
class Series:
    """One measure over the run: when, in seconds from the beginning, and how much."""

    kind: Kind
    at: list[float] = field(default_factory=list)
    seen: list[float] = field(default_factory=list)

    def add(self, at: float, seen: float) -> None:
        """Add a sample."""
        self.at.append(at)
        self.seen.append(seen)

    def quarter(self, number: int) -> float:
        """Return the median of one quarter of the samples, of four."""
        return median(self._samples(number))

    def grows(self) -> bool:
        """Say whether the last quarter lies above the second one by more than is tolerated, in share and amount.

        The first quarter is left out: caches fill, and nothing is old enough yet to be let go of. What only comes and
        goes, as connections do, reaches the median of the last quarter in the second one already.
        """
        before, after = self.quarter(2), self.quarter(4)
        tolerance = self.kind.value
        return after - before > max(tolerance.least, tolerance.share * before) and after > max(self._samples(2))

    def _samples(self, quarter: int) -> list[float]:
        begin, end = (len(self.seen) * edge // 4 for edge in (quarter - 1, quarter))
        return self.seen[begin:end] or self.seen

    def in_words(self, amount: float) -> str:
        """Return an amount of this measure for people."""
        if self.kind in {Kind.COUNT, Kind.ROWS}:
            return f"{amount:,.0f}"
        return f"{amount / MB:,.1f} MB" if amount >= MB else f"{amount / 1024:,.0f} kB"


RULE: Final = (
    "grows: the median of the last quarter lies above all of the second, and above its median by more than "
    + ", ".join(
        f"{kind.value.share:.0%} and {Series(kind).in_words(kind.value.least)} ({kind.name.lower()})" for kind in Kind
    )
)
