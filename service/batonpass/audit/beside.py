"""What stands beside the records, held against what the records come to: histories of tasks, and generations.

The rows are made anew by the code that a coordinator makes them with. What hangs on more than records (why something
was done, and the instant) is compared where the decision was made again from its trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from batonpass.audit.differing import differences, in_words
from batonpass.codec.changes import Change
from batonpass.codec.generations import Generation, Moved


class ShownChange(NamedTuple):
    """A change as readers are shown it, with the version that it stands under."""

    version: int
    change: Change


class ShownGeneration(NamedTuple):
    """A generation as readers are shown it, with the version that it stands under."""

    version: int
    generation: Generation


class Fault(NamedTuple):
    """What is wrong with one row; ``logged`` is what it should be, if anything."""

    detail: str
    task: str | None = None
    member: str | None = None
    logged: ShownChange | None = None


changes_decoder: Final = msgspec.json.Decoder(tuple[Change, ...])
generation_decoder: Final = msgspec.json.Decoder(Generation)

SHOWN, LOGGED = "as shown", "by the log"


def wrong_changes(shown: Sequence[ShownChange], logged: Sequence[ShownChange], *, is_replayed: bool) -> Iterator[Fault]:
    """Yield what is wrong with the changes that are shown of one decision.

    Their order among themselves is no matter: of a member that goes it is that in which its tasks are found.
    """
    ours, theirs = (Counter(comparable(one, is_replayed=is_replayed) for one in rows) for rows in (logged, shown))
    lacking, odd = list((ours - theirs).elements()), list((theirs - ours).elements())
    for is_same in _LIKENESSES:
        for one in list(lacking):
            other = next((row for row in odd if is_same(row.change, one.change)), None)
            if other is not None:
                lacking.remove(one)
                odd.remove(other)
                what = in_words(differences(_flat(*other), _flat(*one)), SHOWN, LOGGED)
                yield Fault(
                    f"its history is not what was logged ({_told(one)}): {what}",
                    one.change.task,
                    one.change.member,
                    one,
                )
    for one in lacking:
        yield Fault(f"its history lacks what was logged: {_told(one)}", one.change.task, one.change.member, one)
    for one in odd:
        yield Fault(f"its history has what was not logged: {_told(one)}", one.change.task, one.change.member)


_LIKENESSES: Final[tuple[Callable[[Change, Change], bool], ...]] = (
    lambda a, b: (a.task, a.member, a.kind) == (b.task, b.member, b.kind),
    lambda a, b: (a.task, a.member) == (b.task, b.member),
    lambda a, b: (a.task, a.kind) == (b.task, b.kind),
    lambda a, b: (a.member, a.kind) == (b.member, b.kind),
)
"""Which of two rows that differ are taken for the same one: first those that have most in common."""


def comparable(row: ShownChange, *, is_replayed: bool) -> ShownChange:
    """Return what is compared of a change: what hangs on the records alone, unless its decision was made again."""
    if is_replayed:
        return row
    # Who goes has a cause of its own.
    why = row.change.why if row.change.kind == "gone" else ""
    return row._replace(change=row.change._replace(why=why, at_ms=0))


def _flat(version: int, row: Change | Generation) -> dict[str, object]:
    return {"version": version, **row._asdict()}


def _told(row: ShownChange) -> str:
    one = row.change
    role = f" {one.role}" if one.kind == "granted" else f" {one.state}" if one.state else ""
    token = f" under token {one.token}" if one.token else ""
    return (
        f"{one.kind}{role} to {one.member}{token}"
        if one.kind == "granted"
        else f"{one.kind}{role} by {one.member}{token}"
    )


def wrong_generation(shown: ShownGeneration | None, logged: ShownGeneration, *, is_replayed: bool) -> Fault | None:
    """Return what is wrong with a generation that the log has."""
    number = logged.generation.number
    if shown is None:
        return Fault(f"generation {number} is in the log, and not among the generations")
    ours, theirs = (_comparable(one, is_replayed=is_replayed) for one in (logged, shown))
    if ours == theirs:
        return None
    what = in_words(differences(_flat(*theirs), _flat(*ours)), SHOWN, LOGGED)
    return Fault(f"generation {number} is not what was logged: {what}", _task_of(theirs.generation, ours.generation))


def _comparable(row: ShownGeneration, *, is_replayed: bool) -> ShownGeneration:
    one = row.generation._replace(decide_ms=0.0)
    if not is_replayed:
        moved = tuple(move._replace(why="") for move in one.moved)
        one = one._replace(at_ms=0, moved=moved, reasons=())
    return row._replace(generation=one)


def _task_of(one: Generation, other: Generation) -> str | None:
    """Return the task of the first line in which two generations differ, where there is one."""
    lines: Iterable[tuple[Moved, Moved]] = zip(one.moved, other.moved, strict=False)
    return next((there.task for here, there in lines if here != there), None)
