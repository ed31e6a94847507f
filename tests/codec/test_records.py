"""Records survive their stored form, old ones are brought up, and what cannot be read or written is refused."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.codec import records as codec
from batonpass.codec.records import (
    RECORD_TYPES,
    StoredRecord,
    UnreadableRecord,
    UnwritableRecord,
    decode_record,
    decode_records,
    encode_record,
    encode_records,
)
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import Grant, Member, Revocation, Role, Subtopology, Topology
from batonpass.core.state.pmap import PMap
from batonpass.core.state.records import (
    AssignmentChanged,
    MemberJoined,
    ProbeScheduled,
    RebalanceScheduled,
    Record,
    TopologyChanged,
)

FIXTURES = Path(__file__).parent.parent / "fixtures" / "records-v1.jsonl"
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(st.characters(codec="utf-8"), max_size=8),
    NoneType: st.none(),
}


def of(hint: Any) -> st.SearchStrategy[Any]:
    """Return values of a type as records use types."""
    hint = getattr(hint, "__supertype__", hint)
    if hint in PLAIN:
        return PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return st.one_of([of(choice) for choice in args])
    if origin is tuple:
        return st.lists(of(args[0]), max_size=3).map(tuple) if args[-1] is ... else st.tuples(*map(of, args))
    if origin is PMap:
        return st.dictionaries(of(args[0]), of(args[1]), max_size=3).map(PMap)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(of(args[0]), of(args[1]), max_size=3)
    if issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    names = [field.name for field in fields(hint)] if is_dataclass(hint) else hint._fields
    hints = get_type_hints(hint)
    return st.builds(hint, **{name: of(hints[name]) for name in names})


@pytest.mark.parametrize("kind", sorted(RECORD_TYPES))
@settings(deadline=None)
@given(data=st.data())
def test_every_record_survives_its_stored_form(kind: str, data: st.DataObject) -> None:
    record: Record = data.draw(of(RECORD_TYPES[kind]))
    stored = encode_record(record)
    assert (stored.kind, stored.version) == (kind, 1)
    assert decode_record(stored) == record


def test_every_kind_that_was_ever_written_can_be_read() -> None:
    seen = set()
    for line in FIXTURES.read_text().splitlines():
        entry = json.loads(line)
        stored = StoredRecord(entry["kind"], entry["version"], json.dumps(entry["payload"]).encode())
        assert type(decode_record(stored)) is RECORD_TYPES[entry["kind"]]
        seen.add(entry["kind"])
    assert seen == set(RECORD_TYPES)


def test_a_topology_from_before_weights_of_tasks_is_read_without_them() -> None:
    """The field came later, with a default: neither way needs another version."""
    record = TopologyChanged(Topology(2, (Subtopology("0", 4, task_weights={TaskId("0_3"): 5.0}),)))
    stored = encode_record(record)
    assert decode_record(stored) == record
    old = json.loads(stored.payload)
    del old["topology"]["subtopologies"][0]["task_weights"]
    plain = TopologyChanged(Topology(2, (Subtopology("0", 4),)))
    assert decode_record(stored._replace(payload=json.dumps(old).encode())) == plain


def test_an_assignment_from_before_lags_of_warmups_and_stuck_actives_is_read_without_them() -> None:
    """The fields came later, with defaults: neither way needs another version."""
    grant = Grant(Role.WARMUP, 3, 1_000)
    record = AssignmentChanged(MemberId("m1"), 3, 1_000, {TaskId("0_3"): grant}, lags={TaskId("0_3"): 5})
    stored = encode_record(record)
    assert decode_record(stored) == record
    old = json.loads(stored.payload)
    assert list(old)[-2:] == ["lags", "stuck"]
    del old["lags"], old["stuck"]
    assert decode_record(stored._replace(payload=json.dumps(old).encode())) == replace(record, lags={})


def test_a_persistent_mapping_comes_back_as_one() -> None:
    grant = Grant(Role.ACTIVE, 3, 1_000, 41, (("", 905),))
    member = Member(
        MemberId("m1"),
        joined_ms=1,
        assignment=PMap({TaskId("0_1"): grant}),
        revoking=PMap({TaskId("0_2"): Revocation(3, 1_000, active=True)}),
    )
    read = decode_record(encode_record(MemberJoined(member)))
    assert isinstance(read, MemberJoined)
    assert isinstance(read.member.assignment, PMap)
    assert read.member.assignment[TaskId("0_1")] == grant
    assert read.member.revoking[TaskId("0_2")].active is True


def test_order_is_kept() -> None:
    batch: list[Record] = [ProbeScheduled(1), RebalanceScheduled(2, "join"), ProbeScheduled(3)]
    assert decode_records(encode_records(batch)) == tuple(batch)


def test_an_unknown_kind_is_refused() -> None:
    """To skip it would lose a fact of the group."""
    with pytest.raises(UnreadableRecord, match="no record kind 'group-renamed'"):
        decode_record(StoredRecord("group-renamed", 1, b"{}"))


@pytest.mark.parametrize("version", [0, 2])
def test_an_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(UnreadableRecord, match="version"):
        decode_record(StoredRecord("probe-scheduled", version, b'{"at_ms": 1}'))


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"{}", b'{"at_ms": "1"}', b'{"at_ms": 1.5}'])
def test_a_damaged_payload_is_refused(payload: bytes) -> None:
    with pytest.raises(UnreadableRecord, match="probe-scheduled, version 1"):
        decode_record(StoredRecord("probe-scheduled", 1, payload))


def test_an_old_payload_is_brought_to_the_present_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload two versions old goes through both steps, in order."""
    monkeypatch.setitem(codec.VERSIONS, "probe-scheduled", 3)
    monkeypatch.setitem(codec.UPCASTS, ("probe-scheduled", 1), lambda old: {"at_s": old["when"]})
    monkeypatch.setitem(codec.UPCASTS, ("probe-scheduled", 2), lambda old: {"at_ms": old["at_s"] * 1_000})
    assert decode_record(StoredRecord("probe-scheduled", 1, b'{"when": 7}')) == ProbeScheduled(7_000)


