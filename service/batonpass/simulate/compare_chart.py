"""A comparison as a picture: one bar for each arm and measure, on logarithmic scales, as SVG."""

from collections.abc import Callable
from html import escape
from math import log10

from batonpass.core.state.durations import duration
from batonpass.simulate.compare import Comparison, Result

WIDTH = 960
LABELS = 190
BAR = 16
GAP = 8
TOP = 64
PANEL_GAP = 34

Measure = tuple[str, Callable[[Result], float], Callable[[Result], str]]

MEASURES: tuple[Measure, ...] = (
    ("handovers", lambda result: result.handovers, lambda result: str(result.handovers)),
    (
        "time to rest",
        lambda result: float("inf") if result.rest_ms is None else result.rest_ms / 1000,
        lambda result: duration(result.rest_ms, "never"),
    ),
    (
        "longest downtime of a task",
        lambda result: result.downtime_max_ms / 100,
        lambda result: duration(result.downtime_max_ms),
    ),
)


def chart(comparison: Comparison) -> str:
    """Return the picture. Lengths are logarithmic: each tenfold is as long as the one before it."""
    rows = len(comparison.results)
    panel = 24 + rows * (BAR + GAP)
    height = TOP + len(MEASURES) * (panel + PANEL_GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"',
        ' font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(comparison.scenario.title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="28" font-size="17" font-weight="600" fill="#1f2933">{escape(comparison.scenario.title)}</text>',
        '<text x="16" y="48" fill="#52606d">shorter is better; each tenfold is as long as the one before it</text>',
    ]
    for place, measure in enumerate(MEASURES):
        parts += _panel(comparison, measure, TOP + place * (panel + PANEL_GAP))
    return "\n".join((*parts, "</svg>", ""))


def _panel(comparison: Comparison, measure: Measure, top: int) -> list[str]:
    heading, value, words = measure
    # In tenfolds; a value of 0 has length 0.
    decades = [log10(1 + value(result)) for result in comparison.results]
    longest = max(1.0, *(length for length in decades if length < float("inf")))
    room = WIDTH - LABELS - 110
    parts = [f'<text x="16" y="{top + 14}" font-weight="600" fill="#1f2933">{escape(heading)}</text>']
    for row, (result, length) in enumerate(zip(comparison.results, decades, strict=True)):
        y = top + 24 + row * (BAR + GAP)
        wide = max(2, round(room * min(length, longest) / longest))
        colour = "#0b7a53" if result.arm.startswith("Batonpass") else "#9aa5b1"
        parts += [
            f'<text x="{LABELS - 8}" y="{y + 12}" text-anchor="end" fill="#1f2933">{escape(result.arm)}</text>',
            f'<rect x="{LABELS}" y="{y}" width="{wide}" height="{BAR}" rx="2" fill="{colour}"/>',
            f'<text x="{LABELS + wide + 6}" y="{y + 12}" fill="#1f2933">{escape(words(result))}</text>',
        ]
    return parts
