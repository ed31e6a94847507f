"""Groups of Kafka Streams applications: what the leader of a rebalance is answered, and what becomes of the answer."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from tests.core.described import describe_group
from tests.core.scene import Scene, topology

from batonpass.core.handover.view import View
from batonpass.core.state import application as known
from batonpass.core.state.errors import (
    GroupNotEmpty,
    InvalidConfig,
    InvalidRequest,
    InvalidTopology,
    ProtocolError,
    TooLarge,
    UnknownGroup,
)
from batonpass.core.state.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    DrainReversal,
    Eviction,
    GroupDeclaration,
    GroupDeletion,
    Heartbeat,
    Join,
    OtherAssignment,
    PartitionCounts,
    PauseRequest,
    PinRequest,
    RefusedRebalance,
    Started,
    StoreRecovered,
    StreamsProcess,
    StreamsRebalance,
    Tick,
)
from batonpass.core.state.model import ActiveState, PauseScope, Subtopology, Topology
from batonpass.core.state.policy import WHOSE_GROUP, GroupConfig, Policy
from batonpass.core.state.replies import Declared, Done, DrainProgress, StreamsAdvice
from batonpass.core.state.soft import Refused, Soft, TaskReport
from batonpass.explain.group import explain_group
from batonpass.explain.status import GroupState

RUNS, RESTORES = "runs", "restores"
STATES: Mapping[object, ActiveState] = {RUNS: ActiveState.RUNNING, RESTORES: ActiveState.RESTORING}
ACCEPTABLE = 100
ASKS_EVERY_MS = 2_000


def process(
    name: str, tasks: Mapping[str, int | str] | None = None, *, threads: int = 1, **tags: str
) -> StreamsProcess:
    """Return a process that runs or restores what is said to, and has copies that are so many records behind."""
    actives = {kind: TaskReport("active", state) for kind, state in STATES.items()}
    found = {TaskId(task): actives.get(has) or TaskReport("none", lag=int(has)) for task, has in (tasks or {}).items()}
    return StreamsProcess(InstanceId(name), float(threads), tags, found)


class Leader:
    """Asks for advice on one group, as the leader of its rebalances would."""

    def __init__(self, tasks: int = 4, **config: object) -> None:
        self.scene = Scene()
        self.tasks = tasks
        self.config = {"acceptable_recovery_lag": ACCEPTABLE} | config

    def input(self, *processes: StreamsProcess, other: OtherAssignment | None = None) -> StreamsRebalance:
        """Return what the leader says."""
        return StreamsRebalance(topology(self.tasks), self.config, processes, other)

    def named(self, application_id: str, cluster_id: str = "") -> StreamsRebalance:
        """Return what the leader of an application of this name says, on a cluster that it may know."""
        item = self.input(process("a", ALL), process("b"))
        names = {"application_id": application_id} | ({"cluster_id": cluster_id} if cluster_id else {})
        return replace(item, config=dict(item.config) | names)

    def ask(self, *processes: StreamsProcess, other: OtherAssignment | None = None) -> StreamsAdvice:
        """Ask, and let two seconds pass."""
        advice = self.scene.ok(self.input(*processes, other=other), StreamsAdvice)
        self.scene.now_ms += ASKS_EVERY_MS
        return advice

    def is_refused(self, item: StreamsRebalance, kind: type[ProtocolError]) -> None:
        """Ask in vain: whoever passes the question on tells the group that it was refused, and why."""
        refused = self.scene.refused(item, kind)
        self.scene.ok(RefusedRebalance(refused.detail, item.config), Done)

    def code(self, advice: StreamsAdvice, task: str) -> str | None:
        """Return why a task goes where it goes."""
        return next((reason.code for reason in advice.reasons if reason.task == task), None)


def roles(advice: StreamsAdvice, name: str) -> dict[str, list[str]]:
    """Return what a process is to have, by role, without the roles that it has none in."""
    return {role: list(tasks) for role, tasks in advice.assignment[InstanceId(name)].items() if tasks}


ALL = {"0_0": RUNS, "0_1": RUNS, "0_2": RUNS, "0_3": RUNS}


def test_a_group_that_ran_before_keeps_what_it_runs() -> None:
    leader = Leader()
    advice = leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS}), process("b", {"0_2": RUNS, "0_3": RUNS, "0_0": 7}))
    assert roles(advice, "a") == {"active": ["0_0", "0_1"]}
    assert roles(advice, "b") == {"active": ["0_2", "0_3"]}
    assert (advice.moves, advice.at_rest, advice.follow_up_ms) == (0, True, None)


def test_a_group_that_begins_is_dealt_out_and_looked_at_until_it_runs() -> None:
    leader = Leader()
    advice = leader.ask(process("a"), process("b"))
    assert sorted(map(len, (roles(advice, "a")["active"], roles(advice, "b")["active"]))) == [2, 2]
    assert advice.follow_up_ms == 2_000
    a, b = (dict.fromkeys(roles(advice, name)["active"], RUNS) for name in ("a", "b"))
    assert leader.ask(process("a", a), process("b", b)).follow_up_ms is None


def test_an_owner_that_becomes_a_copy_and_loses_that_too_frees_its_task_when_it_says_so() -> None:
    """Both happen within one rebalance: two ready copies wait, and the group wants one standby."""
    leader = Leader(2, num_standby_replicas=1, max_warmup_replicas=10)
    leader.ask(process("a", {"0_1": 50_000}), process("b"), process("c"))
    leader.ask(process("a", {"0_1": RESTORES, "0_0": 50_000}), process("c", {"0_1": 50_000}))
    leader.ask(process("a", {"0_1": RESTORES, "0_0": RESTORES}), process("b", {"0_0": 0}), process("c", {"0_0": 0}))
    task = leader.scene.task("0_0")
    assert (task.owner, [entry.member_id for entry in task.handover.unreleased]) == (None, ["a"])
    assert task.handover.next_owner in {"b", "c"}
    leader.ask(process("a", {"0_1": RUNS, "0_0": 0}), process("b", {"0_0": 0}), process("c", {"0_0": 0}))
    assert leader.scene.task("0_0").owner in {"b", "c"}


def test_a_join_warms_up_hands_over_in_two_rebalances_and_rests() -> None:
    """Protocol 14.2 and protocol 14.6."""
    leader = Leader()
    leader.ask(process("a", ALL))
    advice = leader.ask(process("a", ALL), process("b"))
    assert roles(advice, "b") == {"warmup": ["0_0", "0_1"]}
    assert (advice.moves, advice.lower_bound, advice.follow_up_ms, advice.follow_up_by_everybody) == (
        2,
        2,
        2_000,
        False,
    )

    advice = leader.ask(process("a", ALL), process("b", {"0_0": 3, "0_1": 50_000}))
    assert roles(advice, "a") == {"active": ["0_1", "0_2", "0_3"]}
    assert roles(advice, "b") == {"active": ["0_0"], "warmup": ["0_1"]}
    assert (advice.follow_up_ms, advice.follow_up_by_everybody) == (150, True)
    assert leader.code(advice, "0_0") == "handover"

    # The old owner has revoked it: nobody runs it now, and the next owner gets it.
    rest = {task: has for task, has in ALL.items() if task != "0_0"}
    advice = leader.ask(process("a", {**rest, "0_0": 0}), process("b", {"0_0": 3, "0_1": 20}))
    assert roles(advice, "b") == {"active": ["0_0", "0_1"]}
    del rest["0_1"]
    advice = leader.ask(process("a", {**rest, "0_0": 9, "0_1": 9}), process("b", {"0_0": RUNS, "0_1": 20}))
    assert roles(advice, "a") == {"active": ["0_2", "0_3"]}
    assert (advice.at_rest, advice.follow_up_ms, advice.moves) == (True, None, 0)


def test_whoever_is_told_to_give_up_and_has_not_yet_is_asked_again_soon() -> None:
    leader = Leader()
    leader.ask(process("a", ALL))
    leader.ask(process("a", ALL), process("b"))
    for soon_ms in (150, 1_000):
        advice = leader.ask(process("a", ALL), process("b", {"0_0": 3, "0_1": 50_000}))
        assert roles(advice, "b")["active"] == ["0_0"]
        assert (advice.follow_up_ms, advice.follow_up_by_everybody) == (soon_ms, True)


def test_the_next_look_is_when_copies_should_be_caught_up() -> None:
    leader = Leader()
    leader.ask(process("a", ALL))
    leader.ask(process("a", ALL), process("b"))
    leader.ask(process("a", ALL), process("b", {"0_0": 100_000, "0_1": 100_000}))
    advice = leader.ask(process("a", ALL), process("b", {"0_0": 80_000, "0_1": 90_000}))
    assert advice.follow_up_ms == 8_000


def test_what_never_catches_up_is_asked_for_ever_more_seldom() -> None:
    leader = Leader(tasks=2)
    both = {"0_0": RUNS, "0_1": RUNS}
    leader.ask(process("a", both))
    waits = []
    for _ in range(60):
        advice = leader.ask(process("a", both), process("b", {"0_0": 900}))
        assert advice.follow_up_ms is not None
        waits.append(advice.follow_up_ms)
        leader.scene.now_ms += advice.follow_up_ms
    assert waits[0] == 2_000
    assert 100_000 < max(waits) <= 600_000
    assert len(waits) > sum(waits) // 100_000


def test_who_does_not_give_up_is_asked_for_it_ever_more_seldom() -> None:
    leader = Leader(tasks=2)
    both = {"0_0": RUNS, "0_1": RUNS}
    leader.ask(process("a", both))
    leader.ask(process("a", both), process("b"))
    waits = [leader.ask(process("a", both), process("b", {"0_0": 3})).follow_up_ms for _ in range(6)]
    assert waits[0] == 150
    assert waits[-1] == 5_000


def test_state_that_a_newcomer_has_already_is_tailed_and_handed_over_soon() -> None:
    leader = Leader()
    advice = leader.ask(process("a", ALL), process("b", {"0_0": 9, "0_1": 9}))
    assert roles(advice, "b") == {"warmup": ["0_0", "0_1"]}
    assert advice.follow_up_ms == 2_000
    advice = leader.ask(process("a", ALL), process("b", {"0_0": 9, "0_1": 9}))
    assert roles(advice, "b") == {"active": ["0_0", "0_1"]}


def test_copies_that_are_not_caught_up_are_looked_at_again_before_the_group_rests() -> None:
    leader = Leader(tasks=2, num_standby_replicas=1)
    a: dict[str, int | str] = {"0_0": RUNS, "0_1": 0}
    b: dict[str, int | str] = {"0_1": RUNS, "0_0": 0}
    leader.ask(process("a", a), process("b", b))
    assert leader.ask(process("a", a), process("b", b)).follow_up_ms is None
    advice = leader.ask(process("a", {"0_0": RUNS, "0_1": 9_000}), process("b", b))
    assert (advice.at_rest, advice.follow_up_ms) == (False, 2_000)


def test_what_restores_is_looked_at_again() -> None:
    leader = Leader(tasks=1)
    leader.ask(process("a", {"0_0": RUNS}))
    advice = leader.ask(process("b"))
    assert (roles(advice, "b"), advice.follow_up_ms) == ({"active": ["0_0"]}, 2_000)
    advice = leader.ask(process("b", {"0_0": RUNS}))
    assert (advice.at_rest, advice.follow_up_ms) == (True, None)


def test_a_warm_copy_takes_over_from_a_process_that_is_gone_in_the_same_rebalance() -> None:
    leader = Leader(num_standby_replicas=1)
    leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS}), process("b", {"0_2": RUNS, "0_3": RUNS}))
    advice = leader.ask(
        process("a", {"0_0": RUNS, "0_1": RUNS, "0_2": 0, "0_3": 0}),
        process("b", {"0_2": RUNS, "0_3": RUNS, "0_0": 0, "0_1": 0}),
    )
    assert roles(advice, "a") == {"active": ["0_0", "0_1"], "standby": ["0_2", "0_3"]}
    advice = leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS, "0_2": 5, "0_3": 5}))
    assert roles(advice, "a") == {"active": ["0_0", "0_1", "0_2", "0_3"]}
    assert leader.code(advice, "0_2") == "no-owner"
    advice = leader.ask(process("a", ALL))
    assert advice.follow_up_ms is None


def test_only_memory_tells_a_standby_from_state_that_was_left_behind() -> None:
    """Protocol 14.5."""
    leader = Leader(num_standby_replicas=1)
    held: dict[str, int | str] = {"0_0": RUNS, "0_1": RUNS, "0_2": 0, "0_3": 0}
    other: dict[str, int | str] = {"0_2": RUNS, "0_3": RUNS, "0_0": 0, "0_1": 0}
    leader.ask(process("a", held), process("b", other))
    leader.ask(process("a", held), process("b", other))
    # c has state of everything on its disk: it stands by for what moves to it, and for nothing else.
    advice = leader.ask(process("a", held), process("b", other), process("c", {"0_0": 9, "0_1": 9, "0_2": 9, "0_3": 9}))
    assert sum(len(tasks) for tasks in advice.assignment[InstanceId("c")].values()) < 4


def test_what_kafka_did_by_itself_is_taken_as_it_is() -> None:
    leader = Leader()
    leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS}), process("b", {"0_2": RUNS, "0_3": RUNS}))
    advice = leader.ask(process("a", {"0_2": RUNS, "0_1": RUNS}), process("b", {"0_0": RUNS, "0_3": RUNS}))
    assert roles(advice, "a") == {"active": ["0_1", "0_2"]}
    assert (advice.moves, advice.at_rest) == (0, True)


def test_a_task_that_two_processes_claim_stays_with_the_one_that_has_it() -> None:
    leader = Leader()
    leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS}), process("b", {"0_2": RUNS, "0_3": RUNS}))
    advice = leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS, "0_2": RUNS}), process("b", {"0_2": RUNS, "0_3": RUNS}))
    assert roles(advice, "b") == {"active": ["0_2", "0_3"]}


def test_a_task_that_two_processes_claim_and_nobody_had_goes_to_one_of_them() -> None:
    advice = Leader(1).ask(process("b", {"0_0": RUNS}), process("a", {"0_0": RUNS}))
    assert roles(advice, "a") == {"active": ["0_0"]}


def test_a_process_that_restarts_is_a_new_member_under_its_own_name() -> None:
    leader = Leader()
    leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS}), process("b", {"0_2": RUNS, "0_3": RUNS}))
    leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS, "0_2": 0, "0_3": 0}))
    leader.ask(process("a", ALL), process("b", {"0_2": 10, "0_3": 10}))
    assert sorted(leader.scene.group.members) == ["a", "b.2"]
    leader.ask(process("a", ALL))
    leader.ask(process("a", ALL), process("b"))
    assert sorted(leader.scene.group.members) == ["a", "b.3"]


def test_a_process_with_more_threads_keeps_what_it_runs_and_is_given_more() -> None:
    leader = Leader()
    leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS}), process("b", {"0_2": RUNS, "0_3": RUNS}))
    advice = leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS}, threads=3), process("b", {"0_2": RUNS, "0_3": RUNS}))
    assert roles(advice, "a")["active"] == ["0_0", "0_1"]
    assert roles(advice, "a")["warmup"]
    assert advice.moves == 1
    assert [member.capacity for member in leader.scene.group.members.values() if member.instance_id == "a"] == [3.0]


def test_a_drained_process_hands_over_state_first_at_the_next_rebalance() -> None:
    leader = Leader()
    a, b = {"0_0": RUNS, "0_1": RUNS}, {"0_2": RUNS, "0_3": RUNS}
    leader.ask(process("a", a), process("b", b))
    leader.scene.do(DrainRequest(MemberId("b")))
    assert leader.scene.last is not None
    assert leader.scene.last.wake_at_ms is None
    advice = leader.ask(process("a", a), process("b", b))
    assert roles(advice, "b") == {"active": ["0_2", "0_3"]}
    assert roles(advice, "a") == {"active": ["0_0", "0_1"], "warmup": ["0_2", "0_3"]}
    advice = leader.ask(process("a", a | {"0_2": 0, "0_3": 0}), process("b", b))
    assert roles(advice, "b") == {}
    assert advice.follow_up_by_everybody


def explanation(leader: Leader) -> str:
    """Return what is said of a group, in one line."""
    scene = leader.scene
    found = explain_group(scene.view(), limit=10)
    return " ".join([*found.sentences, *(obstacle.detail for obstacle in found.obstacles)])


def test_people_are_told_that_such_a_group_waits_for_rebalances() -> None:
    leader = Leader()
    a, b = {"0_0": RUNS, "0_1": RUNS}, {"0_2": RUNS, "0_3": RUNS}
    leader.ask(process("a", a), process("b", b))
    leader.scene.do(DrainRequest(MemberId("b")))
    assert "What has changed since (drain) is answered at the application's next rebalance." in explanation(leader)
    leader.ask(process("a", a), process("b", b))
    assert "asked to rebalance again in 0 ms; between two rebalances nothing moves." in explanation(leader)
    leader.ask(process("a", a | {"0_2": 0, "0_3": 0}), process("b", b))
    assert "has not confirmed it; the application's next rebalance tells" in explanation(leader)
    # It has stopped, and what gets its tasks has not said yet that it runs them.
    assert "nobody runs" not in explanation(leader)


def test_a_pause_holds_moves_until_it_is_over_and_starts_what_nobody_runs() -> None:
    leader = Leader()
    leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS}), process("b", {"0_2": RUNS, "0_3": RUNS}))
    leader.scene.do(PauseRequest(PauseScope.ALL, "release", leader.scene.now_ms + 60_000))
    advice = leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS, "0_2": 0, "0_3": 500}))
    assert sorted(roles(advice, "a")["active"]) == ["0_0", "0_1", "0_2", "0_3"]
    leader.scene.now_ms += 60_000
    leader.ask(process("a", ALL))
    assert leader.scene.group.pause is None


@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("item", [GroupDeletion(force=True), StoreRecovered(), Started(clock_moved=True)])
def test_what_a_hold_keeps_back_is_asked_for_when_it_ends(
    item: GroupDeletion | StoreRecovered | Started, standbys: int
) -> None:
    """Not after the probing interval of ten minutes."""
    leader = Leader(num_standby_replicas=standbys)
    leader.ask(process("a", ALL))
    leader.scene.ok(item, Done)
    held_for_ms = leader.scene.group.grants_from_ms - leader.scene.now_ms
    advice = leader.ask(process("a", ALL), process("b"))
    if held_for_ms > 0:
        assert (roles(advice, "b"), advice.follow_up_ms) == ({}, held_for_ms)
        leader.scene.now_ms += held_for_ms - ASKS_EVERY_MS
        advice = leader.ask(process("a", ALL), process("b"))
    assert roles(advice, "b") != {}


def test_a_hold_goes_on_over_a_restart_of_the_coordinator() -> None:
    leader = Leader()
    leader.ask(process("a", ALL))
    leader.scene.ok(StoreRecovered(), Done)
    until_ms = leader.scene.group.grants_from_ms
    for _ in range(2):
        leader.scene.soft = Soft()
        leader.scene.do(Started())
        asked_ms = leader.scene.now_ms
        advice = leader.ask(process("a", ALL), process("b"))
        assert roles(advice, "b") == {}
        assert asked_ms + (advice.follow_up_ms or 0) == leader.scene.group.grants_from_ms >= until_ms
    leader.scene.now_ms = leader.scene.group.grants_from_ms
    assert roles(leader.ask(process("a", ALL), process("b")), "b") != {}


def test_what_a_pause_holds_is_asked_for_when_the_pause_ends() -> None:
    leader = Leader()
    leader.ask(process("a", ALL))
    leader.scene.do(PauseRequest(PauseScope.ALL, "release", leader.scene.now_ms + 60_000))
    over_ms = leader.scene.now_ms + 60_000
    advice = leader.ask(process("a", ALL), process("b"))
    assert (roles(advice, "b"), advice.follow_up_ms) == ({}, 60_000)
    leader.scene.now_ms = over_ms
    assert roles(leader.ask(process("a", ALL), process("b")), "b") != {}
    leader.scene.do(PauseRequest(PauseScope.ALL, "release"))
    assert leader.ask(process("a", ALL)).follow_up_ms is None, "nobody knows when it ends"


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_to_move_at_the_deadline_of_a_drain_is_asked_for_then(*, restarts: bool) -> None:
    """The best copy takes over, ready or not; nobody else would look at that instant."""
    leader = Leader(1)
    leader.ask(process("a", {"0_0": RUNS}), process("b"))
    leader.scene.do(DrainRequest(MemberId("a"), deadline_ms=30_000))
    over_ms = leader.scene.now_ms + 30_000
    advice = leader.ask(process("a", {"0_0": RUNS}), process("b", {"0_0": 9_000_000}))
    for lag in (9_000_000, 8_999_000):
        if restarts:
            leader.scene.soft = Soft()
            leader.scene.do(Started())
        advice = leader.ask(process("a", {"0_0": RUNS}), process("b", {"0_0": lag}))
    assert roles(advice, "b") == {"warmup": ["0_0"]}
    assert advice.follow_up_ms is not None
    assert leader.scene.now_ms - ASKS_EVERY_MS + advice.follow_up_ms <= over_ms
    leader.scene.now_ms = over_ms
    advice = leader.ask(process("a", {"0_0": RUNS}), process("b", {"0_0": 8_000_000}))
    assert roles(advice, "b") == {"active": ["0_0"]}


def test_a_process_that_is_kept_out_for_a_time_is_asked_for_when_that_is_over() -> None:
    leader = Leader(tasks=2)
    leader.ask(process("a", {"0_0": RUNS}), process("b", {"0_1": RUNS}))
    leader.scene.do(DrainRequest(MemberId("b"), until_undone=True, for_ms=900_000))
    both = {"0_0": RUNS, "0_1": RUNS}
    for _ in range(4):
        advice = leader.ask(process("a", {"0_0": RUNS, "0_1": 0}), process("b", {"0_1": RUNS}))
        if roles(advice, "a")["active"] == list(both):
            break
    advice = leader.ask(process("a", both), process("b", {"0_1": 0}))
    assert advice.at_rest
    assert advice.follow_up_ms == 600_000, "no later than the probing interval"
    leader.scene.now_ms += 600_000 - ASKS_EVERY_MS
    advice = leader.ask(process("a", both), process("b", {"0_1": 0}))
    assert advice.follow_up_ms is not None
    leader.scene.now_ms += advice.follow_up_ms - ASKS_EVERY_MS
    advice = leader.ask(process("a", both), process("b", {"0_1": 0}))
    assert leader.code(advice, "0_1") or leader.code(advice, "0_0"), "one is to go to b"


def test_what_nobody_may_have_runs_all_the_same_because_kafka_leaves_out_what_has_no_active() -> None:
    leader = Leader(tasks=2)
    leader.ask(process("a", {"0_0": RUNS}), process("b", {"0_1": RUNS}))
    leader.scene.do(PauseRequest(PauseScope.ALL))
    advice = leader.ask(process("a", {"0_0": RUNS}), process("c"))
    assert sorted(task for of in advice.assignment.values() for task in of["active"]) == ["0_0", "0_1"]
    leader = Leader(tasks=2)
    leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS}))
    leader.scene.do(DrainRequest(MemberId("a")))
    leader.tasks = 3
    advice = leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS}))
    assert roles(advice, "a") == {"active": ["0_0", "0_1", "0_2"]}


def test_what_only_a_process_that_is_kept_out_could_have_runs_there_all_the_same() -> None:
    leader = Leader(tasks=2)
    both = {"0_0": RUNS, "0_1": RUNS}
    leader.ask(process("a", both), process("b"))
    leader.scene.do(DrainRequest(MemberId("a"), until_undone=True))
    leader.ask(process("b", both))
    advice = leader.ask(process("a"))
    assert roles(advice, "a") == {"active": ["0_0", "0_1"]}


def test_a_warmup_that_does_not_get_on_is_tried_elsewhere() -> None:
    leader = Leader(tasks=2, max_warmup_replicas=1)
    both = {"0_0": RUNS, "0_1": RUNS}
    leader.ask(process("a", both))
    leader.ask(process("a", both), process("b"))
    leader.ask(process("a", both), process("b", {"0_0": 900}))
    leader.scene.now_ms += 3_600_000
    advice = leader.ask(process("a", both), process("b", {"0_0": 900}), process("c"))
    assert [held for held in advice.held_back if held[2] == "warmup-stalled"] or roles(advice, "c") == {
        "warmup": ["0_0"]
    }


def test_a_warmup_that_comes_no_closer_gives_way_in_the_same_rebalance() -> None:
    """It is read on, and its changelog is written as fast."""
    leader = Leader(tasks=4)
    leader.ask(process("a", ALL))
    leader.ask(process("a", ALL), process("b"))
    hot = {TaskId(task): TaskReport("none", lag=900, positions=(("", 1),)) for task in ("0_0", "0_1")}
    advice = leader.ask(process("a", ALL), replace(process("b"), tasks=hot))
    assert roles(advice, "b") == {"warmup": ["0_0", "0_1"]}
    leader.scene.now_ms += 400_000
    hot = {task: report._replace(positions=(("", 9),)) for task, report in hot.items()}
    advice = leader.ask(process("a", ALL), replace(process("b"), tasks=hot))
    assert roles(advice, "b") == {"warmup": ["0_2", "0_3"]}


def test_a_placement_that_fails_is_tried_again_at_the_next_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """No timer of the group does that, and a rest of which the application is told lasts until something happens."""

    def fails(*_: object) -> None:
        raise OverflowError("too large")

    leader = Leader()
    leader.ask(process("a", ALL))
    with monkeypatch.context() as patched:
        patched.setattr("batonpass.core.target.retarget.place", fails)
        advice = leader.ask(process("a", ALL), process("b"))
        assert (advice.at_rest, advice.follow_up_ms) == (False, GroupConfig().probing_rebalance_interval_ms)
    assert roles(leader.ask(process("a", ALL), process("b")), "b") == {"warmup": ["0_0", "0_1"]}


def test_a_process_that_restores_whatever_it_is_handed_is_not_handed_it_again_and_again() -> None:
    """Its copies say that they are level. Kafka says of it neither that it failed nor that its state is lost."""
    leader = Leader(3, num_standby_replicas=2)
    of: dict[str, list[str]] = {"a": ["0_0", "0_1"], "b": ["0_2"], "c": []}
    handovers = 0
    for _ in range(60):
        before, says = of, []
        for name, active in of.items():
            runs = process(name, dict.fromkeys(("0_0", "0_1", "0_2"), 0) | dict.fromkeys(active, RUNS))
            restores = {TaskId(task): TaskReport("active", ActiveState.RESTORING, 60_000) for task in active}
            says.append(replace(runs, tasks={**runs.tasks, **restores}) if name == "c" else runs)
        advice = leader.ask(*says)
        of = {name: roles(advice, name).get("active", []) for name in of}
        handovers += sum(len(set(of[name]).difference(before[name])) for name in of)
    assert handovers <= 4
    assert of["c"] == []


def test_pins_hold() -> None:
    leader = Leader(tasks=2)
    leader.ask(process("a", {"0_0": RUNS}), process("b", {"0_1": RUNS}))
    leader.scene.do(PinRequest(TaskId("0_0"), MemberId("b")))
    advice = leader.ask(process("a", {"0_0": RUNS}), process("b", {"0_1": RUNS}))
    assert "0_0" in roles(advice, "b")["warmup"]


def test_a_task_whose_next_owner_drains_goes_to_its_new_target_and_not_back_in_between() -> None:
    leader = Leader(1, num_standby_replicas=2)
    for _ in range(2):
        leader.ask(process("a", {"0_0": RUNS}), process("b", {"0_0": 0}), process("c", {"0_0": 0}))
    leader.scene.do(PinRequest(TaskId("0_0"), MemberId("b")))
    advice = leader.ask(process("a", {"0_0": RUNS}), process("b", {"0_0": 0}), process("c", {"0_0": 0}))
    assert roles(advice, "b") == {"active": ["0_0"]}
    leader.scene.do(PinRequest(TaskId("0_0"), MemberId("c")))
    leader.scene.do(DrainRequest(MemberId("b")))
    advice = leader.ask(process("a", {"0_0": 0}), process("b", {"0_0": 0}), process("c", {"0_0": 0}))
    assert roles(advice, "c") == {"active": ["0_0"]}
    assert leader.scene.task("0_0").owner == "c"


def test_what_a_rebalance_gives_it_does_not_take_for_a_better_copy() -> None:
    """The next owner of a task that nobody ran has fallen behind meanwhile."""
    leader = Leader(1, num_standby_replicas=2)
    advice = leader.ask(restores("a", 90_000), process("b", {"0_0": 0}), process("c", {"0_0": 50_000}))
    assert roles(advice, "b") == {"active": ["0_0"]}
    a, c = process("a", {"0_0": 50_000}), process("c", {"0_0": 0})
    advice = leader.ask(a, process("b", {"0_0": 200}), c)
    assert roles(advice, "b") == {"active": ["0_0"]}
    assert roles(leader.ask(a, restores("b", 210), c), "c") == {"active": ["0_0"]}


def restores(name: str, lag: int) -> StreamsProcess:
    """Return a process that restores the first task."""
    return replace(process(name), tasks={TaskId("0_0"): TaskReport("active", ActiveState.RESTORING, lag)})


def test_what_restores_when_the_group_begins_is_looked_at_again() -> None:
    leader = Leader(1)
    advice = leader.ask(restores("a", 90_000))
    assert (advice.at_rest, advice.follow_up_ms) == (False, 2_000)
    assert leader.scene.task("0_0").state is ActiveState.RESTORING
    assert leader.ask(process("a", {"0_0": RUNS})).at_rest


def test_what_is_adopted_is_no_new_copy_when_it_is_handed_over_at_once() -> None:
    """One that is kept out runs more than there are slots, and each of its tasks has a copy that is ready."""
    leader = Leader(num_standby_replicas=1, max_warmup_replicas=1)
    b = process("b", dict.fromkeys(ALL, 0))
    for _ in range(2):
        leader.ask(process("a", ALL), b)
    leader.scene.do(Eviction(MemberId("a"), until_undone=True))
    leader.config["num_standby_replicas"] = 0
    advice = leader.ask(process("a", ALL), b)
    assert (roles(advice, "a"), roles(advice, "b")) == ({}, {"active": [*ALL]})


def test_what_kafka_gives_to_a_third_process_may_go_back_to_the_one_that_gave_it_up() -> None:
    leader = Leader(1, num_standby_replicas=2)
    b, c = process("b", {"0_0": 0}), process("c", {"0_0": 50_000})
    for _ in range(2):
        leader.ask(process("a", {"0_0": RUNS}), b, c)
    leader.scene.do(PinRequest(TaskId("0_0"), MemberId("b")))
    assert roles(leader.ask(process("a", {"0_0": RUNS}), b, c), "b") == {"active": ["0_0"]}
    leader.scene.do(PinRequest(TaskId("0_0"), MemberId("a")))
    assert roles(leader.ask(process("a", {"0_0": 0}), b, restores("c", 60_000)), "a") == {"active": ["0_0"]}


def test_a_target_that_had_to_respect_what_was_under_way_is_placed_anew_in_the_next_rebalance() -> None:
    """All goes to b, which is not to have all any more. It gets what it was to get, and then others get their share."""
    leader = Leader(num_standby_replicas=2)
    copies = dict.fromkeys(ALL, 0)
    leader.ask(process("a", ALL))
    leader.scene.do(DrainRequest(MemberId("a")))
    for _ in range(2):
        leader.ask(process("a", ALL), process("b", copies))
    leader.scene.do(DrainReversal(MemberId("a")))
    advice = leader.ask(process("a", copies), process("b", copies), process("c", copies))
    assert (roles(advice, "b"), advice.follow_up_ms) == ({"active": [*ALL]}, 1_000)
    leader.ask(process("a", copies), process("b", ALL), process("c", copies))
    advice = leader.ask(process("a", copies), process("b", ALL), process("c", copies))
    assert sorted(len(of["active"]) for of in advice.assignment.values()) == [1, 1, 2]


def test_stateless_tasks_start_at_once() -> None:
    scene = Scene()
    shape = Topology(1, (Subtopology("0", 2, stateful=False),))
    advice = scene.ok(StreamsRebalance(shape, {}, (process("a"), process("b"))), StreamsAdvice)
    assert advice.at_rest


def test_in_shadow_kafka_decides_and_what_would_be_done_is_shown() -> None:
    leader = Leader()
    other = OtherAssignment(
        "HighAvailabilityTaskAssignor", {InstanceId("a"): (TaskId("0_1"), TaskId("0_2"), TaskId("9_9"))}
    )
    a: dict[str, int | str] = {"0_0": RUNS, "0_1": RUNS, "0_2": 0}
    b = {"0_2": RUNS, "0_3": RUNS}
    advice = leader.ask(process("a", a), process("b", b), process("c"), other=other)
    assert (advice.moves, advice.lower_bound) == (1, 1)
    assert roles(advice, "a")["active"] == ["0_0", "0_1"]
    assert leader.scene.last is not None
    (reason,) = [reason for reason in leader.scene.last.reasons if reason.code == "other-assignor"]
    assert reason.detail == "HighAvailabilityTaskAssignor decides, and moves 1 task: 0_2"
    # Kafka takes 0_2 from b in one rebalance, and gives it to a in the next, which tells of it only at the one after.
    advice = leader.ask(process("a", a), process("b", {"0_3": RUNS, "0_2": 5}), process("c"), other=other)
    assert leader.scene.group.tasks[TaskId("0_2")].owner == "a"
    advice = leader.ask(
        process("a", {"0_1": RUNS, "0_2": RUNS}), process("b", {"0_0": RUNS, "0_3": RUNS}), process("c"), other=other
    )
    assert roles(advice, "b")["active"] == ["0_0", "0_3"]


def test_a_warmup_that_runs_when_the_application_goes_into_the_shadow_is_no_reason_to_refuse_it() -> None:
    leader = Leader()
    leader.ask(process("a", ALL))
    leader.ask(process("a", ALL), process("b"))
    # Kafka keeps everything where it is: the warmups of b are no use, and only a step would end them.
    a = tuple(TaskId(task) for task in ALL)
    kept = OtherAssignment("HighAvailabilityTaskAssignor", {InstanceId("a"): a})
    for task in a:
        leader.scene.do(PinRequest(task, MemberId("a")))
    advice = leader.ask(process("a", ALL), process("b", {"0_0": 0, "0_1": 0}), other=kept)
    assert (advice.at_rest, advice.follow_up_ms) == (False, 600_000)


def test_a_topology_may_grow_and_settings_follow_the_application() -> None:
    leader = Leader()
    leader.ask(process("a", ALL))
    leader.tasks, leader.config["num_standby_replicas"] = 6, 1
    advice = leader.ask(process("a", ALL), process("b"))
    assert sorted(roles(advice, "a")["active"] + roles(advice, "b").get("active", [])) == [f"0_{n}" for n in range(6)]
    assert leader.scene.group.config.num_standby_replicas == 1


def test_settings_are_what_kafka_takes_them_for_within_what_a_group_can_use() -> None:
    """Protocol 14.7."""
    no_limit = 2**31 - 1
    leader = Leader(max_warmup_replicas=no_limit, num_standby_replicas=no_limit, acceptable_recovery_lag=2**63 - 1)
    leader.config["rack_aware_tags"] = ("zone", "", "zone")
    leader.ask(process("a", ALL), process("b"))
    config = leader.scene.group.config
    assert (config.max_warmup_replicas, config.num_standby_replicas) == (100_000, 1_000)
    assert (config.acceptable_recovery_lag, config.rack_aware_tags) == (2**63 - 1, ("zone",))
    for name, value in (("rack_aware_tags", "zone"), ("max_warmup_replicas", True)):
        leader.scene.refused(StreamsRebalance(topology(4), {name: value}, (process("a", ALL),)), InvalidConfig)
    leader.config["num_standby_replicas"] = -1
    leader.ask(process("a", ALL), process("b"))
    assert leader.scene.group.config.num_standby_replicas == 0


@pytest.mark.parametrize("value", [-(2**31), -1, 0, 1, 2**31 - 1, 2**80])
@pytest.mark.parametrize("name", ["max_warmup_replicas", "num_standby_replicas", "acceptable_recovery_lag"])
def test_no_number_that_kafka_takes_keeps_an_application_from_its_rest(name: str, value: int) -> None:
    leader = Leader(**{name: value})
    leader.ask(process("a", ALL))
    leader.ask(process("a", ALL), process("b"))
    a, b = process("a", ALL), process("b", dict.fromkeys(ALL, 0))
    leader.ask(a, b)
    leader.ask(a, b)
    assert roles(leader.ask(a, b), "b")["active"]


def asks(scene: Scene, parts: tuple[Subtopology, ...], *processes: StreamsProcess, **config: object) -> StreamsAdvice:
    """Return what a leader is answered whose application has these subtopologies; two seconds pass."""
    advice = scene.ok(StreamsRebalance(Topology(1, parts), config, processes), StreamsAdvice)
    scene.now_ms += ASKS_EVERY_MS
    return advice


TOTALS = Subtopology("0", 2, source_topics=("orders",), changelog_topics=("totals",))


def test_a_topology_that_shrinks_loses_the_tasks_that_are_gone_and_keeps_the_others_where_they_run() -> None:
    """A pattern's widest topic is deleted (protocol 14.7)."""
    leader = Leader(num_standby_replicas=1)
    a: dict[str, int | str] = {"0_0": RUNS, "0_1": RUNS, "0_2": 0, "0_3": 0}
    b: dict[str, int | str] = {"0_2": RUNS, "0_3": RUNS, "0_0": 0, "0_1": 0}
    leader.ask(process("a", a), process("b", b))
    leader.scene.do(PinRequest(TaskId("0_3"), MemberId("b")))
    leader.ask(process("a", a), process("b", b))
    leader.tasks = 3
    del a["0_3"], b["0_3"]
    advice = leader.ask(process("a", a), process("b", b))
    assert (roles(advice, "a"), roles(advice, "b")) == (
        {"active": ["0_0", "0_1"], "standby": ["0_2"]},
        {"active": ["0_2"], "standby": ["0_0", "0_1"]},
    )
    assert (advice.at_rest, advice.follow_up_ms, advice.moves) == (True, None, 0)
    group = leader.scene.group
    assert not group.pins
    assert TaskId("0_3") not in group.tasks
    # Bit by bit it comes back, as a task that nobody has had.
    leader.tasks = 4
    advice = leader.ask(process("a", a), process("b", b))
    assert sorted([*roles(advice, "a")["active"], *roles(advice, "b")["active"]]) == ["0_0", "0_1", "0_2", "0_3"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_subtopology_that_is_removed_is_gone_at_once(*, restarts: bool) -> None:
    """Also where a coordinator decides that has heard nobody yet."""
    scene = Scene()
    other = Subtopology("1", 2, stateful=False, source_topics=("clicks",))
    runs = {"0_0": RUNS, "0_1": RUNS}
    asks(scene, (TOTALS, other), process("a", runs | {"1_0": RUNS, "1_1": RUNS}))
    if restarts:
        scene.soft = Soft()
        scene.do(Started())
    advice = asks(scene, (TOTALS,), process("a", runs))
    assert (roles(advice, "a"), advice.at_rest) == ({"active": ["0_0", "0_1"]}, True)


@pytest.mark.parametrize(
    "first",
    [
        Subtopology("0", 2, stateful=False, source_topics=("orders",)),
        Subtopology("0", 1, source_topics=("clicks",), changelog_topics=("clicks-seen",)),
        Subtopology("0", 3, source_topics=("orders",), changelog_topics=("orders-seen",)),
        Subtopology("0", 2, source_topics=("clicks",)),
    ],
    ids=["stateless", "smaller", "same-source", "no-changelog"],
)
def test_a_part_put_first_renumbers_the_others_and_what_is_said_of_a_number_is_said_of_no_other_task(
    first: Subtopology,
) -> None:
    """Protocol 14.7."""
    scene = Scene()
    scene.now_ms += 1
    asks(scene, (TOTALS,), process("a", {"0_0": RUNS}), process("b", {"0_1": RUNS}))
    scene.do(PinRequest(TaskId("0_0"), MemberId("a")))
    asks(scene, (TOTALS,), process("a", {"0_0": RUNS}), process("b", {"0_1": RUNS}))
    renumbered = (first, replace(TOTALS, id="1"))
    advice = asks(scene, renumbered, process("a"), process("b"))
    tasks = [task for name in "ab" for task in roles(advice, name)["active"]]
    assert sorted(tasks) == [*(f"0_{number}" for number in range(first.partitions or 0)), "1_0", "1_1"]
    assert not scene.group.pins
    a, b = (dict.fromkeys(roles(advice, name)["active"], RUNS) for name in "ab")
    advice = asks(scene, renumbered, process("a", a), process("b", b))
    assert (advice.at_rest, advice.moves) == (True, 0)


@pytest.mark.parametrize(
    "now",
    [
        replace(TOTALS, source_topics=("orders", "more"), changelog_topics=("totals", "seen")),
        replace(TOTALS, source_topics=("renamed",)),
        replace(TOTALS, partitions=3),
    ],
    ids=["another-store", "another-source", "more-partitions"],
)
def test_a_subtopology_that_has_any_of_its_stores_goes_on(now: Subtopology) -> None:
    scene = Scene()
    asks(scene, (TOTALS,), process("a", {"0_0": RUNS, "0_1": RUNS}))
    scene.do(PinRequest(TaskId("0_0"), MemberId("a")))
    asks(scene, (now,), process("a", {"0_0": RUNS, "0_1": RUNS}), process("b"))
    assert scene.group.tasks[TaskId("0_0")].owner == "a"
    assert scene.group.pins == {"0_0": "a"}


def test_two_releases_that_lead_in_turn_move_nothing_that_runs() -> None:
    """A rolling restart: each leader reports the tasks of its own release."""
    scene = Scene()
    before, after = (TOTALS,), (replace(TOTALS, stateful=False, changelog_topics=()), replace(TOTALS, id="1"))
    for parts in (before, after, before, after):
        runs = [f"{part.id}_{partition}" for part in parts for partition in range(2)]
        advice = asks(
            scene, parts, process("a", dict.fromkeys(runs[::2], RUNS)), process("b", dict.fromkeys(runs[1::2], RUNS))
        )
        assert (roles(advice, "a")["active"], roles(advice, "b")["active"]) == (runs[::2], runs[1::2])


def test_a_drain_goes_on_when_the_topology_shrinks() -> None:
    leader = Leader()
    leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS}), process("b", {"0_2": RUNS, "0_3": RUNS}))
    leader.scene.do(DrainRequest(MemberId("b")))
    leader.tasks = 3
    advice = leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS}), process("b", {"0_2": RUNS}))
    assert roles(advice, "a")["warmup"] == ["0_2"]


