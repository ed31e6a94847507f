"""A task's ownership timeline, from the changes of the task as they were committed. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from batonpass.codec.changes import Change
from batonpass.core.ids import MemberId
from batonpass.core.model import ActiveState, Role


@dataclass(slots=True)
class Run:
    """One member's time with a task, from its grant to its end. Instants are milliseconds; None: not, or not known.

    ``stopped_ms`` is since when that member was known not to run it, ``ended`` why: ``revoked``, the cause for which
    the member went, or the state that it fell back to; "" while it goes on. ``gap_ms`` is how long nobody ran the task
    before this run, by what is known: None where there was no run before, or it is not among the changes.
    """

    member: MemberId
    token: int
    granted_ms: int | None
    why: str = ""
    warm: bool | None = None
    generation: int = 0
    running_ms: int | None = None
    stopped_ms: int | None = None
    ended: str = ""
    gap_ms: int | None = None


def runs_of(changes: Iterable[Change]) -> list[Run]:
    """Return the runs of a task from its changes, which come in the order in which they were committed.

    Where the first changes are missing, the first run may lack its beginning.
    """
    timeline = _Timeline()
    for change in changes:
        timeline.take(change)
    return timeline.runs


class _Timeline:
    """Follows the changes of one task."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._stopped_ms: int | None = None

    def take(self, change: Change) -> None:
        """Take the next change."""
        match change.kind:
            case "granted" | "adopted" if change.role == Role.ACTIVE:
                self._begin(change)
            case "granted" | "revoked" if change.role_before == Role.ACTIVE:
                run = self._present(change.member)
                run.ended = run.ended or "revoked"
            case "released":
                self._released(change)
            case "gone" if change.role_before == Role.ACTIVE:
                self._end(self._present(change.member), change.at_ms, change.why or "gone")
            case "reported":
                self._reported(change)
            case _:
                pass

    def _begin(self, change: Change) -> None:
        last = self.runs[-1] if self.runs else None
        if last is not None and last.ended and last.stopped_ms is None and last.member != change.member:
            # Nobody waited for the word of a suspected member whose outputs are fenced.
            self._end(last, change.at_ms, last.ended)
        run = Run(change.member, change.token, change.at_ms, change.why, change.warm, change.generation)
        self.runs.append(run)
        if change.kind == "adopted":
            self._runs(run, change.at_ms)

    def _present(self, member: MemberId) -> Run:
        """Return the last run of a member; one that began before the first change is made up."""
        for run in reversed(self.runs):
            if run.member == member:
                return run
        run = Run(member, 0, None)
        self.runs.append(run)
        return run

    def _released(self, change: Change) -> None:
        """End a run whose member confirmed, or whose lease ran out: until then it may have gone on."""
        run = next((one for one in reversed(self.runs) if one.member == change.member), None)
        if run is not None and run.ended and (run.stopped_ms is None or run.ended not in _FINAL):
            self._end(run, change.at_ms, run.ended)

    def _end(self, run: Run, at_ms: int, ended: str) -> None:
        if run.ended in _FELL_BACK and run.stopped_ms is not None:
            return
        run.stopped_ms, run.ended = at_ms, str(ended)
        if run.running_ms is not None or run.granted_ms is None:
            self._stopped_ms = at_ms

    def _reported(self, change: Change) -> None:
        run = self._present(change.member)
        if change.state == ActiveState.RUNNING:
            if run.stopped_ms is not None:
                run = Run(change.member, run.token, run.granted_ms, run.why, run.warm, run.generation)
                self.runs.append(run)
            if run.running_ms is None:
                self._runs(run, change.at_ms)
        elif run.running_ms is not None and run.stopped_ms is None:
            self._end(run, change.at_ms, change.state)

    def _runs(self, run: Run, at_ms: int) -> None:
        run.running_ms = at_ms
        if self._stopped_ms is not None:
            run.gap_ms = max(0, at_ms - self._stopped_ms)
        self._stopped_ms = None


_FELL_BACK = frozenset(state.value for state in (ActiveState.RESTORING, ActiveState.FAILED, ActiveState.LOST))
_FINAL = _FELL_BACK | {"revoked"}
"""After these, a member may confirm once more: that it gave up the copy which it had kept."""
