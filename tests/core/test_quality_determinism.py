"""Same input, same decision, byte for byte (L10): whatever the hash seed, and in whatever order equal things arrive."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.relay import COLD_LAG, Relay
from tests.core.scene import Scene, copy, running, topology
from tests.often import cases

from batonpass.core.state.ids import MemberId
from batonpass.core.state.inputs import DrainRequest
from batonpass.core.state.model import Role, Subtopology
from batonpass.core.state.soft import TaskReport

# Random stories are not what the branches' coverage is made of, and counting it in them takes most of their time.
pytestmark = pytest.mark.no_cover

ROOT = Path(__file__).resolve().parents[2]


def tell_story() -> str:
    """Play joins, a drain, a leave and a crash; return a digest of every record and of the reasons."""
    relay = Relay(
        topology(17, stateless=5, more=(Subtopology("2", 6, weight=2.5),)),
        num_standby_replicas=1,
        rack_aware_tags=["zone"],
        max_warmup_replicas=3,
    )
    relay.step = COLD_LAG // 2
    digest = hashlib.sha256()
    for number in range(5):
        relay.join(f"m{number}", client_tags={"zone": "abc"[number % 3]}, capacity=1.0 + number % 2)
        relay.round()
        assert relay.scene.last is not None
        digest.update(repr(relay.scene.last.reasons).encode())
    relay.scene.do(DrainRequest(MemberId("m1")))
    relay.count()
    relay.round()
    relay.leave("m2")
    relay.round()
    relay.silent.add(MemberId("m3"))
    for _ in range(60):
        relay.round()
    digest.update(repr(relay.scene.log).encode())
    digest.update(repr(relay.group).encode())
    return digest.hexdigest()


def test_the_hash_seed_does_not_matter() -> None:
    digests = set()
    for seed in ("0", "1", "4242"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'service'}"}
        code = "from tests.core.test_quality_determinism import tell_story; print(tell_story())"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        )
        digests.add(done.stdout.strip())
    assert digests == {tell_story()}


@settings(max_examples=cases(25), deadline=None, derandomize=True)
@given(st.randoms(use_true_random=False))
def test_the_order_of_tasks_in_a_report_does_not_matter(rng: object) -> None:
    logs = []
    for shuffled in (False, True):
        scene = Scene()
        scene.declare(topology(5, stateless=2), num_standby_replicas=1, max_warmup_replicas=5)
        for name in ("a", "b", "c"):
            scene.join(name)
        for _ in range(6):
            scene.tick(1_000)
            for name in ("a", "b", "c"):
                assignment = scene.member(name).assignment
                reports: dict[str, TaskReport] = {
                    task: running() if grant.role is Role.ACTIVE else copy(grant.role)
                    for task, grant in assignment.items()
                }
                names = sorted(reports)
                if shuffled:
                    rng.shuffle(names)  # type: ignore[attr-defined]
                scene.beat(name, {task: reports[task] for task in names})
        logs.append(scene.log)
    assert list(map(repr, logs[0])) == list(map(repr, logs[1]))
