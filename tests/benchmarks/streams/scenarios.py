"""Who decides about a job, what is done to it, and how one run of the two goes."""

import asyncio
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.benchmarks.streams.measures import Figures, Window, figures_of, part_words, parts_of
from tests.benchmarks.streams.stage import CAUGHT_UP, Application, Say, Stage
from tests.clients.streams_job import PARTITIONS, Program, read
from tests.e2e.serving import SECRET
from tests.waiting import wait_until

NAMES = "ABCD"
FIRST = NAMES[:3]
REPLACED_AFTER_S = 20
QUIET_S = 6
SETTLED_S = 6
"""How long nothing is done before, and how long a job has to rest before it counts as at rest."""

START_PATIENCE_S = 240
SAY_EVERY_S = 10

Settings = Mapping[str, object]

EVERY_JOB: Settings = {
    "acceptable.recovery.lag": CAUGHT_UP,
    # The default is 600,000: what takes a run of the defaults some minutes here takes it ten times as long.
    "probing.rebalance.interval.ms": 60_000,
    # A quota then holds back small parts: otherwise the last records of a restore would wait for the next second.
    "restore.consumer.fetch.max.bytes": 65_536,
}


@dataclass(frozen=True)
class Arm:
    """Who decides, with the settings that this comes with; ``leaves``: an instance that is closed leaves its group."""

    name: str
    what: str
    settings: Settings = field(default_factory=dict)
    assignor: str = "kafka"
    leaves: bool = False
    by_broker: bool = False


TUNED: Settings = {"max.warmup.replicas": PARTITIONS, "heartbeat.interval.ms": 500, "session.timeout.ms": 10_000}
TUNED_WORDS = "all warm-ups at once, a heartbeat every 500 ms, a session of 10 s, and who is closed leaves"
ARMS = (
    Arm("kafka", "Kafka's assignor, its defaults but for the probing interval"),
    Arm("kafka-tuned", f"Kafka's assignor, {TUNED_WORDS}", TUNED, leaves=True),
    Arm("batonpass", "Batonpass by the plug-in, Kafka's defaults otherwise", assignor="batonpass"),
    Arm("batonpass-tuned", f"Batonpass by the plug-in, {TUNED_WORDS}", TUNED, assignor="batonpass", leaves=True),
    Arm("streams", "the broker (group.protocol=streams)", {"group.protocol": "streams"}, by_broker=True),
)


@dataclass(frozen=True)
class Size:
    """How much state each task has, how fast an instance may read it, and how long a run is waited for."""

    keys: int
    bytes_per_s: int
    patience_s: int


LONG = Size(keys=20_000, bytes_per_s=1_000_000, patience_s=900)
QUICK = Size(keys=8_000, bytes_per_s=1_000_000, patience_s=85)


@dataclass(frozen=True)
class Scenario:
    """What is done to a job of so many instances and standbys, and the settings that it is done under."""

    name: str
    what: str
    act: "Callable[[Run], None]"
    instances: int = 3
    standbys: int = 0
    session_s: int | None = None
    static: bool = False


@dataclass
class Run:
    """One scenario with one arm, while it goes on."""

    application: Application
    arm: Arm
    scenario: Scenario
    url: str
    say: Say
    lost: set[str] = field(default_factory=set)
    """Instances that were killed, closed or restarted: their tasks stop, whoever decides."""
    drained: set[str] = field(default_factory=set)
    """Instances that are to run nothing."""

    def settings(self, name: str) -> Settings:
        """Return the settings of an instance."""
        found = {**EVERY_JOB, **self.arm.settings}
        if self.arm.by_broker:
            return found
        found["num.standby.replicas"] = self.scenario.standbys
        if self.scenario.session_s is not None:
            found["session.timeout.ms"] = self.scenario.session_s * 1_000
        if self.scenario.static:
            found["group.instance.id"] = name
        if self.arm.assignor == "batonpass":
            found |= {"batonpass.url": self.url, "batonpass.token": SECRET}
        return found

    def start(self, name: str) -> Program:
        """Start an instance, with what its disk has."""
        self.say(f"{name} is started")
        return self.application.job.start(
            name, self.settings(name), assignor=self.arm.assignor, leaves=self.arm.leaves and not self.scenario.static
        )

    def close(self, name: str) -> None:
        """Close an instance in good order."""
        self.say(f"{name} is closed")
        self.lost.add(name)
        self.application.job.instances[name].stop()


def _start(run: Run) -> None:
    for name in FIRST:
        run.application.job.instances[name].process.terminate()
    for name in FIRST:
        run.close(name)
    for name in FIRST:
        run.start(name)


def _scale_out(run: Run) -> None:
    run.start("D")


def _kill(run: Run) -> None:
    run.say("C is killed (kill -9)")
    run.lost.add("C")
    run.application.job.instances["C"].kill()


def _replace(run: Run) -> None:
    begun = time.monotonic()
    run.close("C")
    time.sleep(max(0.0, begun + REPLACED_AFTER_S - time.monotonic()))
    run.start("D")


