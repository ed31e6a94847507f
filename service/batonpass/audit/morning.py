"""What a person reads first in the report: what was found, in the order in which to work on it, and what is over."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from enum import IntEnum
from operator import itemgetter
from shlex import quote
from typing import Any, Final

from batonpass.audit.findings import RANK, STILL, AuditResult, Finding, Severity, ordered, untraced
from batonpass.audit.plan import HOUR_MS
from batonpass.audit_words import amount, listed
from batonpass.core.state.durations import duration
from batonpass.laws import NOTICES, TITLES, Meaning, meaning_of

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
    said = list(of_law.get(one.law, [explain]))
    said += [f"batonpass evict {group} {quote(older)}" for older in one.others if one.is_urgent]
    return [*said, f"batonpass audit --day {when} --group {group} --no-what-if"]


def without_coordinator(found: Sequence[Mapping[str, Any]]) -> str:
    """Return what to do with the commands while no coordinator runs."""
    rows_are_wrong = any(one["law"] == "L2" for one in found)
    start = "start none before L2 is settled" if rows_are_wrong else "start one for the others"
    return f"If no coordinator runs, only `batonpass db status` and `batonpass audit` answer: {start}."


def all_over(found: Sequence[Mapping[str, Any]]) -> str:
    """Return whether all that asks for something to be done is over, as far as the log of the day tells."""
    standing = [one["standing"] for one in found if one["meaning"].todo] or [one["standing"] for one in found]
    worst = max(standing, default=Standing.OVER)
    count, of_all = standing.count(worst), f" of {len(standing)}"
    if worst is Standing.OVER:
        return "Yes, as far as the log of the day tells."
    if worst is Standing.UNKNOWN:
        return f"Not known of {count}{of_all}: the last command of each says."
    return f"No, {count}{of_all} {'is' if count == 1 else 'are'} not."


class Morning:
    """What was found on a day, in words.

    Attributes:
        end_ms: until when the day was read.
    """

    def __init__(self, result: AuditResult) -> None:
        """Begin."""
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
        for one in ordered(self._result.findings):
            is_work = one.severity is Severity.FATAL or one.law in NOTICES
            meaning = meaning_of(one.law, one.detail) if is_work else Meaning(TITLES[one.law], "", "")
            by_cause = kinds.setdefault((one.severity, one.law, meaning), {})
            by_cause.setdefault((one.group, cause_of(one)), []).append(one)
        left_out, made = dict(self._result.left_out), []
        for (severity, law, meaning), by_cause in sorted(kinds.items(), key=_place):
            some = [one for of_cause in by_cause.values() for one in of_cause]
            cards = sorted((self._card(of_cause) for of_cause in by_cause.values()), key=_worst)
            standing, when = self._when(some)
            made.append(
                {
                    "severity": "down" if law == "stuck-task" else severity.value,
                    "law": law,
                    "meaning": meaning,
                    "left_out": (more := left_out.pop(law, 0)),
                    "count": len(some) + more,
                    "groups": amount(len({one.group for one in some}), "group"),
                    "where": _where(cards),
                    "standing": standing,
                    "when": when,
                    "since": max(one["since"] or "" for one in cards),
                    "cards": cards[:CAUSES_SHOWN],
                    "causes_more": max(0, len(cards) - CAUSES_SHOWN),
                }
            )
        return made

    def _card(self, some: Sequence[Finding]) -> dict[str, Any]:
        first, known = some[0], self._result.before.known
        others, members = len({one.task for one in some}) - 1, {self._who(one) for one in some}
        standing, when = self._when(some)
        return {
            "group": first.group,
            "task": f"{first.task}{f' and {others} more' if others else ''}" if first.task else None,
            "tasks": others + 1,
            "member": members.pop() if len(members) == 1 else None,
            "owners": len(first.others) + 1,
            "count": len(some),
            "laws": self._laws[first.group],
            "since": None if known is None else "known" if (first.group, first.law) in known else "new",
            "when": when,
            "standing": standing,
            "lasted_ms": max(map(self._lasted_ms, some)),
            "detail": first.detail,
            "commands": commands_of(first, self._result.day),
            "findings": [(one, self._who(one)) for one in some[:ALIKE_SHOWN]],
            "more": max(0, len(some) - ALIKE_SHOWN),
        }

    def _who(self, one: Finding) -> str:
        """Return the member that a finding is about; of several owners all, the older ones first."""
        names = self._result.names.get(one.group, {})
        return listed([*(names.get(older, older) for older in one.others), one.member or ""])

    def _when(self, some: Sequence[Finding]) -> tuple[Standing, str]:
        """Return whether findings of one law are over, and when they were so, in words."""
        standing = self._over(some)
        times = [clock(at // 1_000 * 1_000, self._result.day) for at in sorted(at for one in some for at in one.times)]
        if not times or some[0].law == "L2":
            return standing, "rows stay as they are" if some[0].law == "L2" else ""
        if standing is Standing.STILL_SO:
            return standing, f"since {times[0]}"
        return standing, f"at {times[0]}" if times[0] == times[-1] else f"{times[0]} to {times[-1]}"

    def _over(self, some: Sequence[Finding]) -> Standing:
        """Return whether findings of one law are over.

        Rows that are wrong stay so. Where rows are wrong, or not all was read or kept, the last time that is known may
        not be the last.
        """
        law = some[0].law
        last_ms = max((at for one in some for at in one.at), default=0)
        if law == "L2" or last_ms >= self.end_ms or any(STILL in one.detail for one in some):
            return Standing.STILL_SO
        unsure = self._result.unread | self._wrong
        if self._result.left_out.get(law) or any(not one.at or one.group in unsure for one in some):
            return Standing.UNKNOWN
        return Standing.OVER

    def _lasted_ms(self, one: Finding) -> int:
        """Return for how long nobody ran a task, as far as it is of the day; 0 for any other finding."""
        if one.law != "stuck-task" or not one.at:
            return 0
        return (self.end_ms if STILL in one.detail else one.at[-1]) - one.at[0]


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
        if one["owners"] > 1 and one["member"]:
            said.append(one["member"])
        if one["lasted_ms"]:
            said.append(duration(one["lasted_ms"]))
        return f"{which} ({', '.join(said)})" if said else which

    places = list(dict.fromkeys(map(place, cards)))
    more = len(places) - PLACES_NAMED
    return listed(places) if more <= 0 else f"{', '.join(places[:PLACES_NAMED])} and {more} more"
