"""The same question gets the same answer in every process, whatever its hash seed."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "from tests.placement.test_seed import fingerprint; print(fingerprint())"


def fingerprint() -> str:
    """Return a digest of placements of all kinds: weights, tags, limits, topologies, drains, warm copies."""
    from tests.placement.placing import Group, seat, tasks  # noqa: PLC0415 - only the child process needs it

    from batonpass.placement.types import Readiness, Warmth  # noqa: PLC0415

    digest = hashlib.sha256()
    zones = [{"zone": zone, "cluster": cluster} for zone in "abc" for cluster in "xy"]
    for unequal in (False, True):
        weights = (1.0, 2.0, 3.0, 4.0) if unequal else (1.0,) * 4

        def weight(one: int, _partition: int, each: tuple[float, ...] = weights) -> float:
            return each[one]

        table = tasks(17, 9, 12, 5, stateless=[2], weight=weight, epochs={3: 2})
        members = tuple(
            seat(
                f"m{index}",
                1 + index % 3,
                tags=tags,
                topology_epoch=2 - (index == 4),
                max_tasks=30 if index == 1 else None,
            )
            for index, tags in enumerate(zones)
        )
        group = Group(table, members, replicas=2, tags=("zone", "cluster")).settle()
        warm = {
            task_index: {
                f"m{task_index % 6}": Warmth(Readiness(task_index % 6), task_index),
                "zz": Warmth(Readiness.BEHIND, task_index),
            }
            for task_index in range(43)
        }
        for changed in (group.join(seat("zz")), group.leave("m2"), group.drain("m0").join(seat("a0", 2))):
            warmed = Group(**{**vars(changed), "warm": warm})
            digest.update(repr(warmed.place()).encode())
            digest.update(repr(warmed.settle().join(seat("q")).place()).encode())
    return digest.hexdigest()


def test_the_hash_seed_does_not_matter() -> None:
    found = set()
    for seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'service'}"}
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        found.add(run.stdout.strip())
    assert found == {fingerprint()}
