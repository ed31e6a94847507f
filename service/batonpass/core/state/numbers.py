"""How large the whole numbers from outside may be, and sums of them that are no larger.

Offsets, lags and sizes come from members, Kafka and files. Each alone fits into 64 bits, as Kafka, the solver of
placement and databases have them. A sum of them may not, so sums are made here.
"""

from collections.abc import Iterable
from typing import Final

WHOLE_MAX: Final = 2**63 - 1
"""The largest offset, lag, count, size or duration in milliseconds that is accepted, kept or said."""


def bounded_sum(numbers: Iterable[int]) -> int:
    """Return the sum of some numbers, at most ``WHOLE_MAX``: beyond it nothing is compared any more."""
    return min(sum(numbers), WHOLE_MAX)
