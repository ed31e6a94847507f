"""Every call of a worker to its store, its broker and its coordinator may fail, and in the end all is as it should be.

A story is told once to count its calls, and then again and again, with a fault in each phase, until all have struck.
What is wrong then is told once more, for each fault alone. To tell some of them alone from the start:
`BATONPASS_CALLS='tail/b/store.apply/1/raises'`, several with commas between them, `*` for anything.
"""

import asyncio
import logging
import os
import sys
from fnmatch import fnmatch
from itertools import zip_longest
from pathlib import Path

import pytest
from tests.worker.kafka.calls.faults import Calls, Fault, meet_everything, modes_of
from tests.worker.kafka.calls.teller import Teller, Told

pytestmark = pytest.mark.needs("kafka")

PART = (
    # A batch that was read and not applied is read again.
    "standby/b/store.apply/2/raises",
    "tail/b/store.apply/1/raises*",
    "restart/a/changelog.position/1/raises",
    "tail/b/changelog.getmany/1/raises-after",
    "wipe/a/store.note_level/1/raises-after",
    "wipe/a/changelog.seek/1/raises",
    # A store that raises from now on is opened anew, whatever role its task has here.
    "tail/?/store.apply/1/sticks",
    # A copy is begun anew in several steps, and each of them may be the last.
    "wipe/a/store.wipe/1/*",
    "wipe/a/disk.*/1/raises",
    # A task goes, and comes back.
    "away/a/store.close/1/*",
    "away/a/changelog.stop/1/hangs",
    # A transaction, step by step.
    "tail/a/producer.*/1/raises-after",
    "tail/a/producer.commit_transaction/1/[hr]*",
    "tail/a/store.get/1/raises",
    # A promotion, a demotion, and an owner that restores everything.
    "handover/b/producer.fence/1/raises*",
    "handover/b/changelog.pause/1/raises",
    "handover/a/changelog.resume/1/raises",
    "cold-start/c/input.*/1/raises",
    "cold-start/c/changelog.[se]*/1/raises",
    "cold-start/c/producer.connect/1/hangs",
    "cold-start/c/input.committed/1/hangs",
    # What the coordinator is told, and tells.
    "handover/b/coordinator.*/1/raises-after",
)
"""What is told without being asked for: each kind of call once, and each kind of fault that has once been found."""

ALONE = "BATONPASS_CALLS" in os.environ
WANTED = os.environ.get("BATONPASS_CALLS", ",".join(PART)).split(",")
"""`make soak` asks for `*`."""

AT_ONCE = 20
"""How many stories are told at the same time: each waits more than it works."""

ALIKE = 6
"""Of more calls than this in one phase, only the first, the last and one between them fail."""


def wanted(calls: Calls) -> list[Fault]:
    """Return the faults to try, of those that a story without one has shown to be possible."""
    found: list[Fault] = []
    for (phase, worker, call), count in calls.counts.items():
        numbers = range(1, count + 1) if count <= ALIKE else (1, count // 2, count)
        found += [Fault(phase, worker, call, number, mode) for number in numbers for mode in modes_of(call)]
    return [fault for fault in found if any(fnmatch(str(fault), pattern) for pattern in WANTED)]


def together(faults: list[Fault]) -> list[tuple[Fault, ...]]:
    """Return stories with all of the faults, each with one fault of a phase at most."""
    by_phase: dict[str, list[Fault]] = {}
    for fault in faults:
        by_phase.setdefault(fault.phase, []).append(fault)
    return [tuple(filter(None, story)) for story in zip_longest(*by_phase.values())]


# A connection that aiokafka is making when it is closed is closed by nobody else (see conftest.py).
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.timeout(3_600)
async def test_every_call_may_fail(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "aiokafka")
    meet_everything(monkeypatch)
    turn, told = asyncio.Semaphore(AT_ONCE), dict[Fault, Told]()

    async def tell(*faults: Fault) -> None:
        async with turn:
            told.update(dict.fromkeys(faults, await teller.tell(*faults)))
        if len(told) % 50 == 0:
            sys.stdout.write(f"{len(told)} cases told\n")

    async with Teller(bootstrap, tmp_path) as teller:
        first = await teller.tell()
        assert not first.wrong, f"without a fault: {first.wrong}\n{first.details}"
        faults = wanted(first.calls)
        assert faults, f"no call is {WANTED}; these are made: {sorted(first.calls.counts)}"
        stories = [(fault,) for fault in faults] if ALONE else together(faults)
        for _ in range(2):
            async with asyncio.TaskGroup() as group:
                for story in stories:
                    group.create_task(tell(*story))
            # A story takes another way now and then; and which of its faults makes it wrong, each shows alone.
            stories = [
                (fault,)
                for fault, one in told.items()
                if fault not in one.calls.struck or (one.wrong and len(one.calls.faults) > 1)
            ]
    bad = {fault: one for fault, one in sorted(told.items()) if one.wrong}
    for fault, one in bad.items():
        sys.stdout.write(f"\n{fault}\n{one.details}\n")
    missed = [str(fault) for fault, one in told.items() if fault not in one.calls.struck]
    slowest = sorted(((one.took_s, str(fault)) for fault, one in told.items() if not one.wrong), reverse=True)[:5]
    sys.stdout.write(
        f"{first.calls.counts.total()} calls of {len({call for _, _, call in first.calls.counts})} kinds, {len(told)} "
        f"cases, {len(bad)} of them wrong; not made again when they were to fail: {', '.join(missed) or 'none'}; the "
        f"slowest: {', '.join(f'{fault} {took_s:.0f} s' for took_s, fault in slowest)}\n"
    )
    table = [f"{fault!s:<48} {'; '.join(one.wrong)}" for fault, one in bad.items()]
    table += [f"an error that nobody has looked at: {each}" for each in teller.unseen]
    assert not table, "\n".join(["", *table])
