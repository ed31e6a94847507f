"""Whatever members, operators, clocks and networks do, in whatever order: every decision keeps the laws."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.scene import Scene, copy, failed, restoring, running, topology
from tests.often import cases

from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    DrainReversal,
    EndOffsets,
    Eviction,
    GroupDeletion,
    Heartbeat,
    Input,
    Join,
    Leave,
    PauseRequest,
    PinRequest,
    PollBroken,
    PollOpened,
    ProbeRequest,
    ReleaseRequest,
    ResumeRequest,
    Started,
    StoreRecovered,
    Tick,
)
from batonpass.core.state.model import Group, OnLeaseLost, PauseScope, Role
from batonpass.core.state.soft import Soft, TaskReport

# Random stories are not what the branches' coverage is made of, and counting it in them takes most of their time.
pytestmark = pytest.mark.no_cover

SILENCES_MS = (0, 1, 40, 1_000, 3_000, 20_000, 46_000)


class Chaos:
    """A scene with ten names, of which any may do anything at any time, and mostly does what it should."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.scene = Scene()
        self.scene.declare(
            topology(self.random.randrange(1, 5), stateless=self.random.randrange(2)),
            num_standby_replicas=self.random.randrange(3),
            max_warmup_replicas=self.random.choice([1, 2, "50%"]),
            rebalance_batch_ms=self.random.choice([0, 50]),
            initial_rebalance_delay_ms=self.random.choice([0, 1_000]),
            rejoin_grace_ms=self.random.choice([0, 30_000]),
            rebalance_timeout_ms=30_000,
            warmup_stall_timeout_ms=20_000,
            drain_timeout_ms=40_000,
            acceptable_recovery_lag=10,
        )
        self.runs = 0

    def someone(self) -> MemberId:
        """Return some member id: mostly of a member, at times of anybody."""
        known = sorted(self.scene.group.members)
        if known and self.random.random() < 0.9:
            return self.random.choice(known)
        return MemberId(f"m{self.random.randrange(1, 12)}")

    def some_task(self) -> TaskId:
        """Return some task id, at times of a task that does not exist."""
        return self.random.choice([*self.scene.group.table.ids, TaskId("8_8")])

    def step(self) -> None:
        """Let something happen."""
        chance, scene = self.random, self.scene
        scene.now_ms += chance.choice(SILENCES_MS)
        if chance.random() < 0.02:
            scene.now_ms -= chance.choice([1_500, 60_000])
            scene.do(Started(clock_moved=True))
        if chance.random() < 0.6:
            self.beat()
        elif chance.random() < 0.3:
            scene.do(Tick())
        elif chance.random() < 0.3:
            scene.do(self.join())
        else:
            scene.do(self.command())

    def beat(self) -> None:
        """Let a member heartbeat: mostly the truth, at times late, stale, ahead, partial or wrong."""
        chance, scene = self.random, self.scene
        name = self.someone()
        member = scene.group.members.get(name)
        if member is None or member.away_until_ms is not None:
            scene.beat(name, {self.some_task(): running()}, epoch=chance.randrange(4))
            return
        report: dict[str, TaskReport] = {}
        epoch = max(0, member.epoch + chance.choice([0] * 30 + [-1, -1, 1, 5]))
        for task, grant in member.assignment.items():
            if chance.random() < 0.95 and grant.epoch <= epoch:
                report[task] = self.active() if grant.role is Role.ACTIVE else self.copy(grant.role)
        for task in member.revoking:
            if chance.random() < 0.2:
                report[task] = running()
            elif task not in report and chance.random() < 0.5:
                report[task] = TaskReport("none", final_position=(("", chance.randrange(99)),))
        if chance.random() < 0.1:
            strange = self.some_task()
            if strange not in member.assignment:
                report[strange] = chance.choice([running(), copy("none", 3), running(token=chance.randrange(9))])
        if chance.random() < 0.05:
            scene.do(Heartbeat(name, chance.randrange(5), epoch, None))
        scene.beat(name, None if chance.random() < 0.1 else report, epoch=epoch)

    def active(self) -> TaskReport:
        """Return what an owner says of a task."""
        return self.random.choice([running()] * 12 + [restoring(9), restoring(None), failed(), running(lost=True)])

    def copy(self, role: str) -> TaskReport:
        """Return what the holder of a copy says of it."""
        lag = self.random.choice([0, 0, 0, 5, 11, 90, None])
        size = self.random.choice([None, 10, 50, 90])
        return copy(role, lag, lost=self.random.random() < 0.03, disk_bytes=size)

    def join(self) -> Join:
        """Return the join of a new run, or of an old one again."""
        chance = self.random
        self.runs += chance.random() < 0.9
        disk = {self.some_task(): copy("none", chance.choice([0, 50, None])) for _ in range(chance.randrange(3))}
        return Join(
            MemberId(f"r{self.runs}"),
            instance_id=chance.choice([None, None, InstanceId("i1"), InstanceId("i2")]),
            takeover=chance.random() < 0.3,
            replaces=self.someone() if chance.random() < 0.3 else None,
            capacity=chance.choice([1.0, 1.0, 2.0]),
            max_tasks=chance.choice([None, None, 1, 3]),
            max_disk_bytes=chance.choice([None, None, 50, 200]),
            topology_epoch=chance.choice([None, None, 1]),
            on_lease_lost=chance.choice(list(OnLeaseLost)),
            tasks=disk,
        )

    def command(self) -> Input:
        """Return something that an operator, a network or a coordinator does."""
        chance, who = self.random, self.someone()
        task = self.some_task()
        inputs: list[Input] = [
            Leave(who, restart=chance.random() < 0.5),
            Leave(who),
            Eviction(who, dead=chance.random() < 0.5),
            DrainRequest(who, chance.choice([None, 0, 10_000])),
            DrainReversal(who),
            PollBroken(who),
            PollBroken(who),
            PollOpened(who),
            PauseRequest(chance.choice(list(PauseScope)), "", chance.choice([None, self.scene.now_ms + 9_000])),
            ResumeRequest(),
            ResumeRequest(),
            PinRequest(task, chance.choice([None, who])),
            ReleaseRequest(task),
            ProbeRequest(),
            EndOffsets({("log", 0): chance.randrange(99)}, self.scene.now_ms),
        ]
        if chance.random() < 0.2:
            inputs += [Started(), StoreRecovered(), GroupDeletion()]
        return chance.choice(inputs)


@settings(max_examples=cases(60), deadline=None, derandomize=True)
@given(st.integers(min_value=0, max_value=2**32))
def test_no_order_of_events_breaks_a_law(seed: int) -> None:
    """Joins, lost replies, takeovers, late and lying heartbeats, commands and clocks that jump."""
    chaos = Chaos(seed)
    for _ in range(80):
        chaos.step()


@pytest.mark.parametrize("seed", range(4))
def test_a_coordinator_may_start_anew_at_any_moment(seed: int) -> None:
    chaos = Chaos(seed)
    for number in range(120):
        chaos.step()
        if number % 15 == 14:
            scene = chaos.scene
            assert evolve(Group(GroupId("g")), scene.log) == scene.group
            scene.soft = Soft()
            scene.do(Started())