def test_what_kafka_does_alone_is_followed_when_its_tasks_are_others() -> None:
    leader = Leader()
    shadow = OtherAssignment("HighAvailabilityTaskAssignor", {InstanceId("a"): (TaskId("0_0"), TaskId("0_1"))})
    leader.ask(process("a", ALL), other=shadow)
    leader.tasks = 2
    advice = leader.ask(process("a"), process("b"), other=shadow)
    assert advice.at_rest is False
    assert {task.owner for task in map(leader.scene.group.tasks.__getitem__, leader.scene.group.table.ids)} == {"a"}


@pytest.mark.parametrize(
    "changed",
    [
        lambda one: replace(one, capacity=3.0),
        lambda one: replace(one, client_tags={"zone": "c"}),
        lambda one: replace(one, endpoint="10.0.0.8:9000"),
    ],
    ids=["threads", "tags", "address"],
)
@pytest.mark.parametrize("until_undone", [False, True])
def test_a_drain_holds_for_a_process_whatever_it_changes(
    changed: Callable[[StreamsProcess], StreamsProcess], *, until_undone: bool
) -> None:
    """Protocol 14.4."""
    leader = Leader(2)
    a, b = process("a", {"0_0": RUNS}), process("b", {"0_1": RUNS})
    leader.ask(a, b)
    leader.scene.do(DrainRequest(MemberId("b"), deadline_ms=600_000, until_undone=until_undone))
    before = leader.scene.group.members[MemberId("b")].drain
    leader.ask(a, b)
    leader.ask(process("a", {"0_0": RUNS, "0_1": 0}), b)
    for held in ({"0_1": 0}, {}):
        advice = leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS}), changed(process("b", held)))
        assert roles(advice, "b") == {}
    assert leader.scene.group.members[MemberId("b")].drain == before
    assert DrainProgress((), ()) == leader.scene.do(DrainRequest(MemberId("b")))
    # It is undone under the name that it was said of.
    leader.scene.do(DrainReversal(MemberId("b")))
    advice = leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS}), changed(process("b")))
    assert roles(advice, "b")


