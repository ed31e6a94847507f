"""How many of its cases a test tries in every run; `make soak` tries all of them.

Made-up cases follow from fixed seeds, so that every run tries the same one in four.
"""

import os

ALL = os.environ.get("BATONPASS_CASES") == "all"


def cases(number: int) -> int:
    """Return how many of so many made-up cases are tried."""
    return number if ALL else -(-number // 4)
