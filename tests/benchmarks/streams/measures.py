"""What a run came to: who ran which task, and for how long nobody did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tests.clients.streams_job import PARTITIONS, Event

from batonpass.demo.figures import Spread
from batonpass.demo.ledger import Ledger, needed

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
    for said in events:
        read = 0
        for each in said:
            is_within = window.begun_ms < each["at"] <= window.ended_ms
            if each["event"] == "restored" and is_within:
                waited_for += each["records"]
            elif each["event"] == "progress":
                beside += each["read"] - read if is_within else 0
                read = each["read"]
    return {"waited_for": waited_for, "beside": beside}
