"""Histograms for what happens tens of thousands of times a second, and counters that are added up on the way.

The library's own histogram looks for the bucket one by one and takes a lock twice; here an observation is one search
by halves and two additions. All observations come from the event loop's thread; a scrape in another thread may miss
the last one, never half of one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric


class Series:
    """The observations under one label."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value in the first bucket whose bound it does not exceed."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class Spread(Collector):
    """A histogram with one label."""

    def __init__(
        self, name: str, meaning: str, label: str, bounds: tuple[float, ...], *, registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._meaning = meaning
        self._label = label
        self._bounds = bounds
        self._series: dict[str, Series] = {}
        registry.register(self)

    def labels(self, value: str) -> Series:
        """Return the series of one value of the label, made on first use."""
        found = self._series.get(value)
        if found is None:
            found = self._series[value] = Series(self._bounds)
        return found

    def describe(self) -> Iterator[Metric]:
        """Yield what this is, without observations."""
        yield HistogramMetricFamily(self._name, self._meaning, labels=[self._label])

    def collect(self) -> Iterator[Metric]:
        """Yield every series, with buckets that add up."""
        family = HistogramMetricFamily(self._name, self._meaning, labels=[self._label])
        ends = [*map(floatToGoString, self._bounds), "+Inf"]
        for value, series in list(self._series.items()):
            sums = accumulate(list(series.counts))
            family.add_metric([value], list(zip(ends, sums, strict=True)), series.total)
        yield family


class First(Collector):
    """Is collected before everything that is registered later, to bring that up to date; has nothing to show itself."""

    def __init__(self, settle: Callable[[], None], *, registry: CollectorRegistry) -> None:
        self._settle = settle
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Yield nothing."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Bring up to date, and yield nothing."""
        self._settle()
        yield from ()


class Sum:
    """A count that goes to a counter of the library before that is scraped."""

    __slots__ = ("_counter", "pending")

    def __init__(self, counter: object) -> None:
        self._counter = counter
        self.pending = 0

    def settle(self) -> None:
        """Add to the counter what has been counted since."""
        count, self.pending = self.pending, 0
        if count:
            self._counter.inc(count)  # type: ignore[attr-defined]
