"""Groups in the situations in which people look at them, made by the core and told as a coordinator tells them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import httpx2 as httpx
from tests.core.scene import Scene, copy, failed, restoring, running, topology
from tests.dashboard.canned import Canned
from tests.dashboard.fleet import Fleet

from batonpass.api.events import event_body
from batonpass.codec.views import (
    group_body,
    group_explanation_body,
    group_summary,
    member_body,
    next_owners_of,
    task_explanation_body,
)
from batonpass.core.handover.view import View
from batonpass.core.state.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    Eviction,
    GroupDeletion,
    Input,
    Leave,
    PauseRequest,
    RefusedRebalance,
    Started,
    StreamsProcess,
    StreamsRebalance,
)
from batonpass.core.state.model import PauseScope
from batonpass.core.state.replies import Reply
from batonpass.core.state.soft import Soft
from batonpass.explain.group import explain_group
from batonpass.explain.health import Health, describe
from batonpass.explain.status import GroupStatus
from batonpass.explain.task import explain_task
from batonpass.runtime.event_derivation import events_of
from batonpass.runtime.history import StoredEvent

TASK: Final = "0_0"
SESSION_MS: Final = 60_000
"""Long enough that what is said to be over in some seconds is not over while a browser starts."""


class Stage(Scene):
    """A scene whose events are kept, and whose members are pods."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.events: list[dict[str, Any]] = []

    def do(self, item: Input) -> Reply:
        """Let an input happen, and keep what it makes known."""
        before = self.group
        reply = super().do(item)
        assert self.last is not None
        for one in events_of(before, (item,), self.last, self.now_ms):
            self.events.append(event_body(StoredEvent(len(self.events) + 1, self.group.id, one)))
        return reply

    def pods(self, *names: str, tasks: int = 4, **config: object) -> None:
        """Declare the group, and let members join and settle."""
        if not self.group.declared:
            settings = {"acceptable_recovery_lag": 100, "session_timeout_ms": SESSION_MS} | config
            self.declare(topology(tasks), **settings)
        for name in names:
            self.join(name, instance_id=InstanceId(f"pod-{name}"))
            self.settle()

    def silent(self, *names: str, seconds: int = SESSION_MS // 1_000 + 5) -> None:
        """Let members be silent for so long, while the others go on."""
        for _ in range(seconds):
            self.tick(1_000)
            for name in sorted(set(self.group.members) - set(names)):
                self.obey(name)


def at_rest(stage: Stage) -> None:
    """Every task runs where it belongs."""
    stage.pods("m1", "m2", num_standby_replicas=1)


def not_deployed(stage: Stage) -> None:
    """Nobody has joined."""
    stage.declare(topology(4))


def joining(stage: Stage) -> None:
    """One more member warms up."""
    stage.pods("m1")
    stage.join("m2", instance_id=InstanceId("pod-m2"))
    for lag in (9_000, 8_000):
        stage.tick(1_000)
        stage.obey("m1")
        stage.beat("m2", {task: copy("warmup", lag) for task in stage.member("m2").assignment})


def killed(stage: Stage) -> None:
    """A member was killed some seconds ago."""
    stage.pods("m1", "m2", num_standby_replicas=1)
    stage.silent("m2", seconds=20)


def just_lost(stage: Stage) -> None:
    """A member was killed, and its copies have taken over."""
    stage.pods("m1", "m2", num_standby_replicas=1)
    stage.silent("m2")


def draining(stage: Stage) -> None:
    """An operator drains a member."""
    stage.pods("m1", "m2", num_standby_replicas=1)
    stage.do(DrainRequest(MemberId("m1"), deadline_ms=60_000))
    stage.now_ms += 2_000


def drained(stage: Stage) -> None:
    """A member has handed everything over."""
    draining(stage)
    stage.settle()


def paused(stage: Stage) -> None:
    """An operator holds every move."""
    stage.pods("m1", "m2")
    stage.do(PauseRequest(PauseScope.ALL, reason="a kernel upgrade"))
    stage.now_ms += 3_000


def parked(stage: Stage) -> None:
    """A task has failed everywhere."""
    stage.pods("m1", "m2", "m3", tasks=2, poison_members=2)
    for _ in range(10):
        task = stage.task(TASK)
        if task.marks.parked:
            break
        if task.owner is not None:
            stage.beat(task.owner, {TASK: failed("checksum mismatch")})
        stage.tick(1_000)
        for name in ("m1", "m2", "m3"):
            grants = {str(one): grant for one, grant in stage.member(name).assignment.items()}
            held = {one: running() if grant.token else copy(grant.role) for one, grant in grants.items()}
            stage.beat(name, {one: report for one, report in held.items() if one != TASK or not grants[one].token})
    assert stage.task(TASK).marks.parked


def failing(stage: Stage) -> None:
    """A task has failed on the only member."""
    stage.pods("m1", tasks=2)
    stage.beat("m1", {TASK: failed("disk full"), "0_1": running()})
    stage.now_ms += 5_000


def filling(stage: Stage) -> None:
    """A task is restored from its changelog."""
    stage.pods("m1", tasks=2)
    stage.beat("m1", {TASK: restoring(90_000), "0_1": running()})


def restarted(stage: Stage) -> None:
    """The coordinator has started anew, and has heard nobody."""
    stage.pods("m1", "m2")
    stage.soft = Soft()
    stage.now_ms += 2_000
    stage.do(Started())


def all_lost(stage: Stage) -> None:
    """Everybody is gone without having left."""
    stage.pods("m1", "m2")
    stage.silent("m1", "m2")


def all_left(stage: Stage) -> None:
    """The workers were scaled to nothing."""
    stage.pods("m1", "m2")
    for name in ("m1", "m2"):
        stage.do(Leave(MemberId(name)))
    stage.now_ms += 4_000


def storm(stage: Stage) -> None:
    """Three of four members vanished at once."""
    stage.pods("m1", "m2", "m3", "m4")
    stage.silent("m2", "m3", "m4")


def rack_lost(stage: Stage) -> None:
    """Several members fell silent at once."""
    stage.pods(*(f"m{number}" for number in range(6)), tasks=12, num_standby_replicas=1)
    stage.silent("m1", "m2", "m3", "m4", seconds=20)


def failing_in_a_pause(stage: Stage) -> None:
    """A task fails while an operator holds every move."""
    stage.pods("m1", "m2")
    stage.do(PauseRequest(PauseScope.ALL, reason="a kernel upgrade"))
    owner = stage.task(TASK).owner
    assert owner is not None
    grants = stage.member(owner).assignment.items()
    held = {str(one): running() if grant.token else copy(grant.role) for one, grant in grants}
    stage.beat(owner, held | {TASK: failed("disk full")})
    stage.now_ms += 3_000


def tried(stage: Stage, seconds: int, detail: str, is_bad: Callable[[str, str], bool]) -> None:
    """Let members do as they are told for so long; on some, some tasks fail."""
    for _ in range(seconds):
        stage.tick(1_000)
        for name in sorted(stage.group.members):
            held = {str(one): grant for one, grant in stage.member(name).assignment.items()}
            stage.beat(
                name,
                {
                    one: copy(grant.role) if not grant.token else failed(detail) if is_bad(name, one) else running()
                    for one, grant in held.items()
                },
            )


def bad_host(stage: Stage) -> None:
    """Whatever a host gets fails there, and runs elsewhere."""
    stage.pods("m1", "m2", "m3", tasks=9)
    tried(stage, 60, "No space left on device", lambda name, _: name == "m1")


def fails_everywhere(stage: Stage) -> None:
    """A task fails on every member that there is."""
    stage.pods("m1", "m2")
    tried(stage, 40, "checksum mismatch", lambda _, task: task == TASK)


def all_fail(stage: Stage) -> None:
    """What all tasks write to cannot be reached."""
    stage.pods("m1", "m2", "m3", tasks=6)
    tried(stage, 40, "cannot reach the sink", lambda *_: True)


def no_room(stage: Stage) -> None:
    """There are more tasks than members may take."""
    stage.declare(topology(4), session_timeout_ms=SESSION_MS)
    for name in ("m1", "m2"):
        stage.join(name, instance_id=InstanceId(f"pod-{name}"), max_tasks=1)
    stage.settle()
    stage.now_ms += 3_000


def kept_out(stage: Stage) -> None:
    """An operator kept a host out hours ago, and nobody thinks of it."""
    stage.pods("m1", "m2")
    stage.do(Eviction(MemberId("m2"), dead=True, until_undone=True))
    stage.settle()
    stage.now_ms += 9 * 3_600_000
    stage.obey()


def nobody_let_in(stage: Stage) -> None:
    """The only host is kept out."""
    stage.pods("m1")
    stage.do(Eviction(MemberId("m1"), dead=True, until_undone=True))
    stage.join("m2", instance_id=InstanceId("pod-m1"))
    stage.tick(5_000)
    stage.obey()


def deleted_by_force(stage: Stage) -> None:
    """A group was deleted under its members, and declared anew."""
    stage.pods("m1")
    stage.do(GroupDeletion(force=True))
    stage.declare(topology(4), session_timeout_ms=SESSION_MS)
    stage.join("m2", instance_id=InstanceId("pod-m2"))
    stage.tick(3_000)
    stage.obey()


def evicted(stage: Stage) -> None:
    """An operator removed a member without vouching that its process is dead."""
    stage.pods("m1", "m2")
    stage.do(Eviction(MemberId("m1")))
    stage.tick(3_000)
    stage.obey()


def clock_moved(stage: Stage) -> None:
    """The clock that coordinators count by has gone back."""
    stage.pods("m1", "m2")
    stage.soft = Soft()
    stage.do(Started(clock_moved=True))
    stage.tick(2_000)
    stage.obey()


def hanging(stage: Stage) -> None:
    """A worker's callback does not return."""
    stage.pods("m1")
    stage.join("m2", instance_id=InstanceId("pod-m2"))
    for _ in range(120):
        stage.tick(1_000)
        stage.obey("m1")
        grants = stage.member("m2").assignment.items()
        stage.beat("m2", {task: copy(grant.role) for task, grant in grants if not grant.token})


def two_troubles(stage: Stage) -> None:
    """A task fails, and the other members vanish."""
    stage.pods("m1", "m2", "m3", "m4")
    owner = stage.task(TASK).owner
    assert owner is not None
    for _ in range(SESSION_MS // 1_000 + 5):
        stage.tick(1_000)
        stage.beat(owner, {TASK: failed("disk full")})


def refused(stage: Stage) -> None:
    """A Kafka Streams application whose rebalances are all refused."""
    shape, processes = topology(2), (StreamsProcess(InstanceId("a")), StreamsProcess(InstanceId("b")))
    stage.do(StreamsRebalance(shape, {}, processes))
    for _ in range(3):
        stage.now_ms += 20_000
        stage.do(RefusedRebalance("the topology has 9,000 tasks, the limit is 5,000"))


@dataclass(frozen=True)
class Situation:
    """A situation: how it comes about, and what the page has to say of it within a glance."""

    name: str
    make: Callable[[Stage], None]
    level: str
    headline: str
    facts: tuple[str, ...] = ()
    """Expressions that have to be found."""

    help: tuple[str, ...] = ()
    cause: str = ""
    todo: str = ""
    """An expression that what to do matches."""


SITUATIONS: Final[tuple[Situation, ...]] = (
    Situation(
        "at-rest", at_rest, "At rest", "All 4 tasks run where they belong", ("2 of 2 members heard",), todo="Nothing."
    ),
    Situation(
        "not-deployed",
        not_deployed,
        "Not deployed",
        "No member has joined: nobody runs its 4 tasks.",
        todo="Start workers.",
    ),
    Situation(
        "joining",
        joining,
        "Moving",
        "2 tasks still to move, 2 warming up. All 4 tasks run.",
        ("Over",),
        todo="Nothing; wait.",
    ),
    Situation(
        "killed",
        killed,
        "Attention",
        "Member pod-m2 has fallen silent.",
        (r"Since \d+ s ago", r"Over in \d+ s at the latest: its lease"),
        ("batonpass evict killed m2 --dead", "Runbook: member silent"),
        todo=r"If pod-m2 does not come back within \d+ s, its tasks go to pod-m1; only if its process is surely dead, evict it.*",
    ),
    Situation(
        "just-lost",
        just_lost,
        "At rest",
        "All 4 tasks run where they belong",
        ("Last incident pod-m2", "its lease ran out; it ran 2 tasks"),
        todo="Start a worker, if the spare copies are to come back.",
    ),
    Situation(
        "draining",
        draining,
        "Moving",
        "Member pod-m1 drains: 2 tasks left to hand over.",
        (r"Since \d+ s ago", r"Over in \d+ s at the latest: the drain's deadline"),
        ("batonpass undrain draining pod-m1",),
        todo="Nothing; wait, or undrain it if it is to stay.",
    ),
    Situation(
        "drained",
        drained,
        "Moving",
        "Member pod-m1 has handed everything over and can be stopped.",
        ("Since",),
        ("batonpass undrain drained pod-m1",),
        todo="Stop the process of pod-m1, or undrain it if it is to stay.",
    ),
    Situation(
        "paused",
        paused,
        "Attention",
        "An operator holds every move: a kernel upgrade.",
        (r"Since \d+ s ago", "Over when an operator resumes it"),
        ("batonpass resume paused", "Runbook: paused too long"),
        todo="Resume when what it was paused for is done.",
    ),
    Situation(
        "parked",
        parked,
        "Trouble",
        "1 of 2 tasks is not processed: 1 parked after failures.",
        ("Since", "Cause 0_0 on pod-"),
        ("batonpass release parked 0_0", "Runbook: task not running"),
        "checksum mismatch",
        todo=r"First mend what the worker logged \(checksum mismatch\), then release what is parked.",
    ),
    Situation(
        "failing",
        failing,
        "Trouble",
        "1 of 2 tasks is not processed: 1 failed.",
        (r"Since \d+ s ago", r"Cause 0_0 on pod-m1 \d+ s ago: disk full", "Over when it is mended"),
        ("Runbook: task not running",),
        "disk full",
        todo="Look at the log of pod-m1, and give it what it lacks; another member is tried by itself, if there is one.",
    ),
    Situation(
        "filling",
        filling,
        "Attention",
        "1 of 2 tasks is not processed: 1 restoring, 90,000 records left.",
        ("Since", "Over when restored"),
        ("Runbook: task not running",),
        todo="Wait; this restore has to finish.",
    ),
    Situation(
        "restarted",
        restarted,
        "Attention",
        "0 of 2 members heard since the coordinator started: nobody can say whether 4 tasks run.",
        ("Since", "judged in"),
        ("Runbook: member silent",),
        todo=r"Wait [^;]+; members report by themselves.",
    ),
    Situation(
        "all-lost",
        all_lost,
        "Trouble",
        "All members are gone, 2 of the last 2 without having left: nobody runs its 4 tasks.",
        ("Since", "Over when workers join", "Cause pod-m1"),
        ("Runbook: storm",),
        "its lease ran out",
        todo="Start workers.",
    ),
    Situation(
        "rack-lost",
        rack_lost,
        "Attention",
        "4 members (pod-m1, pod-m2, pod-m3 and 1 more) have fallen silent.",
        (r"Since \d+ s ago", r"Over in \d+ s at the latest: the last of their leases"),
        ("batonpass evict rack-lost m1 --dead", "batonpass evict rack-lost m4 --dead", "Runbook: member silent"),
        todo=r"If any of them does not come back within \d+ s, its tasks .*",
    ),
    Situation(
        "failing-in-a-pause",
        failing_in_a_pause,
        "Trouble",
        "1 of 4 tasks is not processed: 1 failed.",
        (r"Since \d+ s ago", "Over when it is mended, or an operator resumes", r"Cause 0_0 on pod-m\d"),
        ("batonpass resume failing-in-a-pause", "Runbook: task not running"),
        "disk full",
        todo=r"Look at the log of pod-m\d, and give it what it lacks; or resume: until then no other member tries it.",
    ),
    Situation(
        "all-left",
        all_left,
        "Attention",
        "All members have left: nobody runs its 4 tasks.",
        (r"Since \d+ s ago", "Over when workers join"),
        ("Runbook: task without owner",),
        todo="Start workers.",
    ),
    Situation(
        "storm",
        storm,
        "Trouble",
        "3 of 4 tasks are not processed: 3 without an owner.",
        ("Since", r"Cause \d.* ago: 3 members vanished at once", "the storm, if nobody else is lost"),
        ("batonpass resume storm", "Runbook: storm"),
        todo="If the members will come back, wait; if they are gone for good, resume: their tasks are rebuilt elsewhere.",
    ),
    Situation(
        "bad-host",
        bad_host,
        "Attention",
        "Member pod-m1 is given nothing new: ",
        ("Since", r"Over in \d+ min", r"Cause 0_\d on pod-m1 .* ago"),
        ("batonpass trust bad-host pod-m1", "Runbook: member distrusted"),
        "No space left on device",
        todo="Find out what fails on pod-m1; once that is mended, trust it, or wait.",
    ),
    Situation(
        "fails-everywhere",
        fails_everywhere,
        "Trouble",
        "1 of 4 tasks is not processed: 1 failed wherever it was tried.",
        ("Since", "Cause 0_0 on pod-m", "Over when it is mended"),
        ("Runbook: task not running",),
        "checksum mismatch",
        todo="Members pod-m1 and pod-m2 failed it alike, and no other may try it now: .*",
    ),
    Situation(
        "all-fail",
        all_fail,
        "Trouble",
        "6 of 6 tasks are not processed: 6 parked after failures.",
        ("Since", "and 1 more"),
        ("batonpass release all-fail 0_4", "Runbook: task not running"),
        "cannot reach the sink",
        todo=r"First mend what the worker logged \(cannot reach the sink\), then release what is parked.",
    ),
    Situation(
        "no-room",
        no_room,
        "Trouble",
        "2 of 4 tasks are not processed: 2 without an owner.",
        ("Since", "Over when workers join", "Cause 0_2: no member has room for it"),
        ("Runbook: task without owner",),
        todo="Start workers that may take it, or give those that are there more room.",
    ),
    Situation(
        "kept-out",
        kept_out,
        "Attention",
        "Instance pod-m2 is kept out: none of its runs gets a task, until that is undone. All 4 tasks run.",
        ("Since 9 h ago", "Over when an operator undrains it"),
        ("batonpass undrain kept-out pod-m2",),
        todo="Nothing if it is to stay out; else undrain it.",
    ),
    Situation(
        "nobody-let-in",
        nobody_let_in,
        "Trouble",
        "4 of 4 tasks are not processed: 4 without an owner.",
        ("Since", "Instance pod-m1 is kept out"),
        ("batonpass undrain nobody-let-in pod-m1", "Runbook: task without owner"),
        todo="Start workers that may take it, .*, or undrain one that may.",
    ),
    Situation(
        "deleted-by-force",
        deleted_by_force,
        "Trouble",
        "4 of 4 tasks are not processed: 4 without an owner.",
        ("Since", "Over in .* at the latest: the time for which nothing is granted"),
        ("Runbook: task without owner",),
        "nothing is granted for a while",
        todo="Wait; what the cause names ends by itself.*",
    ),
    Situation(
        "evicted",
        evicted,
        "Trouble",
        "2 of 4 tasks are not processed: 2 until the lease of the last owner is over.",
        (r"Since \d+ s ago", r"Over in \d+ s at the latest: the lease of the last owner"),
        ("batonpass evict evicted m1 --dead", "Runbook: task without owner"),
        "it was evicted",
        todo="Wait; only if the process of pod-m1 is surely dead, evict it with --dead to have that sooner.",
    ),
    Situation(
        "clock-moved",
        clock_moved,
        "Attention",
        "Nothing is granted for another 58 s. All 4 tasks run.",
        (r"Since \d+ s ago", "Over in .* at the latest: a session timeout"),
        cause="a member that is not known here may still run what it had",
        todo="Wait 58 s; then what waits is granted by itself.",
    ),
    Situation(
        "hanging",
        hanging,
        "Attention",
        "2 tasks are still starting.",
        ("Since .* ago", "Over in .* at the latest: the longest that is waited for", "Cause 0_0 on pod-m2"),
        ("Runbook: handover stuck",),
        "its callback has not returned",
        todo="Look at the log of pod-m2: its callback has not returned.*",
    ),
    Situation(
        "two-troubles",
        two_troubles,
        "Trouble",
        "4 of 4 tasks are not processed: 1 failed, 3 without an owner.",
        ("Since", "Cause 0_0 on pod-m", "Trouble 3 members vanished at once"),
        ("batonpass resume two-troubles", "Runbook: task not running", "Runbook: storm"),
        "disk full",
        todo=r"Look at the log of pod-m\d, .* If the members will come back, wait; .*",
    ),
    Situation(
        "refused",
        refused,
        "Trouble",
        "Rebalances are refused: the topology has 9,000 tasks, the limit is 5,000 (3 refusals in 40 s, the last 0 ms ago).",
        ("Since", "Over when it is mended"),
        ("Runbook: rebalances refused",),
        todo="Mend what is refused, as the runbook says; it is asked again.",
    ),
)


def staged(one: Situation) -> Stage:
    """Return a situation that is as it is said now."""
    took = Stage(one.name)
    begin_ms = took.now_ms
    one.make(took)
    stage = Stage(one.name)
    stage.now_ms = round(time.time() * 1_000) - (took.now_ms - begin_ms)
    one.make(stage)
    return stage


class Staged(Canned):
    """Answers for groups on stages, and for as many others that nobody has deployed as are asked for."""

    def __init__(self, stages: list[Stage], idle: int = 0) -> None:
        super().__init__(Fleet.of(3, 12))
        self.stages = {stage.group.id: stage for stage in stages}
        for number in range(idle):
            name = f"a-group-of-nobody-{number:02}"
            stage = self.stages[GroupId(name)] = Stage(name)
            not_deployed(stage)

    def _body(self, parts: list[str], query: httpx.QueryParams) -> Any:
        if parts == ["groups"]:
            listed = [(stage.group, *described(stage)) for _, stage in sorted(self.stages.items())]
            return {"groups": [group_summary(*one) for one in listed], "next": None}
        stage = self.stages.get(GroupId(parts[1])) if parts[0] == "groups" else None
        if stage is None:
            return super()._body(parts, query) if parts[0] != "groups" else None
        group, view = stage.group, stage.view()
        match parts[2:]:
            case []:
                return group_body(group, *described(stage), warnings=())
            case ["explain"]:
                limit = int(query.get("limit", 100))
                found = explain_group(View(group, stage.soft, stage.now_ms), limit=limit)
                return group_explanation_body(group, found, limit=limit)
            case ["events"]:
                return {"events": stage.events[::-1], "next": 1, "more": False}
            case ["generations" | "commands" as name]:
                return {name: [], "next": None}
            case ["lags"]:
                return {"lags": [], "next": None}
            case ["assignment"]:
                return {"target": {}}
            case ["tasks", task]:
                told = explain_task(View(group, stage.soft, stage.now_ms), TaskId(task))
                return task_explanation_body(group, told) | {"last_placement": None, "runs": [], "history": []}
            case ["members"]:
                owners = next_owners_of(group)
                members = [member_body(view, group.members[one], owners) for one in sorted(group.members)]
                return {"members": members, "next": None}
            case ["members", name] if MemberId(name) in group.members:
                return member_body(view, group.members[MemberId(name)], next_owners_of(group))
            case _:
                return None


def described(stage: Stage) -> tuple[GroupStatus, Health]:
    """Return where a group stands, and how it is."""
    return describe(stage.view())
