"""The results as tables; run as a module, it writes them into the documents that show them.

python -m tests.benchmarks.streams.tables
"""

import json
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[3]
RESULTS: Final = Path(__file__).with_name("results.json")
DEMONSTRATION: Final = ROOT / "service" / "batonpass" / "demo" / "kafka_streams.json"
"""What the demonstration shows beside its own figures."""

DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "compare.md")
ARM_NAMES = {
    "batonpass": "Kafka Streams with Batonpass",
    "batonpass-tuned": "Kafka Streams with Batonpass, tuned",
    "kafka": "Kafka Streams, its defaults",
    "kafka-tuned": "Kafka Streams, tuned",
    "streams": "Kafka Streams, `group.protocol=streams`",
}
PHASES = {
    "3-to-4": "scale-out",
    "rolling-restart": "rolling-restart-no-standby",
    "kill": "crash",
    "replaced-pod": "replaced-pod",
}
"""The scenarios that correspond to a phase of the demonstration."""
REST_S: Final = {"3-to-4": 60, "3-to-4-standby": 75}
MOVED_P50_MS: Final = 800
MOVED_MAX_MS: Final = 1_100
UNMOVED_MS: Final = 200

Results = dict[str, Any]
Run = dict[str, Any]


def lines_of(found: Results) -> list[str]:
    """Return everything as lines of Markdown: every run, and the classes alone."""
    return [*_every_run(found), "", *_alone(found)]


def shortfalls(found: Results) -> list[str]:
    """Return what is wrong: runs that failed, orders missing or doubled, moves beyond those that are needed."""
    short = []
    for run in found.get("runs", ()):
        name = f"{run['scenario']}, {run['arm']}"
        if "failed" in run:
            short.append(f"{name}: {run['failed']}")
            continue
        short += [f"{name}: an instance failed: {error}" for error in run.get("errors", ())]
        if wrong := [each for each in ("missing", "doubled", "wrong_totals") if run[each]]:
            short.append(f"{name}: {', '.join(f'{run[each]} {each}' for each in wrong)}")
        if run["arm"] == "batonpass" and (run["moved"] != run["needed"] or run["rest_s"] is None):
            short.append(f"{name}: {run['moved']} moved for {run['needed']}, at rest after: {_rest(run)}")
    return [f"MISSED: {each}" for each in short]


def bars(found: Results) -> list[str]:
    """Return what Batonpass is to reach on an idle machine where an instance joins, and whether it did."""
    lines = []
    for scenario in REST_S:
        run = _figure(found, scenario, "batonpass")
        if run is None:
            continue
        moved, unmoved = run["silence_ms"]["moved"], run["silence_ms"]["unmoved"]
        for what, seen, most in (
            ("seconds to rest", run["rest_s"], REST_S[scenario]),
            ("ms of silence of moved tasks, p50", moved["p50"], MOVED_P50_MS),
            ("ms of silence of moved tasks, max", moved["max"], MOVED_MAX_MS),
            ("ms of silence of unmoved tasks, max", unmoved["max"], UNMOVED_MS),
        ):
            held = seen is not None and seen < most
            lines.append(f"{'reached' if held else 'MISSED'}: {scenario}: {what}: {seen}, to be under {most}")
    return lines


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def _every_run(found: Results) -> list[str]:
    head = [
        "scenario",
        "who decides",
        "moved / needed",
        "handovers",
        "silence of lost tasks, s",
        "of moved",
        "of unmoved",
    ]
    head += ["before", "rebalances", "at rest after", "records waited for", "read beside", "missing / doubled"]
    rows = []
    for run in found.get("runs", ()):
        name = [f"`{run['scenario']}`", ARM_NAMES[run["arm"]]]
        if "failed" in run:
            rows.append([*name, f"did not run: {run['failed']}", *[""] * (len(head) - 3)])
            continue
        rows.append(
            [
                *name,
                f"{run['moved']} / {run['needed']}",
                str(run["handovers"]),
                *(silence(run, each) for each in ("lost", "moved", "unmoved", "quiet")),
                _or_dash(run["rebalances"]),
                _rest(run),
                f"{run['restored']['waited_for']:,}",
                f"{run['restored']['beside']:,}",
                f"{run['missing']} / {run['doubled']}",
            ]
        )
    return _table(head, rows)


def silence(run: Run, of: str) -> str:
    """Return the silence of some tasks, p50 / max in seconds."""
    spread = run["silence_ms"][of]
    return "-" if not spread["tasks"] else f"{_seconds(spread['p50'])} / {_seconds(spread['max'])}"


def _seconds(ms: int) -> str:
    return f"{ms / 1_000:.2f}" if ms < 10_000 else f"{ms / 1_000:.0f}"


def _rest(run: Run) -> str:
    return f"not within {run['watched_s']:.0f} s" if run["rest_s"] is None else f"{run['rest_s']:.0f} s"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _alone(found: Results) -> list[str]:
    head = ["10 processes become 11, 100 tasks", "standbys", "moved, for 9 needed", "handovers", "rounds until rest"]
    rows = [
        [
            ARM_NAMES[each["arm"]],
            str(each["standbys"]),
            *(_range(each[name]) if name in each else "-" for name in ("moved", "handovers", "looks")),
        ]
        for each in found.get("alone", ())
    ]
    return _table(head, rows)


