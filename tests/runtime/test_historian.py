"""What is committed beside the records is enough to rebuild who held what, and to decide everything again."""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.core.relay import Relay
from tests.core.scene import Scene, failed, topology
from tests.core.small_application import Application
from tests.core.test_streams import Leader

from batonpass.codec.traces import (
    TRACE_VERSION,
    Trace,
    UnreadableTrace,
    decode_trace,
    encode_trace,
    replay,
    soft_after,
    soft_delta,
)
from batonpass.core.decide import decide
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    DrainReversal,
    EndOffsets,
    Eviction,
    Input,
    Join,
    Leave,
    PauseRequest,
    ProbeRequest,
    ResumeRequest,
    Started,
    Tick,
)
from batonpass.core.state.model import Group
from batonpass.core.state.pmap import PMap
from batonpass.core.state.policy import Policy
from batonpass.core.state.records import Record
from batonpass.core.state.replies import Done, Reply
from batonpass.core.state.soft import EndOffset, MemberSoft, Refused, Soft
from batonpass.core.target import retarget
from batonpass.invariants import check_repeated
from batonpass.placement.flow import PlacementError
from batonpass.runtime.events import EventType
from batonpass.runtime.history import NOBODY_ASKED, Historian, History

FIXTURES = Path(__file__).parents[1] / "fixtures" / "traces-v1.jsonl"


@dataclass
class Written:
    """What went into the log with one decision."""

    records: tuple[Record, ...]
    history: History
    trace: bytes = field(repr=False)


class Chronicle(Scene):
    """A scene whose decisions are written down as a coordinator would."""

    def __init__(self, **fields: object) -> None:
        super().__init__(**fields)  # type: ignore[arg-type]
        self.historian = Historian(self.policy, "code-1")
        self.written: list[Written] = []
        self.traced = Soft()
        """On what the last decision that was written was made."""

    def do(self, item: Input) -> Reply:
        """Let ``item`` happen, and write down what it changed."""
        before = self.group, self.soft
        reply = super().do(item)
        assert self.last is not None
        if self.last.records:
            history = self.historian.history(NOBODY_ASKED, (item,), before, self.last, at=(self.now_ms, 0.5))
            assert history.trace is not None
            self.written.append(Written(self.last.records, history, encode_trace(history.trace)))
            self.historian.committed(before[1])
            self.traced = before[1]
        return reply


def played(seed: int) -> Chronicle:
    """Return what was written of some hundred random things that happened to a group."""
    fate = random.Random(seed)
    relay = Relay(topology(12))
    scene = Chronicle()
    relay.scene = scene
    scene.declare(topology(12), acceptable_recovery_lag=100, num_standby_replicas=1)
    present: list[str] = []
    for number in range(80):
        choice = fate.random()
        if choice < 0.2 or len(present) < 2:
            present.append(f"m{number}")
            relay.join(present[-1], instance_id=f"i{number}" if fate.random() < 0.5 else None)
        elif choice < 0.3:
            _happen(scene, fate, present)
        scene.wait(fate.choice((100, 5_000)))
        present = [name for name in present if MemberId(name) in scene.group.members]
        relay.silent = {MemberId(name) for name in present if scene.member(name).away_until_ms is not None}
        relay.round()
        if fate.random() < 0.1:
            scene.soft = Soft()
            scene.historian.begin_anew()
            scene.ok(Started(), Done)
    return scene


def _happen(scene: Scene, fate: random.Random, present: list[str]) -> None:
    member_id = MemberId(fate.choice(present))
    member = scene.group.members[member_id]
    actives = [task for task, grant in member.assignment.items() if grant.token]
    what = fate.randrange(6)
    if what == 0:
        scene.do(Leave(member_id, restart=member.instance_id is not None))
    elif what == 1:
        scene.do(Eviction(member_id, dead=True))
    elif what == 2:
        scene.do(DrainRequest(member_id))
    elif what == 3:
        scene.do(DrainReversal(member_id))
    elif what == 4:
        scene.do(PauseRequest(reason="seen in a test"))
        scene.do(ResumeRequest())
    elif actives:
        scene.beat(member_id, {actives[0]: failed()})


