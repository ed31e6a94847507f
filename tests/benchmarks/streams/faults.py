"""What becomes of a Kafka Streams job while its coordinator, an instance or an operator does the worst.

python -m tests.benchmarks.streams.faults [NAME ...]

Every fault is made to happen to real instances on a real broker, with real coordinators behind a relay. Faults of one
set-up share an application, so that most of them take no longer than what they do. The account at the end is of all of
them: an order that any of them had lost or doubled is in it.
"""

import argparse
import asyncio
import itertools
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy import text
from tests.benchmarks.streams.measures import Figures, Window, figures_of
from tests.benchmarks.streams.relay import (
    Fault,
    Forward,
    Relay,
    cut,
    failed,
    frozen,
    huge,
    in_turn,
    late,
    lost,
    rubbish,
    task_left_out,
    unknown_process,
)
from tests.benchmarks.streams.scenarios import (
    FIRST,
    START_PATIENCE_S,
    TUNED,
    Arm,
    Run,
    Scenario,
    Settings,
    now_ms,
    wait,
)
from tests.benchmarks.streams.stage import Application, Say, Stage, begin, stage
from tests.clients.streams_job import MODULE, PARTITIONS, read
from tests.e2e.serving import SECRET, Served, serving
from tests.postgres.databases import EMPTY, beside, run_sql
from tests.programs import program
from tests.waiting import wait_until

from batonpass.postgres.connect import connect
from batonpass.postgres.schema import upgrade

KEYS = 500
PATIENCE_S = 180
QUIET_MS = 3_000
SETTLED_S = 3
UNMOVED_AT_MOST_MS = 3_000
"""How long a task that nobody moves may stand still: some times what the leader waits for an answer."""

POD_SESSION_MS = 45_000
SLOW_BYTES_PER_S = 40_000
NO_ANSWER = "no answer for"
PACED: Settings = {**TUNED, "batonpass.retry.ms": 500, "batonpass.timeout.ms": 500}


Act = Callable[["Scene"], str]
"""Does the worst, and returns what is to be said of it beside the figures."""


@dataclass(frozen=True)
class Trial:
    """One fault: what is done, and what a leader's log has to say for it to have happened."""

    name: str
    what: str
    act: Act
    says: str = NO_ANSWER
    unmoved_at_most_ms: int = UNMOVED_AT_MOST_MS


@dataclass(frozen=True)
class Setup:
    """An application, and the coordinators that it asks."""

    name: str
    what: str
    trials: tuple[Trial, ...]
    settings: Settings = field(default_factory=lambda: PACED)
    assignor: str = "batonpass"
    standbys: int = 0
    static: bool = False
    leaves: bool = True
    coordinators: int = 1