def _range(bounds: list[int]) -> str:
    return str(bounds[0]) if bounds[0] == bounds[1] else f"{bounds[0]} to {bounds[1]}"


def _figure(found: Results, scenario: str, arm: str) -> Run | None:
    runs = found.get("runs", ())
    return next(
        (each for each in runs if (each["scenario"], each["arm"]) == (scenario, arm) and "failed" not in each), None
    )


def _demo(found: Results, scenario: str) -> Run | None:
    phases = found.get("demo", {}).get("phases", ())
    return next((each for each in phases if each["name"] == PHASES[scenario]), None)


def _short(found: Results) -> list[str]:
    """Return the table of the README: the demonstration beside Kafka Streams, in the three scenarios that tell most."""
    arms = ("batonpass", "kafka", "batonpass-tuned", "kafka-tuned", "streams")
    head = ["12 tasks with state on a real broker", "Batonpass (`make demo`)", *(ARM_NAMES[each] for each in arms)]
    rows = []
    for scenario, title, of in (
        ("3-to-4", "a fourth worker", "moved"),
        ("kill", "`kill -9` with a standby", "lost"),
        ("replaced-pod", "one of three ends, an empty one follows after 20 s", "lost"),
    ):
        demo, runs = _demo(found, scenario), [_figure(found, scenario, arm) for arm in arms]
        gap = None if demo is None else demo["gap_moved_ms"]
        rows.append(
            [
                f"{title}: tasks moved / needed",
                "-" if demo is None else f"{demo['moves']} / {demo['moves_needed']}",
                *("-" if run is None else f"{run['moved']} / {run['needed']}" for run in runs),
            ]
        )
        rows.append(
            [
                f"silence of a {'moved' if of == 'moved' else 'lost'} task, p50 / max, s",
                "-" if gap is None else f"{_seconds(gap['p50'])} / {_seconds(gap['max'])}",
                *("-" if run is None else silence(run, of) for run in runs),
            ]
        )
        rows.append(
            [
                "until the group rests",
                "-" if demo is None else f"{demo['rest_s']:.0f} s",
                *("-" if run is None else _rest(run) for run in runs),
            ]
        )
    return _table(head, rows)


def _made(found: Results) -> list[str]:
    """Return with what it was measured."""
    machine, versions, job = found["machine"], found["versions"], found["job"]
    days = sorted({run["made"] for run in found["runs"]})
    loads = [run["load_average"] for run in found["runs"] if "failed" not in run]
    return [
        (
            f"- Made {' to '.join(dict.fromkeys((days[0], days[-1])))} on {machine['processors']} processors"
            f" ({machine['model']}) with {machine['memory_gb']} GB, load average {min(loads)} to {max(loads)} at the start."
        ),
        (
            f"- Kafka Streams {versions['kafka_streams']}, a broker {versions['broker']} of one node, {versions['java']}, and"
            f" Batonpass {versions['batonpass']} on Postgres, all of it on this machine."
        ),
        (
            f"- Every job: {job['tasks']} tasks of {job['keys_per_task']:,} keys with 200 bytes each, {job['orders_per_s']:,}"
            f" orders a second, restores held to {job['restore_bytes_per_s'] / 1e6:g} MB/s for each instance by a quota of the"
            f" broker; {', '.join(f'`{key}` {value}' for key, value in job.items() if '.' in key)}."
        ),
        *(f"- {ARM_NAMES[name]}: {arm['what']}." for name, arm in found["arms"].items()),
        *(f"- `{name}`: {each['what']}." for name, each in found["scenarios"].items()),
    ]


BLOCKS = {"short": _short, "every-run": _every_run, "alone": _alone, "made": _made}


def filled(text: str, found: Results) -> str:
    """Return a document with what stands between its marks made anew from the results."""
    for name, made in BLOCKS.items():
        begin, end = f"<!-- compare-streams: {name} -->", "<!-- compare-streams: end -->"
        before, mark, after = text.partition(begin)
        if mark:
            text = "\n".join((before + mark, "", *made(found), "", end + after.partition(end)[2]))
    return text


def shown_beside(found: Results) -> str:
    """Return what Kafka's own assignor did in each phase of the demonstration: moves, silence in ms, rest."""
    phases = {}
    for run in found["runs"]:
        if run["arm"] == "kafka" and run["scenario"] in PHASES and "failed" not in run:
            silences = run["silence_ms"]
            of = silences["lost"] if silences["lost"]["tasks"] else silences["moved"]
            rest = f"no rest in {run['watched_s']:.0f} s" if run["rest_s"] is None else f"{run['rest_s']:.0f} s"
            words = f"{run['moved']} moved for {run['needed']}; {of['p50']:,} / {of['max']:,}; {rest}"
            phases[PHASES[run["scenario"]]] = words
    return json.dumps(phases, indent=1) + "\n"


def main() -> None:
    """Write the documents, and what the demonstration shows."""
    found = json.loads(RESULTS.read_text())
    DEMONSTRATION.write_text(shown_beside(found))
    for document in DOCUMENTS:
        document.write_text(filled(document.read_text(), found))


if __name__ == "__main__":
    main()
