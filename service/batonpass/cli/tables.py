"""Tables on a terminal, as wide as it is, and how far something is that takes a while."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich import box
from rich.cells import cell_len
from rich.console import ConsoleOptions, RenderResult
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from batonpass.terminal import Renderer, screen, shown

GAP: Final = 2
"""The columns between two cells of a table."""


def table(*columns: str, rows: Iterable[Sequence[Any]], title: str | None = None) -> "Rows":
    """Return rows whose cells are shown unchanged; None is shown as a dash, and numbers are right-aligned."""
    return Rows(columns, [list(row) for row in rows], title)


@dataclass(frozen=True)
class Rows:
    """Rows for people: a table, or, where that is too wide to keep every word whole, each row in lines of its own."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str | None = None

    def __rich_console__(self, console: Renderer, options: ConsoleOptions) -> RenderResult:
        filled = [[shown(cell if isinstance(cell, Text) else _words(cell)) for cell in row] for row in self.rows]
        texts = [[column, *(row[index].plain for row in filled)] for index, column in enumerate(self.columns)]
        least = [max(cell_len(word) for text in column for word in (*text.split(), "")) for column in texts]
        most = [max(map(cell_len, column)) for column in texts]
        widths = _shared_out(least, most, options.max_width - GAP * (len(texts) - 1))
        yield self._table(filled, widths) if widths else self._lines(filled)

    def _table(self, filled: Sequence[Sequence[Text]], widths: Sequence[int]) -> Table:
        made = Table(
            box=box.SIMPLE_HEAD,
            title=self.title,
            title_justify="left",
            title_style="bold",
            show_edge=False,
            padding=(0, GAP - 1, 0, 0),
            pad_edge=False,
        )
        for index, (column, width) in enumerate(zip(self.columns, widths, strict=True)):
            numbers = [row[index] for row in self.rows if row[index] is not None]
            right = bool(numbers) and all(isinstance(one, int | float) and not isinstance(one, bool) for one in numbers)
            made.add_column(column, justify="right" if right else "left", overflow="fold", width=width)
        for row in filled:
            made.add_row(*row)
        return made

    def _lines(self, filled: Sequence[Sequence[Text]]) -> Table:
        made = Table.grid("", "", padding=(0, GAP, 0, 0), pad_edge=False)
        made.title, made.title_justify, made.title_style = self.title, "left", "bold"
        for row in filled:
            for column, cell in zip(self.columns, row, strict=True):
                made.add_row(Text(column, style="bold"), cell)
            made.add_row()
        return made


def _shared_out(least: Sequence[int], most: Sequence[int], room: int) -> list[int]:
    """Return how wide each column is: as wide as its longest word, and wider as far as there is room; empty if not."""
    left = room - sum(least)
    if left < 0:
        return []
    widths = list(least)
    wanting = sorted(range(len(least)), key=lambda index: most[index] - least[index])
    for place, index in enumerate(wanting):
        more = min(most[index] - least[index], left // (len(wanting) - place))
        widths[index] += more
        left -= more
    return widths


def _words(cell: Any) -> str:
    match cell:
        case None | "" | [] | ():
            return "-"
        case bool():
            return "yes" if cell else "no"
        case list() | tuple():
            return ", ".join(map(str, cell))
        case Mapping():
            return ", ".join(f"{name}={value}" for name, value in cell.items()) or "-"
        case _:
            return str(cell)


def progress(left: str, right: str = "", *, wanted: bool = True) -> Progress:
    """Return a display of how far something is, on a terminal's standard error; it is gone at the end.

    ``left`` and ``right`` of the bar are formats of rich's fields of a task.
    """
    console = screen(stderr=True)
    texts = [TextColumn(text, markup=False) for text in (left, right)]
    columns = (texts[0], BarColumn(), texts[1], TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not (wanted and console.is_terminal))
