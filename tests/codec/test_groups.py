"""A stored group comes back as it was, decides as it would have decided, and is refused where there is any doubt."""

import json
from dataclasses import fields, replace
from pathlib import Path

import msgspec
import pytest
from tests.simulate.worlds import run_many

from batonpass.codec import groups as codec
from batonpass.codec.groups import FIELDS, GROUP_VERSION, UnreadableGroup, decode_group, encode_group
from batonpass.codec.records import encode_records
from batonpass.core.decide import Decision, decide
from batonpass.core.state.ids import GroupId, TaskId
from batonpass.core.state.inputs import Input
from batonpass.core.state.model import Group, LoadMove, Subtopology, Task, Topology
from batonpass.core.state.pmap import PMap
from batonpass.core.state.policy import BalanceBy, GroupConfig, Policy
from batonpass.core.state.soft import Soft
from batonpass.core.state.topology import build_table, table_of
from batonpass.simulate import coordinator

FIXTURES = Path(__file__).parent.parent / "fixtures" / "groups-v1.json"
STEPS = 6_000


def test_a_group_comes_back_and_decides_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """In seeded worlds full of faults; the decisions are equal byte for byte."""
    seen: set[str] = set()
    checked = 0

    def decide_twice(group: Group, soft: Soft, inputs: tuple[Input, ...], now_ms: int, policy: Policy) -> Decision:
        nonlocal checked
        decision = decide(group, soft, inputs, now_ms, policy)
        if decision.records:
            again = decode_group(GROUP_VERSION, encode_group(group))
            assert again == group
            assert again.table == group.table
            same = decide(again, soft, inputs, now_ms, policy)
            assert encode_records(same.records) == encode_records(decision.records)
            seen.update(name for name in (field.name for field in fields(Group)) if getattr(group, name))
            checked += 1
        return decision

    monkeypatch.setattr(coordinator, "decide", decide_twice)
    for outcome in run_many(5, steps=STEPS, worlds=None):
        assert not outcome.failed, outcome.violations[0]
    assert checked > 200
    assert seen >= {"members", "tasks", "instances", "gone", "unsettled", "topology", "losses", "longest_session_ms"}


def test_old_fixtures_stay_readable() -> None:
    stored = json.loads(FIXTURES.read_text())
    group = decode_group(stored["version"], json.dumps(stored["payload"]).encode())
    assert group.id == "orders"
    assert group.version > 50
    assert len(group.members) > 1
    assert sorted(group.tasks) == sorted(group.table.ids)


def test_a_group_from_before_a_field_was_added_is_read_with_its_default() -> None:
    payload = json.loads(encode_group(Group(GroupId("orders"), version=7)))
    payload["fields"]["Task"].pop()
    del payload["group"]["tokens_from"]
    assert decode_group(1, json.dumps(payload).encode()) == Group(GroupId("orders"), version=7)


def test_a_group_from_when_tasks_that_have_ended_were_kept_is_read_without_them() -> None:
    topology = Topology(1, (Subtopology("0", 1),))
    tasks = {TaskId(name): Task(TaskId(name), token=token) for name, token in (("0_0", 9), ("0_1", 5))}
    stored = Group(GroupId("orders"), topology=topology, table=build_table(topology), tasks=PMap(tasks), version=7)
    group = decode_group(GROUP_VERSION, encode_group(stored))
    assert (dict(group.tasks), group.tokens_from, group.version) == ({"0_0": tasks[TaskId("0_0")]}, 5, 7)


def test_measured_loads_come_back_and_weigh() -> None:
    config = GroupConfig(balance_by=BalanceBy.MEASURED)
    loads: PMap[TaskId, float] = PMap({TaskId("0_0"): 4.0})
    moves = (LoadMove(TaskId("0_0"), 5),)
    group = Group(
        GroupId("orders"),
        topology=Topology(1, (Subtopology("0", 2),)),
        config=config,
        loads=loads,
        hot_since_ms=7,
        load_moves=moves,
    )
    group = replace(group, table=table_of(group))
    assert decode_group(GROUP_VERSION, encode_group(group)) == group
    assert group.table.weight == (4.0, 4.0)


