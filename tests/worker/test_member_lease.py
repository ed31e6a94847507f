"""Until when a member believes in its tasks, with the coordinator away, slow, refusing, or the machine asleep."""

import asyncio

import pytest
from tests.waiting import until
from tests.worker.recording import Recorder, Scene, on_virtual_time

from batonpass.worker import OnLeaseLost, Role
from batonpass.worker.testing import LocalCoordinator

SESSION_MS = 15_000
INTERVAL_MS = 3_000


async def at_work(scene: Scene, **config: int) -> None:
    """Declare a group with a short session timeout."""
    await scene.declare(session_timeout_ms=SESSION_MS, heartbeat_interval_ms=INTERVAL_MS, **config)


def stopped_at_once(worker: Recorder) -> list[str]:
    """Return the actives that were stopped without a commit."""
    return sorted(str(task) for task, role, commit, _ in worker.of("revoke") if role is Role.ACTIVE and not commit)


@on_virtual_time
async def test_actives_stop_the_moment_that_the_lease_is_over() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await at_work(scene)
        worker = scene.worker("a")
        async with scene.member(worker) as member:
            await scene.rest()
            await asyncio.sleep(10)
            loop, line = asyncio.get_running_loop(), scene.lines["a"]
            sent = [loop.time()]
            line.cut()
            while member.may_process("0_0"):
                assert worker.of("revoke") == []
                sent.append(loop.time())
                await asyncio.sleep(0.05)
            assert SESSION_MS - INTERVAL_MS <= (sent[-1] - sent[0]) * 1_000 <= SESSION_MS
            await asyncio.sleep(0.1)
            assert stopped_at_once(worker) == ["0_0", "0_1"]
            assert member.tasks == {}
            old = member.member_id
            line.mend()
            await scene.rest()
            assert scene.ownership.count("a") == 2
            assert member.member_id != old


@on_virtual_time
async def test_a_member_whose_answers_are_lost_stops_though_the_coordinator_hears_it() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await at_work(scene)
        worker = scene.worker("a")
        async with scene.member(worker) as member:
            await scene.rest()
            old = member.member_id
            scene.lines["a"].loses_answers = True
            await asyncio.sleep(3 * SESSION_MS / 1_000)
            assert stopped_at_once(worker) == ["0_0", "0_1"]
            assert (await coordinator.describe("orders"))["members"] == 1
            assert member.tasks == {}
            scene.lines["a"].loses_answers = False
            await until(lambda: scene.ownership.count("a") == 2)
            assert member.member_id == old
            assert scene.ownership.tokens == {"0_0": [1, 1], "0_1": [1, 1]}
            assert [was for _, was, _ in worker.of("active")] == [None] * 4


@on_virtual_time
async def test_outputs_that_are_fenced_go_on_past_the_lease() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await at_work(scene, rejoin_grace_ms=0)
        worker = scene.worker("a")
        member = scene.member(worker, on_lease_lost=OnLeaseLost.CONTINUE)
        async with scene.member(scene.worker("b"), "b"), member:
            await scene.rest()
            (mine,) = member.tasks
            scene.lines["a"].cut()
            await asyncio.sleep(SESSION_MS / 1_000 - 1)
            scene.ownership.owners.clear()
            await asyncio.sleep(20)
            assert member.may_process(mine)
            assert worker.of("revoke") == []
            scene.lines["a"].mend()
            await until(lambda: stopped_at_once(worker) == [mine])


@on_virtual_time
async def test_time_for_which_the_machine_slept_counts() -> None:
    """A laptop that was closed for a minute may not write when it wakes, though its timers did not run on."""
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await at_work(scene)
        worker = scene.worker("a")
        async with scene.member(worker) as member:
            await scene.rest()
            await asyncio.sleep(1)
            scene.clocks["a"].suspend(60_000)
            assert not member.may_process("0_0")
            await asyncio.sleep(0.6)
            assert stopped_at_once(worker) == ["0_0", "0_1"]
            await scene.rest()


@pytest.mark.parametrize("status", [503, 502, 500, 429])
@on_virtual_time
async def test_a_coordinator_that_refuses_for_a_while_costs_nothing(status: int) -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await at_work(scene)
        worker = scene.worker("a")
        async with scene.member(worker) as member:
            await scene.rest()
            old, before = member.member_id, len(scene.lines["a"].calls)
            scene.lines["a"].refuses_with = status
            await asyncio.sleep(10)
            refused = len(scene.lines["a"].calls) - before
            scene.lines["a"].refuses_with = None
            await asyncio.sleep(10)
            assert 4 <= refused <= 60
            assert (member.member_id, worker.of("revoke")) == (old, [])
            assert scene.ownership.tokens == {"0_0": [1], "0_1": [1]}


@on_virtual_time
async def test_slow_answers_still_count() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await at_work(scene)
        worker = scene.worker("a")
        async with scene.member(worker) as member:
            await scene.rest()
            scene.lines["a"].delay_s = 2.2
            await asyncio.sleep(120)
            assert member.may_process("0_0")
            assert worker.of("revoke") == []
            scene.lines["a"].delay_s = 0
            await asyncio.sleep(10)


@on_virtual_time
async def test_a_lease_may_end_early_here() -> None:
    """The worker needs two seconds to stop."""
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await at_work(scene)
        async with scene.member(scene.worker("a"), stop_early_ms=2_000) as member:
            await scene.rest()
            await asyncio.sleep(10)
            scene.lines["a"].cut()
            await asyncio.sleep((SESSION_MS - 2_000) / 1_000)
            assert not member.may_process("0_0")
            scene.lines["a"].mend()
            await scene.rest()


@on_virtual_time
async def test_that_no_coordinator_answers_is_said_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await at_work(scene)
        member = scene.member(scene.worker("a"))
        scene.lines["a"].cut()
        member.start()
        await asyncio.sleep(70)
        assert caplog.text.count("no coordinator has answered for") in {2, 3}
        scene.lines["a"].mend()
        await member.joined()
        await member.exit()


@pytest.mark.parametrize("status", [401, 404, 502, 503])
@on_virtual_time
async def test_that_a_member_is_refused_for_long_is_said_now_and_then(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As behind a proxy whose coordinators are away."""
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await at_work(scene)
        async with scene.member(scene.worker("a")):
            await scene.rest()
            scene.lines["a"].refuses_with = status
            await asyncio.sleep(3)
            assert "no coordinator has answered" not in caplog.text
            await asyncio.sleep(67)
            assert caplog.text.count(f", but for refusals (the last one is {status})") in {2, 3}
            scene.lines["a"].refuses_with = None
            await scene.rest()
