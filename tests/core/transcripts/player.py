"""Plays a transcript against the real core: reads what happens, and writes down what comes of it.

The notation, a line each; whatever does not begin with ``#`` or ``>`` is written by the player:

    # A comment, kept as it is.
    > given 4 tasks on m1, m2; num_standby_replicas 1     a group at rest
    > given 4 tasks on m1, m2 (outputs fenced); ...       the same, of members that joined so; or (instances)
    > the group is declared with 4 tasks; max_warmup_replicas 1
    > m3 joins; capacity 2, instance a-3, 0_1 on disk 5 behind, the disk of m2 5 behind, replaces m2, outputs fenced
    > m3 says: 0_1 warmup 20 behind, 0_2 active running      all that it holds; or `nothing`, or `as before`
    > m3 (epoch 4) says: 0_2 gone, stopped at 905      an epoch that is not the newest; where an owner stopped
    > m1, m2 do as told             they report all that they may hold: actives run, copies are level with the changelog
    > m1 does as told; copies 20000 behind, stopped at 905     copies are that far; what it gave up it ran to there
    > 50 ms later                   time passes; the group looks when a look is due
    > 45 s later; m1, m3 go on      and these do as told, once a heartbeat interval
    > m1 leaves | m1 leaves to restart | m1 is to drain | m1 is to drain within 30 s | m1 is to stay
    > the long-poll of m1 breaks | m1 is evicted | m1 is evicted as dead | the coordinator restarts | moves go on
    > m1 is evicted as dead until undone
    > a rebalance of 4 tasks; a has 0_0 active running, 0_1 on disk 5 behind; b has nothing     of Kafka Streams
    > where is everything?
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.core.scene import START_MS, Scene, copy, running, topology
from tests.core.transcripts.words import Happened, exact_time, lines_of, table_of

from batonpass.core.state import inputs as i
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.model import ActiveState, Group, OnLeaseLost, Role
from batonpass.core.state.replies import Reply
from batonpass.core.state.soft import Soft, TaskReport

FOLDER: Final = Path(__file__).parent
UNITS: Final = {"ms": 1, "s": 1_000, "min": 60_000}
ROLES: Final = {"active": "active", "standby": "standby", "warmup": "warmup", "on disk": "none", "gone": "none"}


class UnclearLine(Exception):
    """A line of a transcript that the notation does not know."""


class Listening(Scene):
    """A scene that remembers what happened, input by input.

    Attributes:
        happened: every input since the last line, with what it led to.
        disks: what each member had last, and finds on its disk when it comes back.
        woken_ms: when the group wakes at the latest, as it was last written down.
    """

    def __init__(self) -> None:
        super().__init__()
        self.happened: list[Happened] = []
        self.disks: dict[str, list[str]] = {}
        self.woken_ms: int | None = None

    def do(self, item: i.Input) -> Reply:
        """Let ``item`` happen, and remember it."""
        before = self.group
        reply = super().do(item)
        assert self.last is not None
        self.happened.append(Happened(item, self.now_ms, before, self.last, reply))
        self.disks |= {name: [*member.assignment] for name, member in self.group.members.items() if member.assignment}
        return reply

    def restart(self) -> None:
        """Let another coordinator load the group from its log: it knows nothing of what members said."""
        loaded = evolve(Group(self.group.id), self.log)
        assert loaded == self.group
        self.group, self.soft = loaded, Soft()
        self.do(i.Started())


def transcripts() -> list[Path]:
    """Return the files of all transcripts."""
    return sorted(FOLDER.glob("*.txt"))


def play(text: str) -> str:
    """Return the transcript as it comes out now.

    Raises:
        UnclearLine: for a line that the notation does not know.
    """
    scene = Listening()
    begun_ms = START_MS
    written: list[str] = []
    for line in text.splitlines():
        if line.startswith(">"):
            step = line[1:].strip()
            scene.happened.clear()
            shown = _let_happen(scene, step)
            if step.startswith("given"):
                begun_ms = scene.now_ms
            written.append(line)
            written += (
                shown
                if shown is not None
                else _lines(scene, begun_ms, passes=" later" in step, brief="as told" in step)
            )
        elif line.startswith("#") or not line:
            written.append(line)
    return "\n".join(written) + "\n"


def _lines(scene: Listening, begun_ms: int, *, passes: bool, brief: bool) -> Iterator[str]:
    """Yield what the inputs since the last line led to; where time passes, with when, and only what is recorded."""
    shown = False
    for happened in scene.happened:
        lines = lines_of(happened, brief=passes or brief)
        if passes and not happened.decision.records:
            lines = [line for line in lines if line.startswith("refused")]
        if lines and passes:
            sender = getattr(happened.item, "member_id", None)
            yield f"  at {exact_time(happened.at_ms - begun_ms)}" + (
                f", by a heartbeat of {sender}:" if sender else ":"
            )
        yield from lines
        shown = shown or bool(lines)
    if not shown:
        yield "nothing changes"
    wake_ms = scene.soft.wake_ms
    if wake_ms not in (None, scene.woken_ms) and any(one.decision.records for one in scene.happened):
        scene.woken_ms = wake_ms
        yield f"next look: in {exact_time((wake_ms or 0) - scene.now_ms)} at the latest"


def _let_happen(scene: Listening, step: str) -> list[str] | None:
    """Let happen what one line says; return what is to be shown instead of what came of it, where that is else."""
    for pattern, happen in _LINES:
        found = re.fullmatch(pattern, step)
        if found is not None:
            return happen(scene, **{name: text or "" for name, text in found.groupdict().items()})
    raise UnclearLine(f"> {step}: the notation has no such line; see {Path(__file__).name}")


def _given(scene: Listening, count: str, members: str, fields: str, config: str) -> list[str]:
    """Bring a group to rest, and show it."""
    _declare(scene, count, config)
    for name in _names(members):
        _join(scene, name, f"instance {name}" if fields == "instances" else fields)
    scene.wait(scene.group.config.initial_rebalance_delay_ms)
    scene.settle(100)
    return table_of(scene.group)


def _declare(scene: Listening, count: str, config: str) -> None:
    """Declare the group, with every delay as it is by default."""
    settings: dict[str, object] = {"initial_rebalance_delay_ms": 3_000, "rebalance_batch_ms": 50}
    for setting in filter(None, config.split(", ")):
        name, value = setting.split()
        settings[name] = float(value) if "." in value else int(value)
    scene.declare(topology(int(count)), **settings)


def _join(scene: Listening, name: str, fields: str) -> None:
    """Let a member join."""
    arguments: dict[str, object] = {}
    disk: dict[str, TaskReport] = {}
    for field in filter(None, fields.split(", ")):
        word, _, value = field.partition(" ")
        if word == "capacity":
            arguments["capacity"] = float(value)
        elif word == "instance":
            arguments["instance_id"] = InstanceId(value)
        elif word == "replaces":
            arguments["replaces"] = MemberId(value)
        elif field == "outputs fenced":
            arguments["on_lease_lost"] = OnLeaseLost.CONTINUE
        elif found := re.fullmatch(r"the disk of (\S+) (\d+) behind", field):
            disk |= {task: copy("none", int(found[2])) for task in scene.disks[found[1]]}
        else:
            disk |= _reports(field)
    scene.join(name, disk, **arguments)


def _say(scene: Listening, name: str, epoch: str, words: str) -> None:
    """Let a member heartbeat."""
    scene.beat(name, None if words == "as before" else _reports(words), epoch=int(epoch) if epoch else None)


_REPORT: Final = (
    r"(?P<task>\w+_\d+) (?P<role>active|standby|warmup|on disk|gone)(?: (?P<state>running|restoring|failed))?"
    r"(?: (?P<lag>\d+) behind)?(?: stopped at (?P<final>\d+))?(?P<lost> lost)?"
)


def _reports(words: str) -> dict[str, TaskReport]:
    """Return what a member says of its tasks; one that is ``gone`` is in the report only where it stopped somewhere."""
    reports: dict[str, TaskReport] = {}
    for part in words.split(", ") if words != "nothing" else ():
        found = re.fullmatch(_REPORT, part)
        if found is None:
            raise UnclearLine(f"{part!r} is no report of a task; as in: 0_3 warmup 20 behind")
        state, lag, final = found["state"], found["lag"], found["final"]
        if found["role"] == "gone" and not final:
            continue
        reports[found["task"]] = TaskReport(
            ROLES[found["role"]],
            ActiveState(state) if state else None,
            int(lag) if lag else None,
            lost=bool(found["lost"]),
            final_position=(("", int(final)),) if final else (),
        )
    return reports


def _obey(scene: Listening, members: str, lag: str = "", final: str = "") -> None:
    """Let members report what they may hold, and where they stopped what they had to give up."""
    for name in _names(members):
        member = scene.member(name)
        reports = {
            str(task): running() if grant.role is Role.ACTIVE else copy(grant.role, int(lag or 0))
            for task, grant in member.assignment.items()
        }
        for task in member.revoking if final else ():
            reports[task] = reports.get(task, copy("none", None))._replace(final_position=(("", int(final)),))
        scene.beat(name, reports)


def _pass(scene: Listening, time: str, unit: str, members: str) -> None:
    """Let time pass, with a heartbeat of these members each interval."""
    end_ms = scene.now_ms + round(float(time) * UNITS[unit])
    step_ms = scene.group.config.heartbeat_interval_ms
    while scene.now_ms < end_ms:
        scene.wait(min(step_ms if members else end_ms, end_ms - scene.now_ms))
        _obey(scene, members)


def _names(members: str) -> list[str]:
    return [name for name in members.split(", ") if name]


def _put(make: Callable[[MemberId], i.Input]) -> Callable[..., None]:
    """Return what lets an input of one member happen."""

    def happen(scene: Listening, name: str) -> None:
        scene.do(make(MemberId(name)))

    return happen


def _drain(scene: Listening, name: str, time: str, unit: str) -> None:
    """Ask that a member be drained."""
    scene.do(i.DrainRequest(MemberId(name), round(float(time) * UNITS[unit]) if time else None))


def _pin(scene: Listening, task: str, name: str) -> None:
    """Pin a task to a member."""
    scene.do(i.PinRequest(TaskId(task), MemberId(name)))


def _rebalance(scene: Listening, count: str, processes: str) -> None:
    """Let the leader of a Kafka Streams group say who has what."""
    found = []
    for process in processes.split("; "):
        name, _, words = process.partition(" has ")
        tasks = {TaskId(task): report for task, report in _reports(words).items()}
        found.append(i.StreamsProcess(InstanceId(name), tasks=tasks))
    scene.do(i.StreamsRebalance(topology(int(count)), {"acceptable_recovery_lag": 1_000}, tuple(found)))


def _restart(scene: Listening) -> None:
    """Let another coordinator take the group."""
    scene.restart()


def _resume(scene: Listening) -> None:
    """Let an operator end a pause, and a storm."""
    scene.do(i.ResumeRequest())


def _show(scene: Listening) -> list[str]:
    """Show where every task is."""
    return table_of(scene.group)


_NAME: Final = r"(?P<name>[\w-]+)"
_TIME: Final = r"(?P<time>[\d.]+) (?P<unit>ms|s|min)"
_MEMBERS: Final = r"(?P<members>[\w-]+(?:, [\w-]+)*)"
_LINES: Final[list[tuple[str, Callable[..., list[str] | None]]]] = [
    (rf"given (?P<count>\d+) tasks on {_MEMBERS}(?: \((?P<fields>.*)\))?(?:; (?P<config>.*))?", _given),
    (r"the group is declared with (?P<count>\d+) tasks(?:; (?P<config>.*))?", _declare),
    (rf"{_NAME} joins(?:; (?P<fields>.*))?", _join),
    (rf"{_NAME}(?: \(epoch (?P<epoch>\d+)\))? says: (?P<words>.*)", _say),
    (rf"{_MEMBERS} do(?:es)? as told(?:;(?: copies (?P<lag>\d+) behind)?,?(?: stopped at (?P<final>\d+))?)?", _obey),
    (rf"{_TIME} later(?:; {_MEMBERS} go(?:es)? on)?", _pass),
    (rf"{_NAME} leaves", _put(i.Leave)),
    (rf"{_NAME} leaves to restart", _put(lambda name: i.Leave(name, restart=True))),
    (rf"{_NAME} is to drain(?: within {_TIME})?", _drain),
    (rf"{_NAME} is to stay", _put(i.DrainReversal)),
    (rf"the long-poll of {_NAME} breaks", _put(i.PollBroken)),
    (rf"{_NAME} is evicted", _put(i.Eviction)),
    (rf"{_NAME} is evicted as dead", _put(lambda name: i.Eviction(name, dead=True))),
    (rf"{_NAME} is evicted as dead until undone", _put(lambda name: i.Eviction(name, dead=True, until_undone=True))),
    (rf"(?P<task>\w+_\d+) is pinned to {_NAME}", _pin),
    (r"a rebalance of (?P<count>\d+) tasks; (?P<processes>.*)", _rebalance),
    (r"the coordinator restarts", _restart),
    (r"moves go on", _resume),
    (r"where is everything\?", _show),
]
