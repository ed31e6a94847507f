"""The scenes that the vectors in `docs/vectors` are made from: what happens to one worker, step by step.

Times are milliseconds since the worker started. The coordinator wants a heartbeat every 3 s, and a lease lasts 10 s.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from tests.protocol_page import PROBLEMS
from tests.worker.vectors.player import Json, Player

INTERVAL_MS = 3_000
SESSION_MS = 10_000
ACTIONS = {problem: action for problem, _, action in PROBLEMS}


class Worker:
    """One worker in a scene. Each method is an event, now; `at` lets time pass before it."""

    def __init__(self, head: Mapping[str, Any]) -> None:
        self.player = Player(head)

    def at(self, ms: int) -> Self:
        """Let time pass until then."""
        self.player.pass_time(ms)
        return self

    def quiet_until(self, ms: int) -> None:
        """Let time pass until then, and note what comes of it, be it nothing."""
        self.at(ms).says("time")

    def sleeps_until(self, ms: int) -> None:
        """Suspend the computer until then."""
        self.player.sleep(ms)

    def says(self, event: str, task: str | None = None, **fields: Any) -> None:
        """Let the worker say something."""
        self.player.happens(event, **({} if task is None else {"task": task}), **fields)

    def last(self, kind: str = "heartbeat") -> int:
        """Return the number of the last request of a kind."""
        return max(number for number, one in enumerate(self.player.sent, 1) if one.kind.value == kind)

    def answered(
        self,
        epoch: int,
        *,
        active: Mapping[str, int] | None = None,
        standby: Iterable[str] = (),
        warmup: Iterable[str] = (),
        current: bool = False,
        restore_to: Mapping[str, Any] | None = None,
        to: str | int = "heartbeat",
        **fields: Any,
    ) -> None:
        """Answer a request with an assignment (a token for each active), or that the caller has the current one."""
        request = self.last(to) if isinstance(to, str) else to
        assignment = {
            "active": [
                {"task": task, "fencing_token": token}
                | ({"restore_to": restore_to[task]} if restore_to and task in restore_to else {})
                for task, token in (active or {}).items()
            ],
            "standby": list(standby),
            "warmup": list(warmup),
        }
        sent = self.player.sent[request - 1]
        body = {
            "member_id": sent.member_id,
            "seq": sent.seq,
            "member_epoch": epoch,
            "generation": 1,
            "heartbeat_interval_ms": INTERVAL_MS,
            "session_timeout_ms": SESSION_MS,
            "acceptable_recovery_lag": 100,
            "acceptable_catchup_ms": None,
            "report": None,
            "assignment": None if current else assignment,
            "status": [],
        } | fields
        status = 201 if sent.kind.value == "join" else 200
        self.player.happens("answer", request=request, status=status, body=body)

    def current(self, epoch: int, **fields: Any) -> None:
        """Answer the last heartbeat: its assignment is the current one."""
        self.answered(epoch, current=True, **fields)

    def empty(self, to: str = "poll") -> None:
        """Answer a request with 204: there is no news, or nothing to say."""
        self.player.happens("answer", request=self.last(to), status=204, body=None)

    def refused(self, problem: str, status: int, *, to: str | int = "heartbeat", **fields: Any) -> None:
        """Refuse a request as a coordinator does: with the action of the table, and with what is wrong for a 422."""
        body = {"type": problem, "title": problem, "status": status, "detail": f"this is {problem}"}
        body |= {"action": ACTIONS[problem]} if problem in ACTIONS else {}
        body |= {"errors": [{"path": "body", "reason": "is wrong"}]} if status == 422 else {}
        body |= fields
        self.player.happens("answer", request=self.last(to) if isinstance(to, str) else to, status=status, body=body)

    def unanswered(self, to: str = "heartbeat") -> None:
        """Break the connection of the last request of a kind."""
        self.player.happens("no-answer", request=self.last(to))

    def joins(self, **assignment: Any) -> None:
        """Join at 0, and be answered with this assignment (epoch 1) at 20 ms; the first heartbeat goes at 60 ms."""
        self.says("start")
        self.at(20).answered(1, to="join", **assignment)

    def runs(self, task: str = "0_1", token: int = 7, **also: Any) -> None:
        """Join and run one task, which the coordinator knows at 80 ms; the next heartbeat goes at 3060 ms."""
        self.joins(active={task: token}, **also)
        self.at(40).says("running", task)
        self.at(80).current(1)


class Scene:
    """What happens to a worker, and what there is to know before it starts."""

    def __init__(
        self, about: str, rules: tuple[str, ...], play: Callable[[Worker], None], head: Mapping[str, Any]
    ) -> None:
        self.name = play.__name__.replace("_", "-")
        self.about = about
        self.rules = rules
        self.play = play
        self.head: Json = {
            "settings": {"jitter_seed": 0} | head.get("settings", {}),
            "member_ids": head.get("member_ids", ["run-1"]),
        } | {name: head[name] for name in ("on_disk", "replaces") if name in head}


SCENES: list[Scene] = []


def scene(about: str, *, rules: tuple[str, ...], **head: Any) -> Callable[[Callable[[Worker], None]], None]:
    """Make a function a scene that shows these rules of docs/protocol.md; the rest is what the worker is and finds."""
    return lambda play: SCENES.append(Scene(about, rules, play, head))


# --- joining ----------------------------------------------------------------------------------------------------------


@scene(
    "A worker joins, gets an active and a standby, and says that the active runs. A heartbeat follows each interval.",
    rules=("3.1", "4.1", "4.4"),
)
def join(worker: Worker) -> None:
    worker.joins(active={"0_1": 7}, standby=["0_2"])
    worker.at(40).says("progress", "0_2", position=5, end_offset=400)
    worker.says("running", "0_1")
    worker.at(80).current(1)
    worker.at(3_100).current(1)
    worker.quiet_until(6_100)


@scene(
    "Everything that a worker may say of itself when it joins. Its former process is dead, and it takes its place.",
    rules=("3.2", "3.6", "3.7"),
    settings={
        "instance_id": "orders-0",
        "takeover": True,
        "capacity": 4,
        "max_tasks": 40,
        "max_disk_bytes": 1_000_000,
        "client_tags": {"zone": "a"},
        "topology_epoch": 2,
        "on_lease_lost": "continue",
        "endpoint": "http://10.0.0.7:9000",
    },
    on_disk={"0_3": {"position": 812, "end_offset": 900}, "0_10": {"positions": {"a": 1, "b": 2}}},
    replaces="run-0",
)
def join_with_everything(worker: Worker) -> None:
    worker.joins(standby=["0_3"])
    worker.at(100).current(1)


@scene(
    "The answer to a join is lost. The same join is sent again under the same id, and either answer counts.",
    rules=("10.1",),
)
def join_unanswered(worker: Worker) -> None:
    worker.says("start")
    worker.at(3_500).answered(1, to="join", active={"0_1": 7})
    worker.at(3_600).answered(1, to=1, active={"0_1": 7})


@scene(
    "The group is not declared yet, then the instance id is in use: a join is tried again for as long as it takes.",
    rules=("10.3", "10.5"),
)
def join_refused_for_now(worker: Worker) -> None:
    worker.says("start")
    worker.at(20).refused("unknown-group", 404, to="join")
    worker.at(500).refused("instance-id-in-use", 409, to="join", retry_after_ms=7_000)
    worker.at(8_000).answered(1, to="join")


# --- work -------------------------------------------------------------------------------------------------------------


@scene(
    "An active restores from the state on disk to where its last owner stopped, and says at once when it runs.",
    rules=("4.5", "5.2"),
    on_disk={"0_1": {"position": 812, "end_offset": 900}},
)
def restore(worker: Worker) -> None:
    worker.joins(active={"0_1": 7}, restore_to={"0_1": 905})
    worker.at(100).current(1)
    worker.at(1_000).says("restoring", "0_1", position=860, end_offset=905)
    worker.at(3_100).current(1)
    worker.at(4_000).says("progress", "0_1", position=905, end_offset=905)
    worker.says("running", "0_1")
    worker.at(4_020).current(1)


@scene("Tasks without state: no positions, nothing on disk. One is granted, one taken away.", rules=("4.6", "5.3"))
def stateless(worker: Worker) -> None:
    worker.runs("1_0", 1)
    worker.at(500).answered(2, to="poll", active={"1_0": 1, "1_1": 1})
    worker.says("running", "1_1")
    worker.at(520).answered(2, current=True)
    worker.at(1_000).answered(3, to="poll", active={"1_1": 1})
    worker.at(1_010).says("stopped", "1_0")
    worker.at(1_030).current(3)


@scene(
    "A long-poll brings a grant. The task starts at once, and the next heartbeat echoes the epoch without waiting.",
    rules=("4.1", "6.1", "6.3"),
)
def grant_by_poll(worker: Worker) -> None:
    worker.runs()
    worker.at(1_500).answered(2, to="poll", active={"0_1": 7, "0_2": 3})
    worker.at(1_520).says("running", "0_2")
    worker.at(1_600).current(2)


@scene(
    "A task is taken away. It is active in every report until it has stopped; then the revocation is confirmed.",
    rules=("4.6", "5.3"),
)
def revoke(worker: Worker) -> None:
    worker.runs()
    worker.at(3_100).answered(2)
    worker.at(6_100).current(2)
    worker.at(6_500).says("stopped", "0_1", final_position=905)
    worker.at(6_600).current(2)
    worker.at(9_700).current(2)


@scene(
    "The confirmation is lost: where the owner stopped stands in each report until one is answered.",
    rules=("4.6", "10.1"),
)
def revoke_unanswered(worker: Worker) -> None:
    worker.runs()
    worker.at(3_100).answered(2)
    worker.at(3_200).says("stopped", "0_1", final_position=905)
    worker.unanswered()
    worker.at(3_600).unanswered()
    worker.at(4_500).current(2)
    worker.quiet_until(8_000)


@scene(
    "An active goes on as a standby in place: it commits, keeps its state open, and reports where it stopped.",
    rules=("0.1", "4.6"),
)
def demote_in_place(worker: Worker) -> None:
    worker.runs()
    worker.at(3_100).answered(2, standby=["0_1"])
    worker.at(3_150).says("demoted", "0_1", final_position=905)
    worker.at(3_200).current(2)
    worker.at(4_000).says("progress", "0_1", position=905, end_offset=930)
    worker.at(6_250).current(2)


@scene(
    "A warmup says at once that it is caught up, is granted the task, and becomes the active in place.",
    rules=("0.1", "4.1", "5.2"),
)
def warm_handover(worker: Worker) -> None:
    worker.joins(warmup=["0_1"])
    worker.at(90).current(1)
    worker.at(1_000).says("progress", "0_1", position=400, end_offset=900)
    worker.at(2_000).says("progress", "0_1", position=810, end_offset=905)
    worker.at(2_020).current(1)
    worker.at(2_500).answered(2, to="poll", active={"0_1": 8}, restore_to={"0_1": 910})
    worker.at(2_510).says("restoring", "0_1", position=905, end_offset=910)
    worker.at(2_520).says("running", "0_1")
    worker.at(2_600).current(2)


@scene(
    "A warmup is within the acceptable lag by its own estimate of the time that it still takes.", rules=("4.1", "5.2")
)
def caught_up_by_time(worker: Worker) -> None:
    worker.joins(warmup=["0_1"], acceptable_catchup_ms=500)
    worker.at(90).current(1, acceptable_catchup_ms=500)
    worker.at(1_000).says("progress", "0_1", position=400, end_offset=5_000, catchup_ms=501)
    worker.at(1_500).says("progress", "0_1", position=450, end_offset=5_000, catchup_ms=500)


@scene(
    "A standby becomes a warmup and a standby again, without being touched; then it is dropped.", rules=("0.1", "4.6")
)
def copies_change_their_names(worker: Worker) -> None:
    worker.joins(standby=["0_1"])
    worker.at(90).current(1)
    worker.at(1_000).answered(2, to="poll", warmup=["0_1"])
    worker.at(1_050).current(2)
    worker.at(2_000).answered(3, to="poll", standby=["0_1"])
    worker.at(2_050).current(3)
    worker.at(3_000).answered(4, to="poll")
    worker.at(3_020).says("stopped", "0_1")
    worker.at(3_080).current(4)


@scene(
    "A newer token for a task that runs: it was somebody else's in between. It stops without a commit, then starts.",
    rules=("5.4",),
)
def newer_token(worker: Worker) -> None:
    worker.runs()
    worker.at(3_100).answered(3, active={"0_1": 9})
    worker.at(3_150).says("stopped", "0_1")
    worker.at(3_200).says("running", "0_1")
    worker.at(3_300).current(3)


@scene("Granted again while it still stops: it starts under the new token only when it has stopped.", rules=("5.4",))
def granted_while_it_stops(worker: Worker) -> None:
    worker.runs()
    worker.at(1_000).answered(2, to="poll")
    worker.at(1_500).answered(3, to="poll", active={"0_1": 8})
    worker.at(1_700).says("stopped", "0_1", final_position=905)
    worker.at(1_800).current(3)


@scene(
    "Granted and taken away before the member saw either: only a report that lists the tasks confirms that.",
    rules=("4.4", "4.6"),
)
def granted_and_revoked_unseen(worker: Worker) -> None:
    worker.joins()
    worker.at(90).current(1)
    worker.at(3_150).answered(3)
    worker.at(3_300).current(3)


@scene(
    "Stops come before starts: one task goes, another comes, and a copy is dropped with the same answer.",
    rules=("5.3",),
)
def stops_before_starts(worker: Worker) -> None:
    worker.runs(standby=["0_5"])
    worker.at(3_100).answered(2, active={"0_2": 4}, warmup=["0_6"])


@scene(
    "The coordinator asks for a full report: the next heartbeat lists everything, though nothing changed.",
    rules=("4.4", "5.5"),
)
def full_report(worker: Worker) -> None:
    worker.runs(standby=["0_2"])
    worker.at(3_100).current(1)
    worker.at(6_100).current(1, report="full")
    worker.at(9_100).current(1)
    worker.at(12_100).current(1)


@scene(
    "A caught-up standby that reads on is told of every ten seconds, and when it falls behind with the next heartbeat.",
    rules=("4.4", "4.10"),
)
def reads_on(worker: Worker) -> None:
    worker.runs(standby=["0_2"], report_interval_ms=10_000)
    for number, until_ms in enumerate(range(1_000, 16_001, 3_000)):
        worker.at(until_ms).says("progress", "0_2", position=900 + number, end_offset=950)
        worker.says("input-lag", "0_1", input_lag=number)
        worker.at(until_ms + 2_100).current(1, report_interval_ms=10_000)
    worker.at(19_000).says("progress", "0_2", position=906, end_offset=1_007)
    worker.at(21_100).current(1, report_interval_ms=10_000)


@scene(
    "How much an active uses is said while it runs, with the next list, and not of a task that is given up or restored.",
    rules=("4.10", "4.11"),
)
def load(worker: Worker) -> None:
    worker.runs(report_interval_ms=6_000)
    worker.at(1_000).says("load", "0_1", load=0.25)
    worker.at(3_100).current(1, report_interval_ms=6_000)
    worker.at(4_000).says("load", "0_1", load=0.5)
    worker.at(6_100).current(1, report_interval_ms=6_000)
    worker.at(9_100).current(1, report_interval_ms=6_000)
    worker.at(10_000).says("lost", "0_1")
    worker.at(10_040).current(1, report_interval_ms=6_000)
    worker.at(13_100).answered(2, report_interval_ms=6_000)
    worker.at(13_150).says("stopped", "0_1", final_position=905)
    worker.at(13_200).current(2, report_interval_ms=6_000)


@scene(
    "What a copy costs is said with its reports; once it is promoted, nothing is said before the active was measured.",
    rules=("4.11",),
)
def load_of_a_copy(worker: Worker) -> None:
    worker.joins(standby=["0_2"])
    worker.at(90).current(1)
    worker.at(1_000).says("load", "0_2", load=0.01)
    worker.at(3_100).answered(2, active={"0_2": 9})
    worker.at(3_150).says("running", "0_2")
    worker.at(3_250).current(2)
    worker.at(4_000).says("load", "0_2", load=0.25)
    worker.at(6_300).current(2)


@scene("A coordinator that names no report interval is told of every change with the next heartbeat.", rules=("4.10",))
def reads_on_without_an_interval(worker: Worker) -> None:
    worker.runs(standby=["0_2"])
    for number, until_ms in enumerate(range(1_000, 7_001, 3_000)):
        worker.at(until_ms).says("progress", "0_2", position=900 + number, end_offset=950)
        worker.at(until_ms + 2_100).current(1)


@scene("A task with two changelogs is known by topic, in every field that is an offset.", rules=("4.5", "5.2"))
def several_changelogs(worker: Worker) -> None:
    worker.joins(active={"0_1": 7}, warmup=["0_2"], restore_to={"0_1": {"a": 10, "b": 20}})
    worker.at(50).says("restoring", "0_1", positions={"a": 5, "b": 20}, end_offsets={"a": 10, "b": 20})
    worker.says("progress", "0_2", positions={"a": 1, "b": 2}, end_offsets={"a": 100, "b": 200})
    worker.at(90).current(1)
    worker.at(200).says("running", "0_1")
    worker.at(220).current(1)
    worker.at(3_300).answered(2, warmup=["0_2"])
    worker.at(3_350).says("stopped", "0_1", final_positions={"a": 15, "b": 25})
    worker.at(3_400).current(2)


@scene("A task fails, is still this member's, and is taken away without a commit.", rules=("4.5", "5.3"))
def failed(worker: Worker) -> None:
    worker.runs()
    worker.at(1_000).says("failed", "0_1", detail="ValueError: a record that cannot be read")
    worker.at(1_020).answered(2)
    worker.at(1_100).says("stopped", "0_1")
    worker.at(1_160).current(2)


@scene("The state of an active and of a standby is lost: each report says so until one is answered.", rules=("4.5",))
def state_lost(worker: Worker) -> None:
    worker.runs(standby=["0_2"])
    worker.at(1_000).says("lost", "0_1")
    worker.says("lost", "0_2")
    worker.unanswered()
    worker.at(1_600).current(1)
    worker.at(2_000).says("running", "0_1")
    worker.at(2_080).current(1)


@scene(
    "A producer is fenced: the task stops, and starts again only when the coordinator still grants it.",
    rules=("7.4", "8.4"),
)
def producer_fenced(worker: Worker) -> None:
    worker.runs()
    worker.at(1_000).says("producer-fenced", "0_1")
    worker.at(1_010).says("stopped", "0_1")
    worker.at(1_020).current(1)
    worker.at(1_100).current(1)


@scene(
    "A task stops of its own accord, which nobody waits for: it starts again once the next heartbeat is answered.",
    rules=("7.4", "8.4"),
)
def stopped_unasked(worker: Worker) -> None:
    worker.runs()
    worker.at(1_000).says("stopped", "0_1", final_position=905)
    worker.at(3_100).current(1)


@scene(
    "What lies on disk is reported in bytes, whatever the role; what was removed is reported no more.", rules=("4.5",)
)
def disk(worker: Worker) -> None:
    worker.runs()
    worker.at(1_000).says("disk-bytes", disk_bytes={"0_1": 4_096})
    worker.says("input-lag", "0_1", input_lag=12)
    worker.at(3_100).answered(2)
    worker.says("stopped", "0_1", final_position=905)
    worker.at(3_180).current(2)
    worker.at(6_200).current(2)
    worker.at(7_000).says("disk-bytes", disk_bytes={"0_1": 4_096})
    worker.says("removed", "0_1")
    worker.at(9_200).current(2)


@scene("What the coordinator says of the member's standing is passed on when it changes.", rules=("5.6",))
def status(worker: Worker) -> None:
    worker.runs()
    worker.at(3_100).current(1, status=[{"code": "draining", "detail": "1 task left"}])
    worker.at(6_100).current(1, status=[{"code": "draining", "detail": "1 task left"}])
    worker.at(9_100).current(1)


# --- the lease --------------------------------------------------------------------------------------------------------


@scene(
    "The coordinator is gone. At the end of the lease the active stops without a commit; copies go on.",
    rules=("7.1", "7.3"),
)
def lease_over(worker: Worker) -> None:
    worker.runs(standby=["0_2"])
    worker.quiet_until(10_500)
    worker.says("stopped", "0_1")
    worker.quiet_until(14_000)


@scene(
    "The coordinator comes back after the lease: what was stopped starts again under its token, after a heartbeat.",
    rules=("7.4",),
)
def lease_over_and_back(worker: Worker) -> None:
    worker.runs()
    worker.at(10_090).says("stopped", "0_1")
    worker.answered(1, to="poll", active={"0_1": 7})
    worker.at(10_200).current(1)
    worker.at(10_300).says("running", "0_1")


@scene(
    "A heartbeat sent before the end of the lease and answered after it lengthens the lease, but starts nothing.",
    rules=("7.4",),
)
def answered_after_the_end(worker: Worker) -> None:
    worker.runs()
    worker.at(10_090).says("stopped", "0_1")
    heartbeats = [number for number, one in enumerate(worker.player.sent, 1) if one.kind.value == "heartbeat"]
    worker.current(1, to=heartbeats[-2])
    worker.at(10_200).current(1)


@scene(
    "Outputs are fenced, so the active goes on past the lease until it is told otherwise; nothing new starts.",
    rules=("7.3", "7.4"),
    settings={"on_lease_lost": "continue"},
)
def lease_over_continue(worker: Worker) -> None:
    worker.runs()
    worker.at(10_500).answered(2, to="poll", active={"0_1": 7, "0_2": 3})
    worker.at(10_550).current(2)


@scene(
    "The lease runs from when an answered heartbeat was first sent, not from its retry, nor from the answer.",
    rules=("7.1",),
)
def lease_from_first_sending(worker: Worker) -> None:
    worker.runs()
    worker.at(3_100).unanswered()
    worker.at(3_600).current(1)
    worker.quiet_until(13_500)


@scene(
    "The lease of a join whose answer was lost runs from when the join was first sent, not from its repetition.",
    rules=("7.1",),
)
def lease_from_first_join(worker: Worker) -> None:
    worker.says("start")
    worker.at(3_200).answered(1, to="join", active={"0_1": 7})
    worker.says("running", "0_1")
    worker.quiet_until(10_500)


@scene("A long-poll never renews the lease, though it is answered all the time.", rules=("6.2",))
def poll_renews_nothing(worker: Worker) -> None:
    worker.runs()
    worker.at(5_000).empty()
    worker.at(7_000).answered(1, to="poll", active={"0_1": 7})
    worker.at(9_000).answered(1, to="poll", active={"0_1": 7})
    worker.quiet_until(10_200)


@scene("Polls that end without news are not repeated more than once a second.", rules=("6.3",))
def empty_polls(worker: Worker) -> None:
    worker.joins()
    worker.at(90).current(1)
    worker.at(100).empty()
    worker.at(1_100).empty()
    worker.quiet_until(2_100)


@scene(
    "The session timeout is lowered: the lease shrinks with the first heartbeat that echoes the later epoch.",
    rules=("7.1",),
)
def session_timeout_lowered(worker: Worker) -> None:
    worker.runs()
    worker.at(1_000).answered(2, to="poll", active={"0_1": 7}, session_timeout_ms=2_500)
    worker.quiet_until(3_600)


@scene(
    "A member that stops its tasks slowly ends its lease that much sooner.",
    rules=("7.1",),
    settings={"stop_early_ms": 2_000},
)
def stop_early(worker: Worker) -> None:
    worker.runs()
    worker.quiet_until(8_200)


@scene(
    "The computer sleeps past the end of the lease: what may not outlive it stops before anything else is done.",
    rules=("7.2", "7.3", "7.4"),
)
def slept_past_the_lease(worker: Worker) -> None:
    worker.runs()
    worker.sleeps_until(3_600_000)
    worker.says("stopped", "0_1")
    worker.current(1)


@scene(
    "The computer sleeps for a while within the lease: the heartbeat that was due is sent when it wakes.",
    rules=("4.1", "7.2"),
)
def slept_within_the_lease(worker: Worker) -> None:
    worker.runs()
    worker.sleeps_until(9_000)
    worker.at(9_050).current(1)
    worker.quiet_until(12_100)


@scene("A stop with a commit is under way when the lease ends: it becomes one without.", rules=("7.3",))
def commit_outlives_the_lease(worker: Worker) -> None:
    worker.runs()
    worker.at(3_100).answered(2)
    worker.quiet_until(13_200)


# --- answers and refusals ---------------------------------------------------------------------------------------------


@scene("An answer of a lower epoch changes nothing but the lease.", rules=("4.3",))
def late_answer(worker: Worker) -> None:
    worker.runs()
    worker.quiet_until(3_090)
    first = worker.last()
    worker.at(3_100).answered(3, to="poll", active={"0_1": 7, "0_2": 3})
    worker.at(3_200).answered(2, to=first)
    worker.quiet_until(3_300)


@scene(
    "An assignment of a later epoch that is left out is not echoed: half a picture confirms nothing.", rules=("4.3",)
)
def epoch_without_assignment(worker: Worker) -> None:
    worker.runs()
    worker.at(3_100).current(2)
    worker.at(6_100).answered(2)


@scene(
    "The coordinator believes a lower epoch than the member has seen: it hears of the higher one at once.",
    rules=("4.3", "6.3"),
)
def store_lost_commits(worker: Worker) -> None:
    worker.runs()
    worker.at(1_000).answered(5, to="poll", active={"0_1": 7})
    worker.at(1_050).current(5)
    worker.at(1_500).answered(4, to="poll")


@scene(
    "A stale epoch is refused, and the refusal brings the assignment to take: it renews nothing.", rules=("4.3", "10.5")
)
def stale_member_epoch(worker: Worker) -> None:
    worker.runs()
    answer = {
        "member_id": "run-1",
        "seq": 2,
        "member_epoch": 4,
        "generation": 1,
        "heartbeat_interval_ms": INTERVAL_MS,
        "session_timeout_ms": SESSION_MS,
        "acceptable_recovery_lag": 100,
        "acceptable_catchup_ms": None,
        "report": None,
        "assignment": {"active": [{"task": "0_2", "fencing_token": 3}], "standby": [], "warmup": []},
        "status": [],
    }
    worker.at(3_100).refused("stale-member-epoch", 409, answer=answer)
    worker.at(3_150).says("stopped", "0_1", final_position=905)
    worker.at(3_250).current(4)


@scene(
    "A grant without a token makes the whole answer malformed: nothing of it is acted on, no lease is renewed.",
    rules=("5.2",),
)
def malformed_answer(worker: Worker) -> None:
    worker.runs()
    worker.at(3_100).answered(2, assignment={"active": [{"task": "0_2"}], "standby": [], "warmup": []})
    worker.at(3_600).current(1)


def _rejoins(problem: str, status: int) -> None:
    def play(worker: Worker) -> None:
        worker.runs(standby=["0_2"])
        worker.at(3_100).refused(problem, status)
        worker.at(3_500).says("stopped", "0_1", final_position=905)
        worker.at(3_600).answered(1, to="join", active={"0_1": 9}, standby=["0_2"])

    play.__name__ = f"refused_{problem}"
    about = "Refused: every active stops without a commit; then a new run joins in the place of the old one."
    scene(about, rules=("3.6", "9.5"), member_ids=["run-1", "run-2"])(play)


for _problem, _status in (("fenced", 409), ("gone", 409), ("unknown-member", 404), ("unknown-group", 404)):
    _rejoins(_problem, _status)


@scene(
    "A process vouches once that the old one is dead. After a refusal it does not know who has the instance by now.",
    rules=("3.7", "9.5"),
    settings={"instance_id": "orders-0", "takeover": True},
    member_ids=["run-1", "run-2"],
)
def takeover_once(worker: Worker) -> None:
    worker.runs()
    worker.at(3_100).refused("fenced", 409)
    worker.at(3_500).says("stopped", "0_1", final_position=905)


@scene(
    "A newer run of the same instance has taken over: everything stops, and nothing is sent any more.",
    rules=("0.3", "9.5"),
)
def refused_fenced_instance_id(worker: Worker) -> None:
    worker.runs(standby=["0_2"])
    worker.at(3_100).refused("fenced-instance-id", 409)
    worker.says("stopped", "0_1")
    worker.quiet_until(60_000)


@scene("A refusal of a type that is not known goes by its action.", rules=("10.6",), member_ids=["run-1", "run-2"])
def refused_unknown_type(worker: Worker) -> None:
    worker.runs()
    worker.at(3_100).refused("something-new", 409, action="stop-and-rejoin")
    worker.at(3_200).says("stopped", "0_1")


@scene(
    "Fenced by way of the long-poll: the same as by way of a heartbeat.",
    rules=("6.1", "9.5"),
    member_ids=["run-1", "run-2"],
)
def refused_by_poll(worker: Worker) -> None:
    worker.runs()
    worker.at(2_000).refused("fenced", 409, to="poll")
    worker.at(2_100).says("stopped", "0_1")


@scene(
    "Runs that are refused as soon as they have joined: each replaces the one before, and waits longer.",
    rules=("3.6", "9.5", "10.2"),
    member_ids=["run-1", "run-2", "run-3", "run-4"],
)
def refused_again_and_again(worker: Worker) -> None:
    worker.joins()
    worker.at(90).refused("fenced", 409)
    worker.at(400).refused("gone", 409, to="join")
    worker.at(1_000).refused("gone", 409, to="join")
    worker.quiet_until(2_000)


def _retried(problem: str, status: int) -> None:
    def play(worker: Worker) -> None:
        worker.runs()
        worker.at(3_100).refused(problem, status)
        worker.at(3_500).current(1)
        worker.at(6_600).current(1)

    play.__name__ = f"refused_{problem}"
    how = "the same heartbeat is sent again" if status >= 500 else "the next heartbeat is a new one"
    about = f"Refused for now: the work goes on within the lease, the problem is shown, and {how}."
    scene(about, rules=("10.1", "10.5" if status >= 500 else "10.6"))(play)


for _problem, _status in (
    ("invalid-request", 422),
    ("invalid-topology", 422),
    ("invalid-config", 422),
    ("precondition-required", 428),
    ("precondition-failed", 412),
    ("method-not-allowed", 405),
    ("unauthenticated", 401),
    ("forbidden", 403),
    ("store-unavailable", 503),
    ("coordinator-loading", 503),
):
    _retried(_problem, _status)


@scene(
    "A limit names a time to wait: it is waited out, but never longer than half of what is left of the lease.",
    rules=("10.3",),
)
def refused_limit_exceeded(worker: Worker) -> None:
    worker.runs()
    worker.at(3_100).refused("limit-exceeded", 429, retry_after_ms=3_200)
    worker.at(6_400).current(1)
    worker.at(9_350).refused("limit-exceeded", 429, retry_after_ms=60_000)
    worker.quiet_until(13_000)


@scene(
    "A 503 names a time to wait: it counts up to the interval, because waiting longer only spends the lease.",
    rules=("10.3",),
)
def refused_with_a_wait(worker: Worker) -> None:
    worker.runs()
    worker.at(3_100).refused("store-unavailable", 503, retry_after_ms=60_000)
    worker.at(6_150).current(1)


# --- a coordinator that is away ---------------------------------------------------------------------------------------


@scene(
    "Connections break, and are made again within the lease: nothing stops, and waits between retries grow.",
    rules=("10.1", "10.2"),
)
def coordinator_gone_and_back(worker: Worker) -> None:
    worker.runs()
    worker.at(1_000).unanswered("poll")
    worker.at(1_070).unanswered("poll")
    worker.at(3_100).unanswered()
    worker.at(3_310).unanswered()
    worker.at(3_800).unanswered()
    worker.at(5_000).current(1)
    worker.answered(2, to="poll", active={"0_1": 7, "0_2": 3})


@scene(
    "A heartbeat is not answered in time. It is given up and said again, and its late answer still counts.",
    rules=("10.1",),
)
def heartbeat_times_out(worker: Worker) -> None:
    worker.runs()
    worker.quiet_until(3_090)
    first = worker.last()
    worker.at(6_500).current(1, to=first)
    worker.quiet_until(9_300)


# --- going ------------------------------------------------------------------------------------------------------------


@scene(
    "A worker leaves: everything stops with a commit, heartbeats go on meanwhile, and the goodbye comes last.",
    rules=("0.2", "9.1"),
)
def leave(worker: Worker) -> None:
    worker.runs(standby=["0_2"])
    worker.at(1_000).says("leave", mode="leave")
    worker.at(1_100).says("stopped", "0_2")
    worker.at(3_100).current(1)
    worker.at(3_500).says("stopped", "0_1", final_position=905)
    worker.at(3_520).empty("leave")
    worker.quiet_until(60_000)


@scene("A worker that comes back leaves its place kept.", rules=("9.1",), settings={"instance_id": "orders-0"})
def leave_to_restart(worker: Worker) -> None:
    worker.runs()
    worker.at(1_000).says("leave", mode="restart")
    worker.at(1_100).says("stopped", "0_1", final_position=905)
    worker.at(1_120).empty("leave")


@scene(
    "A goodbye without an answer is said again until the lease is over: then the member is gone in any case.",
    rules=("0.2", "9.1"),
)
def leave_unanswered(worker: Worker) -> None:
    worker.joins()
    worker.at(90).current(1)
    worker.at(1_000).says("leave", mode="leave")
    for at_ms in (1_010, 1_300, 1_800, 8_000, 11_050):
        worker.at(at_ms).unanswered("leave")
    worker.quiet_until(30_000)


@scene("Fenced while it leaves: the active stops without a commit, and that is the end.", rules=("0.2", "9.5"))
def fenced_while_leaving(worker: Worker) -> None:
    worker.runs()
    worker.at(2_900).says("leave", mode="leave")
    worker.at(3_100).refused("fenced", 409)
    worker.at(3_200).says("stopped", "0_1")
    worker.quiet_until(60_000)


@scene("A goodbye that is refused because the member is none has been said.", rules=("0.2",))
def goodbye_refused(worker: Worker) -> None:
    worker.joins()
    worker.at(90).current(1)
    worker.at(1_000).says("leave", mode="leave")
    worker.at(1_020).refused("gone", 409, to="leave")


@scene("Nothing starts while a worker leaves, whatever it is granted.", rules=("0.2", "4.6"))
def granted_while_leaving(worker: Worker) -> None:
    worker.runs()
    worker.at(1_000).says("leave", mode="leave")
    worker.at(3_100).answered(2, active={"0_1": 7, "0_2": 3}, standby=["0_4"])
    worker.at(3_200).says("stopped", "0_1", final_position=905)


@scene(
    "A worker asks to be drained, and calls it off. What was asked before the join is asked once joined.",
    rules=("9.2",),
)
def drain(worker: Worker) -> None:
    worker.says("start")
    worker.says("drain")
    worker.at(20).answered(1, to="join", active={"0_1": 7})
    worker.at(40).says("running", "0_1")
    worker.at(60).player.happens("answer", request=worker.last("drain"), status=202, body={"active": 1})
    worker.at(100).current(1, status=[{"code": "draining", "detail": ""}])
    worker.at(1_000).says("undrain")
    worker.at(1_020).empty("undrain")
    worker.at(2_000).says("drain", deadline_ms=30_000)
    worker.at(2_020).refused("forbidden", 403, to="drain")
    worker.quiet_until(3_100)
