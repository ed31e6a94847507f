"""Damage of every kind, each planted into a day of its own: what it does to the rows, and what must be found of it."""

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from tests.audit.planted import MIDNIGHT, MINUTE_MS, Forger, folded, lived, scenario

from batonpass.codec.groups import GROUP_VERSION, encode_group
from batonpass.core.state.ids import TaskId
from batonpass.core.state.model import Role
from batonpass.days.generate import rows_of
from batonpass.days.rows import COLUMNS, GroupRows
from batonpass.simulate.scenario.model import Act, Step

Row = dict[str, Any]
BEYOND: Final = 2**70
INCOMPLETE: Final = "replay-incomplete"


@dataclass(frozen=True)
class Plant:
    """One kind of damage.

    Attributes:
        into: what it does to the rows of a clean day.
        law: of the finding that it must give; "" where nobody notices, and the day must get its verdict all the same.
        words: what the finding says.
        subject: the task and the member that it names, where it must name them.
        times: how many findings it gives; None: any number, as several rows follow from the one.
        also: laws of what else is said of the group; nothing else may be.
        traced: whether the day has its traces.
        sql: carried out when the rows are written; ``:name`` is the group.
    """

    into: Callable[[GroupRows], object]
    law: str
    words: str = ""
    subject: tuple[str | None, str | None] = (None, None)
    times: int | None = 1
    also: frozenset[str] = frozenset()
    traced: bool = False
    sql: str = ""


