"""A witness beside the coordinators: the tasks themselves report to it when they begin to process and when they end."""

import time
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Witness:
    """Sees every run of every active, wherever it runs.

    Attributes:
        faults: what contradicts the laws: two runs of a task at once (L1), a token that did not grow.
        runs: how often each task has begun to process.
        gaps: for each task that changed hands, how many seconds nobody processed it.
    """

    faults: list[str] = field(default_factory=list)
    runs: Counter[str] = field(default_factory=Counter)
    gaps: list[float] = field(default_factory=list)
    _running: dict[str, str] = field(default_factory=dict)
    _tokens: dict[str, tuple[int, str]] = field(default_factory=dict)
    _ended: dict[str, tuple[float, str]] = field(default_factory=dict)

    def begins(self, task: str, who: str, token: int) -> None:
        """See a task begin to process."""
        if task in self._running:
            self.faults.append(f"L1: {who} began {task} (token {token}) while {self._running[task]} runs it")
        highest, holder = self._tokens.get(task, (0, ""))
        if token < highest or (token == highest and who != holder):
            self.faults.append(f"L1: {who} began {task} under token {token}; {holder} had {highest}")
        if task in self._ended and self._ended[task][1] != who:
            self.gaps.append(time.monotonic() - self._ended[task][0])
        self._tokens[task] = max((token, who), (highest, holder))
        self._running[task] = who
        self.runs[task] += 1

    def ends(self, task: str, who: str) -> None:
        """See a task cease to process."""
        if self._running.get(task) == who:
            del self._running[task]
            self._ended[task] = time.monotonic(), who

    @property
    def running(self) -> dict[str, str]:
        """Who processes which task now."""
        return dict(self._running)
