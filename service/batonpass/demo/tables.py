"""Figures as people read them: a table for each phase, one for the whole run, and which bars it reached."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich import box
from rich.table import Table

from batonpass.demo.figures import PhaseFigures, RunFigures, Spread

REST_ALLOWANCE_S: Final = 10.0
WARM_P50_MS: Final = 150
WARM_P99_MS: Final = 500
WARM_MOVES: Final = 50
CRASH_MS: Final = 3_000
EAGER_TIMES: Final = 50


@dataclass(frozen=True, slots=True)
class Bar:
    """A goal of a run, and whether the run reached it."""

    text: str
    held: bool
    seen: str


def phase_table(phase: PhaseFigures) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=f"{phase.name} ({phase.group})", title_justify="left", pad_edge=False)
    for column in ("", "needed", "seen"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("tasks moved", str(phase.moves_needed), str(phase.moves))
    table.add_row("handovers", str(phase.handovers_needed), str(len(phase.handovers)))
    table.add_row("seconds to rest", "", f"{phase.rest_s:.1f}")
    table.add_row("  of these restoring", "", f"{phase.restore_s:.1f}")
    table.add_row("records restored", "", f"{phase.restored_records:,}")
    for title, values in (("moved", phase.moved), ("unmoved", phase.unmoved), ("quiet", phase.quiet)):
        table.add_row(f"gap {title}, ms (p50 / p99 / max)", "", spread_words(values))
    table.add_row("reads unanswered", "0", f"{phase.unanswered_reads} of {phase.reads:,}")
    return table


def run_table(figures: RunFigures) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="The whole run", title_justify="left", pad_edge=False)
    table.add_column("phase")
    columns = ("moved", "handovers", "gap moved, ms", "gap unmoved", "quiet", "rest s", "restored", "unread")
    for column in columns:
        table.add_column(column, justify="right")
    table.add_column("Kafka Streams")
    for row in rows(figures):
        table.add_row(*row)
    return table


def rows(figures: RunFigures) -> list[list[str]]:
    return [
        [
            phase.name,
            f"{phase.moves} of {phase.moves_needed}",
            f"{len(phase.handovers)} of {phase.handovers_needed}",
            spread_words(phase.moved),
            spread_words(phase.unmoved),
            spread_words(phase.quiet),
            f"{phase.rest_s:.1f} ({phase.restore_s:.1f})",
            f"{phase.restored_records:,}",
            f"{phase.unanswered_reads} of {phase.reads:,}",
            kafka_streams(phase.name),
        ]
        for phase in figures.phases
    ]


def kafka_streams(phase: str) -> str:
    """Return what Kafka's own assignor did in a phase: moves, silence in ms, rest; "" if it was not measured there.

    ``make compare-streams`` wrote that file; docs/compare.md has its settings.
    """
    measured = json.loads(Path(__file__).with_name("kafka_streams.json").read_text())
    return str(measured.get(phase, ""))


def spread_words(values: Sequence[int]) -> str:
    """Return p50 / p99 / max of some durations, or a dash."""
    spread = Spread.of(values)
    return "-" if spread.max is None else f"{spread.p50:,} / {spread.p99:,} / {spread.max:,}"


def bars(figures: RunFigures) -> list[Bar]:
    """Return every bar that applies to this run."""
    return [*_correctness(figures), *_times(figures)]


def _correctness(figures: RunFigures) -> list[Bar]:
    phases = figures.phases
    moves = [one.name for one in phases if one.moves != one.moves_needed]
    handovers = [one.name for one in phases if len(one.handovers) != one.handovers_needed]
    # Without standbys no other worker has the state of a worker that restarts.
    unread = sum(one.unanswered_reads for one in phases if one.name != "rolling-restart-no-standby")
    found = [
        Bar("moves exactly as many as needed in every phase", not moves, ", ".join(moves) or "all"),
        Bar("handovers exactly as many as needed in every phase", not handovers, ", ".join(handovers) or "all"),
    ]
    if figures.accounts:
        differences = ", ".join(
            f"{one.missing} missing, {one.doubled} doubled, {one.wrong_totals} wrong totals" for one in figures.accounts
        )
        found.append(Bar("every input record accounted for exactly once", figures.is_clean, differences))
    return [
        *found,
        Bar("no read unanswered where tasks have standbys or a running owner", unread == 0, f"{unread} unanswered"),
    ]


def _times(figures: RunFigures) -> list[Bar]:
    found = [
        Bar(
            f"{one.name}: rest within the restores' own time and {REST_ALLOWANCE_S:.0f} s",
            one.rest_s <= one.restore_s + REST_ALLOWANCE_S,
            f"{one.rest_s:.1f} s with {one.restore_s:.1f} s restoring",
        )
        for one in figures.phases
        if not one.name.startswith(MANY_STEPS)
    ]
    for one in figures.phases:
        if one.unmoved and one.quiet:
            fits = max(one.unmoved) <= max(one.quiet)
            seen = f"{max(one.unmoved)} ms beside {max(one.quiet)} ms"
            found.append(Bar(f"{one.name}: gap of unmoved tasks no longer than quiet ones", fits, seen))
    by_name = {one.name: one for one in figures.phases}
    gaps = [gap for name, one in by_name.items() if name in WARM for gap in one.moved]
    warm = Spread.of(gaps)
    if warm.p50 is not None and warm.p99 is not None and len(gaps) >= WARM_MOVES:
        text = f"warm handover gap p50 under {WARM_P50_MS} ms, p99 under {WARM_P99_MS} ms"
        held = warm.p50 < WARM_P50_MS and warm.p99 < WARM_P99_MS
        found.append(Bar(text, held, f"{warm.p50} and {warm.p99} ms over {len(gaps)} moves"))
    if (killed := by_name.get("crash")) is not None and killed.moved:
        worst = max(killed.moved)
        found.append(Bar(f"kill -9 with a ready standby: gap under {CRASH_MS} ms", worst < CRASH_MS, f"{worst} ms"))
    slow, quick = by_name.get("scale-out-eager"), by_name.get("scale-out")
    if slow is not None and quick is not None and slow.moved and quick.moved:
        times = (Spread.of(slow.moved).p50 or 0) / max(1, Spread.of(quick.moved).p50 or 1)
        text = f"immediate reassignment at least {EAGER_TIMES} times worse (p50)"
        found.append(Bar(text, times >= EAGER_TIMES, f"{times:.0f} times"))
    return found


MANY_STEPS: Final = ("rolling-restart", "warm-handovers")
"""Phases in which one step waits for the one before: their time to rest is the sum over all steps."""

WARM: Final = ("scale-out", "drain", "warm-handovers", "comes-back")
"""The phases in which every move is from a running owner to a caught-up copy."""
