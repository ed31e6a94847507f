"""A picture of each task's throughput over a run, coloured by writer: an SVG that needs nothing else to be loaded."""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from operator import itemgetter
from typing import Final

from batonpass.demo.figures import PhaseFigures
from batonpass.demo.ledger import Ledger, Window

WIDTH: Final = 1_180
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 74, 30
ROW, GAP = 30, 6
BINS_MAX: Final = 900
BIN_MIN_MS: Final = 300.0
"""Outputs come in transactions, several a second: with narrower bins, a row would show only the transactions."""

COLOURS: Final = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bb5566", "#004488", "#999933")
"""Most people can distinguish these, also with colour-vision deficiency (Paul Tol's schemes)."""

FULL: Final = 1.6
"""A row is full at this many times the usual rate: after a gap, the waiting input is processed faster."""

STYLE: Final = (
    "text{font:11px system-ui,sans-serif;fill:#333}.title{font-size:15px;font-weight:600}.quiet{fill:#777}"
    ".band{fill:#f2f2f2}.line{stroke:#ddd}.base{stroke:#bbb}"
)


def picture(title: str, ledger: Ledger, window: Window, phases: Sequence[PhaseFigures], rate: float) -> str:
    """Return an SVG document: a row for each task, its height the records a second relative to the usual ``rate``."""
    height = TOP + len(ledger.tasks) * (ROW + GAP) + BOTTOM
    scale = (WIDTH - LEFT - RIGHT) / max(1, window[1] - window[0])
    writers = sorted({writer for task in ledger.tasks for writer in ledger.writers_of(task)})
    colours = {writer: COLOURS[number % len(COLOURS)] for number, writer in enumerate(writers)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
        f'<style>{STYLE}</style><rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>',
        *_legend(colours),
        *_bands(phases, window, scale, height),
    ]
    for task in ledger.tasks:
        parts += _row(ledger, task, window, scale, colours=colours, rate=rate)
    return "".join([*parts, *_axis(window, scale, height), "</svg>\n"])


def _legend(colours: dict[str, str]) -> list[str]:
    parts, x = [], LEFT
    for writer, colour in colours.items():
        parts.append(f'<rect x="{x}" y="30" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="39">{escape(writer)}</text>')
        x += 30 + 7 * len(writer)
    return parts


def _bands(phases: Sequence[PhaseFigures], window: Window, scale: float, height: int) -> list[str]:
    parts = []
    for number, phase in enumerate(phases):
        x = LEFT + (phase.window[0] - window[0]) * scale
        width = (phase.window[1] - phase.window[0]) * scale
        parts.append(
            f'<rect class="band" x="{x:.1f}" y="{TOP - 8}" width="{width:.1f}" height="{height - TOP - BOTTOM + 8}"/>'
        )
        # The names of short phases would overlap side by side.
        y = TOP - 12 - 11 * (number % 2)
        anchor, at = ("start", x) if x < WIDTH - 160 else ("end", x + width)
        parts.append(f'<text class="quiet" x="{at:.1f}" y="{y}" text-anchor="{anchor}">{escape(phase.name)}</text>')
    return parts


def _row(ledger: Ledger, task: int, window: Window, scale: float, *, colours: dict[str, str], rate: float) -> list[str]:
    """Draw one task: each stretch of bins with the same writer as one filled line, and nothing for empty bins."""
    floor = TOP + task * (ROW + GAP) + ROW
    parts = [
        f'<text x="{LEFT - 8}" y="{floor - 10}" text-anchor="end">0_{task}</text>',
        f'<line class="base" x1="{LEFT}" y1="{floor}" x2="{WIDTH - RIGHT}" y2="{floor}"/>',
    ]
    step = max(BIN_MIN_MS, (window[1] - window[0]) / BINS_MAX)
    bins: list[tuple[str | None, float, float, int]] = []
    for number in range(int((window[1] - window[0]) / step)):
        begin, end = window[0] + number * step, window[0] + (number + 1) * step
        count = ledger.put_out_within(task, (int(begin), int(end)))
        bins.append((ledger.writer_at(task, int(end)) if count else None, begin, end, count))
    for writer, stretch in groupby(bins, key=itemgetter(0)):
        path = ""
        for _, begin, end, count in stretch:
            level = floor - ROW * min(1.0, count / (rate * step / 1_000) / FULL)
            left, right = (LEFT + (at - window[0]) * scale for at in (begin, end))
            path = (path or f"M{left:.1f} {floor}") + f"V{level:.1f}H{right:.1f}"
        if writer is not None:
            parts.append(f'<path d="{path}V{floor}Z" fill="{colours[writer]}"/>')
    return parts


def _axis(window: Window, scale: float, height: int) -> list[str]:
    seconds = (window[1] - window[0]) / 1_000
    step = next(each for each in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_800) if seconds / each <= 16)
    parts = []
    for at in range(0, int(seconds) + 1, step):
        x = LEFT + at * 1_000 * scale
        parts.append(f'<text class="quiet" x="{x:.1f}" y="{height - 10}" text-anchor="middle">{at} s</text>')
    return parts
