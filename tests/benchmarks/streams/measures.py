"""What a run came to: who ran which task, and for how long nobody did."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.clients.streams_job import PARTITIONS, Event

from batonpass.demo.figures import Spread
from batonpass.demo.ledger import Ledger
from batonpass.simulate.compare import needed

Figures = dict[str, Any]
"""The figures of one run, as the results have them."""


class Window(NamedTuple):
    """While nothing was done, when it was done, since when the job rests (None: not yet), and the end."""

    quiet: tuple[int, int]
    begun_ms: int
    rest_ms: int | None
    ended_ms: int


def figures_of(
    ledger: Ledger, window: Window, *, lost: frozenset[str], alive: Iterable[str], events: Iterable[Sequence[Event]]
) -> Figures:
    """Return what the outputs of a run say, and what its instances said meanwhile.

    ``lost`` are the instances that stopped, whoever decided, and ``alive`` those that run at the end.
    """
    whole = (window.begun_ms, window.ended_ms)
    before = {task: ledger.writer_at(task, window.begun_ms) for task in ledger.tasks}
    after = {task: ledger.writer_at(task, window.ended_ms) for task in ledger.tasks}
    handovers = ledger.handovers(whole)
    stopped = {task for task in ledger.tasks if before[task] in lost}
    moved = {each.task for each in handovers} - stopped
    return {
        "needed": needed({name: sum(owner == name for owner in before.values()) for name in alive}, PARTITIONS),
        "moved": sum(before[task] != after[task] for task in ledger.tasks),
        "handovers": len(handovers),
        "rest_s": None if window.rest_ms is None else round((window.rest_ms - window.begun_ms) / 1_000, 1),
        "watched_s": round((window.ended_ms - window.begun_ms) / 1_000, 1),
        "silence_ms": {
            "lost": _silence(ledger, stopped, whole),
            "moved": _silence(ledger, moved, whole),
            "unmoved": _silence(ledger, set(ledger.tasks) - stopped - moved, whole),
            "quiet": _silence(ledger, ledger.tasks, window.quiet),
        },
        "restored": _restored(events, window),
    }


def _silence(ledger: Ledger, tasks: Iterable[int], window: tuple[int, int]) -> dict[str, int | None]:
    """Return for how long tasks had no output at a time: of each its longest silence."""
    longest = [ledger.longest_silence(task, window) for task in tasks]
    spread = Spread.of(longest)
    return {"tasks": len(longest), "p50": spread.p50, "max": spread.max}


def _restored(events: Iterable[Sequence[Event]], window: Window) -> dict[str, int]:
    """Return how many records of changelogs were read: while a task waited for them, and beside its owner."""
    waited_for = beside = 0
    for instance_events in events:
        read = 0
        for each in instance_events:
            is_within = window.begun_ms < each["at"] <= window.ended_ms
            if each["event"] == "restored" and is_within:
                waited_for += each["records"]
            elif each["event"] == "progress":
                beside += each["read"] - read if is_within else 0
                read = each["read"]
    return {"waited_for": waited_for, "beside": beside}


def parts_of(
    ledger: Ledger, window: Window, events: Iterable[Sequence[Event]], decided: Iterable[int]
) -> list[dict[str, Any]]:
    """Return what each handover's silence was made of: when each part of it ended, in ms since the last output before.

    ``closed``: the old owner has given the task up. ``decided``: the leader gives it to the new one. ``restoring`` and
    ``restored``: the new owner reads what its copy lacks, so many ``records``. ``opened``: it may process. ``output``:
    the first one. None: nobody said so, as when the old owner has died.
    """
    task_events = sorted(
        (each for instance_events in events for each in instance_events if "partition" in each),
        key=lambda each: int(each["at"]),
    )
    parts: list[dict[str, Any]] = []
    for handover in ledger.handovers((window.begun_ms, window.ended_ms)):
        last_ms = handover.at_ms - handover.gap_ms
        within = [
            each
            for each in task_events
            if each["partition"] == handover.task and last_ms <= each["at"] <= handover.at_ms
        ]
        # The last of each kind: what came before was another attempt.
        at = {each["event"]: each["at"] - last_ms for each in within}
        records = [each["records"] for each in within if each["event"] == "restored"]
        grants = [each - last_ms for each in decided if last_ms + at.get("closed", 0) <= each <= handover.at_ms]
        parts.append(
            {
                "task": handover.task,
                "from": handover.giver,
                "to": handover.taker,
                "closed": at.get("closed"),
                "decided": min(grants, default=None),
                **{event: at.get(event) for event in ("restoring", "restored", "opened")},
                "output": handover.gap_ms,
                "records": sum(records),
            }
        )
    return parts


def part_words(part: Mapping[str, Any]) -> str:
    """Return what one silence was made of, in a line."""
    names = ("closed", "decided", "restoring", "restored", "opened", "output")
    times = ", ".join(f"{name} {'-' if part[name] is None else part[name]}" for name in names)
    return f"task {part['task']}, {part['from']} to {part['to']}, ms: {times}; {part['records']} records restored"
