"""A day of a Kafka Streams application: what a coordinator writes of the rebalances that its leader reports."""

import random
from datetime import UTC, datetime
from typing import Final

from tests.core.scene import Scene
from tests.core.small_application import Application
from tests.core.test_streams import Leader

from batonpass.core.state.inputs import Input, Started
from batonpass.core.state.replies import Done, Reply
from batonpass.core.state.soft import Soft
from batonpass.days.rows import GroupRecorder, GroupRows

BEGIN_MS: Final = int(datetime(2026, 11, 18, tzinfo=UTC).timestamp() * 1_000)
MINUTE_MS: Final = 60_000
REBALANCES: Final = 60
TASKS: Final = 6
SEED: Final = 7
ACCEPTABLE: Final = 10_000
"""Kafka's default for `acceptable.recovery.lag`."""


class _Recorded(Scene):
    """A scene whose decisions are written down as a coordinator would."""

    def __init__(self, group: str, recorder: GroupRecorder) -> None:
        super().__init__(group)
        self.recorder = recorder

    def do(self, item: Input) -> Reply:
        group, soft = self.group, self.soft
        reply = super().do(item)
        assert self.last is not None
        if self.last.records:
            self.recorder.decided(group, soft, item, self.last, self.now_ms)
        return reply


def lived_by_streams(
    group: str, acceptable_recovery_lag: int = ACCEPTABLE, *, resizes: bool = True, seed: int = SEED
) -> GroupRows:
    """Processes come, go and crash, and Kafka decides by itself at times; the coordinator starts anew once.

    If it ``resizes``, topics go and come back, and a process has now more and now fewer threads.
    """
    app = Application(random.Random(seed), tasks=TASKS)
    app.copies["p9"] = {}
    leader = Leader(TASKS, num_standby_replicas=1, acceptable_recovery_lag=acceptable_recovery_lag)
    recorder = GroupRecorder(group, policy=leader.scene.policy)
    leader.scene = scene = _Recorded(group, recorder)
    scene.now_ms = BEGIN_MS + MINUTE_MS
    for number in range(REBALANCES):
        if number == REBALANCES // 2:
            scene.soft = Soft()
            scene.ok(Started(), Done)
        if resizes and number % 15 == 14:
            app.resize(TASKS if app.tasks < TASKS else TASKS - 2)
            leader.tasks = app.tasks
            app.threads["p9"] = app.threads.get("p9", 1) % 3 + 1
        app.trouble()
        # Several rebalances follow each other, as Kafka makes them until a move is complete.
        for _ in range(4):
            app.obey(leader.ask(*app.report()))
            app.pass_time()
        scene.now_ms += 10 * MINUTE_MS
    return recorder.rows()
