"""A transaction that stays open in a changelog: copies say how far they are, no task is handed over, and people see it.

The last stable offset stands still where the transaction begins, while the owner goes on behind it.
"""

from tests.core.scene import Scene, running
from tests.core.scenes import held_back

from batonpass.core.handover.lag import end_after, open_transactions
from batonpass.core.handover.state_size import state_sizes
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, EndOffsets, Eviction, PinRequest
from batonpass.core.state.model import Subtopology, Topology
from batonpass.core.state.reasons import Held, WaitsFor
from batonpass.core.state.soft import OPEN_TRANSACTION_MS, EndOffset, Positions, TaskReport
from batonpass.explain.advice import advice_on
from batonpass.explain.task import TaskExplanation, Wait, explain_task
from batonpass.placement.types import Readiness

LOG = ("log", 0)
TASK = TaskId("0_0")
A, B = MemberId("a"), MemberId("b")


def stage(**config: object) -> Scene:
    """Return a group where a runs 0_0, and b keeps a standby at position 900 of 1000."""
    scene = Scene()
    changelogs = Topology(1, (Subtopology("0", 1, changelog_topics=("log",)),))
    scene.declare(changelogs, **({"num_standby_replicas": 1, "acceptable_recovery_lag": 10} | config))
    scene.join("a")
    scene.tick()
    scene.beat("a", {TASK: running()})
    scene.join("b")
    scene.tick()
    at(scene, 900)
    look(scene, 1_000)
    return scene


def at(scene: Scene, position: int, ends: Positions = ()) -> None:
    """Let b report where its copy is."""
    scene.beat("b", {TASK: TaskReport("standby", positions=(("log", position),), end_offsets=ends)})


def look(scene: Scene, stable: int, log_end: int | None = None, *, after_ms: int = 1_000) -> None:
    """Let the coordinator read the last stable offset and the high watermark, a second later."""
    scene.now_ms += after_ms
    scene.do(EndOffsets({LOG: stable}, scene.now_ms, high_watermarks={} if log_end is None else {LOG: log_end}))


