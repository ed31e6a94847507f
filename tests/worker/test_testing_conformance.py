"""The conformance kit lets a good client through, and finds each bad one out."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence

import pytest
from tests.worker.mutants import MUTANTS

from batonpass.worker.testing.conformance import runner
from batonpass.worker.testing.conformance.__main__ import main
from batonpass.worker.testing.conformance.cases import CASES

SAMPLE = (sys.executable, "-m", "batonpass.worker.testing.conformance.sample")
JOBS = 16
"""How many clients run at a time: each waits more than it works."""


def long_first(case: str) -> bool:
    """Order cases so that those of leases, which wait the longest, do not begin last."""
    return not case.startswith("lease")


def faults_of(command: Sequence[str], *names: str) -> dict[str, tuple[str, ...]]:
    """Run cases against a client; return what was found in each."""
    results = asyncio.run(runner.run(command, names, jobs=JOBS, heard=lambda _result: None))
    return {result.case: result.faults for result in results}


def test_the_sdk_keeps_the_protocol_in_every_case() -> None:
    """What broke on a machine that was busy with all cases at once must hold when it is run by itself."""
    broken = [name for name, faults in faults_of(SAMPLE, *sorted(CASES, key=long_first)).items() if faults]
    assert len(broken) <= 3
    for name in broken:
        assert faults_of(SAMPLE, name) == {name: ()}
    assert len(CASES) >= 30


def test_each_defect_is_found() -> None:
    async def run_all() -> list[runner.Result]:
        places = asyncio.Semaphore(JOBS)

        async def one(name: str, case: str) -> runner.Result:
            async with places:
                return await runner.run_case((sys.executable, "-m", "tests.worker.mutants", name), CASES[case])

        return list(await asyncio.gather(*(one(name, MUTANTS[name][1]) for name in names)))

    names = sorted(MUTANTS, key=lambda name: long_first(MUTANTS[name][1]))
    results = dict(zip(names, asyncio.run(run_all()), strict=True))
    assert [name for name, result in results.items() if result.kept] == []
    assert [name for name, result in results.items() if "no call at all" in str(result.faults)] == []


def test_the_command_reports_and_its_exit_code_says_how_it_went(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "joins", "--json", "--", *SAMPLE]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["cases"]["joins"]["kept"] is True
    assert printed["cases"]["joins"]["rules"] == list(CASES["joins"].rules)
    assert main(["--only", "joins", "--", "true"]) == 1
    shown = capsys.readouterr().out
    assert "BROKEN joins" in shown
    assert "protocol 3.1" in shown
    assert "made no call at all" in shown
    assert "0 of 1 cases kept" in shown


def test_the_command_lists_its_cases_and_knows_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{name}: {one.law} ({runner.cited(one.rules)})" for name, one in CASES.items()
    ]
    assert main(["--only", "nothing", "--", "true"]) == 2
    assert "nothing" in capsys.readouterr().err
    assert main([]) == 2


def test_a_client_that_cannot_be_started_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "joins", "--", "no-such-client"]) == 2
    assert "no-such-client cannot be started: No such file" in capsys.readouterr().err


def test_a_client_brings_no_coordinator_along() -> None:
    program = "import sys, batonpass.worker.testing.conformance.sample; print('batonpass.core.decide' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"False\n"


def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "batonpass.worker.testing.conformance", "--list"]
    assert "lease-over" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
