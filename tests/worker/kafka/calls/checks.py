"""What has to be true of a story, whatever has failed in it."""

import asyncio
import logging
import re
from pathlib import Path
from types import FrameType
from typing import Any

from tests.waiting import until
from tests.worker.kafka.calls.faults import Fault, Mode
from tests.worker.kafka.calls.ledger import KEYS
from tests.worker.kafka.calls.stories import Story
from tests.worker.kafka.calls.workers import TASK, Worker
from tests.worker.kafka.totals import Owner, expected

from batonpass.worker.kafka import ActiveOptions, RocksStore, in_memory
from batonpass.worker.protocol import Role

SLACK_S = 3.0
"""For how long a copy may not have heard of what its owner has committed."""

WORD_S = 5.0
"""How long may be waited for something without a word."""

LINES = 60

USUAL = "was last level with"
"""What is logged in every story, when a copy is too old."""

NO_WORD = {
    r".*/coordinator\..*": "a request that is lost, or its answer, is made again, and costs nothing (protocol 10.1)",
    r".*/held": "somebody else's scan is no error",
    r".*\.getmany/./hangs": "nothing came within the time that it was given",
    # A copy that is promoted connects again if what it has prepared for that is of no use.
    r"(standby|wipe|away|restart)/./(input.start|input.committed|producer.connect)/.*": "it was not needed yet",
    r"(first-start|cold-start)/./input.committed/2/raises.*": "a guess of what to read ahead; it is asked again",
    r"(handover|takeover)/./input.committed/1/raises.*": "the same",
    r"(first-start|cold-start|handover|takeover)/./input.beginning_offsets/1/.*": "the same",
    r".*/cluster.MetadataRequest/.*": "another broker is asked, or the addresses that were given",
}
"""Calls that may fail without a word, and why."""


async def judge(story: Story) -> list[str]:
    """Return what is wrong with a story that has come to its end."""
    await story.ledger.read_to_the_end()
    found = story.ledger.wrong(story.count) + wrong_copies(story)
    for worker in story.workers:
        found += wrong_disk(worker, story) + left_open(worker)
    found += await wrong_restore(story)
    calls = story.world.calls
    found += [f"the log does not name the cause of {fault}" for fault in calls.struck if not is_named(fault, story)]
    return found


def wrong_copies(story: Story) -> list[str]:
    """Return what was wrong at any time with a copy, or with its word.

    A store is always a prefix of its changelog. A copy that says that it has everything has it.
    """
    return [
        each for worker in story.workers for each in (_wrong_store(worker, story), _wrong_claim(worker, story)) if each
    ]


def _wrong_store(worker: Worker, story: Story) -> str:
    for noted in worker.history:
        right = story.ledger.contents(noted.position)
        if noted.contents != right:
            return f"the store of {worker.name} at {noted.position} {difference(noted.contents, right)}"
    return ""


def _wrong_claim(worker: Worker, story: Story) -> str:
    for claim in worker.claims:
        right = story.ledger.contents(claim.position)
        known = max((end for at, end in story.known_ends if at < claim.at - SLACK_S), default=0)
        if claim.contents != right:
            return f"{worker.name} is said to have all, at {claim.position}, but {difference(claim.contents, right)}"
        if claim.position < known:
            return f"{worker.name} is said to have all, at {claim.position}, {SLACK_S:g} s after the end was {known}"
    return ""


def wrong_disk(worker: Worker, story: Story) -> list[str]:
    """Return what is wrong with what a worker left on disk: it can be opened, and is a prefix of the changelog too."""
    folder = worker.folder / TASK / story.world.job.changelog
    if not folder.exists():
        return []
    try:
        store = RocksStore(folder)
    except Exception as error:  # noqa: BLE001 - what rocksdict raises has no class of its own
        return [f"what {worker.name} left on disk cannot be opened: {error}"]
    contents, right = dict(store.scan()), story.ledger.contents(store.position)
    store.close()
    return [] if contents == right else [f"the disk of {worker.name} {difference(contents, right)}"]


def left_open(worker: Worker) -> list[str]:
    """Return what goes on, or is still connected, though its worker has ended."""
    found = [f"{worker.name} has left running: {stack}" for stack in stacks(worker)]
    if not any(fault.call.endswith(".stop") for fault in worker.world.calls.struck):
        found += [f"{worker.name} has left connected: {one!r}" for one in worker.caller.clients if not one._closed]
    return found


async def wrong_restore(story: Story) -> list[str]:
    """Return what a worker lacks that restores the task from nothing."""
    options = ActiveOptions(connect_ahead=False)
    runtime = story.world.job.runtime(story.world.folder / "last", "last", open_store=in_memory, options=options)
    last = Owner(runtime)
    last.hold(TASK, Role.STANDBY)
    try:
        await until(lambda: last.is_caught_up(TASK))
        found, right = last.totals(), expected(story.count, keys=KEYS)
    finally:
        await last.close()
    return [] if found == right else [f"a worker that restores from nothing {difference(found, right)}"]


def is_named(fault: Fault, story: Story) -> bool:
    """Whether the log says why: in the error's own words or, where nothing was raised, that there is no answer."""
    if any(re.fullmatch(pattern, str(fault)) for pattern in NO_WORD):
        return True
    serious = [said.text for said in story.world.said if said.level >= logging.WARNING and USUAL not in said.text]
    if any(fault.text in text for text in serious):
        return True
    return fault.mode is Mode.HANGS and (bool(serious) or 0 < story.world.calls.hung_s.get(fault, 0) < WORD_S)


def difference(found: dict[bytes, bytes], right: dict[bytes, bytes]) -> str:
    """Return in words how contents differ from those that are right."""
    wrong = [key for key in sorted(found.keys() | right.keys()) if found.get(key) != right.get(key)]
    key = wrong[0]
    return f"has {len(wrong)} wrong keys: {key!r} is {found.get(key)!r}, not {right.get(key)!r}"


# --- how it went ------------------------------------------------------------------------------------------------------


def details(story: Story) -> str:
    """Return how a story went: how long each phase took, what each worker is doing, and what was logged."""
    lines = [f"{phase}: {took_s:.1f} s" for phase, took_s in story.took_s.items()]
    for worker in story.workers:
        lines.append(f"{worker.name}: {worker.role}, at {worker.position} of {story.ledger.end}")
        lines += [f"  {stack}" for stack in stacks(worker)]
    lines += [f"{logging.getLevelName(said.level)} {said.text}" for said in story.world.said[-LINES:]]
    return "\n".join(lines)


def stacks(worker: Worker) -> list[str]:
    """Return where code of Batonpass waits, for each asyncio task of a worker in which it does."""
    found: list[str] = []
    for task in worker.caller.tasks:
        frames = [] if task.done() else where(task)
        if any("/batonpass/worker/" in frame.f_code.co_filename for frame in frames):
            names = [f"{Path(one.f_code.co_filename).name}:{one.f_lineno} {one.f_code.co_name}" for one in frames]
            found.append(f"{task.get_name()}: {' > '.join(names)}")
    return sorted(found)


def where(task: asyncio.Task[Any]) -> list[FrameType]:
    """Return the frames of a task that waits, from the outermost on."""
    found: list[FrameType] = []
    waiting: Any = task.get_coro()
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None:
            found.append(frame)
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    return found