@pytest.mark.parametrize("said_of", ["pod-b", "u2"])
def test_an_instance_that_is_kept_out_has_nothing_whatever_it_changes_how_often_and_under_which_name(
    said_of: str,
) -> None:
    """By the name of its process, or by its id; its threads are raised twice, it restarts, and is evicted."""
    leader = Leader(2)

    def asked(b: Mapping[str, int | str], threads: int, endpoint: str | None = None) -> StreamsAdvice:
        a = replace(process("u1", {"0_0": RUNS, "0_1": 0 if "0_1" in b else RUNS}), name="pod-a")
        return leader.ask(a, replace(process("u2", b, threads=threads), name="pod-b", endpoint=endpoint))

    asked({"0_1": RUNS}, 1)
    leader.scene.ok(DrainRequest(MemberId(said_of), until_undone=True), DrainProgress)
    for _ in range(2):
        asked({"0_1": RUNS}, 2)
    for threads, endpoint in ((2, None), (8, "h:1"), (32, "h:2")):
        assert roles(asked({}, threads, endpoint), "u2") == {}
    leader.ask(replace(process("u1", {"0_0": RUNS, "0_1": RUNS}), name="pod-a"))
    assert roles(asked({}, 64), "u2") == {}
    leader.scene.do(Eviction(MemberId("pod-b.2")))
    assert roles(asked({}, 64), "u2") == {}
    leader.scene.do(DrainReversal(MemberId(said_of)))
    assert roles(asked({}, 64), "u2") != {}


