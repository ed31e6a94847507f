"""Counters and histograms of what happens thousands of times a second, as plain numbers that a scrape shows.

The library's own take a lock for each number and look for a bucket one by one: five of them are a tenth of what a
heartbeat costs. Everything here is counted on the event loop's thread; a scrape in another one may miss the last count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric


class Tally(Collector):
    """A counter: ``counts`` holds it by the values of its labels, for whoever counts to add to."""

    def __init__(self, name: str, meaning: str, *labels: str, registry: CollectorRegistry) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()
        self._described = name, meaning, labels
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Show what was counted."""
        name, meaning, labels = self._described
        family = CounterMetricFamily(name, meaning, labels=labels)
        for values, count in list(self.counts.items()):
            family.add_metric(values, count)
        yield family


class Spread(Collector):
    """A histogram with one label."""

    def __init__(
        self, name: str, meaning: str, bounds: Sequence[float], label: str, *, registry: CollectorRegistry
    ) -> None:
        self._described = name, meaning, [label]
        self._bounds = bounds
        self._series: dict[str, tuple[list[int], list[float]]] = {}
        registry.register(self)

    def observe(self, value: float, label: str) -> None:
        """Count a value in the first bucket whose bound it does not exceed."""
        found = self._series.get(label)
        if found is None:
            found = self._series[label] = [0] * (len(self._bounds) + 1), [0.0]
        buckets, total = found
        buckets[bisect_left(self._bounds, value)] += 1
        total[0] += value

    def collect(self) -> Iterator[Metric]:
        """Show every series, with buckets that add up."""
        name, meaning, labels = self._described
        family = HistogramMetricFamily(name, meaning, labels=labels)
        ends = [*map(floatToGoString, self._bounds), "+Inf"]
        for label, (buckets, total) in list(self._series.items()):
            family.add_metric([label], list(zip(ends, accumulate(list(buckets)), strict=True)), total[0])
        yield family
