"""What a run writes into its folder: every figure, the tables, a picture of each job, events, and all logs."""

import json
import os
import platform
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from batonpass import __version__
from batonpass.demo.demo_run import DemoRun
from batonpass.demo.experiment import Experiment
from batonpass.demo.picture import picture
from batonpass.demo.tables import bars, rows

HEAD = ["phase", "moved", "handovers", "gap moved (p50 / p99 / max)", "gap unmoved", "quiet", "rest s (restoring)"]
HEAD += ["records restored", "reads unanswered", "Kafka Streams"]


def write_report(run: DemoRun, folder: Path) -> list[Path]:
    """Write everything into a folder that exists; return the written files, the most informative first."""
    written = [folder / "report.md", folder / "report.json"]
    written[0].write_text(_words(run))
    written[1].write_text(json.dumps(_everything(run), indent=1) + "\n")
    for experiment in run.experiments:
        window = _window(experiment)
        if window is not None:
            file = folder / f"throughput-{experiment.job.group}.svg"
            phases = [one for one in run.figures.phases if one.group == experiment.job.group]
            kind = "with state" if experiment.job.stateful else "without state"
            title = (
                f"{experiment.job.group}: outputs of each task, by who wrote them ({experiment.job.tasks} tasks {kind})"
            )
            file.write_text(picture(title, experiment.outputs.ledger, window, phases, experiment.job.rate))
            written.append(file)
        if experiment.events:
            file = folder / f"events-{experiment.job.group}.jsonl"
            file.write_text("".join(json.dumps(event) + "\n" for event in experiment.events))
            written.append(file)
    broker_log = run.infrastructure.broker_log
    if broker_log is not None and broker_log.exists():
        shutil.copy(broker_log, run.infrastructure.logs / "broker.log")
    return [*written, run.infrastructure.logs]


def _window(experiment: Experiment) -> tuple[int, int] | None:
    ledger = experiment.outputs.ledger
    ends = [at for task in ledger.tasks if (at := ledger.last_at(task)) is not None]
    begins = [at for task in ledger.tasks if (at := ledger.first_at(task)) is not None]
    return (min(begins), max(ends)) if begins else None


def _everything(run: DemoRun) -> dict[str, Any]:
    return run.figures.body() | {
        "policy": run.policy.value,
        "phases": [phase.details() for phase in run.figures.phases],
        "bars": [asdict(bar) for bar in bars(run.figures)],
        "machine": {
            "cores": os.cpu_count(),
            "load_average": list(os.getloadavg()),
            "python": platform.python_version(),
            "batonpass": __version__,
        },
    }


def _words(run: DemoRun) -> str:
    lines = [f"# A demonstration, policy {run.policy.value}", ""]
    lines += ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(row) + " |" for row in rows(run.figures)]
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    lines += ["", f"{os.cpu_count()} cores, load average {load} at the end. Gaps are milliseconds.", ""]
    lines += [f"- {'reached' if bar.held else 'MISSED'}: {bar.text} ({bar.seen})" for bar in bars(run.figures)]
    return "\n".join(lines) + "\n"
