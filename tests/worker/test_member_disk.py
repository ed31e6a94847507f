"""State on disk: how much there is stands in every report, and what moved away is removed after a while."""

import asyncio
from collections.abc import Mapping

import msgspec
import pytest
from tests.waiting import until
from tests.worker.recording import Recorder, Scene, on_virtual_time
from tests.worker.scripted import Scripted, assignment, joined, reported

from batonpass.codec import requests
from batonpass.codec.bodies import HeartbeatBody
from batonpass.codec.shape import Shape, optional_numbers
from batonpass.core.state.ids import GroupId
from batonpass.worker import Options, Progress, Task
from batonpass.worker.protocol import MemberSettings, RequestKind
from batonpass.worker.testing import LocalCoordinator


class Keeper(Recorder):
    """Keeps a hundred bytes for each task that it ever had, until they are to be removed."""

    def __init__(self, name: str, scene: Scene) -> None:
        super().__init__(name, scene.ownership)
        self.disk: dict[str, int] = {}
        self.removed: list[str] = []

    async def on_active(self, task: Task) -> None:
        self.disk[task.id] = 100
        await super().on_active(task)

    async def on_standby(self, task: Task) -> None:
        self.disk[task.id] = 100
        await super().on_standby(task)

    async def disk_bytes(self) -> Mapping[str, int]:
        return self.disk

    async def remove_state(self, task_id: str) -> None:
        self.removed.append(task_id)
        del self.disk[task_id]


def test_state_is_kept_for_as_long_as_kafka_keeps_it() -> None:
    assert Options().state_cleanup_delay_ms == 600_000


def test_a_join_says_how_much_disk_there_is() -> None:
    worker = Scripted(MemberSettings(max_disk_bytes=5_000_000))
    worker.start()
    body = worker.last(RequestKind.JOIN).body
    assert body is not None
    assert body["max_disk_bytes"] == 5_000_000


def test_reports_say_what_lies_on_disk_in_every_role() -> None:
    worker = joined(1, assignment(standby=["0_1"]))
    worker.do("copy_progress", "0_1", Progress(position=5))
    worker.do("disk_bytes", {"0_1": 70, "0_2": 80})
    worker.beat(1)
    assert reported(worker.last()) == {
        "0_1": {"role": "standby", "position": 5, "disk_bytes": 70},
        "0_2": {"role": "none", "disk_bytes": 80},
    }
    worker.do("state_removed", "0_2")
    worker.beat(1)
    assert reported(worker.last()).keys() == {"0_1"}


@on_virtual_time
async def test_a_look_at_the_disk_that_ends_in_any_error_is_tried_again() -> None:
    class Cancelled(Keeper):
        looks = 0

        async def disk_bytes(self) -> Mapping[str, int]:
            self.looks += 1
            if self.looks == 1:
                raise asyncio.CancelledError
            return await super().disk_bytes()

    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=1)
        worker = Cancelled("a", scene)
        async with scene.member(worker, "a"):
            await until(lambda: worker.looks == 3)


@on_virtual_time
async def test_state_that_moved_away_is_removed_after_a_while() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=4)
        first = Keeper("first", scene)
        async with scene.member(first, "first", state_cleanup_delay_ms=600_000) as member:
            await scene.rest()
            async with scene.member(scene.worker("second"), "second"):
                await scene.rest()
                await asyncio.sleep(500)
                assert first.removed == []
                assert len(first.disk) == 4
                await asyncio.sleep(200)
                assert len(first.removed) == 2
                assert first.disk.keys() == member.holdings.keys()
                assert not member.on_disk


@on_virtual_time
async def test_state_of_a_task_that_comes_back_is_kept() -> None:
    """The delay begins anew when the copy goes again."""
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        # The second member comes and goes, and is to get its share each time.
        await scene.declare(partitions=4, newcomer_wait_ms=0)
        first = Keeper("first", scene)
        async with scene.member(first, "first"):
            await scene.rest()
            for _ in range(3):
                async with scene.member(scene.worker("second"), "second"):
                    await scene.rest()
                    await asyncio.sleep(400)
                await scene.rest()
            await asyncio.sleep(1_000)
            assert first.removed == []
            assert len(first.disk) == 4


