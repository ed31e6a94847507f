"""A silence on Kafka is not judged by a coordinator that does not listen to it (L5)."""

import asyncio
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from tests.contracts.memory_store import MemoryStore
from tests.runtime.fakes import GROUP, M1, M2, SetClock
from tests.waiting import until

from batonpass.bootstrap import Process, build
from batonpass.codec.answers import to_json
from batonpass.codec.requests import read_declaration
from batonpass.core.state.ids import GroupId, InstanceId, MemberId
from batonpass.core.state.inputs import Heartbeat, Join, Leave, Tick
from batonpass.core.state.replies import Answer, Declared
from batonpass.core.state.soft import Soft
from batonpass.runtime import unheard
from batonpass.runtime.ports import Commit
from batonpass.settings import Settings

SESSION_MS = 30_000


@pytest.fixture
def clock() -> SetClock:
    """Return the clock of a store."""
    return SetClock(1_000_000)


class Line:
    """Reads the partitions of the heartbeats that a test says."""

    is_connected = False

    def __init__(self) -> None:
        self.read: set[int] = set()
        self.elsewhere: set[GroupId] = set()

    def reads(self, partition: int) -> bool:
        """Whether it reads one."""
        return partition in self.read


async def taken_over(clock: SetClock, **config: Any) -> Process:
    """Return a coordinator that has just taken over a group of members that another one has heard."""
    store = MemoryStore(clock)
    first, second = (build(Settings(auth="off"), store) for _ in range(2))
    topology = {"subtopologies": [{"id": "0", "partitions": 4, "stateful": False}]}
    body = to_json({"topology": topology, "config": {"session_timeout_ms": SESSION_MS} | config})
    assert isinstance(await first.coordinator.ask(GROUP, read_declaration(GROUP, body, if_match=None)[0]), Declared)
    for member_id in (M1, M2):
        await first.coordinator.ask(GROUP, Join(member_id, instance_id=InstanceId(member_id)))
        assert isinstance(await first.coordinator.ask(GROUP, Heartbeat(member_id, 1, 1)), Answer)
    await first.coordinator.stop()
    clock.at_ms += 1_000
    await second.coordinator.start()
    return second


async def pass_time(process: Process, clock: SetClock, heard: tuple[MemberId, ...] = ()) -> set[str]:
    """Let three session timeouts pass in which only some members are heard; return who has not expired."""
    for seq in range(2, 92):
        clock.at_ms += SESSION_MS // 30
        process.unheard.look()
        for member_id in heard:
            await process.coordinator.ask(GROUP, Heartbeat(member_id, seq, 1))
        await process.coordinator.ask(GROUP, Tick())
    group, _ = await process.coordinator.look(GROUP)
    return set(group.members)


