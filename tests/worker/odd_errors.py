"""Errors of a worker's own code that are hard to say anything of."""

from dataclasses import dataclass


class Wordless(Exception):
    """An error that cannot be put into words."""

    def __str__(self) -> str:
        """Fail as well."""
        return str(self.args[1])


@dataclass(frozen=True)
class Frozen(Exception):
    """An error that nothing can be added to, nor taken from."""

    customer: int