def test_a_drain_is_over_when_its_process_is_gone() -> None:
    leader = Leader(2)
    a, b = process("a", {"0_0": RUNS}), process("b", {"0_1": RUNS})
    leader.ask(a, b)
    leader.scene.do(DrainRequest(MemberId("b")))
    leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS}))
    leader.ask(process("a", {"0_0": RUNS, "0_1": RUNS}), process("b", threads=3))
    assert leader.scene.group.members[MemberId("b.2")].drain is None


@pytest.mark.parametrize("shadow", [False, True])
@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize("runs", [False, True])
def test_a_process_that_is_evicted_is_back_with_the_next_rebalance(*, shadow: bool, dead: bool, runs: bool) -> None:
    """Nobody waits for the end of its lease: none runs, and the report has every process that runs anything."""
    leader = Leader(2)
    a, b = process("a", {"0_0": RUNS}), process("b", {"0_1": RUNS})
    given = {InstanceId("a"): (TaskId("0_0"),), InstanceId("b"): (TaskId("0_1"),)}
    other = OtherAssignment("HighAvailabilityTaskAssignor", given) if shadow else None
    for _ in range(2):
        leader.ask(a, b, other=other)
    leader.scene.do(Eviction(MemberId("b"), dead=dead))
    advice = leader.ask(a, b if runs else process("b"), other=other)
    assert sorted(leader.scene.group.members) == ["a", "b.2"]
    assert (roles(advice, "a"), roles(advice, "b")) == ({"active": ["0_0"]}, {"active": ["0_1"]})
    advice = leader.ask(a, b, other=other)
    assert (advice.at_rest, advice.follow_up_ms) == (True, None)


