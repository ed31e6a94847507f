"""What it costs to persist a generation: the first one of a group, and a change of up to a hundred tasks."""

import time
from dataclasses import dataclass
from statistics import median

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.benchmarks.groups import EQUAL_WEIGHTS, POLICY, Moment, Shape, prepare
from tests.benchmarks.operations import inputs_of
from tests.postgres.unleased import unleased_log

from batonpass.codec.code import code_version
from batonpass.core.state.ids import GroupId
from batonpass.core.state.inputs import Input
from batonpass.postgres.connect import connect
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.runtime.history import NOBODY_ASKED, Historian
from batonpass.runtime.ports import Commit

# A member of the first shape has 100 tasks, 50 of them as standby: its leaving is the change of up to 100 of the bar.
SHAPES = (Shape(1_000, 20, 1), Shape(10_000, 100, 1), Shape(100_000, 1_000, 1))


@dataclass(frozen=True, slots=True)
class Persisted:
    """Milliseconds: to write down and to append a first generation, to append a change, and to commit one row."""

    shape: Shape
    write_down: float
    first: float
    changed_tasks: int
    change: float
    one_row: float


async def persist(url: str, shape: Shape, *, rounds: int = 3, changes: int = 30) -> Persisted:
    """Time the appends of one shape, each to a group of its own name."""
    stage = prepare(shape, EQUAL_WEIGHTS)
    operations = inputs_of(stage)
    engine = connect(url)
    writing = connect(url, connections_max=2, keeps_plans=True)
    log = unleased_log(engine, writing=writing)
    await log.get_ready()
    try:
        first, write_down = [], []
        for number in range(rounds):
            group_id = GroupId(f"first-{shape.tasks}-{number}")
            began = time.perf_counter()
            commit = written(group_id, *operations["first"][0], version=0)
            write_down.append((time.perf_counter() - began) * 1_000)
            first.append(await _append(log, commit))
        group_id, version, took, rows = GroupId(f"change-{shape.tasks}"), 0, [], []
        at, item = operations["leave"][0]
        epoch = await log.take_over(group_id)
        commit = written(group_id, at, item, version=0, epoch=epoch)
        for number in range(
            changes
        ):  # In turns, because what the disk and the machine take changes from second to second.
            commit = written(group_id, at, item, version=version, epoch=epoch)
            began = time.perf_counter()
            await log.append(commit)
            took.append((time.perf_counter() - began) * 1_000)
            version += len(commit.records)
            began = time.perf_counter()
            await commit_one_row(engine, f"{shape.tasks}-{number}")
            rows.append((time.perf_counter() - began) * 1_000)
        tasks = len({change.task for change in commit.history.changes})
        return Persisted(shape, min(write_down), min(first), tasks, median(took), median(rows))
    finally:
        await writing.dispose()
        await engine.dispose()


async def commit_one_row(engine: AsyncEngine, name: str) -> None:
    """Commit the least that there is to commit, under a name that is not taken."""
    async with engine.connect() as connection:
        await connection.execute(text("insert into outbox_readers values (:name, 1)"), {"name": name})


def written(group_id: GroupId, at: Moment, item: Input, *, version: int, epoch: int = 1) -> Commit:
    """Return a decision as an engine commits it."""
    decision = at.decide(item)
    historian = Historian(POLICY, code_version())
    historian.committed(at.soft)  # What the trace before said of every member is not repeated.
    history = historian.history(NOBODY_ASKED, (item,), (at.group, at.soft), decision, at=(at.now_ms, 1.0))
    return Commit(group_id, epoch, version, decision.records, history)


async def _append(log: PostgresRecordLog, commit: Commit) -> float:
    await log.take_over(commit.group_id)
    began = time.perf_counter()
    await log.append(commit)
    return (time.perf_counter() - began) * 1_000