class Body(HeartbeatBody):
    """A heartbeat with a number that a member says of itself."""

    cpu_share: float | msgspec.UnsetType = msgspec.UNSET


class Busy(Keeper):
    """Measures how busy it is."""

    share = 0.25

    async def numbers(self) -> Mapping[str, float]:
        return {"cpu_share": self.share}


@on_virtual_time
async def test_what_a_member_says_of_itself_is_asked_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[float] = []
    monkeypatch.setattr(requests, "_HEARTBEAT", Shape(Body, lenient=True))
    monkeypatch.setattr(requests, "OWN_NUMBERS", optional_numbers(Body))
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=2)
        busy = Busy("a", scene)
        async with scene.member(busy, "a"):
            for busy.share in (0.25, 0.75):
                await asyncio.sleep(60)
                _, soft = await coordinator.coordinator.look(GroupId("orders"))
                said += [member.numbers["cpu_share"] for member in soft.members.values()]
    assert said == [0.25, 0.75]


class SlowKeeper(Keeper):
    """Takes a while to remove what it has of a task."""

    removing = ""

    async def on_active(self, task: Task) -> None:
        assert task.id != self.removing
        await super().on_active(task)

    async def on_standby(self, task: Task) -> None:
        assert task.id != self.removing
        await super().on_standby(task)

    async def remove_state(self, task_id: str) -> None:
        self.removing = task_id
        await asyncio.sleep(20)
        self.removing = ""
        await super().remove_state(task_id)


@on_virtual_time
async def test_a_task_that_comes_back_begins_once_its_state_is_removed() -> None:
    """Else its callback would write where things are being deleted."""
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=2)
        first = SlowKeeper("first", scene)
        async with scene.member(first, "first", state_cleanup_delay_ms=60_000):
            await scene.rest()
            async with scene.member(scene.worker("second"), "second"):
                await scene.rest()
                await until(lambda: first.removing)
                being_removed = first.removing
            await until(lambda: scene.ownership.owners.get(being_removed) == "first")
            assert first.removed == [being_removed]


@on_virtual_time
async def test_nothing_is_removed_while_the_coordinator_is_away() -> None:
    """The coordinator could not have asked for the state back, so the time does not count."""
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=2)
        worker = Keeper("a", scene)
        member = scene.member(worker, "a", on_disk={"0_1": Progress(position=5)})
        worker.disk["0_1"] = 100
        scene.lines["a"].cut()
        member.start()
        await asyncio.sleep(3_000)
        assert worker.removed == []
        scene.lines["a"].mend()
        await until(lambda: "0_1" in member.tasks)
        await asyncio.sleep(3_000)
        assert worker.removed == []
        await member.exit()


@on_virtual_time
async def test_what_cannot_be_removed_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=1)
        worker = Keeper("a", scene)
        worker.disk["0_7"] = 100
        remove, tries = worker.remove_state, list[str]()

        async def stubborn(task_id: str) -> None:
            tries.append(task_id)
            if len(tries) < 2:
                raise OSError("busy")
            await remove(task_id)

        worker.remove_state = stubborn  # type: ignore[method-assign]
        async with scene.member(worker, "a", state_cleanup_delay_ms=60_000):
            await scene.rest()
            await until(lambda: worker.removed == ["0_7"], within_s=300)
    assert "tried again" in caplog.text


@on_virtual_time
async def test_what_cannot_be_removed_keeps_nothing_else_on_disk() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=1)
        worker = Keeper("a", scene)
        worker.disk |= {"0_7": 100, "0_8": 100}
        remove, tries = worker.remove_state, list[str]()

        async def stubborn(task_id: str) -> None:
            tries.append(task_id)
            if task_id == tries[0]:
                raise OSError("busy")
            await remove(task_id)

        worker.remove_state = stubborn  # type: ignore[method-assign]
        async with scene.member(worker, "a", state_cleanup_delay_ms=60_000):
            await scene.rest()
            await until(lambda: len(worker.removed) == 1, within_s=300)
    assert {tries[0], *worker.removed} == {"0_7", "0_8"}
