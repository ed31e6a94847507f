"""The whole demonstration in its short form, on a real broker: whatever is done to the workers, nothing is lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from batonpass.kafka.broker import BOOTSTRAP_VARIABLE
from batonpass.kafka.broker_parts import find_jars, find_java

PHASES = ["scale-out", "rolling-restart", "crash", "drain", "replaced-pod-stateless", "replaced-pod"]
KEYS = {
    "name", "moves", "moves_needed", "handovers", "rest_s", "restored_records", "gap_moved_ms", "gap_unmoved_ms",
    "quiet_gap_ms", "unanswered_reads",
}  # fmt: skip


@pytest.mark.needs("kafka")
@pytest.mark.timeout(900)
def test_the_short_form_loses_nothing_and_moves_no_more_than_it_must(open_folder: Path) -> None:
    """Nothing is said of times here: on a machine that does other things they are the machine's."""
    out = open_folder / "demo"
    around = {name: text for name, text in os.environ.items() if not name.startswith("BATONPASS_")}
    if given := os.environ.get(BOOTSTRAP_VARIABLE):
        around[BOOTSTRAP_VARIABLE] = given
    else:
        around["BATONPASS_KAFKA_JARS"] = str(find_jars(find_java(), lambda _: None))
    command = [sys.executable, "-m", "batonpass", "demo", "--quick", "--json", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=around, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
    summary = json.loads(done.stdout)
    assert [one["name"] for one in summary["phases"]] == PHASES
    assert all(one.keys() == KEYS for one in summary["phases"])
    assert {one["name"]: one["moves"] for one in summary["phases"]} == {
        one["name"]: one["moves_needed"] for one in summary["phases"]
    }
    records = summary["records"]
    assert (records["missing"], records["doubled"]) == (0, 0)
    assert records["in"] == records["out"] > 4_000
    report = json.loads((out / "report.json").read_text())
    # A machine that stalls may add a detour; it never saves a handover that is needed.
    assert all(one["handovers"] >= one["handovers_needed"] for one in report["phases"])
    assert {file.name for file in out.iterdir()} >= {"report.md", "throughput-demo.svg", "throughput-pods.svg", "logs"}
    assert not (out / "work").exists()