def test_advice_to_kafka_streams_is_made_again_from_what_was_written() -> None:
    app = Application(random.Random(7), tasks=6)
    app.copies["p9"] = {}
    leader = Leader(6, num_standby_replicas=1)
    leader.scene = scene = Chronicle()
    for _ in range(30):
        app.trouble()
        app.obey(leader.ask(*app.report()))
        app.pass_time()
    group, soft = Group(GroupId("g")), Soft()
    assert len(scene.written) > 20
    for one in scene.written:
        again, soft = replay(group, soft, decode_trace(TRACE_VERSION, one.trace))
        assert again.records == one.records
        group = evolve(group, one.records)


@pytest.mark.parametrize("seed", range(6))
def test_every_decision_is_made_again_from_what_was_written(seed: int) -> None:
    """The records before a trace and the traces up to it lead to the same records, byte for byte (L10)."""
    scene = played(seed)
    group, soft = Group(GroupId("g")), Soft()
    for one in scene.written:
        trace = decode_trace(TRACE_VERSION, one.trace)
        assert trace == one.history.trace
        assert group.version == trace.version
        again, soft = replay(group, soft, trace)
        assert again.records == one.records
        assert check_repeated((again.records, (), None, ()), (one.records, (), None, ())) == []
        group = evolve(group, one.records)
    assert group == scene.group
    assert len(scene.written) > 100


@pytest.mark.parametrize("seed", range(6))
def test_changes_add_up_to_what_members_hold(seed: int) -> None:
    scene = played(seed)
    held: dict[tuple[MemberId, TaskId], str] = {}
    for one in scene.written:
        for change in one.history.changes:
            key = change.member, change.task
            assert held.get(key, "none") == change.role_before, change
            held[key] = change.role
    present = {
        (member.id, task): str(grant.role)
        for member in scene.group.members.values()
        for task, grant in member.assignment.items()
    }
    assert {key: role for key, role in held.items() if role != "none"} == present


def test_a_granted_active_says_whether_it_was_ready() -> None:
    """A handover's grant is warm, a first start's is cold."""
    scene = played(1)
    granted = [
        change
        for one in scene.written
        for change in one.history.changes
        if change.kind == "granted" and change.role == "active"
    ]
    assert {change.warm for change in granted} == {True, False}
    assert all(change.token > 0 for change in granted)
    assert not granted[0].warm
    assert sum(bool(change.why) for change in granted) > len(granted) / 2


def test_generations_say_what_moved_and_how_even_it_became() -> None:
    """A joiner raises the score, and the target for it lowers it."""
    relay = Relay(topology(12))
    scene = Chronicle()
    relay.scene = scene
    scene.declare(topology(12))
    for name in ("m1", "m2", "m3"):
        relay.join(name)
        relay.play()
    generations = [one.history.generation for one in scene.written if one.history.generation]
    assert [one.number for one in generations] == list(range(1, len(generations) + 1))
    first, last = generations[0], generations[-1]
    assert (first.members, first.tasks, len(first.moved)) == (1, 12, 12)
    assert first.triggers
    assert (last.score_before, last.score, last.moves, last.lower_bound) == (6.0, 0.0, 4, 4)
    assert {moved.owner for moved in last.moved if moved.owner != moved.owner_before} == {"m3"}
    assert all(moved.why for moved in last.moved if moved.owner != moved.owner_before)


