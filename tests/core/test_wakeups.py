"""Whatever waits for an instant is looked at then; a rule that forgets to say when it ends fails its scenes."""

import pytest
from tests.core.scene import copy
from tests.core.scenes import TASK, held_back, pair
from tests.core.test_held_back import SCENES, to_b

from batonpass.core import wakeups
from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId
from batonpass.core.state.inputs import PollBroken, Started
from batonpass.core.state.model import OnLeaseLost
from batonpass.core.state.reasons import Held, Hold, WaitsFor
from batonpass.core.state.soft import Soft

HELD_FOR_A_TIME = [held for held in Held if held.waits_for is WaitsFor.TIME]


@pytest.mark.parametrize("held", [*HELD_FOR_A_TIME, Held.STALLED, Held.STATE_UNKNOWN, Held.REJOIN_GRACE])
def test_a_scene_fails_what_is_held_for_a_time_and_has_no_wake_up(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = SCENES[held]()
    scene.whole = True
    scene.tick()
    monkeypatch.setattr(wakeups, "_from_now_on", lambda *_: [])
    with pytest.raises(AssertionError, match="has no wake-up"):
        scene.tick()


def test_what_a_rule_holds_is_looked_at_when_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule names the instant in its hold, and nowhere else."""
    scene = to_b(pair())
    scene.beat("b", {TASK: copy("warmup", 50_000)})
    ends_ms = scene.now_ms + 1_234
    monkeypatch.setattr(View, "why_not_granted", lambda *_: Hold(Held.GRANTS_HELD, ends_ms))
    scene.now_ms += 1
    scene.beat("b", {TASK: copy("warmup", 0)})
    assert (TASK, "b", Held.GRANTS_HELD) in held_back(scene)
    assert scene.soft.wake_ms == ends_ms
    scene.tick(1)
    assert scene.soft.wake_ms == ends_ms


def test_a_broken_poll_is_looked_at_although_nothing_is_recorded() -> None:
    scene = pair()
    scene.join("c", on_lease_lost=OnLeaseLost.CONTINUE)
    scene.settle()
    scene.do(PollBroken(MemberId("c")))
    assert scene.of(object) == []
    assert scene.soft.wake_ms == scene.now_ms + scene.group.config.suspect_timeout_ms


def test_a_heartbeat_without_news_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It only postpones, so the wake-up that is known stands: a tick that comes too early is harmless."""
    scene = pair()
    scene.settle()
    before_ms = scene.soft.wake_ms
    monkeypatch.setattr(wakeups, "_from_now_on", lambda *_: [])
    scene.now_ms += 1_000
    scene.whole = False
    scene.obey("a")
    assert scene.soft.wake_ms == before_ms


def test_a_member_that_a_clock_ahead_let_in_is_not_new_for_that_alone() -> None:
    """Two coordinators read one clock a little apart; nobody left soon here, so balance waits for nobody."""
    scene = pair()
    scene.now_ms -= 1_500
    scene.soft = Soft()
    scene.do(Started())
    scene.obey()
    assert scene.view().newcomers == {}
    assert held_back(scene) == []
