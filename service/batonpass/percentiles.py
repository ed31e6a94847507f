"""Percentiles by nearest rank, the same everywhere: each is a value that occurred."""

from collections.abc import Sequence
from typing import TypeVar

Value = TypeVar("Value")


def nearest_rank(ordered: Sequence[Value], percent: int) -> Value:
    """Return the smallest of the ordered values that at least ``percent`` % of them do not exceed."""
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)]