def refused(leader: Leader) -> None:
    """Let the leader ask for more than the coordinator allows."""
    policy = leader.scene.policy
    leader.scene.policy = replace(policy, max_tasks=1)
    leader.is_refused(leader.input(process("a", ALL)), TooLarge)
    leader.scene.policy = policy


def test_a_refusal_is_said_of_the_group_until_there_is_an_answer() -> None:
    """Protocol 14.8."""
    leader = Leader()
    leader.ask(process("a", ALL))
    scene = leader.scene
    for _ in range(3):
        scene.now_ms += 60_000
        refused(leader)
    scene.now_ms += 5_000
    (first, *more) = explain_group(scene.view(), limit=1).sentences
    assert first == (
        "Rebalances are refused: the topology has 4 tasks, the limit is 1 (3 refusals in 2 min 5 s, the last 5 s ago). "
        "Nothing moves for who asks, and new instances get nothing."
    )
    assert more == []
    status = describe_group(scene.view())
    assert (status.at_rest, status.state) == (False, GroupState.BALANCING)
    assert status.detail == "rebalances are refused: the topology has 4 tasks, the limit is 1"
    leader.ask(process("a", ALL))
    assert "refused" not in explanation(leader)


def test_what_is_refused_in_the_shadow_moves_as_kafka_has_it() -> None:
    leader = Leader()
    shadow = OtherAssignment("HighAvailabilityTaskAssignor", {InstanceId("a"): (TaskId("0_0"),)})
    leader.ask(process("a", ALL), other=shadow)
    refused(leader)
    assert "Rebalances are refused: " in explanation(leader)
    assert "Nothing moves" not in explanation(leader)