@dataclass
class Scene:
    """A set-up, while faults are done to it."""

    run: Run
    setup: Setup
    database_url: str
    folder: Path
    stack: ExitStack
    relays: list[Relay] = field(default_factory=list)
    coordinators: list[Served] = field(default_factory=list)
    begun_ms: int = 0
    newcomer: str = ""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def application(self) -> Application:
        """Its instances."""
        return self.run.application

    def serve(self, number: int = 0) -> None:
        """Start a coordinator in a place that has none, or none any more."""
        alone = "true" if self.setup.coordinators == 1 else "false"
        served = self.stack.enter_context(serving(self.database_url, sole_coordinator=alone, log_level="warning"))
        self.coordinators[number : number + 1] = [served]
        self.relays[number].to = served.url

    def kill(self, number: int = 0) -> None:
        """End a coordinator with kill -9."""
        self.run.say("the coordinator is killed (kill -9)")
        self.coordinators[number].stop(signal.SIGKILL)

    def owner(self) -> int:
        """Return which coordinator owns the group."""
        question = "select url from coordinators join group_heads on owner = id where group_id = :group"

        async def ask() -> str:
            engine = connect(self.database_url)
            async with engine.connect() as connection:
                found = (await connection.execute(text(question), {"group": self.application.name})).scalar_one()
            await engine.dispose()
            return str(found)

        url = asyncio.run(ask())
        return next(number for number, one in enumerate(self.coordinators) if one.url.rstrip("/") == url.rstrip("/"))

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Have every question fail in that way meanwhile."""
        with ExitStack() as stack:
            for relay in self.relays:
                stack.enter_context(relay.failing(fault))
            yield

    def change(self) -> None:
        """Bring a rebalance about: an instance with an empty disk joins, or the one that did before leaves."""
        if self.newcomer:
            self.run.close(self.newcomer)
            self.newcomer = ""
        else:
            self.newcomer = self.next_newcomer()
            self.run.start(self.newcomer)

    def next_newcomer(self) -> str:
        """Return a name that no instance has had."""
        return f"N{next(self.numbers)}"

    def kill_instance(self, name: str) -> None:
        """End an instance with kill -9."""
        self.run.say(f"{name} is killed (kill -9)")
        self.run.lost.add(name)
        self.application.job.instances[name].kill()

    def replace(self, name: str, before: Sequence[Path] = ()) -> None:
        """Restart an instance under the assignor of now, or another version of it, and wait until it runs."""
        assignor = self.run.arm.assignor
        self.run.close(name)
        self.run.say(f"{name} is started: {assignor}{' of another version' * bool(before)}")
        again = self.application.job.start(name, self.run.settings(name), assignor=assignor, leaves=True, before=before)
        wait_until(
            lambda: again.state == "RUNNING", seen=lambda: f"{name} is {again.state}: {again.log.read_text()[-1_000:]}"
        )

    def log_lines(self, until_ms: int | None = None) -> list[str]:
        """Return what the plug-in has logged since the fault began."""
        found = []
        for log in {each.log for each in self.application.job.instances.values()}:
            for line in log.read_text(errors="replace").splitlines():
                if " Batonpass: " not in line:
                    continue
                at_ms = datetime.fromisoformat(line.split(" ", 1)[0]).timestamp() * 1_000
                if self.begun_ms <= at_ms <= (until_ms or now_ms()):
                    found.append(line)
        return sorted(found)

    def no_answers(self) -> int:
        """Return how often a leader had no answer since the fault began."""
        return sum(NO_ANSWER in line for line in self.log_lines())

    def until_no_answers(self, times: int) -> None:
        """Wait until leaders have had no answer so often."""
        wait_until(lambda: self.no_answers() >= times, seen=lambda: f"{self.no_answers()} of {times} questions failed")

    def until_advised(self, words: str = " decided for ") -> None:
        """Wait until a leader has an answer."""
        wait_until(lambda: any(words in line for line in self.log_lines()), seen=lambda: "nobody has an answer")


def _nothing(scene: Scene) -> str:
    scene.change()
    return ""


def _away(scene: Scene) -> str:
    with scene.relays[0].away():
        scene.change()
        scene.until_no_answers(2)
    return ""


def _failing(*faults: Fault) -> Act:
    def act(scene: Scene) -> str:
        with scene.failing(in_turn(*faults)):
            scene.change()
            scene.until_no_answers(max(2, len(faults)))
        return ""

    return act


def _killed_while_it_writes(scene: Scene) -> str:
    """Kill the coordinator while it waits for the database to take the records of its decision."""

    async def act() -> None:
        database = await asyncpg.connect(scene.database_url)
        try:
            async with database.transaction():
                await database.execute("lock table record_log in exclusive mode")
                await asyncio.to_thread(scene.change)
                async with asyncio.timeout(PATIENCE_S):
                    while not await database.fetchval("select count(*) from pg_locks where not granted"):
                        await asyncio.sleep(0.01)
                scene.kill()
        finally:
            await database.close()

    asyncio.run(act())
    scene.serve()
    return ""


def _killed_before_it_answers(scene: Scene) -> str:
    """Kill the coordinator when its decision is written, and nobody has heard of it."""

    def answers_and_dies(_: Relay, forward: Forward, __: Any) -> None:
        forward()
        scene.kill()

    with scene.failing(answers_and_dies):
        scene.change()
        wait_until(lambda: scene.coordinators[0].process.poll() is not None, seen=lambda: "nobody asked")
    scene.serve()
    return ""


def _owner_killed(scene: Scene) -> str:
    scene.change()
    scene.until_advised()
    number = scene.owner()
    scene.kill(number)
    return f"the {'first' if number == 0 else 'second'} address owned the group"


def _leader_killed(scene: Scene) -> str:
    with scene.failing(frozen):
        scene.change()
        wait_until(scene.relays[0].holds.is_set, seen=lambda: "nobody asked")
        leader = scene.application.job.leader.log.stem
        scene.kill_instance(leader)
        time.sleep(1)
        assert not scene.no_answers(), f"{leader} was not the one that asked"
    return ""


def _dies_while_away(scene: Scene) -> str:
    with scene.relays[0].away():
        scene.kill_instance("C")
        scene.until_no_answers(1)
        wait_until(
            lambda: sum(scene.application.job.counts().values()) == PARTITIONS,
            seen=lambda: f"not every task runs: {scene.application.shape()}",
        )
    return "all 12 tasks run before the coordinator is back"


def _forgets(scene: Scene) -> str:
    """Empty the database while copies for the newcomer are restored."""
    if scene.newcomer:
        scene.change()
        wait(scene.run, PATIENCE_S, settled_s=SETTLED_S)
    name = scene.newcomer = scene.next_newcomer()
    scene.application.throttle([name], SLOW_BYTES_PER_S)
    newcomer = scene.run.start(name)
    wait_until(lambda: bool((newcomer.last("has") or {"standby": ()})["standby"]), seen=lambda: "it has no copies")
    assert not newcomer.active, "it has tasks already"
    scene.kill()
    asyncio.run(run_sql(scene.database_url, *EMPTY))
    scene.serve()
    scene.application.throttle([name], 100 * SLOW_BYTES_PER_S)
    return ""


def _drain(scene: Scene) -> str:
    group = f"/v1/groups/{scene.application.name}"
    members = [each["member_id"] for each in scene.coordinators[0].call("GET", f"{group}/members").json()["members"]]
    [drained] = [each for each in members if each.split(".")[0] == "C"]
    answer = scene.coordinators[0].call("POST", f"{group}/members/{drained}/drain")
    assert answer.is_success, answer.text
    scene.run.say(f"{drained} is drained")
    scene.run.drained.add("C")
    scene.change()
    return ""


def _restart_static(scene: Scene) -> str:
    with scene.relays[0].away():
        scene.run.close("C")
        scene.run.start("C")
        wait_until(lambda: bool(scene.application.job.instances["C"].active), seen=lambda: "C has no task")
    return "it has its tasks again, and nobody was asked"


def _replace_pod(scene: Scene) -> str:
    scene.run.close("C")
    scene.run.start(scene.next_newcomer())
    return ""


def _roll_to(assignor: str) -> Act:
    def act(scene: Scene) -> str:
        scene.run.arm = replace(scene.run.arm, assignor=assignor)
        scene.run.drained.clear()
        for name in sorted(scene.application.alive):
            scene.replace(name)
        return ""

    return act


def _other_version(scene: Scene) -> str:
    """Restart leaders with a version of the plug-in that says more, until such a one leads, and have one join."""
    versions = scene.relays[0].versions
    versions.clear()
    classes = _compiled(scene.folder)
    old = set(FIRST)
    while old and len(versions) < 2:
        leader = scene.application.job.leader.log.stem
        name = leader if leader in old else min(old)
        old.discard(name)
        scene.replace(name, [classes])
    # If a newcomer with the old version leads, it leaves now.
    scene.change()
    wait_until(
        lambda: len(versions) >= 2,
        seen=lambda: f"no leader of another version than {' and '.join(sorted(versions))} asked",
    )
    return f"versions that asked: {' and '.join(sorted(versions))}"


def _compiled(folder: Path) -> Path:
    """Return the classes of a plug-in with another version number, which has a word more in its question."""
    sources = shutil.copytree(MODULE / "src" / "main" / "java", folder / "other-version")
    for name, old, new in (
        ("BatonpassTaskAssignor", 'VERSION = "', 'VERSION = "9.'),
        ("AdviceRequest", 'question.put("config"', 'question.put("unheard_of", Map.of());\n question.put("config"'),
    ):
        file = sources / "io" / "batonpass" / "streams" / f"{name}.java"
        before = file.read_text()
        assert old in before
        file.write_text(before.replace(old, new, 1))
    classes, files = folder / "other-classes", map(str, sources.rglob("*.java"))
    path = (MODULE / "target" / "classpath.txt").read_text().strip()
    subprocess.run([program("javac"), "-nowarn", "-d", str(classes), "-cp", path, *files], check=True)
    return classes


POD: Settings = {**PACED, "session.timeout.ms": POD_SESSION_MS}
REPLACED = Trial(
    "replaced",
    "one is closed, and an empty one starts at once",
    _replace_pod,
    says="decided for",
    # Kafka's own waiting, whoever decides: said in the table, and no fault of the plug-in.
    unmoved_at_most_ms=3 * POD_SESSION_MS,
)

SETUPS = (
    Setup(
        "usual",
        "three instances and one coordinator",
        (
            Trial("none", "nothing fails", _nothing, says="decided for"),
            Trial("away", "connections to the coordinator are refused, twice; then it is back", _away),
            Trial("frozen", "the coordinator takes questions and is silent", _failing(frozen)),
            Trial("late", "answers come 1 s late: what was decided is never carried out", _failing(late)),
            Trial("lost", "what was decided is lost on its way, then cut in the middle", _failing(lost, cut)),
            Trial("killed-writing", "kill -9 of the coordinator while it writes", _killed_while_it_writes),
            Trial("killed-answering", "kill -9 of it when that is written and not answered", _killed_before_it_answers),
            Trial(
                "invalid",
                "status 500, no JSON, 20 MB, a task left out, an unknown process",
                _failing(failed, rubbish, huge, task_left_out, unknown_process),
            ),
        ),
    ),
    Setup(
        "people",
        "three instances and one coordinator, and what people do to them",
        (
            Trial("leader-killed", "kill -9 of the leader while it waits for an answer", _leader_killed, says=""),
            Trial("versions", "leaders with two versions of the plug-in, one after the other", _other_version, says=""),
            Trial("forgets", "the coordinator's database is emptied while a newcomer's copies restore", _forgets),
            Trial("drain", "an instance is drained, without a standby", _drain, says="decided for"),
            Trial("taken-out", "a rolling restart takes the plug-in out", _roll_to("kafka"), says=""),
        ),
    ),
    Setup(
        "standby",
        "the same with a standby of each task",
        (
            Trial("dies-while-away", "kill -9 of an instance while the coordinator is away", _dies_while_away),
            Trial("drain-standby", "an instance is drained, with a standby", _drain, says="decided for"),
        ),
        standbys=1,
    ),
    Setup(
        "fleet",
        "two threads for each instance, two coordinators on one database",
        (
            Trial("threads", "both coordinators take questions and are silent", _failing(frozen)),
            Trial("owner-killed", "kill -9 of the coordinator that owns the group", _owner_killed),
        ),
        settings={**PACED, "num.stream.threads": 2},
        coordinators=2,
    ),
    Setup(
        "static",
        "instances with static ids and a session of 45 s",
        (Trial("static", "one restarts while the coordinator is away", _restart_static, says=""),),
        settings={**PACED, "session.timeout.ms": 45_000},
        static=True,
    ),
    Setup(
        "pods",
        "instances that close without leaving their group, and are missed for a session of 45 s; with standbys",
        (REPLACED,),
        settings=POD,
        standbys=1,
        leaves=False,
    ),
    Setup(
        "pods-patient",
        "the same, and transactions may stay open for longer than that",
        (replace(REPLACED, name="replaced-patient"),),
        settings={**POD, "producer.transaction.timeout.ms": 60_000},
        standbys=1,
        leaves=False,
    ),
    Setup(
        "mixed",
        "instances that begin with Kafka's assignor",
        (Trial("introduced", "a rolling restart brings the plug-in in", _roll_to("batonpass"), says="decided for"),),
        assignor="kafka",
    ),
)
BROKER_ASSIGNS = "broker-assigns"


def names() -> list[str]:
    """Return every fault's name, in the order of a run."""
    return [*(trial.name for setup in SETUPS for trial in setup.trials), BROKER_ASSIGNS]


