"""Days of a few entries that are written by hand, and what the laws find in them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from operator import itemgetter
from typing import Any, Final

from batonpass.audit.entries import LAG, Entry
from batonpass.audit.facts import Lag
from batonpass.audit.fold import GroupFold
from batonpass.audit.plan import GroupPlan
from batonpass.audit.rows import Generation
from batonpass.laws import LAWS

Row = dict[str, Any]

DAY: Final = date(2026, 11, 18)
BEGIN_MS: Final = int(datetime(2026, 11, 18, tzinfo=UTC).timestamp() * 1_000)
END_MS: Final = BEGIN_MS + 86_400_000
TASK: Final = "0_0"

GENERATION: Final = "generation"
"""The ``what`` of a row that is no entry, but a generation as readers are shown it: its fields are the row's."""


def row(seq: int, what: str = "other", member: str | None = None, task: str | None = None, **columns: Any) -> Row:
    """Return an entry: appended so many seconds after midnight as it has number, by a first coordinator."""
    at_ms = BEGIN_MS + seq * 1_000
    of_record = {"group_id": "g", "seq": seq, "place": 0, "at_ms": at_ms, "coordinator_epoch": 1, "ms": at_ms}
    return dict.fromkeys(Entry._fields) | of_record | {"what": what, "member": member, "task": task} | columns


def in_order(*rows: Row, begin: int = 1) -> list[Row]:
    """Return rows as records that follow each other; their times are those of their numbers."""
    return [
        one | {key: value for key, value in row(seq).items() if key in {"seq", "at_ms", "ms"}}
        for seq, one in enumerate(rows, start=begin)
    ]


def folded(
    rows: Iterable[Row], plan: GroupPlan, begin_ms: int = BEGIN_MS, end_ms: int = END_MS, *, lawful: bool = False
) -> GroupFold:
    """Return the day of a group, from those of the rows that are its own.

    A row of a lag whose number is 0 is of a sample.
    """
    lags: defaultdict[tuple[str, str], list[Lag]] = defaultdict(list)
    generations: list[Generation] = []
    entries: list[Row] = []
    for one in rows:
        if one["group_id"] == plan.group:
            if one["what"] == GENERATION:
                generations.append(Generation(**{name: one.get(name, 0) for name in Generation._fields}))
            elif one["what"] == LAG and one["seq"] == 0:
                lags[one["task"], one["member"]].append(Lag(one["ms"], one["number"]))
            else:
                entries.append(one)
    fold = GroupFold(plan, begin_ms, end_ms, lags=lags, generations=generations)
    for one in sorted(entries, key=itemgetter("seq", "coordinator_epoch", "at_ms", "place")):
        fold.take(Entry(*(one[name] for name in Entry._fields)))
    fold.end(lawful=lawful)
    return fold


def plan_of(rows: Sequence[Row], **bounds: Any) -> GroupPlan:
    """Return the plan of a day that has all of a group's rows."""
    last = max((one["seq"] for one in rows), default=0)
    whole: dict[str, Any] = {"group": "g", "base": 0, "known": True, "first": 1, "last": last, "missing": 0}
    return GroupPlan(**whole | bounds)


def found(rows: Sequence[Row], *, groups: Sequence[GroupPlan] = (), lawful: bool = False, **bounds: Any) -> list[Row]:
    """Return what all laws find in these rows, in the order of the records that prove it."""
    findings = [
        {
            "group_id": one.group,
            "law": one.law,
            "severity": one.severity.value,
            "task": one.task,
            "member": one.member,
            "detail": one.detail,
            "sequences": list(one.sequences),
            "at": list(one.at),
            "others": list(one.others),
        }
        for plan in groups or [plan_of(rows, **bounds)]
        for one in folded(rows, plan, lawful=lawful).kept.first()
        if one.law in LAWS or one.law == "unreadable-snapshot"
    ]
    return sorted(findings, key=lambda one: (one["sequences"][-1:], one["detail"]))


def sentences(rows: Sequence[Row], **known: Any) -> list[tuple[str, str]]:
    """Return the law and the sentence of what all laws find."""
    return [(one["law"], one["detail"]) for one in found(rows, **known)]


def clock(seq: int) -> str:
    """Return when a record was appended, as a sentence has it."""
    return f"2026-11-18 00:{seq // 60:02}:{seq % 60:02}.000"
