"""`make compare-streams`: run every scenario with every arm, and write down what it came to."""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from aiokafka.errors import KafkaError
from tests.benchmarks.streams.measures import Figures
from tests.benchmarks.streams.scenarios import ARMS, EVERY_JOB, LONG, QUICK, SCENARIOS, Arm, Scenario, Size, perform
from tests.benchmarks.streams.stage import Say, Stage, begin, stage
from tests.benchmarks.streams.tables import RESULTS, Results, bars, lines_of, shortfalls
from tests.clients.streams_job import MODULE, PARTITIONS, command
from tests.e2e.serving import SECRET

from batonpass import __version__
from batonpass.kafka.broker_parts import broker_version, find_java

POM = "{http://maven.apache.org/POM/4.0.0}"
DEMO, ALONE = "demo", "alone"
ALONE_STANDBYS, ALONE_SEEDS = (0, 1), 10
QUICK_PAIRS = tuple((scenario, arm) for scenario in ("3-to-4", "kill") for arm in ("batonpass", "kafka"))


def main() -> int:
    """Run what is asked for; return 1 where an order is missing or doubled, or Batonpass moves more than is needed."""
    names = [each.name for each in SCENARIOS]
    parser = argparse.ArgumentParser(prog="make compare-streams", description=__doc__)
    parser.add_argument("--scenario", action="append", choices=[*names, ALONE], help="only this one; may be repeated")
    parser.add_argument(
        "--arm", action="append", choices=[*(each.name for each in ARMS), DEMO], help="only this one; may be repeated"
    )
    parser.add_argument("--quick", action="store_true", help="two scenarios with little state, in under eight minutes")
    parser.add_argument("--out", type=Path, help="the file of results, where runs replace older ones of the same name")
    options = parser.parse_args()
    out = options.out or (Path(".cache") / "compare-streams-quick.json" if options.quick else RESULTS)
    say = begin()
    size = QUICK if options.quick else LONG
    found = _read(out)
    found |= _head(size)
    pairs = [
        (scenario, arm)
        for scenario in SCENARIOS
        for arm in ARMS
        if (not options.quick or options.scenario or options.arm or (scenario.name, arm.name) in QUICK_PAIRS)
        and (not options.scenario or scenario.name in options.scenario)
        and (not options.arm or arm.name in options.arm)
    ]
    with stage() as here:
        say(f"broker, database and coordinator run; {len(pairs)} runs")
        for scenario, arm in pairs:
            _put(found, _run(here, scenario, arm, size, say))
            _write(out, found)
        if not options.quick and not options.arm and (not options.scenario or ALONE in options.scenario):
            found["alone"] = _alone(here, say)
            _write(out, found)
    if not options.quick and (DEMO in options.arm if options.arm else not options.scenario):
        found["demo"] = _demo(say)
        _write(out, found)
    sys.stdout.write("\n" + "\n".join(lines_of(found)) + "\n")
    short = shortfalls(found)
    sys.stdout.write("\n".join(["", *bars(found), *short, f"written to {out}"]) + "\n")
    return int(bool(short))


def _run(here: Stage, scenario: Scenario, arm: Arm, size: Size, say: Say) -> Figures:
    named = f"{scenario.name}, {arm.name}"
    say(f"{named}: {scenario.what}; {arm.what}")
    made = {"scenario": scenario.name, "arm": arm.name, "made": _today()}
    try:
        figures = made | perform(here, scenario, arm, size, lambda words: say(f"{named}: {words}"))
    except (AssertionError, KafkaError, OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        say(f"{named}: FAILED: {error}")
        return made | {"failed": str(error)}
    say(f"{named}: {figures['moved']} moved for {figures['needed']}, {json.dumps(figures['silence_ms'])}")
    return figures


def _alone(here: Stage, say: Say) -> list[dict[str, Any]]:
    """Call each assignor's class without instances, ten processes becoming eleven, for several sets of process ids."""
    found = []
    for standbys in ALONE_STANDBYS:
        for arm, mode in (("kafka", "off"), ("batonpass", "assign")):
            say(f"the assignor's class alone: {arm}, {standbys} standbys")
            played = []
            for seed in range(ALONE_SEEDS):
                words = ("--mode", mode, "--standbys", str(standbys), "--seed", str(seed))
                started = (*command(find_java(), "Rounds"), *words, "--url", here.url, "--token", SECRET)
                done = subprocess.run(started, capture_output=True, text=True, check=True)
                played.append(json.loads(done.stdout))
            found.append(
                {
                    "standbys": standbys,
                    "arm": arm,
                    **{
                        name: [fold(each[name] for each in played) for fold in (min, max)]
                        for name in ("moved", "handovers", "looks")
                    },
                }
            )
    return found


def _demo(say: Say) -> dict[str, Any]:
    """Run the demonstration, with workers of Batonpass's own; return what it says."""
    say("batonpass demo")
    started = [sys.executable, "-m", "batonpass", "demo", "--json"]
    done = subprocess.run(started, stdout=subprocess.PIPE, text=True, check=False)
    return {"made": _today(), **json.loads(done.stdout)}


def _head(size: Size) -> dict[str, Any]:
    """Return what the figures were measured with."""
    java = subprocess.run([*find_java(), "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]
    model = {line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")}
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "made": _today(),
        "machine": {
            "processors": os.cpu_count(),
            "model": ", ".join(sorted(model)) or platform.processor(),
            "memory_gb": round(memory / 1024**2),
            "system": platform.platform(aliased=True, terse=True),
        },
        "versions": {
            "batonpass": __version__,
            "kafka_streams": ET.parse(MODULE / "pom.xml").getroot().findtext(f"{POM}properties/{POM}kafka.version"),  # noqa: S314
            "broker": broker_version(),
            "java": java,
            "python": platform.python_version(),
        },
        "job": {
            "tasks": PARTITIONS,
            "orders_per_s": 1_200,
            "keys_per_task": size.keys,
            "restore_bytes_per_s": size.bytes_per_s,
            "watched_at_most_s": size.patience_s,
            "processing.guarantee": "exactly_once_v2",
            **EVERY_JOB,
        },
        "arms": {arm.name: {"what": arm.what, **arm.settings} for arm in ARMS},
        "scenarios": {each.name: {"what": each.what, "standbys": each.standbys} for each in SCENARIOS},
    }


def _lines(file: str) -> Iterable[str]:
    return Path(file).read_text().splitlines() if Path(file).exists() else ()


def _put(found: Results, figures: Figures) -> None:
    """Put a run in the place of the older one of its scenario and arm, in the order of scenarios and arms."""
    others = [
        each
        for each in found.get("runs", [])
        if (each["scenario"], each["arm"]) != (figures["scenario"], figures["arm"])
    ]
    places = {
        (scenario.name, arm.name): (at, to) for at, scenario in enumerate(SCENARIOS) for to, arm in enumerate(ARMS)
    }
    found["runs"] = sorted([*others, figures], key=lambda each: places[each["scenario"], each["arm"]])


def _read(file: Path) -> Results:
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _write(file: Path, found: Results) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=1) + "\n")


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


if __name__ == "__main__":
    sys.exit(main())