def perform(here: Stage, setup: Setup, trials: Sequence[Trial], say: Say) -> list[Figures]:
    """Do some faults to one application, one after the other; return a row of figures for each."""
    application_id = f"{setup.name}-{uuid.uuid4().hex[:6]}"
    with ExitStack() as stack:
        database = f"faults_{application_id.replace('-', '_')}"
        asyncio.run(run_sql(here.database_url, f"create database {database}"))
        database_url = beside(here.database_url, database)
        asyncio.run(upgrade(database_url))
        application = stack.enter_context(here.application(application_id, {}))
        arm = Arm(setup.name, setup.what, setup.settings, assignor=setup.assignor, leaves=setup.leaves)
        scenario = Scenario(setup.name, setup.what, lambda _: None, standbys=setup.standbys, static=setup.static)
        run = Run(application, arm, scenario, "", say)
        scene = Scene(run, setup, database_url, here.folder / application_id, stack)
        for number in range(setup.coordinators):
            scene.relays.append(Relay(""))
            stack.callback(scene.relays[number].close)
            scene.serve(number)
        run.url = ",".join(relay.url for relay in scene.relays)
        for name in FIRST:
            run.start(name)
        wait(run, START_PATIENCE_S, settled_s=SETTLED_S, is_under_load=False)
        load = application.preload(KEYS)
        found = []
        for trial in trials:
            for name in FIRST:
                if name not in application.alive:
                    run.start(name)
            wait(run, START_PATIENCE_S, settled_s=SETTLED_S)
            say(f"{trial.name}: {trial.what}")
            figures, window, is_over = _tried(scene, trial)
            found.append((trial, figures, window, frozenset(run.lost), tuple(application.alive)))
            if not is_over:
                break
        load.stop()
        say("counting")
        ledger, account = asyncio.run(read(application.bootstrap, application.name))
        errors = [
            each["error"]
            for instance_events in application.events
            for each in instance_events
            if each["event"] == "failed"
        ]
        rows = []
        for trial, figures, window, gone, alive in found:
            counted = {"missing": account.missing, "doubled": account.doubled, "wrong_totals": account.wrong_totals}
            measured = figures_of(ledger, window, lost=gone, alive=alive, events=()) | figures | counted
            rows.append(measured | {"wrong": [*wrong(trial, measured), *errors]})
        return rows


