"""How many of its made-up cases a test tries: two in five in every run, all of them in `make soak`.

They follow from fixed seeds, so that every run tries the same ones.
"""

import os

ALL = os.environ.get("BATONPASS_CASES") == "all"


def cases(number: int) -> int:
    """Return how many of so many cases are tried."""
    return number if ALL else -(-number * 2 // 5)