async def test_nobody_expires_whom_a_coordinator_without_the_setting_cannot_hear(
    clock: SetClock, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    process = await taken_over(clock, kafka_heartbeats=True)
    assert await pass_time(process, clock) == {M1, M2}
    said = caplog.text + "".join(capsys.readouterr())
    assert said.count("kafka-not-listened-to") == 1
    assert "BATONPASS_KAFKA_HEARTBEATS" in said
    shown, _ = await process.health.scrape("")
    assert b"batonpass_groups_not_heard_over_kafka 1.0" in shown


async def test_who_is_heard_over_http_expires_as_ever(clock: SetClock) -> None:
    process = await taken_over(clock, kafka_heartbeats=True)
    await process.coordinator.ask(GROUP, Heartbeat(M1, 2, 1))
    await process.coordinator.ask(GROUP, Join(MemberId("m3")))
    assert await pass_time(process, clock) == {M2}


async def test_without_the_groups_setting_silence_is_silence(clock: SetClock) -> None:
    process = await taken_over(clock)
    assert await pass_time(process, clock, heard=(M1,)) == {M1}
    assert process.unheard.groups == set()


async def test_a_coordinator_that_listens_judges_once_it_does(clock: SetClock) -> None:
    """One that is started while the cluster is away does not know either who speaks over Kafka."""
    process, line = await taken_over(clock, kafka_heartbeats=True), Line()
    process.unheard.line = line
    assert await pass_time(process, clock) == {M1, M2}
    line.is_connected = True
    assert await pass_time(process, clock) == set()


async def test_who_was_heard_over_kafka_counts_as_heard_while_its_partition_is_not_read(clock: SetClock) -> None:
    """And for a whole session timeout after that."""
    process, line = await taken_over(clock, kafka_heartbeats=True), Line()
    process.unheard.line, line.is_connected = line, True
    for partition, member_id in enumerate((M1, M2)):
        await process.coordinator.ask(GROUP, Heartbeat(member_id, 2, 1))
        process.unheard.heard(GROUP, member_id, partition)
    line.read = {1}
    assert await pass_time(process, clock) == {M1}
    _, soft = await process.coordinator.look(GROUP)
    assert clock.at_ms - soft.of(M1).heard_ms < SESSION_MS // 10
    line.read = {0, 1}
    assert await pass_time(process, clock) == set()


async def test_who_was_heard_over_kafka_counts_as_heard_while_others_answer_for_its_group(clock: SetClock) -> None:
    """Coordinators of another database, by mistake: nothing is granted here of what its members may run there."""
    process, line = await taken_over(clock, kafka_heartbeats=True), Line()
    process.unheard.line, line.is_connected, line.read = line, True, {0}
    for member_id in (M1, M2):
        await process.coordinator.ask(GROUP, Heartbeat(member_id, 2, 1))
    process.unheard.heard(GROUP, M1, 0)
    line.elsewhere = {GROUP, GroupId("of-others")}
    assert await pass_time(process, clock) == {M1}
    assert process.unheard.groups == {GROUP}


async def test_who_was_heard_over_kafka_is_forgotten_once_it_is_gone(
    clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store is away it is not."""
    process, line = await taken_over(clock, kafka_heartbeats=True), Line()
    process.unheard.line, line.is_connected = line, True
    await process.coordinator.ask(GROUP, Leave(M1))
    for member_id in (M1, M2):
        process.unheard.heard(GROUP, member_id, 0)
    heard = Mock()
    monkeypatch.setattr(process.coordinator, "hear", heard)
    for _ in range(2):
        process.unheard.look()
    assert [one.args for one in heard.call_args_list] == [(GROUP, [M2])] * 2
    assert process.unheard.groups == set()


async def test_who_is_away_to_restart_is_not_heard(clock: SetClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be refused, again and again."""
    process = await taken_over(clock, kafka_heartbeats=True)
    await process.coordinator.ask(GROUP, Leave(M1, restart=True))
    process.unheard.heard(GROUP, M1, 0)
    heard = Mock()
    monkeypatch.setattr(process.coordinator, "hear", heard)
    clock.at_ms += SESSION_MS // 2
    process.unheard.look()
    assert [one.args for one in heard.call_args_list] == [(GROUP, [M2])]


async def test_a_group_that_is_held_up_keeps_no_other_from_being_heard_or_told(
    clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may have locked its rows."""
    process, locked = await taken_over(clock, kafka_heartbeats=True), GroupId("locked")
    append, may_end = process.store.log.append, asyncio.Event()

    async def held_up(commit: Commit, *more: Any) -> Any:
        if commit.group_id == locked and commit.expected_version:
            await may_end.wait()
        return await append(commit, *more)

    monkeypatch.setattr(process.store.log, "append", held_up)
    monkeypatch.setattr("batonpass.runtime.coordinator.TELL_S", 0.01)
    body = to_json({"topology": {"subtopologies": [{"id": "0", "partitions": 1}]}})
    assert isinstance(await process.coordinator.ask(locked, read_declaration(locked, body, if_match=None)[0]), Declared)
    assert await process.coordinator.tell(locked, Join(M1)) is None
    process.coordinator.hear(locked, [M1])
    assert isinstance(await process.coordinator.tell(GROUP, Heartbeat(M1, 2, 1)), Answer)
    process.coordinator.hear(GROUP, [M2])
    await until(lambda: soft_of(process, GROUP).of(M2).heard_ms == clock.at_ms)
    may_end.set()
    assert isinstance(await process.coordinator.ask(locked, Heartbeat(M1, 2, 1)), Answer)


def soft_of(process: Process, group_id: GroupId) -> Soft:
    return next(soft for group, soft in process.coordinator.loaded_groups() if group.id == group_id)


async def test_a_coordinator_looks_for_as_long_as_it_runs(clock: SetClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unheard, "LOOK_S", 0)
    process = await taken_over(clock, kafka_heartbeats=True)
    async with process.running():
        await until(lambda: process.unheard.groups == {GROUP})
        clock.at_ms += SESSION_MS // 2
        _, before = await process.coordinator.look(GROUP)
        await until(lambda: process.coordinator.loaded_groups()[0][1].of(M1).heard_ms == clock.at_ms)
        assert replace(before.of(M1), heard_ms=clock.at_ms).seq == -1


def test_with_the_setting_a_coordinator_listens() -> None:
    settings = {"auth": "off", "kafka_bootstrap": "127.0.0.1:1", "kafka_heartbeats": True}
    process = build(Settings.model_validate(settings), MemoryStore())
    (exchange,) = (part for part in process.kafka if type(part).__name__ == "Exchange")
    assert process.unheard.line is exchange
    assert not process.unheard.line.is_connected