def _tried(scene: Scene, trial: Trial) -> tuple[Figures, Window, bool]:
    """Do one fault, and wait until the job rests again; return also whether it was done to the end."""
    scene.run.lost.clear()
    begun = scene.begun_ms = now_ms()
    failure, note, rest_ms = "", "", None
    try:
        note = trial.act(scene)
        rest_ms = wait(scene.run, PATIENCE_S, settled_s=SETTLED_S, since_ms=begun)
    except Exception as error:  # noqa: BLE001 - whatever goes wrong, the figures of the other faults are still shown
        failure = str(error) or type(error).__name__
        scene.run.say(f"{trial.name}: FAILED: {failure}")
    ended = now_ms()
    lines = scene.log_lines(ended)
    refused = [line for line in lines if NO_ANSWER in line]
    figures = {
        "fault": trial.name,
        "what": trial.what,
        "note": note,
        "failure": failure,
        "rebalances": sum(begun < at <= ended for at, _ in scene.application.decisions()),
        "advised": sum(" decided for " in line for line in lines),
        "no_answers": len(refused),
        "reasons": list(dict.fromkeys(_reason(line) for line in refused)),
        "happened": any(trial.says in line for line in lines) or not trial.says,
    }
    return figures, Window((begun - QUIET_MS, begun), begun, rest_ms, ended), not failure and rest_ms is not None