def test_a_generation_that_nothing_scheduled_came_of_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the placement for the join failed, and a probe makes up for it."""

    def fail(*_: object) -> None:
        raise PlacementError("no flow")

    scene = Chronicle()
    scene.declare(topology(4))
    with monkeypatch.context() as broken:
        broken.setattr(retarget, "place", fail)
        scene.join("a")
        scene.tick(100)
    scene.do(ProbeRequest())
    (one,) = [one.history for one in scene.written if one.history.generation is not None]
    assert one.generation is not None
    assert one.generation.triggers == ("probe",)
    assert [event.body["triggers"] for event in one.events if event.type == EventType.GENERATION] == [["probe"]]


def test_a_trace_names_only_who_was_heard_since_the_one_before() -> None:
    scene = Chronicle()
    scene.declare(topology(4))
    for name in ("m1", "m2", "m3", "m4"):
        scene.join(name)
    scene.do(ResumeRequest())
    scene.beat("m2", {})
    scene.do(PauseRequest(reason="seen in a test"))
    trace = scene.written[-1].history.trace
    assert trace is not None
    assert not trace.soft.from_empty
    assert "m2" in trace.soft.members
    assert "m1" not in trace.soft.members


def test_the_first_trace_of_a_day_says_all() -> None:
    """Traces are kept by the day: a chain that began before the oldest one could not be followed."""
    scene = Chronicle()
    scene.declare(topology(4))
    scene.join("m1")
    scene.do(PauseRequest(reason="seen in a test"))
    scene.now_ms += 86_400_000
    scene.do(ResumeRequest())
    scene.do(PauseRequest(reason="seen in a test"))
    said_all = [one.history.trace.soft.from_empty for one in scene.written if one.history.trace is not None]
    assert said_all[0]
    assert said_all[-3:] == [False, True, False]


def test_traces_of_one_input_from_before_batches_are_read() -> None:
    """Version 1 named one input; each of them is read as a batch of one."""
    soft, kinds = Soft(), []
    for line in FIXTURES.read_text().splitlines():
        trace = decode_trace(1, line.encode())
        soft = soft_after(soft, trace.soft)
        [only] = trace.inputs
        kinds.append(type(only).__name__)
        assert decode_trace(TRACE_VERSION, encode_trace(trace)) == trace
    assert set(kinds) == {"GroupDeclaration", "Join", "Heartbeat", "Tick", "DrainRequest", "Leave"}
    assert [len(known.reports) for _, known in sorted(soft.members.items())] == [4, 4]


def test_a_batch_is_decided_again_from_its_trace() -> None:
    scene = Chronicle()
    scene.declare(topology(4))
    scene.join("m1")
    scene.settle()
    before, inputs = (scene.group, scene.soft), (Join(MemberId("m2")), Leave(MemberId("m1")), Join(MemberId("m3")))
    decision = decide(*before, inputs, scene.now_ms, scene.policy)
    history = Historian(scene.policy, "code-1").history(NOBODY_ASKED, inputs, before, decision, at=(scene.now_ms, 0.5))
    assert history.trace is not None
    trace = decode_trace(TRACE_VERSION, encode_trace(history.trace))
    again, _ = replay(scene.group, Soft(), trace)
    assert (again.records, again.replies, again.reasons) == (decision.records, decision.replies, decision.reasons)


def test_end_offsets_come_back() -> None:
    """JSON has no keys that are pairs of topic and partition."""
    scene = Chronicle()
    scene.declare(topology(1))
    scene.join("m1")
    log = ("store-changelog", 0)
    scene.ok(EndOffsets({log: 70}, scene.now_ms, {log: 12}, {log: 75}), Done)
    scene.join("m2")
    trace = scene.written[-1].history.trace
    assert trace is not None
    assert decode_trace(TRACE_VERSION, encode_trace(trace)) == trace
    assert soft_after(Soft(), trace.soft).begin_offsets == PMap({log: 12})
    assert soft_after(Soft(), trace.soft).end_offsets == PMap(
        {log: EndOffset(70, scene.now_ms, unstable=5, open_since_ms=scene.now_ms)}
    )
    ends = EndOffsets({("a", 1): 5, ("a", 0): 3}, 9, {("a", 0): 2}, {("a", 1): 7})
    assert decode_trace(TRACE_VERSION, encode_trace(replace(trace, inputs=(ends, Tick())))).inputs == (ends, Tick())


def test_an_end_from_before_high_watermarks_were_read_is_the_end_of_its_log() -> None:
    scene = Chronicle()
    scene.declare(topology(1))
    scene.ok(EndOffsets({("log", 0): 70}, scene.now_ms), Done)
    scene.join("m1")
    trace = scene.written[-1].history.trace
    assert trace is not None
    now = f'[70,{scene.now_ms},false,0,null,""]'.encode()
    payload = encode_trace(replace(trace, inputs=(EndOffsets({("log", 0): 70}, scene.now_ms),)))
    assert now in payload
    assert b',"high_watermarks":[]' in payload
    before = payload.replace(now, now.removesuffix(b',0,null,""]') + b"]").replace(b',"high_watermarks":[]', b"")
    assert decode_trace(TRACE_VERSION, before) == decode_trace(TRACE_VERSION, payload)


@pytest.mark.parametrize(
    ("version", "payload"), [(TRACE_VERSION + 1, b"{}"), (TRACE_VERSION, b"{}"), (TRACE_VERSION, b"[")]
)
def test_a_trace_that_cannot_be_read_is_refused(version: int, payload: bytes) -> None:
    """It must not look like a decision that differs."""
    with pytest.raises(UnreadableTrace):
        decode_trace(version, payload)


def test_a_trace_of_an_unknown_input_is_refused() -> None:
    scene = Chronicle()
    scene.declare(topology(1))
    payload = scene.written[0].trace.replace(b'"group-declaration"', b'"group-dissolution"')
    with pytest.raises(UnreadableTrace, match="group-dissolution"):
        decode_trace(TRACE_VERSION, payload)


SOFT = Soft(
    started_ms=1,
    judge_from_ms=2,
    members=PMap({MemberId("m1"): MemberSoft(3, seq=4)}),
    end_offsets=PMap({("t", 0): EndOffset(5, 6)}),
    begin_offsets=PMap({("t", 0): 7}),
    wake_ms=8,
    target_is_provisional=False,
    left_before_joining=PMap({MemberId("m2"): 9}),
    listens_since_ms=10,
    placed_without=frozenset({MemberId("m3")}),
    refused=Refused("the topology has 4 tasks", 11, 12, 3, is_another=True),
    loads_read_ms=13,
    load_tried_ms=14,
    restless=MemberId("m4"),
)


@pytest.mark.parametrize("name", Soft._fields)
def test_whatever_is_softly_known_is_traced(name: str) -> None:
    """So that a decision is made again on what it was made on."""
    before = Soft()
    after = before._replace(**{name: getattr(SOFT, name)})
    assert after != before
    for older, newer in ((before, after), (after, SOFT), (SOFT, before)):
        trace = Trace((Tick(),), 1, 0, soft_delta(older, newer), Policy(), "")
        assert soft_after(older, decode_trace(TRACE_VERSION, encode_trace(trace)).soft) == newer


def test_a_join_that_was_refused_beside_others_is_refused_again() -> None:
    """A batch is decided again with what its inputs were refused for, which no record says."""
    scene = Chronicle()
    scene.declare()
    scene.do(Leave(MemberId("m1")))
    batch = (Join(MemberId("m1")), Join(MemberId("m2")))
    decision = decide(scene.group, scene.soft, batch, scene.now_ms, scene.policy)
    before = scene.group, scene.soft
    history = scene.historian.history(NOBODY_ASKED, batch, before, decision, at=(scene.now_ms, 0.5))
    assert history.trace is not None
    again, _ = replay(scene.group, scene.traced, decode_trace(TRACE_VERSION, encode_trace(history.trace)))
    assert again.records == decision.records
