"""One group's day made again, from its rows or from what a coordinator would write: what the replay says of it."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from unittest.mock import patch

import msgspec
from tests.audit.planted import MIDNIGHT_MS
from tests.core.scene import Scene
from tests.runtime.test_historian import Written

from batonpass.audit.entries import read_entries
from batonpass.audit.group_replay import GroupReplay
from batonpass.audit.plan import GroupPlan
from batonpass.audit.reading import GENERATION, HISTORY, RECORD, TRACE
from batonpass.codec.code import code_version
from batonpass.codec.records import StoredRecord
from batonpass.codec.traces import TRACE_VERSION, encode_trace
from batonpass.core.state.inputs import Input, Started
from batonpass.core.state.policy import Policy
from batonpass.core.state.replies import Reply
from batonpass.days.rows import COLUMNS, EPOCH, GroupRows
from batonpass.runtime.history import NOBODY_ASKED, Historian


def rows_of_table(rows: GroupRows, table: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of one table by the names of its columns."""
    for row in rows.tables[table]:
        yield dict(zip(COLUMNS[table], row, strict=True))


def _ms(at: Any) -> int:
    since: timedelta = at - EPOCH
    return since // timedelta(milliseconds=1)


def _json(*values: Any) -> bytes:
    return msgspec.json.encode(values)


def _beside(rows: GroupRows) -> Iterator[tuple[int, int, Any]]:
    """Yield what comes in the order of versions: at each its record, trace, history and generation."""
    for one in rows_of_table(rows, "record_log"):
        yield one["seq"], RECORD, one
    for one in rows_of_table(rows, "traces"):
        yield one["version"], TRACE, one
    histories: dict[int, list[dict[str, Any]]] = {}
    for one in rows_of_table(rows, "assignment_events"):
        histories.setdefault(one["version"], []).append(one)
    for version, changes in histories.items():
        yield version, HISTORY, changes
    for one in rows_of_table(rows, "generations"):
        yield one["version"], GENERATION, one


def replayed(rows: GroupRows) -> GroupReplay:
    """Return what comes of a day that begins with the first record of a group."""
    plan = GroupPlan(rows.group_id, 0, known=True, first=1, last=rows.version, missing=0, ends=True)
    again = GroupReplay(plan, begin_ms=MIDNIGHT_MS, code=code_version(), has_histories=True)
    for version, rank, one in sorted(_beside(rows), key=lambda row: row[:2]):
        if rank == RECORD:
            stored = StoredRecord(one["kind"], one["version"], one["payload"].encode())
            _, record = read_entries(version, _ms(one["at"]), one["coordinator_epoch"], stored)
            again.record(version, record, _ms(one["at"]))
        elif rank == TRACE:
            again.trace(version, one["format"], one["payload"].encode(), _ms(one["at"]))
        elif rank == HISTORY:
            names = ("task_id", "member_id", "kind", "role_before", "role", "at", "generation", "member_epoch", "token")
            lines = [
                [
                    _ms(row[name]) if isinstance(row[name], datetime) else row[name]
                    for name in (*names, "state", "warm", "why", "heard_at")
                ]
                for row in one
            ]
            again.history(version, msgspec.json.encode(lines), _ms(one[0]["at"]))
        else:
            names = (
                "triggers",
                "members",
                "tasks",
                "moves",
                "lower_bound",
                "warmups",
                "score_before",
                "score",
                "decide_ms",
            )
            fields = [one["number"], one["group_epoch"], _ms(one["at"]), *(one[name] for name in names)]
            fields += [msgspec.Raw(one[name].encode()) for name in ("moved", "reasons")]
            again.generation(version, msgspec.json.encode(fields), _ms(one["at"]))
    again.end()
    return again


CODE: Final = "code-1"


def written(log: Callable[[], object]) -> list[Written]:
    """Return what a coordinator would write of all that happens to the one group of a story."""
    found: list[Written] = []
    plain = Scene.do
    historian = Historian(Policy(), CODE)

    def do(scene: Scene, item: Input) -> Reply:
        assert scene.policy == Policy()
        if isinstance(item, Started):
            historian.begin_anew()
        before = scene.group, scene.soft
        reply = plain(scene, item)
        assert scene.last is not None
        if scene.last.records:
            history = historian.history(NOBODY_ASKED, (item,), before, scene.last, at=(scene.now_ms, 0.5))
            assert history.trace is not None
            found.append(Written(scene.last.records, history, encode_trace(history.trace)))
            historian.committed(before[1])
        return reply

    with patch.object(Scene, "do", do):
        log()
    return found


def made_again(group: str, written: Sequence[Written], *, traced: bool, code: str = CODE) -> GroupReplay:
    """Return what comes of decisions that were written down, all of one day, when they are made again by ``code``."""
    last = sum(len(one.records) for one in written)
    plan = GroupPlan(group, 0, known=True, first=1, last=last, missing=0, ends=True)
    again = GroupReplay(plan, begin_ms=0, code=code, has_histories=True)
    version = 0
    for one in written:
        at_ms, history = one.history.at_ms, one.history
        if traced:
            again.trace(version, TRACE_VERSION, one.trace, at_ms)
        if history.changes:
            again.history(version, msgspec.json.encode(history.changes), at_ms)
        if history.generation is not None:
            again.generation(version, msgspec.json.encode(history.generation), at_ms)
        for record in one.records:
            version += 1
            again.record(version, record, at_ms)
    again.end()
    return again
