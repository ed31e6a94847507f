"""Derives a task's ownership timeline from its committed changes. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from batonpass.codec.changes import Change
from batonpass.core.state.ids import MemberId
from batonpass.core.state.model import REVOKED, SUSPECTED, UNSEEN_STOPS, ActiveState, Role


@dataclass(slots=True)
class Run:
    """One run of a task on a member, from its grant to its end. Instants are milliseconds; None: not yet, or unknown.

    ``stopped_ms`` is from when the member is known not to run the task. ``ended`` says why: ``revoked``, the cause for
    which the member is gone, or the state that the task fell back to; "" while the run goes on. ``gap_ms`` is how long
    no member ran the task before this run; None if no earlier run is among the changes. It is a lower bound if
    ``gap_is_lower_bound``: the last owner fell silent, and may have stopped before it was known to have. Then
    ``gap_at_most_ms`` counts from when it was last heard; None: that is not known.
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
    gap_is_lower_bound: bool = False
    gap_at_most_ms: int | None = None


def runs_of(changes: Iterable[Change]) -> list[Run]:
    """Return the runs of a task from its changes, given in the order in which they were committed.

    If the first changes are missing, the first run may lack its beginning.
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
        self._stop_was_seen = True
        self._heard_ms: int | None = None

    def take(self, change: Change) -> None:
        match change.kind:
            case "granted" | "adopted" if change.role == Role.ACTIVE:
                self._begin(change)
            case "granted" | "revoked" if change.role_before == Role.ACTIVE:
                run = self._present(change.member)
                run.ended = run.ended or REVOKED
            case "released":
                self._released(change)
            case "waived":
                self._end(self._present(change.member), change.at_ms, SUSPECTED)
                self._heard_ms = change.heard_ms
            case "gone":
                self._gone(change)
                self._heard_ms = change.heard_ms
            case "reported":
                self._reported(change)
            case _:
                pass

    def _begin(self, change: Change) -> None:
        last = self.runs[-1] if self.runs else None
        if last is not None and last.ended and last.stopped_ms is None and last.member != change.member:
            # The last owner was suspected and its outputs are fenced, so the coordinator did not wait for it.
            self._end(last, change.at_ms, SUSPECTED)
        run = Run(change.member, change.token, change.at_ms, change.why, change.warm, change.generation)
        self.runs.append(run)
        if change.kind == "adopted":
            self._runs(run, change.at_ms)

    def _present(self, member: MemberId) -> Run:
        """Return the last run of a member; if it began before the first change, make one up."""
        for run in reversed(self.runs):
            if run.member == member:
                return run
        run = Run(member, 0, None)
        self.runs.append(run)
        return run

    def _gone(self, change: Change) -> None:
        """End the run of a member that is gone, also one that was revoked and that the member had not confirmed."""
        last = self.runs[-1] if self.runs else None
        is_unconfirmed = last is not None and last.member == change.member and last.ended and last.stopped_ms is None
        if change.role_before == Role.ACTIVE or is_unconfirmed:
            self._end(self._present(change.member), change.at_ms, change.why or "gone")

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
            self._stopped_ms, self._stop_was_seen = at_ms, ended not in UNSEEN_STOPS

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
            run.gap_is_lower_bound = not self._stop_was_seen
            if run.gap_is_lower_bound and self._heard_ms is not None:
                run.gap_at_most_ms = max(run.gap_ms, at_ms - self._heard_ms)
        self._stopped_ms = None


_FELL_BACK = frozenset(state.value for state in (ActiveState.RESTORING, ActiveState.FAILED, ActiveState.LOST))
_FINAL = _FELL_BACK | {REVOKED, SUSPECTED}
"""After these, a member may confirm again: that it gave up the copy it had kept. That does not move the end."""
