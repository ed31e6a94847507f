"""What the program reads from its environment, by one rule: blanks and line breaks around a value do not count.

A secret that was made from a file often ends with a newline. A variable that is empty counts as not set.
"""

import os


def variable(name: str) -> str | None:
    """Return the value of an environment variable; None if it is not set, or empty."""
    return os.environ.get(name, "").strip() or None
