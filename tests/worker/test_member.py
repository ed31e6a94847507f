"""A member of a real group: it joins, its callbacks are called in order, and it goes in good order."""

import asyncio

import pytest
from tests.waiting import until
from tests.worker.recording import END, Scene, on_virtual_time

from batonpass.codec.answers import to_json
from batonpass.codec.requests import read_declaration
from batonpass.core.state.ids import GroupId
from batonpass.core.state.replies import Declared
from batonpass.worker import Exit, JoinRefused, Member, Phase, Progress, Role
from batonpass.worker.testing import LocalCoordinator


@on_virtual_time
async def test_two_members_share_the_tasks_by_warm_handovers() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=4)
        first, second = scene.worker("first"), scene.worker("second")
        async with scene.member(first, "first"):
            await scene.rest()
            async with scene.member(second, "second"):
                await scene.rest()
                moved = sorted(task for task, owner in scene.ownership.owners.items() if owner == "second")
                assert len(moved) == 2
                assert second.of("warmup") == [(task, None) for task in moved]
                assert sorted(second.of("active")) == [(task, Role.WARMUP, END) for task in moved]
                assert sorted(first.of("revoke")[:2]) == [(task, Role.ACTIVE, True, Role.STANDBY) for task in moved]
                assert sorted(first.of("standby")) == [(task, Role.ACTIVE) for task in moved]
                assert sorted(first.of("revoke")[2:]) == [(task, Role.STANDBY, True, None) for task in moved]
                assert {task: scene.ownership.tokens[task] for task in moved} == {task: [1, 2] for task in moved}
            await scene.rest()
            assert scene.ownership.count("first") == 4
        assert scene.ownership.owners == {}
        assert (await coordinator.describe("orders"))["state"] == "empty"


@on_virtual_time
async def test_a_copy_that_is_promoted_stops_tailing_before_it_processes() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=2)
        second = scene.worker("second")
        async with scene.member(scene.worker("first"), "first"), scene.member(second, "second") as member:
            await scene.rest()
            copy, active = second.begun
            assert (copy.role, active.role) == (Role.WARMUP, Role.ACTIVE)
            assert copy.stopping
            assert not copy.may_process
            assert active.may_process
            copy.failed("a word of the past")
            assert member.holdings[active.id].stage == "running"


@on_virtual_time
async def test_a_member_waits_for_a_coordinator_that_is_away_and_for_a_group_that_is_not_declared() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        worker = scene.worker("a")
        member = scene.member(worker)
        scene.lines["a"].cut()
        member.start()
        await asyncio.sleep(20)
        scene.lines["a"].mend()
        await asyncio.sleep(20)
        assert worker.problems == ["join:unknown-group"]
        await scene.declare()
        await member.joined()
        assert member.phase is Phase.JOINED
        await member.exit()


@on_virtual_time
async def test_a_refusal_that_waiting_does_not_mend_is_raised() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare()
        tags = {f"tag{number}": "x" for number in range(9)}
        with pytest.raises(JoinRefused, match="client_tags") as refused:
            async with scene.member(scene.worker("a"), client_tags=tags):
                pytest.fail("it was let in")
        assert refused.value.problem.status == 422
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


@on_virtual_time
async def test_an_instance_id_in_use_is_waited_for_unless_it_is_taken_over() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(session_timeout_ms=10_000)
        dead = scene.member(scene.worker("dead"), "dead", instance_id="orders-0")
        dead.start()
        await dead.joined()
        await dead.close()
        scene.ownership.owners.clear()
        worker = scene.worker("patient")
        async with scene.member(worker, "patient", instance_id="orders-0", on_exit=Exit.LEAVE):
            assert worker.problems == ["join:instance-id-in-use"]
            assert 9 < asyncio.get_running_loop().time() < 30
            began = asyncio.get_running_loop().time()
            scene.lines["patient"].cut()
            scene.ownership.owners.clear()
            async with scene.member(scene.worker("sure"), "sure", instance_id="orders-0", takeover=True):
                assert asyncio.get_running_loop().time() - began < 1


@on_virtual_time
async def test_the_older_process_of_an_instance_stops_for_good() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=1)
        old = scene.worker("old")
        async with scene.member(old, "old", instance_id="orders-0") as member:
            await scene.rest()
            scene.ownership.owners.clear()
            async with scene.member(scene.worker("new"), "new", instance_id="orders-0", takeover=True):
                assert await member.ended() == "fenced-instance-id"
                await until(lambda: member.tasks == {})
                assert member.phase is Phase.STOPPED
                assert old.of("revoke") == [("0_0", Role.ACTIVE, False, None)]


