"""Damage to every column of every table, and to every kind of record: what is found, and what nobody can notice."""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

from tests.audit.planted import HOUR_MS, MIDNIGHT, MINUTE_MS, STEPS, folded, lived
from tests.audit.plants import (
    Plant,
    declared,
    ends_at,
    generation,
    go_on_from_snapshot,
    history,
    in_table,
    middle,
    put,
    rows,
)

from batonpass.codec.groups import GROUP_VERSION, encode_group
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group
from batonpass.days.rows import COLUMNS, GroupRows

BESIDE: Final = ("assignment_events", "traces", "generations")
"""The tables with rows of decisions, each with the version at which one was made."""


def snapshot(change: Callable[[Group], Group] = lambda group: group, *, later: int = 0) -> Callable[[GroupRows], None]:
    """Return what stores a snapshot in the middle of the day, changed, under a version so much later."""

    def damage(day: GroupRows) -> None:
        _, row = middle(day, "assignment_events")
        group = change(folded(day, row["version"]))
        packed = zlib.compress(encode_group(group))
        at = row["at"] + timedelta(minutes=1)
        day.tables["snapshots"] = [(day.group_id, row["version"] + later, GROUP_VERSION, at, packed)]

    return damage


def snapshot_payload(change: Callable[[Any], Any]) -> Callable[[GroupRows], None]:
    """Return what stores a snapshot with another group in it, as its JSON has it."""

    def damage(day: GroupRows) -> None:
        snapshot()(day)
        *row, packed = day.tables["snapshots"][0]
        stored = json.loads(zlib.decompress(packed))
        change(stored["group"])
        day.tables["snapshots"] = [(*row, zlib.compress(json.dumps(stored).encode()))]

    return damage


def exchange_names(stored: Any) -> None:
    """Have two members of a stored group stand under each other's names."""
    first, second = list(stored["members"])[:2]
    members = stored["members"]
    members[first], members[second] = members[second], members[first]


def raise_token(stored: Any) -> None:
    """Have one grant of a stored group have a higher token."""
    member = next(
        one for one in stored["members"].values() if any(grant[0] == "active" for grant in one["picture"].values())
    )
    task = next(task for task, grant in member["picture"].items() if grant[0] == "active")
    member["picture"][task][3] += 5


NO_HEAD: Final = "delete from group_heads where group_id = :name"


