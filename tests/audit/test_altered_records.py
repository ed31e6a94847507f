"""Whatever field of whatever record is altered, the audit finds it while the record's trace is kept."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest
from tests.audit.replayed import made_again, written
from tests.core import test_doubts, test_load
from tests.core.scene import Scene, topology
from tests.runtime import stories
from tests.runtime.test_historian import Written

from batonpass.audit.entries import read_entries
from batonpass.codec.records import RECORD_TYPES, StoredRecord, encode_record
from batonpass.core.state.ids import InstanceId, MemberId
from batonpass.core.state.inputs import Leave, StreamsProcess, StreamsRebalance
from batonpass.core.state.records import ProbeScheduled


def measures() -> None:
    """A member is too hot for long, and tasks are moved for it."""
    scene = test_load.begin()
    test_load.run(scene, test_load.skewed(scene), 2 * test_load.PATIENCE)


def doubts() -> None:
    """A changelog was deleted and made again: a copy of it is doubted until it begins anew."""
    scene = test_doubts.begin()
    test_doubts.read(scene, 10)
    scene.beat("m2", {})


def shrinks() -> None:
    """A Kafka Streams application has one task less."""
    scene = Scene()
    for tasks in (2, 1):
        scene.do(StreamsRebalance(topology(tasks), {}, (StreamsProcess(InstanceId("p"), 1.0, {}, {}),)))


def forgets() -> None:
    """A member left so long ago that its id may be used again."""
    scene = stories.alone()
    scene.join("b")
    scene.do(Leave(MemberId("b")))
    scene.now_ms += scene.policy.gone_retention_ms + 1
    scene.tick(1)


# Whose solver fails is a stand-in; decided again, there is a solver.
LOGS: Final = (
    *(one for one in stories.STORIES if one is not stories.fails_to_be_placed),
    *(measures, doubts, shrinks, forgets),
)


def altered(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a value of JSON with each of its innermost values altered, by its path; of a list or a map, the first."""
    match value:
        case dict():
            for name, inner in value.items():
                for path, other in altered(inner):
                    yield f"{name}.{path}", value | {name: other}
        case list():
            for first in value[:1]:
                for path, other in altered(first):
                    yield path, [other, *value[1:]]
        case bool():
            yield "", not value
        case int() | float():
            yield "", value + 1
        case str():
            yield "", f"{value}x"
        case _:
            yield "", 1


@pytest.fixture(scope="module")
def logs() -> list[list[Written]]:
    """What coordinators would write of many things that happen to a group."""
    return [written(log) for log in LOGS]


@pytest.mark.parametrize("kind", RECORD_TYPES)
def test_any_altered_field_of_a_record_is_found(logs: list[list[Written]], kind: str) -> None:
    tried = set[str]()
    for log in logs:
        for number, decision in enumerate(log):
            for place, record in enumerate(decision.records):
                if not isinstance(record, RECORD_TYPES[kind]):
                    continue
                stored = encode_record(record)
                # A record without a field becomes another one.
                others = altered(json.loads(stored.payload)) if stored.payload != b"{}" else [("", None)]
                for path, other in others:
                    if path in tried:
                        continue
                    tried.add(path)
                    payload = StoredRecord(kind, stored.version, json.dumps(other).encode())
                    _, read = read_entries(1, 0, 1, payload) if other is not None else ((), ProbeScheduled(7))
                    records: Any = (*decision.records[:place], read, *decision.records[place + 1 :])
                    damaged = [*log[:number], replace(decision, records=records), *log[number + 1 :]]
                    found = {one.law for one in made_again("g", damaged, traced=True).kept.first()}
                    # What cannot be read is found where it is read; nothing is decided again from there on.
                    assert ("replay-incomplete" if read is None else "L10") in found, path
    assert tried