def rows(day: GroupRows, table: str, **wanted: Any) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a table that have these values, each with its place."""
    for place, row in enumerate(day.tables[table]):
        named = dict(zip(COLUMNS[table], row, strict=True))
        if all(named[name] == value for name, value in wanted.items()):
            yield place, named


def put(day: GroupRows, table: str, place: int, **values: Any) -> None:
    """Put other values into a row."""
    named = dict(zip(COLUMNS[table], day.tables[table][place], strict=True)) | values
    day.tables[table][place] = tuple(named[name] for name in COLUMNS[table])


def middle(day: GroupRows, table: str, **wanted: Any) -> tuple[int, Row]:
    """Return one of the day's rows that have these values, neither the first nor the last where there are three."""
    found = [one for one in rows(day, table, **wanted) if one[1]["at"] >= MIDNIGHT]
    return found[len(found) // 2]


_INSTANT: Final = re.compile(r"\b179[45]\d{9}\b")


def shift(day: GroupRows, by: timedelta) -> None:
    """Have everything of a day be so much later, in rows and in what they hold."""
    by_ms = by // timedelta(milliseconds=1)

    def later(value: Any) -> Any:
        if isinstance(value, datetime):
            return value + by
        return _INSTANT.sub(lambda found: str(int(found[0]) + by_ms), value) if isinstance(value, str) else value

    for table, found in day.tables.items():
        day.tables[table] = [tuple(map(later, row)) for row in found]


def begun_today(day: GroupRows) -> None:
    """Have the group be declared at midnight, not a while before."""
    shift(day, MIDNIGHT - day.tables["record_log"][0][COLUMNS["record_log"].index("at")])


def declared(change: Callable[[Any], Any]) -> Callable[[GroupRows], None]:
    """Return what changes the record that declares the group."""

    def damage(day: GroupRows) -> None:
        begun_today(day)
        in_payload("group-declared", change)(day)

    return damage


def in_table(table: str, wanted: Mapping[str, Any], **values: Any) -> Callable[[GroupRows], None]:
    """Return what puts other values into one row; a function is given what stood there."""

    def damage(day: GroupRows) -> None:
        place, row = middle(day, table, **wanted)
        put(day, table, place, **{name: one(row[name]) if callable(one) else one for name, one in values.items()})

    return damage


def in_payload(kind: str, change: Callable[[Any], Any]) -> Callable[[GroupRows], None]:
    """Return what changes the payload of one record of a kind."""

    def damage(day: GroupRows) -> None:
        place, row = middle(day, "record_log", kind=kind)
        put(day, "record_log", place, payload=json.dumps(change(json.loads(row["payload"]))))

    return damage


def without(table: str, **wanted: Any) -> Callable[[GroupRows], None]:
    """Return what takes one row away."""

    def damage(day: GroupRows) -> None:
        del day.tables[table][middle(day, table, **wanted)[0]]

    return damage


def history(**values: Any) -> Callable[[GroupRows], None]:
    """Return what puts other values into one line of the histories: a grant of an active."""
    return in_table("assignment_events", {"kind": "granted", "role": "active"}, **values)


def generation(**values: Any) -> Callable[[GroupRows], None]:
    """Return what puts other values into one of the generations."""
    return in_table("generations", {}, **values)


def exchange_tasks(day: GroupRows) -> None:
    """Have lines of two members in one decision name each other's task."""
    lines = [one for one in rows(day, "assignment_events", kind="granted") if one[1]["at"] >= MIDNIGHT]
    first, other = next(
        (one, two)
        for one in lines
        for two in lines
        if one[1]["version"] == two[1]["version"] and one[1]["member_id"] != two[1]["member_id"]
    )
    put(day, "assignment_events", first[0], task_id=other[1]["task_id"])
    put(day, "assignment_events", other[0], task_id=first[1]["task_id"])


def invent_history(day: GroupRows) -> None:
    """Add a line that no record made."""
    _, row = middle(day, "assignment_events", kind="reported")
    day.tables["assignment_events"].append(tuple((row | {"place": 99}).values()))


def ends_at(day: GroupRows, version: int, *, head: bool = True) -> None:
    """Lose the records beyond a version, and set the head back."""
    del day.tables["record_log"][version:]
    if head:
        day.version = version


def lose_last_decision(day: GroupRows) -> None:
    """Lose the records of the last decision that has a history, and of those behind it."""
    ends_at(day, day.tables["assignment_events"][-1][1])


def lose_half_a_decision(day: GroupRows) -> None:
    """Lose the last records of the last decision that has several lines of history in as many records."""
    lines = [(row["version"], row["kind"]) for _, row in rows(day, "assignment_events")]
    version = next(one for one, kind in reversed(lines) if kind == "released" and lines.count((one, "granted")))
    ends_at(day, version + 1)
    for table in ("assignment_events", "traces", "generations"):
        place = COLUMNS[table].index("version")
        day.tables[table] = [row for row in day.tables[table] if row[place] <= version]


def lose_first(day: GroupRows) -> None:
    """Lose the first record."""
    begun_today(day)
    del day.tables["record_log"][0]


def lose_first_before_a_snapshot(day: GroupRows) -> None:
    """Lose the first record of a log that has a snapshot, as retention might in some weeks."""
    version = middle(day, "assignment_events")[1]["version"]
    packed = zlib.compress(encode_group(folded(day, version)))
    lose_first(day)
    day.tables["snapshots"] = [(day.group_id, version, GROUP_VERSION, MIDNIGHT + timedelta(hours=20), packed)]


def head_at(version: Callable[[int], int]) -> Callable[[GroupRows], None]:
    """Return what puts the head elsewhere, and leaves the records."""

    def damage(day: GroupRows) -> None:
        day.version = version(day.version)

    return damage


def go_on_from_snapshot(day: GroupRows) -> int:
    """Have the first half of the log lie in the day before, with a snapshot; return its version."""
    log, at = day.tables["record_log"], COLUMNS["record_log"].index("at")
    begun = [row["version"] for _, row in rows(day, "assignment_events") if row["at"] >= MIDNIGHT]
    version: int = next(one for one in begun[len(begun) // 2 :] if log[one - 1][at] < log[one][at])
    shift(day, MIDNIGHT - log[version][at])
    packed = zlib.compress(encode_group(folded(day, version)))
    taken_at = day.tables["record_log"][version - 1][at]
    day.tables["snapshots"] = [(day.group_id, version, GROUP_VERSION, taken_at, packed)]
    return version


def deposed_behind_snapshot(day: GroupRows) -> None:
    """Have the last record before a snapshot be of a later coordinator than the first one behind it."""
    version = go_on_from_snapshot(day)
    put(day, "record_log", version - 1, coordinator_epoch=9)
    for place in range(version + 1, len(day.tables["record_log"])):
        put(day, "record_log", place, coordinator_epoch=9)
    day.coordinator_epoch = 9


def skip_epochs(day: GroupRows, member: str, first: int) -> None:
    """Have the epoch of a member be one more in all records from one on, and in the histories."""
    for place, row in rows(day, "record_log", kind="picture-changed"):
        record = json.loads(row["payload"])
        if row["seq"] > first and record["member_id"] == member:
            granted = {task: [one[0], one[1] + 1, *one[2:]] for task, one in record.get("granted", {}).items()}
            payload = record | {"epoch": record["epoch"] + 1, "granted": granted}
            put(day, "record_log", place, payload=json.dumps(payload))
    for place, row in rows(day, "assignment_events", member_id=member):
        if row["version"] >= first and row["member_epoch"]:
            put(day, "assignment_events", place, member_epoch=row["member_epoch"] + 1)


def skip_after_joining(day: GroupRows) -> None:
    """Skip the first epoch that a member has after it joined."""
    _, row = middle(day, "record_log", kind="member-joined")
    skip_epochs(day, json.loads(row["payload"])["member"]["id"], row["seq"])


def skip_behind_snapshot(day: GroupRows) -> None:
    """Skip the first epoch that a member has behind a snapshot."""
    version = go_on_from_snapshot(day)
    found = (
        json.loads(row["payload"]) for _, row in rows(day, "record_log", kind="picture-changed") if row["seq"] > version
    )
    known = folded(day, version).members
    skip_epochs(day, next(one["member_id"] for one in found if one["member_id"] in known), version)


def three_warmups(day: GroupRows) -> GroupRows:
    """Begin one warmup more than max_warmup_replicas allows, while nobody drains."""
    forger = Forger(day, day.group_id)
    for number in (0, 1, 3):
        member = forger.without_copy(f"0_{number}")
        granted = {TaskId(f"0_{number}"): forger.grant(member, Role.WARMUP)}
        forger.add(forger.assignment_changed(member, granted=granted))
    return forger.rows


def alter_record(day: GroupRows) -> None:
    """Have a look of the timer be due a moment later than was decided."""
    found = [one for one in rows(day, "record_log", kind="probe-scheduled") if "null" not in one[1]["payload"]]
    place, row = found[len(found) // 2]
    put(day, "record_log", place, payload=json.dumps({"at_ms": json.loads(row["payload"])["at_ms"] + 1}))


def bad_sample(day: GroupRows) -> None:
    """Have samples say what is no lag, no rate, and no copies."""
    first, second, third = (place for place, _ in list(rows(day, "samples"))[:3])
    put(day, "samples", first, copies=json.dumps([["0_0", "w0.1", "warmup", "", "many", "1e999"]]))
    put(day, "samples", second, copies='{"copies": 3}')
    put(day, "samples", third, copies=json.dumps([["0_0", "w0.1", "warmup", "", BEYOND, BEYOND]]))


_OWNER = {"kind": "granted", "role": "active"}
_UNREAD = frozenset({INCOMPLETE})

PLANTS: Final[Mapping[str, Plant]] = {
    # One damaged record.
    "number-beyond": Plant(
        in_payload("task-released", lambda payload: payload | {"at_ms": BEYOND}), "L2", "is out of range", also=_UNREAD
    ),
    "token-beyond": Plant(
        in_payload(
            "picture-changed",
            lambda payload: payload | {"granted": {"0_0": ["active", payload["epoch"], payload["at_ms"], BEYOND, []]}},
        ),
        *("L2", "is out of range"),
        also=_UNREAD,
    ),
    "instant-beyond": Plant(
        in_payload("active-reported", lambda payload: payload | {"at_ms": 2**62}), "L2", "is out of range", also=_UNREAD
    ),
    "setting-no-number": Plant(
        declared(lambda payload: payload | {"config": payload["config"] | {"max_warmup_replicas": "many"}}),
        *("L2", "max_warmup_replicas"),
        also=_UNREAD,
    ),
    "setting-beyond": Plant(
        declared(lambda payload: payload | {"config": payload["config"] | {"session_timeout_ms": BEYOND}}),
        *("L2", "session_timeout_ms"),
        also=_UNREAD,
    ),
    "payload-strange": Plant(in_payload("picture-changed", lambda _: {"x": 1}), "L2", "cannot be read", also=_UNREAD),
    "payload-no-object": Plant(in_payload("member-joined", lambda _: [1]), "L2", "cannot be read", also=_UNREAD),
    "kind-unknown": Plant(in_table("record_log", {"kind": "task-released"}, kind="?"), "L2", "'?'", also=_UNREAD),
    "version-unknown": Plant(
        in_table("record_log", {"kind": "task-released"}, version=9), "L2", "version 9", also=_UNREAD
    ),
    "time-endless": Plant(
        lambda _: None,
        *("L2", "at_ms 9223372036854775807 is out of range"),
        sql="update record_log set at = 'infinity' where group_id = :name and seq = 100",
    ),
    "lower-bound-beyond": Plant(
        in_payload("target-placed", lambda payload: payload | {"lower_bound": BEYOND}), "L2", "lower_bound"
    ),
    "trace-strange": Plant(in_table("traces", {}, payload='{"x": 1}'), INCOMPLETE, "cannot be read", traced=True),
    "trace-of-the-future": Plant(in_table("traces", {}, format=99), INCOMPLETE, "version 99", traced=True),
    "generation-strange": Plant(generation(moved="3"), "L2", "cannot be read"),
    "score-no-number": Plant(generation(score=float("nan")), "L2", "cannot be read"),
    "samples-strange": Plant(bad_sample, ""),
    "time-long-past": Plant(
        in_table("record_log", {"kind": "task-released"}, at=lambda at: at - timedelta(days=900)),
        *("L2", "is dated 2024"),
    ),
    "time-to-come": Plant(
        in_table("record_log", {"kind": "task-released"}, at=lambda at: at + timedelta(days=900)),
        *("L2", "is dated 2029"),
    ),
    # What stands beside the records.
    "history-owner": Plant(history(member_id="somebody"), "L2", "member somebody as shown"),
    "history-task": Plant(history(task_id="0_9"), "L2", "task 0_9 as shown"),
    "history-exchanged": Plant(exchange_tasks, "L2", "as shown", times=2),
    "history-lost": Plant(without("assignment_events", **_OWNER), "L2", "lacks what was logged: granted active"),
    "history-report-lost": Plant(
        without("assignment_events", kind="reported"), "L2", "lacks what was logged: reported"
    ),
    "history-invented": Plant(invent_history, "L2", "has what was not logged: reported"),
    "history-kind": Plant(history(kind="adopted"), "L2", "kind adopted as shown, granted by the log"),
    "history-role": Plant(history(role="standby"), "L2", "role standby as shown, active by the log"),
    "history-role-before": Plant(history(role_before="active"), "L2", "role_before active as shown"),
    "history-epoch": Plant(history(member_epoch=77), "L2", "member_epoch 77 as shown"),
    "history-token": Plant(history(token=77), "L2", "token 77 as shown"),
    "history-generation": Plant(history(generation=77), "L2", "generation 77 as shown"),
    "history-state": Plant(
        in_table("assignment_events", {"kind": "reported"}, state="lost"), "L2", "state lost as shown"
    ),
    "history-warm": Plant(history(warm=lambda was: not was), "L2", "warm"),
    "history-cause": Plant(in_table("assignment_events", {"kind": "gone"}, why="bored"), "L2", "why bored as shown"),
    "history-why": Plant(history(why="bored"), "L2", "why bored as shown", traced=True),
    "history-time": Plant(history(at=lambda at: at + timedelta(seconds=1)), "L2", "at_ms", traced=True),
    "history-owner-traced": Plant(history(member_id="somebody"), "L2", "member somebody as shown", traced=True),
    "history-version-traced": Plant(history(version=lambda was: was + 1), "L2", "version", traced=True),
    "generation-lost": Plant(without("generations"), "L2", "not among the generations"),
    "generation-number": Plant(generation(number=77), "L2", "generation", times=2),
    "generation-lower-bound": Plant(generation(lower_bound=77), "L2", "lower_bound 77 as shown"),
    "generation-moves": Plant(generation(moves=77), "L2", "moves 77 as shown"),
    "generation-members": Plant(generation(members=77), "L2", "members 77 as shown"),
    "generation-tasks": Plant(generation(tasks=77), "L2", "tasks 77 as shown"),
    "generation-warmups": Plant(generation(warmups=77), "L2", "warmups 77 as shown"),
    "generation-score": Plant(generation(score=7.5), "L2", "score 7.5 as shown"),
    "generation-score-before": Plant(generation(score_before=7.5), "L2", "score_before 7.5 as shown"),
    "generation-epoch": Plant(generation(group_epoch=77), "L2", "group_epoch 77 as shown"),
    "generation-triggers": Plant(generation(triggers=["boredom"]), "L2", "triggers"),
    "generation-moved": Plant(
        generation(moved=lambda text: json.dumps([[one[0], one[1], "x", *one[3:]] for one in json.loads(text)])),
        *("L2", "owner x as shown"),
    ),
    "generation-time": Plant(generation(at=lambda at: at + timedelta(seconds=1)), "L2", "at_ms", traced=True),
    "generation-reasons": Plant(generation(reasons='[["bored",null,null,"",1]]'), "L2", "reasons", traced=True),
    # The ends of the log.
    "first-lost": Plant(lose_first, "L2", "record 1 is missing, and retention cannot"),
    "first-lost-traced": Plant(lose_first, "L2", "record 1 is missing, and retention cannot", traced=True),
    "first-lost-snapshot": Plant(
        lose_first_before_a_snapshot, "unknown-beginning", "no snapshot has the state", traced=True
    ),
    "last-lost": Plant(lose_last_decision, "L2", "the end of the log is missing: histories tell of"),
    "last-lost-traced": Plant(
        lose_last_decision, "L2", "the end of the log is missing: traces, histories tell of", traced=True
    ),
    "half-lost": Plant(lose_half_a_decision, "L2", "the end of the log is missing"),
    "half-lost-traced": Plant(lose_half_a_decision, "L2", "the end of the log is missing", traced=True),
    "head-behind": Plant(
        head_at(lambda was: was - 3), "L2", "that the head does not count", also=frozenset({"stuck-warmup"})
    ),
    "head-at-nought": Plant(head_at(lambda _: 0), "L2", "that the head does not count"),
    "head-ahead": Plant(head_at(lambda was: was + 2**61), "L2", "records are lost, the head counts"),
    "head-gone": Plant(
        lambda _: None, "L2", "that the head does not count", sql="delete from group_heads where group_id = :name"
    ),
    "head-deposed": Plant(lambda day: replace(day, coordinator_epoch=0), "L4", "than the head"),
    "number-absurd": Plant(
        lambda _: None,
        *("L2", "that the head does not count"),
        sql="update record_log set seq = seq + 4611686018427387904 where group_id = :name"
        " and seq = (select max(seq) from record_log where group_id = :name)",
        also=frozenset({"L2"}),
    ),
    # Epochs.
    "deposed-behind-snapshot": Plant(
        deposed_behind_snapshot, "L4", "a coordinator of epoch 1 appended after one of epoch 9"
    ),
    "epoch-after-joining": Plant(skip_after_joining, "L2", "its epoch 3 follows 1"),
    "epoch-behind-snapshot": Plant(skip_behind_snapshot, "L2", "each change of an assignment adds one"),
    # Budgets, and decisions that come out otherwise.
    "three-warmups": Plant(
        three_warmups, "L8", "nobody drains, and max_warmup_replicas allows 2", also=frozenset({"L9", "stuck-warmup"})
    ),
    "record-altered": Plant(alter_record, "L10", "probe-scheduled: at_ms", traced=True),
    "trace-lost": Plant(without("traces"), "L10", "there is no trace of the decision", traced=True),
    # Nothing at all.
    "snapshot": Plant(go_on_from_snapshot, "", traced=True),
    "snapshot-without-traces": Plant(go_on_from_snapshot, ""),
}

FEW_STEPS: Final = (
    Step(10 * MINUTE_MS, Act.CRASH, "w1"),
    Step(13 * MINUTE_MS, Act.RETURN, "w1"),
    Step(30 * MINUTE_MS, Act.DRAIN, "w2"),
)


def clean_and_damaged(plants: Mapping[str, Plant]) -> Iterator[tuple[GroupRows, GroupRows]]:
    """Yield a day for each plant, as it was and as it is."""
    base = lived("untouched")
    for name, plant in plants.items():
        if plant.traced:
            day = rows_of(replace(scenario(name, FEW_STEPS), until_ms=60 * MINUTE_MS), MIDNIGHT.date(), sample_every=30)
        else:
            day = base.copy_as(name)
        clean = replace(day, tables={table: list(found) for table, found in day.tables.items()})
        made = plant.into(day)
        yield clean, made if isinstance(made, GroupRows) else day
