"""Compares what was logged with what comes out now, and puts what differs into words.

There are three comparisons: of the records of a decision *then* and *now*; of its task history and of its generation
*as shown* to readers with what these should be *by the log*. Each field that differs is named with both values.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple

from batonpass.codec.changes import Change
from batonpass.codec.generations import Generation
from batonpass.codec.records import RECORD_TYPES
from batonpass.core.state.records import Record

_KINDS: Final = {record_type: kind for kind, record_type in RECORD_TYPES.items()}

SHOWN, LOGGED = "as shown", "by the log"

RECORDS_MOST, KINDS_MOST, FIELDS_MOST, LETTERS_MOST = 2, 5, 3, 60
"""So many records, kinds of records, fields, and letters of a value are written out; the rest is counted or cut."""
NOTHING: Final = "nothing"


class ChangeRow(NamedTuple):
    """One line of a decision's task history, with the version that the decision was made at."""

    version: int
    change: Change


class GenerationRow(NamedTuple):
    """A generation, with the version that its decision was made at."""

    version: int
    generation: Generation


class Mismatch(NamedTuple):
    """A line of a task history that is not as the log has it."""

    detail: str
    task: str
    member: str


def records_in_words(then: Sequence[Record], now: Sequence[Record]) -> tuple[str, list[int]]:
    """Return in words how the records of two decisions differ, and at which places of the first one."""
    if len(then) == len(now) and all(type(one) is type(other) for one, other in zip(then, now, strict=True)):
        places = [place for place, (one, other) in enumerate(zip(then, now, strict=True)) if one != other]
        words = [f"{_KINDS[type(then[place])]}: {in_words(then[place], now[place], 'then', 'now')}" for place in places]
        more = len(words) - RECORDS_MOST
        return "; ".join(words[:RECORDS_MOST]) + (f"; and {more} more records" if more > 0 else ""), places
    more_now = [_KINDS[type(one)] for one in now if one not in then]
    places = [place for place, one in enumerate(then) if one not in now]
    gone = ", ".join(_KINDS[type(then[place])] for place in places[:KINDS_MOST])
    if more_now or places:
        return f"{gone or 'nothing'} then, {', '.join(more_now[:KINDS_MOST]) or 'nothing'} now", places
    return "the same records in another order", []


def wrong_history(shown: Sequence[ChangeRow], logged: Sequence[ChangeRow], *, exactly: bool) -> Iterator[Mismatch]:
    """Yield what is wrong with the task history that is shown of one decision.

    The order of its rows does not matter: when a member goes, it is the order in which its tasks are found.
    ``exactly``: reasons and times are compared, too.
    """
    ours, theirs = ([_comparable_change(one, exactly=exactly) for one in rows] for rows in (logged, shown))
    lacking, odd = (
        list((Counter(ours) - Counter(theirs)).elements()),
        list((Counter(theirs) - Counter(ours)).elements()),
    )
    if not exactly:
        # Earlier versions do not tell of these.
        lacking = [one for one in lacking if one.change.kind != "waived"]
    for is_same in _LIKENESSES:
        for one in list(lacking):
            other = next((row for row in odd if is_same(row.change, one.change)), None)
            if other is not None:
                lacking.remove(one)
                odd.remove(other)
                what = in_words(_flat(*other), _flat(*one), SHOWN, LOGGED)
                detail = f"its history is not what was logged ({_change_in_words(one.change)}): {what}"
                yield Mismatch(detail, one.change.task, one.change.member)
    for rows, what in ((lacking, "lacks what was logged"), (odd, "has what was not logged")):
        for one in rows:
            detail = f"its history {what}: {_change_in_words(one.change)}"
            yield Mismatch(detail, one.change.task, one.change.member)


_LIKENESSES: Final[tuple[Callable[[Change, Change], bool], ...]] = (
    lambda a, b: (a.task, a.member, a.kind) == (b.task, b.member, b.kind),
    lambda a, b: (a.task, a.member) == (b.task, b.member),
    lambda a, b: (a.task, a.kind) == (b.task, b.kind),
    lambda a, b: (a.member, a.kind) == (b.member, b.kind),
)
"""By what two rows that differ are taken for the same one: first those that have most in common."""


def _comparable_change(row: ChangeRow, *, exactly: bool) -> ChangeRow:
    """Return what is compared of a change: unless ``exactly``, what follows from the records alone."""
    if exactly:
        return row
    # The cause for which a member goes is in the record.
    why = row.change.why if row.change.kind == "gone" else ""
    return row._replace(change=row.change._replace(why=why, at_ms=0))


def _change_in_words(change: Change) -> str:
    role = f" {change.role}" if change.kind == "granted" else f" {change.state}" if change.state else ""
    whose = f"to {change.member}" if change.kind == "granted" else f"by {change.member}"
    return f"{change.kind}{role} {whose}" + (f" under token {change.token}" if change.token else "")


def wrong_generation(shown: GenerationRow | None, logged: GenerationRow, *, exactly: bool) -> str | None:
    """Return what is wrong with a generation that the log has. ``exactly``: reasons and times are compared, too."""
    number = logged.generation.number
    if shown is None:
        return f"generation {number} is in the log, and not among the generations"
    ours, theirs = (_comparable_generation(one, exactly=exactly) for one in (logged, shown))
    if ours == theirs:
        return None
    what = in_words(_flat(*theirs), _flat(*ours), SHOWN, LOGGED)
    return f"generation {number} is not what was logged: {what}"


def _comparable_generation(row: GenerationRow, *, exactly: bool) -> GenerationRow:
    """Return what is compared of a generation: unless ``exactly``, what follows from the records alone."""
    one = row.generation._replace(decide_ms=0.0)
    if not exactly:
        moved = tuple(move._replace(why="") for move in one.moved)
        one = one._replace(at_ms=0, moved=moved, reasons=())
    return row._replace(generation=one)


def _flat(version: int, row: Change | Generation) -> dict[str, object]:
    return {"version": version, **row._asdict()}


def differences(here: object, there: object, path: str = "") -> Iterator[tuple[str, object, object]]:
    """Yield the paths of the innermost fields in which two values differ, in their order, each with both values."""
    if here == there:
        return
    if type(here) is type(there) and is_dataclass(here):
        for field in fields(here):
            yield from differences(getattr(here, field.name), getattr(there, field.name), _within(path, field.name))
    elif isinstance(here, tuple) and isinstance(there, tuple) and len(here) == len(there):
        names = getattr(here, "_fields", range(len(here)))
        for name, one, other in zip(names, here, there, strict=True):
            yield from differences(one, other, _within(path, name))
    elif isinstance(here, Mapping) and isinstance(there, Mapping):
        for name in dict.fromkeys([*here, *there]):
            yield from differences(here.get(name, NOTHING), there.get(name, NOTHING), _within(path, name))
    else:
        yield path, here, there


def _within(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def in_words(one: object, other: object, here: str, there: str) -> str:
    """Return the first few differences of two values in words; ``here`` and ``there`` name whose values they are."""
    every = list(differences(one, other))
    words = [f"{path} {_value(mine)} {here}, {_value(theirs)} {there}" for path, mine, theirs in every[:FIELDS_MOST]]
    more = len(every) - FIELDS_MOST
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")


def _value(value: Any) -> str:
    words = str(value) if isinstance(value, str | int | float | None) else repr(value)
    words = words or "empty"
    return words if len(words) <= LETTERS_MOST else f"{words[:LETTERS_MOST]}…"