def stand_still(scene: Scene, stable: int, log_end: int) -> None:
    """Let a transaction be open for as long as it takes to count, while members are heard."""
    for _ in range(OPEN_TRANSACTION_MS // 1_000 + 1):
        look(scene, stable, log_end)
        scene.beat("a")
        scene.beat("b")


def copy_of_b(scene: Scene) -> tuple[Readiness, int | None]:
    """Return how ready the copy of b is, and its lag."""
    copy = scene.view().copy(scene.task(TASK), B)
    return copy.readiness, copy.lag


def explained(scene: Scene) -> TaskExplanation:
    """Explain the task now."""
    return explain_task(scene.view(), TASK)


def test_transactions_that_come_and_go_are_no_lag() -> None:
    """The high watermark is ahead of the last stable offset most of the time in a busy job."""
    scene = stage()
    for number in range(20):
        at(scene, 1_001 + number)
        look(scene, 1_001 + number, 1_500 + number)
        assert copy_of_b(scene) == (Readiness.CAUGHT_UP, 0)
        assert not open_transactions(scene.group, scene.soft)


def test_behind_a_transaction_that_stays_open_a_copy_lacks_all_up_to_the_high_watermark() -> None:
    scene = stage()
    at(scene, 1_000)
    look(scene, 1_000, 1_200)
    look(scene, 1_000, 1_300, after_ms=OPEN_TRANSACTION_MS - 1)
    assert copy_of_b(scene) == (Readiness.CAUGHT_UP, 0)
    look(scene, 1_000, 1_400, after_ms=1)
    assert copy_of_b(scene) == (Readiness.BEHIND, 400)
    assert state_sizes(scene.group, scene.soft) == {0: 1_400}
    look(scene, 1_401)
    assert copy_of_b(scene) == (Readiness.BEHIND, 401)
    at(scene, 1_401)
    assert copy_of_b(scene) == (Readiness.CAUGHT_UP, 0)


def test_each_transaction_is_timed_by_itself() -> None:
    first = end_after(None, 10, 20, 1_000)
    assert first == EndOffset(10, 1_000, unstable=10, open_since_ms=1_000)
    again = end_after(first, 10, 30, 2_000)
    assert again == EndOffset(10, 2_000, unstable=20, open_since_ms=1_000)
    assert end_after(again, 15, 30, 3_000).open_since_ms == 3_000
    assert end_after(again, 30, 30, 3_000).open_since_ms is None
    assert end_after(EndOffset(10, 1_000), 10, 20, 2_000).open_since_ms == 2_000


def test_a_log_is_cut_where_its_high_watermark_falls_and_only_there() -> None:
    known = EndOffset(100, 1_000, unstable=50, open_since_ms=1_000)
    assert not end_after(known, 90, 150, 2_000).shrunk
    assert end_after(known, 100, 149, 2_000).shrunk
    assert end_after(known, 149, 149, 2_000).shrunk
    # The log was made anew between the two reads of one look.
    assert end_after(None, 100, 3, 1_000) == EndOffset(100, 1_000)


def test_a_position_behind_the_open_transaction_is_of_the_same_log() -> None:
    """An owner that becomes a copy has what it wrote itself."""
    scene = stage()
    at(scene, 1_150)
    look(scene, 1_000, 1_200)
    assert copy_of_b(scene) == (Readiness.CAUGHT_UP, 0)
    stand_still(scene, 1_000, 1_250)
    assert copy_of_b(scene) == (Readiness.BEHIND, 100)
    at(scene, 1_251)
    look(scene, 1_000, 1_250)
    assert copy_of_b(scene) == (Readiness.UNKNOWN, None)


def test_the_larger_end_counts() -> None:
    """The member may have seen sooner that the transaction stays open, or what was written since the last look."""
    scene = stage()
    at(scene, 1_000, ends=(("log", 1_300),))
    assert copy_of_b(scene) == (Readiness.BEHIND, 300)
    at(scene, 1_000, ends=(("log", 1_200),))
    stand_still(scene, 1_000, 1_400)
    assert copy_of_b(scene) == (Readiness.BEHIND, 400)


def ready_to_move(**config: object) -> Scene:
    """Return the group with a transaction that stays open, and few enough records behind it for b to be ready."""
    scene = stage(acceptable_recovery_lag=1_000, **config)
    at(scene, 1_000)
    stand_still(scene, 1_000, 1_200)
    assert copy_of_b(scene) == (Readiness.CAUGHT_UP, 200)
    return scene


def test_no_owner_that_runs_hands_over_before_the_transaction_ends() -> None:
    """The next owner could not read to the end, and so not run; how many records it lacks plays no part."""
    scene = ready_to_move()
    scene.do(PinRequest(TASK, B))
    assert (scene.task(TASK).owner, held_back(scene)) == (A, [(TASK, B, Held.OPEN_TRANSACTION)])
    look(scene, 1_201)
    assert (scene.task(TASK).owner, scene.task(TASK).handover.next_owner) == (None, B)


def test_the_move_goes_on_even_if_no_lag_has_changed() -> None:
    scene = stage(acceptable_recovery_lag=1_000)
    at(scene, 1_200)
    stand_still(scene, 1_000, 1_200)
    scene.do(PinRequest(TASK, B))
    assert scene.task(TASK).owner == A
    look(scene, 1_200)
    assert scene.task(TASK).handover.next_owner == B


def test_a_drain_waits_too_up_to_its_deadline() -> None:
    scene = ready_to_move()
    scene.do(DrainRequest(A, 20_000))
    assert (scene.task(TASK).owner, held_back(scene)) == (A, [(TASK, B, Held.OPEN_TRANSACTION)])
    scene.now_ms += 20_000
    scene.beat("b")
    scene.tick()
    assert scene.task(TASK).handover.next_owner == B


def test_a_task_without_an_owner_goes_to_its_copy_at_once() -> None:
    """Nobody runs it, so nothing is won by waiting; the transaction may be the dead owner's own."""
    scene = stage(acceptable_recovery_lag=0)
    at(scene, 1_000)
    stand_still(scene, 1_000, 1_200)
    assert copy_of_b(scene) == (Readiness.BEHIND, 200)
    scene.do(Eviction(A, dead=True))
    assert scene.task(TASK).owner == B


def test_the_transaction_is_named_wherever_people_look() -> None:
    """By topic, partition and the offset where it begins: that is what ends it (KIP-664)."""
    scene = ready_to_move()
    place = "offset 1000 of log, partition 0 (open for at least 5 s)"
    wait = Wait(WaitsFor.TRANSACTION, detail=f"it begins at {place}, and nothing behind it can be read")
    found = explained(scene)
    assert found.waits == (wait,)
    assert found.sentences[-1] == f"It waits for the end of a transaction: {wait.detail}."
    scene.do(PinRequest(TASK, B))
    found = explained(scene)
    assert found.held is not None
    assert found.held.reason is Held.OPEN_TRANSACTION
    assert wait in found.waits
    (advice,) = advice_on(scene.view(), scene.policy)
    assert advice.endswith(f": {place}")


def test_a_changelog_that_the_topology_has_dropped_concerns_nobody() -> None:
    scene = ready_to_move()
    assert open_transactions(scene.group, scene.soft).keys() == {LOG}
    scene.change(Topology(2, (Subtopology("0", 1, changelog_topics=("other",)),)))
    assert not open_transactions(scene.group, scene.soft)
    assert not explained(scene).waits