@on_virtual_time
async def test_a_fenced_member_stops_and_joins_anew_in_its_own_place() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=2)
        worker = scene.worker("a")
        async with scene.member(worker) as member:
            await scene.rest()
            old = member.member_id
            assert old is not None
            await coordinator.evict("orders", old)
            await until(lambda: member.member_id != old, within_s=12)
            await until(lambda: scene.ownership.count("a") == 2, within_s=12)
            assert sorted(worker.of("revoke")) == [(task, Role.ACTIVE, False, None) for task in ("0_0", "0_1")]
            assert scene.ownership.tokens == {"0_0": [1, 2], "0_1": [1, 2]}


@on_virtual_time
async def test_state_on_disk_brings_a_restarted_worker_its_tasks_back() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=2)
        async with scene.member(scene.worker("b"), "b"):
            async with scene.member(scene.worker("a"), "a", instance_id="orders-0") as member:
                await scene.rest()
                mine = [task for task, owner in scene.ownership.owners.items() if owner == "a"]
            assert member.on_disk == {task: Progress.at(END) for task in mine}
            await asyncio.sleep(30)
            again = scene.worker("again")
            async with scene.member(again, "again", instance_id="orders-0", on_disk=member.on_disk):
                await scene.rest()
                assert [task for task, _, _ in again.of("active")] == mine
                assert scene.ownership.count("b") == 1


@on_virtual_time
async def test_a_drained_member_hands_everything_over_before_it_leaves() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=4)
        going, staying = scene.worker("going"), scene.worker("staying")
        async with scene.member(staying, "staying"):
            member = scene.member(going, "going", on_exit=Exit.DRAIN)
            async with member:
                await scene.rest()
                before = len(staying.of("active"))
            assert "drained" in going.statuses
            assert [was for _, was, _ in staying.of("active")[before:]] == [Role.WARMUP, Role.WARMUP]
            assert scene.ownership.count("staying") == 4


@on_virtual_time
async def test_a_drain_that_cannot_end_is_over_at_its_deadline() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare()
        began = asyncio.get_running_loop().time()
        async with scene.member(scene.worker("a"), on_exit=Exit.DRAIN, drain_deadline_ms=20_000):
            await scene.rest()
        assert 20 <= asyncio.get_running_loop().time() - began < 30
        assert (await coordinator.describe("orders"))["members"] == 0


@on_virtual_time
async def test_a_member_can_be_drained_and_undrained_while_it_works() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=1)
        worker = scene.worker("a")
        async with scene.member(worker) as member:
            await scene.rest()
            member.drain()
            await until(lambda: "draining" in worker.statuses or "drain-blocked" in worker.statuses)
            member.undrain()
            await until(lambda: worker.statuses == [])
            assert scene.ownership.count("a") == 1


@on_virtual_time
async def test_a_member_whose_coordinator_is_gone_still_ends() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare()
        worker = scene.worker("a")
        async with scene.member(worker, exit_timeout_ms=15_000):
            await scene.rest()
            scene.lines["a"].cut()
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began <= 15
        assert [commit for _, _, commit, _ in worker.of("revoke")] == [True, True]


@on_virtual_time
async def test_a_member_has_left_when_the_body_of_its_block_fails() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare()
        with pytest.raises(KeyError, match="body"):
            async with scene.member(scene.worker("a")):
                raise KeyError("body")
        assert (await coordinator.describe("orders"))["members"] == 0


@pytest.mark.parametrize("url", ["coordinator:8420", "ftp://coordinator", "http://", []])
def test_a_url_that_is_none_is_refused_at_once(url: str | list[str]) -> None:
    with pytest.raises(ValueError, match="coordinator"):
        Member(url, "orders")


@on_virtual_time
async def test_a_member_that_joins_anew_gets_nothing_that_changed_since_it_began() -> None:
    """It would run a task as it was before, on another changelog than its next owner restores."""
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=1)
        old, new = scene.worker("old"), scene.worker("new")
        async with scene.member(old, "old") as member:
            await scene.rest()
            group_id, first = GroupId("orders"), member.member_id
            group, _ = await coordinator.coordinator.look(group_id)
            part = {"id": "0", "partitions": 1, "changelog_topics": ["orders-changelog", "another"]}
            body = to_json({"topology": {"epoch": group.topology.epoch + 1, "subtopologies": [part]}})
            declared, _ = read_declaration(group_id, body, if_match=group.revision)
            assert isinstance(await coordinator.coordinator.ask(group_id, declared), Declared)
            await coordinator.answer("POST", f"/v1/groups/orders/members/{first}/evict")
            await until(lambda: member.member_id != first and member.phase is Phase.JOINED)
            await asyncio.sleep(60)
            assert not member.holdings
            assert "stale-topology" in [status.code for status in member.statuses]
            async with scene.member(new, "new") as other:
                await until(lambda: "0_0" in other.holdings)
                assert not member.holdings