def test_a_refused_question_makes_no_group_and_is_forgotten_when_there_is_one() -> None:
    scene = Scene()
    for _ in range(2):
        scene.do(RefusedRebalance("tasks: names no task", {"application_id": "totals"}))
    assert scene.soft.refused == Refused("tasks: names no task", scene.now_ms, scene.now_ms, 2)
    assert (scene.group.declared, scene.log) == (False, [])
    # Who shows it says what would be shown of a group, and nothing of members that it cannot have.
    shown = replace(scene.group, config=GroupConfig(kafka_streams=True))
    (said,) = explain_group(View(shown, scene.soft, scene.now_ms), limit=1).sentences
    assert said.startswith("Rebalances are refused: tasks: names no task (2 refusals in 0 ms, the last 0 ms ago).")
    assert scene.do(GroupDeletion()) == Done()
    scene.refused(GroupDeletion(force=True), UnknownGroup)
    scene.do(RefusedRebalance("tasks: names no task"))
    leader = Leader()
    scene.ok(leader.input(process("a", ALL)), StreamsAdvice)
    assert scene.soft.refused is None


def test_what_was_refused_before_members_declared_the_group_is_not_theirs() -> None:
    scene, leader = Scene(), Leader()
    scene.do(RefusedRebalance("tasks: names no task"))
    scene.declare()
    leader.scene = scene
    assert "refused" not in explanation(leader)
    leader.is_refused(leader.input(process("a", ALL)), InvalidRequest)
    assert scene.soft.refused is not None
    assert (scene.soft.refused.times, scene.soft.refused.is_another) == (1, True)


def test_an_application_that_is_refused_at_a_group_of_members_that_heartbeat_is_seen_there() -> None:
    """Protocol 14.8: it asks each minute, and is no application of the group, which it takes nothing from."""
    leader = Leader()
    scene = leader.scene
    scene.declare()
    scene.join("m1")
    scene.settle()
    for _ in range(2):
        scene.now_ms += 1_000
        scene.obey("m1")
        leader.is_refused(leader.input(process("a", ALL)), InvalidRequest)
    status = describe_group(scene.view())
    assert (status.at_rest, status.application, status.detail) == (True, None, "")
    said = explanation(leader)
    assert (
        "Another application asks under this name, and is refused: group 'g' is one of members that heartbeat" in said
    )
    assert "(2 refusals in 1 s, the last 0 ms ago)" in said
    scene.now_ms += 106_000
    assert "nother application" not in explanation(leader)


OF_THE_LEADER: Mapping[str, object] = {
    "kafka_streams": False,
    "other_assignor": "Mine",
    "application_id": "returns",
    "cluster_id": "c-2",
    "acceptable_recovery_lag": 7,
    "max_warmup_replicas": "50%",
    "num_standby_replicas": 3,
    "rack_aware_tags": ["rack"],
}


@pytest.mark.parametrize("name", OF_THE_LEADER)
def test_what_only_the_leader_says_is_not_set_by_a_caller(name: str) -> None:
    """Protocol 14.3: what a group is, whose it is, who decides, and what the application has for settings."""
    leader = Leader()
    leader.scene.ok(leader.named("totals", "c-1"), StreamsAdvice)
    scene, before = leader.scene, leader.scene.group
    refused = scene.change(None, **{name: OF_THE_LEADER[name]})
    assert isinstance(refused, InvalidConfig)
    assert [path for path, _ in refused.errors] == [f"config.{name}"]
    assert scene.group is before
    # Who reads a group and sends it back, with a setting of their own, changes only that.
    told = {name: getattr(before.config, name)}
    assert isinstance(scene.change(before.topology, drain_timeout_ms=60_000, **told), Declared)
    assert scene.group.config == replace(before.config, drain_timeout_ms=60_000)


@pytest.mark.parametrize("shape", [topology(5), topology(3), topology(4, epoch=2), topology(4, stateless=1)])
def test_nor_are_the_tasks(shape: Topology) -> None:
    """Those of the next rebalance would be others again."""
    leader = Leader()
    leader.ask(process("a", ALL))
    before = leader.scene.group
    refused = leader.scene.change(shape)
    assert isinstance(refused, InvalidTopology)
    assert leader.scene.group is before