def test_weights_of_tasks_come_back_and_weigh() -> None:
    """A group that was stored before there were any has none."""
    part = Subtopology("0", 2, task_weights={TaskId("0_1"): 4.0})
    topology = Topology(1, (part,))
    group = Group(GroupId("orders"), topology=topology, table=build_table(topology))
    payload = encode_group(group)
    assert decode_group(GROUP_VERSION, payload) == group
    assert decode_group(GROUP_VERSION, payload).table.weight == (1.0, 4.0)
    old = json.loads(payload)
    del old["group"]["topology"]["subtopologies"][0]["task_weights"]
    assert decode_group(GROUP_VERSION, json.dumps(old).encode()).table.weight == (1.0, 1.0)


@pytest.mark.parametrize(
    ("version", "change"),
    [
        (GROUP_VERSION + 1, {}),
        (0, {}),
        (1, {"fields": {"Task": ["id", "somebody_else", "owner"]}}),
        (1, {"fields": {"Task": [*FIELDS["Task"], "later"]}}),
        (1, {"group": {"id": "orders", "version": "many"}}),
        (1, {"group": None}),
    ],
)
def test_a_snapshot_that_is_in_doubt_is_not_read(version: int, change: dict[str, object]) -> None:
    """It is refused, as the records are there instead."""
    payload = json.loads(encode_group(Group(GroupId("orders")))) | change
    with pytest.raises(UnreadableGroup):
        decode_group(version, json.dumps(payload).encode())


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b'{"group":{"id":"a"}}', b"null"])
def test_damage_is_not_read(payload: bytes) -> None:
    with pytest.raises(UnreadableGroup):
        decode_group(1, payload)


def test_an_older_version_is_brought_to_the_present_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group two versions old goes through both steps, in order."""
    monkeypatch.setattr(codec, "GROUP_VERSION", 3)
    monkeypatch.setitem(codec.UPCASTS, 1, lambda old: {"fields": old["fields"], "both": old["grp"]})
    monkeypatch.setitem(codec.UPCASTS, 2, lambda old: {"fields": old["fields"], "group": old["both"]})
    payload = json.loads(encode_group(Group(GroupId("orders"), version=7)))
    payload["grp"] = payload.pop("group")
    assert decode_group(1, json.dumps(payload).encode()).version == 7


def test_what_was_stored_is_stored_again_under_the_same_names() -> None:
    """Whatever a field is called in the program by now."""
    stored = json.loads(FIXTURES.read_text())
    payload = stored["payload"]
    again = json.loads(encode_group(decode_group(stored["version"], json.dumps(payload).encode())))
    # Which instances are kept out, the faults of hosts, and moves for load have come since then.
    assert set(again["fields"]) - set(payload["fields"]) == {"KeptOut", "Fault", "HostFaults", "LoadMove"}
    assert [name for name in again["fields"] if name in payload["fields"]] == list(payload["fields"])
    for name, known in payload["fields"].items():
        assert again["fields"][name][: len(known)] == known
    assert list(again["group"])[: len(payload["group"])] == list(payload["group"])
    changed = {name for name, value in payload["group"].items() if again["group"][name] != value}
    # Tasks remember when they ran, and failures how they ended. Tasks have had weights of their own since then, groups
    # a word on Kafka, members a limit on their disks, doubts of their state and a turn; an unsettled task is queued,
    # open or waiting.
    assert changed <= {"topology", "config", "unsettled", "members", "gone", "tasks"}
    more: dict[str, object] = {"max_disk_bytes": None, "place_since_ms": None, "doubts": {}, "tried_ms": 0}
    members = {name: one | more for name, one in payload["group"]["members"].items()}
    assert again["group"]["members"] == members
    # A setting that has come since then has its default.
    assert again["group"]["config"] == json.loads(msgspec.json.encode(GroupConfig())) | payload["group"]["config"]


def test_a_group_with_every_field_of_this_program_is_current() -> None:
    """Only such a group can be compared with what its records come to: a field that was not written has a default."""
    payload = encode_group(Group(GroupId("g")))
    assert codec.is_current(GROUP_VERSION, payload)
    assert not codec.is_current(GROUP_VERSION - 1, payload)
    stored = json.loads(payload)
    del stored["group"]["hosts"]
    assert not codec.is_current(GROUP_VERSION, json.dumps(stored).encode())