def test_a_record_is_written_in_a_version_that_everybody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a program two versions behind; what no program reads is refused."""
    monkeypatch.setitem(codec.VERSIONS, "probe-scheduled", 3)
    monkeypatch.setitem(codec.DOWNCASTS, ("probe-scheduled", 3), lambda new: {"at_s": new["at_ms"] // 1_000})
    monkeypatch.setitem(codec.DOWNCASTS, ("probe-scheduled", 2), lambda new: {"when": new["at_s"]})
    record = ProbeScheduled(7_000)
    assert encode_record(record) == StoredRecord("probe-scheduled", 3, b'{"at_ms":7000}')
    assert encode_record(record, {"probe-scheduled": 9}) == encode_record(record)
    assert encode_record(record, {"probe-scheduled": 2}) == StoredRecord("probe-scheduled", 2, b'{"at_s":7}')
    assert encode_record(record, {"probe-scheduled": 1}) == StoredRecord("probe-scheduled", 1, b'{"when":7}')
    with pytest.raises(UnwritableRecord, match="cannot read"):
        encode_record(record, {})


def test_what_has_no_stored_form_is_refused() -> None:
    """A value that JSON cannot carry fails when it is written, not when it is read."""
    with pytest.raises(UnwritableRecord, match="picture-changed"):
        encode_record(AssignmentChanged(MemberId("m1"), 1, 1, granted={TaskId("0_1"): object()}))  # type: ignore[dict-item]
    with pytest.raises(UnwritableRecord, match="not a record"):
        encode_record("m1")  # type: ignore[arg-type]


def test_what_was_stored_is_stored_again_under_the_same_names() -> None:
    """Whatever a field is called in the program by now."""
    for line in FIXTURES.read_text().splitlines():
        entry = json.loads(line)
        stored = StoredRecord(entry["kind"], entry["version"], json.dumps(entry["payload"]).encode())
        again = encode_record(decode_record(stored))
        assert again.kind == entry["kind"]
        assert_kept(entry["payload"], json.loads(again.payload))


def assert_kept(stored: Any, again: Any) -> None:
    """Assert that everything that was stored is stored again, in the same order; there may be more at the end."""
    if isinstance(stored, dict):
        assert list(again)[: len(stored)] == list(stored), (
            "a field that is new comes after those that were stored before"
        )
        for name, value in stored.items():
            assert_kept(value, again[name])
    elif isinstance(stored, list):
        assert len(again) >= len(stored)
        for value, value_again in zip(stored, again, strict=False):
            assert_kept(value, value_again)
    else:
        assert again == stored
