"""A hot partition on a real broker: it is noticed, what would move is shown, and once that counts it ends alone."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.e2e.running import Up, running
from tests.e2e.test_up import descendants
from tests.waiting import until

from batonpass.cli.demo_job import MEASURED
from batonpass.demo.job import Job
from batonpass.demo.outputs import Outputs

HOT = "0_0"
SESSION_MS = 12_000
"""How long `up` waits for a silent worker: a task whose owner has died is silent for as long."""
SOONER = {"load_half_life_ms": 5_000, "load_patience_ms": 5_000}
"""A quarter of what `up --hot` declares, which is for those who watch."""


def holders(up: Up) -> dict[str, set[str]]:
    """Return the tasks that each worker runs by its own word and may."""
    found = {}
    for one in up.ask("members", "totals")["members"]:
        granted = {grant["task"] for grant in one["assignment"]["active"]}
        running_now = {task for task, report in one["reports"].items() if report.get("state") == "running"}
        found[one["instance_id"]] = granted & running_now
    return found


def load_process(up: Up) -> int:
    """Return the process that writes the input."""
    commands = {pid: Path(f"/proc/{pid}/cmdline") for pid in descendants(up.process.pid)}
    # The one that is tethered has the module's name as an argument, too: the innermost ends the load in good order.
    return max(pid for pid, command in commands.items() if b"batonpass.demo.load" in command.read_bytes())


@pytest.mark.needs("kafka")
@pytest.mark.timeout(600)
async def test_a_hot_task_is_noticed_shown_in_shadow_and_ends_alone_without_a_record_lost(
    open_folder: Path, tmp_path: Path, kafka_here: dict[str, str]
) -> None:
    with running(open_folder / "hot", "--hot", home=tmp_path, broker=kafka_here) as up:
        assert "12 tasks with state, on Kafka at 127.0.0.1:" in up.greeting
        assert f"echo '{MEASURED}' | " in up.greeting
        job = msgspec.json.decode((up.folder / "job.json").read_text(), type=Job)
        outputs = Outputs(job)

        async def ask(*arguments: str) -> Any:
            return await asyncio.to_thread(up.ask, *arguments)

        async with outputs.followed():
            (tmp_path / "sooner.json").write_text(json.dumps({"config": SOONER}))
            await ask("groups", "declare", "totals", str(tmp_path / "sooner.json"))

            async def noticed() -> Any:
                """Tell it from what a busy machine makes of any task for a moment."""
                load = (await ask("explain", "totals"))["load"]
                return load and load["hot_since"] and load["hottest_task"] == HOT and load

            assert (await until(noticed, every_s=1))["imbalance"] > 0.25
            before = await asyncio.to_thread(holders, up)
            shown = (await ask("plan", "totals"))["for_load"]
            assert shown
            assert HOT not in {one["task"] for one in shown}
            assert await asyncio.to_thread(holders, up) == before

            began_ms = max(at for at in map(outputs.ledger.last_at, outputs.ledger.tasks) if at is not None)
            in_shadow = (await ask("groups", "show", "totals"))["generation"]
            (tmp_path / "measured.json").write_text(MEASURED)
            await ask("groups", "declare", "totals", str(tmp_path / "measured.json"))

            async def is_alone() -> Any:
                found = await asyncio.to_thread(holders, up)
                return {HOT} in found.values() and sum(map(len, found.values())) == job.tasks and found

            found = await until(is_alone, every_s=1)
            assert len(found) == 3
            assert all(found.values())
            ended = (await ask("groups", "show", "totals"))["generation"]
            since = [await ask("generations", "totals", str(one)) for one in range(in_shadow + 1, ended + 1)]
            moved = {one["task"] for whole in since for one in whole["diff"] if one["why"] == "hot"}
            assert moved
            assert HOT not in moved

            os.kill(load_process(up), signal.SIGTERM)
            said = (up.folder / "workers" / "load" / "log").read_text
            await until(lambda: '"ended"' in said())
            taken = json.loads(said().splitlines()[-1])["taken"]
            assert await outputs.until(taken, within_s=120)
        up.stop()
        account = outputs.ledger.account(taken)
        assert account.is_clean, account
        assert account.put_out == account.taken_in > 1_000
        ends_ms = max(at for at in map(outputs.ledger.last_at, outputs.ledger.tasks) if at is not None)
        handovers = outputs.ledger.handovers((began_ms, ends_ms))
        assert {job.task_ids[one.task] for one in handovers} >= moved
        assert max(one.gap_ms for one in handovers) < SESSION_MS, handovers