def in_payload_where(
    wanted: Mapping[str, Any],
    change: Callable[[Any], Any],
    that: Callable[[Any], bool] = lambda _: True,
    table: str = "record_log",
) -> Callable[[GroupRows], None]:
    """Return what changes the payload of one row of those that are ``that``."""

    def damage(day: GroupRows) -> None:
        found = [
            one
            for one in rows(day, table, **wanted)
            if one[1]["at"] >= MIDNIGHT + timedelta(minutes=2) and that(json.loads(one[1]["payload"]))
        ]
        place, row = found[len(found) // 2]
        put(day, table, place, payload=json.dumps(change(json.loads(row["payload"]))))

    return damage


def in_trace(change: Callable[[Any], Any]) -> Callable[[GroupRows], None]:
    """Return what changes one trace."""
    return in_payload_where({}, change, table="traces")


def moved(wanted: Mapping[str, Any], name: str, by_ms: int) -> Callable[[GroupRows], None]:
    """Return what moves an instant in the payload of one record."""
    return in_payload_where(wanted, lambda payload: payload | {name: payload[name] + by_ms})


def exchange(table: str, *columns: str, apart: tuple[str, ...] = (), **wanted: Any) -> Callable[[GroupRows], None]:
    """Return what has two rows have each other's values; they differ in those that stay ``apart``, too."""

    def damage(day: GroupRows) -> None:
        found = [one for one in rows(day, table, **wanted) if one[1]["at"] >= MIDNIGHT + timedelta(minutes=2)]
        first = found[len(found) // 2]
        other = next(
            one
            for one in found[len(found) // 2 + 1 :]
            if all(one[1][name] != first[1][name] for name in (*columns, *apart))
        )
        put(day, table, first[0], **{name: other[1][name] for name in columns})
        put(day, table, other[0], **{name: first[1][name] for name in columns})

    return damage


def renumbered_without(kind: str, *, whole: bool) -> Callable[[GroupRows], None]:
    """Return what erases a record, or its ``whole`` decision, and renumbers everything behind it."""

    def damage(day: GroupRows) -> None:
        _, row = middle(day, "record_log", kind=kind)
        seq = row["seq"]
        versions = sorted({one[1]["version"] for table in BESIDE for one in rows(day, table)} | {day.version})
        first = max(one for one in versions if one < seq) if whole else seq - 1
        last = min(one for one in versions if one >= seq) if whole else seq
        gone = last - first
        log, at = day.tables["record_log"], COLUMNS["record_log"].index("seq")
        day.tables["record_log"] = [
            (*one[:at], one[at] - gone * (one[at] > last), *one[at + 1 :]) for one in log if not first < one[at] <= last
        ]
        for table in BESIDE:
            place = COLUMNS[table].index("version")
            kept = [one for one in day.tables[table] if not (whole and one[place] == first)]
            if not whole:
                lost = json.loads(row["payload"])
                task, kinds = COLUMNS[table].index("task_id") if table == "assignment_events" else -1, ("released",)
                kept = [
                    one
                    for one in kept
                    if task < 0
                    or not (one[place] <= first < one[place] + 3 and one[5] in kinds and one[task] == lost["task"])
                ]
            day.tables[table] = [
                (*one[:place], one[place] - gone * (one[place] >= last), *one[place + 1 :]) for one in kept
            ]
            if table == "traces":
                body = COLUMNS[table].index("payload")
                day.tables[table] = [
                    (*one[:body], json.dumps(json.loads(one[body]) | {"version": one[place]}), *one[body + 1 :])
                    for one in day.tables[table]
                ]
        day.version -= gone

    return damage


def cut_consistently(day: GroupRows) -> None:
    """Lose the end of the log with everything that was written with it."""
    version = day.tables["assignment_events"][-1][1]
    ends_at(day, version)
    for table in BESIDE:
        place = COLUMNS[table].index("version")
        day.tables[table] = [one for one in day.tables[table] if one[place] < version]


def raise_epoch(day: GroupRows) -> None:
    """Have one record in the middle be of a later coordinator."""
    place, _ = middle(day, "record_log", kind="probe-scheduled")
    put(day, "record_log", place, coordinator_epoch=9)


def raise_last_epoch(day: GroupRows) -> None:
    """Have the last record and the head be of a later coordinator."""
    put(day, "record_log", len(day.tables["record_log"]) - 1, coordinator_epoch=9)
    day.coordinator_epoch = 9


def grant_to_ghost(day: GroupRows) -> None:
    """Have a whole assignment be of a member that nobody knows."""
    found = [
        one
        for one in rows(day, "record_log", kind="picture-changed")
        if any(grant[0] == "active" for grant in json.loads(one[1]["payload"]).get("granted", {}).values())
    ]
    place, row = found[-1]
    put(day, "record_log", place, payload=json.dumps(json.loads(row["payload"]) | {"member_id": "ghost"}))


def double(table: str) -> Callable[[GroupRows], None]:
    """Return what has a row twice."""
    return lambda day: day.tables[table].append(tuple(middle(day, table)[1].values()))


def write_off(day: GroupRows) -> None:
    """Have the last word of a living member's be that it vanished."""
    log = day.tables["record_log"]
    owner = next(member for member, one in folded(day).members.items() if one.assignment)
    at = log[-1][3]
    ms = int(at.timestamp() * 1_000)
    payload = {"member_id": owner, "cause": "expired", "at_ms": ms, "lease_end_ms": ms, "heard_ms": ms}
    day.version += 1
    log.append((day.group_id, day.version, day.coordinator_epoch, at, "member-gone", 1, json.dumps(payload)))


def shorter_topology(payload: Any) -> Any:
    """Return a declaration with two partitions less."""
    topology = json.loads(json.dumps(payload["topology"]))
    topology["subtopologies"][0]["partitions"] -= 2
    return payload | {"topology": topology}


def later_grant_token(day: GroupRows) -> None:
    """Have the last grant's token be higher by a thousand, in its record and its history."""
    *_, (_, row) = rows(day, "assignment_events", kind="granted", role="active")
    for place, one in rows(day, "assignment_events", kind="granted", task_id=row["task_id"], token=row["token"]):
        put(day, "assignment_events", place, token=one["token"] + 1_000)
    for place, one in rows(day, "record_log", kind="picture-changed"):
        payload = json.loads(one["payload"])
        grant = payload.get("granted", {}).get(row["task_id"])
        if grant is not None and grant[3] == row["token"]:
            grant[3] += 1_000
            put(day, "record_log", place, payload=json.dumps(payload))


def other_policy(payload: Any) -> Any:
    """Return a trace of a coordinator that checks no laws."""
    return payload | {"policy": payload["policy"] | {"check_laws": False}}


def all_gone(*tables: str) -> Callable[[GroupRows], None]:
    """Return what loses every row of some tables."""

    def damage(day: GroupRows) -> None:
        for table in tables:
            day.tables[table].clear()

    return damage


def only_snapshot(day: GroupRows) -> None:
    """Lose everything but a snapshot."""
    snapshot()(day)
    all_gone("record_log", *BESIDE)(day)


def end_lost_snapshot_stays(day: GroupRows) -> None:
    """Lose the end of the log, and all that was written with it but a snapshot."""
    whole = folded(day)
    packed = zlib.compress(encode_group(whole))
    cut_consistently(day)
    at = day.tables["record_log"][-1][3]
    day.tables["snapshots"] = [(day.group_id, whole.version, GROUP_VERSION, at, packed)]


def raise_budget(stored: Any) -> None:
    """Allow more warmups in a stored group."""
    stored["config"]["max_warmup_replicas"] = 40


def raise_member_epoch(stored: Any) -> None:
    """Have a member of a stored group have had one assignment more."""
    next(iter(stored["members"].values()))["epoch"] += 1


def lose_member(stored: Any) -> None:
    """Lose a member of a stored group."""
    del stored["members"][next(iter(stored["members"]))]


def cut_snapshot(day: GroupRows) -> None:
    """Cut a snapshot short."""
    snapshot()(day)
    *row, packed = day.tables["snapshots"][0]
    day.tables["snapshots"] = [(*row, packed[: len(packed) // 2])]


def begin_with_another(day: GroupRows) -> None:
    """Have the day begin with a snapshot of another group."""
    version = go_on_from_snapshot(day)
    *row, _ = day.tables["snapshots"][0]
    other = replace(folded(day, version), id=GroupId("another"))
    day.tables["snapshots"] = [(*row, zlib.compress(encode_group(other)))]


def snapshot_late(day: GroupRows) -> None:
    """Have a wrong snapshot of the end of the day before be stored after midnight."""
    version = max(row["seq"] for _, row in rows(day, "record_log") if row["at"] < MIDNIGHT)
    stored = json.loads(encode_group(folded(day, version)))
    raise_token(stored["group"])
    packed = zlib.compress(json.dumps(stored).encode())
    day.tables["snapshots"] = [(day.group_id, version, GROUP_VERSION, MIDNIGHT + timedelta(minutes=1), packed)]


def of_the_future(day: GroupRows) -> None:
    """Have a snapshot be of a form that only later programs read."""
    snapshot()(day)
    group, version, _, at, packed = day.tables["snapshots"][0]
    day.tables["snapshots"] = [(group, version, 99, at, packed)]


def snapshot_dated(day: GroupRows) -> None:
    """Have a snapshot be dated three days back."""
    snapshot()(day)
    group, version, form, at, packed = day.tables["snapshots"][0]
    day.tables["snapshots"] = [(group, version, form, at - timedelta(days=3), packed)]


def histories_moved(day: GroupRows) -> None:
    """Have the histories of a decision be dated three days back."""
    _, row = middle(day, "assignment_events", kind="granted")
    for place, one in rows(day, "assignment_events", version=row["version"]):
        put(day, "assignment_events", place, at=one["at"] - timedelta(days=3))


def place_history(day: GroupRows) -> None:
    """Have a line of a history stand at another place."""
    place, row = middle(day, "assignment_events")
    day.tables["assignment_events"][place] = tuple((row | {"place": 99}).values())


def generation_doubled(day: GroupRows) -> None:
    """Add a generation that nobody placed."""
    _, row = middle(day, "generations")
    day.tables["generations"].append(tuple((row | {"number": 77}).values()))


def exchange_targets(payload: Any) -> Any:
    """Return a placement in which two tasks have each other's targets."""
    (first, to), (second, other) = list(payload["changes"].items())[:2]
    return payload | {"changes": payload["changes"] | {first: other, second: to}}


def _has_two(payload: Any) -> bool:
    found = list(payload["changes"].values())
    return len(found) > 1 and found[0][0] != found[1][0]


def _more_moves(payload: Any) -> Any:
    return payload | {"moves": payload["moves"] + 1}


def standby_to_active(payload: Any) -> Any:
    """Return an assignment in which a standby is an active."""
    granted = {
        task: ["active" if one[0] == "standby" else one[0], *one[1:]] for task, one in payload["granted"].items()
    }
    return payload | {"granted": granted}


def _has_standby(payload: Any) -> bool:
    return any(one[0] == "standby" for one in payload["granted"].values())


def raise_joining_epoch(payload: Any) -> Any:
    """Return a join under an epoch five higher."""
    return {"member": payload["member"] | {"epoch": payload["member"]["epoch"] + 5}}


def raise_capacity(payload: Any) -> Any:
    """Return a join of a member of twice the capacity."""
    return {"member": payload["member"] | {"capacity": 2.0}}


def put_endpoint(payload: Any) -> Any:
    """Return a join of a member at another address."""
    return {"member": payload["member"] | {"endpoint": "elsewhere:1"}}


def rename_instance(payload: Any) -> Any:
    """Return a join of a member of another instance."""
    return {"member": payload["member"] | {"instance_id": "somebody"}}


def raise_lag(payload: Any) -> Any:
    """Return an assignment in which a copy has more to restore."""
    return payload | {"lags": {task: lag + 7 for task, lag in payload["lags"].items()}}


def other_trigger(payload: str) -> str:
    """Return a wish for a new target for another reason."""
    return json.dumps(json.loads(payload) | {"trigger": "boredom"})


def _more_warmups(payload: Any) -> Any:
    return payload | {"config": payload["config"] | {"max_warmup_replicas": 100}}


def _minute_later(payload: Any) -> Any:
    return {"at_ms": payload["at_ms"] + MINUTE_MS}


def _is_due(payload: Any) -> bool:
    return payload["at_ms"] is not None


def _running(payload: Any) -> bool:
    return bool(payload["state"] == "running")


def _hour_of_lease(payload: Any) -> Any:
    return payload | {"lease_end_ms": payload["lease_end_ms"] + HOUR_MS}


def _expired(payload: Any) -> bool:
    return bool(payload["cause"] == "expired")


def swap_in_decision(day: GroupRows) -> None:
    """Have two records of one decision stand in each other's place."""
    decided = {row["version"] for _, row in rows(day, "assignment_events")} | {day.version}
    found = [one for one in rows(day, "record_log") if one[1]["at"] >= MIDNIGHT + timedelta(minutes=2)]
    pairs = [
        (one, other)
        for one, other in pairwise(found)
        if one[1]["seq"] not in decided and one[1]["kind"] == other[1]["kind"] == "picture-changed"
    ]
    (first, row), (second, other) = pairs[len(pairs) // 2]
    put(day, "record_log", first, payload=other["payload"])
    put(day, "record_log", second, payload=row["payload"])


def reverse_decision(day: GroupRows) -> None:
    """Have the payloads of a decision stand in the reverse order: the grant before the confirmation it waited for."""
    lines = {
        (row["version"], row["task_id"], row["kind"])
        for _, row in rows(day, "assignment_events")
        if row["at"] >= MIDNIGHT + timedelta(minutes=2) and row["kind"] in {"granted", "released"}
    }
    version = next(one for one, task, kind in sorted(lines) if kind == "granted" and (one, task, "released") in lines)
    versions = sorted({row["version"] for _, row in rows(day, "assignment_events")} | {day.version})
    end = next(one for one in versions if one > version)
    found = [one for one in rows(day, "record_log") if version < one[1]["seq"] <= end]
    for (place, _), (_, other) in zip(found, reversed(found), strict=True):
        put(day, "record_log", place, **{name: other[name] for name in ("kind", "version", "payload")})


def log_of_another(day: GroupRows) -> None:
    """Have the log, and the head, of another group, which has them of this one."""
    other = lived(day.group_id, STEPS[1:])
    day.tables["record_log"], day.version = other.tables["record_log"], other.version
    day.coordinator_epoch = other.coordinator_epoch


def begin_with_token(day: GroupRows) -> None:
    """Have the day begin with a snapshot in which a token is higher."""
    go_on_from_snapshot(day)
    *row, packed = day.tables["snapshots"][0]
    stored = json.loads(zlib.decompress(packed))
    raise_token(stored["group"])
    day.tables["snapshots"] = [(*row, zlib.compress(json.dumps(stored).encode()))]


def empty_snapshot(day: GroupRows) -> None:
    """Have a snapshot without a byte."""
    snapshot()(day)
    day.tables["snapshots"] = [(*day.tables["snapshots"][0][:-1], b"")]


def more_released(payload: Any) -> Any:
    """Return a confirmation of a changelog that is longer."""
    return payload | {"final": [[name, end + 1] for name, end in payload["final"]]}


def _has_final(payload: Any) -> bool:
    return bool(payload["final"])


def append_deletion(day: GroupRows) -> None:
    """Have the last word of the log be that the group was deleted."""
    at = day.tables["record_log"][-1][3]
    ms = int(at.timestamp() * 1_000)
    day.version += 1
    payload = {"at_ms": ms, "lease_end_ms": ms}
    day.tables["record_log"].append(
        (day.group_id, day.version, day.coordinator_epoch, at, "group-deleted", 1, json.dumps(payload))
    )


_REPORT: Final[dict[str, Any]] = {"kind": "active-reported"}
_L2: Final = frozenset({"L2"})
_UNREAD: Final = frozenset({"replay-incomplete"})


COLUMN_PLANTS: Final[Mapping[str, Plant]] = {
    # A group of which the log is gone.
    "log-gone": Plant(all_gone("record_log"), "L2", "the group has no head, and no log", sql=NO_HEAD),
    "log-gone-traced": Plant(
        all_gone("record_log"), "L2", "traces, generations, histories tell of", traced=True, sql=NO_HEAD
    ),
    "snapshot-alone": Plant(only_snapshot, "L2", "snapshots tell of record", sql=NO_HEAD),
    "end-lost-snapshot-stays": Plant(end_lost_snapshot_stays, "L2", "snapshots tell of records up to"),
    # Snapshots, from which coordinators start.
    "snapshot-true": Plant(snapshot(), ""),
    "snapshot-true-traced": Plant(snapshot(), "", traced=True),
    "snapshot-token": Plant(snapshot_payload(raise_token), "L2", "token"),
    "snapshot-budget": Plant(snapshot_payload(raise_budget), "L2", "max_warmup_replicas 40 as stored", traced=True),
    "snapshot-names": Plant(snapshot_payload(exchange_names), "L2", "as stored"),
    "snapshot-epoch": Plant(snapshot_payload(raise_member_epoch), "L2", "epoch"),
    "snapshot-task-lost": Plant(snapshot_payload(lambda stored: stored["tasks"].pop("0_3")), "L2", "nothing as stored"),
    "snapshot-member-lost": Plant(snapshot_payload(lose_member), "L2", "nothing as stored"),
    "snapshot-of-another": Plant(
        snapshot(lambda group: replace(group, id=GroupId("another"))), "L2", "it holds another at version"
    ),
    "snapshot-older": Plant(snapshot(later=7), "L2", "it holds snapshot-older at version"),
    "snapshot-cut": Plant(cut_snapshot, "unreadable-snapshot", "from which a coordinator would start"),
    "snapshot-begun-with-of-another": Plant(begin_with_another, "L2", "it holds another at version"),
    "snapshot-late": Plant(snapshot_late, "L2", "token"),
    "snapshot-of-the-future": Plant(of_the_future, ""),
    "snapshot-dated": Plant(snapshot_dated, ""),
    # Times in records.
    "report-later": Plant(moved({**_REPORT}, "at_ms", HOUR_MS), "L2", "tells of"),
    "report-earlier": Plant(moved({**_REPORT}, "at_ms", -HOUR_MS), "L2", "tells of"),
    "confirmation-earlier": Plant(moved({"kind": "task-released"}, "at_ms", -5 * MINUTE_MS), "L2", "tells of"),
    "departure-later": Plant(moved({"kind": "member-gone"}, "at_ms", 5 * MINUTE_MS), "L2", "tells of"),
    "placement-earlier": Plant(moved({"kind": "target-placed"}, "at_ms", -HOUR_MS), "L2", "tells of"),
    "assignment-later": Plant(moved({"kind": "picture-changed"}, "at_ms", HOUR_MS), "L2", "tells of"),
    "row-later": Plant(
        in_table("record_log", {"kind": "task-released"}, at=lambda at: at + timedelta(hours=3)), "L2", "is dated"
    ),
    "report-second-later": Plant(moved({**_REPORT}, "at_ms", 1_000), ""),
    # Histories, generations and traces as a whole.
    "histories-gone": Plant(all_gone("assignment_events"), "L2", "there are no task histories of the day"),
    "histories-gone-traced": Plant(
        all_gone("assignment_events"), "L2", "there are no task histories of the day", traced=True
    ),
    "histories-moved": Plant(histories_moved, "L2", "its history lacks", times=None),
    "generations-gone": Plant(
        all_gone("generations"), "L2", "not among the generations", times=7, also=frozenset({"L2"})
    ),
    "generation-doubled": Plant(generation_doubled, "L2", "is stored, but not in the log"),
    "generation-version": Plant(generation(version=lambda was: was + 1), "L2", "version 133 as shown", also=_L2),
    "traces-gone": Plant(all_gone("traces"), "", traced=True),
    "trace-doubled": Plant(double("traces"), "", traced=True),
    "trace-policy": Plant(in_trace(other_policy), "L2", "check_laws False here", traced=True),
    "trace-now": Plant(in_trace(lambda one: one | {"now_ms": one["now_ms"] + 1}), "L10", "at_ms", traced=True),
    "traces-exchanged": Plant(exchange("traces", "payload"), "L10", "is decided differently", times=None, traced=True),
    "trace-code": Plant(in_trace(lambda one: one | {"code": "0.0.1+x"}), "", traced=True),
    "trace-cause": Plant(in_table("traces", {}, cause="somebody"), "", traced=True),
    "trace-version": Plant(
        in_table("traces", {}, version=lambda was: was + 1),
        *("L10", ""),
        times=None,
        also=frozenset({"L2", "L10", *_UNREAD}),
        traced=True,
    ),
    "trace-time": Plant(in_table("traces", {}, at=lambda at: at + timedelta(minutes=3)), "", traced=True),
    # Records of each kind.
    "reports-exchanged": Plant(
        exchange("record_log", "payload", **_REPORT), "L2", "its history", times=4, also=frozenset({"L2"})
    ),
    "reports-exchanged-traced": Plant(
        exchange("record_log", "payload", **_REPORT), "L10", "active-reported: ", times=2, also=_L2, traced=True
    ),
    "report-failed": Plant(in_payload_where(_REPORT, lambda one: one | {"state": "failed"}, _running), "L2", "state"),
    "confirmation-of-another": Plant(
        in_payload_where({"kind": "task-released"}, lambda one: one | {"member_id": "w9.1"}),
        "L1",
        "might still run it",
        also=_L2,
    ),
    "confirmation-erased": Plant(renumbered_without("task-released", whole=False), "L1", "might still run it"),
    "decision-erased": Plant(
        renumbered_without("active-reported", whole=True),
        "L10",
        "is decided differently",
        times=None,
        also=frozenset({"L2", "L10", *_UNREAD}),
        traced=True,
    ),
    "heir-exchanged": Plant(
        in_payload_where({"kind": "heir-chosen"}, lambda one: one | {"heir": "w9.1"}),
        "L10",
        "heir-chosen",
        also=_L2,
        traced=True,
    ),
    "heir-exchanged-untraced": Plant(in_payload_where({"kind": "heir-chosen"}, lambda one: one | {"heir": "w9.1"}), ""),
    "targets-exchanged": Plant(
        in_payload_where({"kind": "target-placed"}, exchange_targets, _has_two),
        "L2",
        "moved.0.owner",
        times=2,
        also=frozenset({"L2", "L8"}),
    ),
    "moves-raised": Plant(in_payload_where({"kind": "target-placed"}, _more_moves), "L2", "moves"),
    "role-raised": Plant(
        in_payload_where({"kind": "picture-changed"}, standby_to_active, _has_standby),
        "L1",
        "might still run it",
        times=None,
        also=frozenset({"L1", "L2", "L8", "L9", "stuck-task"}),
    ),
    "revocation-lost": Plant(
        in_payload_where(
            {"kind": "picture-changed"}, lambda one: one | {"revoked": []}, lambda one: bool(one["revoked"])
        ),
        *("L2", "has what was not logged: revoked"),
        also=_L2,
    ),
    "grant-to-ghost": Plant(
        grant_to_ghost, "L2", "member w1.2 as shown, ghost by the log", also=frozenset({"L2", "L9"})
    ),
    "join-epoch": Plant(in_payload_where({"kind": "member-joined"}, raise_joining_epoch), "L2", "each change"),
    "drain-of-another": Plant(
        in_payload_where({"kind": "drain-started"}, lambda one: one | {"member_id": "late.1"}), "L2", "score"
    ),
    "lease-longer": Plant(
        in_payload_where({"kind": "member-gone"}, _hour_of_lease, _expired), "L1", "might still run it", times=None
    ),
    "written-off": Plant(
        write_off,
        "L2",
        "its history lacks what was logged: gone",
        times=None,
        also=frozenset({"L8", "L9", "stuck-task"}),
    ),
    "topology-shorter": Plant(declared(shorter_topology), "L2", "tasks 8 as shown, 6 by the log", times=8),
    "topology-shorter-traced": Plant(
        declared(shorter_topology), "L10", "partitions 4 then, 6 now", also=_L2, traced=True
    ),
    "budget-raised": Plant(declared(_more_warmups), "L10", "max_warmup_replicas 100 then", traced=True),
    "kind-of-another": Plant(
        in_table("record_log", {"kind": "probe-scheduled"}, kind="rebalance-scheduled"),
        "L2",
        "cannot be read",
        also=_UNREAD,
    ),
    "numbers-exchanged": Plant(
        exchange("record_log", "seq", apart=("at",), kind="picture-changed"),
        "L2",
        "its history",
        times=11,
        also=frozenset({"L1", "L2"}),
    ),
    "record-of-another": Plant(
        in_table("record_log", {"kind": "probe-scheduled"}, group_id="a-stranger"), "L2", "missing", also=_UNREAD
    ),
    "reason-of-placement": Plant(
        in_table("record_log", {"kind": "rebalance-scheduled"}, payload=other_trigger), "L2", "triggers"
    ),
    "epoch-raised": Plant(raise_epoch, "L4", "records after one of epoch 9", times=2),
    "epoch-raised-at-the-end": Plant(raise_last_epoch, ""),
    "probe-later": Plant(in_payload_where({"kind": "probe-scheduled"}, _minute_later, _is_due), ""),
    "capacity-raised": Plant(in_payload_where({"kind": "member-joined"}, raise_capacity), "L2", "score", times=5),
    "endpoint-put": Plant(in_payload_where({"kind": "member-joined"}, put_endpoint), ""),
    "instance-renamed": Plant(in_payload_where({"kind": "member-joined"}, rename_instance), ""),
    "lag-of-copy": Plant(in_payload_where({"kind": "picture-changed"}, raise_lag, lambda one: bool(one["lags"])), ""),
    "token-in-both": Plant(later_grant_token, ""),
    "end-cut-everywhere": Plant(cut_consistently, "", also=frozenset({"stuck-warmup"})),
    # Other columns of other tables.
    "history-place": Plant(place_history, ""),
    "history-second-later": Plant(history(at=lambda at: at + timedelta(seconds=1)), ""),
    "history-day-later": Plant(history(at=lambda at: at + timedelta(days=3)), "L2", "lacks what was logged"),
    "generation-second-later": Plant(generation(at=lambda at: at + timedelta(seconds=1)), ""),
    "generation-of-another": Plant(generation(group_id="a-stranger"), "L2", "not among the generations"),
    "history-of-another": Plant(history(group_id="a-stranger"), "L2", "lacks what was logged"),
    "samples-of-another": Plant(in_table("samples", {}, group_id="a-stranger", at=MIDNIGHT), ""),
    "generation-decide": Plant(generation(decide_ms=77.0), "", traced=True),
    "samples-gone": Plant(all_gone("samples"), ""),
    "others-gone": Plant(all_gone("events", "commands"), ""),
    "history-heard": Plant(in_table("assignment_events", {"kind": "gone"}, heard_at=MIDNIGHT), "L2", "heard_ms"),
    "history-heard-traced": Plant(
        in_table("assignment_events", {"kind": "gone"}, heard_at=MIDNIGHT), "L2", "heard_ms", traced=True
    ),
    "released-more": Plant(in_payload_where({"kind": "task-released"}, more_released, _has_final), ""),
    "released-more-traced": Plant(
        in_payload_where({"kind": "task-released"}, more_released, _has_final), "L10", "final", traced=True
    ),
    "record-with-more": Plant(in_payload_where({"kind": "task-released"}, lambda one: one | {"more": 1}), ""),
    "records-swapped": Plant(swap_in_decision, ""),
    "decision-reversed": Plant(reverse_decision, "L1", "might still run it", also=_L2),
    "log-of-another": Plant(log_of_another, "L2", "its history", times=None, also=_L2),
    "log-of-another-traced": Plant(log_of_another, "L10", "is decided differently", times=None, also=_L2, traced=True),
    "records-swapped-traced": Plant(swap_in_decision, "L10", "", traced=True),
    "trace-of-another": Plant(in_table("traces", {}, group_id="a-stranger"), "L10", "there is no trace", traced=True),
    "snapshot-begun-with-token": Plant(begin_with_token, "L1", "its token is", times=2, traced=True),
    "snapshot-begun-with-token-untraced": Plant(begin_with_token, "L1", "which is not above", times=2),
    "snapshot-empty": Plant(empty_snapshot, "unreadable-snapshot", ""),
    "version-nought": Plant(
        in_table("record_log", {"kind": "task-released"}, version=0), "L2", "version 0", also=_UNREAD
    ),
    "generation-version-earlier": Plant(generation(version=lambda was: was - 1), "L2", "as shown"),
    "place-of-another": Plant(
        in_payload_where({"kind": "place-inherited"}, lambda one: one | {"heir": "late.1"}),
        *("L2", "score"),
        times=2,
        also=frozenset({"L9"}),
    ),
    "away-longer": Plant(
        in_payload_where({"kind": "member-away"}, lambda one: one | {"until_ms": one["until_ms"] + HOUR_MS}), ""
    ),
    "deleted-at-last": Plant(append_deletion, "L2", "its history lacks", times=None, also=frozenset({"stuck-task"})),
    "owner-of-head": Plant(lambda _: None, "", sql="update group_heads set owner = 'x' where group_id = :name"),
}
