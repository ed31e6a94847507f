"""Make vectors out of scenes: play each three times, to see how much the jitter of retries moves its times."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.worker.vectors.player import FOLDER, Json, vectors
from tests.worker.vectors.scenes import SCENES, Scene, Worker

from batonpass.worker.protocol import machine


def steps_of(scene: Scene) -> list[Json]:
    """Return the steps of a scene; each that jitter moves has the times ``between_ms`` which it may come.

    Raises:
        ValueError: when jitter changes more than times, so that the scene holds for one client only.
    """
    steps = _played(scene)
    earliest = _played(scene, lambda ceiling_ms: ceiling_ms - ceiling_ms // 2)
    latest = _played(scene, lambda ceiling_ms: ceiling_ms)
    for step, early, late in zip(steps, earliest, latest, strict=True):
        if _without_time(step) != _without_time(early) or _without_time(step) != _without_time(late):
            raise ValueError(f"{scene.name}: what happens at {step['at_ms']} depends on the jitter of retries")
        if early["at_ms"] < late["at_ms"]:
            step["between_ms"] = [early["at_ms"], late["at_ms"]]
    return steps


def _played(scene: Scene, jitter: Callable[[int], int] | None = None) -> list[Json]:
    worker = Worker(scene.head)
    if jitter is None:
        scene.play(worker)
        return worker.player.steps

    def backoff_ms(failures: int, cap_ms: int, _seed: int) -> int:
        return jitter(max(1, min(cap_ms, machine.RETRY_BASE_MS << min(failures - 1, 20))))

    with patch.object(machine, "backoff_ms", backoff_ms):
        scene.play(worker)
    return worker.player.steps


def _without_time(step: Json) -> Json:
    return {name: value for name, value in step.items() if name != "at_ms"}


def text_of(scene: Scene) -> str:
    """Return a scene as the text of its file: a line for each event and for each thing that comes out."""
    head = {"name": scene.name, "about": scene.about, "rules": scene.rules, "group": "orders"} | scene.head
    lines = [f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items()]
    steps = ",\n".join(_step_text(step) for step in steps_of(scene))
    return f'{{\n{"".join(lines)}  "steps": [\n{steps}\n  ]\n}}\n'


def _step_text(step: Json) -> str:
    out = ",\n".join(f"        {json.dumps(each)}" for each in step["out"])
    fields: dict[str, Any] = {name: json.dumps(value) for name, value in step.items()}
    fields["out"] = f"[\n{out}\n      ]" if out else "[]"
    names = [name for name in ("at_ms", "between_ms", "event", "out", "phase", "may_process") if name in fields]
    return "    {" + ", ".join(f'"{name}": {fields[name]}' for name in names) + "}"


def changed() -> dict[Path, str | None]:
    """Return the files that are not as their scenes are now, each with its new text; None where there is no scene."""
    texts = {FOLDER / f"{scene.name}.json": text_of(scene) for scene in SCENES}
    gone: dict[Path, str | None] = dict.fromkeys(set(vectors()) - texts.keys())
    return gone | {path: text for path, text in texts.items() if not path.exists() or path.read_text() != text}
