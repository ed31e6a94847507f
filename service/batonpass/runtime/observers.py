"""Combines observers, and tracks whether the store answers."""

import time
from collections.abc import Callable
from typing import Final

from batonpass.core.state.ids import GroupId
from batonpass.runtime.ports import Commit, Observer

AWAY_S: Final = 5.0
"""For how long a failure of the store counts, if nothing has been committed since."""


_TOLD: Final = [name for name in vars(Observer) if not name.startswith("_")]


class Observers(Observer):
    """Passes on all that an observer is told, to several observers in order."""

    def __init__(self, *observers: Observer) -> None:
        self._tell: dict[str, list[Callable[..., None]]] = {name: [] for name in _TOLD}
        for observer in observers:
            self.add(observer)

    def add(self, observer: Observer) -> None:
        """Call one more observer, after the others, of all that it does something about."""
        for name, tell in self._tell.items():
            if getattr(type(observer), name) is not getattr(Observer, name):
                tell.append(getattr(observer, name))


def _told_to_each(name: str) -> Callable[..., None]:
    def told(self: Observers, *what: object) -> None:
        for tell in self._tell[name]:
            tell(*what)

    return told


for _name in _TOLD:
    setattr(Observers, _name, _told_to_each(_name))


class CommitWatch(Observer):
    """Tracks whether the store answers."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._failed_at: float | None = None
        self._failure = ""

    def away(self) -> str:
        """Return why the store counts as away now; "" when it does not."""
        if self._failed_at is None or self._monotonic() - self._failed_at > AWAY_S:
            return ""
        return f"the store is away: {self._failure}"

    def committed(self, commit: Commit, append_ms: float) -> None:  # noqa: ARG002 - that there was one is enough
        self._failed_at = None

    def store_failed(self, group_id: GroupId, reason: str) -> None:  # noqa: ARG002 - one group is like another here
        self._failed_at, self._failure = self._monotonic(), reason