def _roll(run: Run) -> None:
    for name in FIRST:
        run.close(name)
        _until_back(run.start(name))


def _until_back(instance: Program) -> None:
    wait_until(
        lambda: len(instance.active) == PARTITIONS // len(FIRST),
        within_s=300,
        seen=lambda: f"{instance.log.stem} has not its tasks",
    )


def _scale_in(run: Run) -> None:
    run.close("D")


SCENARIOS = (
    Scenario("start", "all three instances are closed, and start again together with their state on disk", _start),
    Scenario("3-to-4", "a fourth instance with an empty disk", _scale_out),
    Scenario("3-to-4-standby", "the same, with a standby of each task", _scale_out, standbys=1),
    Scenario("kill", "kill -9 of one of three, with a standby and a session of 10 s", _kill, standbys=1, session_s=10),
    Scenario(
        "replaced-pod",
        f"one of three is closed, and an empty one starts {REPLACED_AFTER_S} s later; with a standby",
        _replace,
        standbys=1,
    ),
    Scenario("rolling-restart", "three instances with static ids restart one after the other", _roll, static=True),
    Scenario("scale-in", "one of four is closed for good; with a standby", _scale_in, instances=4, standbys=1),
)


def perform(stage: Stage, scenario: Scenario, arm: Arm, size: Size, say: Say) -> Figures:
    """Run one scenario with one arm, from an application of its own to its figures.

    Raises:
        TimeoutError: when the job did not come to rest before anything was done.
    """
    name = f"{scenario.name}-{arm.name}-{uuid.uuid4().hex[:6]}"
    of_group: dict[str, object] = {}
    if arm.by_broker:
        of_group = {"streams.num.standby.replicas": scenario.standbys}
        if scenario.session_s is not None:
            of_group["streams.session.timeout.ms"] = scenario.session_s * 1_000
    with stage.application(name, of_group) as application:
        run = Run(application, arm, scenario, stage.url, say)
        names = NAMES[: scenario.instances]
        for each in names:
            run.start(each)
        wait(run, START_PATIENCE_S, settled_s=3, is_under_load=False)
        say(f"{size.keys} orders for each task, which become its state")
        load = application.preload(size.keys)
        wait(run, START_PATIENCE_S, settled_s=3)
        application.throttle(NAMES, size.bytes_per_s)
        time.sleep(QUIET_S)
        quiet_ms, load_average = now_ms() - (QUIET_S - 1) * 1_000, os.getloadavg()[0]
        begun = now_ms()
        scenario.act(run)
        rest_ms = wait(run, size.patience_s, settled_s=SETTLED_S, since_ms=begun)
        ended = now_ms()
        load.stop()
        say("counting")
        ledger, account = asyncio.run(read(application.bootstrap, application.name))
        window = Window((quiet_ms, quiet_ms + (QUIET_S - 1) * 1_000), begun, rest_ms, ended)
        figures = figures_of(
            ledger,
            window,
            lost=frozenset(run.lost),
            alive=application.alive,
            events=application.events,
        )
        decided = [at for at, _ in application.decisions() if begun < at <= ended]
        parts = parts_of(ledger, window, application.events, decided)
        for part in parts:
            say(part_words(part))
        return figures | {
            "parts": parts,
            "rebalances": None if arm.by_broker else len(decided),
            "errors": [
                each["error"]
                for instance_events in application.events
                for each in instance_events
                if each["event"] == "failed"
            ],
            "orders": account.taken_in,
            "missing": account.missing,
            "doubled": account.doubled,
            "wrong_totals": account.wrong_totals,
            "load_average": round(load_average, 1),
        }


def wait(
    run: Run, patience_s: float, *, settled_s: float, since_ms: int | None = None, is_under_load: bool = True
) -> int | None:
    """Wait until the job has rested for a while, and return since when; None where that takes too long.

    Before anything was done (without ``since_ms``) that is an error.
    """
    ends_at = time.monotonic() + patience_s
    says_at = time.monotonic() + SAY_EVERY_S
    since: int | None = None
    while since is None or now_ms() - since < settled_s * 1_000:
        if not run.application.rests(
            standbys=run.scenario.standbys,
            has_leader=not run.arm.by_broker,
            is_under_load=is_under_load,
            drained=run.drained,
        ):
            since = None
            if time.monotonic() > ends_at:
                run.say(f"not at rest after {patience_s:.0f} s: {run.application.shape()}")
                if since_ms is None:
                    message = f"the job did not come to rest: {run.application.shape()}"
                    raise TimeoutError(message)
                return None
        elif since is None:
            since = now_ms()
        if time.monotonic() > says_at:
            says_at += SAY_EVERY_S
            run.say(run.application.shape())
        time.sleep(0.2)
    if since_ms is not None:
        run.say(f"at rest after {(since - since_ms) / 1_000:.0f} s")
    return since


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