@pytest.mark.parametrize(
    "setting", [{"kafka_streams": True}, *({name: "x"} for name in ("other_assignor", *WHOSE_GROUP))]
)
def test_a_caller_makes_no_group_of_an_application(setting: Mapping[str, object]) -> None:
    Scene("new").refused(GroupDeclaration(GroupId("new"), topology(), setting), InvalidConfig)
    scene = Scene()
    scene.declare()
    assert isinstance(scene.change(None, **setting), InvalidConfig)
    assert isinstance(scene.change(None, num_standby_replicas=1, rack_aware_tags=["zone"]), Declared)


def test_an_application_without_a_task_is_none_that_is_refused() -> None:
    """No topic matches its pattern yet, or the last one is gone (protocol 14.7)."""
    leader = Leader(tasks=0)
    leader.scene.now_ms += 1
    for processes in ((process("a"),), (process("a"), process("b")), (process("b"),)):
        advice = leader.ask(*processes)
        assert [roles(advice, one.id) for one in processes] == [{}] * len(processes)
        assert (advice.follow_up_ms, advice.moves) == (None, 0)
    said = "The group is not ready: no topic that the application reads is there, so it has no task."
    assert explanation(leader) == said
    leader.tasks = 4
    advice = leader.ask(process("b"), process("c"))
    assert sorted(map(len, (roles(advice, "b")["active"], roles(advice, "c")["active"]))) == [2, 2]
    b, c = (dict.fromkeys(roles(advice, name)["active"], RUNS) for name in "bc")
    assert leader.ask(process("b", b), process("c", c)).at_rest
    leader.scene.do(DrainRequest(MemberId("b")))
    leader.tasks = 0
    assert roles(leader.ask(process("b"), process("c")), "c") == {}
    leader.tasks = 4
    advice = leader.ask(process("b"), process("c"))
    assert (roles(advice, "b"), len(roles(advice, "c")["active"])) == ({}, 4)


def test_of_an_application_that_is_not_heard_nobody_says_that_it_is_well() -> None:
    """Protocol 14.8."""
    leader = Leader()
    leader.ask(process("a", ALL))
    advice = leader.ask(process("a", ALL))
    assert advice.at_rest
    assert explanation(leader) == (
        "At the application's last rebalance, 2 s ago, every task was where it belongs, and every copy caught up."
    )
    scene = leader.scene
    scene.refused(GroupDeletion(), GroupNotEmpty)
    scene.now_ms += 347_000
    assert explanation(leader) == (
        "At the application's last rebalance, 5 min 49 s ago, every task was where it belongs, and every copy caught up. "
        "Nothing has been heard of the application for 5 min 49 s: it rests, is stopped, or does not get through, and its "
        "group can be deleted."
    )
    scene.soft = Soft()
    scene.do(Started())
    assert "before this coordinator started 0 ms ago" in explanation(leader)
    scene.now_ms += 46_000
    assert "Nothing has been heard" not in explanation(leader)
    assert "stop the application and wait 59 s" in scene.refused(GroupDeletion(), GroupNotEmpty).detail
    scene.now_ms += 60_000
    assert "Nothing has been heard of the application for 1 min 46 s" in explanation(leader)
    assert scene.do(GroupDeletion()) == Done()
    # No lease ran, so the next application of the name has its tasks at once.
    assert roles(leader.ask(process("c")), "c") == {"active": ["0_0", "0_1", "0_2", "0_3"]}


def test_after_a_restart_nobody_says_of_a_refused_application_that_it_is_well_or_gone() -> None:
    """It asks again within a minute, and each time it is refused again (protocol 14.8)."""
    leader = Leader()
    scene = leader.scene
    leader.ask(process("a", ALL))
    leader.ask(process("a", ALL))
    scene.now_ms += 60_000
    refused(leader)
    scene.soft = Soft()
    scene.do(Started())
    scene.now_ms += 59_000
    assert explanation(leader) == (
        "At the last rebalance that was answered, before this coordinator started 59 s ago, every task was where it "
        "belongs, and every copy caught up."
    )
    scene.refused(GroupDeletion(), GroupNotEmpty)
    refused(leader)
    assert "Rebalances are refused: the topology has 4 tasks, the limit is 1 (1 refusal in 0 ms" in explanation(leader)


def test_an_application_that_was_to_ask_and_has_not_is_said_to_be_overdue() -> None:
    leader = Leader()
    leader.ask(process("a", ALL))
    advice = leader.ask(process("a", ALL), process("b"))
    assert advice.follow_up_ms == 2_000
    leader.scene.now_ms += 40_000
    leader.scene.refused(GroupDeletion(), GroupNotEmpty)
    leader.scene.now_ms += 20_000
    assert "it was to rebalance 1 min ago, so it is stopped, or does not get through" in explanation(leader)
    assert "asked to rebalance again" not in explanation(leader)
    assert leader.scene.do(GroupDeletion()) == Done()


def test_a_group_whose_application_is_refused_is_not_deleted_without_force_while_it_asks() -> None:
    leader = Leader()
    leader.ask(process("a", ALL))
    leader.scene.now_ms += 3_600_000
    refused(leader)
    leader.scene.now_ms += 100_000
    leader.scene.refused(GroupDeletion(), GroupNotEmpty)
    leader.scene.now_ms += 6_000
    assert leader.scene.do(GroupDeletion()) == Done()


def test_copies_that_are_behind_are_said_to_have_been() -> None:
    leader = Leader(tasks=2, num_standby_replicas=1)
    a: dict[str, int | str] = {"0_0": RUNS, "0_1": 9_000}
    b: dict[str, int | str] = {"0_1": RUNS, "0_0": 0}
    leader.ask(process("a", a), process("b", b))
    leader.ask(process("a", a), process("b", b))
    assert "every task was where it belongs, but not every copy caught up" in explanation(leader)


def test_its_tasks_are_those_that_the_application_says() -> None:
    scene = Scene()
    shape = Topology(1, (Subtopology("0", 1, source_topics=("orders",)),))
    scene.ok(StreamsRebalance(shape, {}, (process("a"),)), StreamsAdvice)
    assert scene.do(PartitionCounts({"orders": 7})) == Done()
    assert scene.group.table.ids == ("0_0",)


@pytest.mark.parametrize("limit", ["max_members", "max_tasks", "max_tasks_per_heartbeat"])
def test_what_is_beyond_a_limit_is_refused_and_leaves_nothing(limit: str) -> None:
    leader = Leader()
    leader.scene.policy = Policy(**{limit: 1})  # type: ignore[arg-type]
    leader.scene.refused(leader.input(process("a", ALL), process("b")), TooLarge)
    assert leader.scene.log == []


def test_a_group_is_of_members_that_heartbeat_or_of_kafka_streams() -> None:
    leader = Leader()
    leader.ask(process("a", ALL))
    for item in (Join(MemberId("m1")), Heartbeat(MemberId("a"), 7, 1)):
        leader.scene.refused(item, InvalidRequest)
    scene = Scene()
    scene.declare()
    scene.refused(leader.input(process("a", ALL)), InvalidRequest)


@pytest.mark.parametrize("other", [("returns", "c-1"), ("totals", "c-2"), ("returns", ""), ("returns", "c-2")])
@pytest.mark.parametrize("earlier", [True, False])
def test_another_application_is_kept_from_a_group_with_all_that_operators_said(
    other: tuple[str, str], *, earlier: bool
) -> None:
    """Of another name, or of the same on another cluster; also if the group is older than what its leader says."""
    leader = Leader()
    if earlier:
        leader.ask(process("a", ALL), process("b"))
    leader.scene.ok(leader.named("totals", "c-1"), StreamsAdvice)
    leader.scene.do(DrainRequest(MemberId("a")))
    before = leader.scene.group
    refused = leader.scene.refused(leader.named(*other), InvalidRequest)
    assert leader.scene.group is before
    assert "another application" in refused.detail
    assert "batonpass.group" in refused.detail
    leader.scene.ok(leader.named("totals", "c-1"), StreamsAdvice)


def test_who_does_not_know_its_cluster_is_not_taken_for_another() -> None:
    leader = Leader()
    leader.scene.ok(leader.named("totals"), StreamsAdvice)
    leader.scene.ok(leader.named("totals", "c-1"), StreamsAdvice)
    leader.ask(process("a", ALL), process("b"))
    leader.scene.ok(leader.named("totals"), StreamsAdvice)
    config = leader.scene.group.config
    assert (config.application_id, config.cluster_id) == ("totals", "c-1")


