"""What a run leaves in its folder: every figure, the tables, a picture of each job, events, and all logs."""

from __future__ import annotations

import json
import os
import platform
import shutil
from pathlib import Path
from typing import Any

from batonpass import __version__
from batonpass.demo.conductor import Conductor
from batonpass.demo.picture import picture
from batonpass.demo.scene import Scene
from batonpass.demo.tables import bars, rows

HEAD = ["phase", "moved", "handovers", "gap moved (p50 / p99 / max)", "gap unmoved", "quiet", "rest s (restoring)"]
HEAD += ["records restored", "reads unanswered", "Kafka Streams"]


def write_report(conductor: Conductor, folder: Path) -> list[Path]:
    """Write everything into a folder that is there; return what was written, the most telling first."""
    written = [folder / "report.md", folder / "report.json"]
    written[0].write_text(_words(conductor))
    written[1].write_text(json.dumps(_everything(conductor), indent=1) + "\n")
    for scene in conductor.scenes:
        window = _window(scene)
        if window is not None:
            file = folder / f"throughput-{scene.job.group}.svg"
            phases = [one for one in conductor.figures.phases if one.group == scene.job.group]
            kind = "with state" if scene.job.stateful else "without state"
            title = f"{scene.job.group}: outputs of each task, by who wrote them ({scene.job.tasks} tasks {kind})"
            file.write_text(picture(title, scene.outputs.ledger, window, phases, scene.job.rate))
            written.append(file)
        if scene.events:
            file = folder / f"events-{scene.job.group}.jsonl"
            file.write_text("".join(json.dumps(event) + "\n" for event in scene.events))
            written.append(file)
    broker_log = conductor.place.broker_log
    if broker_log is not None and broker_log.exists():
        shutil.copy(broker_log, conductor.place.logs / "broker.log")
    return [*written, conductor.place.logs]


def _window(scene: Scene) -> tuple[int, int] | None:
    ledger = scene.outputs.ledger
    ends = [at for task in ledger.tasks if (at := ledger.last_at(task)) is not None]
    begins = [at for task in ledger.tasks if (at := ledger.first_at(task)) is not None]
    return (min(begins), max(ends)) if begins else None


def _everything(conductor: Conductor) -> dict[str, Any]:
    return conductor.figures.body() | {
        "policy": conductor.policy.value,
        "phases": [phase.details() for phase in conductor.figures.phases],
        "bars": [{"text": bar.text, "held": bar.held, "seen": bar.seen} for bar in bars(conductor.figures)],
        "machine": {
            "cores": os.cpu_count(),
            "load_average": list(os.getloadavg()),
            "python": platform.python_version(),
            "batonpass": __version__,
        },
    }


def _words(conductor: Conductor) -> str:
    lines = [f"# A demonstration, policy {conductor.policy.value}", ""]
    lines += ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(row) + " |" for row in rows(conductor.figures)]
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    lines += ["", f"{os.cpu_count()} cores, load average {load} at the end. Gaps are milliseconds.", ""]
    lines += [f"- {'reached' if bar.held else 'MISSED'}: {bar.text} ({bar.seen})" for bar in bars(conductor.figures)]
    return "\n".join(lines) + "\n"
