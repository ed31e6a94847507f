"""Who is there when, by what a scenario file says: so that a file that asks for the impossible is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from batonpass.simulate.staged.model import Act, Step

_GOES = frozenset({Act.LEAVE, Act.CRASH, Act.RESTART, Act.DRAIN})
_COMES = frozenset({Act.JOIN, Act.RETURN})


class Presence:
    """Follows the members of a file through its timeline. A member that drains has gone as far as this is concerned."""

    def __init__(self, present: Iterable[str]) -> None:
        self._present = list(present)
        self._steps: list[Step] = []

    def expect(self, steps: Iterable[tuple[str, Step]]) -> None:
        """Take note of what happens."""
        self._steps += [step for _, step in steps]

    def up(self, at_ms: int | None) -> list[str]:
        """Return who is there at an instant, by what is known so far; None: after all of that."""
        there = dict.fromkeys(self._present)
        for step in sorted(self._steps, key=lambda one: one.at_ms):
            if at_ms is not None and step.at_ms > at_ms:
                break
            if step.act in _GOES:
                there.pop(step.worker, None)
            elif step.act in _COMES:
                there[step.worker] = None
        return list(there)

    def faults(self, steps: Sequence[tuple[str, Step]]) -> list[tuple[str, str]]:
        """Return the steps that cannot be: of somebody who is not there, or the coming of somebody who is."""
        there = set(self._present)
        found = []
        for path, step in sorted(steps, key=lambda one: one[1].at_ms):
            at = f"{step.at_ms / 1_000:g}s"
            if step.act in _GOES:
                if step.worker not in there:
                    found.append((path, f"member {step.worker!r} is not there at {at}"))
                there.discard(step.worker)
            elif step.act in _COMES:
                if step.worker in there:
                    found.append((path, f"member {step.worker!r} is there already at {at}"))
                there.add(step.worker)
        return found