def _reason(line: str) -> str:
    """Return why there was no answer, without addresses, of which each run has others."""
    why = re.sub(r"( from )?\[?https?://[\d.:]+\]?(: )?", "", re.split(r" ms: ", line, maxsplit=1)[-1])
    return why if len(why) <= 80 else why[:79] + "…"


def wrong(trial: Trial, figures: Figures) -> list[str]:
    """Return what makes a fault one that the job does not bear: orders miscounted, no rest, tasks that stood still."""
    found = [figures["failure"]] if figures["failure"] else []
    found += [f"{figures[each]} {each}" for each in ("missing", "doubled", "wrong_totals") if figures[each]]
    if not figures["happened"]:
        found.append(f"no leader's log has '{trial.says}'")
    if figures["rest_s"] is None and not figures["failure"]:
        found.append(f"not at rest after {figures['watched_s']:.0f} s")
    unmoved = figures["silence_ms"]["unmoved"]["max"] or 0
    if unmoved > trial.unmoved_at_most_ms:
        found.append(f"a task that nobody moved stood still for {unmoved / 1_000:.1f} s")
    return found


def _broker_assigns(here: Stage) -> Figures:
    """Start an instance with the assignor and with `group.protocol=streams`, which its check refuses."""
    with here.application(f"{BROKER_ASSIGNS}-{uuid.uuid4().hex[:6]}", {}) as application:
        settings = {"group.protocol": "streams", "batonpass.url": here.url, "batonpass.token": SECRET}
        instance = application.job.start("A", settings)
        code, log = instance.process.wait(60), ""
        log = instance.log.read_text()
    is_refused = code != 0 and "where the broker assigns and no assignor is consulted" in log
    return {
        "fault": BROKER_ASSIGNS,
        "what": "the plug-in with group.protocol=streams",
        "note": "the check refuses the start" if is_refused else "",
        "wrong": [] if is_refused else [f"it ended with {code}: {log[-500:]}"],
    }


