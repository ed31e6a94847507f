"""A picture of all measures of a soak, one small chart each: SVG, drawn here, with nothing to fetch."""

from collections.abc import Mapping
from html import escape
from typing import Final

from tests.soak.growth import RULE, Series

from batonpass.demo.picture import COLOURS, STYLE

COLUMNS: Final = 4
WIDTH, HEIGHT = 300, 96
GAP, TOP, LEFT = 26, 64, 16
CALM, GROWING = COLOURS[0], COLOURS[1]


def picture(title: str, measures: Mapping[str, Series]) -> str:
    """Return an SVG document. Each chart begins at zero; what grows is drawn in red, with both medians as lines."""
    rows = -(-len(measures) // COLUMNS)
    width, height = LEFT + COLUMNS * (WIDTH + GAP), TOP + rows * (HEIGHT + 2 * GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f'<style>{STYLE}</style><rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text class="title" x="{LEFT}" y="22">{escape(title)}</text>',
        f'<text class="quiet" x="{LEFT}" y="42">{escape(RULE)}</text>',
    ]
    for number, (name, series) in enumerate(measures.items()):
        row, column = divmod(number, COLUMNS)
        parts += _chart(name, series, LEFT + column * (WIDTH + GAP), TOP + 20 + row * (HEIGHT + 2 * GAP))
    return "".join([*parts, "</svg>\n"])


def _chart(name: str, series: Series, left: int, top: int) -> list[str]:
    floor, colour = top + HEIGHT, GROWING if series.grows() else CALM
    highest, longest = max(series.seen) or 1, max(series.at) or 1

    def place(at: float, seen: float) -> str:
        return f"{left + at / longest * WIDTH:.1f},{floor - seen / highest * HEIGHT:.1f}"

    line = " ".join(place(at, seen) for at, seen in zip(series.at, series.seen, strict=True))
    before, after = series.quarter(2), series.quarter(4)
    words = f"{series.in_words(before)} → {series.in_words(after)}{', grows' if series.grows() else ''}"
    ends = f"{longest / 60:.0f} min" if longest >= 120 else f"{longest:.0f} s"
    return [
        f'<text x="{left}" y="{top - 5}" font-weight="600">{escape(name)}</text>',
        f'<text x="{left + WIDTH}" y="{top - 5}" text-anchor="end" style="fill:{colour}">{escape(words)}</text>',
        f'<rect class="band" x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}"/>',
        *(
            f'<polyline points="{place(begin * longest, seen)} {place(end * longest, seen)}" class="base" fill="none"/>'
            for begin, end, seen in ((0.25, 0.5, before), (0.75, 1, after))
        ),
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
        f'<text class="quiet" x="{left}" y="{floor + 12}">0, at most {escape(series.in_words(max(series.seen)))}</text>',
        f'<text class="quiet" x="{left + WIDTH}" y="{floor + 12}" text-anchor="end">{ends}</text>',
    ]