def test_two_versions_of_the_plug_in_that_lead_in_turn_move_nothing_and_forget_nothing() -> None:
    """The older one says neither whose group it is, nor what processes are called and where they are."""
    leader = Leader()
    older = leader.input(process("u1", {"0_0": RUNS, "0_1": RUNS}), process("u2", {"0_2": RUNS, "0_3": RUNS}))
    named = tuple(replace(one, name=f"pod-{one.id}", endpoint="h:1") for one in older.processes)
    newer = replace(leader.named("totals", "c-1"), processes=named)
    leader.scene.ok(older, StreamsAdvice)
    leader.scene.do(PinRequest(TaskId("0_0"), MemberId("u1")))
    for item in (newer, older, newer, older):
        advice = leader.scene.ok(item, StreamsAdvice)
        assert (advice.moves, advice.at_rest, sorted(leader.scene.group.members)) == (0, True, ["u1", "u2"])
        assert leader.scene.group.config.application_id == "totals"
        assert leader.scene.group.pins == {"0_0": "u1"}
    leader.scene.refused(leader.named("totals", "c-2"), InvalidRequest)


def test_an_application_that_has_moved_takes_its_group_along_when_the_setting_is_cleared() -> None:
    leader = Leader()
    leader.scene.ok(leader.named("totals", "c-1"), StreamsAdvice)
    leader.scene.change(cluster_id="")
    leader.scene.ok(leader.named("totals", "c-2"), StreamsAdvice)
    assert leader.scene.group.config.cluster_id == "c-2"
    leader.scene.ok(GroupDeletion(force=True), Done)
    leader.scene.ok(leader.named("returns", "c-3"), StreamsAdvice)
    assert leader.scene.group.config.application_id == "returns"


def test_a_group_that_is_deleted_while_its_application_runs_begins_where_that_runs() -> None:
    """Nothing moves, nobody waits for a lease, and what the next rebalance says is kept anew."""
    leader = Leader()
    for one in (leader.named("totals", "c-1"), leader.named("returns", "c-2")):
        a, b = process("a", {"0_0": RUNS, "0_1": RUNS}), process("b", {"0_2": RUNS, "0_3": RUNS})
        advice = leader.scene.ok(replace(one, processes=(a, b)), StreamsAdvice)
        assert (roles(advice, "a"), roles(advice, "b")) == (
            {"active": ["0_0", "0_1"]},
            {"active": ["0_2", "0_3"]},
        )
        assert (advice.at_rest, advice.follow_up_ms, advice.moves) == (True, None, 0)
        assert leader.scene.group.config.application_id == one.config["application_id"]
        leader.scene.ok(GroupDeletion(force=True), Done)


def test_another_application_is_said_to_be_refused_while_it_asks_and_takes_nothing_from_the_first() -> None:
    """Protocol 14.8: it asks each minute; the first one rests, and says nothing for hours."""
    leader = Leader()
    scene = leader.scene
    first = replace(leader.named("totals", "c-1"), processes=(process("a", ALL),))
    scene.ok(first, StreamsAdvice)
    scene.ok(first, StreamsAdvice)
    answered_ms = scene.now_ms
    for _ in range(3):
        scene.now_ms += 60_000
        leader.is_refused(leader.named("returns", "c-1"), InvalidRequest)
    said = explanation(leader)
    assert said.startswith("At the application's last rebalance, 3 min ago, every task was where it belongs")
    assert "Another application asks under this name, and is refused: group 'g' is that of another application" in said
    assert "(3 refusals in 2 min, the last 0 ms ago)" in said

    def application() -> known.Application:
        status = describe_group(scene.view())
        assert (status.at_rest, status.state) == (True, GroupState.AT_REST)
        assert status.application is not None
        assert status.application.refused is None
        return status.application

    def others() -> Refused | None:
        return describe_group(scene.view()).others_refusals

    # The first one is silent, whoever else asks, so its group can be deleted.
    assert (application().heard_ms, application().is_silent) == (answered_ms, True)
    refused = others()
    assert refused is not None
    assert (refused.times, refused.is_another) == (3, True)
    # It is no less true when the first one is answered.
    scene.ok(first, StreamsAdvice)
    assert others() == refused
    scene.now_ms = refused.last_ms + 105_001
    assert others() is None
    assert "nother application" not in explanation(leader)
    # It comes back: that is another row of refusals.
    leader.is_refused(leader.named("returns", "c-1"), InvalidRequest)
    assert others() == Refused(refused.why, scene.now_ms, scene.now_ms, 1, is_another=True)


def test_what_an_application_itself_is_refused_counts_before_what_another_one_is() -> None:
    leader = Leader()
    scene = leader.scene
    scene.ok(leader.named("totals", "c-1"), StreamsAdvice)
    leader.is_refused(leader.named("returns", "c-1"), InvalidRequest)
    scene.do(RefusedRebalance("tasks: names no task", {"application_id": "totals", "cluster_id": "c-1"}))
    own = scene.soft.refused
    assert own == Refused("tasks: names no task", scene.now_ms, scene.now_ms, 1)
    leader.is_refused(leader.named("returns", "c-1"), InvalidRequest)
    scene.do(RefusedRebalance("tasks: names no task", {"application_id": "returns"}))
    assert scene.soft.refused == own
    scene.ok(leader.named("totals", "c-1"), StreamsAdvice)
    assert scene.soft.refused is None


def test_another_application_is_told_so_even_if_it_is_too_large() -> None:
    leader = Leader()
    leader.scene.ok(leader.named("totals", "c-1"), StreamsAdvice)
    leader.scene.policy = replace(leader.scene.policy, max_members=0)
    leader.scene.refused(leader.named("returns", "c-1"), InvalidRequest)


@pytest.mark.parametrize("item", [Tick(), Started()])
def test_time_alone_changes_nothing(item: Tick | Started) -> None:
    leader = Leader()
    leader.ask(process("a", ALL))
    leader.ask(process("a", ALL), process("b"))
    leader.scene.now_ms += 10 * 3_600_000
    before = leader.scene.group
    assert leader.scene.do(item) == Done()
    assert leader.scene.group is before
    assert leader.scene.last is not None
    assert leader.scene.last.wake_at_ms is None


def test_a_member_has_the_name_of_its_process_and_each_run_a_number() -> None:
    """Advice speaks of processes by their ids; operators read the names that they gave them (protocol 14.4)."""
    leader = Leader(2)
    named = replace(process("u1", {"0_0": RUNS}), name="orders", endpoint="10.0.0.7:9000")
    other = replace(process("u2", {"0_1": RUNS}), name="orders")
    advice = leader.ask(named, other)
    members = leader.scene.group.members
    assert sorted((one.id, one.instance_id, one.endpoint) for one in members.values()) == [
        ("orders", "u1", "10.0.0.7:9000"),
        ("orders.2", "u2", None),
    ]
    assert set(advice.assignment) == {"u1", "u2"}
    leader.ask(other)
    leader.ask(replace(named, endpoint="10.0.0.8:9000"), other)
    assert sorted((one.id, one.instance_id) for one in leader.scene.group.members.values()) == [
        ("orders.2", "u2"),
        ("orders.3", "u1"),
    ]
    # Whoever reads how the group is, and what to do, reads these names too.
    scene = leader.scene
    scene.do(DrainRequest(MemberId("orders.3")))
    assert explanation(leader).startswith("Member orders.3 drains: ")
    [remedy] = explain_group(scene.view(), limit=10).health.worst.remedies
    assert remedy.command == "batonpass undrain g orders.3"


@pytest.mark.parametrize("restarts", [False, True])
def test_in_shadow_nobody_waits_for_what_the_application_was_not_told(*, restarts: bool) -> None:
    """What is to come would be done if the group decided; Kafka's own assignor asks for rebalances when it likes."""
    leader = Leader()
    shadow = OtherAssignment("HighAvailabilityTaskAssignor", {InstanceId("a"): tuple(map(TaskId, ALL))})
    for _ in range(2):
        leader.ask(process("a", ALL), process("b"), other=shadow)
    scene = leader.scene
    if restarts:
        scene.soft = Soft()
        scene.do(Started())
    for wait_ms in (1_000, 660_000):
        scene.now_ms += wait_ms
        said = explanation(leader)
        assert said.startswith("2 tasks still to move")
        assert "HighAvailabilityTaskAssignor decides, not this group (shadow)" in said
        assert "to rebalance" not in said
    assert "it rests, is stopped, or does not get through" in explanation(leader)
    assert describe_group(scene.view()).next_probe_ms is None
    # As soon as the group decides, it is said when the next rebalance is to come.
    leader.ask(process("a", ALL), process("b"))
    assert "decides, not this group" not in explanation(leader)
    assert "The application was asked to rebalance again in " in explanation(leader)


def test_in_shadow_explain_says_who_decides() -> None:
    """The application is not asked to come back for what this group would do."""
    leader = Leader()
    shadow = OtherAssignment("HighAvailabilityTaskAssignor", {InstanceId("a"): (TaskId("0_0"),)})

    def explained() -> str:
        scene = leader.scene
        return " ".join(explain_group(scene.view(), limit=9).sentences)

    leader.ask(process("a", ALL), process("b"), other=shadow)
    assert "HighAvailabilityTaskAssignor decides, not this group (shadow)" in explained()
    assert "rebalance again" not in explained()
    leader.ask(process("a", ALL), process("b"))
    assert "rebalance again" in explained()
    assert "shadow" not in explained()