def table(rows: Sequence[Figures]) -> list[str]:
    """Return what was found, as lines of Markdown."""
    head = ["fault", "what happened", "moved / needed", "rest after", "silence of lost, s", "of moved", "of unmoved"]
    lines = [[*head, "missing / doubled", "verdict"], ["---"] * (len(head) + 2)]
    for row in rows:
        verdict = "; ".join(row["wrong"]).replace("\n", " ") or "held"
        if "silence_ms" not in row:
            lines.append([f"`{row['fault']}`: {row['what']}", row["note"], *["-"] * (len(head) - 1), verdict])
            continue
        happened = [f"{row['rebalances']} rebalances, {row['advised']} by advice, {row['no_answers']} without"]
        happened += [f"`{each}`" for each in row["reasons"]] + ([row["note"]] if row["note"] else [])
        lines.append(
            [
                f"`{row['fault']}`: {row['what']}",
                "; ".join(happened),
                f"{row['moved']} / {row['needed']}",
                "-" if row["rest_s"] is None else f"{row['rest_s']:.0f} s",
                *(_longest(row["silence_ms"][of]) for of in ("lost", "moved", "unmoved")),
                f"{row['missing']} / {row['doubled']}",
                verdict,
            ]
        )
    return [f"| {' | '.join(line)} |" for line in lines]


def _longest(spread: dict[str, int | None]) -> str:
    return "-" if spread["max"] is None else f"{spread['max'] / 1_000:.1f}"


def main() -> int:
    """Do the faults that are named, or all of them; return 1 where the job did not bear one."""
    parser = argparse.ArgumentParser(prog="make streams-faults", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these: {', '.join(names())}")
    chosen = parser.parse_args().names or names()
    if unknown := sorted(set(chosen) - set(names())):
        parser.error(f"there is no fault {', '.join(unknown)}; there are {', '.join(names())}")
    say = begin()
    rows: list[Figures] = []
    try:
        with stage() as here:
            for setup in SETUPS:
                trials = [trial for trial in setup.trials if trial.name in chosen]
                if trials:
                    say(f"{setup.name}: {setup.what}")
                    rows += perform(here, setup, trials, say)
            if BROKER_ASSIGNS in chosen:
                rows.append(_broker_assigns(here))
    finally:
        sys.stdout.write("\n".join(["", *table(rows), ""]))
    say("done")
    return int(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
