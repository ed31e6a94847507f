"""What a person reads first in the report: what was found, in the order in which to work on it, and what is over."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from enum import IntEnum
from operator import itemgetter
from shlex import quote
from typing import Any, Final

from batonpass.audit.findings import RANK, STILL, AuditResult, Finding, Severity, ordered, untraced
from batonpass.audit.plan import HOUR_MS
from batonpass.audit_words import amount, listed
from batonpass.core.state.durations import duration
from batonpass.laws import MEANINGS, NOTICES, TITLES, Meaning, meaning_of

PLACES_NAMED: Final = 3
"""Up to how many places are named where something was found."""

CAUSES_SHOWN: Final = 20
"""How many causes of one law have a card; the database has all findings."""

ALIKE_SHOWN: Final = 20
"""How many findings are listed in a card."""


class Standing(IntEnum):
    """Whether something was over at the end of what was read; the worse has the higher number."""

    OVER = 0
    UNKNOWN = 1
    STILL_SO = 2

    @property
    def words(self) -> str:
        """How it is told."""
        return ("over", "not known", "not over")[self]


def clock(at_ms: int, day: date | None = None) -> str:
    """Return the time of day of an instant, in UTC, with its date where it is before ``day``."""
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    before = f"{at:%Y-%m-%d} " if day is not None and at.date() < day else ""
    return f"{before}{at:%H:%M:%S}" + (f".{at.microsecond // 1_000:03}" if at.microsecond else "")


def cause_of(one: Finding) -> str:
    """Return what findings of one cause have in common: their sentence without numbers, tasks and members."""
    said = one.detail
    for name in sorted({one.member or "", one.task or ""} - {""}, key=len, reverse=True):
        said = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "0", said)
    # A word with a digit is a number, a time, a task or a member, mostly another one than the finding is about.
    return re.sub(r"[^\s,;:()]*\d[^\s,;()]*", "0", said)


def commands_of(one: Finding, day: date) -> list[str]:
    """Return the commands to begin with, for the group and task of a day's finding; the last says whether it goes on.

    Rows that are wrong are found again where they were, by the audit of the same day.
    """
    if one.law == "what-if-incomplete":
        return []
    group, when = quote(one.group), day if one.law == "L2" else "today"
    status, members = "batonpass db status", f"batonpass members {group}"
    explain = f"batonpass explain {group}" + (f" {quote(one.task)}" if one.task else "")
    of_law = {
        "L1": [members, explain],
        "L2": [status],
        "L3": [status, explain],
        "L4": [status, explain],
        "stuck-task": [explain, members],
        "L10": [],
    }
    return [*of_law.get(one.law, [explain]), f"batonpass audit --day {when} --group {group} --no-what-if"]


def to_begin_with(found: Sequence[Mapping[str, Any]]) -> str:
    """Return what to do first, what at the same time, and what to do with the commands while no coordinator runs."""
    if not (found and found[0]["cards"][0]["commands"]):
        return ""
    act, look = found[0]["todo"].partition(". ")[0].removesuffix("."), f"`{found[0]['cards'][0]['commands'][0]}`"
    said = f"{act}; look first: {look}." if act else f"Look with {look}."
    down = [card for one in found[1:] if one["severity"] == "down" for card in one["cards"]]
    waiting = [f"{one['group']}: `{one['commands'][0]}`" for one in down if one["standing"] is Standing.STILL_SO]
    if waiting:
        said += f" At the same time, {'; '.join(waiting[:PLACES_NAMED])} (no members? Start workers)."
    rows_are_wrong = any(one["law"] == "L2" for one in found)
    start = "Start no coordinator before L2 is settled" if rows_are_wrong else "If no coordinator runs, start one"
    return f"{said} {start}; while none runs, only `batonpass db status` and `batonpass audit` answer."


def all_over(found: Sequence[Mapping[str, Any]]) -> str:
    """Return whether all that asks for something to be done is over, as far as the log of the day tells."""
    work = [one for one in found if one["meaning"].todo] or found
    standing = Counter(one["standing"] for one in work)
    worst = max(standing, default=Standing.OVER)
    if worst is Standing.OVER:
        return "Yes, as far as the log of the day tells."
    said = ", ".join(f"{count} {one.words}" for one, count in sorted(standing.items(), reverse=True))
    return f"{said}: the last command of each tells." if worst is Standing.UNKNOWN else f"{said}."


class Morning:
    """What was found on a day, in words.

    Attributes:
        end_ms: until when the day was read.
    """

    def __init__(self, result: AuditResult) -> None:
        self._result = result
        midnight = datetime.combine(result.day + timedelta(days=1), time(), UTC)
        self.end_ms = int(midnight.timestamp() * 1_000) if result.so_far_ms is None else result.so_far_ms
        self._wrong = frozenset(one.group for one in result.findings if one.law == "L2")
        fatal = {(one.group, one.law) for one in result.findings if one.severity is Severity.FATAL}
        self._laws = Counter(group for group, _ in fatal)

    def notes(self) -> list[str]:
        """Return how far the audit could look, a sentence each."""
        said, result = [], self._result
        if unread := sorted(result.unread):
            which = f" ({listed(unread)})" if len(unread) <= PLACES_NAMED else ""
            verb = "is" if len(unread) == 1 else "are"
            said.append(f"{amount(len(unread), 'group')}{which} could not be read whole and {verb} in no figure.")
        if result.decisions_replayed:
            differing = f"{result.decisions_differing:,} of them came out differently"
            same = differing if result.decisions_differing else "every one of them came out the same"
            stops = [one.detail for one in result.findings if one.law == "replay-incomplete"]
            if stops:
                same += f"; {stops[0]}" if len(stops) == 1 else f"; it stopped at {len(stops)} places"
            said.append(f"The audit made {result.replayed} again, with the same code: {same}.")
        return [*said, *untraced(result)]

    def not_run(self) -> str:
        """Return which tasks nobody ran for an hour or more, or still not; empty without any."""
        of_tasks = [one for one in self._result.findings if one.law == "stuck-task" and one.at]
        long = [
            (self._lasted_ms(one), one) for one in of_tasks if self._lasted_ms(one) >= HOUR_MS or STILL in one.detail
        ]
        if not long:
            return ""
        longest_ms, one = max(long, key=itemgetter(0))
        least = "at least " if self._result.left_out.get("stuck-task") else ""
        which = f"{one.task} of {one.group}" if len(long) == 1 and not least else f"{least}{amount(len(long), 'task')}"
        return f"Nobody ran {which} for {'up to ' if len(long) > 1 else ''}{duration(longest_ms)}."

    def found(self) -> list[dict[str, Any]]:
        """Return what is shown of each law and notice that has findings, in the order in which to work on them.

        What means something else for the data, or has to be answered otherwise, stands apart, behind the worse.
        """
        kinds: dict[tuple[Severity, str, Meaning], dict[tuple[str, str], list[Finding]]] = {}
        causes: dict[object, str] = {}
        for one in ordered(self._result.findings):
            is_work = one.severity is Severity.FATAL or one.law in NOTICES
            meaning = meaning_of(one.law, one.detail) if is_work else Meaning(TITLES[one.law], "", "")
            by_cause = kinds.setdefault((one.severity, one.law, meaning), {})
            cause = causes.setdefault(_fault_of(one), cause_of(one))
            by_cause.setdefault((one.group, cause), []).append(one)
        left_out, made = dict(self._result.left_out), []
        for (severity, law, meaning), by_cause in sorted(kinds.items(), key=_place):
            some = [one for of_cause in by_cause.values() for one in of_cause]
            cards = sorted((self._card(of_cause) for of_cause in by_cause.values()), key=_worst)
            states = self._states(some, [one["group"] for one in cards])
            made.append(
                {
                    "severity": "down" if law == "stuck-task" else severity.value,
                    "law": law,
                    "meaning": meaning,
                    "todo": _todo(meaning, cards, states),
                    "left_out": (more := left_out.pop(law, 0)),
                    "count": len(some) + more,
                    "groups": amount(len({one.group for one in some}), "group"),
                    "where": _where(cards),
                    "standing": max(standing for _, standing, _ in states),
                    "states": states,
                    "since": max(one["since"] or "" for one in cards),
                    "cards": cards[:CAUSES_SHOWN],
                    "causes_more": max(0, len(cards) - CAUSES_SHOWN),
                }
            )
        return made

    def _card(self, some: Sequence[Finding]) -> dict[str, Any]:
        first, known = some[0], self._result.before.known
        others, names = len({one.task for one in some}) - 1, self._result.names.get(first.group, {})
        faults: dict[object, list[Finding]] = {}
        for one in sorted(some, key=lambda one: tuple(one.times[:1])):
            faults.setdefault(_fault_of(one), []).append(one)
        who = {_who(of_fault, names) for of_fault in faults.values()}
        older = dict.fromkeys(older for one in some if one.is_urgent for older in one.others)
        return {
            "group": first.group,
            "task": f"{first.task}{f' and {others} more' if others else ''}" if first.task else None,
            "tasks": others + 1,
            "who": who.pop() if len(who) == 1 else None,
            "older": {names.get(one, one): f"batonpass evict {quote(first.group)} {quote(one)}" for one in older},
            "count": len(some),
            "laws": self._laws[first.group],
            "since": None if known is None else "known" if (first.group, first.law) in known else "new",
            "standing": (state := self._when(some))[0],
            "states": [("", *state)],
            "lasted_ms": max(map(self._lasted_ms, some)),
            "detail": first.detail,
            "commands": commands_of(first, self._result.day),
            "findings": [(one, _who([one], names)) for one in some[:ALIKE_SHOWN]],
            "more": max(0, len(some) - ALIKE_SHOWN),
        }

    def _states(self, some: Sequence[Finding], groups: Iterable[str]) -> list[tuple[str, Standing, str]]:
        """Return whether findings of one law are over, and when they were so: of each of a few groups that differ."""
        few = names if len(names := dict.fromkeys(groups)) <= PLACES_NAMED else ()
        states = {group: self._when([one for one in some if one.group == group]) for group in few}
        if len(set(states.values())) > 1:
            return [(group, *state) for group, state in states.items()]
        return [("", *self._when(some))]

    def _when(self, some: Sequence[Finding]) -> tuple[Standing, str]:
        """Return whether findings of one law are over, and when they were so, in words."""
        standing = self._over(some)
        times = [clock(at // 1_000 * 1_000, self._result.day) for at in sorted(at for one in some for at in one.times)]
        if not times or some[0].law == "L2":
            return standing, ""
        if standing is Standing.STILL_SO:
            return standing, f"since {times[0]}"
        return standing, " to ".join(dict.fromkeys((times[0], times[-1])))

    def _over(self, some: Sequence[Finding]) -> Standing:
        """Return whether findings of one law are over.

        Rows that are wrong stay so. Where rows are wrong, or not all was read or kept, the last time that is known may
        not be the last, but for what has an end.
        """
        law = some[0].law
        last_ms = max((at for one in some for at in one.at), default=0)
        if law == "L2" or last_ms >= self.end_ms or any(STILL in one.detail for one in some):
            return Standing.STILL_SO
        unsure = self._result.unread | self._wrong
        known = all(one.at and (one.is_over or one.group not in unsure) for one in some)
        return Standing.OVER if known and not self._result.left_out.get(law) else Standing.UNKNOWN

    def _lasted_ms(self, one: Finding) -> int:
        """Return for how long nobody ran a task, as far as it is of the day; 0 for any other finding."""
        if one.law != "stuck-task" or not one.at:
            return 0
        return (self.end_ms if STILL in one.detail else one.at[-1]) - one.at[0]


def _fault_of(one: Finding) -> object:
    """Return what findings of one fault have in common: overlaps with one and the same grant of the oldest owner."""
    return (one.group, one.task, one.sequences[:1]) if one.law == "L1" and one.others else one


def _who(some: Sequence[Finding], names: Mapping[str, str]) -> str:
    """Return the member that a finding is about, and from whom it got the task; of one fault all owners, in order."""
    first = some[0]
    if not first.others:
        return first.member or ""
    before = listed([names.get(one, one) for one in first.others])
    return f"{before} {'with' if first.law == 'L1' else 'to'} {', then '.join(one.member or '' for one in some)}"


def _todo(meaning: Meaning, cards: Sequence[Mapping[str, Any]], states: Sequence[tuple[str, Standing, str]]) -> str:
    """Return what to do now: of two owners, have the older one stop, and look what was done in that time."""
    if meaning is not MEANINGS["L1"]:
        return meaning.todo
    (_, _, when), *more = states
    checked = meaning.todo if more or not when else f"{meaning.todo.removesuffix('.')} ({when})."
    urgent = [one for one in cards if one["older"]]
    if not urgent:
        is_over = all(standing is Standing.OVER for _, standing, _ in states)
        return checked if is_over else f"{checked} If it is not over, end the older owner, which is named first."
    if [(one["tasks"], len(one["older"])) for one in urgent] != [(1, 1)]:
        return f"End the older owners, which are named first (`batonpass evict` if you cannot reach them). {checked}"
    ((name, evict),) = urgent[0]["older"].items()
    return f"End {name}, the older owner of {urgent[0]['task']} (`{evict}` if you cannot reach it). {checked}"


_Kind = tuple[tuple[Severity, str, Meaning], Mapping[Any, Sequence[Finding]]]


def _place(kind: _Kind) -> tuple[bool, bool, int, bool, bool]:
    """Return the sort key of what was found: what asks for something to be done comes first."""
    (severity, law, meaning), by_cause = kind
    is_urgent = any(one.is_urgent for of_cause in by_cause.values() for one in of_cause)
    return not is_urgent, not meaning.todo, RANK[law], meaning.title != TITLES[law], severity is not Severity.FATAL


def _worst(card: Mapping[str, Any]) -> tuple[int, int, int, int, str]:
    return -card["standing"], -card["lasted_ms"], -card["laws"], -card["count"], card["group"]


def _where(cards: Sequence[Mapping[str, Any]]) -> str:
    """Return where something was found, the worst first."""

    def place(one: Mapping[str, Any]) -> str:
        said = [amount(one["tasks"], "task")] if one["tasks"] > 1 else []
        which = f"{one['group']}" if said or not one["task"] else f"{one['task']} of {one['group']}"
        if one["lasted_ms"]:
            said.append(duration(one["lasted_ms"]))
        where = f"{which} ({', '.join(said)})" if said else which
        # Who had a task before nobody ran it is not where that was.
        return f"{where}: {one['who']}" if one["who"] and not one["lasted_ms"] else where

    places = list(dict.fromkeys(map(place, cards)))
    more = len(places) - PLACES_NAMED
    return "; ".join([*places[:PLACES_NAMED], *([f"{more} more"] if more > 0 else [])])
